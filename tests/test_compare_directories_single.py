"""`-op` on folders of CANN dumps: one tensor, element by element."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from folders import op, put, rules, run, save, tensor

from ir2tbe.relayout import relayout

X = np.arange(48, dtype="f4").reshape(1, 3, 4, 4)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of one operator, of which mine keeps the second in tiles and has one element off."""
    wrong = X.copy()
    wrong[0, 1, 2, 3] += 5
    tiled = tensor(relayout(wrong, "NCHW", "NC1HWC0"), form="NC1HWC0", original=X.shape)
    for side in "mg":
        put(tmp_path / side, 0, "Relu", "net/relu", [X], [X])
        put(tmp_path / side, 1, "Relu", "net/relu", [X], [tiled if side == "m" else X])
        put(tmp_path / side, 2, "Add", "net/add", [X, X[:1, :1] if side == "m" else X], [X])
    return tmp_path / "m", tmp_path / "g"


@pytest.mark.parametrize("name", ["net/relu/2", "net_relu/2", "Relu.net_relu/2"])
def test_one_of_several_runs(pair: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    done = run(*pair, tmp_path / "out", "-op", name)
    assert done.exit_code == 1 and "DifferingCount:1" in done.stdout
    mine = np.load(tmp_path / "out" / "Relu_net_relu_2_output_0.npy")
    assert np.argwhere(mine != X).tolist() == [[0, 1, 2, 3]]
    with open(tmp_path / "out" / "Relu_net_relu_2_output_0_absolute_error_topn.csv") as file:
        first = list(csv.DictReader(file))[0]
    assert float(first["AbsoluteError"]) == 5 and first["N C H W"].split() == ["0", "1", "2", "3"]


def test_an_input_that_is_equal(pair: tuple[Path, Path], tmp_path: Path) -> None:
    done = run(*pair, tmp_path / "out", "-op", "net/add", "-i", "0")
    assert done.exit_code == 0 and "DifferingCount:0" in done.stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("-op", "net/relu"), "name one of them: net/relu/1, net/relu/2"),
        (("-op", "net/mul"), "no operator is called net/mul"),
        (("-op", "net/relu/3"), "no operator is called net/relu/3"),
        (("-op", "net/add", "-o", "4"), "this operator has 1 output tensors"),
        (("-op", "net/add", "-i", "1"), "shapes differ"),
    ],
)
def test_what_cannot_be_shown(
    pair: tuple[Path, Path], tmp_path: Path, more: tuple[str, ...], words: str
) -> None:
    done = run(*pair, tmp_path / "out", *more)
    assert done.exit_code == 2 and words in done.stderr + done.output


TILES = relayout(X, "NCHW", "NC1HWC0")
LAST = np.ascontiguousarray(X.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("mine", "golden", "axes"),
    [
        (tensor(TILES, form="NC1HWC0", original=X.shape), tensor(LAST, form="NHWC"), "N H W C"),
        (tensor(LAST, form="NHWC"), tensor(X, form="NCHW"), "N C H W"),
        (tensor(LAST, form="NHWC"), tensor(LAST), "N H W C"),
        (tensor(LAST), tensor(LAST), "N C H W"),  # nobody says
        (tensor(X[0], form="NHWC"), tensor(X[0]), "N C H W"),
    ],
)
def test_axes_have_the_names_of_their_format(tmp_path, mine, golden, axes):
    for side, value in (("m", mine), ("g", golden)):
        put(tmp_path / side, 0, "Relu", "a", (), [value])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-op", "a")
    assert done.exit_code == 0 and f"Format:{axes}\n" in done.stdout
    (path,) = (tmp_path / "out").glob("*_0.csv")
    assert path.read_text().splitlines()[0].split(",")[1] == axes


def test_axes_have_the_names_that_rules_say(tmp_path):
    put(tmp_path / "m", 0, "Relu", "a", (), [tensor(TILES, form="NC1HWC0", original=X.shape)])
    save(tmp_path / "g", "a.0.npy", LAST)
    file = rules(tmp_path / "r.json", op("a", "Relu", ["a"], [("a", 0, "NHWC")]))
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-op", "a", "-f", file)
    assert done.exit_code == 0 and "Format:N H W C\n" in done.stdout
