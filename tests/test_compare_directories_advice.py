"""-advisor on folders of CANN dumps: three lines, each of them true of the rows."""

import numpy as np
import pytest
from folders import put, rows, run, save

X = np.arange(1, 13, dtype="f4").reshape(3, 4)
HALF = X.astype("f2")


def lines(tmp_path):
    said = (tmp_path / "out" / "advisor_summary.txt").read_text().splitlines()
    return [line.partition(": ")[2] for line in said]


def nets(tmp_path, mine, golden=((X, X), (X, X + 1))):
    """Operators a and b by their inputs and outputs."""
    for side, ops in (("m", mine), ("g", golden)):
        for at, (taken, made) in enumerate(ops):
            put(tmp_path / side, at, "Relu", "ab"[at], [taken], [made])
    return tmp_path / "m", tmp_path / "g", tmp_path / "out", "-advisor"


def test_an_operator_that_parts(tmp_path):
    done = run(*nets(tmp_path, ((X, X), (X, X - 9))))
    kind, index, text = lines(tmp_path)
    assert (kind, index) == ("Global Consistency", "2")
    assert "the inputs of its operator do not: b:output:0" in text
    assert "1 of 4 compared tensors have no CosineSimilarity of 0.99 or more" in text
    assert done.exit_code == 1 and done.stdout.splitlines()[-1].startswith("result: ")
    assert f"Detection Type: {kind}" in done.stdout and "advice: " in done.stdout


def test_what_was_off_before(tmp_path):
    run(*nets(tmp_path, ((X, X + 1), (X + 1, X + 2))))
    kind, index, text = lines(tmp_path)
    assert (kind, index) == ("Global Consistency", "1") and "a:output:0" in text
    assert "adds most" not in text


def test_an_input_that_no_operator_made_wrong(tmp_path):
    run(*nets(tmp_path, ((X + 1, X + 1), (X + 1, X + 2))))
    kind, index, text = lines(tmp_path)
    assert (kind, index) == ("Input Inconsistent", "1") and "a:input:0" in text


def test_all_is_equal_or_has_no_partner(tmp_path):
    assert run(*nets(tmp_path, ((X, X), (X, X + 1)))).exit_code == 0
    assert lines(tmp_path) == [
        "Global Consistency", "NA", "Nothing that was compared differs: 4 tensors."
    ]  # fmt: skip
    put(tmp_path / "m", 7, "Add", "more", [X], [X])
    assert run(*nets(tmp_path, (), ())).exit_code == 1
    assert lines(tmp_path)[2].endswith("Others have no partner: see the csv.")


def test_nothing_in_common(tmp_path):
    put(tmp_path / "m", 0, "Add", "a", [X], [X])
    put(tmp_path / "g", 0, "Mul", "b", [X], [X])
    run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-advisor")
    assert lines(tmp_path)[1] == "NA" and "Nothing was compared" in lines(tmp_path)[2]


@pytest.mark.parametrize("looked_for", [True, False])
def test_an_overflow_goes_first(tmp_path, looked_for):
    large = HALF.copy()
    large[1, 1] = np.inf
    more = ["-overflow_detection"] * looked_for
    done = run(*nets(tmp_path, ((HALF, HALF), (HALF, large)), ((HALF, HALF), (HALF, HALF))), *more)
    kind, index, text = lines(tmp_path)
    assert index == "2" and kind == ("FP16 Overflow" if looked_for else "Global Consistency")
    assert ("65504" in text) is looked_for and ("OverFlow" in rows(done)[0]) is looked_for


def test_outputs_alone(tmp_path):
    """npy files are golden for outputs: nothing is known of inputs."""
    mine, _, out, _ = nets(tmp_path, ((X, X), (X, X)))
    for name in "ab":
        save(tmp_path / "npy", f"{name}.0.npy", X + (name == "b"))
    run(mine, tmp_path / "npy", out, "-advisor")
    kind, index, text = lines(tmp_path)
    assert (kind, index) == ("Global Consistency", "2")
    assert text.startswith("No operator is seen to part from equal inputs. The first row with a f")


def test_what_cannot_be_written_costs_nothing_else(tmp_path):
    arguments = nets(tmp_path, ((X, X), (X, X)))
    (tmp_path / "out" / "advisor_summary.txt").mkdir(parents=True)
    done = run(*arguments)
    assert done.exit_code == 2 and len(rows(done)) == 4 and "advisor_summary" in done.stderr
