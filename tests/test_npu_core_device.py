"""The emulated device as PyTorch sees it: tensors, storages, torch.npu, random numbers, modes."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch
from recorders import Calls, Ops
from torch import nn

import npu_core

pytestmark = pytest.mark.usefixtures("exact")


# Tensors


def test_a_tensor_goes_to_npu_and_back() -> None:
    x = torch.randn(3, 4)
    y = x.npu()
    assert (y.device, y.is_npu, y.device.type) == (torch.device("npu:0"), True, "npu")
    assert y.data_ptr() != x.data_ptr()
    assert torch.equal(y.cpu(), x)
    assert y.to("npu") is y


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4, 5), (1, 3)], ids=str)
def test_every_dtype_and_shape_keeps_its_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randint(0, 2, shape).to(dtype)
    back = x.npu().cpu()
    assert (back.dtype, back.shape, back.stride()) == (dtype, x.shape, x.stride())
    assert back.tolist() == x.tolist()


def test_strides_survive() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).npu()
    assert x.stride() == (60, 1, 15, 3)
    assert (x + x).stride() == (60, 1, 15, 3)
    assert x.transpose(0, 1).stride() == (1, 60, 15, 3)


def test_views_share_memory_and_autograd() -> None:
    x = torch.zeros(4, 3, device="npu")
    x.t()[1].add_(1)
    x.view(12)[0] = 5
    assert x.sum().item() == 9
    assert x.t().untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    leaf = torch.ones(4, requires_grad=True, device="npu")
    (leaf.view(2, 2).t() * 3).sum().backward()
    assert leaf.grad.tolist() == [3, 3, 3, 3]


def test_in_place_ops_bump_the_version_and_return_self() -> None:
    x = torch.ones(3, device="npu")
    before = x._version
    assert x.add_(1) is x
    assert x._version == before + 1
    assert x.tolist() == [2, 2, 2]


def test_stale_saved_tensors_are_noticed() -> None:
    x = torch.ones(3, device="npu", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_out_of_an_empty_and_of_a_fitting_tensor() -> None:
    x = torch.arange(6.0).view(2, 3).npu()
    empty, fitting = torch.empty(0, device="npu"), torch.empty(2, 3, device="npu")
    assert torch.add(x, x, out=empty) is empty
    assert torch.add(x, x, out=fitting) is fitting
    assert empty.tolist() == fitting.tolist() == [[0, 2, 4], [6, 8, 10]]
    values, indices = torch.empty(0, device="npu"), torch.empty(0, dtype=torch.long, device="npu")
    torch.max(x, 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([2, 5], [2, 2])


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_a_larger_tensor_shrinks_as_on_cpu() -> None:
    out = torch.empty(7, device="npu")
    torch.add(torch.ones(2, 3, device="npu"), 1, out=out)
    assert out.tolist() == [[2, 2, 2], [2, 2, 2]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_a_smaller_tensor_grows_as_on_cpu() -> None:
    out = torch.empty(2, device="npu")
    torch.add(torch.ones(2, 3, device="npu"), 1, out=out)
    assert out.tolist() == [[2, 2, 2], [2, 2, 2]]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_one_of_two_outs_may_be_too_small() -> None:
    x = torch.tensor([[1.0, 5.0], [7.0, 2.0]], device="npu")
    values, places = torch.empty(2, device="npu"), torch.empty(1, dtype=torch.int64, device="npu")
    torch.max(x, 1, out=(values, places))
    assert (values.tolist(), places.tolist()) == ([5, 7], [1, 0])


@pytest.mark.parametrize("device", [None, "npu", torch.device("npu", 0)])
def test_dlpack_shares_memory_on_npu(device: torch.device | str | None) -> None:
    x = torch.arange(6.0, device="npu").view(2, 3).t()
    y = torch.from_dlpack(x, device=device)
    y[2, 1] = 9
    assert (y.device, y.stride()) == (x.device, x.stride())
    assert x.tolist() == [[0, 3], [1, 4], [2, 9]]


def test_dlpack_copies_to_and_from_the_cpu() -> None:
    x = torch.arange(3.0)
    there = torch.from_dlpack(x, device="npu")
    back = torch.from_dlpack(there, device="cpu")
    there.zero_()
    assert (there.device.type, back.device.type) == ("npu", "cpu")
    assert x.tolist() == back.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("offset", "tangent"), [(5, [1, 1]), (0, [0, 0])])
def test_forward_derivatives_see_the_whole_storage(offset: int, tangent: list[float]) -> None:
    """What lies outside of a view has no tangent, so its derivative is zero."""
    x = torch.arange(40.0, device="npu")[5:9].detach()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        view = dual.as_strided((2,), (1,), offset)
        assert torch.autograd.forward_ad.unpack_dual(view).tangent.tolist() == tangent


def test_resize_keeps_what_fits() -> None:
    x = torch.arange(3.0, device="npu")
    x.resize_(2, 2)
    assert x.flatten()[:3].tolist() == [0, 1, 2]
    assert x.resize_(2).tolist() == [0, 1]


def test_foreach_ops_work_in_place_and_return() -> None:
    xs = [torch.ones(2, device="npu"), torch.zeros(3, device="npu")]
    assert [t.tolist() for t in torch._foreach_add(xs, 1)] == [[2, 2], [1, 1, 1]]
    torch._foreach_mul_(xs, 4)
    assert [t.tolist() for t in xs] == [[4, 4], [0, 0, 0]]


def test_conj_and_neg_bits_are_honoured() -> None:
    x = torch.tensor([1 + 2j, 3 - 1j])
    y = x.npu()
    for of in (lambda t: t.conj(), lambda t: t.conj().imag, lambda t: t.conj() @ t):
        assert torch.equal(of(y).clone().cpu(), of(x).clone())
    target = torch.zeros(2, dtype=torch.complex64, device="npu")
    target.conj().copy_(y)
    assert torch.equal(target.cpu(), x.conj().resolve_conj())


@pytest.mark.parametrize("number", [2, 2.5, True], ids=str)
def test_python_numbers_promote_as_on_cpu(number: float) -> None:
    for dtype in (torch.int32, torch.float16, torch.bool):
        x = torch.ones(3, dtype=dtype)
        result = x.npu() * number
        assert result.dtype is (x * number).dtype
        assert torch.equal(result.cpu(), x * number)


def test_a_cpu_tensor_among_npu_tensors_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"aten::add.Tensor.*on npu.*another device.*\.npu\(\)"):
        torch.ones(2, device="npu") + torch.ones(2)
    assert (torch.ones(2, device="npu") + torch.tensor(1.0)).tolist() == [2, 2]
    assert torch.arange(4, device="npu")[torch.tensor([1])].tolist() == [1]


def test_printing() -> None:
    assert str(torch.ones(2, device="npu")) == "tensor([1., 1.], device='npu:0')"


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t)), torch.clone],
    ids=["deepcopy", "pickle", "clone"],
)
def test_duplicates_are_equal_and_apart(duplicate: object) -> None:
    x = torch.randn(3, 4).npu()
    y = duplicate(x)
    assert y.device == x.device
    assert torch.equal(x.cpu(), y.cpu())
    y.zero_()
    assert x.abs().sum().item() > 0


@pytest.mark.parametrize(
    ("saved", "where", "loaded"),
    [("npu", None, "npu"), ("npu", "cpu", "cpu"), ("cpu", "npu", "npu"), ("cpu", "npu:0", "npu")],
)
def test_save_and_load(saved: str, where: str | None, loaded: str) -> None:
    model = nn.Linear(3, 2).to(saved)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location=where)
    assert state["weight"].device.type == loaded
    assert torch.equal(state["weight"].cpu(), model.weight.detach().cpu())


def test_another_thread_can_use_the_device() -> None:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.ones(3, device="npu").sum().item()))
    thread.start()
    thread.join()
    assert seen == [3]


# torch.npu


def test_the_surface_answers() -> None:
    import torch.npu  # the guide's own line

    assert torch.npu.is_available()
    assert torch.npu.device_count() == 1
    for device in (0, "npu", "npu:0", torch.device("npu:0")):
        torch.npu.set_device(device)
        with torch.npu.device(device):
            assert torch.npu.current_device() == 0
    torch.npu.synchronize()
    torch.npu.current_stream().synchronize()
    torch.npu.empty_cache()
    assert torch.npu.current_stream() is torch.npu.current_stream()


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.npu.set_device(1),
        lambda: torch.npu.set_device("npu:1"),
        lambda: torch.empty(1, device="npu:1"),
        lambda: torch.ones(1).to("npu:1"),
    ],
)
def test_a_second_device_is_refused_with_their_number(use: object) -> None:
    with pytest.raises(RuntimeError, match="npu:1 does not exist: npu_core emulates 1 device"):
        use()


def test_another_kind_of_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="expected an npu device, got cpu"):
        torch.npu.set_device("cpu")


@pytest.mark.parametrize(
    ("profile", "name", "bf16"),
    [("910A", "Ascend 910A (emulated by npu_core)", False),
     ("910B", "Ascend 910B (emulated by npu_core)", True)],
)  # fmt: skip
def test_the_chip_is_named_and_called_emulated(profile: str, name: str, bf16: bool) -> None:
    with npu_core.use(profile):
        assert torch.npu.get_device_name() == name
        assert torch.npu.is_bf16_supported() is bf16
        assert (torch.bfloat16 in torch.npu.get_amp_supported_dtype()) is bf16


@pytest.mark.parametrize(
    ("shape", "code"), [((), 2), ((3,), 2), ((2, 3, 4), 2), ((1,) * 4, 0), ((1,) * 5, 30)]
)
def test_formats_of_fresh_tensors(shape: tuple[int, ...], code: int) -> None:
    assert torch.npu.get_npu_format(torch.empty(shape, device="npu")) == code


def test_a_cpu_tensor_has_no_npu_format() -> None:
    with pytest.raises(TypeError, match="on cpu"):
        torch.npu.get_npu_format(torch.ones(1))


# Random numbers


def draws() -> list[torch.Tensor]:
    x = torch.ones(50, device="npu")
    dropout = nn.functional.dropout(x, 0.5)
    return [
        torch.randn(3, device="npu"),
        dropout,
        x.bernoulli(0.3),
        torch.randperm(9, device="npu"),
    ]


def test_a_seed_and_a_state_repeat_the_numbers() -> None:
    torch.manual_seed(3)
    first = draws()
    state = torch.npu.get_rng_state()
    second = draws()
    torch.npu.set_rng_state(state)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(second, draws(), strict=True))
    torch.npu.manual_seed(3)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(first, draws(), strict=True))


def test_drawing_on_npu_leaves_the_cpu_stream_alone() -> None:
    before = torch.get_rng_state()
    draws()
    assert torch.equal(before, torch.get_rng_state())


# Under the user's modes


def test_a_dispatch_mode_sees_the_ops_and_nothing_of_the_kernels() -> None:
    x = torch.ones(2, 3, device="npu", requires_grad=True)
    with Ops() as ops, torch.autograd.set_multithreading_enabled(False):
        (x @ x.t()).sum().backward()
    assert ops.seen.count("aten.mm.default") == 3  # forward, and one for each operand's gradient
    assert set(ops.seen) == {
        "aten.t.default", "aten.mm.default", "aten.sum.default", "aten.ones_like.default",
        "aten.expand.default", "aten.detach.default", "aten.add.Tensor",
    }  # fmt: skip
    assert x.grad.tolist() == [[4.0] * 3] * 2


@pytest.mark.parametrize("profile", ["exact", "910A"])
def test_kernels_make_no_api_calls(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The engine pops the mode while it runs; a dumper puts it back to see recomputation.
    calls, engine = Calls(), torch.autograd._engine_run_backward

    def under_mode(*args, **kwargs):
        with calls:
            return engine(*args, **kwargs)

    with npu_core.use(profile):
        lstm = nn.LSTM(3, 4).npu()
        convolution = nn.Conv1d(2, 2, 1).npu()
        loss = lstm(convolution(torch.randn(2, 2, 3, device="npu")))[0].sum()
        loss.div(2).backward(retain_graph=True)  # what runs once is out of the way
        monkeypatch.setattr(torch.autograd, "_engine_run_backward", under_mode)
        calls.seen.clear()
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.backward(loss.div(2))
    assert calls.seen == []
