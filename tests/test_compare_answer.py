"""What an answer says: where two runs part, in one sentence; what is named, and nobody's fault."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import pytest
import torch
from answers import Trainer, answer, record, told
from dumps import dump
from torch import nn

import npu_core
from compare.judging import Kind
from compare.row import Row, Status


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A right step of a small GPT on the emulated npu."""
    with npu_core.use("exact"):
        return record(models.make("gpt", "npu"), tmp_path_factory.mktemp("answer") / "gpt.h5")


def faulty(path: Path, op: str, kind: str | Callable, nth: int) -> Path:
    with npu_core.use("exact"), npu_core.fault(op, kind, nth=nth) as fault:
        record(models.make("gpt", "npu"), path)
    assert fault.applied == [nth]
    return path


def test_where_two_runs_part(gpt, tmp_path):
    """The json and the terminal name call, op, module, line, tensor and reason."""
    mine = faulty(tmp_path / "mine.h5", "gelu.default", "one_element_off", 1)
    said = told(mine, gpt, tmp_path)
    first = said.summary["first_difference"]
    row = said.row(first["row"])
    assert row["my_path"] == f"/gelu/{first['seqid']}/output/result" == row["golden_path"]
    assert first["ir"] == "gelu" and first["call"] == "torch.nn.functional.gelu.0"
    assert (first["phase"], first["module"], first["arg"]) == ("forward", "mlp.1", "output/result")
    assert first["source"].startswith(str(Path(models.__file__))) or "models.py:" in first["source"]
    assert first["reason"] == row["verdict"]["reason"] and row["verdict"]["kind"] == "differs"
    assert said.status == 1
    lines = said.text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("first difference: "))
    for part in ("torch.nn.functional.gelu.0", "forward", "gelu", "mlp.1", "models.py:"):
        assert part in lines[at], part
    assert lines[at + 1].strip().startswith("output/result: ")
    assert f"msaccucmp show {mine} /gelu/{first['seqid']} -g {gpt}" in said.text
    # in this order
    order = ("started equal", " compared: ", "first difference: ", "rows that differ most", "next")
    places = [next(i for i, line in enumerate(lines) if word in line) for word in order]
    assert places == sorted(places)


def test_counts_are_those_of_the_rows(gpt, tmp_path):
    mine = faulty(tmp_path / "mine.h5", "addmm.default", "saturate", 2)
    said = told(mine, gpt, tmp_path)
    rows = [*said.result["rows"], *said.result["unpaired"]]
    for kind in Kind:
        assert said.summary[kind.value] == sum(r["verdict"]["kind"] == kind.value for r in rows)
    assert said.summary["differs"] == 1 and said.summary["inherited"] > 100
    with open(said.csv, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows) == said.summary["rows"]
    assert sum(row["Verdict"] == "differs" for row in table) == 1


def test_a_row_of_one_element_is_never_the_first_difference(gpt, tmp_path):
    """It differs and is counted, but names no cause: the loss alone proves little."""
    mine = faulty(tmp_path / "mine.h5", "nll_loss_forward.default", lambda x: (x[0] * 2, x[1]), 1)
    said = told(mine, gpt, tmp_path)
    assert said.summary["differs"] == 1 and said.summary["first_difference"] is None
    assert said.status == 1  # something is wrong all the same
    assert "too little to name a cause" in said.text
    found = answer(mine, gpt)
    wrong = [row for row in found.rows if row.verdict.kind is Kind.DIFFERS]
    assert [row.op for row in wrong] == ["nll_loss_forward"] and wrong[0].verdict.low_evidence


def test_a_larger_row_after_it_is_the_first_difference(gpt, tmp_path):
    with npu_core.use("exact"), npu_core.fault("gelu_backward.default", "sign_flip", nth=1):
        mine = faulty(
            tmp_path / "mine.h5", "nll_loss_forward.default", lambda x: (x[0] * 2, x[1]), 1
        )
    found = answer(mine, gpt)
    assert found.summary.first.op == "gelu_backward"
    assert found.summary.verdicts[Kind.DIFFERS] == 2


