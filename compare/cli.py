"""The command `msaccucmp`: its commands put together, and the start of the program.

Options are spelt as the original writes them. Numba and the rest are imported by the command that
needs them, so that `--help` and `convert` answer at once.
"""

from __future__ import annotations

import os
import signal
import sys

import click

from .commands.compare import compare
from .commands.dumps import convert, h5copy, info, show
from .commands.files import file_compare
from .commands.ir2tbe import ir2tbe
from .commands.ops import ops
from .commands.overflow import overflow
from .commands.replay import replay
from .commands.results import judge, report
from .guard import guarded
from .program import Program, fail


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Compare, convert and take apart dumps of PyTorch operators."""


for _command in (
    compare,
    convert,
    file_compare,
    h5copy,
    info,
    ir2tbe,
    judge,
    ops,
    overflow,
    replay,
    report,
    show,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line."""
    _open_streams()
    for name in ("SIGTERM", "SIGHUP"):  # clean up as after Ctrl-C
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    guarded(lambda: cli.main(prog_name="msaccucmp"), fail)


def _open_streams() -> None:
    """Give what the shell closed (`>&-`) a stream that fails when it is written to.

    Without one, the first file that is opened would be standard output.
    """
    while (number := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)
