"""Benchmarks that `scripts/bench NAME` runs: a module each, with `cases(folder, quick)`.

A case measures ours and a named baseline, each by a function that returns a time, less is better.
The runner calls them in turn, so that a machine that gets slower meanwhile wrongs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """What is measured against what. size: what one run works on, in words. unit: of the times.
    limit: the baseline is what ours is held to; otherwise it only tells where ours stands."""

    name: str
    size: str
    baseline: str
    ours: Callable[[], float]
    theirs: Callable[[], float]
    unit: str = "s"
    limit: bool = True


class Missing(Exception):
    """The baseline is not on this machine; the message says how to get it."""
