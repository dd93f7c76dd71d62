"""The columns of a result: which there are, in which order, and what stands in them.

The original's 17 come first and keep its names, its order and its `NaN` for what there is not; the
algorithms among them are those that were asked for. Numbers keep their digits. Names come from
files that nobody vouches for: a cell that a spreadsheet would run as a formula gets an apostrophe,
control characters become escapes.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from dumper.errors import DumpError, printable

from .metrics import Metrics
from .row import Row

ABSENT = "NaN"
"""Not there or not computed, as the original writes it; a computed not-a-number is `nan`."""

_FORMULA = tuple("=+-@%\t\r＝＋－＠％")
_SUSPECT = frozenset(" =+-@%")
"""First characters of a printable ASCII text that may be a formula."""

OVERFLOW = 65504.0
"""The greatest float16, where the original's overflow begins."""

_EXACT = ("float64", "complex128")
"""Dtypes whose numbers need more than nine digits."""


class Algorithm(NamedTuple):
    """One of the original's ten. number: as -alg spells it. cell: its text."""

    number: int
    name: str
    cell: Callable[[Metrics], str]


class Place(NamedTuple):
    """Where in the user's program an op stands, as far as the dump says; '' is the model itself."""

    api: str | None = None
    module: str | None = None
    source: str | None = None


NOWHERE = Place()


def number(value: float | None) -> str:
    """`%.6f` where that keeps the number, else `%.6e`; `NaN` for what is not defined."""
    if value is None:
        return ABSENT
    size = abs(value)
    if 1e-3 <= size < 1e16:
        return f"{value:.6f}"
    if size == 0:  # no -0.000000
        return "0.000000"
    return f"{value:.6e}" if math.isfinite(value) else f"{value:f}"


def share(value: float) -> str:
    """`%.6f`, but 1.000000 only for all of them and 0.000000 only for none."""
    if 0.0 < value < 1.0:
        value = min(max(value, 1e-6), 1 - 1e-6)
    return f"{value:.6f}"


def element(value: bool | int | float | complex, dtype: str | None) -> str:
    """One element, with the digits that its dtype has."""
    if isinstance(value, complex):
        real, imaginary = (element(part, dtype) for part in (value.real, value.imag))
        return f"({real}{'' if imaginary.startswith('-') else '+'}{imaginary}j)"
    if not isinstance(value, float):
        return str(value)
    return repr(value) if dtype in _EXACT else f"{value:.9g}"


def inert(text: str) -> str:
    """Make `text` a cell that no spreadsheet runs and no terminal obeys."""
    if text.isascii() and text.isprintable() and ";" not in text and text[:1] not in _SUSPECT:
        return text
    text = printable(text)
    # Where the list separator is a semicolon, what follows one starts a cell.
    parts = text.split(";")
    return ";".join("'" + part if part.lstrip().startswith(_FORMULA) else part for part in parts)


def _short(value: float) -> str:
    if not math.isfinite(value):
        return f"{value:f}"
    value += 0.0
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e16 else f"{value:.3e}"


def _deviations(m: Metrics) -> str:
    (mean, deviation), (golden_mean, golden_deviation) = m.mine, m.golden
    mine = f"({_short(mean)};{_short(deviation)})"
    return f"{mine},({_short(golden_mean)};{_short(golden_deviation)})"


ALGORITHMS = (
    Algorithm(0, "CosineSimilarity", lambda m: number(m.cosine)),
    Algorithm(1, "MaxAbsoluteError", lambda m: number(m.max_absolute)),
    Algorithm(2, "AccumulatedRelativeError", lambda m: number(m.accumulated_relative)),
    Algorithm(3, "RelativeEuclideanDistance", lambda m: number(m.relative_euclidean)),
    Algorithm(4, "KullbackLeiblerDivergence", lambda m: number(m.kullback_leibler)),
    Algorithm(5, "StandardDeviation", _deviations),
    Algorithm(6, "MeanAbsoluteError", lambda m: number(m.mean_absolute)),
    Algorithm(7, "RootMeanSquareError", lambda m: number(m.root_mean_square)),
    Algorithm(8, "MaxRelativeError", lambda m: number(m.max_relative)),
    Algorithm(9, "MeanRelativeError", lambda m: number(m.mean_relative)),
)
DIVERGENCE = ALGORITHMS[4]

