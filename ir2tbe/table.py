"""The table from aten ops to the TBE operators an NPU runs for them, in order.

The vendor fixes TBE operators, not PyTorch's, so whoever reports a wrong op needs their names. The
table is data, `ir2tbe.json`: read out of three releases of the vendor's sources, with a mark of how
far each line can be trusted and where it comes from. Most lines were made by rules that choose one
path through the source, and rules are sometimes wrong: what nobody checked is called approximate.
`spellings.json` has what PyTorch makes of other ops before a device sees it, and what other devices
run in the place of an op. docs/ir2tbe.md has the marks.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from dumper.layout import unescape

CHECKED = "curated"
"""The one mark that is not approximate."""

ACLNN_ONLY = "aclnn-only"
"""The mark of an op that has an aclnn kernel (910B and later) and no TBE sequence."""

_ACLNN_SOURCE = "op-plugin@6.0.0"
"""The one release of the three that has aclnn kernels."""

_LONGEST = 200
"""Characters of a name; a longer one is none."""

_ODD = ("out", "name", "grad_input", "values", "dim_max", "dim_min")
_NAME = re.compile(r"(?:(?P<space>[A-Za-z_]\w*)::)?(?P<rest>\w+(?:\.\w+)?)")
_FRONT = re.compile(
    r"(?:torch\.ops\.)?(aten|npu)\.(?=\w)|torch_(npu)\.(?=\w)|torch\.(?=\w+$)|torch::autograd::"
)
_OVERLOAD = re.compile(r"(?P<base>\w+?)_(?:[A-Z]\w*|out)")
_NODE = re.compile(r"(?P<base>\w*Backward)\d*")


@dataclass(frozen=True)
class Step:
    """One TBE op of a sequence. alternatives: ops that a condition puts in its place.

    inputs, outputs: ports in order, `port=value` where the source names the port, `?` after what
    may be absent. None, as attributes then is, where the table has no ports.
    """

    op: str
    alternatives: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    attributes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Entry:
    """One op. steps: its sequence, empty where it needs none; None where only aclnn has it.

    name: `aten::add.Tensor`; ir: as a dump of the original names it. variants: (condition,
    sequence). releases: what other releases run, by release. by_rules: what the rules made of it,
    where it was corrected by hand. unresolved: what a backward's formula calls that is not in the
    sequence. source: None where it was set down by hand from no one place.
    """

    name: str
    ir: str
    steps: tuple[Step, ...] | None
    confidence: str
    variants: tuple[tuple[str, tuple[str, ...]], ...] = ()
    releases: Mapping[str, tuple[str, ...]] | None = None
    by_rules: tuple[str, ...] | None = None
    aclnn: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    note: str | None = None
    view: bool = False
    source: str | None = None
    file: str | None = None

    @property
    def tbe(self) -> tuple[str, ...] | None:
        """The types of its TBE ops in order."""
        return None if self.steps is None else tuple(step.op for step in self.steps)

    @property
    def approximate(self) -> bool:
        """Whether nobody checked the sequence."""
        return self.confidence not in (CHECKED, ACLNN_ONLY)

    def as_json(self) -> dict[str, Any]:
        """JSON values of all fields."""
        steps = self.steps and [
            {"op": s.op, "alternatives": s.alternatives, "inputs": s.inputs, "outputs": s.outputs}
            | {"attributes": s.attributes}
            for s in self.steps
        ]
        variants = [{"when": when, "tbe": tbe} for when, tbe in self.variants]
        known = {**vars(self), "steps": steps, "variants": variants, "releases": self.releases}
        return {**known, "tbe": self.tbe, "approximate": self.approximate}


class How(Enum):
    """How a name led to its entries."""

    EXACT = "exact"
    ANY_OVERLOAD = "any overload"  # the name had none, and the op has only ones with a name
    OTHER_OVERLOAD = "another overload"
    IN_PLACE = "not in place"  # the table has only the op that is not in place
    OTHER_DEVICE = "another device's"  # another device runs this in the place of that


@dataclass(frozen=True)
class Found:
    """Entries of a name, the likeliest first. others: of its other overloads, where it may be one
    of those too."""

    how: How
    entries: tuple[Entry, ...]
    others: tuple[Entry, ...] = ()

    @property
    def sequences(self) -> tuple[tuple[str, ...] | None, ...]:
        """The sequences that it may be, each once; those of what writes into `out` aside."""
        plain = [each for each in self.entries if not _is_odd(each)]
        return tuple(dict.fromkeys(each.tbe for each in plain or self.entries))

    @property
    def sure(self) -> bool:
        """Whether the first entry is surely that of this very op, or says the same."""
        alike = self.how is How.ANY_OVERLOAD and len(self.sequences) == 1
        return self.how is How.EXACT or alike

    @property
    def approximate(self) -> bool:
        """Whether the first entry was checked by nobody, or may be another op's."""
        return not self.sure or self.entries[0].approximate


