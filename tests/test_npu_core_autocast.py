"""Autocast on npu: the dtype of each op, the cast cache, modes and whole models."""

from __future__ import annotations

import gc
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import models
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

import npu_core
from npu_core import amp, autocast

HALF, FLOAT, DOUBLE, BRAIN = torch.float16, torch.float32, torch.float64, torch.bfloat16


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    torch.manual_seed(0)
    with npu_core.use("exact"):
        yield


def tensor(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return torch.rand(shape, dtype=dtype).npu()


class Ops(TorchDispatchMode):
    """Notes the name of every op."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))

    def casts(self) -> int:
        return self.names.count("_to_copy")


# The op lists

POLICIES = {
    "LOWER_PRECISION_FP": autocast.LOWER,
    "FP32": autocast.FLOAT,
    "FP32_SET_OPT_DTYPE": autocast.FLOAT_RESULT,
    "PROMOTE": autocast.WIDEST,
}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_listed_op_is_on_pytorchs_list_of_that_policy(policy: str) -> None:
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    if not header.exists():
        pytest.skip("this torch comes without its headers")
    body = re.search(rf"#define AT_FORALL_{policy}\(_\)((?:.*\\\n)*.*)", header.read_text())
    assert body is not None
    known = {".".join(re.split(r",\s*", op)) for op in re.findall(r"_\(([\w, ]+)\)", body[1])}
    assert len(known) > 5 and set(POLICIES[policy]) <= known


def test_no_op_is_on_two_lists_and_each_has_a_kernel() -> None:
    names = [*autocast.FLOAT_OVERLOAD, *autocast.BANNED, *sum(POLICIES.values(), [])]
    assert len(set(names)) == len(names)
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    assert [n for n in names if not has(f"aten::{n}", "AutocastPrivateUse1")] == []


CALLS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.dtype]] = {
    # lower precision
    "mm": (lambda x: torch.mm(x, x), HALF),
    "matmul": (lambda x: x @ x, HALF),
    "linear": (lambda x: F.linear(x, x, x[0]), HALF),
    "einsum": (lambda x: torch.einsum("ij,jk->ik", x, x), HALF),
    "chain": (lambda x: torch.linalg.multi_dot([x, x, x]), HALF),
    "addmm": (lambda x: torch.addmm(x, x, x), HALF),
    "conv1d": (lambda x: F.conv1d(x[None], x[None, :, :3]), HALF),
    "conv2d": (lambda x: F.conv2d(x[None, None], x[None, None, :2, :2]), HALF),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x[None, None], x[None, None]), HALF),
    "prelu": (lambda x: F.prelu(x, x[0, :1]), HALF),
    "attention": (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), HALF),
    "rnn cell": (lambda x: torch.rnn_tanh_cell(x, x, x, x, x[0], x[0]), HALF),
    # float32
    "exp": (torch.exp, FLOAT),
    "pow": (lambda x: x**2, FLOAT),
    "pow of a number": (lambda x: 2**x, FLOAT),
    "rsqrt": (torch.rsqrt, FLOAT),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), FLOAT),
    "group_norm": (lambda x: F.group_norm(x[None], 2), FLOAT),
    "mse_loss": (lambda x: F.mse_loss(x, x), FLOAT),
    "nll_loss": (lambda x: F.nll_loss(x, torch.arange(4).npu()), FLOAT),
    "with_logits": (lambda x: F.binary_cross_entropy_with_logits(x, x), FLOAT),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x), FLOAT),
    "logsumexp": (lambda x: torch.logsumexp(x, 0), FLOAT),
    # float32 by the dtype argument
    "softmax": (lambda x: x.softmax(-1), FLOAT),
    "log_softmax": (lambda x: F.log_softmax(x, -1), FLOAT),
    "sum": (torch.sum, FLOAT),
    "sum over dims": (lambda x: x.sum((0, 1), keepdim=True), FLOAT),
    "prod": (lambda x: x.prod(0), FLOAT),
    "cumsum": (lambda x: x.cumsum(0), FLOAT),
    "vector_norm": (torch.linalg.vector_norm, FLOAT),
    "sum with dtype": (lambda x: x.sum(dtype=HALF), HALF),
    "softmax with dtype": (lambda x: x.softmax(-1, dtype=DOUBLE), DOUBLE),
    "norm": (lambda x: torch.ops.aten.norm.Scalar(x), FLOAT),
    "norm over dims": (lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, 2, [1]), FLOAT),
    "norm keeping dims": (lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, 1, [0], True), FLOAT),
}


@pytest.mark.parametrize("given", [HALF, FLOAT], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_op_runs_in_the_dtype_of_its_list(name: str, given: torch.dtype) -> None:
    call, expected = CALLS[name]
    x = tensor(4, 4, dtype=given)
    with torch.autocast("npu"):
        result = call(x)
    assert result.dtype is expected
    # Computed in the dtype of the list, not cast to it afterwards.
    by_hand = call(x.half() if expected is HALF and "dtype" not in name else x.float())
    assert torch.equal(result.float(), by_hand.float())


@pytest.mark.parametrize("name", CALLS)
def test_double_is_left_alone(name: str) -> None:
    call, expected = CALLS[name]
    with torch.autocast("npu"):
        result = call(tensor(4, 4, dtype=DOUBLE))
    assert result.dtype is (expected if "dtype" in name else DOUBLE)


def test_cross_entropy_takes_its_logarithm_in_the_dtype_of_the_logits() -> None:
    # PyTorch's cross_entropy names log_softmax's dtype itself, and a named dtype is respected.
    x, targets = tensor(4, 4, dtype=HALF), torch.arange(4).npu()
    with torch.autocast("npu"):
        result = F.cross_entropy(x, targets)
    assert torch.equal(result, F.nll_loss(F.log_softmax(x, -1).float(), targets))
    assert not torch.equal(result, F.cross_entropy(x.float(), targets))


@pytest.mark.parametrize("call", [torch.relu, torch.tanh, F.gelu, torch.mean, torch.var])
@pytest.mark.parametrize("given", [HALF, FLOAT], ids=str)
def test_op_on_no_list_keeps_its_dtype(call: Callable, given: torch.dtype) -> None:
    with torch.autocast("npu"):
        assert call(tensor(4, 4, dtype=given)).dtype is given


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(HALF, HALF, HALF), (HALF, FLOAT, FLOAT), (FLOAT, FLOAT, FLOAT), (DOUBLE, DOUBLE, DOUBLE)],
)
def test_widest_dtype(first: torch.dtype, second: torch.dtype, expected: torch.dtype) -> None:
    x, y = tensor(4, dtype=first), tensor(4, dtype=second)
    with torch.autocast("npu"):
        assert torch.dot(x, y).dtype is expected
        assert torch.atan2(x, y).dtype is expected
        assert torch.addcmul(x, y, y).dtype is expected


def test_widest_dtype_of_a_third_float_is_an_error() -> None:
    x = tensor(4, dtype=BRAIN)
    with torch.autocast("npu", dtype=BRAIN):
        assert torch.dot(x, x).dtype is BRAIN
    with torch.autocast("npu"), pytest.raises(RuntimeError, match="cast them to torch.float16"):
        torch.dot(x, x)


def test_binary_cross_entropy_is_refused_only_under_autocast() -> None:
    x = tensor(4)
    with torch.autocast("npu"):
        with pytest.raises(RuntimeError, match="unsafe to autocast.*with_logits"):
            F.binary_cross_entropy(x, x)
        with torch.autocast("npu", enabled=False):
            assert F.binary_cross_entropy(x, x).dtype is FLOAT


# The block


def test_only_inside_the_block() -> None:
    x = tensor(4, 4)
    before = torch.mm(x, x)
    with torch.autocast("npu"):
        assert torch.is_autocast_enabled("npu")
        with torch.autocast("npu", enabled=False):
            assert torch.equal(torch.mm(x, x), before)
        assert torch.mm(x, x).dtype is HALF
        with torch.autocast("npu", dtype=BRAIN):
            assert torch.mm(x, x).dtype is BRAIN
        assert torch.mm(x, x).dtype is HALF
    assert not torch.is_autocast_enabled("npu")
    assert torch.equal(torch.mm(x, x), before)


def test_ends_with_an_exception() -> None:
    x = tensor(4, 4)
    with pytest.raises(RuntimeError), torch.autocast("npu"):
        torch.mm(x, x[:2])
    assert torch.mm(x, x).dtype is FLOAT


def test_cpu_and_npu_are_apart() -> None:
    x = torch.rand(4, 4)
    with torch.autocast("npu"):
        assert torch.mm(x, x).dtype is FLOAT
    with torch.autocast("cpu", dtype=BRAIN), torch.autocast("npu"):
        assert (torch.mm(x, x).dtype, torch.mm(x.npu(), x.npu()).dtype) == (BRAIN, HALF)


@pytest.mark.parametrize(
    ("profile", "dtype", "refused"),
    [("910A", HALF, False), ("910A", BRAIN, True), ("910B", BRAIN, False), ("exact", BRAIN, False)],
)
def test_dtype_the_chip_has_not_is_refused(profile: str, dtype: torch.dtype, refused: bool) -> None:
    with npu_core.use(profile), warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        x = tensor(4, 4)
        with torch.autocast("npu", dtype=dtype):
            assert torch.mm(x, x).dtype is (FLOAT if refused else dtype)
    assert [w for w in got if "not supported. Disabling autocast" in str(w.message)] or not refused
    assert not (got and not refused)


def test_torch_npus_own_class() -> None:
    x = tensor(4, 4)
    with amp.autocast():
        assert torch.mm(x, x).dtype is HALF
    with amp.autocast(False):
        assert torch.mm(x, x).dtype is FLOAT
    with amp.autocast(True, BRAIN, False):
        assert torch.mm(x, x).dtype is BRAIN and not torch.is_autocast_cache_enabled()

    @amp.autocast()
    def decorated() -> torch.Tensor:
        return torch.mm(x, x)

    assert decorated().dtype is HALF


def test_custom_function_keeps_the_autocast_of_its_forward() -> None:
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        @amp.custom_bwd
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x, w = ctx.saved_tensors
            seen.append((torch.is_autocast_enabled("npu"), (x @ w).dtype))
            return grad @ w.t(), x.t() @ grad

    class Wide(torch.autograd.Function):
        @staticmethod
        @amp.custom_fwd(cast_inputs=FLOAT)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x @ x

        @staticmethod
        @amp.custom_bwd
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append((torch.is_autocast_enabled("npu"), grad.dtype))
            return grad

    x, w = tensor(4, 4).requires_grad_(), tensor(4, 4)
    with torch.autocast("npu"):
        inside, wide = Product.apply(x, w), Wide.apply(tensor(4, 4, dtype=HALF).requires_grad_())
    outside = Product.apply(x, w)
    for result in (inside, outside, wide):
        result.float().sum().backward()
    assert (inside.dtype, outside.dtype, wide.dtype) == (HALF, FLOAT, FLOAT)
    assert seen == [(True, HALF), (False, FLOAT), (False, FLOAT)]


# Numbers


@pytest.mark.parametrize("profile", ["910A", "910B", "exact"])
def test_linear_is_the_fp16_linear(profile: str) -> None:
    with npu_core.use(profile):
        layer, x = nn.Linear(8, 4).npu(), tensor(5, 8)
        with torch.autocast("npu"):
            result = layer(x)
        by_hand = F.linear(x.half(), layer.weight.half(), layer.bias.half())
        assert torch.equal(result, by_hand)


class ByHand(TorchFunctionMode):
    """The casts a person would write around the calls that these models make."""

    CASTS = {
        F.linear: HALF, F.conv2d: HALF, F.scaled_dot_product_attention: HALF,
        F.layer_norm: FLOAT, F.log_softmax: FLOAT, F.nll_loss: FLOAT,
    }  # fmt: skip

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        dtype = self.CASTS.get(func)
        if dtype is not None:

            def cast(value: Any) -> Any:
                floats = isinstance(value, torch.Tensor) and value.is_floating_point()
                return value.to(dtype) if floats else value

            args, kwargs = tree_map(cast, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["resnet", "gpt"])
def test_model_has_the_bits_of_casts_by_hand(family: str) -> None:
    def gradients(context: Any) -> dict[str, torch.Tensor]:
        step = models.make(family, "npu")
        with context:
            loss = F.nll_loss(F.log_softmax(step.model(step.inputs), -1), step.targets)
        loss.backward()
        return {"loss": loss} | {n: p.grad for n, p in step.model.named_parameters()}

    found, expected = gradients(torch.autocast("npu")), gradients(ByHand())
    plain = gradients(torch.autocast("npu", enabled=False))
    assert [n for n in expected if not torch.equal(found[n], expected[n])] == []
    assert not torch.equal(plain["loss"], expected["loss"])


def test_lstm_computes_in_half_and_learns_in_float() -> None:
    step = models.make("lstm", "npu")
    with torch.autocast("npu"):
        out = step.model(step.inputs)
    out.float().sum().backward()
    assert out.dtype is HALF
    assert {p.grad.dtype for p in step.model.parameters()} == {FLOAT}


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_runs_under_autocast_too(reentrant: bool) -> None:
    def gradient(call: Callable) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).npu()
        with torch.autocast("npu"):
            out = call(model, torch.ones(3, 4, device="npu", requires_grad=True))
        out.float().sum().backward()
        return model[0].weight.grad

    plain = gradient(lambda model, x: model(x))
    again = gradient(lambda model, x: checkpoint(model, x, use_reentrant=reentrant))
    assert torch.equal(plain, again)


# The cast cache


def test_weight_used_twice_is_cast_once() -> None:
    layer, x = nn.Linear(4, 4, bias=False).npu(), tensor(3, 4, dtype=HALF)
    with Ops() as ops, torch.autocast("npu"):
        out = layer(layer(x))
    assert ops.casts() == 1
    out.float().sum().backward()
    half = layer.weight.detach().half().requires_grad_()
    F.linear(F.linear(x, half), half).float().sum().backward()
    assert torch.equal(layer.weight.grad, half.grad.float())  # the two gradients summed in fp16


def test_without_the_cache_a_weight_is_cast_at_each_use() -> None:
    layer, x = nn.Linear(4, 4, bias=False).npu(), tensor(3, 4, dtype=HALF)
    with Ops() as ops, torch.autocast("npu", cache_enabled=False):
        layer(layer(x))
    assert ops.casts() == 2


def test_only_leaves_that_require_grad_are_kept() -> None:
    weight, x = tensor(4, 4), tensor(3, 4, dtype=HALF)
    grown = (tensor(4, 4).requires_grad_() * 1, tensor(4, 4).requires_grad_()[:])
    for other in (weight, *grown):
        with Ops() as ops, torch.autocast("npu"):
            torch.mm(x, other), torch.mm(x, other)
        assert ops.casts() == 2


def test_cache_ends_with_the_outermost_block() -> None:
    layer, x = nn.Linear(4, 4, bias=False).npu(), tensor(3, 4, dtype=HALF)
    with Ops() as ops, torch.autocast("npu"):
        with torch.autocast("npu"):
            layer(x)
        layer(x)
    assert ops.casts() == 1
    with torch.no_grad():
        layer.weight.zero_()
    with torch.autocast("npu"):
        assert layer(x).count_nonzero() == 0


@pytest.mark.parametrize("first", [torch.no_grad, torch.inference_mode])
def test_cast_made_without_grad_serves_no_call_with_grad(first: Callable) -> None:
    layer, x = nn.Linear(4, 4, bias=False).npu(), tensor(3, 4, dtype=HALF)
    with torch.autocast("npu"):
        with first():
            layer(x)
        layer(x).float().sum().backward()
    assert layer.weight.grad is not None


def test_each_dtype_has_its_own_cast() -> None:
    layer, x = nn.Linear(4, 4).npu(), tensor(3, 4)
    with torch.autocast("npu"):
        assert layer(x).dtype is HALF
        with torch.autocast("npu", dtype=BRAIN):
            assert layer(x).dtype is BRAIN


def test_nothing_is_held_after_the_block() -> None:
    layer = nn.Linear(4, 4).npu()
    died = weakref.ref(layer.weight)
    with torch.autocast("npu"):
        layer(tensor(3, 4))
    del layer
    gc.collect()
    assert died() is None


def test_threads_have_their_own_blocks() -> None:
    layer = nn.Linear(4, 4).npu()
    xs = [tensor(3, 4) for _ in range(4)]
    expected = [F.linear(x.half(), layer.weight.half(), layer.bias.half()) for x in xs]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(50):
            with torch.autocast("npu"):
                ok = torch.equal(layer(xs[i]), expected[i])
            if not ok or layer(xs[i]).dtype is not FLOAT:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    with torch.autocast("npu"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


# Modes


def test_dispatch_mode_sees_the_casts_and_changes_nothing() -> None:
    layer, x = nn.Linear(4, 4).npu(), tensor(3, 4)
    with torch.autocast("npu"):
        plain = layer(x).softmax(-1)
    with Ops() as ops, torch.autocast("npu"):
        seen = layer(x).softmax(-1)
    assert torch.equal(plain, seen)
    assert ops.names[:3] == ["_to_copy"] * 3 and {"t", "addmm", "_softmax"} <= set(ops.names)


def test_function_mode_sees_only_the_users_calls() -> None:
    class Calls(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    x, weight = tensor(4, 4), tensor(4, 4).requires_grad_()
    with torch.autocast("npu"), Calls() as calls:
        torch.mm(x, weight), torch.exp(x), torch.dot(x[0], x[1]), torch.sum(x)
    users = [torch.mm, torch.exp, torch.Tensor.__getitem__, torch.Tensor.__getitem__]
    assert calls.seen == [*users, torch.dot, torch.sum]


def test_transforms_run_under_autocast() -> None:
    x, weight = tensor(3, 4), tensor(4, 4)
    with torch.autocast("npu"):
        product = torch.func.vmap(lambda row: torch.mv(weight, row))(x)
        gradient = torch.func.grad(lambda w: torch.mm(x, w).float().sum())(weight)
    assert (product.dtype, gradient.dtype) == (HALF, FLOAT)
    assert torch.equal(gradient[:, 0], x.half().sum(0, dtype=HALF).float())
