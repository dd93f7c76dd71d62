"""The switches of the emulated device: chip profile, precision mode, overflow mode, `set_option`.

One place says what is in force, so that kernels ask a bool and documents quote one rule. A switch
the user did not set has the chip's default:

exact  the CPU's own numerics; no chip.
910A   saturation is its only overflow mode; ACL_PRECISION_MODE is allow_fp32_to_fp16; no bfloat16.
910B   the A2 parts 910B1 to B4: INF_NAN mode unless the environment disables it, ACL_PRECISION_MODE
       must_keep_origin_dtype, HF32 for convolutions, bfloat16.

Sources: hiascend environment variable reference (INF_NAN_MODE_ENABLE, INF_NAN_MODE_FORCE_DISABLE),
torch_npu `npu_sys_ctrl`, `CalcuOpUtil::GetCubeMathType`, and `torch.npu.set_option`.
"""

from __future__ import annotations

import os

PROFILES = ("910A", "910B", "exact")

_SWITCH = ("enable", "disable")
# What a key may be set to; None: any text.
_VALUES: dict[str, tuple[str, ...] | None] = {
    "ACL_PRECISION_MODE": ("allow_fp32_to_fp16", "must_keep_origin_dtype"),
    "ACL_OP_SELECT_IMPL_MODE": ("high_performance", "high_precision"),
    "ACL_AICORE_NUM": tuple(map(str, range(1, 33))),
    "ACL_OPTYPELIST_FOR_IMPLMODE": None,
    "ACL_OP_DEBUG_LEVEL": tuple("01234"),
    "ACL_DEBUG_DIR": None,
    "ACL_OP_COMPILER_CACHE_MODE": ("disable", "enable", "force"),
    "ACL_OP_COMPILER_CACHE_DIR": None,
    "ACL_OP_DEBUG_OPTION": None,
    "jitCompile": _SWITCH,
    "autotune": _SWITCH,
    "autotunegraphdumppath": None,
    "bmmv2_enable": _SWITCH,
    "mdldumpswitch": _SWITCH,
    "mdldumpconfigpath": None,
    "NPU_FUZZY_COMPILE_BLACKLIST": None,
    "FORCE_ACLNN_OP_LIST": None,
    "MM_BMM_ND_ENABLE": _SWITCH,
    "ALLOW_INTERNAL_FORMAT": _SWITCH,
    "ALLOW_CONV_HF32": _SWITCH,
    "ALLOW_MATMUL_HF32": _SWITCH,
}


class Live:
    """What kernels ask in every call."""

    __slots__ = ("emulating", "saturating")

    def __init__(self) -> None:
        self.emulating = self.saturating = True


live = Live()
_profile = "910A"
_set: dict[str, str] = {}  # only what the user set


def check(name: str) -> str:
    """The name itself. Raises ValueError naming the valid profiles."""
    if name not in PROFILES:
        valid = ", ".join(PROFILES)
        raise ValueError(f"unknown npu_core profile {name!r}: choose one of {valid}")
    return name


def profile() -> str:
    """The name of the profile in force."""
    return _profile


def set_profile(name: str) -> None:
    """Put a profile in force, for all threads; the overflow mode is read from the environment."""
    global _profile
    _profile = check(name)
    live.emulating = name != "exact"
    live.saturating = name == "910A" or (name == "910B" and _forced_to_saturate())


def _forced_to_saturate() -> bool:
    return os.environ.get("INF_NAN_MODE_FORCE_DISABLE") == "1"


def snapshot() -> tuple[str, dict[str, str]]:
    """Profile and options, for `restore`."""
    return _profile, dict(_set)


def restore(saved: tuple[str, dict[str, str]]) -> None:
    """Put back what `snapshot` saved."""
    name, options = saved
    _set.clear()
    _set.update(options)
    set_profile(name)


def emulating() -> bool:
    """Whether the numerics of a chip are emulated: the profile is not `exact`."""
    return live.emulating


def saturates() -> bool:
    """Whether saturation mode is in force: infinity becomes the dtype's largest, NaN becomes 0."""
    return live.saturating


