"""What the bits of an overflow status mean, as far as it is documented.

The AI Core's bits are those of CANN's guide; the cores of the new layout are taken to count alike
in their first word. An atomic add has a status that is only 0 or not. What else is set is said to
be unknown, and never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from .opdebug import Entry

CORE_BITS = {
    0x8: "NEG of the most negative signed integer overflows",
    0x10: "integer add/sub/mul/mul-add overflow",
    0x20: "floating-point compute overflow",
    0x80: "float -> unsigned conversion of a negative value",
    0x100: "fp32 -> fp16 or int32 -> fp16 conversion overflow",
    0x400: "CUBE accumulation overflow",
}
"""Meaning by bit."""

ATOMIC = "atomic add overflow"
UNKNOWN = "meaning not documented"

_CORES = ("AI Core", "AIC", "AIV")


@dataclass(frozen=True, slots=True)
class Meaning:
    """One thing that a status says. mask: the bits that say it. word: which word they are in."""

    mask: int
    text: str
    word: int = 0


def meanings(entry: Entry) -> list[Meaning]:
    """What a unit's status says, bit by bit; empty where it is 0. What no table knows comes last,
    together for each word."""
    found: list[Meaning] = []
    for word, status in enumerate(entry.status):
        if not status:
            continue
        if entry.unit.endswith("Atomic Add"):
            found.append(Meaning(status, ATOMIC, word))
            continue
        known = CORE_BITS if entry.unit in _CORES and word == 0 else {}
        found += [Meaning(bit, text, word) for bit, text in known.items() if status & bit]
        if rest := status & ~sum(known):
            found.append(Meaning(rest, UNKNOWN, word))
    return found
