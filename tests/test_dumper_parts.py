"""Every kind of tensor is in the file: as itself, as its parts, or described with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from dumper import DumpError, dumper, open_dump
from dumper.layout import Type
from dumper.parts import assemble, parts_of

DENSE = torch.tensor([[0.0, 1.5, 0.0], [2.5, 0.0, -1.0]])


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.full((1, 3), 2.0)])


MADE = {
    "coo": lambda: DENSE.to_sparse(),
    "coo uncoalesced": lambda: torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,)),
    "coo hybrid": lambda: DENSE.to_sparse(1),
    "csr": lambda: DENSE.to_sparse_csr(),
    "csc": lambda: DENSE.to_sparse_csc(),
    "bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "bsc": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "quantized": lambda: torch.quantize_per_tensor(DENSE, 0.1, 3, torch.quint8),
    "quantized by channel": lambda: torch.quantize_per_channel(
        DENSE, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8
    ),
    "nested": nested,
}


def dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor.to_padded_tensor(0.0) if tensor.is_nested else tensor.to_dense()


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("kind", MADE)
def test_parts_make_the_tensor_again(kind: str, tmp_path: Path) -> None:
    made = MADE[kind]()
    path = tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path):
        dense(made)
    with open_dump(path) as dump:
        assert (dump.skipped, dump.omitted) == ([], ())
        record = next(r for r in dump.records if any(a.type == Type.PARTS
                      for a in r.arguments.values()))  # fmt: skip
        (facts,) = (a.value for a in record.arguments.values() if a.type == Type.PARTS)
        parts = {
            t.name.rpartition("/")[2]: torch.from_numpy(np.ascontiguousarray(t.read()))
            for t in record.inputs
            if t.name.startswith("self/")
        }
    again = assemble(facts, parts, record.path)
    assert (again.layout, again.dtype) == (made.layout, made.dtype)
    assert torch.equal(dense(again), dense(made))
    if made.layout is torch.sparse_coo:
        assert again.is_coalesced() == made.is_coalesced()
        assert torch.equal(again._indices(), made._indices())


def test_sparse_gradients(tmp_path: Path) -> None:
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        table(torch.tensor([1, 2, 1])).sum().backward()
        optimizer.step()
    with open_dump(tmp_path / "x.h5") as dump:
        (grad,) = dump.by_ir["grad"]
        stored = {t.name: t.read() for t in grad.outputs}
        np.testing.assert_array_equal(stored["weight/indices"], table.weight.grad._indices())
        np.testing.assert_array_equal(stored["weight/values"], table.weight.grad._values())
        (add,) = (r for r in dump.records if r.ir == "add__Tensor" and r.phase == "optimizer")
        assert {t.name for t in add.inputs} == {"self", "other/indices", "other/values"}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
def test_jagged_tensors_have_values_and_offsets(tmp_path: Path) -> None:
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        jagged * 2
    with open_dump(tmp_path / "x.h5") as dump:
        (record,) = dump.by_ir["mul_Tensor"]
        stored = {t.name: t.read() for t in record.inputs}
        np.testing.assert_array_equal(stored["self/values"], jagged.values())
        np.testing.assert_array_equal(stored["self/offsets"], jagged.offsets())
        facts = record.arguments["self/kind"].value
    with pytest.raises(DumpError, match="subclass NestedTensor"):
        assemble(facts, {}, record.path)


class Pair(torch.Tensor):
    """A wrapper of two tensors, by torch's protocol; or, without it, an opaque one."""

    @staticmethod
    def __new__(cls, one: torch.Tensor, other: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

    def __init__(self, one: torch.Tensor, other: torch.Tensor) -> None:
        self.one, self.other = one, other

    @classmethod
    def __torch_dispatch__(
        cls, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        def run(side: str) -> torch.Tensor:
            return func(*(getattr(a, side) if isinstance(a, Pair) else a for a in args))

        made = cls(run("one"), run("other"))
        return args[0] if func._schema.name.endswith("_") else made


class Open(Pair):
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["one", "other"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict, *_: object) -> Open:
        return Open(inner["one"], inner["other"])


def test_subclasses_are_their_inner_tensors(tmp_path: Path) -> None:
    pair = Open(torch.ones(2), torch.full((2,), 5.0))
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        torch.exp(pair)
        pair.add_(1)
        torch.exp(pair)
    with open_dump(tmp_path / "x.h5") as dump:
        first, second = dump.by_ir["exp"]
        assert [t.read().tolist() for t in first.inputs] == [[1.0, 1.0], [5.0, 5.0]]
        assert [t.read().tolist() for t in second.inputs] == [[2.0, 2.0], [6.0, 6.0]]
        assert dump.omitted == ()


def test_opaque_tensors_are_described_and_said(tmp_path: Path) -> None:
    pair = Pair(torch.ones(2), torch.ones(2))
    with (
        pytest.warns(RuntimeWarning, match=r"values could not be stored.*/exp/1/input/self.*Pair"),
        dumper(use_dump=True, dump_path=tmp_path / "x.h5"),
    ):
        torch.exp(pair)
    with open_dump(tmp_path / "x.h5") as dump:
        (record,) = dump.by_ir["exp"]
        stub = record.entry.stubs["input/self"]
        assert (stub.dtype, stub.shape) == ("float32", (2,)) and "Pair" in stub.reason
        assert {path for path, _ in dump.omitted} == {
            "/exp/1/input/self",
            "/exp/1/output/result",
        }


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_tensors_without_values_have_their_shape(kind: str, tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        if kind == "fake":
            with FakeTensorMode():
                torch.ones(3, 2).exp()
        else:
            torch.ones(3, 2, device="meta").exp()
    with open_dump(tmp_path / "x.h5") as dump:
        (record,) = dump.by_ir["exp"]
        assert (record.inputs, record.outputs, dump.omitted) == ((), (), ())
        assert record.entry.stubs["input/self"][:2] == ("float32", (3, 2))
        assert record.entry.stubs["input/self"].reason == kind


@pytest.mark.parametrize(
    ("kind", "facts", "parts"),
    [
        ("unknown", {"kind": "x"}, {}),
        ("no kind", {}, {}),
        ("missing part", {"kind": "sparse_coo", "shape": [2], "coalesced": True}, {}),
        (
            "index outside",
            {"kind": "sparse_coo", "shape": [2], "coalesced": False},
            {"indices": torch.tensor([[7]]), "values": torch.ones(1)},
        ),
        (
            "rows that lie",
            {"kind": "sparse_csr", "shape": [2, 2]},
            {
                "crow_indices": torch.tensor([0, 9, 9]),
                "col_indices": torch.tensor([0]),
                "values": torch.ones(1),
            },
        ),
        (
            "buffer too short",
            {"kind": "nested"},
            {
                "values": torch.ones(1),
                "sizes": torch.tensor([[100, 100]]),
                "strides": torch.tensor([[100, 1]]),
                "offsets": torch.tensor([0]),
            },
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")
def test_hostile_parts_are_refused(kind: str, facts: dict, parts: dict) -> None:
    with pytest.raises(DumpError):
        assemble(facts, parts, f"/mm/1/input/{kind}")


def test_plain_tensors_have_no_parts() -> None:
    assert parts_of(torch.ones(2)) is None
