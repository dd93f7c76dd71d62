"""`msaccucmp judge`: a result judged again by another tolerance, without the dumps."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import chains
import models
import pytest
from answers import Told, record, told
from click.testing import Result

import npu_core

KINDS = ("same", "rounding", "inherited", "differs", "not_comparable", "cannot_tell")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A step of a small GPT in load mode, on another profile and with one op slightly wrong; its
    dumps are gone."""
    folder = tmp_path_factory.mktemp("judge")
    with npu_core.use("exact"):
        golden = record(models.make("gpt", "npu"), folder / "golden.h5")
    with (
        npu_core.use("910B"),
        npu_core.fault("gelu.default", lambda x: x * (1 + 1e-5), nth=1) as fault,
    ):
        mine = record(models.make("gpt", "npu"), folder / "npu.h5", golden)
    assert fault.applied == [1]
    result = told(mine, golden, folder / "out")
    (folder / "gone").mkdir()
    for path in (mine, golden):
        shutil.move(path, folder / "gone")
    return result


def judge(said: Told, *words: object) -> Result:
    return chains.run("judge", said.json, *words)


def counts(done: Result) -> dict[str, int]:
    """By verdict, from the line of counts."""
    line = next(line for line in done.stdout.splitlines() if " compared: " in line)
    words = line.split(": ", 1)[1].split(", ")
    return dict(zip(KINDS, (int(word.split()[0]) for word in words), strict=True))


def test_without_any_change_of_c_all_stays(said):
    done = judge(said, "--c", "3.8")
    assert counts(done) == {kind: said.summary[kind] for kind in KINDS}
    assert done.exit_code == said.status == 1
    assert said.summary["first_difference"]["ir"] == "gelu"
    assert "op gelu" in done.stdout


def test_a_larger_c_allows_more(said):
    assert said.summary["differs"] == 1
    margin = said.row(said.summary["first_difference"]["row"])["verdict"]["margin"]
    enough = 3.8 * margin
    below, above = judge(said, "--c", 0.99 * enough), judge(said, "--c", 1.01 * enough)
    assert (below.exit_code, above.exit_code) == (1, 0)
    assert counts(below)["differs"] == 1 and counts(above)["differs"] == 0
    assert counts(above)["rounding"] == said.summary["rounding"] + 1
    assert "first difference" not in above.stdout


def test_a_smaller_c_allows_less(said):
    """Just those rows differ then whose margin it cuts below what they need."""
    margins = [
        row["verdict"]["margin"] for row in said.result["rows"]
        if row["verdict"]["kind"] in ("rounding", "differs") and row["status"] == "differing"
    ]  # fmt: skip
    assert all(margin is not None for margin in margins) and len(margins) > 5
    for c in (1.0, 0.1, 1e-3):
        expected = sum(margin * 3.8 / c > 1 for margin in margins)
        assert counts(judge(said, "--c", c))["differs"] == expected
    assert counts(judge(said, "--c", 1e-9))["differs"] == sum(margin > 0 for margin in margins)


@pytest.mark.parametrize(
    ("words", "differs"),
    [
        (("--rtol", "1"), False),
        (("--atol", "1e-3"), False),
        (("--rtol", "1e-4"), False),
        (("--rtol", "1e-9"), True),
        (("--atol", "1e-12"), True),
        (("--rtol", "0", "--atol", "1"), False),
    ],
)
def test_a_plain_tolerance_takes_the_place_of_what_was_derived(said, words, differs):
    done = judge(said, *words)
    assert (counts(done)["differs"] > 0) is differs
    assert done.exit_code == int(differs)
    assert counts(done)["same"] == said.summary["same"]


def test_a_plain_tolerance_is_held_against_each_row(said):
    """|mine - golden| <= atol + rtol * max|golden|, counted by hand from the json."""
    rtol, atol = 3e-7, 1e-8
    expected = Counter()
    for row in (*said.result["rows"], *said.result["unpaired"]):
        kind = row["verdict"]["kind"]
        if row["status"] == "differing" and kind in ("rounding", "differs"):
            m = row["metrics"]
            fits = float(m["MaxAbsoluteError"]) <= atol + rtol * float(m["reach"][1])
            kind = "rounding" if fits else "differs"
        expected[kind] += 1
    done = judge(said, "--rtol", rtol, "--atol", atol)
    assert counts(done) == {kind: expected[kind] for kind in KINDS}
    assert 0 < expected["differs"] < said.summary["rounding"]


def test_the_csv_bears_the_new_verdicts(said, tmp_path):
    done = judge(said, "--rtol", "1", "-out", tmp_path)
    rows = chains.result(done)
    with open(said.csv, newline="", encoding="utf-8") as file:
        before = list(csv.DictReader(file))
    assert len(rows) == len(before)
    assert Counter(row["Verdict"] for row in rows)["differs"] == 0
    verdicts = ("Verdict", "VerdictCode", "Allowed", "Actual", "Margin", "VerdictReason")
    for now, then in zip(rows, before, strict=True):
        assert {k: v for k, v in now.items() if k not in verdicts} == {
            k: v for k, v in then.items() if k not in verdicts
        }
    changed = [now for now, then in zip(rows, before, strict=True) if now != then]
    assert {row["VerdictCode"] for row in changed} == {"given_tolerance"}


def test_nothing_is_written_unless_asked_for(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = said.json.read_bytes()
    judge(said, "--rtol", "1")
    assert not list(tmp_path.iterdir()) and said.json.read_bytes() == before


def test_exit_zero(said):
    assert judge(said, "--c", "3.8", "--exit-zero").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        (), ("--c", "0"), ("--c", "-1"), ("--c", "x"), ("--rtol", "-1e-3"), ("--atol", "-1"),
        ("--rtol", ""), ("--c", "1", "--rtol", "1"), ("--c", "1", "--atol", "0"), ("--rtol", "nan"),
        ("--atol", "nan"), ("--rtol", "1", "--atol", "nan"), ("--c", "nan"),
    ],
)  # fmt: skip
def test_bad_values(said, words):
    done = judge(said, *words)
    assert done.exit_code == 2 and not done.stdout
    assert "Traceback" not in done.stderr and "rror" in done.stderr


@pytest.mark.parametrize("words", [("--c", "inf"), ("--rtol", "inf"), ("--atol", "inf")])
def test_an_infinite_tolerance_allows_all_that_has_a_size(said, words):
    assert counts(judge(said, *words))["differs"] == 0


@pytest.mark.parametrize("damage", ["missing", "csv", "cut", "another version", "no result"])
def test_what_is_no_result(said, tmp_path, damage):
    path = tmp_path / "result.json"
    if damage == "csv":
        path = said.csv
    elif damage == "cut":
        path.write_bytes(said.json.read_bytes()[:-100])
    elif damage == "another version":
        path.write_text(json.dumps({**said.result, "version": 1}))
    elif damage == "no result":
        path.write_text("{}")
    done = chains.run("judge", path, "--c", "1")
    assert done.exit_code == 2 and done.stderr.count("msaccucmp: error") == 1
    assert Path(path).name in done.stderr
