"""`torch.npu`: what migration scripts and PyTorch itself ask of the device's module.

This module is registered as `torch.npu`. There is one device, its work is done when a call returns,
and its memory is the host's. The names come from files of one idea each: `streams`, `host_memory`,
`tensor_types`, `acl_dump`, `amp`, `npu_utils`, `options`, and `accepted` for what has no effect.
"""

from __future__ import annotations

import logging
import sys
import warnings
from dataclasses import dataclass

import torch

from .. import amp
from .. import device as _npu_core_device  # noqa: F401 (how another copy of the package finds us)
from .. import memory as _memory
from .. import options as _options
from .. import random as _random
from ..options import conv, get_option, is_bf16_supported, matmul, set_option  # noqa: F401
from ..storage import get_format as get_npu_format  # noqa: F401
from . import host_memory as _host_memory
from . import npu_utils as utils
from .accepted import (  # noqa: F401
    disable_graph_mode,
    enable_graph_mode,
    global_step_inc,
    iteration_end,
    iteration_start,
    launch_graph,
    prof_finalize,
    prof_init,
    prof_start,
    prof_stop,
    profile,
    profileConfig,
    set_aoe,
    set_compile_mode,
    set_mm_bmm_format_nd,
    set_start_fuzz_compile_step,
    stress_detect,
)
from .acl_dump import dump_if_asked as _dump_if_asked
from .acl_dump import (  # noqa: F401
    finalize_dump,
    init_dump,
    is_dumping,
    register_dump,
    set_dump,
)
from .host_memory import (  # noqa: F401
    empty_cache,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
)
from .npu_utils import (  # noqa: F401
    clear_npu_overflow_flag,
    get_npu_overflow_flag,
    npu_check_overflow,
)
from .streams import Device as _Device
from .streams import (  # noqa: F401
    Event,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)
from .streams import index as _index
from .tensor_types import TYPES as _TYPES

globals().update(_TYPES)  # FloatTensor and its like
__path__: list[str] = []  # lets `torch_npu.npu.amp` be imported; import_hook finds it

_initialized = False  # checkpoint asks for it by this name: whether to keep our random state


def _lazy_init() -> None:
    """Called by PyTorch before the first tensor: say once that this is no hardware."""
    global _initialized
    if not _initialized:
        _initialized = True
        logging.getLogger("npu_core").warning(
            "emulated Ascend NPU, profile %s; not real hardware", _options.profile()
        )
        _dump_if_asked()


def is_initialized() -> bool:
    """Whether the device has been used in this process."""
    return _initialized


def init() -> None:
    """Initialise the device now instead of at its first tensor."""
    _lazy_init()


def _is_in_bad_fork() -> bool:
    return False


def is_available() -> bool:
    """True: the emulated device is always there."""
    return True


def device_count() -> int:
    """How many devices are emulated: 1."""
    return _memory.DEVICE_COUNT


def current_device() -> int:
    """The index of the current device: 0."""
    return 0


def set_device(device: _Device) -> None:
    """Choose the current device: 0, 'npu', 'npu:0' or a torch.device.

    Raises RuntimeError for an index that is not emulated and for other kinds of device.
    """
    _index(device)


class device:  # noqa: N801 (torch's own name)
    """Context manager that makes a device current. Raises like `set_device`."""

    def __init__(self, device: _Device) -> None:
        self.idx = _index(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def synchronize(device: _Device = None) -> None:
    """Wait for the device: nothing is ever pending."""
    _index(device)


def manual_seed(seed: int) -> None:
    """Seed the device's random numbers; `torch.manual_seed` does so too."""
    _random.generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> int:
    """Seed the device's random numbers from the system; returns the seed."""
    return _random.generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed the device's random numbers started from."""
    return _random.generator.initial_seed()


def get_rng_state(device: _Device = "npu") -> torch.Tensor:
    """State of the device's random numbers, a CPU ByteTensor."""
    _index(device)
    return _random.generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: _Device = "npu") -> None:
    """Restore a state taken by `get_rng_state`."""
    _index(device)
    _random.generator.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices: of one."""
    return [get_rng_state()]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Restore what `get_rng_state_all` took."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes autocast accepts on this chip."""
    return [torch.float16, torch.bfloat16] if is_bf16_supported() else [torch.float16]


def get_device_name(device: _Device = None) -> str:
    """The chip of the profile, marked as emulated."""
    _index(device)
    name = _options.profile()
    chip = "exact CPU numerics" if name == "exact" else name
    return f"Ascend {chip} (emulated by npu_core)"


@dataclass(frozen=True)
class DeviceProperties:
    """What `get_device_properties` tells: the name, and the host's memory in bytes."""

    name: str
    total_memory: int


def get_device_properties(device: _Device = None) -> DeviceProperties:
    """Name and memory of the device."""
    return DeviceProperties(get_device_name(device), _host_memory.mem_get_info(device)[1])


def get_device_capability(device: _Device = None) -> None:
    """None with a warning, as on the real device: an NPU has no compute capability."""
    _index(device)
    warnings.warn("an npu has no compute capability: None is returned", stacklevel=2)


class _Config:
    """`torch.npu.config`. Raises AttributeError for another name, which would have no effect."""

    __slots__ = ()

    @property
    def allow_internal_format(self) -> bool:
        """Whether weights may be stored in the chip's own formats: by default on 910A only."""
        return _options.allows_internal_format()

    @allow_internal_format.setter
    def allow_internal_format(self, value: bool) -> None:
        _options.set_option({"ALLOW_INTERNAL_FORMAT": "enable" if value else "disable"})


config = _Config()


def __getattr__(name: str) -> object:
    raise AttributeError(f"torch.npu.{name} is not emulated by npu_core; docs/npu_core.md lists "
                         "what is")  # fmt: skip


# So that they can be imported by these names.
sys.modules.update({"torch.npu.amp": amp, "torch.npu.utils": utils})
