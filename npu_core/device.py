"""Registration of the `npu` device in this process, and the switches of the emulator.

PyTorch keeps one spare device, PrivateUse1, for backends it does not know; we rename it and give it
a guard, hooks, the module `torch.npu` and one kernel per op. That can be done once per process and
not undone. A real torch_npu would claim the same slot, so where one is installed we leave it alone.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch.utils import backend_registration

from . import (
    accelerator,
    amp,
    compile,
    faults,
    kernels,
    memory,
    options,
    pinning,
    random,
    refused,
    status,
    storage,
)

_NAME = "npu"
_FAULT = "NPU_CORE_FAULT"
_libraries: list[torch.library.Library] = []  # kernels live as long as their library object
_real_npu_said = False
_broken: ExitStack | None = None  # faults that the environment asks for; never left


def register(profile: str | None = None) -> None:
    """Make `npu` a device of this process; see `npu_core.register`."""
    global _real_npu_said
    if not _libraries and importlib.util.find_spec("torch_npu") is not None:
        if not _real_npu_said:
            _real_npu_said = True
            warnings.warn("torch_npu is installed: it is used, npu_core emulates nothing",
                          stacklevel=3)  # fmt: skip
        return
    name = profile if profile is not None else os.environ.get("NPU_CORE") or "910A"
    options.check(name)
    if _libraries:
        if profile is not None:
            options.set_profile(profile)
        _break_for_good()  # again an error where it was one
        return
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        raise RuntimeError(
            f"npu_core needs torch >= 2.10 to register a device from Python; this is torch "
            f"{torch.__version__}"
        )
    _claim_device()
    options.set_profile(name)
    _break_for_good()


def _claim_device() -> None:
    # Here: surface imports this module, so that another copy of us finds us.
    from . import guard
    from .ascend import hccl, import_hook, surface, tensor_methods

    backend_registration._setup_privateuseone_for_python_backend(
        _NAME, backend_module=surface, device_guard=guard.Guard()
    )
    guard.wrap_engine()
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=False, for_module=False, for_packed_sequence=False, for_storage=True
    )
    memory.claim_storages()
    memory.claim_dlpack()
    memory.claim_queues()
    random.claim_generators()
    compile.run_npu_graphs_eagerly()
    aten = torch.library.Library("aten", "IMPL", "PrivateUse1")
    kernels.register(aten)
    called_by_cpp = (guard.Guard.type_, torch.autograd._engine_run_backward)
    compile.hide_from_dynamo([*called_by_cpp, *kernels.built.values()])
    on_cpu = torch.library.Library("aten", "IMPL", "CPU")
    pinning.register(on_cpu)
    tensor_methods.claim(aten)
    npu = torch.library.Library("npu", "FRAGMENT")
    status.register(npu)
    storage.register(npu)
    storage.claim_modules()
    c10d = torch.library.Library("c10d", "IMPL", "PrivateUse1")
    hccl.register(c10d)
    if os.environ.get("NPU_CORE"):
        import_hook.install()
    _libraries.extend(
        (
            aten,
            on_cpu,
            memory.claim_data(),
            *amp.claim(),
            npu,
            c10d,
            *accelerator.libraries(),
            *refused.libraries(),
        )
    )


def use(profile: str) -> AbstractContextManager[None]:
    """Switch the profile now; leaving the returned context manager switches back."""
    before = options.snapshot()
    options.set_profile(profile)
    return _restore(before)


@contextmanager
def _restore(saved: tuple[str, dict[str, str]]) -> Iterator[None]:
    try:
        yield
    finally:
        options.restore(saved)


def profile() -> str:
    """The profile in force."""
    return options.profile()


def _break_for_good() -> None:
    """Plant the faults that the environment asks for, once, for the whole process: `op:kind[:nth]`,
    several with `;` between them.

    So a command can be run on a chip that is as broken as the script's was. Raises ValueError.
    """
    global _broken
    text = os.environ.get(_FAULT)
    if not text or _broken is not None:
        return
    found = ExitStack()
    for each in text.split(";"):
        op, _, rest = each.strip().partition(":")
        kind, _, nth = rest.partition(":")
        if not (op and kind) or (nth and not nth.isdecimal()):
            raise ValueError(f"{_FAULT}={text!r}: write op:kind or op:kind:nth, as addmm:sign_flip")
        try:
            found.enter_context(fault(op, kind, int(nth) if nth else None))
        except ValueError as error:
            raise ValueError(f"{_FAULT}={text!r}: {error}") from None
    _broken = found


def fault(
    op: str,
    change: Callable[[Any], Any] | str,
    nth: int | Collection[int] | None = None,
    when: Callable[..., bool] | None = None,
    seed: int = 0,
) -> AbstractContextManager[faults.Fault]:
    """Plant a fault; see `npu_core.fault`."""
    ops = kernels.overloads(op)
    if not ops:
        raise ValueError(
            f"no kernel on npu is named {op!r}: views and composite ops (such as linear) have "
            "none; name an aten op that computes, such as mm or add.Tensor"
        )
    return faults.plant(faults.Fault(op, ops, change, nth, when, seed))