@dataclass(frozen=True)
class Use:
    """Where an op uses a TBE op. kind: sequence, alternative, condition, release, or aclnn.

    where: the condition or the release.
    """

    entry: Entry
    kind: str
    where: str = ""


class Table:
    """All entries, by any spelling of their names."""

    def __init__(self, entries: Mapping[str, Entry], same: Mapping[str, str], composite: list[str]):
        self.entries = entries
        self._same = same
        self._by_name: dict[str, list[Entry]] = defaultdict(list)
        self._by_base: dict[str, list[Entry]] = defaultdict(list)
        self._uses: dict[str, list[Use]] = defaultdict(list)
        for entry in entries.values():
            if entry.name.startswith("recipe::"):  # of whole optimizers: no op has such a name
                continue
            plain = _plain(entry)
            for name in {plain, entry.ir.rpartition("::")[2]}:
                self._by_name[name].append(entry)
            if (base := _base(plain)) != plain:
                self._by_base[base].append(entry)
            for use in _uses(entry):
                self._uses[use[0]].append(use[1])
        self._composite = frozenset(
            spelled
            for name in composite
            for plain in [name.partition("::")[2]]
            for spelled in (plain, plain.replace(".", "_"), _base(plain))
        )

    def find(self, name: str, *, whole: bool = True) -> Found | None:
        """The entries of an op: `addmm`, `aten::add.Tensor`, `add_Tensor`, `torch.ops.aten.add`.

        Where the very op is not there, those of another overload, of the op that is not in place,
        or of the op in whose place another device runs it. whole: whether a name without overload
        is the op that has none; else it may be any overload, as in a profile.
        """
        space, plain = _spelled(name)
        found = self._find(space, plain) if plain else None
        if found is None or found.how is not How.EXACT or "." in plain:
            return found
        others = self._of(self._by_base, space, plain)
        if whole or not others:
            return Found(How.EXACT, found.entries, others)
        return Found(How.ANY_OVERLOAD, tuple(sorted((*found.entries, *others), key=_rank)))

    def _find(self, space: str, plain: str) -> Found | None:
        if exact := self._of(self._by_name, space, plain):
            return Found(How.EXACT, exact)
        if found := self._of(self._by_base, space, plain):
            return Found(How.ANY_OVERLOAD, found)
        base = plain.partition(".")[0]
        shorter = _OVERLOAD.fullmatch(base) if base == plain else None
        for cut in {base, shorter["base"] if shorter else base} - {plain}:
            found = self._of(self._by_name, space, cut) or self._of(self._by_base, space, cut)
            if found:
                return Found(How.OTHER_OVERLOAD, found)
        if base.endswith("_") and not base.endswith("__"):
            found = self._find(space, base[:-1] + plain[len(base) :])
            return found and Found(How.IN_PLACE, found.entries)
        if space in ("", "aten") and (target := self._same.get(f"aten::{base}")):
            return Found(How.OTHER_DEVICE, (self.entries[target],))
        return None

    def _of(self, names: Mapping[str, list[Entry]], space: str, name: str) -> tuple[Entry, ...]:
        found = names.get(name, ())
        inside = (each for each in found if not space or each.name.startswith(f"{space}::"))
        return tuple(sorted(inside, key=lambda each: (_plain(each) != name, *_rank(each))))

    def is_composite(self, name: str) -> bool:
        """Whether PyTorch makes this op of others before a device sees it."""
        space, plain = _spelled(name)
        return space in ("", "aten") and plain in self._composite

    def users(self, tbe: str) -> tuple[Use, ...]:
        """What uses a TBE op, or an aclnn kernel; nothing where there is none of this name."""
        return tuple(self._uses.get(tbe, ()))

    def near(self, name: str) -> list[str]:
        """At most five names like this one, of ops and of TBE ops."""
        plain = name[:_LONGEST].rpartition("::")[2].lower()
        known: dict[str, list[str]] = defaultdict(list)
        for each in dict.fromkeys((*self._by_base, *self._by_name, *self._uses)):
            known[each.lower()].append(each)
        close = difflib.get_close_matches(plain, known, 5, 0.6)
        return [each for lower in close for each in known[lower]][:5]


