"""Files that are whole or not there: written beside their place, mode 0600, then given the name.

So a file that exists is never the half of one, and a name is never opened for writing: what a
symbolic link points to stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from dumper.errors import DumpError


def folder_with_room(folder: Path, needed: int, todo: str) -> None:
    """Make `folder` (0700 if it is missing) and see that `needed` bytes are free under it.

    todo: what to do where they are not. Raises DumpError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None
    if needed > free:
        raise DumpError(f"{needed} bytes are to be written and {free} are free", folder, todo)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path`, if that is a file, when the block ends without error.

    Raises DumpError where it cannot be written, and where a symbolic link or something that is no
    file has the name.
    """
    check_place(path)
    with _partial(path, lambda partial: os.replace(partial, path)) as file:
        yield file


def check_place(path: Path) -> None:
    """Let a file be written where there is nothing, or a file. Raises DumpError elsewhere."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        what = "a symbolic link" if path.is_symlink() else "no file"
        todo = "remove it, or name another -out"
        raise DumpError(f"what has this name is {what}, and is not replaced", path, todo)


@contextlib.contextmanager
def adding(folder: Path, stem: str, ending: str) -> Iterator[tuple[BinaryIO, list[Path]]]:
    """A new file `<stem>_<time><ending>` in `folder`; a name that exists gets a number.

    Yields the file and a list, to which the path is added once the file has its name. Raises
    DumpError where it cannot be written.
    """
    folder_with_room(folder, 0, "")
    names = stems(stem)
    found: list[Path] = []

    def publish(partial: str) -> None:
        found.extend(name_files({ending: Path(partial)}, names).values())
        Path(partial).unlink(missing_ok=True)

    with _partial(folder / f"{stem}{ending}", publish) as file:
        yield file, found


def stems(kind: str) -> Iterator[str]:
    """What a file may be called that is begun now: by its kind and the time, then numbered. Raises
    OSError after a thousand."""
    return _numbered(time.strftime(f"{kind}_%Y%m%d%H%M%S"))


def _numbered(own: str) -> Iterator[str]:
    yield own
    for attempt in range(1, 1000):
        yield f"{own}_{attempt}"
    raise OSError(f"1000 files of this second exist ({own})")


def name_files(partials: Mapping[str, Path], names: Iterable[str]) -> dict[str, Path]:
    """Give complete files the first of the names that is free for all, each with its suffix.

    partials: by suffix, in one folder; they may stay as second names. Returns the paths. Raises
    OSError.
    """
    for name in names:
        paths = {suffix: path.with_name(f"{name}{suffix}") for suffix, path in partials.items()}
        if _moved([(partials[suffix], path) for suffix, path in paths.items()]):
            return paths
    raise AssertionError("names end before an exception")


def _moved(pairs: list[tuple[Path, Path]]) -> bool:
    """Whether all files have their new names; where one of the names is taken, none has."""
    done = []
    for partial, path in pairs:
        try:
            os.link(partial, path)
        except FileExistsError:
            break
        except OSError:  # no hard links on this disk
            if os.path.lexists(path):
                break
            os.rename(partial, path)
            done.append((path, partial))
            continue
        done.append((path, None))
    else:
        return True
    for path, partial in done:
        if partial is None:
            path.unlink()
        else:
            os.rename(path, partial)
    return False


@contextlib.contextmanager
def _partial(path: Path, publish: Callable[[str], None]) -> Iterator[BinaryIO]:
    # Its name is known before it is there: an interruption at any moment leaves nothing.
    partial = path.parent / f".{os.urandom(8).hex()}.partial"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(partial, flags, 0o600), "wb") as file:
            yield file
        publish(str(partial))
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if not isinstance(error, OSError):
            raise
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: Exception) -> DumpError:
    reason = getattr(error, "strerror", None) or str(error)
    todo = "remove what is in the way, make room, or name another -out"
    return DumpError(f"this cannot be written ({reason})", path, todo)
