"""The operator that adds most to what it was given, among others that only round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from folders import put, run

MOST = "the operator that adds most to what it was given: "
random = np.random.default_rng(0)
X, W = (random.standard_normal((8, 8), np.float32) for _ in range(2))


def chip(x: np.ndarray) -> np.ndarray:
    """As a cube that takes fp32 as fp16 has it."""
    return x.astype("f2").astype("f4")


def net(folder: Path, rounds: bool, wrong: str = "") -> Path:
    """A product, an addition and an activation that hand on; one of them may be wrong."""
    product = chip(X) @ chip(W) if rounds else X @ W
    product = product + 1 if wrong == "MatMul" else product
    added = product + 2 + (wrong == "Add")
    active = np.maximum(added, 0) + (wrong == "Relu")
    put(folder, 0, "MatMul", "net/wo", [X, W], [product])
    put(folder, 1, "Add", "net/add", [product, np.float32(2)], [added])
    put(folder, 2, "Relu", "net/relu", [added], [active])
    return folder


@pytest.mark.parametrize("wrong", ["Add", "Relu"])
def test_behind_one_that_rounds(tmp_path: Path, wrong: str) -> None:
    done = run(net(tmp_path / "m", True, wrong), net(tmp_path / "g", False), tmp_path / "out")
    lines = done.stdout.splitlines()
    assert "the first operator that parts from equal inputs: MatMul net/wo, Index 1" in lines
    (most,) = (i for i, line in enumerate(lines) if line.startswith(MOST))
    assert lines[most].removeprefix(MOST).startswith(wrong)
    factor, _, text = lines[most + 2].strip().partition(" ")
    assert float(factor) > 100 and text.startswith("times what its inputs and the rounding")


def test_where_it_is_the_first_one_it_is_named_once(tmp_path: Path) -> None:
    mine, golden = net(tmp_path / "m", True, "MatMul"), net(tmp_path / "g", False)
    done = run(mine, golden, tmp_path / "out")
    assert "parts from equal inputs: MatMul net/wo" in done.stdout and MOST not in done.stdout


def test_of_inputs_that_were_not_compared_nothing_is_said(tmp_path: Path) -> None:
    for side, value in (("m", 1.0), ("g", 2.0)):
        put(tmp_path / side, 0, "Add", "a", [np.ones(2 + (side == "m"), "f4")], [np.full(2, value)])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert done.exit_code == 1 and MOST not in done.stdout


def test_a_sum_that_cancels_is_held_to_what_is_added(tmp_path: Path) -> None:
    """Gradients of a bias before a batch norm are 0, and what is left of them is rounding."""
    x = random.standard_normal((64, 8)).astype("f4")
    x -= x.mean(0)
    for side in "mg":
        wrong = np.float32(side == "m") / 4
        sums = x.sum(0, dtype="f4") if side == "m" else x[::-1].sum(0, dtype="f4")
        put(tmp_path / side, 0, "ReduceSum", "bias", [x], [sums])
        put(tmp_path / side, 1, "Gelu", "gelu", [X], [X + wrong])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert f"{MOST}Gelu gelu, Index 2" in done.stdout


def test_infinities_that_are_handed_on_hide_nothing(tmp_path: Path) -> None:
    """A mask, -inf here and the least number there."""
    mask = {"m": np.full(8, -3.4e38, "f4"), "g": np.full(8, -np.inf, "f4")}
    for side in "mg":
        wrong = np.float32(side == "m")
        put(tmp_path / side, 0, "Add", "rounds", [X], [X * (1 + wrong * np.float32(2e-7))])
        put(tmp_path / side, 1, "MatMul", "broken", [X, W], [X @ W + wrong])
        put(tmp_path / side, 2, "ConcatD", "mask", [mask[side]], [mask[side]])
        put(tmp_path / side, 3, "Mul", "later", [X], [X * (1 + wrong * np.float32(3e-7))])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert f"{MOST}MatMul broken, Index 2" in done.stdout


def test_a_nan_adds_more_than_any_number(tmp_path: Path) -> None:
    for side in "mg":
        wrong = np.float32(side == "m")
        put(tmp_path / side, 0, "Add", "a", [X], [X + wrong])
        put(tmp_path / side, 1, "Log", "b", [X], [X * np.float32(np.nan) if wrong else X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert f"{MOST}Log b, Index 2" in done.stdout
