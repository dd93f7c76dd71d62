"""Which ops are recorded, and how much of each: what the user chose, asked once per op call.

Sequence ids count every op, chosen or not, so that a second, fuller dump of the same step bears the
same ids as the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .layout import PHASES, SIDES, unescape

LEVELS = ("op", "call", "module")
VIEWS = ("skip", "dump")


@dataclass
class Choice:
    """The filters of one dump; empty ones let everything pass.

    ops: patterns of IR names; a name without its overload will do. modules: patterns of module
    paths; a plain path covers what is below it. phases: of layout.PHASES. steps: numbers. sides:
    `input`, `output`. level: at which boundary tensors are kept. views: whether what an op only
    views is stored again. max_bytes: of tensor data in one file.

    Raises RuntimeError for words that are none of these.
    """

    ops: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    steps: frozenset[int] | None = None
    ranks: frozenset[int] | None = None
    sides: tuple[str, ...] = SIDES
    level: str = "op"
    views: str = "skip"
    max_bytes: int | None = None
    _known: dict[tuple[str, str, str | None], bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, given, allowed in (
            ("level", (self.level,), LEVELS),
            ("views", (self.views,), VIEWS),
            ("phases", self.phases, PHASES),
            ("sides", self.sides, SIDES),
        ):
            for word in given:
                if word not in allowed:
                    raise RuntimeError(f"{name}: {word!r} is none of {', '.join(allowed)}")
        if not self.sides:
            raise RuntimeError(f"sides: none is given of {', '.join(SIDES)}")
        if self.max_bytes is not None and not _is_size(self.max_bytes):
            raise RuntimeError(f"max_bytes: {self.max_bytes!r} is no number of bytes")

    def facts(self) -> dict[str, object]:
        """What was chosen, as JSON values; what was left open is not in it."""
        found = {"level": self.level, "views": self.views, "sides": list(self.sides)}
        for name in ("ops", "modules", "phases", "steps", "ranks"):
            if given := getattr(self, name):
                found[name] = sorted(given)
        if self.max_bytes is not None:
            found["max_bytes"] = self.max_bytes
        return found

    def takes(self, ir: str, phase: str, module: str | None) -> bool:
        """Whether a record of this IR, phase and module is kept."""
        key = (ir, phase, module)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._decide(ir, phase, module)
        return known

    def takes_step(self, step: int) -> bool:
        """Whether anything of this step is kept."""
        return self.steps is None or step in self.steps

    def takes_rank(self, rank: int) -> bool:
        """Whether this rank records at all."""
        return self.ranks is None or rank in self.ranks

    def _decide(self, ir: str, phase: str, module: str | None) -> bool:
        if self.phases and phase not in self.phases:
            return False
        if self.ops and not any(_is_op(ir, pattern) for pattern in self.ops):
            return False
        return not self.modules or (
            module is not None and any(_is_below(module, pattern) for pattern in self.modules)
        )


def _is_op(ir: str, pattern: str) -> bool:
    name = unescape(ir)
    # `add` means add_Tensor and add_Scalar, but neither add_ nor addmm
    return fnmatchcase(name, pattern) or (
        name.startswith(f"{pattern}_") and name[len(pattern) + 1 :][:1].isupper()
    )


def _is_below(module: str, pattern: str) -> bool:
    return fnmatchcase(module, pattern) or fnmatchcase(module, f"{pattern}.*")


def _is_size(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def words(name: str, given: str | Iterable[str] | None) -> tuple[str, ...]:
    """A comma-separated text, or several texts, as a tuple. Raises RuntimeError for others."""
    if given is None:
        return ()
    try:
        parts = list(given.split(",") if isinstance(given, str) else given)
    except TypeError:
        parts = [None]
    if not all(isinstance(part, str) for part in parts):
        raise RuntimeError(f"{name}: {given!r} is no text and no list of texts")
    return tuple(part.strip() for part in parts if part.strip())


_MOST = 10_000_000  # steps or ranks in one range


def size(name: str, given: int) -> int:
    """A number of bytes. Raises RuntimeError for others."""
    if not _is_size(given):
        raise RuntimeError(f"{name}: {given!r} is no number of bytes")
    return given


def numbers(name: str, given: int | str | Iterable[int] | None) -> frozenset[int] | None:
    """`3`, `"0,4-7"`, `range(4, 8)` as a set; None for all. Raises RuntimeError for others."""
    if given is None:
        return None
    try:
        if isinstance(given, int):
            found = {given}
        elif not isinstance(given, str):
            found = {int(number) for number in given}
        else:
            found = set()
            for part in words(name, given):
                first, dash, last = part.partition("-")
                span = range(int(first), int(last if dash else first) + 1)
                if not 0 < len(span) <= _MOST:
                    raise ValueError
                found.update(span)
        if isinstance(given, bool) or any(number < 0 for number in found):
            raise ValueError
        return frozenset(found)
    except (TypeError, ValueError):
        raise RuntimeError(
            f"{name}: {given!r} is no number, no list of numbers and no text like '0,4-7'"
        ) from None
