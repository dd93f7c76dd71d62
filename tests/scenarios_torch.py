"""More of `scenarios`: transforms, tracing, evaluation, users' own modes, classes and threads."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import torch
from scenarios import FORWARD, batch, learned, mlp, raised, scenario
from torch import nn
from torch._higher_order_ops import while_loop
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


@scenario()
def per_sample_gradients(device: str) -> Any:
    model = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (x,)).square().sum()

    x = batch(device)
    each = torch.func.vmap(torch.func.grad_and_value(loss), in_dims=(None, 0))(weights, x)
    model(x).sum().backward()
    return learned(model, each)


@scenario(phases=FORWARD)
def jacobians(device: str) -> Any:
    x = batch(device, 5)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * x.sum()

    return (
        torch.func.jacrev(f)(x),
        torch.func.jacfwd(f)(x),
        torch.func.hessian(lambda x: f(x).sum())(x),
        torch.func.jvp(f, (x,), (torch.ones_like(x),)),
        torch.func.vjp(f, x)[0],
        torch.autograd.functional.jacobian(f, x, vectorize=True),
    )


@scenario("different", "same", phases=FORWARD)
def vmap_with_random_numbers(device: str, randomness: str) -> Any:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5) + torch.randn_like(x)

    return torch.func.vmap(noisy, randomness=randomness)(batch(device))


@scenario(phases=FORWARD)
def traced_by_fx(device: str) -> Any:
    model, x = mlp(device).eval(), batch(device)
    traced = torch.fx.symbolic_trace(model)
    made = torch.fx.experimental.proxy_tensor.make_fx(lambda x: x.sin() + x.mean())(x)
    return traced(x), [n.name for n in traced.graph.nodes], made(x), made.code


@scenario()
def scripted(device: str) -> Any:
    model, x = mlp(device).eval(), batch(device)
    script, trace = torch.jit.script(model), torch.jit.trace(model, x, check_trace=False)
    outputs = [script(x), trace(x)]
    sum(y.sum() for y in outputs).backward()
    return learned(model, outputs)


@scenario(phases=FORWARD)
def control_flow_operators(device: str) -> Any:
    """Operators that call functions: torch compiles them by itself, and modes have to allow it."""
    x = batch(device, 5)
    y = torch.cond(x.sum() < 1e9, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))
    start = (torch.zeros((), dtype=torch.int64, device=device), torch.ones(2, device=device))
    return y, while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 1.5), start)


# Torch has its gradient on GPUs only.
@scenario(devices=("cpu",), phases=FORWARD)
def flexible_attention(device: str) -> Any:
    q, k, v = (batch(device, 1, 2, 16, 8) for _ in range(3))
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) * 0.1)


@torch.library.custom_op("torch_dumper_tests::twice", mutates_args=())
def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


_twice.register_autograd(lambda ctx, grad: grad * 2)


@scenario()
def operator_of_the_user(device: str) -> Any:
    x = batch(device, 5).requires_grad_()
    y = _twice(x.sin())
    y.sum().backward()
    return y, x.grad


@scenario()
def other_threads(device: str) -> Any:
    """One trains a model while the main thread waits."""
    model, x, found = mlp(device).eval(), batch(device), []

    def train() -> None:
        y = model(x)
        y.square().sum().backward()
        found.append(y)

    model(x).sum().backward()
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    return learned(model, found)


@scenario()
def profiled(device: str) -> Any:
    model = mlp(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        with torch.profiler.record_function("step of the user"):
            y = model(batch(device))
            y.sum().backward()
    names = {event.name for event in profile.events()}
    return learned(model, y, sorted(names & {"step of the user", "aten::addmm", "aten::gelu"}))


@contextlib.contextmanager
def _plain() -> Any:
    yield


NO_GRADIENTS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "frozen": _plain,
}


@scenario(*NO_GRADIENTS, phases=FORWARD)
def encoder_with_padding(device: str, way: str) -> Any:
    """The fast path, which fills padded places with zeros; torch leaves it for any reason."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    nested = device != "npu"  # which has no nested tensors
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=nested).to(device).eval()
    encoder.requires_grad_(False)
    x = batch(device, 2, 6, 32)
    padding = torch.zeros(2, 6, dtype=torch.bool, device=device)
    padding[1, 3:] = True
    with NO_GRADIENTS[way]():
        return (
            encoder(x, src_key_padding_mask=padding),
            encoder(x),
            layer.to(device).eval()(x, src_key_padding_mask=padding),
        )


@scenario(*NO_GRADIENTS, phases=FORWARD)
def attention_in_evaluation(device: str, way: str) -> Any:
    attention = nn.MultiheadAttention(32, 4, batch_first=True).to(device).eval()
    attention.requires_grad_(False)
    x = batch(device, 2, 6, 32)
    padding = torch.zeros(2, 6, dtype=torch.bool, device=device)
    padding[0, 4:] = True
    with NO_GRADIENTS[way]():
        return (
            attention(x, x, x, key_padding_mask=padding),
            attention(x, x, x, need_weights=False),
            attention(x, x * 2, x, average_attn_weights=False),
        )


@scenario()
def encoder_in_training(device: str) -> Any:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    x = batch(device, 2, 6, 32).requires_grad_()
    y = encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(6, device), is_causal=True)
    y.square().sum().backward()
    return learned(encoder, y, x.grad)


@scenario(phases=FORWARD)
def inference(device: str) -> Any:
    model = mlp(device)
    with torch.inference_mode():
        y = model(batch(device))
        y.mul_(2)
        torch._foreach_add_([y], 1.0)
        outside = y.clone()
    return y, raised(lambda: y.add_(1).requires_grad_()), outside + 1, model.eval()(batch(device))


class _Log(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))


class _OpLog(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@scenario()
def modes_of_the_user(device: str) -> Any:
    """They see the same calls in the same order."""
    model, x = mlp(device), batch(device)
    with _Log() as calls, _OpLog() as ops, torch.device(device):
        y = model(x) + torch.ones(4)
        y.sum().backward()
        torch.randn(3)
    return learned(model, y, calls.names, ops.names)


class _Named(torch.Tensor):
    """Carries a name along, as libraries of labelled tensors do."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@scenario()
def tensor_subclass(device: str) -> Any:
    _Named.seen = []
    x = batch(device).as_subclass(_Named).requires_grad_()
    y = F.linear(x, torch.ones(4, 32, device=device)).relu() @ torch.ones(4, device=device)
    y.sum().backward()
    kinds = [type(t).__name__ for t in (y, x, x.grad)]
    plain = [t.detach().as_subclass(torch.Tensor) for t in (y, x, x.grad)]
    return kinds, _Named.seen, plain


class _OwnCall(nn.Module):
    """Modules that override what calls them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 4)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner.forward(x)


@scenario()
def module_with_its_own_call(device: str) -> Any:
    model = _OwnCall().to(device)
    y = model(batch(device))
    y.sum().backward()
    return learned(model, y)
