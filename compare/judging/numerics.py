"""How exact one side's arithmetic is: rounding of its dtypes, and what its device does to products.

What a device narrows is a fact of the run (910A rounds float32 operands to half, CUDA may use TF32,
910B HF32 in convolutions): it is read from a dump's environment and given to the judge. A row
judged under such a mode says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

KEPT, HALF, HF32, TF32 = "float32", "float16", "hf32", "tf32"
"""What float32 operands of a product become before they are multiplied."""


class Numerics(NamedTuple):
    """One side's arithmetic.

    matrix, convolution: what float32 operands are rounded to, one of KEPT, HALF, HF32 and TF32.
    accumulate: dtype in which 16-bit operands are added up. saturates: what overflows is the
    dtype's largest number and NaN is 0. narrow_steps: what is computed between the inputs and the
    result of an op on 16-bit tensors is rounded to their dtype at every step, sums in matrix
    products aside. split: 16-bit dtypes in which products of such operands may keep partial sums of
    a few parts of K. known_wrong: what is known against results of this side.
    """

    matrix: str = KEPT
    convolution: str = KEPT
    accumulate: str = "float32"
    saturates: bool = False
    narrow_steps: bool = True
    split: tuple[str, ...] = ()
    known_wrong: str | None = None

    @property
    def modes(self) -> tuple[str, ...]:
        """What is not plain IEEE float32, in words."""
        kinds = {"matrix": self.matrix, "convolution": self.convolution}
        found = [f"{kind} operands rounded to {to}" for kind, to in kinds.items() if to != KEPT]
        if self.accumulate != "float32":
            found.append(f"sums in {self.accumulate}")
        if self.split:
            found.append(f"partial sums in {' and '.join(self.split)}")
        return (*found, *(("saturation mode",) if self.saturates else ()))


_ROUNDING = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
    "complex32": 2.0**-11,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
_SMALLEST = {
    "float64": 5e-324,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
    "float8_e4m3fn": 2.0**-9,
    "float8_e4m3fnuz": 2.0**-10,
    "float8_e5m2": 2.0**-16,
    "float8_e5m2fnuz": 2.0**-17,
    "complex32": 2.0**-24,
    "complex64": 2.0**-149,
    "complex128": 5e-324,
}
_LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}


def is_rounded(dtype: str) -> bool:
    """Whether a dtype (torch's name) is a float or complex one."""
    return dtype in _ROUNDING


def rounding(dtype: str) -> float:
    """Unit roundoff: the greatest relative error of one rounding to nearest; 0 of integers."""
    return _ROUNDING.get(dtype, 0.0)


def smallest(dtype: str) -> float:
    """The smallest positive number; 0 of integers."""
    return _SMALLEST.get(dtype, 0.0)


def largest(dtype: str) -> float:
    """The largest finite number; infinity of what is no float."""
    return _LARGEST.get(dtype, np.inf)


def internal(dtype: str, numerics: Numerics) -> float:
    """Unit roundoff of the arithmetic inside an op on tensors of this dtype."""
    if dtype in ("float64", "complex128"):
        return 2.0**-53
    if dtype in ("float32", "complex64"):
        return 2.0**-24
    return max(2.0**-24, rounding(numerics.accumulate))


def step(dtype: str, numerics: Numerics) -> float:
    """Units of float32's rounding that one step of arithmetic on this dtype takes."""
    if not numerics.narrow_steps or dtype not in ("float16", "bfloat16"):
        return 1.0
    return rounding(dtype) / rounding("float32")


def _to_half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float64)


def _to_half_saturating(x: np.ndarray) -> np.ndarray:
    half = _to_half(x)
    return np.nan_to_num(half, copy=False, nan=0.0, posinf=65504.0, neginf=-65504.0)


def _to_bits(kept: int) -> Callable[[np.ndarray], np.ndarray]:
    drop = 23 - kept

    def rounded(x: np.ndarray) -> np.ndarray:
        bits = x.astype(np.float32).view(np.int32)
        odd = (bits >> drop) & 1
        near = (bits + odd + ((1 << (drop - 1)) - 1)) & ~((1 << drop) - 1)
        return np.where(np.isfinite(x), near.view(np.float32), x).astype(np.float64)

    return rounded


_NARROW = {HF32: _to_bits(11), TF32: _to_bits(10)}


def narrow(x: np.ndarray, mode: str, saturates: bool) -> np.ndarray:
    """A float32 operand as a product of this mode takes it, in float64."""
    if mode == HALF:
        return _to_half_saturating(x) if saturates else _to_half(x)
    return _NARROW[mode](x)


def slack(mode: str) -> float:
    """What an operand may lie beside `narrow`'s, relatively: silicon may cut where we round."""
    return {HF32: 2.0**-12, TF32: 2.0**-11}.get(mode, 0.0)


_CPU, _CUDA, _NPU = 0, 1, 10


def numerics_of(environment: Mapping[str, Any], device: int | None) -> Numerics:
    """What a dump says of the arithmetic of its run.

    environment: the dump's. device: `Dump.device_type`; a machine that has an accelerator may have
    run on its CPU.

    An `npu` of type 910A or 310P rounds float32 operands of all products to half and saturates,
    910B rounds those of convolutions to HF32 unless its flags say otherwise. CUDA uses TF32, and
    adds up parts of 16-bit products in 16 bits, where its flags allow it. Pointwise ops of some
    builds for CPUs of ARM return wrong elements (pytorch#75411): that is said where a result does
    not follow from its inputs.
    """
    npu, cuda = environment.get("npu"), environment.get("cuda")
    if device == _NPU and isinstance(npu, dict) and not _is_exact(npu):
        name = str(npu.get("device"))
        if any(chip in name for chip in ("910A", "910ProA", "910PremiumA", "310P")):
            return Numerics(HALF, HALF, saturates=True)
        matrix = HF32 if npu.get("matmul_allow_hf32") else KEPT
        return Numerics(matrix, KEPT if npu.get("conv_allow_hf32") is False else HF32)
    if device == _CUDA and isinstance(cuda, dict):
        matrix = KEPT if environment.get("matmul_precision") in (None, "highest") else TF32
        conv = TF32 if environment.get("cudnn_allow_tf32") else KEPT
        split = tuple(
            dtype
            for dtype, short in (("float16", "fp16"), ("bfloat16", "bf16"))
            if environment.get(f"{short}_reduced_precision")
        )
        return Numerics(matrix, conv, narrow_steps=False, split=split)
    return Numerics(known_wrong=_known_wrong(environment) if device == _CPU else None)


def _is_exact(npu: Mapping[str, Any]) -> bool:
    return "exact" in str(npu.get("device")) or npu.get("profile") == "exact"


def _known_wrong(environment: Mapping[str, Any]) -> str | None:
    machine = str(environment.get("platform", "")).lower()
    if not any(name in machine for name in ("aarch64", "arm64")):
        return None
    return "a CPU of ARM, where vectorised ops of some builds are wrong (pytorch#75411)"
