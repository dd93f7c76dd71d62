"""One pair of PyTorch's OpInfo database, an op and a dtype, measured on npu against the CPU.

The database holds sample calls for most of PyTorch's public functions. A pair is *equal* when every
sample call that runs on the CPU gives the CPU's dtypes, shapes, strides and bits on npu. The sign
of a zero counts; one NaN is as good as another. Both sides start from copies of the same inputs and
from the same seed. The caller switches emulated numerics off (`npu_core.use("exact")`).

Attention runs as its plain ops on both sides, since npu has no fused kernel as the CPU has one.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

OPS: dict[str, OpInfo] = {op.full_name: op for op in op_db}
DTYPES = {
    "forward": (torch.float32, torch.float16, torch.int64, torch.bool),
    "gradient": (torch.float32, torch.float64),
}
EQUAL, ABSENT = "equal", "absent"  # absent: nothing of the pair runs on the CPU
_SEED = 20

# Some of their sample calls name no device.
_FACTORIES = {"arange", "linspace", "logspace"}
# They return memory that nobody wrote, or let LAPACK read some (lstsq its pivots). PyTorch fills it
# where results must be deterministic, so that there is something to compare.
_UNWRITTEN = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
              "new_empty_strided", "linalg.lstsq"}  # fmt: skip


class Pair(NamedTuple):
    """What is measured and counted: an op's forward or gradient in one dtype, named `float32`."""

    op: str
    direction: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op} {self.direction} {self.dtype}"


def pairs(part: str = "") -> Iterator[Pair]:
    """Every pair whose op has `part` in its name, in the order of the database."""
    for name in OPS:
        if part in name:
            for direction, dtypes in DTYPES.items():
                for dtype in dtypes:
                    yield Pair(name, direction, str(dtype).removeprefix("torch."))


def measure(pair: Pair) -> str:
    """EQUAL, ABSENT, or in one line what differs first."""
    op, dtype = OPS[pair.op], getattr(torch, pair.dtype)
    gradient = pair.direction == "gradient"
    supported = op.supported_backward_dtypes("cpu") if gradient else op.supported_dtypes("cpu")
    if dtype not in supported or (gradient and not op.supports_autograd):
        return ABSENT
    run = _gradients if gradient else _forward
    ran = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(_SEED)
        for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=gradient)):
            try:
                expected = run(op, sample, "cpu")
            except Exception:  # noqa: BLE001 - whatever the CPU refuses is no part of the pair
                continue
            if not expected:
                continue
            ran = True
            try:
                difference = _difference(expected, run(op, sample, "npu"))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                difference = f"{type(error).__name__}: {error}"
            if difference:
                return f"sample {number}: {' '.join(difference.split())}"
    return EQUAL if ran else ABSENT


def _forward(op: OpInfo, sample: SampleInput, device: str) -> list[Any]:
    """The leaves of what the sample call returns."""
    given, args, kwargs = _moved((sample.input, sample.args, sample.kwargs), device)
    with _surroundings(op, device):
        return tree_leaves(op(given, *args, **kwargs))


def _gradients(op: OpInfo, sample: SampleInput, device: str) -> list[Any]:
    """The gradients of all inputs, where drawn numbers arrive at all outputs; [] without any."""
    given, args, kwargs = moved = _moved((sample.input, sample.args, sample.kwargs), device)
    with _surroundings(op, device):
        result = sample.output_process_fn_grad(op(given, *args, **kwargs))
        outputs = [t for t in tree_leaves(result) if _wants_gradient(t)]
        if not outputs:
            return []
        draw = torch.Generator().manual_seed(_SEED)
        arriving = [
            torch.randn(t.shape, dtype=t.dtype, generator=draw).to(t.device) for t in outputs
        ]
        inputs = [t for t in tree_leaves(moved) if _wants_gradient(t)]
        return list(torch.autograd.grad(outputs, inputs, arriving, allow_unused=True))


@contextmanager
def _surroundings(op: OpInfo, device: str) -> Iterator[None]:
    """What both sides of a call have in common."""
    state = torch.random.get_rng_state()  # of the samples, which are still being drawn
    with ExitStack() as stack:
        stack.callback(torch.random.set_rng_state, state)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if op.name in _FACTORIES:
            stack.enter_context(torch.device(device))
        if op.name in _UNWRITTEN:
            stack.callback(torch.use_deterministic_algorithms, False)
            torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(_SEED)
        yield


def _wants_gradient(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _moved(values: Any, device: str) -> Any:
    """Copies on `device` with the same strides; a device among the arguments becomes `device`."""

    @functools.cache
    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            return tensor.detach().clone().to(device).requires_grad_(tensor.requires_grad)
        plain = tensor.detach()
        memory = torch.empty(0, dtype=plain.dtype)
        memory.set_(plain.untyped_storage().clone())
        result = memory.to(device).as_strided(plain.shape, plain.stride(), plain.storage_offset())
        if plain.is_conj():
            result = result.conj()
        if plain.is_neg():
            result = torch._neg_view(result)
        return result.detach().requires_grad_(tensor.requires_grad)

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return copy(value)
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return device if isinstance(value, str) else torch.device(device)
        return value

    return tree_map(move, values)


def _difference(expected: list[Any], got: list[Any]) -> str | None:
    """Where the npu's leaves differ from the CPU's, or None."""
    if len(expected) != len(got):
        return f"{len(expected)} results on cpu, {len(got)} on npu"
    for number, (cpu, npu) in enumerate(zip(expected, got, strict=True)):
        found = _leaf_difference(cpu, npu)
        if found:
            return f"result {number}: {found}"
    return None


def _leaf_difference(cpu: Any, npu: Any) -> str | None:
    if not isinstance(cpu, torch.Tensor):
        same = cpu == npu or (cpu != cpu and npu != npu)
        return None if same else f"{cpu!r} on cpu, {npu!r} on npu"
    if not isinstance(npu, torch.Tensor):
        return f"a tensor on cpu, {npu!r} on npu"
    if npu.device.type != "npu":
        return f"is on {npu.device}"
    for fact in ("dtype", "shape", "layout"):
        if getattr(cpu, fact) != getattr(npu, fact):
            return f"{fact} {getattr(cpu, fact)} on cpu, {getattr(npu, fact)} on npu"
    if cpu.layout is not torch.strided:
        return _leaf_difference(cpu.detach().to_dense(), npu.detach().to_dense())
    if cpu.stride() != npu.stride():
        return f"stride {cpu.stride()} on cpu, {npu.stride()} on npu"
    apart = differing(cpu.detach(), npu.detach().cpu())
    return f"{apart} of {cpu.numel()} elements differ" if apart else None


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def differing(a: torch.Tensor, b: torch.Tensor) -> int:
    """How many elements of two CPU tensors of one dtype and shape differ in bits, NaN apart."""
    a, b = (t.resolve_conj().resolve_neg().contiguous() for t in (a, b))
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if not a.is_floating_point():
        return int((a != b).sum())
    bits = _INTEGERS[a.element_size()]
    return int(((a.view(bits) != b.view(bits)) & ~(a.isnan() & b.isnan())).sum())