ALL_OF_THEM = "all"
"""The word of -alg for every algorithm."""

FILES = ("MyFile", "GoldenFile")
"""Columns that -p adds after those of the result."""

_OVERFLOW = "OverFlow"
_REASON = "CompareFailReason"
_BEFORE = ("Index", "NPUDump", "NPUDumpPath", "GroundTruthPath", "DataType", "Shape")
_MEASURED = (
    "ExactMatch",
    "UlpMax",
    "UlpMean",
    "UlpAboveOne",
    "WorstIndex",
    "WorstMine",
    "WorstGolden",
    "NaNCounts",
    "InfinityCounts",
)
_PLACE = ("Phase", "Api", "Module", "Source")
_VERDICT = ("Verdict", "VerdictCode", "Allowed", "Actual", "Margin", "VerdictReason", "PairedBy")
_TAKEN = {
    name.casefold()
    for name in (
        *(*_BEFORE, _OVERFLOW, _REASON, *_MEASURED, *_PLACE, *_VERDICT, *FILES, ALL_OF_THEM),
        *(each.name for each in ALGORITHMS),
    )
}


@dataclass(frozen=True)
class Columns:
    """The columns of one result.

    algorithms: those that were chosen, in order; the name of a custom algorithm stands for itself,
    and the k-th of them is the k-th text of Row.custom. overflow: with the column OverFlow. Raises
    DumpError where a column would be there twice.
    """

    algorithms: tuple[Algorithm | str, ...] = ALGORITHMS
    overflow: bool = False

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            what = f"a column is there twice: {', '.join(self.chosen)}"
            raise DumpError(what, "the algorithms", "name each one once, and none like a column")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The header."""
        return (
            *_BEFORE,
            *((_OVERFLOW,) * self.overflow),
            *self.chosen,
            _REASON,
            *_MEASURED,
            *_PLACE,
            *_VERDICT,
        )

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the algorithms, in order."""
        return tuple(each if isinstance(each, str) else each.name for each in self.algorithms)

    @cached_property
    def custom(self) -> tuple[str, ...]:
        """Names of the custom algorithms that were chosen, in order."""
        return tuple(each for each in self.algorithms if isinstance(each, str))

    @property
    def divergence(self) -> bool:
        """Whether the Kullback-Leibler divergence is among them, which costs as much as all
        else."""
        return DIVERGENCE in self.algorithms

    def cells(self, row: Row, place: Place = NOWHERE) -> list[str]:
        """The row as text, in the order of `names`."""
        found = [
            str(row.index),
            _label(row.op),
            _text(row.my_path),
            _text(row.golden_path),
            _label(row.dtype),
            _shape(row.shape),
        ]
        if self.overflow:
            found.append(_overflow(row))
        found += self._numbers(row)
        found.append(inert(",".join(row.reasons)) if row.reasons else "")
        found += _measured(row)
        found.append(_label(row.phase))
        found += map(_label, place)
        found += _judged(row)
        return found

    def line(self, row: Row, place: Place = NOWHERE) -> str:
        """The row as a line of a csv, with its end."""
        return csv_line(self.cells(row, place))

    def _numbers(self, row: Row) -> list[str]:
        m = row.metrics
        if not self.custom:
            return [ABSENT if m is None else each.cell(m) for each in self.algorithms]
        custom = iter(row.custom)
        return [
            inert(next(custom, ABSENT))
            if isinstance(each, str)
            else ABSENT
            if m is None
            else each.cell(m)
            for each in self.algorithms
        ]


ALL = Columns()


def csv_line(cells: Sequence[str]) -> str:
    """Cells as a line of a csv, quoted where a comma, a semicolon or a quote stands in one."""
    # `in` three times is half of what one regular expression takes
    quoted = [
        _quoted(cell) if ";" in cell or "," in cell or '"' in cell else cell for cell in cells
    ]
    return ",".join(quoted) + "\r\n"


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def is_taken(name: str) -> bool:
    """Whether a custom algorithm may not have this name, whatever its case: a column has it, or
    -alg understands something else by it."""
    return name.isdecimal() or name.casefold() in _TAKEN


