"""Algorithms of the user's own, from files as the original documents them.

`DIR/algorithm/alg_<Name>.py` defines `compare(my, golden, args)`, which returns a value and a
reason as text. `args` bears as attributes what `-a "Name:key=value"` gave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Custom:
    """One algorithm. compare: takes two flat arrays, mine and golden, and returns (value,
    reason)."""

    name: str
    compare: Callable[[np.ndarray, np.ndarray], tuple[str, str]]
