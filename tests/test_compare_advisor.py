"""`-advisor`: what it says is true of the rows."""

import h5py
import numpy as np
import pytest
from dumps import dump, put

from compare.advisor import Advisor, write_advice
from compare.engine import compare_dumps
from compare.summary import Summary
from dumper.errors import DumpError
from dumper.reader import open_dump

ONE, TWO = np.float32([1, 2]), np.float32([2, -1])
IN, OUT = "input/self", "output/result"


def advised(path, mine, golden, *, overflow=True):
    """The advice on two dumps of these tensors."""
    files = [dump(path / name, each) for name, each in (("m.h5", mine), ("g.h5", golden))]
    with open_dump(files[0]) as left, open_dump(files[1]) as right:
        advisor, summary = Advisor(overflow=overflow), Summary()
        for row in compare_dumps(left, right):
            advisor.add(row)
            summary.add(row)
        loaded = left.load_mode or right.load_mode
        return advisor.advice(summary, load_mode=loaded, unread=len(left.skipped))


def step(**changes):
    """Three ops in a row, each fed the one before; `changes` by path with _ for /."""
    found = {f"{op}/{i}/{side}": ONE for i, op in enumerate("abc", 1) for side in (IN, OUT)}
    for name, value in changes.items():
        op, number, side = name.split("_")
        path = f"{op}/{number}/{IN if side == 'in' else OUT}"
        found.pop(path) if value is None else found.update({path: value})
    return found


def test_nothing_wrong(tmp_path):
    advice = advised(tmp_path, step(), step())
    assert advice.lines == (
        "Detection Type: Global Consistency",
        "Operator Index: NA",
        "Expert Advice: All 6 compared tensors are equal to golden.",
    )


def test_what_explains_a_difference_is_said(tmp_path):
    golden = {f"mul/1/{IN}": ONE, f"mul/1/{OUT}": ONE * 3, f"relu/2/{IN}": ONE * 3,
              f"relu/2/{OUT}": ONE * 3}  # fmt: skip
    other = np.nextafter(ONE * 3, np.float32(9))
    mine = {**golden, f"mul/1/{OUT}": other, f"relu/2/{IN}": other, f"relu/2/{OUT}": other}
    advice = advised(tmp_path, mine, golden)
    assert (advice.detection, advice.index) == ("Global Consistency", "NA")
    assert advice.text == (
        "Of 4 compared tensors, equal to golden 1, apart by rounding 2, apart by what their inputs "
        "do 1."
    )


def test_an_ops_own_doing(tmp_path):
    """Others follow from it; the original points at the first low row too, and then guesses."""
    mine = step(b_2_out=TWO, c_3_in=TWO, c_3_out=TWO)
    advice = advised(tmp_path, mine, step())
    assert (advice.detection, advice.index) == ("Global Consistency", "2")
    assert "This output differs beyond rounding: /b/2/output/result" in advice.text
    assert "inputs are equal" in advice.text and "Look at this op first" in advice.text
    assert "CosineSimilarity 0.000000" in advice.text and "Before it" not in advice.text
    assert "3 of 6 compared tensors have no CosineSimilarity of 0.99 or more" in advice.text


def test_what_recovers_says_so(tmp_path):
    advice = advised(tmp_path, step(b_2_out=TWO), step())
    assert "1 of 6 compared" in advice.text
    assert "that of the last one is 1.000000" in advice.text


def test_an_input_from_outside(tmp_path):
    """Every op that differs had other inputs: none is shown to be the cause."""
    mine = step(a_1_in=TWO, a_1_out=TWO, b_2_in=TWO, b_2_out=TWO, c_3_in=TWO, c_3_out=TWO)
    advice = advised(tmp_path, mine, step())
    assert (advice.detection, advice.index) == ("Input Inconsistent", "1")
    assert "did not start equal, first an input from outside: /a/1/input/self" in advice.text
    assert "What follows inherits it" in advice.text and "An output" not in advice.text


def test_an_input_from_outside_and_an_ops_own_doing(tmp_path):
    mine = step(a_1_in=TWO, a_1_out=TWO, c_3_out=TWO)
    advice = advised(tmp_path, mine, step())
    assert (advice.detection, advice.index) == ("Input Inconsistent", "1")
    assert "first an input from outside: /a/1/input/self" in advice.text
    assert "An output differs beyond that: /c/3/output/result" in advice.text


def test_inherited_after_what_has_no_partner(tmp_path):
    mine = {f"x/1/{OUT}": ONE, **step(b_2_in=TWO, b_2_out=TWO)}
    golden = {f"y/1/{OUT}": ONE, **step()}
    advice = advised(tmp_path, mine, golden)
    assert (advice.detection, advice.index) == ("Global Consistency", "1")
    assert "No data match with op:x" in advice.text
    assert "No op is shown to be at fault" in advice.text


def test_what_has_no_partner_before_an_ops_own_doing(tmp_path):
    mine = {f"x/1/{OUT}": ONE, **step(b_2_out=TWO)}
    golden = {f"y/1/{OUT}": ONE, **step()}
    advice = advised(tmp_path, mine, golden)
    assert advice.index == "2" and "/b/2/output/result" in advice.text
    assert "Before it, another row is not as in golden: /x/1 (No data match" in advice.text


