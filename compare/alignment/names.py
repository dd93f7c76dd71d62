"""How ops are spelled, and what stands for what: the table `op_map.json`, and what users add to it.

Devices, versions and the original fork name one op in several ways (`cudnn_batch_norm`,
`native_batch_norm`), write it in place or into `out`, and make one op of several (`addmm` of `mm`
and `add`). All of that is data, so that a new device needs no new code. docs/alignment.md has the
schema.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dumper.errors import DumpError, first_line

_DEFAULT = Path(__file__).with_name("op_map.json")
_LARGEST = 4 << 20
"""Bytes: a table of names that is larger is none."""

_TODO = "docs/alignment.md has the schema of this file"
_NODE = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9]*?)Backward[0-9]*")
_HUMP = re.compile(r"(?<=[a-z0-9D])(?=[A-Z][a-z])")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ITEM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*[?*]?")


class Item(NamedTuple):
    """An op of an expansion. least: how often it must be there; more: whether it may come again."""

    name: str
    least: int
    more: bool


Expansion = tuple[Item, ...]

_KEYS = ("names", "prefixes", "overloads", "carriers", "blanks", "groups", "optimizers")


class OpMap:
    """One table.

    names: other spellings to canonical names. prefixes: of devices, which say nothing. overloads:
    endings that say nothing. carriers: ops that only bring a value elsewhere, so that one more of
    them is no other way to compute. blanks: ops that make memory without values. groups: canonical
    name of a fused op to the ways to write it out. optimizers: fused optimizer steps, which stand
    for all ops of the parameters they take.
    """

    def __init__(
        self,
        names: Mapping[str, str],
        prefixes: Iterable[str],
        overloads: Iterable[str],
        carriers: Iterable[str],
        blanks: Iterable[str],
        groups: Mapping[str, Iterable[Iterable[str]]],
        optimizers: Iterable[str],
    ) -> None:
        self.names = dict(names)
        self.prefixes = tuple(prefixes)
        self.overloads = tuple(overloads)
        self._overload = re.compile(
            f"_(?:{'|'.join(sorted(self.overloads, key=len, reverse=True))})"
        )
        self._canonical: dict[str, str] = {}
        self.carriers = frozenset(map(self.canonical, carriers))
        self.blanks = frozenset(map(self.canonical, blanks))
        self.optimizers = frozenset(map(self.canonical, optimizers))
        self.groups: dict[str, tuple[Expansion, ...]] = {
            self.canonical(name): tuple(
                tuple(self._item(item) for item in expansion) for expansion in expansions
            )
            for name, expansions in groups.items()
        }

    @classmethod
    def default(cls) -> OpMap:
        """The table of this package; always the same object."""
        return _default()

    @classmethod
    def load(cls, path: str | os.PathLike) -> OpMap:
        """The default table, extended by a file. Raises DumpError where that is not as documented.

        Names and groups of the file come before those of the default.
        """
        base, own = _read(_DEFAULT), _read(Path(path))
        merged: dict[str, Any] = {}
        for key in _KEYS:
            value, given = base[key], own.get(key)
            if isinstance(value, dict):
                merged[key] = {**value, **(given or {})}
            else:
                merged[key] = [*(given or ()), *value]
        for name, expansions in (own.get("groups") or {}).items():
            merged["groups"][name] = [*expansions, *base["groups"].get(name, ())]
        return cls(**merged)

    def canonical(self, ir: str) -> str:
        """The name by which an op is known whatever its device, overload, and place of result."""
        found = self._canonical.get(ir)
        if found is None:
            found = self._canonical[ir] = self._name_of(ir)
        return found

    def node(self, name: str) -> str:
        """The op whose backward an autograd node is: `addmm` for `AddmmBackward0`; else ''."""
        found = _NODE.fullmatch(name.rpartition("::")[2])
        return self.canonical(_HUMP.sub("_", found["name"]).lower()) if found else ""

    def _name_of(self, ir: str) -> str:
        name, known = ir, self.names.get(ir)
        if known is None:
            for prefix in self.prefixes:
                if name.startswith(prefix) and len(name) > len(prefix):
                    name = name[len(prefix) :]
                    known = self.names.get(name)
                    break
        for _ in range(3):  # an overload, the mark of an op in place, and what lies below it
            if known is not None:
                return known
            overload = self._overload.search(name, 1)
            while overload is not None and overload.end() != len(name):
                overload = self._overload.search(name, overload.start() + 1)
            if overload is not None:
                name = name[: overload.start()]
            elif name.endswith("_") and not name.startswith("__"):
                name = name[:-1]
            else:
                break
            known = self.names.get(name)
        return known or name

    def _item(self, text: str) -> Item:
        mark = text[-1] if text[-1] in "?*" else ""
        name = self.canonical(text.removesuffix(mark) if mark else text)
        return Item(name, 0 if mark else 1, mark == "*")


@cache
def _default() -> OpMap:
    return OpMap(**_read(_DEFAULT))


def _read(path: Path) -> dict[str, Any]:
    """The table in a file, validated."""
    try:
        if path.stat().st_size > _LARGEST:
            raise DumpError(f"a table of ops has at most {_LARGEST >> 20} MiB", path, _TODO)
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise DumpError("this table of ops is no UTF-8 text", path, _TODO) from None
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        what = f"this table of ops cannot be read ({first_line(error)})"
        raise DumpError(what, path, "give a JSON file that exists") from None
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"this table of ops is no JSON ({first_line(error)})"
        raise DumpError(what, path, _TODO) from None
    if not isinstance(table, dict):
        raise DumpError("a table of ops is a JSON object", path, _TODO)
    for key, value in table.items():
        problem = _problem(key, value)
        if problem:
            raise DumpError(f"{key}: {problem}", path, _TODO)
    return table


def _problem(key: str, value: Any) -> str:
    """What is wrong with one key of a table; '' where nothing is."""
    if key not in _KEYS:
        return f"no such key; there are {', '.join(_KEYS)}"
    if key == "names":
        if not isinstance(value, dict) or not all(map(_is_name, (*value, *value.values()))):
            return "wants an object of op names to op names"
        return ""
    if key != "groups":
        return "" if _all(value, _is_name) else "wants a list of names"
    if not isinstance(value, dict) or not all(map(_is_name, value)):
        return "wants an object whose keys are op names"
    for name, expansions in value.items():
        if not (isinstance(expansions, list) and expansions):
            return f"{name} wants a list of expansions"
        for expansion in expansions:
            if not (_all(expansion, _is_item) and any(item[-1] not in "?*" for item in expansion)):
                return (
                    f"an expansion of {name} wants a list of op names, each with ? or * after it "
                    "where it need not be there, and at least one that must"
                )
    return ""


def _all(value: Any, right: Any) -> bool:
    return isinstance(value, list) and all(map(right, value))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_item(value: Any) -> bool:
    return isinstance(value, str) and _ITEM.fullmatch(value) is not None
