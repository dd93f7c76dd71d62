"""What a terminal shows while it waits, and that a pipe gets none of it."""

import io
import sys
import time

import pytest

from compare import terminal


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def watched(monkeypatch, kind=Terminal, after=0.01):
    """Stderr as a stream of `kind`, set in the test itself: pytest sets its own before it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(terminal, "_PROGRESS_AFTER", after)
    monkeypatch.setattr(sys, "stderr", kind())
    return sys.stderr


def until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_work_of_unknown_length_is_shown(monkeypatch):
    stream = watched(monkeypatch)
    with terminal.working("opening [b]a.h5"):
        until(lambda: "opening [b]a.h5" in stream.getvalue())
    assert "opening [b]a.h5" in stream.getvalue()


def test_a_wait_for_the_first_item_is_shown(monkeypatch):
    stream = watched(monkeypatch)

    def items():
        until(lambda: "comparing" in stream.getvalue())
        yield 1

    assert list(terminal.with_progress(items(), "comparing", 1)) == [1]
    assert "comparing" in stream.getvalue()


def test_what_is_quick_is_not_shown(monkeypatch):
    stream = watched(monkeypatch, after=3600)
    with terminal.working("opening [b]a.h5"):
        pass
    assert list(terminal.with_progress(range(3), "comparing", 3)) == [0, 1, 2]
    assert stream.getvalue() == ""


def test_a_pipe_gets_nothing(monkeypatch):
    stream = watched(monkeypatch, io.StringIO)
    with terminal.working("opening [b]a.h5"):
        time.sleep(0.05)
    assert list(terminal.with_progress(range(3), "comparing", 3)) == [0, 1, 2]
    assert stream.getvalue() == ""


def test_an_error_ends_what_is_shown(monkeypatch):
    stream = watched(monkeypatch)
    with pytest.raises(ZeroDivisionError), terminal.working("opening [b]a.h5"):
        until(lambda: "opening" in stream.getvalue())
        raise ZeroDivisionError
    shown = stream.getvalue()
    time.sleep(0.3)  # longer than between two refreshes
    assert stream.getvalue() == shown
