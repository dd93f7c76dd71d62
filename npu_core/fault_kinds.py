"""The named kinds of faults: how real kernels go wrong.

A kind takes one call of an op and returns what the op returns instead. Some let the op compute from
changed arguments, so that the error is the one a real kernel would make; the others change the
result. Those change one tensor, the main result: the first with floating-point numbers.

Every size below (1000 times the epsilon, half of the largest number) is chosen by us, so that the
fault stands far outside any rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import torch

from . import fault_fp16
from .fault_call import WEIGHT, Call, arguments, base, find_main


def _bias_arguments(op: str) -> list[str]:
    if "backward" in op:  # there a bias only lends its shape
        return []
    return [
        name
        for name, argument in arguments(op).items()
        if (name == "bias" or name.endswith("_bias")) and "Tensor" in str(argument.type)
    ]


def _scaled_self(op: str) -> bool:
    """Whether `op` adds beta * self, which is the bias of nn.Linear: the addmm family."""
    return {"self", "beta", "alpha"} <= set(arguments(op))


def _bias_dropped(call: Call) -> Any:
    """A bias of zeros; in the addmm family beta = 0."""
    if _scaled_self(call.op):
        if call["beta"] == 0:
            raise call.error("bias_dropped: beta is 0, this call adds no bias")
        return call.run(beta=0)
    biases = {name: call[name] for name in _bias_arguments(call.op) if call[name] is not None}
    if not biases:
        raise call.error("bias_dropped: this call has no bias")
    return call.run(**{name: torch.zeros_like(bias) for name, bias in biases.items()})


def _epsilon(op: str) -> str | None:
    return next((name for name in arguments(op) if name in ("eps", "epsilon")), None)


def _wrong_epsilon(call: Call) -> Any:
    """1000 times the epsilon; 1e-3 where it is 0 or not given."""
    if "backward" in call.op and any(call[n] for n in ("train", "update") if n in call):
        raise call.error("wrong_epsilon: in training the saved invstd is used, epsilon is not read")
    name = _epsilon(call.op)
    return call.run(**{name: 1000 * (call[name] or 1e-6)})


def _transposed_weight(call: Call) -> Any:
    """The matrix (of a convolution: output and input channels of the weight) transposed."""
    name = WEIGHT[call.base]
    weight = call[name]
    axes = (0, 1) if name == "weight" else (-2, -1)
    sides = [weight.shape[axis] for axis in axes]
    if sides[0] != sides[1] or sides[0] < 2:
        raise call.error(
            f"transposed_weight: {name} is {sides[0]} x {sides[1]}, a square of side 2 or more "
            "is needed"
        )
    return call.run(**{name: weight.transpose(*axes).contiguous()})


def _on_result(change: Callable[[torch.Tensor, Call], torch.Tensor]) -> Callable[[Call], Any]:
    def changed(call: Call) -> Any:
        results = call.run()
        main = call.main(results)
        return call.replace(results, main, change(main, call))

    changed.__doc__ = change.__doc__
    return changed


def _element(shape: torch.Size, number: int) -> tuple[int, ...]:
    """The index of an element by its number in row-major order."""
    index = []
    for size in reversed(shape):
        number, at = divmod(number, size)
        index.append(at)
    return tuple(reversed(index))


def _chosen(x: torch.Tensor, call: Call) -> tuple[int, ...]:
    return _element(x.shape, Random(call.seed).randrange(x.numel()))


def _largest(x: torch.Tensor) -> float:
    """The largest finite magnitude in x."""
    return torch.where(x.isfinite(), x, 0).abs().max().item()


@_on_result
def _one_element_off(x: torch.Tensor, call: Call) -> torch.Tensor:
    """One element off by the largest magnitude in the result, towards zero and beyond.

    That never overflows. In a result of zeros it becomes -1; what is not finite becomes 0.
    """
    at, changed = _chosen(x, call), x.clone()
    value = x[at].item()
    off = math.copysign(_largest(x) or 1.0, value)
    changed[at] = value - off if math.isfinite(value) else 0.0
    return changed


@_on_result
def _one_row_swapped(x: torch.Tensor, call: Call) -> torch.Tensor:
    """One row (along the last axis) exchanged with the next that differs."""
    rows = x.shape[:-1].numel() if x.dim() > 1 else 1
    first = Random(call.seed).randrange(rows)
    here = _element(x.shape[:-1], first)
    for step in range(1, rows):
        there = _element(x.shape[:-1], (first + step) % rows)
        if not torch.equal(x[here], x[there]):
            changed = x.clone()
            changed[here], changed[there] = x[there], x[here]
            return changed
    raise call.error(f"one_row_swapped: no two rows differ in a result of shape {list(x.shape)}")


@_on_result
def _sign_flip(x: torch.Tensor, call: Call) -> torch.Tensor:
    """Every element negated."""
    return -x


@_on_result
def _wrong_dtype_cast(x: torch.Tensor, call: Call) -> torch.Tensor:
    """Rounded to fp16 and back; fp16 through bf16, bf16 through float8_e5m2."""
    if x.dtype is torch.float16:  # by way of the CPU: 910A itself has no bf16
        return x.cpu().bfloat16().float().to(x.device).half()
    return x.to(torch.float8_e5m2 if x.dtype is torch.bfloat16 else torch.float16).to(x.dtype)


@_on_result
def _nan_in_one_element(x: torch.Tensor, call: Call) -> torch.Tensor:
    """One element NaN."""
    changed = x.clone()
    changed[_chosen(x, call)] = math.nan
    return changed


@_on_result
def _saturate(x: torch.Tensor, call: Call) -> torch.Tensor:
    """Cut at half of the largest finite magnitude, infinity too; NaN becomes 0.

    As an accumulator too narrow for the result saturates.
    """
    limit = _largest(x) / 2
    return x.nan_to_num(0.0, limit, -limit).clamp(-limit, limit)


def _stale_buffer(call: Call) -> Any:
    """The main result that the previous call of the op with its shape and dtype computed.

    Every call counts as previous, chosen or not; the first of its shape is left as it is.
    """
    results = call.run()
    if not call.chosen and find_main(results) is None:
        return results
    main = call.main(results)
    key = (call.op, main.shape, main.dtype)
    earlier, call.memory[key] = call.memory.get(key), main.clone()
    if earlier is None or not call.chosen:
        call.applied = False
        return results
    return call.replace(results, main, main.clone().copy_(earlier))


class Kind(NamedTuple):
    """One named fault.

    fits: whether an op has what the kind changes, which `needs` names. every: whether the kind must
    see also the calls that it is not to change.
    """

    change: Callable[[Call], Any]
    fits: Callable[[str], bool] = lambda op: True
    needs: str = ""
    every: bool = False


KINDS = {
    "bias_dropped": Kind(
        _bias_dropped, lambda op: bool(_bias_arguments(op)) or _scaled_self(op), "a bias"
    ),
    "wrong_epsilon": Kind(_wrong_epsilon, lambda op: _epsilon(op) is not None, "an epsilon"),
    "transposed_weight": Kind(
        _transposed_weight, lambda op: base(op) in WEIGHT, "a matrix for the cube unit"
    ),
    "fp16_accumulation": Kind(
        fault_fp16.fp16_accumulation, fault_fp16.fits, "a sum of products, or a sum"
    ),
    "one_element_off": Kind(_one_element_off),
    "one_row_swapped": Kind(_one_row_swapped),
    "stale_buffer": Kind(_stale_buffer, every=True),
    "sign_flip": Kind(_sign_flip),
    "wrong_dtype_cast": Kind(_wrong_dtype_cast),
    "nan_in_one_element": Kind(_nan_in_one_element),
    "saturate": Kind(_saturate),
}
