"""A record run again from its file alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
import torch
from test_dumper_load import UNINITIALISED, named

from dumper import DumpError, dumper, open_dump, run
from dumper.layout import Type


def dump(path: Path, step: Any) -> Path:
    with dumper(use_dump=True, dump_path=path):
        step()
    return path


@pytest.mark.parametrize("family", models.FAMILIES)
def test_every_record_repeats(family: str, device: str, tmp_path: Path) -> None:
    step = models.make(family, device, models.adamw_foreach)
    with open_dump(dump(tmp_path / "x.h5", lambda: (step(), step()))) as recorded:
        for record in recorded.records:
            again = named(record.ir, run(record, device))
            if record.ir.startswith(("empty", "new_empty")):
                continue
            stored = {tensor.name: tensor.bits() for tensor in record.outputs}
            for name, bits in again.items():
                if (record.ir, name) not in UNINITIALISED:
                    np.testing.assert_array_equal(bits, stored[name], err_msg=record.path)


def t(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + math.prod(shape)).reshape(shape)


CALLS = {
    "list with None": lambda: torch.ops.aten.index.Tensor(t(3, 4), [None, torch.tensor([1, 0])]),
    "index_put": lambda: t(3, 4).index_put_((torch.tensor([1]), torch.tensor([2])), t(1), True),
    "number for a tensor": lambda: t(3) * 2.5,
    "int for a tensor": lambda: torch.arange(3) + 7,
    "bool for a tensor": lambda: torch.tensor([True, False]).logical_or(t(2) > 9),
    "complex scalar": lambda: torch.mul(torch.complex(t(2), t(2)), 1 - 2j),
    "inf and nan": lambda: (t(3).clamp(min=float("-inf")), torch.full((2,), math.nan)),
    "negative zero": lambda: torch.full((2,), -0.0),
    "uint64 scalar": lambda: torch.full((2,), 2**63 + 5, dtype=torch.uint64),
    "absent optionals": lambda: t(3).clamp(max=2),
    "string": lambda: torch.div(t(3), 2.0, rounding_mode="floor"),
    "dtype": lambda: t(4).sum(dtype=torch.float64),
    "bfloat16 dtype": lambda: t(4).to(torch.bfloat16),
    "memory format": lambda: t(1, 2, 3, 4).clone(memory_format=torch.channels_last),
    "empty int list": lambda: t(2, 2).sum(()),
    "bool list": lambda: torch.ops.aten.native_layer_norm_backward(
        t(2, 3), t(2, 3), [3], t(2, 1), t(2, 1), t(3), None, [True, True, False]
    ),
    "float list": lambda: torch.nn.functional.interpolate(t(1, 1, 4, 4), scale_factor=1.5),
    "tensor list": lambda: torch.cat([t(2), t(3)]),
    "scalar list": lambda: torch._foreach_mul([t(2), t(3)], [2.5, 4.0]),
    "mixed scalar list": lambda: torch._foreach_add([t(2), t(3)], [1, 0.1]),
    "results in a list": lambda: t(5).split([2, 3]),
    "gaps written in place": lambda: t(4, 6)[:, ::2].mul_(2),
    "gaps filled": lambda: t(3, 4)[:, 1:3].fill_(7),
    "generator": lambda: torch.empty(4).bernoulli_(0.5, generator=torch.Generator().manual_seed(3)),
    "transposed": lambda: torch.mm(t(3, 4).t(), t(3, 2)),
    "expanded": lambda: t(1, 3).expand(4, 3).sum(0),
    "0-d": lambda: t(3).sum().sqrt(),
    "empty": lambda: t(0, 3).sum(0),
    "out=": lambda: torch.add(t(3), 1, out=torch.empty(0)),
    "foreach in place": lambda: torch._foreach_mul_([t(2), t(3)], 3.0),
    "multinomial": lambda: torch.nn.functional.pad(t(1, 3, 3), (1, 1, 1, 1), mode="reflect"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_kind_of_argument_repeats(name: str, tmp_path: Path) -> None:
    with open_dump(dump(tmp_path / "x.h5", CALLS[name])) as recorded:
        assert list(recorded.lines("omitted")) == []
        for record in recorded.records:
            again = named(record.ir, run(record))
            if record.ir.startswith("empty"):
                continue
            stored = {tensor.name: tensor.bits() for tensor in record.outputs}
            assert again.keys() <= stored.keys()
            for key, bits in again.items():
                np.testing.assert_array_equal(bits, stored[key], err_msg=f"{record.path} {key}")


def test_arguments_bear_the_originals_codes(tmp_path: Path) -> None:
    def step() -> None:
        torch.ops.aten.convolution(
            t(1, 1, 4, 4), t(1, 1, 2, 2), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        )
        t(3) * 2
        t(2, 3).sum(1, dtype=torch.int32)

    with open_dump(dump(tmp_path / "x.h5", step)) as recorded:
        by_ir = {ir: records[0].arguments for ir, records in recorded.by_ir.items()}
    convolution = by_ir["convolution"]
    assert (convolution["stride"].type, convolution["transposed"].type) == (Type.VEC_I64, Type.BOOL)
    assert convolution["groups"].type == Type.I64
    assert "bias" not in convolution
    assert by_ir["mul_Tensor"]["other"].type == Type.SCALAR
    assert by_ir["sum_dim_IntList"]["dtype"].type == Type.SCALAR_TYPE


def test_across_devices(tmp_path: Path) -> None:
    import npu_core

    with npu_core.use("exact"):
        source = dump(tmp_path / "x.h5", lambda: torch.mm(t(3, 4), t(4, 2)))
        with open_dump(source) as recorded:
            (mm,) = recorded.by_ir["mm"]
            there = run(mm, "npu")
    assert there.device.type == "npu"
    assert torch.equal(there.cpu(), t(3, 4) @ t(4, 2))


def test_an_unknown_op_is_said(tmp_path: Path, golden: Path) -> None:
    with open_dump(golden / "tiny" / "npu.h5") as old:
        with pytest.raises(DumpError, match="has no op for this IR"):
            run(old.by_ir["NpuConvolutionBackward"][0])


def test_a_missing_argument_is_said(tmp_path: Path) -> None:
    import h5py

    source = dump(tmp_path / "x.h5", lambda: torch.mm(t(2, 2), t(2, 2)))
    with h5py.File(source, "a") as file:
        (seqid,) = file["mm"]
        del file[f"mm/{seqid}/input/mat2"]
    with open_dump(source) as recorded, pytest.raises(DumpError, match="lacks the argument mat2"):
        run(recorded.by_ir["mm"][0])
