"""`torch.npu`: what migration scripts and PyTorch itself ask of the device's module.

This module is registered as `torch.npu`. There is one device, its work is done when a call returns,
and its memory is the host's, so streams and synchronisation have nothing to wait for.
"""

from __future__ import annotations

import logging

import torch

from . import device as _npu_core_device  # noqa: F401 (how another copy of the package finds us)
from . import memory as _memory
from . import numerics as _numerics
from . import random as _random

_announced = False
_Device = int | str | torch.device | None


def _index(device: _Device) -> int:
    """The index a device argument means. Raises RuntimeError for one that is not emulated."""
    if device is None:
        return 0
    if not isinstance(device, int):
        given = torch.device(device)
        if given.type != "npu":
            raise RuntimeError(f"expected an npu device, got {given}: name npu or npu:0")
        device = given.index or 0
    _memory.check_index(device)
    return device


def _lazy_init() -> None:
    """Called by PyTorch before the first tensor: say once that this is no hardware."""
    global _announced
    if not _announced:
        _announced = True
        logging.getLogger("npu_core").warning(
            "emulated Ascend NPU, profile %s; not real hardware", _numerics.profile()
        )


def is_initialized() -> bool:
    """Whether the device has been used in this process."""
    return _announced


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


class Stream:
    """The device's only queue; every op has finished when its call returns."""

    def __init__(self, device: _Device = None, priority: int = 0) -> None:
        self.device = torch.device("npu", _index(device))
        self.priority = priority

    def synchronize(self) -> None:
        """Wait for the stream: nothing is ever pending."""

    def query(self) -> bool:
        """True: all work is done."""
        return True


_stream: Stream | None = None


def current_stream(device: _Device = None) -> Stream:
    """The stream in use; there is only one."""
    global _stream
    _index(device)
    if _stream is None:
        _stream = Stream()
    return _stream


default_stream = current_stream


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


def empty_cache() -> None:
    """Release cached memory: the emulator keeps none."""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the chip of the profile has bfloat16; 910A has not."""
    return _numerics.profile() != "910A"


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes autocast accepts on this chip."""
    return [torch.float16, torch.bfloat16] if is_bf16_supported() else [torch.float16]


def get_device_name(device: _Device = None) -> str:
    """The chip of the profile, marked as emulated."""
    _index(device)
    name = _numerics.profile()
    chip = "exact CPU numerics" if name == "exact" else name
    return f"Ascend {chip} (emulated by npu_core)"


def get_npu_format(tensor: torch.Tensor) -> int:
    """The format of a fresh tensor: NCDHW (30) at rank 5, NCHW (0) at rank 4, else ND (2).

    Raises TypeError for what is no npu tensor.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "npu":
        where = tensor.device if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(f"get_npu_format needs a tensor on npu, got one on {where}")
    return {5: 30, 4: 0}.get(tensor.dim(), 2)
