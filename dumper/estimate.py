"""How large a dump would be, before one is written: the first pass over a model that is too large.

The step runs under the same capture; a stand-in for the writer counts bytes by module and IR
instead of writing them, so that what is counted is what would be stored (links cost nothing).
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from .layout import unescape

_LINES = 10
_RECORD = 2000  # bytes of structure a record costs, about


class Estimate:
    """Counts what a dump would take, and says how it could take less."""

    def __init__(self) -> None:
        self.records = 0
        self.by_module: Counter[str] = Counter()
        self.by_ir: Counter[str] = Counter()

    @property
    def bytes(self) -> int:
        """Of tensor data, all together."""
        return self.by_ir.total()

    def writer(self, path: str, environment: dict[str, Any]) -> _Counting:
        """What stands for the writer."""
        return _Counting(self)

    def show(self) -> None:
        """Print the sizes, the largest first, and the filters that would keep less."""
        total = self.bytes + self.records * _RECORD
        lines = [f"a dump of this would take about {_size(total)} in {self.records} records"]
        for title, counted in (("module", _grouped(self.by_module)), ("op", self.by_ir)):
            lines.append(f"by {title}:")
            largest = counted.most_common(_LINES)
            for name, size in largest:
                lines.append(f"  {_size(size):>8}  {name or '(the model itself)'}")
            if rest := len(counted) - len(largest):
                size = counted.total() - sum(size for _, size in largest)
                lines.append(f"  {_size(size):>8}  {rest} more")
        lines += ["to take less:", *(f"  {line}" for line in self._advice())]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    def _advice(self) -> list[str]:
        inside = Counter({n: s for n, s in _grouped(self.by_module).items() if n and n[0] != "("})
        lines = []
        if inside:
            ((name, size),) = inside.most_common(1)
            lines.append(f'modules="{name}"  keeps {_size(size)}')
        if self.by_ir:
            ((name, size),) = self.by_ir.most_common(1)
            lines.append(f'ops="{name}"  keeps {_size(size)}')
        lines.append('level="module"  keeps only what enters and leaves each module')
        lines.append(f"max_bytes={max(self.bytes // 10, 1)}  keeps the first tenth, whole records")
        return lines


def _grouped(by_module: Counter[str]) -> Counter[str]:
    """Sizes by the first two parts of the module paths (`layers.3`): one row a block of a model."""
    found: Counter[str] = Counter()
    for name, size in by_module.items():
        found[".".join(name.split(".")[:2])] += size
    return found


def _size(count: int) -> str:
    """Bytes for people: 1.5 GB."""
    size, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.3g} {units[0]}"


class _Counting:
    """Has the writer's surface and writes nothing."""

    failed = False
    wants_values = False

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate
        self.bytes = 0
        self.place: str | None = None

    def described(self, path: str, nbytes: int, module: str | None) -> None:
        """A tensor of so many bytes would be stored for a module."""
        self.bytes += nbytes
        self._estimate.by_ir[unescape(path.split("/")[1])] += nbytes
        self._estimate.by_module["(outside of modules)" if module is None else module] += nbytes

    def record_done(self) -> None:
        self._estimate.records += 1

    def argument(self, *_: Any) -> None: ...

    def group(self, path: str) -> None: ...

    def same(self, path: str, earlier: str) -> None: ...

    def line(self, name: str, line: str) -> None: ...

    def environment(self, environment: dict[str, Any]) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...
