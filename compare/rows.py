"""A row as one line of JSON, and back: what a result keeps of it, with every digit.

JSON has no NaN: a number that is none is the text "nan", "inf" or "-inf". Integers
are written out however long they are; a complex number is a list of two. docs/result.md has every
field. What is read back comes from a file that nobody vouches for, so that every value is checked.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import orjson

from dumper.errors import DumpError

from .columns import Place
from .judging.verdict import Kind, Verdict
from .metrics import Metrics, Ulp, Worst
from .row import BY_STATUS, MEASURED, Row, Status

_UNNAMED = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Numbered(NamedTuple):
    """A row with its place in the csv, from 1, and in the program."""

    number: int
    row: Row
    place: Place


def line_of(number: int, row: Row, place: Place) -> bytes:
    """The row as a JSON object in one line of ASCII, without its end."""
    return numbered(number, unnumbered(row, place))


def numbered(number: int, rest: bytes) -> bytes:
    """The line of a row of that number. rest: what `unnumbered` made of the row."""
    return b'{"row":%d,%b' % (number, rest)


def unnumbered(row: Row, place: Place) -> bytes:
    """The line of a row but for its number, which another process may not know."""
    value = _value_of(row, place)
    try:
        line = orjson.dumps(value)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits, half of a surrogate pair
        line = b""
    if not line or not line.isascii():
        line = json.dumps(value, separators=(",", ":")).encode()
    return line[1:]


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


def _value_of(row: Row, place: Place) -> dict[str, Any]:
    """A row as JSON values."""
    verdict, m = row.verdict, row.metrics
    return {
        "index": row.index,
        "op": row.op,
        "side": row.side,
        "record_path": row.record_path,
        "my_path": row.my_path,
        "golden_path": row.golden_path,
        "dtype": row.dtype,
        "shape": row.shape,
        "status": row.status.value,
        "reasons": row.reasons,
        "phase": row.phase,
        "api": place.api,
        "module": place.module,
        "source": place.source,
        "custom": row.custom,
        "leaf": row.leaf,
        "match": row.match,
        "low_confidence": row.low,
        "verdict": {
            "kind": verdict.kind.value,
            "code": verdict.code,
            "reason": verdict.reason,
            "allowed": _named(verdict.allowed),
            "actual": _named(verdict.actual),
            "margin": _named(verdict.margin),
            "culprit": verdict.culprit,
            "low_evidence": verdict.low_evidence,
            "by_default": verdict.by_default,
            "weak": verdict.weak,
        },
        "metrics": None if m is None else _measured(m),
    }


def _measured(m: Metrics) -> dict[str, Any]:
    ulp, worst = m.ulp, m.worst
    found = {
        "elements": m.size,
        "CosineSimilarity": m.cosine,
        "MaxAbsoluteError": m.max_absolute,
        "AccumulatedRelativeError": m.accumulated_relative,
        "RelativeEuclideanDistance": m.relative_euclidean,
        "KullbackLeiblerDivergence": m.kullback_leibler,
        "StandardDeviation": {"mine": m.mine, "golden": m.golden},
        "MeanAbsoluteError": m.mean_absolute,
        "RootMeanSquareError": m.root_mean_square,
        "MaxRelativeError": m.max_relative,
        "MeanRelativeError": m.mean_relative,
        "ExactMatch": m.exact,
        "reach": m.reach,
        "nan": m.nan,
        "infinite": m.infinite,
        "nonfinite": {
            "same": m.same_nonfinite,
            "mine": m.mine_nonfinite,
            "golden": m.golden_nonfinite,
            "unlike": m.other_nonfinite,
        },
        "ulp": ulp and {"max": ulp.greatest, "mean": ulp.mean, "above_one": ulp.above_one},
        "worst": worst and {
            "index": worst.index,
            "mine": _named(worst.mine),
            "golden": _named(worst.golden),
        },
    }  # fmt: skip
    return found if _is_finite(m) else _named(found)


def _is_finite(m: Metrics) -> bool:
    """Whether all numbers are such as JSON has; perhaps not where they are, but add up to none."""
    ulp = m.ulp.mean + m.ulp.above_one if m.ulp else 0.0
    return math.isfinite(
        (m.cosine or 0.0) + m.max_absolute + m.accumulated_relative + m.relative_euclidean
        + (m.kullback_leibler or 0.0) + sum(m.mine) + sum(m.golden) + m.mean_absolute
        + m.root_mean_square + m.max_relative + m.mean_relative + m.exact + sum(m.reach) + ulp
    )  # fmt: skip


def _named(value: Any) -> Any:
    """A JSON value in which numbers that JSON lacks have names, and complex ones are two."""
    if type(value) is float:
        return value if math.isfinite(value) else _name(value)
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_named(each) for each in value]
    if isinstance(value, complex):
        return [_named(value.real), _named(value.imag)]
    return value


def _name(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


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
