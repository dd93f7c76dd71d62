"""Our csv against the peer's own on its golden pairs, and by name every cell where the peer is
wrong.

The peer computes in float32 and prints `%.6f`, so a cell of ours agrees when it is within half a
unit of the last printed digit plus float32's error: a few roundings of the value for sums and
means, one rounding of x / y (which is about 1) for each relative error. Where the peer is wrong,
the right value is computed here from the files with numpy, in float64 or exactly.
"""

from __future__ import annotations

import csv
import math
import tempfile
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from compare.cli import cli

EPSILON = 2.0**-23
HALF_DIGIT = 0.5e-6
NUMBERS = (
    "CosineSimilarity",
    "MaxAbsoluteError",
    "AccumulatedRelativeError",
    "RelativeEuclideanDistance",
    "KullbackLeiblerDivergence",
    "MeanAbsoluteError",
    "RootMeanSquareError",
    "MaxRelativeError",
    "MeanRelativeError",
)
PLACE = ("Index", "NPUDump", "NPUDumpPath", "GroundTruthPath", "DataType", "Shape")
RELATIVE = ("AccumulatedRelativeError", "MaxRelativeError", "MeanRelativeError")

# Where the peer is wrong, by the path of my side: which columns, and why.
ALL = (*NUMBERS, "StandardDeviation")
ZERO_GOLDEN = "an element that golden has as 0 and my side has not counts as no error"
WRONG = {
    "/PermBackward/7/output/result": ("shape", "(2,3) is compared flat with (3,2)"),
    "/GoldZeroBackward/13/output/result": (
        (*RELATIVE, "RelativeEuclideanDistance"), "golden all zero looks perfect",
    ),
    "/BoolBackward/15/output/mask": (
        tuple(name for name in ALL if name != "CosineSimilarity"), "bool is refused by nine of ten",
    ),
    "/Bf16Backward/23/output/result": (ALL, "an unknown DataType code is refused"),
    "/EmptyBackward/24/output/result": (
        ("MaxAbsoluteError", "KullbackLeiblerDivergence", "MeanAbsoluteError",
         "RootMeanSquareError", "MaxRelativeError", "MeanRelativeError"),
        "nothing differs, and is called NaN",
    ),
    "/InfBackward/25/output/result": (ALL, "the same infinity on both sides makes everything nan"),
    "/Huge32Backward/27/output/result": (("CosineSimilarity",), "float32 norms overflow"),
    "/DoubleBackward/28/output/result": (ALL, "1e300 is cast to float32"),
    "/Long53Backward/29/output/result": (
        ("MaxAbsoluteError", "MeanAbsoluteError", "RootMeanSquareError", "StandardDeviation"),
        "int64 is cast to float32",
    ),
}  # fmt: skip
for path in ("/mul_Tensor/7/input/self", "/mul_Tensor/7/output/result",
             "/addmm/19/input/self", "/addmm/19/output/result"):  # fmt: skip
    WRONG[path] = (("AccumulatedRelativeError", "MeanRelativeError"), ZERO_GOLDEN)


def right(mine: np.ndarray, golden: np.ndarray) -> dict[str, float | str | None]:
    """The metrics by their definitions, in plain numpy."""
    if mine.dtype.kind == "i":
        d = np.array(
            [abs(int(a) - int(b)) for a, b in zip(mine.flat, golden.flat, strict=True)], float
        )
    keep = np.isfinite(mine) | np.isfinite(golden)
    x, y = mine[keep].astype(float), golden[keep].astype(float)
    if mine.dtype.kind != "i":
        d = np.abs(x - y)
    relative = np.where(y == 0, x != 0, d / np.where(y == 0, 1.0, np.abs(y)))
    scale = max(np.abs(x).max(initial=0), np.abs(y).max(initial=0)) or 1.0
    a, b = x / scale, y / scale

    def norm(values):
        return float(np.sqrt(np.sum(values * values)))

    def shares(values):
        if not values.size or values.max() == values.min():
            return np.ones_like(values) / max(values.size, 1)
        spread = np.maximum((values - values.min()) / (values.max() - values.min()), EPSILON)
        return spread / spread.sum()

    p, q = shares(a), shares(b)
    n = max(d.size, 1)
    return {
        "CosineSimilarity": float(np.sum(a * b)) / norm(a) / norm(b)
        if norm(a) and norm(b)
        else None,
        "MaxAbsoluteError": float(d.max(initial=0)),
        "AccumulatedRelativeError": float(relative.sum()),
        "RelativeEuclideanDistance": norm(d / scale) / norm(b) if norm(b) else float(norm(d) > 0),
        "KullbackLeiblerDivergence": float(np.sum(p * np.log(p / q))),
        "MeanAbsoluteError": float(d.sum() / n),
        "RootMeanSquareError": norm(d / scale) / math.sqrt(n) * scale,
        "MaxRelativeError": float(relative.max(initial=0)),
        "MeanRelativeError": float(relative.sum() / n),
        "StandardDeviation": [
            float(v) * scale for side in (a, b) if side.size for v in (side.mean(), side.std())
        ],
    }


@cache
def rows(folder: Path) -> list[tuple[dict, dict]]:
    """(ours, the peer's) rows of one golden pair; they must be the same rows in the same order."""
    with tempfile.TemporaryDirectory() as out:
        arguments = ["compare", "-m", f"{folder}/npu.h5", "-g", f"{folder}/gpu.h5", "-out", out]
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 1, done.output
        path = done.output.splitlines()[-1].removeprefix("result: ")
        ours = read(Path(path))
    theirs = read(folder / "result.csv")
    assert [place(row) for row in ours] == [place(row) for row in theirs]
    return list(zip(ours, theirs, strict=True))


