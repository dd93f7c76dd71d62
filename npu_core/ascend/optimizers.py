"""`torch_npu.optim`: the fused optimizers of Ascend, as PyTorch's formulas or the named papers'.

Fused means that the chip updates all parameters in one flat tensor; the numbers are those of the
plain formula, and so are ours. SGD, Adam, AdamW, Adadelta and RMSprop are documented as compatible
with torch.optim's. Lamb follows "Large Batch Optimization for Deep Learning" in the form of
pytorch-lamb (no bias correction, weight norm clamped to 10), BertAdam NVIDIA's BERT optimization.

Source: op-plugin docs, torch_npu.optim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .custom_ops import widen

Params = Iterable[torch.Tensor] | Iterable[dict[str, Any]]
_WEIGHT_NORM_MAX = 10.0  # pytorch-lamb's bound


class NpuFusedOptimizerBase(torch.optim.Optimizer):
    """What the fused optimizers share beyond torch's."""

    def clip_grad_norm_fused_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the norm of all gradients together in place; returns the norm before."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)


class NpuFusedSGD(NpuFusedOptimizerBase, torch.optim.SGD):
    """torch.optim.SGD. Raises TypeError for nesterov without momentum or with dampening."""

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise TypeError("nesterov needs a momentum above 0 and no dampening")
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov)


class NpuFusedAdam(NpuFusedOptimizerBase, torch.optim.Adam):
    """torch.optim.Adam."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)


class NpuFusedAdamW(NpuFusedOptimizerBase, torch.optim.AdamW):
    """torch.optim.AdamW."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)


class NpuFusedAdadelta(NpuFusedOptimizerBase, torch.optim.Adadelta):
    """torch.optim.Adadelta."""

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, rho, eps, weight_decay)


class NpuFusedRMSprop(NpuFusedOptimizerBase, torch.optim.RMSprop):
    """torch.optim.RMSprop."""

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(params, lr, alpha, eps, weight_decay, momentum, centered)


def _norm(tensor: torch.Tensor) -> float:
    """Euclidean norm; in fp32 for 16-bit tensors, whose squares would overflow."""
    return widen(tensor).pow(2).sum().sqrt().item()


def _check(**values: tuple[float, float]) -> None:
    """Raise ValueError for a value below 0, or not below its bound."""
    for name, (value, bound) in values.items():
        if not 0 <= value < bound:
            raise ValueError(f"invalid {name}={value}: it must be at least 0 and below {bound}")


class _Moments(NpuFusedOptimizerBase):
    """Adam's two running averages without bias correction, which Lamb and BertAdam share."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient; returns what `closure` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_groups()
        return loss

    def _step_groups(self) -> None:
        raise NotImplementedError

    def _direction(
        self, p: torch.Tensor, grad: torch.Tensor, beta1: float, beta2: float, eps: float
    ) -> torch.Tensor:
        """Update both averages; returns mean / (sqrt(mean of squares) + eps)."""
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        return state["exp_avg"] / state["exp_avg_sq"].sqrt().add(eps)


class NpuFusedLamb(_Moments):
    """Lamb: each parameter's Adam step, scaled by the norm of the parameter over that of the step.

    adam=True leaves the scale at 1. use_global_grad_norm divides the gradients by the norm of all
    of them where that is above 1. Raises ValueError for values out of range.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        use_global_grad_norm: bool = False,
    ) -> None:
        _check(lr=(lr, math.inf), beta1=(betas[0], 1), beta2=(betas[1], 1), eps=(eps, math.inf))
        self.adam, self.use_global_grad_norm = adam, use_global_grad_norm
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay})  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """What pickle and deepcopy take: torch's own three parts, and the two switches."""
        return super().__getstate__() | {
            "adam": self.adam,
            "use_global_grad_norm": self.use_global_grad_norm,
        }

    def _step_groups(self) -> None:
        parameters = [p for g in self.param_groups for p in g["params"] if p.grad is not None]
        norm = 1.0
        if self.use_global_grad_norm and parameters:
            norm = max(1.0, math.hypot(*(_norm(p.grad) for p in parameters)))
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad if norm == 1.0 else p.grad / norm, group)

    def _update(self, p: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        step = self._direction(p, grad, *group["betas"], group["eps"])
        self.state[p]["step"] += 1
        if group["weight_decay"] != 0:
            step.add_(p, alpha=group["weight_decay"])
        trust = 1.0
        if not self.adam:
            weight_norm = min(_norm(p), _WEIGHT_NORM_MAX)
            step_norm = _norm(step)
            if weight_norm != 0 and step_norm != 0:
                trust = weight_norm / step_norm
        p.add_(step, alpha=-group["lr"] * trust)


# x: the part of t_total that is done; warmup: the part in which the rate rises.
_SCHEDULES: dict[str, Callable[[float, float], float]] = {
    "warmup_cosine": lambda x, warmup: 0.5 * (1.0 + math.cos(math.pi * x)),
    "warmup_constant": lambda x, warmup: 1.0,
    "warmup_linear": lambda x, warmup: max((x - 1.0) / (warmup - 1.0), 0.0),
    "warmup_poly": lambda x, warmup: max(1.0 - x, 0.0) ** 0.5,
}


class NpuFusedBertAdam(_Moments):
    """BERT's Adam: no bias correction, weight decay added to the step, scheduled learning rate.

    warmup: part of t_total in which the rate rises; t_total: steps in all, -1 keeps the rate.
    schedule: warmup_cosine, warmup_constant, warmup_linear or warmup_poly.
    max_grad_norm: bound on the norm of the gradients of one group and dtype together, as the flat
    tensor of the fused one; -1 for none. The gradients are clipped in place.
    Raises ValueError for values out of range.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        warmup: float = -1,
        t_total: float = -1,
        schedule: str = "warmup_linear",
        b1: float = 0.9,
        b2: float = 0.999,
        e: float = 1e-6,
        weight_decay: float = 0.01,
        max_grad_norm: float = 1.0,
    ) -> None:
        _check(lr=(lr, math.inf), b1=(b1, 1), b2=(b2, 1), e=(e, math.inf))
        if warmup != -1:
            _check(warmup=(warmup, 1))
        if t_total != -1 and t_total <= 0:
            raise ValueError(f"invalid t_total={t_total}: give steps in all, or -1 for no schedule")
        if schedule not in _SCHEDULES:
            raise ValueError(f"schedule={schedule!r}: choose one of {', '.join(_SCHEDULES)}")
        super().__init__(params, {"lr": lr, "schedule": schedule, "warmup": warmup,
                                  "t_total": t_total, "b1": b1, "b2": b2, "e": e,
                                  "weight_decay": weight_decay,
                                  "max_grad_norm": max_grad_norm})  # fmt: skip

    def _step_groups(self) -> None:
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if group["max_grad_norm"] > 0:
                for dtype in {p.dtype for p in parameters}:
                    same = [p for p in parameters if p.dtype is dtype]
                    torch.nn.utils.clip_grad_norm_(same, group["max_grad_norm"])
            for p in parameters:
                step = self._direction(p, p.grad, group["b1"], group["b2"], group["e"])
                if group["weight_decay"] > 0:
                    step.add_(p, alpha=group["weight_decay"])
                p.add_(step, alpha=-_rate(group, self.state[p]["step"]))
                self.state[p]["step"] += 1


def _rate(group: dict[str, Any], step: int) -> float:
    if group["t_total"] == -1:
        return group["lr"]
    x, warmup = step / group["t_total"], group["warmup"]
    return group["lr"] * (x / warmup if x < warmup else _SCHEDULES[group["schedule"]](x, warmup))
