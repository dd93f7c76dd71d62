"""What every command of `msaccucmp` shares: errors as one block, exit status like diff.

0: nothing differs. 1: something differs or has no partner. 2: trouble.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from dumper.errors import DumpError

if TYPE_CHECKING:
    from dumper.reader import Dump

TROUBLE = 2
"""Exit status of what went wrong, whatever the dumps hold."""


class Program(click.Group):
    """A group whose commands return their exit status and whose errors are one block on stderr."""

    def main(self, *args: object, **options: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # no console may fail on a name it cannot show
                stream.reconfigure(errors="backslashreplace")
        options["standalone_mode"] = False
        try:
            status = super().main(*args, **options) or 0
            sys.stdout.flush()  # not at exit, where a full disk would be a traceback
        except DumpError as error:
            fail(str(error))
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), file=sys.stderr)
            sys.exit(TROUBLE)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else "msaccucmp"
            fail(f"{error.format_message()}\n  what to do: see {command} --help")
        except click.ClickException as error:
            fail(error.format_message())
        except (click.Abort, KeyboardInterrupt):
            fail("interrupted")
        except SystemExit:  # how click and rich answer a pipe that nobody reads
            _fail_output("nobody reads it any more")
        except OSError as error:
            reason = error.strerror or str(error)
            if error.filename is None:  # what is written to has no name here
                _fail_output(reason)
            fail(str(DumpError(reason, error.filename, "check the path and the disk")))
        except MemoryError:
            fail("there is not enough memory\n  what to do: free some, or use another machine")
        except Exception as error:  # noqa: BLE001 - the top of the program: status 1 means "differs"
            fail(_unexpected(error))
        sys.exit(status)


def say(text: str) -> None:
    """Print a line on stdout."""
    # click would put a UTF-8 writer of its own over an ASCII console
    click.echo(text, file=sys.stdout)


def complain(block: str) -> None:
    """Print an error on stderr."""
    click.echo(f"msaccucmp: error: {block}", file=sys.stderr)


def fail(block: str) -> NoReturn:
    """Print an error on stderr, and end with the status of trouble."""
    with contextlib.suppress(OSError):  # stderr is full or closed: nobody is left to tell
        complain(block)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what is left in it would be written again at exit, and fail again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(TROUBLE)


def _fail_output(reason: str) -> NoReturn:
    error = DumpError(
        f"the output cannot be written ({reason})",
        "standard output or standard error",
        "make room, or send it elsewhere; files written before are complete",
    )
    fail(str(error))


def _unexpected(error: Exception) -> str:
    *_, frame = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frame.filename).parent.name}/{Path(frame.filename).name}, line {frame.lineno}"
    what = f"unexpected {type(error).__name__}: {error}"
    return str(DumpError(what, place, "please report this, with the command that you gave"))


def ready_loops() -> None:
    """Have the compiled loops at hand; where they must be compiled first, say why it takes long."""
    from .native import is_ready, loops
    from .progress import working

    if is_ready():
        loops()
    else:
        with working("compiling for this processor, which is kept for the next time"):
            loops()


def no_records(dump: Dump) -> DumpError:
    """What to say of a file in which nothing was found."""
    seen = f"; {dump.skipped[0][0]}: {dump.skipped[0][1]}" if dump.skipped else ""
    return DumpError(
        f"there is no record in this file{seen}",
        dump.path,
        "name a file that the dumper wrote; groups are /<IR>/<seqid>/input|output",
    )