def test_without_inputs_no_op_is_blamed(tmp_path):
    """An `input` group, or else it would be load mode; but nothing of it is compared."""
    tensors = [
        {f"a/1/{OUT}": ONE, f"b/2/{OUT}": value, f"{only}/3/{IN}": ONE}
        for value, only in ((TWO, "m"), (ONE, "g"))
    ]
    advice = advised(tmp_path, *tensors)
    assert advice.index == "2" and "No op is shown to be at fault" in advice.text
    assert "/b/2/output/result" in advice.text and "rounding" not in advice.text


def test_in_load_mode_an_output_is_its_ops_own(tmp_path):
    mine = {f"a/1/{OUT}": ONE, f"b/2/{OUT}": TWO}
    advice = advised(tmp_path, mine, {**step(), **{f"b/2/{OUT}": ONE}})
    assert advice.index == "2" and "inputs are equal" in advice.text
    assert "Look at this op first" in advice.text


def test_a_shape_is_a_finding_too(tmp_path):
    advice = advised(tmp_path, step(b_2_out=ONE.reshape(1, 2)), step())
    assert advice.index == "2" and "shapes differ: [1, 2] in my dump, [2] in golden" in advice.text


@pytest.mark.parametrize(
    ("mine", "golden", "words"),
    [
        ({f"a/1/{OUT}": ONE}, {f"b/1/{OUT}": ONE}, "Nothing could be measured"),
        ({f"a/1/{IN}": ONE}, {f"a/1/{IN}": ONE.reshape(1, 2)}, "shapes differ"),
    ],
)
def test_nothing_comparable(tmp_path, mine, golden, words):
    advice = advised(tmp_path, mine, golden)
    assert advice.index == "1" and words in advice.text and "0.99" not in advice.text


def test_no_row_at_all(tmp_path):
    advice = Advisor().advice(Summary(), load_mode=False)
    assert advice.index == "NA" and advice.text.startswith("Nothing was compared")


def test_what_could_not_be_read_is_not_passed_over(tmp_path):
    advice = Advisor().advice(Summary(), load_mode=False, unread=3)
    assert advice.text.endswith(" 3 parts of the files could not be read.")


HALF = np.array([1, 2], "f2")


@pytest.mark.parametrize("value", [65504, -65504, np.inf, -np.inf])
def test_float16_that_overflows_in_mine_only(tmp_path, value):
    high = np.array([1, value], "f2")
    mine = step(b_2_out=high, c_3_in=high)
    advice = advised(tmp_path, mine, step(b_2_out=HALF, c_3_in=HALF))
    assert (advice.detection, advice.index) == ("FP16 Overflow", "2")
    assert "/b/2/output/result" in advice.text and "2.000000 in golden" in advice.text
    assert "The first row" not in advice.text


def test_what_differs_before_an_overflow_is_named(tmp_path):
    mine = step(a_1_out=TWO, b_2_out=np.array([1, 65504], "f2"))
    advice = advised(tmp_path, mine, step(b_2_out=HALF))
    assert advice.index == "2" and "/a/1/output/result" in advice.text


@pytest.mark.parametrize(
    ("mine", "golden", "overflow"),
    [
        (np.array([1, 65472], "f2"), HALF, True),
        (np.array([1, np.inf], "f2"), np.array([2, np.inf], "f2"), True),
        (np.array([1, 7e4], "f4"), np.array([1, 2], "f4"), True),
        (np.array([1, np.inf], "f2"), HALF, False),
    ],
)
def test_what_is_no_overflow(tmp_path, mine, golden, overflow):
    """Below the end, on both sides (a mask), of another dtype, or not asked for."""
    advice = advised(tmp_path, step(b_2_out=mine), step(b_2_out=golden), overflow=overflow)
    assert (advice.detection, advice.index) == ("Global Consistency", "2")


def test_the_file_is_three_inert_lines_in_place_of_older_ones(tmp_path):
    name = "a\x1b[31m\nb"
    for path, value in ((tmp_path / "m.h5", TWO), (tmp_path / "g.h5", ONE)):
        with h5py.File(path, "w") as file:
            put(file, f"{name}/1/output/x", value)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "advisor_summary.txt").write_text("x\n" * 9)
    with open_dump(tmp_path / "m.h5") as left, open_dump(tmp_path / "g.h5") as right:
        advisor, summary = Advisor(), Summary()
        for row in compare_dumps(left, right):
            advisor.add(row)
            summary.add(row)
    advice = advisor.advice(summary, load_mode=True)
    path = write_advice(advice, tmp_path / "out")
    text = path.read_text(encoding="utf-8")
    assert text.splitlines() == list(advice.lines) and text.count("\n") == 3
    assert "\x1b" not in text and "a\\x1b[31m\\nb" in text
    assert path == tmp_path / "out" / "advisor_summary.txt" and path.stat().st_mode & 0o777 == 0o600


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "other").write_text("mine")
    (tmp_path / "advisor_summary.txt").symlink_to(tmp_path / "other")
    with pytest.raises(DumpError, match="symbolic link"):
        write_advice(Advisor().advice(Summary(), load_mode=False), tmp_path)
    assert (tmp_path / "other").read_text() == "mine"
