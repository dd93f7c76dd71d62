"""A row as one line of JSON, and back: what a result keeps of it, with every digit.

The line is put together by hand, because there are as many lines as tensors and json takes three
times as long. JSON has no NaN: a number that is none is the text "nan", "inf" or "-inf". Integers
are written out however long they are; a complex number is a list of two. docs/result.md has every
field. What is read back comes from a file that nobody vouches for, so that every value is checked.
"""

from __future__ import annotations

import math
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _string
from typing import Any, NamedTuple

from dumper.errors import DumpError

from .columns import Place
from .judging.verdict import Kind, Verdict
from .metrics import Metrics, Ulp, Worst
from .row import BY_STATUS, MEASURED, Row, Status

_ROW = (
    '"index":%d,"op":%s,"side":%s,"record_path":%s,"my_path":%s,"golden_path":%s,'
    '"dtype":%s,"shape":%s,"status":%s,"reasons":%s,"phase":%s,"api":%s,"module":%s,"source":%s,'
    '"custom":%s,"leaf":%s,"match":%s,"low_confidence":%s,"verdict":%s,"metrics":%s}'
)
_METRICS = (
    '{"elements":%d,"CosineSimilarity":%s,"MaxAbsoluteError":%s,"AccumulatedRelativeError":%s,'
    '"RelativeEuclideanDistance":%s,"KullbackLeiblerDivergence":%s,"StandardDeviation":'
    '{"mine":[%s,%s],"golden":[%s,%s]},"MeanAbsoluteError":%s,"RootMeanSquareError":%s,'
    '"MaxRelativeError":%s,"MeanRelativeError":%s,"ExactMatch":%s,"reach":[%s,%s],'
    '%s,"ulp":%s,"worst":%s}'
)
_COUNTS = (
    '"nan":[%d,%d,%d],"infinite":[%d,%d,%d],'
    '"nonfinite":{"same":%d,"mine":%d,"golden":%d,"unlike":%d}'
)
_ALL_FINITE = _COUNTS % ((0,) * 10)
_STATUS = {status: _string(status.value) for status in Status}
_VERDICT = (
    '{"kind":%s,"code":%s,"reason":%s,"allowed":%s,"actual":%s,"margin":%s,"culprit":%s,'
    '"low_evidence":%s,"by_default":%s,"weak":%s}'
)
_TRUTH = {False: "false", True: "true"}
_UNNAMED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Numbered(NamedTuple):
    """A row with its place in the csv, from 1, and in the program."""

    number: int
    row: Row
    place: Place


def line_of(number: int, row: Row, place: Place) -> str:
    """The row as a JSON object in one line of ASCII, without its end."""
    return numbered(number, unnumbered(row, place))


def numbered(number: int, rest: str) -> str:
    """The line of a row of that number. rest: what `unnumbered` made of the row."""
    return f'{{"row":{number:d},{rest}'


def unnumbered(row: Row, place: Place) -> str:
    """The line of a row but for its number, which another process may not know."""
    text, m = _text, row.metrics
    return _ROW % (
        row.index,
        text(row.op),
        text(row.side),
        text(row.record_path),
        text(row.my_path),
        text(row.golden_path),
        text(row.dtype),
        "null" if row.shape is None else _shape(row.shape),
        _STATUS[row.status],
        _texts(row.reasons),
        text(row.phase),
        text(place.api),
        text(place.module),
        text(place.source),
        _texts(row.custom),
        text(row.leaf),
        text(row.match),
        _TRUTH[row.low],
        _verdict(row.verdict),
        "null" if m is None else _measured(m),
    )