def select(text: str, custom: Sequence[str] = (), overflow: bool = False) -> Columns:
    """What -alg asks for.

    text: names, in any case, or numbers, with commas or spaces between, or `all`, which is the ten
    and then every custom algorithm. custom: names of those that were loaded. Raises DumpError for
    any other word, with the nearest names.
    """
    words = [word for part in text.split(",") for word in part.split() or [""]]
    if {word.casefold() for word in words} == {ALL_OF_THEM}:
        return Columns((*ALGORITHMS, *custom), overflow)
    chosen = {}
    for word in words:
        found = _algorithm(word, custom)
        if found is None:
            raise _no_algorithm(word, text, custom)
        chosen[found] = None
    return Columns(tuple(chosen), overflow)


def _algorithm(word: str, custom: Sequence[str]) -> Algorithm | str | None:
    if word in custom:  # two of them may differ by case alone
        return word
    folded = word.casefold()
    for each in ALGORITHMS:
        if folded in (each.name.casefold(), str(each.number)):
            return each
    like = [name for name in custom if name.casefold() == folded]
    return like[0] if len(like) == 1 else None


def _no_algorithm(word: str, text: str, custom: Sequence[str]) -> DumpError:
    names = [*(each.name for each in ALGORITHMS), *custom]
    todo = f"name some of {', '.join(names)}, or 0 to 9, or all"
    if word.casefold() == ALL_OF_THEM:
        what = f"{word!r} is every algorithm, and nothing can stand beside it"
        todo = f"leave it out, or all else; {todo}"
    elif not word:
        what = "the name of an algorithm is missing"
    else:
        what = f"there is no algorithm {word!r}"
        if near := _nearest(word.casefold(), names):
            todo = f"the nearest is {' or '.join(near)}; {todo}"
    return DumpError(what, f"-alg {text}", todo)


def _nearest(word: str, names: Sequence[str]) -> list[str]:
    """Names that hold the word, or else are spelt much like it; both without regard to case."""
    folded = {name.casefold(): name for name in names}
    holding = [name for key, name in folded.items() if len(word) > 2 and word in key]
    return holding or [folded[key] for key in difflib.get_close_matches(word, folded, n=2)]


def shape_text(shape: Sequence[int | str] | None) -> str:
    """A shape or an index, `[2,3]`; a size that is no number is a text of the file."""
    return ABSENT if shape is None else inert("[" + ",".join(map(str, shape)) + "]")


def _text(value: str | None) -> str:
    return ABSENT if value is None else inert(value)


_label = lru_cache(1 << 10)(_text)
_shape = lru_cache(1 << 10)(shape_text)
"""The same of what many rows have in common."""


def _overflow(row: Row) -> str:
    """Whether a float16 reached the greatest one; infinity did, and a NaN beside it hides
    nothing."""
    if row.metrics is None or row.dtype != "float16":
        return ABSENT
    return "YES" if row.metrics.reach[0] >= OVERFLOW else "NO"


def _measured(row: Row) -> tuple[str, ...]:
    m = row.metrics
    if m is None:
        return (ABSENT,) * len(_MEASURED)
    ulp = worst = (ABSENT,) * 3
    if m.ulp is not None:
        ulp = str(m.ulp.greatest), number(m.ulp.mean), share(m.ulp.above_one)
    if m.worst is not None:
        index, mine, golden = m.worst
        place = "[" + ",".join(map(str, index)) + "]"
        worst = place, element(mine, row.dtype), element(golden, row.dtype)
    return share(m.exact), *ulp, *worst, _counts(m.nan), _counts(m.infinite)


def _judged(row: Row) -> tuple[str, ...]:
    verdict = row.verdict
    numbers = verdict.allowed, verdict.actual, verdict.margin
    match = row.match or ABSENT
    return (
        verdict.kind.value,
        _label(verdict.code),
        *map(number, numbers),
        inert(verdict.reason),
        f"{match}, in doubt" if row.low else match,
    )


def _counts(counts: tuple[int, int, int]) -> str:
    """Of mine only, golden only, both."""
    return "0;0;0" if counts == (0, 0, 0) else "{};{};{}".format(*counts)