@cache
def table() -> Table:
    """The table of this package; always the same object."""
    folder = Path(__file__).parent
    ops = json.loads((folder / "ir2tbe.json").read_text(encoding="utf-8"))["ops"]
    spellings = json.loads((folder / "spellings.json").read_text(encoding="utf-8"))
    entries = {name: _entry(name, value) for name, value in ops.items()}
    return Table(entries, spellings["same"], spellings["composite"])


def _entry(name: str, value: dict[str, Any]) -> Entry:
    return Entry(
        name,
        value.get("ir", name.partition("::")[2]),
        None if value["tbe"] is None else tuple(_steps(value["tbe"], value.get("steps", []))),
        value["confidence"],
        tuple((each["when"], tuple(each["tbe"])) for each in value.get("variants", ())),
        {release: tuple(tbe) for release, tbe in value.get("releases", {}).items()},
        tuple(value["by_rules"]) if "by_rules" in value else None,
        tuple(value.get("aclnn", ())),
        tuple(value.get("unresolved", ())),
        value.get("note"),
        value.get("view", False),
        value.get("source", _ACLNN_SOURCE if value["tbe"] is None else None),
        value.get("file"),
    )


def _steps(tbe: list[str], ports: list[dict[str, Any]]) -> Iterator[Step]:
    """Ops with their ports, of which some sequences have only those of a few."""
    rest = list(ports)
    for op in tbe:
        if rest and rest[0]["op"] == op:
            at = rest.pop(0)
            sides = (tuple(at.get(side, ())) for side in ("inputs", "outputs", "attrs"))
            yield Step(op, tuple(at.get("alt", ())), *sides)
        else:
            yield Step(op)


def _uses(entry: Entry) -> Iterator[tuple[str, Use]]:
    for op in dict.fromkeys(entry.tbe or ()):
        yield op, Use(entry, "sequence")
    for op in dict.fromkeys(op for step in entry.steps or () for op in step.alternatives):
        yield op, Use(entry, "alternative")
    for when, tbe in entry.variants:
        for op in dict.fromkeys(tbe):
            yield op, Use(entry, "condition", when)
    for release, tbe in (entry.releases or {}).items():
        for op in dict.fromkeys(tbe):
            if op not in (entry.tbe or ()):
                yield op, Use(entry, "release", release)
    for op in dict.fromkeys(entry.aclnn):
        yield op, Use(entry, "aclnn")


def _spelled(name: str) -> tuple[str, str]:
    """(namespace, name with its overload) of any spelling; empty texts where it is none."""
    name = unescape(name) if len(name) <= _LONGEST else ""
    if front := _FRONT.match(name):
        space = front[1] or front[2]
        name = (f"{space}::" if space else "") + name[front.end() :]
    found = _NAME.fullmatch(name)
    if not found:
        return "", ""
    return found["space"] or "", found["rest"].removesuffix(".default")


def _plain(entry: Entry) -> str:
    return entry.name.partition("::")[2]


def _base(plain: str) -> str:
    """The name without overload; of an autograd node, without its number."""
    node = _NODE.fullmatch(plain)
    return node["base"] if node else plain.partition(".")[0]


def _is_odd(entry: Entry) -> bool:
    """Whether it writes into `out` or takes names of dimensions: who names an op means another."""
    overload = _plain(entry).partition(".")[2].lower()
    return any(word in overload for word in _ODD)


def _rank(entry: Entry) -> tuple:
    """Which overload is meant where none is said: the plain one, then the one of tensors."""
    overload = _plain(entry).partition(".")[2]
    missing = entry.steps is None
    return _is_odd(entry), missing, bool(overload), overload not in ("Tensor", "dim"), entry.name
