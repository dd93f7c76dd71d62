"""A tensor on npu behaves as one on the CPU: views, the default device, Python values, storage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from oracle import Tensors, assert_same, each, gradient, on_both
from torch import nn

pytestmark = pytest.mark.usefixtures("exact")


# Views: each shares memory, and is written through and differentiated through as on the CPU

VIEWS: dict[str, Callable[[torch.Tensor], Tensors]] = {
    "adjoint": lambda x: x.adjoint(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "as_strided": lambda x: x.as_strided((2, 2), (5, 3), 2),
    "broadcast_to": lambda x: x.broadcast_to(2, 2, 3, 4),
    "chunk": lambda x: x.chunk(2, 2),
    "detach": lambda x: x.detach(),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "dsplit": lambda x: x.dsplit(2),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1),
    "flatten": lambda x: x.flatten(1),
    "hsplit": lambda x: x.hsplit(3),
    "index": lambda x: x[1, ..., None, 1:4:2],
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 2),
    "narrow": lambda x: x.narrow(2, 1, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(6, 4),
    "select": lambda x: x.select(1, 2),
    "split": lambda x: x.split(3, 2),
    "split_with_sizes": lambda x: x.split([1, 3], 2),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze_dims": lambda x: x[:1, :1].squeeze((0, 1)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x[0].t(),
    "tensor_split": lambda x: x.tensor_split(3, 2),
    "transpose": lambda x: x.transpose(0, 2),
    "unbind": lambda x: x.unbind(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "unfold": lambda x: x.unfold(2, 3, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "view": lambda x: x.view(4, 6),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)),
    "view_dtype": lambda x: x.view(torch.int32),
    "vsplit": lambda x: x.vsplit(2),
}
COMPLEX_VIEWS: dict[str, Callable[[torch.Tensor], Tensors]] = {
    "conj": lambda x: x.conj(),
    "imag": lambda x: x.imag,
    "mH": lambda x: x.mH,
    "neg": lambda x: x.conj().imag,
    "real": lambda x: x.real,
    "view_as_real": lambda x: torch.view_as_real(x),
}


def check_view(view: Callable[[torch.Tensor], Tensors], x: torch.Tensor, grad: bool) -> None:
    bases = {"npu": x.npu(), "cpu": x.clone()}
    views = {device: each(view(base)) for device, base in bases.items()}
    for mine, other in zip(views["npu"], views["cpu"], strict=True):
        assert mine.storage_offset() == other.storage_offset()
        assert mine.untyped_storage().data_ptr() == bases["npu"].untyped_storage().data_ptr()
        assert mine._base is bases["npu"] or mine._base is other._base is None
    assert_same(views["npu"], views["cpu"])
    with torch.no_grad():
        for part in views["npu"] + views["cpu"]:
            part.select(0, 0).fill_(7)
    assert_same(bases["npu"], bases["cpu"])
    if grad:
        on_both(lambda device: gradient(view, x.to(device)))


@pytest.mark.parametrize("name", VIEWS)
def test_a_view(name: str) -> None:
    check_view(VIEWS[name], torch.randn(2, 3, 4), grad=name not in ("detach", "view_dtype"))


@pytest.mark.parametrize("name", COMPLEX_VIEWS)
def test_a_view_of_complex_numbers(name: str) -> None:
    check_view(COMPLEX_VIEWS[name], torch.randn(2, 3, 4, dtype=torch.complex64), grad=True)


def test_a_view_that_does_not_fit_is_the_cpus_error() -> None:
    with pytest.raises(RuntimeError, match=r"shape '\[5\]' is invalid for input of size 24"):
        torch.zeros(2, 3, 4, device="npu").view(5)


# The default device, Python values


def test_the_default_device() -> None:
    with torch.device("npu"):
        made = [torch.ones(2), torch.tensor([1]), torch.arange(3), nn.Linear(2, 2).weight,
                nn.LSTM(2, 2).weight_hh_l0, torch.randn(2), torch.as_tensor([1.0])]  # fmt: skip
        assert torch.get_default_device().type == "npu"
        assert torch.ones(2, device="cpu").device.type == "cpu"
    assert {t.device for t in made} == {torch.device("npu:0")}
    assert torch.ones(2).device.type == "cpu"
    torch.set_default_device("npu")
    try:
        assert torch.ones(2).is_npu
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).device.type == "cpu"


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16,
    torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_python_values_are_those_of_the_cpu(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1], [1, 3]]).to(dtype)
    y = x.npu()
    assert torch.equal(torch.tensor([[0, 1], [1, 3]], device="npu").to(dtype).cpu(), x)
    assert y.tolist() == x.tolist()
    assert (y[1, 1].item(), bool(y[0, 0]), f"{y[1, 1]}") == (
        x[1, 1].item(),
        bool(x[0, 0]),
        f"{x[1, 1]}",
    )
    without = repr(y).replace(", device='npu:0'", "").replace("device='npu:0', ", "")
    assert " ".join(without.split()) == " ".join(repr(x).split())


def test_numpy_must_be_asked_for_on_the_cpu() -> None:
    x = torch.arange(3.0, device="npu")
    for convert in (torch.Tensor.numpy, np.asarray):
        with pytest.raises(TypeError, match=r"can't convert npu:0 .* Use Tensor.cpu\(\)"):
            convert(x)
    assert x.cpu().numpy().tolist() == x.numpy(force=True).tolist() == [0, 1, 2]
    assert torch.tensor(np.ones(2), device="npu").tolist() == [1, 1]


def test_a_storage_keeps_its_size() -> None:
    storage = torch.zeros(3, device="npu").untyped_storage()
    assert storage.resize_(12) is storage
    with pytest.raises(RuntimeError, match="npu storage of 12 bytes cannot become one of 24"):
        storage.resize_(24)
    assert torch.zeros(3).untyped_storage().resize_(24).nbytes() == 24
