"""`torch.utils.dumper`: the original's context manager, its arguments, paths and habits.

    with torch.utils.dumper(use_dump=True, dump_path="./model_npu.h5"):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()

The rules for arguments are the original's; `use_dump=True` with a load_file_path means load and
dump, as its guide writes it. A second context on a path that this process has finished keeps the
file and records nothing, since training scripts loop and the first step is the one wanted. A loop
that is wanted whole says `dump.step()` at the end of each step.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

import torch
from torch import nn

from .acl_dump import AclDump
from .capture import capturing, on_top
from .choice import Choice, numbers, size, words
from .environment import describe_run, faults_listed, rank, world_size
from .errors import warn
from .estimate import Estimate
from .finals import Finals
from .layout import SIDES
from .load import Loader
from .names import Names
from .overflow.events import Overflow
from .overflow.findings import Findings
from .overflow.ranges import Range
from .overflow.register import register
from .overflow.report import nothing_checked, report
from .overflow.scales import LossScale
from .overflow.watch import Watch
from .paths import check, for_step, has_step, resolve, same_file, text
from .reader import Dump, open_dump
from .scopes import Tracker
from .session import Session
from .writer import Writer

MEMORY = 1 << 30

T = TypeVar("T")

_active: dumper | None = None
_finished: set[str] = set()
_said: set[str] = set()  # of those, whose second context was told that it records nothing


class dumper:  # noqa: N801 - the original's name
    """Record every operator of one step, or run the step on recorded inputs.

    enabled: False makes everything a no-op. use_dump: record inputs and outputs. use_load: run each
    op on the inputs that load_file_path recorded for it and record its outputs under the same
    sequence id. dump_path: the file; None or '' a time-stamped one here; a directory one inside it;
    `{rank}` and `{step}` in it are filled in. check_overflow: look for overflow in every op, alone
    (the file then holds the ops that overflowed; without any there is none) or while dumping.
    load_with_acl_dump: run the ops that are fed under ACL dump too, as acl.json in the working
    directory says.

    What is recorded: ops (patterns of IR names), modules (patterns of module paths), phases,
    steps, ranks, sides (`input`, `output`), level (`op`, `call`, `module`: the boundary whose
    tensors are kept), views (`skip`, `dump`), max_bytes (of tensor data a file). estimate: run the
    step, write nothing, print what a dump would take. model: names modules before they are called;
    a module, or several by name. memory: bytes of a value that are copied at once.

    Attributes after entering: `path` (the dump file, created by the first op), after leaving a load
    run `matched` (ops that were fed) and `unmatched` (IR names of ops that had no counterpart, in
    order). Of an overflow check: `overflows` (overflow.events.Overflow, in order), `ranges`
    (overflow.ranges.Range of each result of the last step), `loss_scale`, `report()`.

    Raises RuntimeError for contradicting arguments and paths, DumpError for an unreadable load
    file or acl.json. Inside the context only what the step itself raises.
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
        *,
        ops: str | Iterable[str] | None = None,
        modules: str | Iterable[str] | None = None,
        phases: str | Iterable[str] | None = None,
        steps: int | str | Iterable[int] | None = None,
        ranks: int | str | Iterable[int] | None = None,
        sides: str | Iterable[str] = SIDES,
        level: str = "op",
        views: str = "skip",
        max_bytes: int | None = None,
        estimate: bool = False,
        model: nn.Module | Mapping[str, nn.Module] | None = None,
        memory: int = MEMORY,
    ) -> None:
        flags = (use_dump, use_load, check_overflow, load_with_acl_dump, estimate)
        if not all(isinstance(flag, bool) for flag in flags):
            raise RuntimeError(
                "use_dump/use_load/check_overflow/load_with_acl_dump/estimate "
                "should be set to True or False!"
            )
        self.enabled = enabled
        self.use_dump = use_dump
        self.use_load = use_load
        self.check_overflow = check_overflow
        self.dump_path = text(dump_path)
        self.load_file_path = text(load_file_path)
        self.load_with_acl_dump = load_with_acl_dump
        self.path: str | None = None
        self.gives_way = False  # to a context that the script enters itself
        self.matched = 0
        self.unmatched: list[str] = []
        self._choice = Choice(
            ops=words("ops", ops),
            modules=words("modules", modules),
            phases=words("phases", phases),
            steps=numbers("steps", steps),
            ranks=numbers("ranks", ranks),
            sides=words("sides", sides),
            level=level,
            views=views,
            max_bytes=max_bytes,
        )
        self._estimate = Estimate() if estimate else None
        self._models = _models(model)
        self._memory = size("memory", memory)
        self._step = 0
        self._watch: Watch | None = None
        self._findings: Findings | None = None
        self._tracker: Tracker | None = None
        self._session: Session | None = None
        self._source: Dump | None = None
        self._recording = ExitStack()  # while a wanted step runs
        self._lifetime = ExitStack()

    def __enter__(self) -> dumper:
        global _active
        if not self.enabled:
            return self
        if _active is not None and _active._process == os.getpid():  # a forked child has its own
            if not _active.gives_way:
                raise RuntimeError("utils dumper are not reentrant")
            warn(
                "the script has a dump of its own; the one that TORCH_DUMPER asked for ends here",
                _active.path,
                "unset TORCH_DUMPER, or leave the script's own context out",
            )
            _active.stop()
        self._check_modes()
        wanted = self.use_dump or self.use_load or self.check_overflow
        if not wanted or not self._choice.takes_rank(rank()):
            return self
        loading = self.use_load or self.load_file_path is not None
        if loading and not (self.load_file_path and os.path.isfile(self.load_file_path)):
            raise RuntimeError(
                f"please input a file path: load_file_path is {self.load_file_path!r}"
            )
        self._template = resolve(self.dump_path, rank(), world_size())
        self.path = for_step(self._template, self._step)
        if loading and same_file(self.path, self.load_file_path):
            raise RuntimeError("dump_path and load_file_path can not be same!")
        kept = os.path.realpath(self.path) in _finished and os.path.exists(self.path)
        if kept:
            self._say_kept()
            if self.use_dump or not self.check_overflow:
                return self
        if self._estimate is None and not kept:
            check(self.path)
        self._loader = None
        self._acl = AclDump() if self.load_with_acl_dump else None
        if loading:
            self._source = open_dump(self.load_file_path)
            self._loader = Loader(self._source)
        self._environment = describe_run(self._mode(loading))
        self._environment["choice"] = self._choice.facts()
        self._process = os.getpid()
        self._names = Names(self._models)
        self._session = Session(
            os.path.abspath(self.path),
            self._environment,
            self._choice,
            self._names,
            self._loader,
            self._estimate.writer if self._estimate else self._writer,
        )
        self._session.acl = self._acl
        if self.check_overflow:
            self._begin_check(kept)
        self._finals = Finals(self._session, self._names)
        # An interpreter that ends inside the context finishes the file too.
        atexit.register(self._finish)
        self._lifetime.callback(atexit.unregister, self._finish)
        try:
            self._lifetime.enter_context(self._finals.watching())
            self._follow_step()
        except BaseException:
            self._recording.close()
            self._lifetime.close()
            raise
        _active = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lifetime, self._recording:
            self.stop()

    def stop(self) -> None:
        """End the dump before the context does; what follows is not recorded."""
        global _active
        if self._session is None:
            return
        _active = None
        try:
            self._end_step()
        finally:
            try:
                self._suspend()
            finally:
                self._finish()
        if self._source is not None:
            self._source.close()
            self._report_load()

    def step(self) -> None:
        """End a training step: store gradients and parameters, and count on.

        Where the next step is none of `steps`, nothing of torch is changed until one is again.
        """
        if self._session is None:
            return
        self._end_step()
        self._step += 1
        if has_step(self._template):
            self._close_file()
            self.path = for_step(self._template, self._step)
            self._session.begin(os.path.abspath(self.path))
        self._session.step = self._step
        self._session.new_step()
        for tracker in list(self._session.trackers):
            tracker.new_step()
        self._follow_step()

    @property
    def done(self) -> bool:
        """Whether no later step is wanted."""
        steps = self._choice.steps
        return self._session is None or (steps is not None and self._step >= max(steps, default=-1))

    def _check_modes(self) -> None:
        loads = self.use_load or self.load_file_path is not None
        if (self.use_dump and self.use_load) or (self.check_overflow and loads):
            raise RuntimeError(
                "load mode, and dump mode or check overflow mode, can not run together!"
            )
        if self.check_overflow and self._estimate is not None:
            raise RuntimeError("check overflow mode and estimate can not run together!")
        if not self.load_with_acl_dump:
            return
        if not (self.use_load or (self.use_dump and loads)):
            raise RuntimeError(
                "load_with_acl_dump dumps the ops of load mode: set use_load=True and a "
                "load_file_path, or leave it out"
            )
        if self._estimate is not None:
            raise RuntimeError("load_with_acl_dump and estimate can not run together!")

    def _mode(self, loading: bool) -> str:
        if loading:
            return "load"
        return "dump" if self.use_dump or self._estimate is not None else "overflow"

    def _begin_check(self, kept: bool) -> None:
        """kept: there is a file that must not be touched: what is found is only said."""
        session, ranks = self._session, world_size()
        findings = self._findings = Findings(session, rank(), ranks)
        found = register()
        self._watch = Watch(self._names, findings, found, rank())
        session.check(self._watch, findings, self.use_dump, kept)
        if found is not None and ranks > 1:
            findings.limited("distributed")

    @property
    def overflows(self) -> list[Overflow]:
        """What the overflow check found, in order."""
        return [] if self._findings is None else list(self._findings.events)

    @property
    def ranges(self) -> list[Range]:
        """How far the results of each op of the last step reach, and the gradients."""
        return [] if self._watch is None else _unseen(self._watch.ranges)

    @property
    def loss_scale(self) -> LossScale | None:
        """With which loss scales the gradients of the last step survive float16."""
        return None if self._watch is None else _unseen(self._watch.loss_scale)

    def report(self, lang: str = "en") -> str:
        """All of that for people to read. lang: en or zh; ValueError for others."""
        if self._watch is None or not self._watch.looked:
            return nothing_checked(lang)
        return report(self.overflows, self.ranges, self.loss_scale, lang=lang)

    def _writer(self, path: str, environment: dict) -> Writer:
        return Writer(path, environment, self._memory)

    def _follow_step(self) -> None:
        """Record the present step, or leave torch alone while it runs."""
        if self._choice.takes_step(self._step):
            self._resume()
        else:
            self._suspend()

    def _resume(self) -> None:
        """Record from here on."""
        session, stack = self._session, self._recording
        if session.paused:
            session.forget_all()
            session.paused = False
        if self._tracker is not None:
            return
        session.interrupt.install()
        stack.callback(session.interrupt.remove)
        stack.enter_context(faults_listed(self._environment))
        self._tracker = stack.enter_context(capturing(session))

    def _suspend(self) -> None:
        """Leave torch as it was found, unless modes of the user's lie over ours."""
        self._session.paused = True
        if self._tracker is not None and on_top(self._tracker):
            self._tracker = None
            self._recording.close()

    def _end_step(self) -> None:
        if not self._session.paused and self._session.ours:
            self._finals.end_step()

    def _finish(self) -> None:
        if self._session is not None:
            self._close_file()
            self._session = self._names = self._models = None  # which hold the user's modules

    def _close_file(self) -> None:
        session = self._session
        session.finish()
        if self._estimate is not None:
            self._estimate.show()
        elif session.made_file:
            _finished.add(os.path.realpath(self.path))
        elif self.check_overflow and not session.stopped_silently and os.path.exists(self.path):
            warn(
                "no overflow, so no file was written; the one that is there is of an earlier run",
                self.path,
                "remove it, or it will be taken for this run's",
            )

    def _say_kept(self) -> None:
        real = os.path.realpath(self.path)
        if real not in _said:
            _said.add(real)
            warn(
                "this file was finished earlier in this process and is kept; this and later "
                "contexts on it record nothing (an overflow check goes on, without a file)",
                self.path,
                "name another dump_path to record again",
            )

    def _report_load(self) -> None:
        self.matched, self.unmatched = self._loader.matched, self._loader.unmatched
        self._loader.report(self.path, self.load_file_path)
        if self._acl is not None:
            self._acl.report()


def _unseen(read: Callable[[], T]) -> T:
    """Read something while the modes may be on: it is no work of the program's."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
        return read()


def _models(given: object) -> dict[str, nn.Module]:
    """Modules by the names they are to have. Raises RuntimeError for what is none."""
    found = given if isinstance(given, Mapping) else {} if given is None else {"": given}
    if not all(isinstance(m, nn.Module) and isinstance(name, str) for name, m in found.items()):
        raise RuntimeError(f"model: {type(given).__name__} is no module and no dict of modules")
    return dict(found)
