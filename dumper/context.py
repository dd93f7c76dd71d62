"""`torch.utils.dumper`: the original's context manager, its arguments, paths and habits.

    with torch.utils.dumper(use_dump=True, dump_path="./model_npu.h5"):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()

The rules for arguments are the original's; `use_dump=True` with a load_file_path means load and
dump, as its guide writes it. A second context on a path that this process has finished keeps the
file and records nothing, since training scripts loop and the first step is the one wanted.
"""

from __future__ import annotations

import atexit
import os
from collections import Counter
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .capture import Capture
from .environment import describe_run, faults_listed
from .errors import warn
from .load import Loader
from .reader import Dump, open_dump

_active: dumper | None = None
_finished: set[str] = set()
_said: set[str] = set()  # of those, whose second context was told that it records nothing


class dumper:  # noqa: N801 - the original's name
    """Record every operator of one step, or run the step on recorded inputs.

    enabled: False makes everything a no-op. use_dump: record inputs and outputs. use_load: run each
    op on the inputs that load_file_path recorded for it and record its outputs under the same
    sequence id. dump_path: the file; None or '' a time-stamped one here; a directory one inside it.
    check_overflow, load_with_acl_dump: accepted, not built yet.

    Attributes after entering: `path` (the dump file, created by the first op), after leaving a load
    run `matched` (ops that were fed) and `unmatched` (IR names of ops that had no counterpart, in
    order).

    Raises RuntimeError for contradicting arguments and paths, DumpError for an unreadable load
    file. Inside the context only what the step itself raises.
    """

    def __init__(
        self,
        enabled: bool = True,
        use_dump: bool = False,
        use_load: bool = False,
        check_overflow: bool = False,
        dump_path: str | os.PathLike | None = None,
        load_file_path: str | os.PathLike | None = None,
        load_with_acl_dump: bool = False,
    ) -> None:
        flags = (use_dump, use_load, check_overflow, load_with_acl_dump)
        if not all(isinstance(flag, bool) for flag in flags):
            raise RuntimeError(
                "use_dump/use_load/check_overflow/load_with_acl_dump "
                "should be set to True or False!"
            )
        self.enabled = enabled
        self.use_dump = use_dump
        self.use_load = use_load
        self.check_overflow = check_overflow
        self.dump_path = _path(dump_path)
        self.load_file_path = _path(load_file_path)
        self.load_with_acl_dump = load_with_acl_dump
        self.path: str | None = None
        self.matched = 0
        self.unmatched: list[str] = []
        self._capture: Capture | None = None
        self._source: Dump | None = None
        self._stack = ExitStack()

    def __enter__(self) -> dumper:
        global _active
        if not self.enabled:
            return self
        if _active is not None and _active._process == os.getpid():  # a forked child has its own
            raise RuntimeError("utils dumper are not reentrant")
        self._check_modes()
        if not (self.use_dump or self.use_load):
            return self
        loading = self.use_load or self.load_file_path is not None
        if loading and not (self.load_file_path and os.path.isfile(self.load_file_path)):
            raise RuntimeError(
                f"please input a file path: load_file_path is {self.load_file_path!r}"
            )
        self.path = _resolve(self.dump_path)
        if loading and _same_file(self.path, self.load_file_path):
            raise RuntimeError("dump_path and load_file_path can not be same!")
        if os.path.realpath(self.path) in _finished and os.path.exists(self.path):
            self._say_kept()
            return self
        loader = None
        if loading:
            self._source = open_dump(self.load_file_path)
            loader = Loader(self._source)
        self._environment = describe_run("load" if loading else "dump")
        self._capture = Capture(os.path.abspath(self.path), self._environment, loader)
        self._loader = loader
        self._process = os.getpid()
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        _active = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _active
        if self._capture is None:
            return
        _active = None
        capture, self._capture = self._capture, None
        try:
            self._stack.close()
        finally:
            if capture.made_file:
                _finished.add(os.path.realpath(self.path))
            if self._source is not None:
                self._source.close()
                self._report_load()

    def _check_modes(self) -> None:
        if self.use_dump + self.use_load + self.check_overflow > 1:
            raise RuntimeError("dump mode, load mode and check overflow mode can not run together!")
        for name in ("check_overflow", "load_with_acl_dump"):
            if getattr(self, name):
                raise RuntimeError(
                    f"{name} is accepted but not built yet in this version; leave it out"
                )

    def _begin(self) -> None:
        capture, stack = self._capture, self._stack
        # An interpreter that ends inside the context finishes the file too.
        atexit.register(capture.finish)
        stack.callback(atexit.unregister, capture.finish)
        # Compiled functions run as written inside the context, and compiled again after it. Without
        # this fullgraph=True raises, and what is first run in here stays eager for good.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        # One thread, so one order of ops and one sequence of autograd node numbers.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        before = register_optimizer_step_pre_hook(lambda *_: capture.enter_optimizer(True))
        stack.callback(before.remove)
        after = register_optimizer_step_post_hook(lambda *_: capture.enter_optimizer(False))
        stack.callback(after.remove)
        stack.enter_context(faults_listed(self._environment))
        stack.enter_context(capture)

    def _say_kept(self) -> None:
        real = os.path.realpath(self.path)
        if real not in _said:
            _said.add(real)
            warn(
                "this file was finished earlier in this process and is kept; this and later "
                "contexts on it record nothing",
                self.path,
                "name another dump_path to record again",
            )

    def _report_load(self) -> None:
        self.matched, self.unmatched = self._loader.matched, self._loader.unmatched
        if self.unmatched:
            warn(
                f"{self.matched} ops ran on recorded inputs; {len(self.unmatched)} found no "
                f"counterpart in {self.load_file_path}, ran on their own inputs and are not "
                f"recorded: {_most_common(self.unmatched)}",
                self.path,
                "compare what was fed; the file lists the others under unmatched",
            )


def _most_common(names: list[str]) -> str:
    counted = Counter(names).most_common()
    text = ", ".join(f"{name} ({count})" for name, count in counted[:5])
    return text + (", ..." if len(counted) > 5 else "")


def _path(given: str | os.PathLike | None) -> str | None:
    """A path as text; '' means not given."""
    return os.fsdecode(given) or None if given is not None else None


def _resolve(dump_path: str | None) -> str:
    """The dump file's path by the original's rules. Raises RuntimeError when its directory is not
    there.
    """
    stamp = datetime.now().strftime("%Y%m%d_%H%M%S.%f") + ".h5"
    if dump_path is None:
        return stamp
    directory, name = os.path.split(dump_path)
    if directory and not os.path.isdir(directory):
        raise RuntimeError(f"the directory '{directory}' does not exist, please input a valid one")
    path = os.path.join(dump_path, stamp) if not name or os.path.isdir(dump_path) else dump_path
    if os.path.exists(path) and not os.path.isfile(path):
        raise RuntimeError(f"'{path}' is no regular file, please input another")
    if not os.access(os.path.dirname(path) or ".", os.W_OK):
        raise RuntimeError(
            f"the directory '{os.path.dirname(path) or '.'}' is not writable, please input another"
        )
    return path


def _same_file(one: str, other: str) -> bool:
    if os.path.exists(one):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)
