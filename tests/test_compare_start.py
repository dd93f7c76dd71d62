"""Did both runs start equal? Weights, batch, optimizer states and flags, said first everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import chains
import pytest
import torch
from answers import Told, Trainer, record, told
from dumps import dump

from dumper import open_dump


def perturbed_weight(run: Trainer) -> None:
    run.model[3].weight[2, 1] += 1e-3


def two_weights(run: Trainer) -> None:
    run.model[4].bias[0] += 1e-3
    run.model[1].weight[0] += 1e-3


def another_batch(run: Trainer) -> None:
    run.batch[0, 0] += 1


def another_state(run: Trainer) -> None:
    run.optimizer.state[run.model[0].bias]["exp_avg"][3] += 1e-3


def in_bfloat16(run: Trainer) -> None:
    run.model.bfloat16()
    run.batch = run.batch.bfloat16()
    for state in run.optimizer.state.values():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = state[name].bfloat16()


def under_autocast(run: Trainer) -> None:
    run.autocast = torch.bfloat16


def partly_in_eval(run: Trainer) -> None:
    run.model[1].eval()


def other_default(_: Trainer) -> None:
    torch.set_default_dtype(torch.float64)


def deterministic(_: Trainer) -> None:
    torch.use_deterministic_algorithms(True)


def one_weight_under_autocast(run: Trainer) -> None:
    under_autocast(run)
    perturbed_weight(run)


CHANGES: tuple[Callable[[Trainer], None], ...] = (
    perturbed_weight, two_weights, another_batch, another_state, in_bfloat16, under_autocast,
    partly_in_eval, other_default, deterministic, one_weight_under_autocast,
)  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A step of one trainer, started in as many ways; `again` is the very same."""
    folder = tmp_path_factory.mktemp("start")
    found = {}
    for change in (None, *CHANGES):
        run = Trainer()
        try:
            if change:
                with torch.no_grad():
                    change(run)
            name = change.__name__ if change else "golden"
            found[name] = record(run, folder / f"{name}.h5")
        finally:
            torch.set_default_dtype(torch.float32)
            torch.use_deterministic_algorithms(False)
    found["again"] = record(Trainer(), folder / "again.h5")
    found["loaded"] = record(Trainer(), folder / "loaded.h5", found["golden"])
    return found


@pytest.fixture(scope="module")
def started(
    files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Told]:
    """What compare says of two of them."""
    known: dict[tuple[str, str], Told] = {}

    def compared(mine: str, golden: str) -> Told:
        if (mine, golden) not in known:
            folder = tmp_path_factory.mktemp(f"{mine}-{golden}")
            known[mine, golden] = told(files[mine], files[golden], folder)
        return known[mine, golden]

    return compared


def first_line(said: Told) -> str:
    """The first line after the names of both files."""
    return said.text.splitlines()[2]


def test_equal(started):
    said = started("again", "golden")
    assert said.summary["start"] == {
        "equal": True,
        "compared": 34,
        "batch": {"compared": 2, "differ": 0, "first": None, "name": None},  # batch and labels
        "weights": {"compared": 8, "differ": 0, "first": None, "name": None},
        "optimizer_state": {"compared": 24, "differ": 0, "first": None, "name": None},
        "flags": [],
        "loss_scale": None,
    }  # AdamW has three tensors for each of 8 parameters
    assert first_line(said) == "started equal: 2 inputs, 8 weights, 24 optimizer states"
    assert said.status == 0


@pytest.mark.parametrize("mine", ["perturbed_weight", "golden"])
def test_one_weight_that_differs_is_named(started, mine):
    golden = {"golden": "perturbed_weight"}.get(mine, "golden")
    said = started(mine, golden)
    weights = said.summary["start"]["weights"]
    assert (weights["compared"], weights["differ"], weights["name"]) == (8, 1, "3.weight")
    row = said.row(weights["first"])
    assert row["leaf"] == "3.weight" and row["metrics"]["MaxAbsoluteError"] == pytest.approx(
        1e-3, rel=1e-3
    )
    assert "weights differ: 1 of 8, first 3.weight" in first_line(said)
    assert said.summary["start"]["equal"] is False and said.status == 1
    # nobody is blamed for what follows
    assert said.summary["differs"] == said.summary["cannot_tell"] == 0
    assert said.summary["inherited"] > 0 and said.summary["first_difference"] is None


def test_the_first_of_two_weights_is_named(started):
    weights = started("two_weights", "golden").summary["start"]["weights"]
    assert (weights["differ"], weights["name"]) == (2, "1.weight")


def test_another_batch(started):
    said = started("another_batch", "golden")
    start = said.summary["start"]
    assert start["equal"] is False and start["weights"]["differ"] == 0
    assert start["batch"]["differ"] == 1
    row = said.row(start["batch"]["first"])
    assert row["my_path"] == "/addmm/2/input/mat1"  # the first op that takes it
    assert "inputs differ: 1 of 2, first /addmm/2/input/mat1" in first_line(said)
    assert said.summary["differs"] == 0


