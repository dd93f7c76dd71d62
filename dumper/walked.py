"""The records of an open dump as bytes, for another process that opens the same file.

Walking through a file is Python, of which one thread runs at a time, so that of two dumps another
process walks through one. What it found comes as marshal's plain values, a fifth of what the walk
takes; what many datasets say alike comes once. Both ends are one program at one time: nothing here
is of another version, and nobody else's bytes are read.
"""

from __future__ import annotations

import io
import marshal
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .claims import NOTHING, Claims
from .index import UNKNOWN, Entry, Stub
from .stored import Argument, Source, Tensor, as_claimed
from .walk import Record

Listed = Sequence[tuple[str, str]]
"""(path, reason)."""

State = tuple[int, ...]
"""By what a file is the same, and as it was."""


def packed(state: State, records: Iterable[Record], skipped: Listed, omitted: Listed) -> bytes:
    """What `unpacked` has again. state: of the file, while it was walked through."""
    claims: dict[int, tuple[int, Claims]] = {}

    def datasets(values: Iterable[Tensor | Argument]) -> list[tuple]:
        found = []
        for value in values:
            number, _ = claims.setdefault(id(value.claims), (len(claims), value.claims))
            found.append((value.side, value.name, number, value.address, value.at))
        return found

    plain = [
        (
            record.ir, record.seqid, record.path, datasets(record.inputs),
            datasets(record.outputs), datasets(record.arguments.values()), record.has_inputs,
            None if record.entry is UNKNOWN else _plain(record.entry),
            datasets(record.results.values()),
        )
        for record in records
    ]  # fmt: skip
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump([each for _, each in claims.values()])
    return marshal.dumps((state, file.getvalue(), plain, list(skipped), list(omitted)))


def unpacked(
    data: bytes, source: Source, state: State
) -> tuple[list[Record], list[tuple[str, str]], list[tuple[str, str]]] | None:
    """Records, skipped and omitted; None where the file is another one, or has changed.

    source: the file that datasets are read from here. state: of that.
    """
    then, pickled, plain, skipped, omitted = marshal.loads(data)
    if then != state:
        return None
    claims = _Unpickler(io.BytesIO(pickled)).load()

    def datasets(path: str, values: list[tuple]) -> list[Any]:
        return [
            as_claimed(claims[number], path, side, name, address, at, source)
            for side, name, number, address, at in values
        ]

    def named(path: str, values: list[tuple]) -> Mapping[str, Argument]:
        return {each.name: each for each in datasets(path, values)} if values else NOTHING

    records = [
        Record(
            ir, seqid, path, tuple(datasets(path, inputs)), tuple(datasets(path, outputs)),
            named(path, arguments), has_inputs, UNKNOWN if entry is None else _entry(entry),
            named(path, results),
        )
        for ir, seqid, path, inputs, outputs, arguments, has_inputs, entry, results in plain
    ]  # fmt: skip
    return records, skipped, omitted


def _plain(entry: Entry) -> tuple:
    return (
        entry.phase, entry.api, entry.module, entry.source, entry.node, entry.step, entry.thread,
        entry.names, entry.values, {key: tuple(stub) for key, stub in entry.stubs.items()},
    )  # fmt: skip


def _entry(plain: tuple) -> Entry:
    *others, stubs = plain
    return Entry(*others, {key: Stub(*stub) for key, stub in stubs.items()})


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: object) -> str | None:
        return "nothing" if value is NOTHING else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, _: str) -> Mapping:
        return NOTHING
