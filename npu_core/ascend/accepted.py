"""Calls of `torch.npu` that a script may make and the emulator has nothing to do for.

They steer the compiler, the profiler and the driver of a real chip and change no number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import options


def _accepted(*args: Any, **kwargs: Any) -> None:
    """Accepted and without effect on the emulated device."""


set_aoe = set_start_fuzz_compile_step = global_step_inc = _accepted
iteration_start = iteration_end = _accepted
enable_graph_mode = disable_graph_mode = launch_graph = _accepted
prof_init = prof_start = prof_stop = prof_finalize = _accepted


def set_compile_mode(jit_compile: bool = False) -> None:
    """Choose compiled or prebuilt kernels (option jitCompile): the emulator has one kind."""
    options.set_option({"jitCompile": "enable" if jit_compile else "disable"})


def set_mm_bmm_format_nd(is_nd: bool) -> None:
    """Choose the format of matrix products (option MM_BMM_ND_ENABLE): values are the same."""
    options.set_option({"MM_BMM_ND_ENABLE": "enable" if is_nd else "disable"})


def stress_detect() -> int:
    """The chip's self test: 0, no fault."""
    return 0


class profileConfig:  # noqa: N801 (the original's name)
    """What the chip's profiler should collect: accepted and kept."""

    def __init__(self, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)


@contextmanager
def profile(
    profiler_result_path: str = "./", use_e2e_profiler: bool = False, config: object = None
) -> Iterator[None]:
    """The chip's profiler of torch <= 1.11: the block runs, nothing is written.

    `torch_npu.profiler` and `torch.profiler` measure the emulation.
    """
    yield
