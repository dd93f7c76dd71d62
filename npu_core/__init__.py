"""The emulated Ascend NPU: a real PyTorch device named `npu`, computed by the CPU.

Importing this package costs no torch. When torch is already imported the device is registered at
once (`import torch, npu_core` is all a script needs); otherwise `register()` does it.

A process has one `npu` device but may hold this package twice (found by file under one name,
imported by the user under another), so everything with state asks the copy that registered it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .faults import Fault

__all__ = ["fault", "profile", "register", "use"]


def _owner() -> ModuleType:
    """The `device` module that owns the process's npu: another copy's, or our own."""
    import torch  # first and whole: while it is imported its entry point may register us

    owner = getattr(getattr(torch, "npu", None), "_npu_core_device", None)
    if owner is None:
        from . import device as owner
    return owner


def register(profile: str | None = None) -> None:
    """Make `npu` a device of this process; calling it again only switches the profile.

    profile: `910A`, `910B` or `exact`; None reads the environment variable NPU_CORE, else `910A`.
    Does nothing but warn when Huawei's own torch_npu is installed.
    Raises ValueError for an unknown profile, RuntimeError for torch < 2.10.
    """
    _owner().register(profile)


def use(profile: str) -> AbstractContextManager[None]:
    """Switch the numerics profile, for good or, as a context manager, for the block.

    Raises ValueError for an unknown profile.
    """
    return _owner().use(profile)


def profile() -> str:
    """The numerics profile in force: `910A`, `910B` or `exact`."""
    return _owner().profile()


def fault(
    op: str,
    change: Callable[[Any], Any] | str,
    nth: int | Collection[int] | None = None,
    when: Callable[..., bool] | None = None,
    seed: int = 0,
) -> AbstractContextManager[Fault]:
    """Within the block, let chosen calls of one aten op on npu return something wrong.

    op: aten name with or without overload (`mm`, `add.Tensor`); without one, every overload.
    change: from the op's output (one tensor, or a tuple or list of them) to what it returns
    instead, of the same structure; or a named kind, such as `sign_flip` (docs/npu_core.md lists
    them). A result written in place or to `out=` is overwritten.
    nth: which calls to change, counted from 1 within the block; None changes every call.
    when: called as `when(*args, **kwargs)` with all the op's arguments before it runs; only calls
    for which it holds are changed, and counted by nth.
    seed: chooses the element or row of the kinds that change one.
    The block's value tells `calls` and `applied`, the numbers of the calls that were changed.
    Leaving the block warns if no call, or not each of nth, was changed.
    Raises ValueError for an op that has no kernel on npu, an unknown kind, one that needs what the
    op has not, and for nth < 1. A call that a kind cannot change raises RuntimeError.
    """
    return _owner().fault(op, change, nth, when, seed)


if "torch" in sys.modules:
    register()