def read(path: Path) -> list[dict]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def place(row: dict) -> tuple[str, ...]:
    return tuple(row[name] for name in PLACE[:4])


def deviations(cell: str) -> list[float]:
    return [
        float(value)
        for value in cell.replace("(", "").replace(")", "").replace(",", ";").split(";")
    ]


def tensors(folder: Path, row: dict) -> tuple[np.ndarray, np.ndarray]:
    with h5py.File(folder / "npu.h5") as mine, h5py.File(folder / "gpu.h5") as golden:
        return mine[row["NPUDumpPath"]][()], golden[row["GroundTruthPath"]][()]


def float32_error(name: str, value: float, count: int) -> float:
    """How far float32 may be off: see the top of this file."""
    error = 8 * EPSILON * abs(value)
    if name == "AccumulatedRelativeError":
        error += count * EPSILON
    elif name in ("MaxRelativeError", "MeanRelativeError", "CosineSimilarity"):
        error += 4 * EPSILON
    elif name == "KullbackLeiblerDivergence":
        error += 8 * EPSILON
    return error


@pytest.mark.parametrize("case", ["tiny", "load", "rand1"])
def test_every_cell_agrees_where_the_peer_is_right(golden, case):
    checked = 0
    for ours, theirs in rows(golden / case):
        wrong = WRONG.get(theirs["NPUDumpPath"], ((), ""))[0]
        if wrong == "shape":
            continue
        if wrong is not ALL:
            assert [ours[name] for name in PLACE] == [theirs[name] for name in PLACE]
        size = math.prod(int(n) for n in theirs["Shape"].strip("[]").split(",") if n.isdigit())
        for name in NUMBERS:
            if name in wrong:
                continue
            one, other = float(ours[name]), float(theirs[name])
            slack = HALF_DIGIT + float32_error(name, other, size)
            assert one == pytest.approx(other, rel=0, abs=slack, nan_ok=True), (place(ours), name)
            checked += 1
        if "StandardDeviation" not in wrong and theirs["StandardDeviation"] != "NaN":
            # float64 in the peer, printed with three digits; what is below 0.001 is printed as 0.
            pairs = zip(
                *(deviations(row["StandardDeviation"]) for row in (ours, theirs)), strict=True
            )
            for one, other in pairs:
                slack = 1e-3 if other == 0 else 0.5001e-3 + abs(other) * 1e-3 * (abs(other) > 1e16)
                assert one == pytest.approx(other, rel=0, abs=slack, nan_ok=True), place(ours)
    assert checked > 40


@pytest.mark.parametrize("case", ["tiny", "load", "rand1"])
def test_unpaired_rows_have_the_peers_words(golden, case):
    for ours, theirs in rows(golden / case):
        if theirs["CompareFailReason"].startswith("No data match"):
            assert ours["CompareFailReason"] == theirs["CompareFailReason"]


@pytest.mark.parametrize(("path", "columns", "reason"), [(p, *w) for p, w in WRONG.items()])
def test_cells_where_the_peer_is_wrong(golden, path, columns, reason):
    case = "rand1" if reason == ZERO_GOLDEN else "tiny"
    ((ours, theirs),) = [pair for pair in rows(golden / case) if pair[0]["NPUDumpPath"] == path]
    mine, gold = tensors(golden / case, ours)
    if columns == "shape":
        assert mine.shape != gold.shape
        assert all(ours[name] == "NaN" for name in ALL)
        assert all(
            str(list(shape)) in ours["CompareFailReason"] for shape in (mine.shape, gold.shape)
        )
        return
    expected = right(mine, gold)
    for name in columns:
        if name == "StandardDeviation":
            assert deviations(ours[name]) == pytest.approx(expected[name], rel=6e-4, abs=0.5001e-3)
        else:
            assert float(ours[name]) == pytest.approx(expected[name], rel=1e-6, abs=HALF_DIGIT), (
                name
            )
    # At least one of these cells is where the peer says something else.
    assert any(
        name == "StandardDeviation"
        and ours[name] != theirs[name]
        or name != "StandardDeviation"
        and not float(theirs[name]) == pytest.approx(expected[name], rel=1e-5, abs=1e-6)
        for name in columns
    )


def test_findings_of_the_tiny_pair(golden):
    reasons = {ours["NPUDump"]: ours["CompareFailReason"] for ours, _ in rows(golden / "tiny")}
    assert reasons["ShapeBackward"] == "shapes differ: [2, 3] in my dump, [2, 4] in golden"
    assert reasons["TypeBackward"] == "dtypes differ: float32 in my dump, int32 in golden"
    assert reasons["IntLongBackward"] == "dtypes: int32 in my dump, int64 in golden"
    assert reasons["ScalarBackward"] == "This tensor is scalar."
    assert reasons["InfBackward"].startswith("1 of 2 elements are the same NaN or infinity")
    assert reasons["NanBackward"].startswith("NaN or infinite: 1 of 8 elements in my dump only")


def test_exact_match_of_the_golden_pairs(golden):
    for case in ("tiny", "load", "rand1"):
        for ours, _ in rows(golden / case):
            if ours["ExactMatch"] == "NaN":
                assert ours["MaxAbsoluteError"] == "NaN"
                continue
            mine, gold = tensors(golden / case, ours)
            if "StrideBackward" in ours["NPUDump"]:  # golden lies in its old storage order
                gold = gold.ravel().reshape(mine.shape[::-1]).T
            same = np.mean((mine == gold) | ((mine != mine) & (gold != gold))) if mine.size else 1.0
            assert float(ours["ExactMatch"]) == pytest.approx(same, abs=1e-6)
