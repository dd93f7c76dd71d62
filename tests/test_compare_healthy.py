"""Healthy pairs raise no alarm: every model family, each way of computing it, against the cpu.

A step of a family's own training (forward, backward, clipping, optimizer), recorded on the cpu and
in other ways: under autocast, on one thread, on the emulated npu in each of its profiles. Nothing
is wrong in any, so no row may be said to differ, and none may differ without an explanation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import families
import models
import pytest
from answers import Answer, answer, record
from sensitivities.dumps import can, dump

import npu_core
from compare.judging import Kind
from compare.row import Status

WAYS = {
    "resnet": ("npu 910A",),
    "densenet": ("npu 910B",),
    "unet": ("cpu, fp16 autocast", "npu exact"),
    "mobilenet": ("cpu, 2 threads", "npu exact"),
    "lstm": ("npu exact", "cpu, bf16 autocast"),
    "gru": ("npu 910B", "cpu, fp16 autocast"),
    "transformer": ("cpu, fp16 autocast",),
    "gpt": ("npu exact", "cpu, bf16 autocast"),
    "bert": ("npu 910A",),
    "t5": ("cpu, bf16 autocast",),
    "vit": ("npu 910B",),
    "minilm": ("cpu, 2 threads",),
    "gan": ("npu 910A",),
    "embedding": ("cpu, fp16 autocast", "cpu, 2 threads"),
}
PAIRS = [
    pytest.param(
        family, way,
        marks=pytest.mark.xfail(reason="one _foreach_mul of Adagrad has no partner")
        if (family, way) == ("gru", "npu 910B") else (),
    )
    for family, ways in WAYS.items() for way in ways
]  # fmt: skip

BY_THE_PROGRAM = {"t5": {"argument_differs"}}
"""Codes of what the two programs themselves do otherwise: T5 and Adafactor read numbers of tensors
back and compute with them, and its mask is filled with the least number of its dtype."""

NO_ALARM = {"no_copy", "random", "random_state", "workspace", "saturation", "dtype_range"}
"""Codes of what is not comparable and nobody's fault."""


NAMED = {"mode_differs": "mode", "saturation": "saturation"}
"""What a device does otherwise by design."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Answer]:
    """A family's step in some way against its step on the cpu; each is recorded once."""
    folder = tmp_path_factory.mktemp("healthy")
    golden: dict[str, Path] = {}

    def find(family: str, way: str) -> Answer:
        assert can(family, way)
        if family not in golden:
            for path in golden.values():
                path.unlink()  # minilm's are hundreds of megabytes
            golden.clear()
            golden[family] = dump(family, "cpu", folder)
        mine = dump(family, way, folder)
        found = answer(mine, golden[family])
        mine.unlink()
        return found

    return find


def test_every_family_and_every_way_is_here():
    assert WAYS.keys() == families.FAMILIES.keys()
    ways = Counter(way for each in WAYS.values() for way in each)
    assert ways.keys() == {
        "cpu, 2 threads", "cpu, fp16 autocast", "cpu, bf16 autocast",
        "npu exact", "npu 910A", "npu 910B",
    }  # fmt: skip
    assert min(ways.values()) >= 3


@pytest.mark.parametrize(("family", "way"), PAIRS)
def test_no_row_differs(compared, family, way):
    found = compared(family, way)
    summary = found.summary
    assert not found.wrong()
    assert summary.first is None and not summary.unexplained
    assert summary.compared > 200
    # every op was judged by a rule of its own, and what has no numbers is named
    assert summary.by_default <= 0.01 * max(1, summary.judged)
    codes = Counter(r.verdict.code for r in found.rows if r.verdict.kind is Kind.NOT_COMPARABLE)
    assert codes.keys() <= NO_ALARM | BY_THE_PROGRAM.get(family, set()), codes
    is_autocast = way.endswith("autocast")
    assert [flag.name for flag in summary.start.flags] == ["autocast"] * is_autocast
    leaves = summary.start.leaves.values()
    assert sum(each.compared for each in leaves) > 5
    assert not any(each.differ for each in leaves), [each.first for each in leaves]
    assert summary.start.scale is None
    assert summary.nothing_wrong is not is_autocast


@pytest.mark.parametrize("family", ["resnet", "gpt", "lstm"])
@pytest.mark.parametrize("profile", ["exact", "910A", "910B"])
def test_load_mode(family, profile, tmp_path):
    """Fed the recorded inputs, each op is judged by itself; there nothing can be inherited."""
    with npu_core.use("exact"):
        golden = record(models.make(family, "npu"), tmp_path / "golden.h5")
    with npu_core.use(profile):
        mine = record(models.make(family, "npu"), tmp_path / "mine.h5", golden)
    found = answer(mine, golden)
    assert not found.wrong() and found.summary.nothing_wrong
    ops = [
        row for row in found.rows if row.side == "output" and row.phase not in ("grad", "update")
    ]
    apart = Counter(
        NAMED.get(row.verdict.code, row.verdict.kind) for row in ops if row.status is Status.DIFFERS
    )
    assert apart.keys() <= {Kind.ROUNDING, "mode", "saturation"}
    assert ("mode" in apart) is (profile == "910A")  # where matrix operands are rounded to fp16
    assert bool(apart) is (profile != "exact")  # which is bit-equal to itself
    assert found.summary.compared > 200


def test_two_dumps_of_one_way_are_bit_equal(tmp_path):
    paths = [record(models.make("gpt", "cpu"), tmp_path / f"{i}.h5") for i in range(2)]
    found = answer(*paths)
    kinds = {row.status for row in found.rows}
    assert kinds == {Status.EQUAL} and found.summary.nothing_wrong