def row_of(value: Any) -> Numbered:
    """The row that `line_of` wrote. Raises DumpError where it is none."""
    try:
        return _row_of(value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        number = value.get("row") if isinstance(value, dict) else None
        raise DumpError(
            "this is no row of a result",
            f"row {number}: {type(error).__name__} {error}",
            "compare the dumps again",
        ) from None


def _text(value: str | None) -> str:
    return "null" if value is None else _string(value)


def _texts(values: tuple[str, ...]) -> str:
    return "[" + ",".join(map(_string, values)) + "]" if values else "[]"


def _shape(sizes: tuple[int | str, ...]) -> str:
    return "[" + ",".join([_string(n) if isinstance(n, str) else str(n) for n in sizes]) + "]"


def _float(value: float | None) -> str:
    if value is None:
        return "null"
    text = repr(float(value))
    return text if text[-1] not in "nf" else f'"{text}"'


def _measured(m: Metrics) -> str:
    numbers = (
        m.cosine,
        m.max_absolute,
        m.accumulated_relative,
        m.relative_euclidean,
        m.kullback_leibler,
        *m.mine,
        *m.golden,
        m.mean_absolute,
        m.root_mean_square,
        m.max_relative,
        m.mean_relative,
        m.exact,
        *m.reach,
    )
    if None in numbers or not math.isfinite(sum(numbers)):  # else `str` is what `_float` says
        numbers = tuple(map(_float, numbers))
    apart = m.same_nonfinite, m.mine_nonfinite, m.golden_nonfinite, m.other_nonfinite
    counts = (*m.nan, *m.infinite, *apart)
    return _METRICS % (
        m.size,
        *numbers,
        _COUNTS % counts if any(counts) else _ALL_FINITE,
        "null" if m.ulp is None else _ulp(m.ulp),
        "null" if m.worst is None else _worst(m.worst),
    )


def _written(verdict: Verdict) -> str:
    numbers = verdict.allowed, verdict.actual, verdict.margin
    return _VERDICT % (
        _string(verdict.kind.value),
        _string(verdict.code),
        _string(verdict.reason),
        *map(_float, numbers),
        _text(verdict.culprit),
        _TRUTH[verdict.low_evidence],
        _TRUTH[verdict.by_default],
        _TRUTH[verdict.weak],
    )


_constant = lru_cache(1 << 8)(_written)


def _verdict(verdict: Verdict) -> str:
    """Most rows share the few verdicts that have no numbers."""
    return _constant(verdict) if verdict.margin is None else _written(verdict)


def _ulp(ulp: Ulp) -> str:
    mean, share = _float(ulp.mean), _float(ulp.above_one)
    return f'{{"max":{ulp.greatest:d},"mean":{mean},"above_one":{share}}}'


def _worst(worst: Worst) -> str:
    mine, golden = _element(worst.mine), _element(worst.golden)
    return f'{{"index":{_shape(worst.index)},"mine":{mine},"golden":{golden}}}'


def _element(value: bool | int | float | complex) -> str:
    if isinstance(value, complex):
        return f"[{_float(value.real)},{_float(value.imag)}]"
    if isinstance(value, float):
        return _float(value)
    return str(value).lower()  # True is true


def _row_of(value: dict[str, Any]) -> Numbered:
    names = ("op", "side", "record_path", "my_path", "golden_path", "dtype")
    shape, m = value["shape"], value["metrics"]
    status, verdict = Status(value["status"]), _as_verdict(value["verdict"])
    row = Row(
        _as_count(value["index"]),
        *(_as_text(value[name]) for name in names),
        None if shape is None else tuple(map(_as_size, _as_list(shape))),
        status,
        None if m is None else _as_metrics(m),
        tuple(map(_as_word, _as_list(value["reasons"]))),
        _as_text(value["phase"]),
        tuple(map(_as_word, _as_list(value["custom"]))),
        _as_text(value["leaf"]),
        _as_text(value["match"]),
        _as_truth(value["low_confidence"]),
        None if verdict == BY_STATUS[status] else verdict,
    )
    if (row.status in MEASURED) is (m is None):
        raise ValueError(f"metrics and status {row.status.value!r}")
    place = Place(*(_as_text(value[name]) for name in Place._fields))
    return Numbered(_as_count(value["row"]), row, place)


def _as_metrics(m: dict[str, Any]) -> Metrics:
    deviations, apart, ulp, worst = m["StandardDeviation"], m["nonfinite"], m["ulp"], m["worst"]
    cosine, divergence = m["CosineSimilarity"], m["KullbackLeiblerDivergence"]
    return Metrics(
        None if cosine is None else _as_float(cosine),
        _as_float(m["MaxAbsoluteError"]),
        _as_float(m["AccumulatedRelativeError"]),
        _as_float(m["RelativeEuclideanDistance"]),
        None if divergence is None else _as_float(divergence),
        _as_floats(deviations["mine"]),
        _as_floats(deviations["golden"]),
        _as_float(m["MeanAbsoluteError"]),
        _as_float(m["RootMeanSquareError"]),
        _as_float(m["MaxRelativeError"]),
        _as_float(m["MeanRelativeError"]),
        _as_float(m["ExactMatch"]),
        _as_count(m["elements"]),
        *(_as_count(apart[name]) for name in ("same", "mine", "golden", "unlike")),
        _as_counts(m["nan"]),
        _as_counts(m["infinite"]),
        None if ulp is None else _as_ulp(ulp),
        None if worst is None else _as_worst(worst),
        _as_floats(m["reach"]),
    )


def _as_verdict(found: dict[str, Any]) -> Verdict:
    return Verdict(
        Kind(found["kind"]),
        _as_word(found["code"]),
        _as_word(found["reason"]),
        *(
            None if found[name] is None else _as_float(found[name])
            for name in ("allowed", "actual", "margin")
        ),
        _as_text(found["culprit"]),
        *(_as_truth(found[name]) for name in ("low_evidence", "by_default", "weak")),
    )


def _as_truth(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r} where true or false is expected")
    return value


def _as_ulp(ulp: dict[str, Any]) -> Ulp:
    return Ulp(_as_count(ulp["max"]), _as_float(ulp["mean"]), _as_float(ulp["above_one"]))


def _as_worst(worst: dict[str, Any]) -> Worst:
    index = tuple(map(_as_count, _as_list(worst["index"])))
    return Worst(index, _as_element(worst["mine"]), _as_element(worst["golden"]))


def _as_element(value: Any) -> bool | int | float | complex:
    if isinstance(value, list):
        return complex(*_as_floats(value))
    return value if isinstance(value, bool | int) else _as_float(value)


def _as_float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str):
        return _UNNAMED[value]
    if type(value) is not int:
        raise TypeError(f"{value!r} where a number is expected")
    return float(value)


def _as_floats(values: Any) -> tuple[float, float]:
    first, second = _as_list(values)
    return _as_float(first), _as_float(second)


def _as_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} where a number of things is expected")
    return value


def _as_counts(values: Any) -> tuple[int, int, int]:
    mine, golden, both = map(_as_count, _as_list(values))
    return mine, golden, both


def _as_size(value: Any) -> int | str:
    return value if isinstance(value, str) else _as_count(value)


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} where a list is expected")
    return value


def _as_text(value: Any) -> str | None:
    return None if value is None else _as_word(value)


def _as_word(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text is expected")
    return value
