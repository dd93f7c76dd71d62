"""More of `scenarios`: autograd with hooks, recomputation, several orders, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scenarios import FORWARD, batch, learned, mlp, raised, scenario
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint as ckpt


def _policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> ckpt.CheckpointPolicy:
    """Keep the products, recompute the rest."""
    kept = (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
    policy = ckpt.CheckpointPolicy
    return policy.MUST_SAVE if op in kept else policy.PREFER_RECOMPUTE


CHECKPOINTS: dict[str, dict[str, Any]] = {
    "reentrant": {"use_reentrant": True},
    "not reentrant": {"use_reentrant": False},
    "whole": {"use_reentrant": False, "early_stop": False},
    "selective": {
        "use_reentrant": False,
        "context_fn": lambda: ckpt.create_selective_checkpoint_contexts(_policy),
    },
    "selective list": {
        "use_reentrant": False,
        "context_fn": lambda: ckpt.create_selective_checkpoint_contexts(
            [torch.ops.aten.addmm.default]
        ),
    },
}


@scenario(*CHECKPOINTS)
def checkpoint(device: str, kind: str) -> Any:
    """Recomputed blocks with dropout, whose masks must come again."""
    blocks = nn.ModuleList(mlp(device)[:5] for _ in range(3))  # selective ones allow no writes
    x = batch(device).requires_grad_()
    y = x
    for block in blocks:
        y = ckpt.checkpoint(block, y, **CHECKPOINTS[kind])
    y.square().mean().backward()
    return learned(blocks, y, x.grad)


@scenario(True, False)
def checkpoint_under_autocast(device: str, use_reentrant: bool) -> Any:
    model, x = mlp(device), batch(device).requires_grad_()
    with torch.autocast(device, dtype=torch.bfloat16):
        y = ckpt.checkpoint_sequential(model, 3, x, use_reentrant=use_reentrant)
    y.float().sum().backward()
    return learned(model, y, x.grad)


@scenario()
def deep_reentrant_checkpoints(device: str) -> Any:
    """Deeper than the 60 backward calls within backward calls that autograd runs on one thread."""
    w = torch.full((3,), 0.99, device=device, requires_grad=True)

    def nest(x: torch.Tensor, depth: int) -> torch.Tensor:
        y = x * w
        return ckpt.checkpoint(nest, y, depth - 1, use_reentrant=True) if depth else y

    y = nest(torch.ones(3, device=device, requires_grad=True), 70)
    y.sum().backward()
    return y, w.grad


@scenario()
def gradient_penalty(device: str) -> Any:
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    x = batch(device).requires_grad_()
    y = model(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    ((slope.norm(dim=1) - 1).square().mean() + y.mean()).backward()
    return learned(model, y, slope, x.grad)


@scenario()
def third_derivative(device: str) -> Any:
    """In whole numbers, whose sums are the same in any order."""
    x = torch.arange(4.0, device=device, requires_grad=True)
    found = [(x * x * x * x + 2 * x * x).sum()]
    for _ in range(3):
        found += torch.autograd.grad(found[-1].sum(), x, create_graph=True)
    found[-1].sum().backward()
    return found, x.grad


@scenario()
def order_of_sums_in_double_backward(device: str) -> Any:
    """Which of a gradient's many terms comes first is the order in which nodes are run.

    Autograd runs the youngest first, by a number that each thread counts for itself; on a device,
    what `create_graph` makes is made by the device's own thread.
    """
    x = batch(device).requires_grad_()
    for _ in range(1000):  # this thread's numbers are past those of any other
        x.view(-1)
    y = x.sin() * x.sum(0) * x
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (slope.cos() * slope * x + y).sum().backward()
    return y, slope, x.grad


@scenario()
def retained_graph(device: str) -> Any:
    model, x = mlp(device), batch(device).requires_grad_()
    y = model(x).square().sum()
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    return learned(model, once, x.grad, raised(y.backward))


@scenario()
def backward_for_some_inputs(device: str) -> Any:
    model, x = mlp(device), batch(device).requires_grad_()
    y = model(x)
    y.backward(torch.ones_like(y), inputs=[x, model[0].weight], retain_graph=True)
    unused = torch.ones(2, device=device, requires_grad=True)
    found = torch.autograd.grad(
        y, [x, unused], torch.eye(4, device=device).repeat(6, 1)[:6], allow_unused=True
    )
    return learned(model, found, x.grad)


@scenario()
def batched_gradients(device: str) -> Any:
    x = batch(device, 4).requires_grad_()
    y = x.cumsum(0).exp()
    eye = torch.eye(4, device=device)
    return torch.autograd.grad(y, x, eye, is_grads_batched=True)


@scenario(phases=FORWARD)
def forward_mode(device: str) -> Any:
    x, tangent = batch(device, 4), torch.ones(4, device=device)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        return tuple(torch.autograd.forward_ad.unpack_dual(dual.tanh() * dual))


@scenario()
def no_grad_and_enable_grad(device: str) -> Any:
    model, x = mlp(device), batch(device)
    with torch.no_grad():
        y = model(x)
        with torch.enable_grad():
            z = model(x)
    z.sum().backward()
    with torch.set_grad_enabled(False):
        model[0].weight += 0.1
    return learned(model, y, z, torch.is_grad_enabled())


@scenario()
def hooks(device: str) -> Any:
    """Every kind of hook, each running ops of its own or changing a gradient."""
    model, x = mlp(device), batch(device).requires_grad_()
    model[5].inplace = False  # full backward hooks forbid it
    log: list[Any] = []
    model[0].register_forward_pre_hook(lambda m, args: (args[0] * 1.5,))
    model[1].register_forward_hook(lambda m, args, out: out + args[0].mean())
    model[2].register_forward_hook(lambda m, args, out: log.append(out.sum()))
    model[4].register_full_backward_pre_hook(lambda m, grad: (grad[0] * 2,))
    model[4].register_full_backward_hook(lambda m, given, got: log.append((given, got)))
    model[0].weight.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    model[6].weight.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.norm()))
    y = model(x)
    y.retain_grad()
    y.register_hook(lambda grad: log.append(grad * 3))
    y.grad_fn.register_prehook(lambda grads: log.append(grads))
    y.square().sum().backward()
    return learned(model, log, y.grad, x.grad)


@scenario()
def saved_tensor_hooks(device: str) -> Any:
    model, packed = mlp(device), []

    def pack(t: torch.Tensor) -> torch.Tensor:
        packed.append(t.shape)
        return t * 1

    x = batch(device).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t + 0):
        y = model(x)
    y.sum().backward()
    with torch.autograd.graph.save_on_cpu():
        z = model(x)
    z.sum().backward()
    return learned(model, y, z, x.grad, [str(shape) for shape in packed])


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        largest = x.argmax()
        ctx.mark_non_differentiable(largest)
        return x * x * x, largest

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.mul_(factor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.factor = inputs[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad * ctx.factor, None


@scenario()
def custom_functions(device: str) -> Any:
    x = torch.arange(5.0, device=device, requires_grad=True)
    y, largest = _Cube.apply(x)
    z = _Doubled.apply(y + 1, 2.0)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (z.sum() + slope.square().sum()).backward()
    return y, z, largest, slope, x.grad


@scenario("foreach", "in place", "data", "detach", "no_grad", "view", "optimizer")
def written_between_forward_and_backward(device: str, way: str) -> Any:
    """Autograd refuses what it sees; through `.data` it sees nothing, and the gradient is wrong."""
    w = torch.ones(3, device=device, requires_grad=True)
    y = (w * w).sum()
    with torch.no_grad():
        if way == "foreach":
            torch._foreach_add_([w], 1.0)
        elif way == "in place":
            w.add_(1.0)
        elif way == "data":
            w.data.add_(1.0)
        elif way == "view":
            w[:2].zero_()
        elif way == "detach":
            w.detach().mul_(3.0)
        elif way == "no_grad":
            w.copy_(torch.zeros(3, device=device))
    if way == "optimizer":
        w.grad = torch.ones_like(w)
        torch.optim.AdamW([w], foreach=True).step()
    if way == "data":
        y.backward()
        return w, w.grad
    return raised(y.backward), w, w._version


@scenario()
def errors(device: str) -> Any:
    """What torch says to faulty programs, and that the next op is right after each."""
    a, b = batch(device, 2, 3), batch(device, 2, 3)
    leaf = torch.ones(3, device=device, requires_grad=True)

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise KeyError("of the user")

    faulty: list[Callable[[], Any]] = [
        lambda: torch.mm(a, b),
        lambda: leaf.add_(1),
        lambda: a.sum().backward(),
        lambda: (leaf * 2).backward(),
        lambda: Broken.apply(leaf).sum().backward(),
        lambda: F.cross_entropy(a, torch.tensor([0.5, 0.5], device=device)),
        lambda: torch.add(a, b, out=leaf),
        lambda: a.view(7),
        lambda: nn.Linear(5, 2).to(device)(a),
        lambda: torch.stack([a, b[0]]),
        lambda: a.no_such_method(),
    ]
    return [(raised(call), (a + b).sum()) for call in faulty]


@scenario()
def detect_anomaly(device: str) -> Any:
    x = torch.zeros(3, device=device, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        y = x.sqrt() * 0
        text = raised(lambda: y.sum().backward())
    return text, y, x.grad


@scenario(devices=("npu",))
def two_devices_in_one_graph(device: str) -> Any:
    """The engine would run each device's nodes on a thread of its own, in an order that varies.

    Hence whole numbers, whose sums are the same in any order.
    """
    w = torch.arange(9.0).reshape(3, 3).to(device).requires_grad_()
    v = (torch.arange(9.0).reshape(3, 3) - 4).requires_grad_()
    y = (w @ w).cpu() @ v
    z = (y.relu().to(device) @ w).sum() + (v * v * v).sum().to(device)
    (slope,) = torch.autograd.grad(z, v, create_graph=True)
    (z + (slope * v).to(device).sum()).backward()
    return y, z, w.grad, v.grad
