"""A record run again from its file alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import families
import numpy as np
import pytest
import torch

from dumper import DumpError, dumper, open_dump, run
from dumper.layout import Type
from dumper.parts import is_plain, parts_of
from dumper.reader import Record
from dumper.replay import replay
from dumper.tensors import bits_of

UNINITIALISED = {("mkldnn_rnn_layer", "result3")}
"""Workspaces of which the op fills a part; what is in the rest is anyone's."""


def dump(path: Path, step: Any) -> Path:
    with dumper(use_dump=True, dump_path=path, views="dump"):
        step()
    return path


def made(record: Record, device: str) -> dict[str, Any]:
    """What a record's op makes when run again, by the names that the record gives it: bits of
    tensors, and what is no tensor. Arguments that it wrote and does not return are among it."""
    op, values, result = replay(record, device)
    results = (result,) if len(op.returns) == 1 else tuple(result or ())
    found: dict[str, Any] = {}
    for key, value in zip(op.returns, results, strict=True):
        _lay_out(key, value, found)
    for i in op.silent_outputs:
        _lay_out(op.arguments[i].key, values[i], found)
    return found


def _lay_out(key: str, value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, (list, tuple)):
        for i, member in enumerate(value):
            _lay_out(f"{key}/{key}_{i}", member, found)
    elif isinstance(value, torch.Tensor) and not is_plain(value):
        for name, part in parts_of(value).tensors.items():
            _lay_out(f"{key}/{name}", part, found)
    elif value is not None:
        found[key] = bits_of(value) if isinstance(value, torch.Tensor) else value


def assert_repeats(record: Record, device: str) -> int:
    """The record's op gives the recorded bits; returns how many results there were."""
    again = made(record, device)
    if record.ir.startswith(("empty", "new_empty")):
        return 0
    stored = {tensor.name: tensor.bits() for tensor in record.outputs}
    others = {
        name
        for name, result in record.results.items()
        if result.type != Type.PARTS and result.value != []
    }
    assert again.keys() == stored.keys() | others
    for name, value in again.items():
        if (record.ir, name) in UNINITIALISED:
            continue
        if isinstance(value, np.ndarray):
            assert value.dtype == stored[name].dtype, f"{record.path} {name}"
            np.testing.assert_array_equal(
                value.view(np.uint8) if value.ndim else value,
                stored[name].view(np.uint8) if value.ndim else stored[name],
                err_msg=f"{record.path} {name}",
            )
        else:
            assert value == record.results[name].value, f"{record.path} {name}"
    return len(again)


def ops(recorded: Any) -> list[Record]:
    return [record for record in recorded.records if record.phase not in ("grad", "update")]


FAMILIES = [
    pytest.param(name, device, id=f"{name}-{device}")
    for name, family in families.FAMILIES.items()
    for device in family.devices
]


