"""What a terminal shows while it waits and in the end, and that a pipe gets plain text."""

import dataclasses
import io
import re
import sys
import time

import pytest
from rich.cells import cell_len

from compare import progress
from compare.metrics import Metrics, Worst
from compare.origin import Gap, Origin
from compare.row import Row, Status
from compare.summary import Summary
from compare.terminal import show_missing, show_summary


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
                Status.DIFFERS, metrics)
        )  # fmt: skip
    show_summary(ORIGIN, ORIGIN, summary)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


@pytest.mark.parametrize("width", [30, 60, 80, 110, 140, 200])
@pytest.mark.parametrize("kind", [Terminal, Chinese])
def test_the_table_fits_and_keeps_its_numbers(monkeypatch, kind, width):
    shown = table(monkeypatch, kind, width).partition("rows that differ most:\n")[2]
    assert all(cell_len(line) <= width for line in shown.splitlines())
    assert "\u2026" not in shown
    if width >= 60:
        assert "1.000000e-09" in shown and "0.250000" in shown
    for words in ("[2,13]", "-0.1234567", "98765.4321"):
        assert (words in shown) is (width >= 110)


def test_a_pipe_gets_every_column_in_one_line(monkeypatch):
    shown = table(monkeypatch, io.StringIO, 40)
    (line,) = [line for line in shown.splitlines() if "/1/output/result" in line and "2,13" in line]
    assert line.split() == [
        "1", "/native_layer_norm_backward_名字/1/output/result", "2.000000", "1.000000e-09",
        "0.250000", "[2,13]", "-0.1234567", "98765.4321", "0.500000", "float32",
    ]  # fmt: skip
    assert "\x1b" not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


@pytest.mark.parametrize(
    ("again", "line"),
    [
        (0, ""),
        (1, "1 more differs with the same numbers as one of these"),
        (3, "3 more differ with the same numbers as one of these"),
    ],
)
def test_rows_that_are_left_out_are_counted(monkeypatch, again, line):
    shown = table(monkeypatch, io.StringIO, 80, again).splitlines()
    assert shown[-1] == line if again else "more" not in "".join(shown[-3:])
    assert f"{2 + again} rows: " in shown[2] and sum("/output/" in each for each in shown[4:]) == 2


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