def is_support_inf_nan() -> bool:
    """Whether infinity and NaN are computed with (INF_NAN mode), as `torch.npu.utils` answers it.

    Raises RuntimeError on 910B for INF_NAN_MODE_ENABLE=0 without INF_NAN_MODE_FORCE_DISABLE=1.
    """
    if _profile == "910B" and os.environ.get("INF_NAN_MODE_ENABLE") == "0" and not live.saturating:
        raise RuntimeError(
            "INF_NAN_MODE_ENABLE=0 alone does not switch 910B to saturation mode: set "
            "INF_NAN_MODE_FORCE_DISABLE=1 too before the device is registered"
        )
    return not live.saturating


def is_bf16_supported() -> bool:
    """Whether the chip has bfloat16; 910A has not."""
    return _profile != "910A"


def set_option(option: dict[str, object]) -> None:
    """Set documented options of the device; every value is kept as text.

    Raises TypeError for what is no dict, ValueError for an unknown key or a value the key does not
    take; then nothing is set.
    """
    if not isinstance(option, dict):
        raise TypeError(f"npu option must be a dict, got {type(option).__name__}")
    for key, value in option.items():
        if key not in _VALUES:
            raise ValueError(f"invalid npu option name {key!r}: known are {', '.join(_VALUES)}")
        allowed = _VALUES[key]
        if allowed is not None and str(value) not in allowed:
            raise ValueError(f"value of {key} should be in {', '.join(allowed)}, got {value!r}")
    _set.update((key, str(value)) for key, value in option.items())


def get_option(key: str) -> str | None:
    """The value the user gave an option, None for one not set. Raises ValueError if unknown."""
    if key not in _VALUES:
        raise ValueError(f"invalid npu option name {key!r}: known are {', '.join(_VALUES)}")
    return _set.get(key)


class Hf32:
    """`torch.npu.conv` and `torch.npu.matmul`: whether fp32 may be computed as HF32 on 910B."""

    __slots__ = ("_default", "_key")  # a misspelt name is an AttributeError

    def __init__(self, key: str, default: bool) -> None:
        self._key, self._default = key, default

    @property
    def allow_hf32(self) -> bool:
        """Set, or the default: on for convolutions, off for matrix products."""
        value = _set.get(self._key)
        return self._default if value is None else value == "enable"

    @allow_hf32.setter
    def allow_hf32(self, value: bool) -> None:
        set_option({self._key: "enable" if value else "disable"})


conv = Hf32("ALLOW_CONV_HF32", True)
matmul = Hf32("ALLOW_MATMUL_HF32", False)


def precision_mode() -> str:
    """ACL_PRECISION_MODE: as set, else the chip's default."""
    default = "allow_fp32_to_fp16" if _profile == "910A" else "must_keep_origin_dtype"
    return _set.get("ACL_PRECISION_MODE", default)


def allows_internal_format() -> bool:
    """Whether weights may be stored in the chip's own formats: as set, else on 910A only."""
    value = _set.get("ALLOW_INTERNAL_FORMAT")
    return _profile == "910A" if value is None else value == "enable"


def cube_mode(kind: str) -> str:
    """What the cube does to fp32 operands: `keep`, `half` (round to fp16) or `hf32`.

    kind: `matrix` or `convolution`. The table is torch_npu's cubeMathType by (allow_hf32,
    allow_fp32_to_fp16): (0,0) keep, (0,1) fp16, (1,0) HF32, (1,1) fp16 on 910A and HF32 on 910B.
    Raises RuntimeError on 910A under must_keep_origin_dtype: its cube takes neither fp32 nor HF32.
    """
    if not live.emulating:
        return "keep"
    to_half = precision_mode() == "allow_fp32_to_fp16"
    if _profile == "910A":
        if to_half:
            return "half"
        raise RuntimeError(
            "the cube unit of 910A takes no float32 and ACL_PRECISION_MODE is "
            "must_keep_origin_dtype: pass float16, or set allow_fp32_to_fp16"
        )
    if (conv if kind == "convolution" else matmul).allow_hf32:
        return "hf32"
    return "half" if to_half else "keep"
