"""Names of CANN dump files, as text to fields and back.

`{op_type}.{op_name}.{task_id}[.{stream_id}].{timestamp}`, and with FFTS+ four more numbers. A name
must match to its end: what a conversion made of a file (`....input.0.npy`) begins alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([0-9]{1,255}(?:\.[0-9]{1,255}){1,6})")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_TIMESTAMP_DIGITS = 16
_AFTER_TIMESTAMP = {
    0: (),
    1: ("device_id",),
    3: ("task_type", "context_id", "thread_id"),
    4: ("task_type", "context_id", "thread_id", "device_id"),
}
"""What the numbers after the timestamp are, by how many there are."""


@dataclass(frozen=True, slots=True)
class DumpName:
    """What the name of a dump file says. timestamp: microseconds since 1970 where it has 16 digits.
    None is what a name leaves out."""

    op_type: str
    op_name: str
    task_id: int
    stream_id: int | None
    timestamp: int
    task_type: int | None = None
    context_id: int | None = None
    thread_id: int | None = None
    device_id: int | None = None

    @property
    def is_opdebug(self) -> bool:
        """Whether the file reports overflows; guides of different years spell it differently."""
        return (self.op_type.lower(), self.op_name.lower()) == ("opdebug", "node_opdebug")

    def __str__(self) -> str:
        numbers = [self.task_id, self.stream_id, f"{self.timestamp:0{_TIMESTAMP_DIGITS}}"]
        numbers += [self.task_type, self.context_id, self.thread_id, self.device_id]
        parts = [self.op_type, self.op_name, *(number for number in numbers if number is not None)]
        return ".".join(map(str, parts))


def parse(name: str) -> DumpName | None:
    """The fields of a file's name; None where that is no dump's.

    Where the numbers could be read in two ways, the timestamp is the one of 16 digits, else a
    stream id is taken to be there.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    numbers = match[3].split(".")
    places = [at for at in (2, 1) if len(numbers) - at - 1 in _AFTER_TIMESTAMP]
    if not places:
        return None
    at = next((at for at in places if len(numbers[at]) == _TIMESTAMP_DIGITS), places[0])
    rest = numbers[at + 1 :]
    return DumpName(
        match[1],
        match[2],
        int(numbers[0]),
        int(numbers[1]) if at == 2 else None,
        int(numbers[at]),
        **dict(zip(_AFTER_TIMESTAMP[len(rest)], map(int, rest), strict=True)),
    )


def name_part(text: str) -> str:
    """A type or name of an op as it stands in a file's name: `.`, `/`, `\\`, blanks and whatever
    else has no place there become `_`."""
    return _OTHER.sub("_", text)
