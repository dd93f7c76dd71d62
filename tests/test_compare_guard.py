"""What ends the process that does the work is said by the one that waits for it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there the work has a child")


def started(program: str) -> subprocess.Popen:
    """A guarded program, which is Python code."""
    code = f"""
import os, signal, sys, time
from compare.guard import guarded
from compare.program import fail
from dumper import patience
def program():
{chr(10).join("    " + line for line in program.splitlines())}
    sys.exit(0)
guarded(program, fail)
"""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize("status", [0, 1, 2, 7])
def test_it_ends_as_the_work_did(status):
    work = started(f"print('done'); sys.exit({status})")
    assert work.communicate() == ("done\n", "")
    assert work.returncode == status


CRASHES = {
    "SIGSEGV": "the HDF5 library itself fails",
    "SIGFPE": "the HDF5 library itself fails",
    "SIGABRT": "the HDF5 library itself fails",
    "SIGALRM": "does not come to an end",
    "SIGKILL": "ran out of memory",
    "SIGUSR1": "was ended by SIGUSR1",
}


@pytest.mark.parametrize(("name", "words"), CRASHES.items(), ids=list(CRASHES))
def test_a_crash_is_one_message(name, words):
    work = started(f"os.kill(os.getpid(), signal.{name})")
    out, error = work.communicate()
    assert (work.returncode, out) == (2, "")
    assert words in error and error.startswith("msaccucmp: error: ") and "Traceback" not in error


def test_who_goes_round_for_ever_is_ended():
    work = started("patience.limit(0.2)\nwith patience.patience: time.sleep(60)")
    assert "does not come to an end" in work.communicate()[1]
    assert work.returncode == 2


def test_who_ends_in_time_is_not():
    work = started("patience.limit(5)\nwith patience.patience: pass\ntime.sleep(0.3)")
    assert work.communicate() == ("", "") and work.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_work_once(number):
    work = started(
        f"seen = []\nsignal.signal({int(number)}, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\nwhile not seen: time.sleep(0.01)\n"
        "time.sleep(0.2); print(len(seen)); sys.exit(5)"
    )
    assert work.stdout.readline() == "ready\n"
    work.send_signal(number)
    assert work.communicate()[0] == "1\n"
    assert work.returncode == 5


def test_the_work_ends_with_who_waits():
    work = started("print(os.getpid(), flush=True)\ntime.sleep(60)")
    child = int(work.stdout.readline())
    assert child != work.pid
    work.kill()
    work.wait()
    until = time.monotonic() + 20
    while Path(f"/proc/{child}").exists() and _state(child) != "Z":
        assert time.monotonic() < until
        time.sleep(0.02)


def _state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"
