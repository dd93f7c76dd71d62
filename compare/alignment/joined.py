"""Sets that grow together, as parts of a graph do (union-find)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any


class Joined:
    """Sets of anything hashable."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def join(self, a: Any, b: Any) -> None:
        """a and b belong together; a may be b."""
        self._above[self.top(a)] = self.top(b)

    def top(self, a: Any) -> Any:
        """What stands for all that belong together with a."""
        above = self._above.setdefault(a, a)
        while above != a:
            self._above[a] = self._above[above]
            a, above = above, self._above[above]
        return a

    def groups(self) -> list[list[Any]]:
        """All sets."""
        found = defaultdict(list)
        for a in list(self._above):
            found[self.top(a)].append(a)
        return list(found.values())
