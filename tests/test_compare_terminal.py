"""What a terminal shows while it waits and in the end, and that a pipe gets plain text."""

import dataclasses
import io
import re
import sys
import time

import pytest
from rich.cells import cell_len

from compare import progress
from compare.columns import NOWHERE, Place
from compare.judging.verdict import Kind, Verdict
from compare.metrics import Metrics, Worst
from compare.origin import Gap, Origin
from compare.row import MEASURED, Row, Status
from compare.start import Flag, Start
from compare.summary import Summary
from compare.terminal import answer, show_missing, show_summary


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


class Chinese(Terminal):
    """One that encodes neither a bar nor a spinner."""

    encoding = "gbk"


def watched(monkeypatch, kind=Terminal, after=0.01):
    """Stderr as a stream of `kind`, set in the test itself: pytest sets its own before it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "_PROGRESS_AFTER", after)
    monkeypatch.setattr(sys, "stderr", kind())
    return sys.stderr


def until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_work_of_unknown_length_is_shown(monkeypatch):
    stream = watched(monkeypatch)
    with progress.working("opening [b]a.h5"):
        until(lambda: "opening [b]a.h5" in stream.getvalue())
    assert "opening [b]a.h5" in stream.getvalue()


def test_a_wait_for_the_first_item_is_shown(monkeypatch):
    stream = watched(monkeypatch)

    def items():
        until(lambda: "comparing" in stream.getvalue())
        yield 1

    assert list(progress.with_progress(items(), "comparing", 1)) == [1]
    assert "comparing" in stream.getvalue()


def test_what_is_quick_is_not_shown(monkeypatch):
    stream = watched(monkeypatch, after=3600)
    with progress.working("opening [b]a.h5"):
        pass
    assert list(progress.with_progress(range(3), "comparing", 3)) == [0, 1, 2]
    assert stream.getvalue() == ""


def test_a_pipe_gets_nothing(monkeypatch):
    stream = watched(monkeypatch, io.StringIO)
    with progress.working("opening [b]a.h5"):
        time.sleep(0.05)
    assert list(progress.with_progress(range(3), "comparing", 3)) == [0, 1, 2]
    assert stream.getvalue() == ""


def test_an_error_ends_what_is_shown(monkeypatch):
    stream = watched(monkeypatch)
    with pytest.raises(ZeroDivisionError), progress.working("opening [b]a.h5"):
        until(lambda: "opening" in stream.getvalue())
        raise ZeroDivisionError
    shown = stream.getvalue()
    time.sleep(0.3)  # longer than between two refreshes
    assert stream.getvalue() == shown


@pytest.mark.parametrize(("kind", "plain"), [(Terminal, False), (Chinese, True)])
def test_rate_and_share_in_signs_that_the_console_has(monkeypatch, kind, plain):
    stream = watched(monkeypatch, kind)
    monkeypatch.setattr(progress, "_BETWEEN", 0)

    def items():
        for words in ("25%", "50%", "75%", "B/s"):
            yield 1
            until(lambda words=words: words in stream.getvalue())

    assert sum(progress.with_progress(items(), "comparing", 4 << 20, lambda _: 1 << 20)) == 4
    shown = stream.getvalue()
    assert "B/s" in shown and "25%" in shown
    assert shown.isascii() is plain
    with progress.working("opening a.h5"):
        until(lambda: "opening a.h5" in stream.getvalue())
    assert stream.getvalue().isascii() is plain


ORIGIN = Origin(
    "a.h5", 1, 1, None, 0, 2, False, None, "/op/2", Gap(), Gap(2, "/op/1/output/y", "max_bytes")
)
WRONG = Verdict(Kind.DIFFERS, "beyond_rounding", "more than rounding; K=4", 2e-10, 1e-9, 5.0)
GIVEN = Verdict(Kind.INHERITED, "input_differs", "what the op was given differs")
UNTOLD = Verdict(Kind.CANNOT_TELL, "no_inputs", "the file lacks the op's inputs")


def table(monkeypatch, kind, width, again=0):
    """What `show_summary` prints of two differing rows, of which the first comes again."""
    stream = kind()
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", stream)
    summary = Summary()
    found = ((1, Worst((2, 13), -0.1234567, 98765.4321)), (2, None))
    for number, worst in (*found, *found[:1] * again):
        pair = (0.0, 0.0)
        metrics = Metrics(
            0.5, 1e-9, 0, 2.0, 0, pair, pair, 0, 0, 0, 0, 0.25, 4, worst=worst
        )  # fmt: skip
        path = f"/native_layer_norm_backward_名字/{number}/output/result"
        summary.add(
            Row(number, "op", "output", f"/op/{number}", path, path, "float32", (4,),
                Status.DIFFERS, metrics, judged=WRONG)
        )  # fmt: skip
    show_summary(ORIGIN, ORIGIN, summary)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


@pytest.mark.parametrize("width", [30, 60, 80, 110, 140, 200])
@pytest.mark.parametrize("kind", [Terminal, Chinese])
def test_the_table_fits_and_keeps_its_numbers(monkeypatch, kind, width):
    below = table(monkeypatch, kind, width).partition("rows that differ most:\n")[2]
    shown, next_line, _ = below.partition("what to do next: ")  # which is text, and wraps
    assert next_line
    assert all(cell_len(line) <= width for line in shown.splitlines())
    assert "\u2026" not in shown
    if width >= 60:
        assert "1.000000e-09" in shown and "2.000000e-10" in shown and "differs" in shown
    for words in ("[2,13]", "-0.1234567", "98765.4321"):
        assert (words in shown) is (width >= 110)


def test_a_pipe_gets_every_column_in_one_line(monkeypatch):
    shown = table(monkeypatch, io.StringIO, 40)
    (line,) = [line for line in shown.splitlines() if "/1/output/result" in line and "2,13" in line]
    assert line.split() == [
        "1", "/native_layer_norm_backward_名字/1/output/result", "differs", "5", "1.000000e-09",
        "2.000000e-10", "[2,13]", "-0.1234567", "98765.4321",
    ]  # fmt: skip
    assert "\x1b" not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


@pytest.mark.parametrize(
    ("again", "line"),
    [
        (0, ""),
        (1, "1 more has the same numbers as one of these"),
        (3, "3 more have the same numbers as one of these"),
    ],
)
def test_rows_that_are_left_out_are_counted(monkeypatch, again, line):
    shown = table(monkeypatch, io.StringIO, 80, again).splitlines()
    assert shown[-2] == line if again else "more" not in "".join(shown[-3:])
    assert shown[-1].startswith("what to do next: ")
    below = shown[shown.index("rows that differ most:") :]
    assert f"{2 + again} compared: " in shown[3] and sum("/output/" in one for one in below) == 2


def found(*rows, start=None):
    """A summary of rows: (seqid, side, verdict or None, more fields)."""
    pair = (0.0, 0.0)
    summary = Summary(start or Start())
    for seqid, side, verdict, more in rows:
        status = more.pop("status", Status.DIFFERS if verdict else Status.EQUAL)
        metrics = Metrics(0.5, 1e-9, 0, 2.0, 0, pair, pair, 0, 0, 0, 0, float(not verdict), 4)
        path = f"/op/{seqid}/{side}/x"
        row = Row(seqid, "op", side, f"/op/{seqid}", path, path, "float32", (4,), status,
                  metrics if status in MEASURED else None, judged=verdict, **more)  # fmt: skip
        summary.add(row, Place("torch.mm.0", "net.a", "x.py:3") if more.get("phase") else NOWHERE)
    return summary


def said(summary, mine=ORIGIN, golden=ORIGIN):
    return list(answer(mine, golden, summary))


EQUAL_START = (1, "input", None, {"leaf": "w"})
DAMAGED = dataclasses.replace(ORIGIN, unreadable=Gap(1, "/x", "damaged"))


@pytest.mark.parametrize(
    ("summary", "lines"),
    [
        (found(), ["nothing was compared: the two dumps have no tensor in common"]),
        (
            found(EQUAL_START, (1, "input", None, {"leaf": ""}), (2, "input", None, {"leaf": ""})),
            ["started equal: 2 inputs, 1 weight", "3 compared: 3 same,",
             "nothing differs beyond rounding"],
        ),
        (
            found((1, "input", GIVEN, {"leaf": "net.w"}), (1, "input", None, {"leaf": "net.b"}),
                  start=Start((Flag("deterministic", True, False),))),
            ["did not start equal: weights differ: 1 of 2, first net.w; "
             "deterministic True against False; what follows inherits it", "2 compared: 1 same,",
             "no op is at fault: inputs, and what the devices are known to do, explain all that "
             "differs beyond rounding"],
        ),
        (
            found(EQUAL_START, (1, "output", WRONG, {"phase": "forward"})),
            ["started equal: 1 weight", "2 compared: 1 same, 0 rounding, 0 inherited, 1 differ,",
             "first difference: torch.mm.0 (forward), op op, seqid 1, module net.a, x.py:3\n"
             "  output/x: more than rounding; K=4"],
        ),
        (
            found(EQUAL_START, (1, "output", None, {"status": Status.INCOMPARABLE,
                                                    "reasons": ("shapes differ",)}),
                  (2, "output", WRONG, {})),
            ["started equal", "2 compared", "first difference: op op, seqid 2\n",
             "before it /op/1/output/x is not as in golden: shapes differ"],
        ),
        (
            found(EQUAL_START, (1, "output", WRONG.marked(low_evidence=True), {})),
            ["started equal", "2 compared", "1 differs, of one element, which is too little"],
        ),
        (
            found(EQUAL_START, (1, "output", UNTOLD, {}),
                  (2, "output", WRONG.marked(low_evidence=True), {})),
            ["started equal", "3 compared", "1 differs, of one element, which is too little",
             "before it /op/1/output/x is not as in golden: the file lacks the op's inputs"],
        ),
        (
            found(EQUAL_START, (1, "output", UNTOLD, {}), (2, "output", UNTOLD, {})),
            ["started equal", "3 compared", "2 differ, and the files do not tell whether an op or "
             "its inputs are the cause, first /op/1/output/x: the file lacks the op's inputs"],
        ),
        (
            found(EQUAL_START, (1, "input", None, {"status": Status.ARGUMENT,
                                                   "reasons": ("arguments differ",)})),
            ["started equal", "1 compared", "nothing that was compared differs beyond rounding, "
             "but 1 could not be compared, first /op/1/input/x: arguments differ"],
        ),
    ],
)  # fmt: skip
def test_the_answer(summary, lines):
    shown = said(summary)
    assert len(shown) == len(lines)
    assert all(a.startswith(b) for a, b in zip(shown, lines, strict=True)), shown


@pytest.mark.parametrize(
    ("mine", "golden", "words"),
    [
        (DAMAGED, ORIGIN, "but 1 part of the files could not be read"),
        (ORIGIN, DAMAGED, "but 1 part of the files could not be read"),
        (DAMAGED, DAMAGED, "but 2 parts of the files could not be read"),
    ],
)
def test_what_could_not_be_read_is_no_equality(mine, golden, words):
    shown = said(found(EQUAL_START), mine, golden)
    assert shown[-1].endswith(words) and "nothing differs" not in shown[-1]


def test_in_load_mode_there_is_no_start():
    loaded = dataclasses.replace(ORIGIN, load_mode=True)
    shown = said(found((1, "output", None, {})), loaded)
    assert shown[0] == "in load mode every op ran on the recorded inputs"


def test_what_to_type_is_quoted(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    paths = (dataclasses.replace(ORIGIN, path=path) for path in ("a b.h5", "$(x)"))
    show_summary(*paths, found(EQUAL_START, (1, "output", WRONG, {})))
    last = stream.getvalue().splitlines()[-1]
    assert last.endswith("look at the op: msaccucmp show 'a b.h5' /op/1 -g '$(x)'")


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, ["has 1 unreadable part, first /x", "lacks 1 value its writer"]),
        (2, ["has 2 unreadable parts, first /x", "lacks 2 values its writer"]),
    ],
)
def test_one_is_no_plural(monkeypatch, count, words):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    gap = Gap(count, "/x", "damaged")
    show_missing("golden", dataclasses.replace(ORIGIN, finished=True, unreadable=gap, left_out=gap))
    lines = stream.getvalue().splitlines()
    assert [word in line for word, line in zip(words, lines, strict=True)] == [True, True]
