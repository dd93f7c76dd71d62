"""Ops asked of accelerators only, and what the device refuses: each in one message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import npu_core

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("exact")


def test_fused_dropout_keeps_with_the_given_probability_and_scales() -> None:
    x = torch.full((4096,), 3.0, device="npu")
    out, mask = torch._fused_dropout(x, 0.75)
    assert (out.device.type, mask.device.type, mask.dtype) == ("npu", "npu", torch.uint8)
    assert out.unique().tolist() == [0.0, 4.0]
    assert torch.equal(out != 0, mask.bool())
    kept = mask.float().mean().item()
    assert abs(kept - 0.75) < 6 * (0.75 * 0.25 / 4096) ** 0.5  # six standard deviations


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float32])
def test_a_histogram_counts_integers_too(dtype: torch.dtype) -> None:
    experts = torch.tensor([3, 1, 1, 0, 9], dtype=dtype)
    counts = torch.histc(experts.npu(), bins=4, min=0, max=3)
    assert (counts.tolist(), counts.dtype) == ([1, 2, 0, 1], dtype)
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        torch.histc(experts.npu().bool())


@pytest.mark.parametrize("profile", ["exact", "910A"])
def test_a_product_for_each_group_is_one_of_the_cube(profile: str) -> None:
    rows, weights = torch.randn(6, 40), torch.randn(2, 40, 8)
    ends = torch.tensor([2, 6], dtype=torch.int32)
    with npu_core.use(profile):
        x, w = rows.npu().requires_grad_(), weights.npu().requires_grad_()
        out = torch._grouped_mm(x, w, offs=ends.npu())
        out.backward(out)
        assert torch.equal(out, torch.cat([x[:2] @ w[0], x[2:] @ w[1]]))
        assert torch.equal(x.grad[:2], out[:2] @ w[0].t())
    narrowed = not torch.equal(out.cpu(), torch._grouped_mm(rows, weights, offs=ends))
    assert narrowed is (profile == "910A")


def test_fused_dropout_draws_from_the_device_or_from_the_given_generator() -> None:
    x = torch.ones(64, device="npu")

    def masks() -> list[torch.Tensor]:
        given = torch.Generator().manual_seed(7)
        torch.manual_seed(3)
        own = torch._fused_dropout(x, 0.5)[1]
        return [own, torch._fused_dropout(x, 0.5)[1], torch._fused_dropout(x, 0.5, given)[1]]

    first, again = masks(), masks()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])


def test_masked_scale_is_the_backward_of_fused_dropout() -> None:
    x = torch.randn(32).npu().requires_grad_()
    out, mask = torch._fused_dropout(x, 0.5)
    out.backward(torch.full_like(out, 5.0))
    assert torch.equal(x.grad, aten._masked_scale(torch.full_like(out, 5.0), mask, 2.0))
    assert x.grad.unique().tolist() == [0.0, 10.0]


@pytest.mark.parametrize("profile", ["exact", "910A", "910B"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "baddbmm"])
def test_products_with_an_fp32_result(name: str, dtype: torch.dtype, profile: str) -> None:
    if (profile, dtype) == ("910A", torch.bfloat16):
        return
    # Small integers over 2: every order of summation gives these sums exactly.
    shape = (2,) if name.endswith("bmm") else ()
    a, b = (torch.randint(-9, 9, (*shape, *s)).to(dtype) / 2 for s in ((3, 700), (700, 4)))
    start = (torch.ones(*shape, 3, 4, dtype=dtype),) if name.startswith(("add", "badd")) else ()
    expected = a.float() @ b.float() + (1 if start else 0)
    with npu_core.use(profile):
        out = getattr(torch, name)(*(t.npu() for t in (*start, a, b)), out_dtype=torch.float32)
    assert out.dtype is torch.float32
    assert torch.equal(out.cpu(), expected)


def test_only_fp32_operands_of_a_product_with_an_fp32_result_are_narrowed() -> None:
    half, brain = torch.full((1, 1), 0.5, dtype=torch.float16), torch.full((1, 1), 1e6).bfloat16()
    with npu_core.use("910A"):
        torch.npu.set_option({"ACL_PRECISION_MODE": "must_keep_origin_dtype"})
        assert torch.mm(half.npu(), half.npu(), out_dtype=torch.float32).item() == 0.25
        with pytest.raises(RuntimeError, match="takes no float32"):
            torch.mm(half.float().npu(), half.float().npu(), out_dtype=torch.float32)
    with npu_core.use("910B"):
        torch.npu.set_option({"ACL_PRECISION_MODE": "allow_fp32_to_fp16"})
        one = torch.ones_like(brain).npu()
        assert torch.mm(brain.npu(), one, out_dtype=torch.float32).item() == brain.item()


def test_products_with_another_result_are_refused() -> None:
    a = torch.ones(2, 2, dtype=torch.float16, device="npu")
    with pytest.raises(RuntimeError, match="out_dtype"):
        torch.mm(a, a, out_dtype=torch.float64)


@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_nets_have_second_derivatives(cell: type[torch.nn.RNNBase]) -> None:
    torch.manual_seed(0)
    net = cell(3, 2).double()
    x = torch.randn(4, 2, 3, dtype=torch.float64)

    def second(device: str) -> torch.Tensor:
        moved = x.to(device).requires_grad_()
        first = torch.autograd.grad(net.to(device)(moved)[0].sin().sum(), moved, create_graph=True)
        return torch.autograd.grad(first[0].square().sum(), moved)[0].cpu()

    torch.testing.assert_close(second("npu"), second("cpu"))


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("lengths_on", ["cpu", "npu"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_loss_is_the_same_under_a_dispatch_mode(reduction: str, lengths_on: str) -> None:
    torch.manual_seed(0)
    scores = torch.randn(9, 2, 5).log_softmax(2)
    targets, lengths = torch.randint(1, 5, (2, 4)), torch.tensor([9, 8])

    def loss_and_gradient(device: str, at: str) -> list[torch.Tensor]:
        x = scores.to(device).detach().requires_grad_()
        sizes = lengths.to(at), torch.tensor([4, 3]).to(at)
        loss = torch.nn.functional.ctc_loss(x, targets.to(device), *sizes, reduction=reduction)
        loss.sum().backward()
        return [loss.detach().cpu(), x.grad.cpu()]

    expected = loss_and_gradient("cpu", "cpu")
    plain = loss_and_gradient("npu", lengths_on)
    with Passing():
        under = loss_and_gradient("npu", lengths_on)
    for one, other, reference in zip(plain, under, expected, strict=True):
        assert torch.equal(one, reference)
        assert torch.equal(other, reference)


@pytest.mark.parametrize("name", ["silu", "mish"])
def test_ops_with_both_a_formula_and_a_kernel_run_the_kernel(name: str) -> None:
    x = torch.randn(1000)
    function = getattr(torch.nn.functional, name)

    def gradient(device: str) -> torch.Tensor:
        moved = x.to(device).requires_grad_()
        function(moved).sum().backward()
        return moved.grad.cpu()

    assert torch.equal(gradient("npu"), gradient("cpu"))


def dense() -> torch.Tensor:
    return torch.eye(3, device="npu")


REFUSED: list[Callable[[], object]] = [
    lambda: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), device="npu"),
    lambda: dense().to_sparse(),
    lambda: dense().cpu().to_sparse().npu(),
    lambda: dense().to_sparse_csr(),
    lambda: dense().cpu().to_sparse_csr().npu() @ dense(),
    lambda: torch.quantize_per_tensor(dense(), 0.1, 0, torch.qint8),
    lambda: torch.quantize_per_tensor(dense().cpu(), 0.1, 0, torch.qint8).npu(),
    lambda: torch.nested.nested_tensor([dense(), dense()]),
    lambda: dense().to_mkldnn(),
    lambda: torch.cudnn_convolution_relu(
        torch.ones(1, 1, 3, 3).npu(), torch.ones(1, 1, 1, 1).npu(), None, [1], [0], [1], 1
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_emulated_is_refused_in_one_message(call: Callable[[], object]) -> None:
    with pytest.raises(NotImplementedError) as refusal:
        call()
    message = str(refusal.value)
    assert "on npu" in message or "npu has" in message
    assert "on the CPU" in message
    assert len(message) < 200


def test_the_dense_neighbours_of_what_is_refused_run() -> None:
    assert dense().to_dense().sum().item() == 3
    jagged = torch.nested.nested_tensor([dense(), dense()[:2]], layout=torch.jagged)
    assert (jagged * 2).values().sum().item() == 10
    faked = torch.fake_quantize_per_tensor_affine(dense(), 0.1, 0, -128, 127)
    assert torch.equal(
        faked.cpu(), torch.fake_quantize_per_tensor_affine(dense().cpu(), 0.1, 0, -128, 127)
    )