# Named, and nobody's fault.


def halves(device: str) -> Callable[[], object]:
    x = torch.tensor([60000.0, -60000.0, 1.5, -2.0, 3.0], dtype=torch.float16, device=device)
    return lambda: (x * 2).abs()


@pytest.mark.parametrize("profile", ["910A", "exact"])
def test_saturation_against_infinity(profile, tmp_path):
    """65504 where the other side has inf is what the device does by design, not a wrong op."""
    golden = record(halves("cpu"), tmp_path / "cpu.h5")
    with npu_core.use(profile):
        mine = record(halves("npu"), tmp_path / "npu.h5")
    said = told(mine, golden, tmp_path, "-overflow_detection")
    product = next(r for r in said.result["rows"] if r["my_path"] == "/mul_Tensor/1/output/result")
    if profile == "exact":
        assert product["verdict"]["kind"] == "same" and said.status == 0
        return
    assert product["metrics"]["reach"] == [65504.0, "inf"]
    assert product["metrics"]["nonfinite"] == {"same": 0, "mine": 0, "golden": 2, "unlike": 0}
    assert product["verdict"]["code"] == "saturation"
    assert product["verdict"]["kind"] == "not_comparable"
    assert "2 of 5 elements" in product["verdict"]["reason"]
    assert said.summary["differs"] == said.summary["cannot_tell"] == 0
    assert said.summary["first_difference"] is None and said.status == 0
    with open(said.csv, newline="", encoding="utf-8") as file:
        table = {row["NPUDumpPath"]: row["OverFlow"] for row in csv.DictReader(file)}
    assert table == {
        "/mul_Tensor/1/input/self": "NO",
        "/mul_Tensor/1/output/result": "YES",
        "/abs/2/input/self": "YES",
        "/abs/2/output/result": "YES",
    }


def with_dropout(seed: int) -> Callable[[], object]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.Linear(32, 4))
    x = torch.randn(8, 16)

    def run() -> None:
        torch.manual_seed(seed)
        model(x).sum().backward()

    return run


def test_other_random_states(tmp_path):
    """Masks from other states are not compared; what follows inherits that."""
    paths = [record(with_dropout(seed), tmp_path / f"{seed}.h5") for seed in (1, 2)]
    found = answer(*paths)
    drawn = [r for r in found.rows if r.verdict.kind is Kind.NOT_COMPARABLE]
    assert {r.verdict.code for r in drawn} == {"random_state"} and drawn
    assert all("random states differ" in row.verdict.reason for row in drawn)
    assert not found.wrong() and found.summary.nothing_wrong
    assert found.summary.verdicts[Kind.INHERITED] > 0


def test_equal_random_states(tmp_path):
    found = answer(*[record(with_dropout(1), tmp_path / f"{i}.h5") for i in range(2)])
    assert {row.status for row in found.rows} <= {Status.EQUAL, Status.UNINITIALISED}
    assert found.summary.nothing_wrong


# What one side does more often.


