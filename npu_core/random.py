"""The device's own stream of random numbers.

PyTorch lets no Python backend make generators, so npu draws from a CPU generator of its own: the
same seed gives the same numbers as on the CPU, and drawing on npu moves no CPU state.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .signature import Place

generator = torch.Generator()


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
