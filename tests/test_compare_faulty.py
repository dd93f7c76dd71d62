"""A wrong op is the first that differs, in load mode and in a free run, whatever is wrong with it.

Named faults of the emulated device (npu_core.fault) are planted in one call of a step of a real
model family: every kind in two families or more, in ops of every class. What the step computes
after it differs too, and is inherited.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import families
import pytest
from answers import Answer, answer, record

import npu_core
from compare.judging import Kind
from compare.row import Status
from dumper import open_dump
from npu_core.fault_kinds import KINDS


class Planted(NamedTuple):
    """A fault: in which family, kind, op and which of its calls."""

    family: str
    kind: str
    op: str
    nth: int


PLANTED = [
    Planted(*each)
    for each in (
        ("mobilenet", "bias_dropped", "convolution.default", 4),
        ("gru", "bias_dropped", "_thnn_fused_gru_cell.default", 5),
        ("gan", "wrong_epsilon", "native_batch_norm.default", 2),
        ("resnet", "wrong_epsilon", "native_batch_norm.default", 9),
        ("gpt", "transposed_weight", "addmm.default", 2),
        ("resnet", "transposed_weight", "convolution.default", 3),
        ("gru", "fp16_accumulation", "mm.default", 40),
        ("resnet", "fp16_accumulation", "convolution_backward.default", 4),
        ("mobilenet", "one_element_off", "hardswish_.default", 2),
        ("resnet", "one_element_off", "threshold_backward.default", 3),
        ("mobilenet", "one_row_swapped", "native_batch_norm_backward.default", 4),
        ("resnet", "one_row_swapped", "max_pool2d_with_indices_backward.default", 1),
        ("resnet", "stale_buffer", "convolution.default", 5),
        ("gru", "stale_buffer", "_thnn_fused_gru_cell.default", 8),
        ("gpt", "sign_flip", "gelu.default", 3),
        ("mobilenet", "sign_flip", "sqrt.default", 5),
        ("mobilenet", "wrong_dtype_cast", "mean.dim", 2),
        ("gan", "wrong_dtype_cast", "tanh.default", 1),
        ("resnet", "nan_in_one_element", "native_batch_norm.default", 4),
        ("mobilenet", "nan_in_one_element", "addmm.default", 1),
        ("gan", "saturate", "convolution_backward.default", 5),
        ("mobilenet", "saturate", "mul.Tensor", 2),
    )
]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Right steps on the emulated npu, by family."""
    folder = tmp_path_factory.mktemp("golden")
    with npu_core.use("exact"):
        return {
            family: record(families.make(family, "npu"), folder / f"{family}.h5")
            for family in sorted({each.family for each in PLANTED})
        }


def test_every_kind_is_planted_in_two_families():
    for kind in KINDS:
        found = {each.family for each in PLANTED if each.kind == kind}
        assert len(found) >= 2, kind


def planted(fault: Planted, golden: Path, path: Path, source: Path | None) -> tuple[Answer, str]:
    """The answer to a step with that fault, and the path of the wrong op's record."""
    with npu_core.use("exact"):
        step = families.make(fault.family, "npu")
        with npu_core.fault(fault.op, fault.kind, nth=fault.nth) as seen:
            record(step, path, source)
    assert seen.applied == [fault.nth]
    found = answer(path, golden)
    path.unlink()
    ir = fault.op.replace(".default", "").replace(".", "_")
    with open_dump(golden) as opened:
        return found, [each.path for each in opened.records if each.ir == ir][fault.nth - 1]


@pytest.mark.parametrize("fault", PLANTED, ids=lambda each: "-".join(map(str, each)))
@pytest.mark.parametrize("mode", ["free", "load"])
def test_the_wrong_op_is_the_first_that_differs(golden, fault, mode, tmp_path):
    source = golden[fault.family] if mode == "load" else None
    found, where = planted(fault, golden[fault.family], tmp_path / "mine.h5", source)
    first = found.summary.first
    assert first is not None and first.record_path == where, first
    assert first.side == "output" and not found.summary.nothing_wrong
    assert first.verdict.reason and not first.low
    others = {
        row.record_path
        for row in found.rows
        if row.verdict.kind is Kind.DIFFERS and row.record_path != where
    }
    if mode == "load":  # every other op was given the right inputs
        assert not others
        assert not [r for r in found.rows if r.status is Status.DIFFERS and r.phase == "forward"
                    and r.record_path != where]  # fmt: skip
    else:  # all others got their errors from it
        assert not others