@pytest.mark.parametrize(("family", "on"), FAMILIES)
def test_every_record_repeats(family: str, on: str, tmp_path: Path) -> None:
    import npu_core

    with npu_core.use("exact"):
        step = families.make(family, on)
        with open_dump(dump(tmp_path / "x.h5", step)) as recorded:
            assert recorded.omitted == ()
            assert sum(assert_repeats(record, on) for record in ops(recorded)) > 200
    (tmp_path / "x.h5").unlink()


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
    "multinomial": lambda: torch.multinomial(torch.ones(9), 4),
    "padding": lambda: torch.nn.functional.pad(t(1, 3, 3), (1, 1, 1, 1), mode="reflect"),
    "drawn from the default generator": lambda: (
        torch.rand(3), torch.randperm(9), torch.randint(9, (4,)), torch.normal(t(3), 1.0),
        torch.nn.functional.dropout(t(40)), torch.empty(5).uniform_(), torch.randn_like(t(4)),
    ),
    "in a storage": lambda: torch.as_strided(t(12)[3:], (2, 2), (1, 2), 5),
    "unfold": lambda: t(9).unfold(0, 4, 1).mul(t(4)),
    "overlapping with an offset": lambda: t(20)[2:].as_strided((3, 4), (2, 1), 2).sum(0),
    "expanded rows written": lambda: t(3, 4).t()[1:].exp_(),
    "scalar result": lambda: (t(3).sum().item(), torch.equal(t(3), t(3))),
    "sparse": lambda: torch.sparse_coo_tensor([[0, 2], [1, 0]], [1.0, 2.0], (3, 3)).mul(2.0),
    "sparse times dense": lambda: torch.sparse.mm(t(3, 3).to_sparse(), t(3, 2)),
    "csr": lambda: t(3, 3).tril().to_sparse_csr() @ t(3, 2),
    "quantized": lambda: torch.quantize_per_tensor(t(4), 0.1, 3, torch.quint8).dequantize(),
    "quantized by channel": lambda: torch.quantize_per_channel(
        t(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 3]), 0, torch.qint8
    ).dequantize(),
    "nested": lambda: torch.nested.nested_tensor([t(2, 3), t(1, 3)]).mul(2.0),
    "half kinds": lambda: (t(3).half() * 2, t(3).bfloat16() + 1, t(3).to(torch.float8_e4m3fn)),
    "complex": lambda: (torch.complex(t(2), t(2)) * 2j, torch.complex(t(2), t(2)).conj().real),
    "unsigned": lambda: torch.tensor([1, 2], dtype=torch.uint16).to(torch.int64),
    "an op of a library": lambda: torch.ops.aten._foreach_norm([t(2), t(3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_every_kind_of_argument_repeats(name: str, tmp_path: Path) -> None:
    with open_dump(dump(tmp_path / "x.h5", CALLS[name])) as recorded:
        assert list(recorded.lines("omitted")) == []
        assert sum(assert_repeats(record, "cpu") for record in ops(recorded)) > 0


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


def test_the_generator_stands_where_it_stood(device: str, tmp_path: Path) -> None:
    source = dump(tmp_path / "x.h5", lambda: torch.rand(3, device=device))
    with open_dump(source) as recorded:
        (draw,) = recorded.by_ir["rand"]
        before = torch.rand(2, device=device)
        torch.manual_seed(5)
        torch.rand(2, device=device)
        expected = torch.rand(1, device=device)
        torch.manual_seed(5)
        torch.rand(2, device=device)
        run(draw, device)
        assert torch.equal(torch.rand(1, device=device), expected)
    assert before.shape == (2,)


def test_memory_is_laid_out_as_it_was(tmp_path: Path) -> None:
    def step() -> None:
        torch.arange(24.0).view(4, 6)[1:, 2:].t().exp()
        torch.arange(6.0).expand(3, 6).sin()
        torch.arange(6.0).unfold(0, 3, 1).cos()

    with open_dump(dump(tmp_path / "x.h5", step)) as recorded:
        found = []
        for ir in ("exp", "sin", "cos"):
            op, values, _ = replay(recorded.by_ir[ir][0])
            found.append((values[0].stride(), values[0].storage_offset()))
            assert op.ir == ir
    assert found == [((1, 6), 8), ((0, 1), 0), ((1, 1), 0)]


def test_what_is_only_described_is_said(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        x = t(4, 3)[1:].t()
        x.exp()
    with open_dump(tmp_path / "x.h5") as recorded:
        assert run(recorded.by_ir["exp"][0]).shape == (3, 3)
        with pytest.raises(DumpError, match=r"self is only described \(view\)") as caught:
            run(recorded.by_ir["t"][0])
        assert caught.value.todo == "dump again with views='dump'"


def test_meta_tensors_come_back_as_such(tmp_path: Path) -> None:
    source = dump(tmp_path / "x.h5", lambda: torch.empty(2, 3, device="meta").t() * 2)
    with open_dump(source) as recorded:
        result = run(recorded.by_ir["mul_Tensor"][0])
    assert (result.device.type, result.shape, result.stride()) == ("meta", (3, 2), (1, 3))


BAD = {
    "negative stride": ("LiveStride", [-1, 1]),
    "another rank": ("LiveStride", [1, 1, 1]),
    "before its storage": ("LiveOffset", [-4]),
    "beyond any memory": ("LiveOffset", [1 << 60]),
}


@pytest.mark.parametrize(("name", "value"), BAD.values(), ids=list(BAD))
def test_impossible_places_are_said(name: str, value: list[int], tmp_path: Path) -> None:
    import h5py

    source = dump(tmp_path / "x.h5", lambda: torch.mm(t(2, 2), t(2, 2)))
    with h5py.File(source, "a") as file:
        (seqid,) = file["mm"]
        file[f"mm/{seqid}/input/self"].attrs[name] = np.array(value, np.int64)
    with open_dump(source) as recorded, pytest.raises(DumpError, match="cannot be laid out"):
        run(recorded.by_ir["mm"][0])


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
