"""The device's own stream of random numbers, and its generators.

PyTorch lets no Python backend make generators, so npu's are CPU generators that say they are on
npu: the same seed gives the same numbers as on the CPU, and drawing on npu moves no CPU state.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from . import memory
from .signature import Place


class NpuGenerator(torch.Generator):
    """What `torch.Generator(device="npu")` gives."""

    @property
    def device(self) -> torch.device:
        """npu:0; the generator that torch's C++ sees is the CPU's."""
        return torch.device("npu:0")

    def clone_state(self) -> NpuGenerator:
        """Another generator that goes on from the same state."""
        twin = NpuGenerator()
        twin.set_state(self.get_state())
        return twin

    def __reduce__(self) -> tuple:
        return torch.Generator, (self.device,), self.get_state()

    def __setstate__(self, state: torch.Tensor) -> None:
        self.set_state(state)


generator = NpuGenerator()


def claim_generators() -> None:
    """Let `torch.Generator(device="npu")` work, where torch's generators have a class to ask.

    A type written in C takes no new constructor, but its metaclass makes its objects, and that is
    Python in newer torch (2.13; not in 2.10, where torch's own error stays).
    """
    meta = type(torch.Generator)
    if meta is type:
        return

    def call(cls: type, *args: object, **kwargs: object) -> object:
        if cls is torch.Generator:
            device = kwargs.get("device", args[0] if args else None)
            if device is not None and (device := torch.device(device)).type == "npu":
                memory.check_index(device.index)
                return NpuGenerator()
        return type.__call__(cls, *args, **kwargs)

    meta.__call__ = call


def with_generator(run: Callable, place: Place) -> Callable:
    """`run` of an op that takes a generator, drawing from the device's own unless given one."""

    def drawing(*args, **kwargs):
        if isinstance(place, int) and place < len(args):
            if args[place] is None:
                args = (*args[:place], generator, *args[place + 1 :])
        elif kwargs.get("generator") is None:
            kwargs["generator"] = generator
        return run(*args, **kwargs)

    return drawing


def with_state(run: Callable) -> Callable:
    """`run` of an op that draws and takes no generator: lend it the device's state meanwhile."""

    def drawing(*args, **kwargs):
        cpu = torch.default_generator
        with torch._C.DisableTorchFunction():
            before = cpu.get_state()
            cpu.set_state(generator.get_state())
            try:
                return run(*args, **kwargs)
            finally:
                generator.set_state(cpu.get_state())
                cpu.set_state(before)

    return drawing
