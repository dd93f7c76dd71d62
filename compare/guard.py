"""The program in a process of its own, so that somebody is left to say why it ended.

HDF5 has crashes and endless loops on damaged files (some in a thousand of those that scripts/fuzz
makes), and Linux kills who takes too much memory. None of that can be caught where it happens. So a
child does the work, and the parent waits, hands on the signals that are meant for it, and ends as
the child did, or says what ended it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from dumper import patience
from dumper.errors import DumpError

SECONDS = 10
"""How long HDF5 may take for one thing."""

_PR_SET_PDEATHSIG = 1
_MEANT_FOR_US = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_CRASHES = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGILL}


def guarded(program: Callable[[], None], fail: Callable[[str], NoReturn]) -> None:
    """Run `program`, which ends with sys.exit, in a child, and exit as it did.

    fail: prints a block and exits with 2. Elsewhere than on Linux the program runs here.
    """
    if sys.platform != "linux":
        program()
        return
    waited = {*_MEANT_FOR_US, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    parent = os.getpid()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before
            os._exit(2)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        patience.limit(SECONDS)
        program()
        return
    status = _wait(child, waited)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)  # what was to be written the child has written
    _explain(-code, fail)


def _wait(child: int, waited: set[signal.Signals]) -> int:
    while True:
        found = signal.sigwaitinfo(waited)
        if found.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif found.si_code <= 0:  # from a process; the terminal's go to the child by themselves
            os.kill(child, found.si_signo)


def _explain(number: int, fail: Callable[[str], NoReturn]) -> NoReturn:
    name = signal.Signals(number).name
    if number == signal.SIGBUS:
        what = f"one of these files became shorter while it was read ({name})"
    elif number in _CRASHES:
        what = f"the HDF5 library itself fails on what one of these files holds ({name})"
    elif number == signal.SIGALRM:
        what = f"the HDF5 library does not come to an end with one of these files ({SECONDS} s)"
    elif number == signal.SIGKILL:
        what = "this was killed (SIGKILL), perhaps because the machine ran out of memory"
    else:
        what = f"this was ended by {name}"
    todo = (
        "look for damage with info --verify, dump again, or use a machine with more memory; "
        "compare goes on from here with --resume"
    )
    fail(str(DumpError(what, "the files that the command names", todo)))