def test_another_optimizer_state(started):
    said = started("another_state", "golden")
    start = said.summary["start"]
    assert [start[kind]["differ"] for kind in ("batch", "weights", "optimizer_state")] == [0, 0, 1]
    assert "optimizer states differ: 1 of 24" in first_line(said)
    assert said.status == 1 and said.summary["differs"] == 0


def test_other_dtypes_of_the_same_values(started):
    """bfloat16 weights are rounded ones: they differ in value, and are all named as such."""
    start = started("in_bfloat16", "golden").summary["start"]
    assert start["equal"] is False
    assert start["weights"]["compared"] == 8 and start["weights"]["differ"] >= 4
    assert start["batch"]["differ"] == 1


@pytest.mark.parametrize(
    ("change", "flag", "value"),
    [
        ("under_autocast", "autocast", ["bfloat16"]),
        ("partly_in_eval", "eval_modules", [1, "1"]),
        ("other_default", "default_dtype", "float64"),
        ("deterministic", "deterministic", True),
    ],
)
def test_flags(started, change, flag, value):
    """A flag is named with both values, whichever side has it."""
    for mine, golden in ((change, "golden"), ("golden", change)):
        said = started(mine, golden)
        start = said.summary["start"]
        assert [each["name"] for each in start["flags"]] == [flag]
        assert start["flags"][0]["mine" if mine == change else "golden"] == value
        assert start["flags"][0]["golden" if mine == change else "mine"] != value
        assert start["equal"] is False and said.status == 1
        assert flag in first_line(said)
        # what both had from outside was equal all the same
        assert [start[kind]["differ"] for kind in ("batch", "weights", "optimizer_state")] == [
            0
        ] * 3
        assert start["weights"]["compared"] == 8
        assert said.summary["differs"] == 0


@pytest.mark.parametrize(
    ("mine", "golden"),
    [("one_weight_under_autocast", "golden"), ("golden", "one_weight_under_autocast")],
)
def test_a_weight_that_one_side_casts_first_is_still_compared(started, mine, golden):
    weights = started(mine, golden).summary["start"]["weights"]
    assert (weights["compared"], weights["differ"], weights["name"]) == (8, 1, "3.weight")


@pytest.mark.parametrize(("mine", "golden"), [("loaded", "golden"), ("golden", "loaded")])
def test_load_mode_needs_no_equal_start(started, mine, golden):
    said = started(mine, golden)
    assert said.summary["start"]["equal"] is None
    assert said.summary["start"]["compared"] == 0
    assert "in load mode" in first_line(said) and said.status == 0


class Parts(torch.nn.Module):
    """One weight that is used in three parts, as the projections of an attention are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(9, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sum((x @ part.t()).sum() for part in self.weight.chunk(3))


@pytest.mark.parametrize("changed", [False, True])
def test_a_parameter_used_in_parts(tmp_path, changed):
    """Each part of a parameter is looked at; it is one weight all the same."""
    models, x = (Parts(), Parts()), torch.ones(2, 6)
    if changed:
        with torch.no_grad():
            models[0].weight[8, 5] += 1  # in the last part
    paths = [
        record(lambda model=model: model(x).backward(), tmp_path / f"{i}.h5")
        for i, model in enumerate(models)
    ]
    weights = told(*paths, tmp_path).summary["start"]["weights"]
    assert (weights["compared"], weights["differ"]) == (1, changed)


def test_files_without_an_index(tmp_path, monkeypatch):
    """They do not say what came from outside, so equal inputs prove nothing."""
    mine, golden = chains.equal_pair(tmp_path, monkeypatch)
    with open_dump(mine) as opened:
        assert not any(record.entry.values for record in opened.records)
    said = told(mine, golden, tmp_path / "out")
    assert said.summary["start"]["equal"] is None and said.status == 0
    assert "cannot be told" in first_line(said)


def test_files_without_an_index_whose_first_input_differs(tmp_path):
    values = [[1, 3], [2, 6], [2, 6], [8]]
    dump(tmp_path / "npu.h5", chains.chain(values), 10)
    dump(tmp_path / "cpu.h5", chains.chain(chains.GOOD), 0)
    said = told(tmp_path / "npu.h5", tmp_path / "cpu.h5", tmp_path / "out")
    start = said.summary["start"]
    assert (start["equal"], start["batch"]["differ"]) == (False, 1)
    assert "first /mul/1/input/self" in first_line(said)


@pytest.mark.parametrize(
    "mine", ["again", "perturbed_weight", "another_batch", "partly_in_eval", "loaded"]
)
def test_report_and_json_say_the_same(started, mine):
    """The result that is read again has the same start, answer and exit status."""
    said = started(mine, "golden")
    again = chains.run("report", said.json)
    answer = [line for line in said.text.splitlines() if not line.startswith(("json:", "result:"))]
    assert again.stdout.splitlines() == answer
    assert again.exit_code == said.status
    assert json.loads(said.json.read_text())["summary"]["start"] == said.summary["start"]
