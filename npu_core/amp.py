"""Mixed precision as `torch.npu.amp` has it: loss scaling, and the names beside it.

In saturation mode an overflow leaves no infinity in the gradients; the device's loss scaler reads
the status register instead. The first `scale` of a step clears it, so that overflow in the forward
pass does not count, and the op that unscales gradients reads it: when it is set, the op clears it,
reports an overflow and leaves the gradients scaled. In INF_NAN mode that op looks whether the
float32 sum of each gradient is finite. Under `exact` all is PyTorch's own.

Sources: torch_npu/npu/amp/grad_scaler.py, and op-plugin's kernel of the unscaling op: of its two
rules for INF_NAN mode the older, the newer looks at every element, as PyTorch does. Where torch_npu
prints, the same text is a warning of the logger `npu_core`. torch_npu takes the reciprocal of the
scale in float32, PyTorch in float64 and rounds; for normal results these are the same numbers.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from . import autocast as _autocast
from . import compile as _compile
from . import options as _options
from . import status as _status

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"

_log = logging.getLogger("npu_core")
custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="npu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="npu")


class autocast(torch.autocast):  # noqa: N801 (torch's own name)
    """`torch.autocast("npu", ...)`, with torch_npu's order of arguments."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__("npu", dtype, enabled, cache_enabled)


class NpuGradScaler(torch.amp.GradScaler):
    """What `torch.amp.GradScaler("npu")` makes. Takes and raises what PyTorch's takes and raises.

    Once an optimizer of a step has overflowed, all later ones of that step are skipped too, since
    the register is read and cleared once for the whole backward; under `exact` each is on its own.
    """

    _dynamic = True
    _cleared = False  # whether this step's `scale` has cleared the register
    _has_overflow = False  # since the last update; read by scripts

    def scale(self, outputs: Any) -> Any:
        """Outputs times the scale; the first call of a step clears the status register."""
        if self._enabled and self._dynamic and not self._cleared:
            if _options.saturates():
                _status.clear_overflow_flag()
            self._cleared = True
        return super().scale(outputs)

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        if not self._dynamic:
            _multiply(optimizer, inv_scale, allow_fp16)
            return {found_inf.device: found_inf}
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        if any(value.item() for value in found.values()):
            self._has_overflow = True
        if _options.saturates():  # gradients that were reduced show no overflow of another rank
            self._has_overflow = _on_any_rank(self._has_overflow, found_inf.device)
        if _options.emulating():
            found.setdefault(found_inf.device, found_inf)
            if self._has_overflow:
                found[found_inf.device].fill_(1.0)
        return found

    def _maybe_opt_step(
        self,
        optimizer: torch.optim.Optimizer,
        optimizer_state: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> float | None:
        found = optimizer_state["found_inf_per_device"].values()
        before = self._has_overflow and _options.emulating()
        if before or any(value.item() for value in found):
            _log.warning("Gradient overflow. Skipping step")
            return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Back off after an overflow, grow after enough steps without; a static scale stays."""
        if not self._enabled:
            return
        stays = new_scale is None and not self._dynamic
        super().update(self._scale if stays else new_scale)
        if new_scale is None and self._dynamic:
            if self._has_overflow:
                _log.warning("Loss scaler reducing loss scale to %s", self.get_scale())
            elif self._get_growth_tracker() == 0:
                _log.warning("Loss scaler increasing loss scale to %s", self.get_scale())
        self._has_overflow = self._cleared = False


class GradScaler(NpuGradScaler):
    """The loss scaler of `torch.npu.amp`: torch_npu's arguments and state.

    dynamic=False keeps the scale, looks for no overflow and skips no step.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ) -> None:
        super().__init__("npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self._dynamic = dynamic

    def state_dict(self) -> dict[str, Any]:
        """PyTorch's state and `dynamic`; empty if not enabled."""
        state = super().state_dict()
        return {**state, "dynamic": self._dynamic} if state else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, also one of another device's scaler, which has no `dynamic`."""
        super().load_state_dict(state_dict)
        if self._enabled:
            self._dynamic = state_dict.get("dynamic", self._dynamic)


def _on_any_rank(flag: bool, device: torch.device) -> bool:
    if not (distributed.is_available() and distributed.is_initialized()):
        return flag
    count = torch.full((1,), float(flag), device=device)
    distributed.all_reduce(count)
    return count.item() != 0


def _multiply(optimizer: torch.optim.Optimizer, factor: torch.Tensor, allow_fp16: bool) -> None:
    grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    if not allow_fp16 and any(grad.dtype is torch.float16 for grad in grads):
        raise ValueError("Attempting to unscale FP16 gradients.")
    with torch.no_grad():
        for grad in grads:
            grad.mul_(factor)


def unscale(run: Callable) -> Callable:
    """`run` of the op UNSCALE on CPU aliases, with the device's rule for what overflowed."""

    def computed(
        grads: list[torch.Tensor], found_inf: torch.Tensor, inv_scale: torch.Tensor
    ) -> None:
        if not _options.live.emulating:
            return run(grads, found_inf, inv_scale)
        with torch._C.DisableTorchFunction():
            if _overflowed(grads):
                found_inf.fill_(1.0)
            else:
                run(grads, torch.zeros_like(found_inf), inv_scale)  # what it finds is not asked
        return None

    return computed


def _overflowed(grads: list[torch.Tensor]) -> bool:
    if not _options.saturates():
        return not all(math.isfinite(grad.sum(dtype=torch.float32)) for grad in grads)
    if not grads or not _status.read():
        return False
    _status.clear()
    return True


def claim() -> list[torch.library.Library]:
    """Register autocast and make `torch.amp.GradScaler("npu")` the device's; called once.

    Returns the libraries, which must be kept.
    """
    others = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    others.fallback(torch.library.fallthrough_kernel)
    listed = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    _compile.hide_from_dynamo(_autocast.register(listed))
    _autocast.claim_cache()
    base = torch.amp.GradScaler

    def new(cls: type, *args: Any, **kwargs: Any) -> torch.amp.GradScaler:
        device = str(args[0] if args else kwargs.get("device", ""))
        ours = cls is base and device.partition(":")[0] == "npu"
        return object.__new__(NpuGradScaler if ours else cls)

    base.__new__ = new
    return [others, listed]