class Chain(nn.Module):
    """Two layers, with a copy, a product or nothing between them."""

    def __init__(self, between: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.between = nn.Linear(8, 8), nn.Linear(8, 8), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.between == "copy":
            x = x.clone()
        elif self.between == "product":
            x = x * 1.5
        return self.second(x)


def chain(between: str, device: str = "npu") -> Callable[[], object]:
    model = Chain(between).to(device)
    x = torch.ones(3, 8, device=device)
    return lambda: model(x).sum().backward()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with npu_core.use("exact"):
        return record(chain("nothing"), tmp_path_factory.mktemp("plain") / "golden.h5")


def test_one_more_copy_is_nobodys_fault(plain, tmp_path, exact):
    found = answer(record(chain("copy"), tmp_path / "mine.h5"), plain)
    assert dict(found.summary.unpaired) == {"no_copy": 1}
    assert found.summary.nothing_wrong and not found.wrong()


@pytest.mark.parametrize("kind", ["sign_flip", "one_element_off", "nan_in_one_element"])
def test_one_more_copy_that_is_wrong(plain, kind, tmp_path, exact):
    """Nothing stands against it in golden, but a copy must be what it was given."""
    with npu_core.fault("clone.default", kind, nth=1):
        mine = record(chain("copy"), tmp_path / "mine.h5")
    found = answer(mine, plain)
    assert found.summary.first.op == "clone" and not found.summary.nothing_wrong
    assert found.summary.verdicts[Kind.DIFFERS] == 1
    said = told(mine, plain, tmp_path)
    assert said.status == 1 and "first difference: " in said.text and "op clone" in said.text


def test_one_more_product_costs_its_own_row(plain, tmp_path, exact):
    """All others are paired as if it were not there."""
    found = answer(record(chain("product"), tmp_path / "mine.h5"), plain)
    alone = [row for row in found.rows if row.status is Status.UNPAIRED]
    assert {row.op for row in alone} == {"mul_Tensor"}
    assert len(alone) == 2  # forward and backward
    assert not found.summary.nothing_wrong
    paired = {(row.op, row.golden_path.split("/")[1]) for row in found.rows if row.golden_path}
    assert all(mine == golden for mine, golden in paired)


# Shapes at the edge.


def pair_of(mine: np.ndarray, golden: np.ndarray, folder: Path) -> Row:
    """The row of an op's output in two hand-made files."""
    for name, value in (("mine", mine), ("golden", golden)):
        dump(folder / f"{name}.h5", {"/relu/1/input/self": value, "/relu/1/output/result": value})
    found = answer(folder / "mine.h5", folder / "golden.h5")
    return next(row for row in found.rows if row.side == "output")


SHAPES = [(), (1,), (1, 1), (3,), (2, 3), (3, 2), (0,), (0, 4), (4, 0)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_compared_with_itself(shape, tmp_path):
    row = pair_of(np.ones(shape, "f4"), np.ones(shape, "f4"), tmp_path)
    assert row.status is Status.EQUAL and row.verdict.kind is Kind.SAME
    assert row.shape == shape


@pytest.mark.parametrize(
    ("mine", "golden"), [(a, b) for a in SHAPES for b in SHAPES if a != b][::5]
)
def test_no_shape_is_compared_with_another(mine, golden, tmp_path):
    row = pair_of(np.ones(mine, "f4"), np.ones(golden, "f4"), tmp_path)
    assert row.status is Status.INCOMPARABLE and row.metrics is None
    assert (row.verdict.kind, row.verdict.code) == (Kind.NOT_COMPARABLE, "shape_differs")
    assert row.reasons == (f"shapes differ: {list(mine)} in my dump, {list(golden)} in golden",)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_that_differs_is_low_evidence(shape, tmp_path):
    row = pair_of(np.full(shape, 2, "f4"), np.ones(shape, "f4"), tmp_path)
    assert row.status is Status.DIFFERS and row.verdict.low_evidence


def test_another_batch_size_is_one_finding(tmp_path):
    """It is the batch that differs; every op behind it has another shape, for that reason."""
    paths = []
    for size in (5, 4):
        run = Trainer()
        run.batch, run.labels = run.batch[:size], run.labels[:size]
        paths.append(record(run, tmp_path / f"{size}.h5"))
    said = told(*paths, tmp_path)
    start = said.summary["start"]
    assert start["equal"] is False and start["batch"]["differ"] == 2
    assert said.status == 1 and said.summary["first_difference"] is None
    others = [
        row for row in said.result["rows"]
        if row["status"] == "not comparable" and row["leaf"] is None
    ]  # fmt: skip
    assert len(others) > 10
    assert {row["verdict"]["kind"] for row in others} == {"inherited"}
