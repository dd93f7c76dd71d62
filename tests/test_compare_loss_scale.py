"""Two runs that scale their loss differently: named, divided out, and no cover for a wrong op."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import chains
import pytest
import torch
from answers import Answer, Trainer, answer, record, told

import npu_core
from compare.judging import Kind
from compare.row import Status
from dumper import open_dump


def with_scaler(scale: float, device: str = "cpu") -> Trainer:
    """A trainer whose gradient scaler has made its scale already, before what is recorded."""
    run = Trainer(device)
    scaler = torch.amp.GradScaler(device, init_scale=scale)
    scaler.scale(torch.zeros((), device=device))

    def backward(loss: torch.Tensor) -> None:
        scaler.scale(loss).backward()
        scaler.unscale_(run.optimizer)

    run.backward = backward
    return run


def multiplied(scale: float) -> Trainer:
    """The program multiplies by a number of its own, and divides its gradients."""
    run = Trainer()

    def backward(loss: torch.Tensor) -> None:
        (loss * scale).backward()
        for parameter in run.model.parameters():
            parameter.grad /= scale

    run.backward = backward
    return run


def given(scale: float) -> Trainer:
    """The gradient of the loss is the scale."""
    run = Trainer()

    def backward(loss: torch.Tensor) -> None:
        loss.backward(torch.tensor(scale))
        for parameter in run.model.parameters():
            parameter.grad /= scale

    run.backward = backward
    return run


def unscaled(_: float) -> Trainer:
    """No scale at all."""
    return Trainer()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scales")


def compared(
    folder: Path, make: Callable[[float], Trainer], mine: float, golden: float
) -> tuple[Path, Path]:
    """Dumps of a step under both scales."""
    paths = [folder / f"{make.__name__}-{scale}.h5" for scale in (mine, golden)]
    for path, scale in zip(paths, (mine, golden), strict=True):
        if not path.exists():
            record(make(scale), path)
    return paths[0], paths[1]


def in_backward(found: Answer) -> list:
    return [row for row in found.rows if row.phase in ("backward", "grad") and row.metrics]


@pytest.mark.parametrize("make", [with_scaler, multiplied, given])
def test_named_and_divided_out(folder, make):
    found = answer(*compared(folder, make, 65536.0, 1024.0))
    scale = found.summary.start.scale
    assert scale == (64.0, 65536.0, 1024.0)
    assert not found.wrong() and found.summary.start.equal
    rows = [row for row in in_backward(found) if row.side == "output"]
    assert len(rows) > 25
    unequal = [row.my_path for row in rows if row.status is not Status.EQUAL]
    assert all("mul" in path for path in unequal) and len(unequal) <= 1  # the scale's own product
    assert all("1 was divided" not in reason for row in rows for reason in row.reasons)


@pytest.mark.parametrize(
    ("mine", "golden"), [(3000.0, 1024.0), (1024.0, 3000.0), (10.0, 65536.0), (1.0, 1.5)]
)
def test_a_ratio_that_is_no_power_of_two(folder, mine, golden):
    """Dividing rounds, so what bears it is no longer bit-equal, but nothing differs."""
    found = answer(*compared(folder, with_scaler, mine, golden))
    assert found.summary.start.scale == (mine / golden, mine, golden)
    assert not found.wrong() and found.summary.start.equal
    assert max(row.metrics.relative_euclidean for row in in_backward(found)[2:]) < 1e-5


def test_the_program_says_it(folder, tmp_path):
    """In the terminal, in the json, and again by `report`."""
    said = told(*compared(folder, with_scaler, 65536.0, 1024.0), tmp_path)
    assert "different loss scale 65536 : 1024, divided out" in said.text
    start = said.summary["start"]
    assert start["loss_scale"] == {"ratio": 64.0, "mine": 65536.0, "golden": 1024.0}
    assert start["equal"] is True and start["batch"]["differ"] == 0
    again = chains.run("report", said.json)
    assert "different loss scale 65536 : 1024, divided out" in again.stdout
    assert again.exit_code == said.status == 0
    note = "mine was divided by the ratio of the loss scales, 64"
    rows = [row for row in said.result["rows"] if note in row["reasons"]]
    assert {row["phase"] for row in rows} <= {"backward", "grad"} and len(rows) > 25


def test_a_scale_on_one_side_only(folder):
    mine = compared(folder, multiplied, 1024.0, 1024.0)[0]
    golden = compared(folder, unscaled, 0.0, 0.0)[0]
    found = answer(mine, golden)
    assert found.summary.start.scale.ratio == 1024.0
    assert not [line for line in found.wrong() if "div" not in line]


@pytest.mark.parametrize("make", [with_scaler, multiplied, unscaled])
def test_equal_scales_say_nothing(folder, make, tmp_path):
    mine = record(make(1024.0), tmp_path / "mine.h5")
    said = told(mine, compared(folder, make, 1024.0, 1024.0)[0], tmp_path)
    assert said.summary["start"]["loss_scale"] is None and "loss scale" not in said.text


def faulty(path: Path, ir: str, nth: int, scale: float, change: Callable) -> str:
    """Record a step on the emulated npu with one call of an op wrong; the path of its record."""
    run = with_scaler(scale, "npu") if scale else Trainer("npu")
    name, _, overload = ir.partition(".")
    with npu_core.fault(f"{name}.{overload or 'default'}", change, nth=nth) as fault:
        record(run, path)
    assert fault.applied == [nth]
    with open_dump(path) as opened:
        stored = ir.replace(".", "_")
        return [r.path for r in opened.records if r.ir == stored][nth - 1]


def doubled(x: object) -> object:
    """Every floating-point result twice as large."""
    return (2 * x[0], *x[1:]) if isinstance(x, (tuple, list)) else 2 * x


@pytest.fixture(scope="module")
def golden(folder: Path) -> dict[float, Path]:
    """Right steps on the emulated npu, by their scale; 0 for none."""
    with npu_core.use("exact"):
        makes = {scale: with_scaler(scale, "npu") for scale in (1024.0,)} | {0.0: Trainer("npu")}
        return {s: record(run, folder / f"npu-{s}.h5") for s, run in makes.items()}


BACKWARD = [
    ("nll_loss_backward", 1), ("_log_softmax_backward_data", 1), ("mm", 1), ("mm", 4),
    ("gelu_backward", 1), ("native_layer_norm_backward", 1),
]  # fmt: skip


@pytest.mark.parametrize(("ir", "nth"), BACKWARD)
def test_a_wrong_op_is_no_loss_scale(golden, ir, nth, tmp_path, exact):
    """It doubles what it makes, and all behind it is doubled: a constant ratio, made by one op."""
    where = faulty(tmp_path / "mine.h5", ir, nth, 0.0, doubled)
    found = answer(tmp_path / "mine.h5", golden[0.0])
    assert found.summary.start.scale is None
    assert found.summary.first.record_path == where


FAULTS = [(ir, nth, change) for ir, nth in BACKWARD for change in ("sign_flip", doubled)]
FAULTS += [
    ("nll_loss_backward", 1, "one_element_off"),
    ("mm", 3, "transposed_weight"),
    ("gelu_backward", 1, "one_row_swapped"),
    ("sum.dim_IntList", 3, "stale_buffer"),
]


@pytest.mark.parametrize(("ir", "nth", "change"), FAULTS)
def test_a_wrong_op_under_another_scale(golden, ir, nth, change, tmp_path, exact):
    """The scale is named and divided out, and the wrong op is the only one that differs."""
    where = faulty(tmp_path / "mine.h5", ir, nth, 65536.0, change)
    found = answer(tmp_path / "mine.h5", golden[1024.0])
    wrong = {row.record_path for row in found.rows if row.verdict.kind is Kind.DIFFERS}
    assert wrong == {where} and found.summary.first.record_path == where
    assert found.summary.start.scale == (64.0, 65536.0, 1024.0)
    assert found.summary.start.equal


def test_the_weight_of_one_of_two_losses_is_no_loss_scale(tmp_path):
    """Half of backward and more is as in golden."""
    torch.manual_seed(0)
    layers, x = torch.nn.ModuleList([torch.nn.Linear(6, 6) for _ in range(6)]), torch.randn(3, 6)

    def step(weight: float) -> Callable[[], object]:
        def run() -> None:
            y = x
            for layer in layers[:5]:
                y = layer(y).tanh()
            (y.square().mean() + weight * layers[5](x).square().mean()).backward()

        return run

    paths = [record(step(weight), tmp_path / f"{weight}.h5") for weight in (2.0, 0.5)]
    found = answer(*paths)
    assert found.summary.start.scale is None and not found.wrong()
