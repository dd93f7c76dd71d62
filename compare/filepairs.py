"""Two files, or two directories of npy files, as rows: what pairs, what has no partner, numbers.

Tensors pair by name, files of directories by their path below them. A name that `convert` gave,
`<IR>.<seqid>.<input|output>.<arg>.npy`, says which record it is of: such rows come first, in the
order of execution; all others come in natural order (t2 before t10). A file that cannot be read
costs its row and no other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dumper.errors import DumpError

from .arrays import in_place_of
from .comparing import ALL, Options, measure_arrays, notes_of, obstacle, status_of
from .files import FileTensor, tensors_in
from .row import Row, Status

_CONVERTED = re.compile(r"(?:.*/)?([A-Za-z0-9_]+)\.([0-9]{1,18})\.(input|output)\.[A-Za-z0-9_.]+$")
_IN_DUMP = re.compile(r"^((?:shapes|dtypes|NaN or infinite)\b.*?) in my dump")
_DIGITS = re.compile(r"([0-9]+)")

Source = FileTensor | Path | DumpError | None
"""A side of a row: a tensor, the npy that holds it, why there is none to be had, or nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row comes, and what it is of."""

    index: int
    op: str
    side: str | None = None
    record_path: str | None = None


def rows_of_files(mine: Path, golden: Path) -> tuple[int, Iterator[Row]]:
    """How many rows two files have, and the rows.

    Two files of one tensor each are a pair, whatever the tensors are called. Raises DumpError,
    before any row, for a file that cannot be read.
    """
    left, right = tensors_in(mine), tensors_in(golden)
    if len(left) == len(right) == 1:
        ((name, a),), (b,) = left.items(), right.values()
        row = _new_row(Place(1, name), (str(mine), str(golden)))
        return 1, iter([measured(row, a, b)])
    return _rows(left, right)


def rows_of_folders(mine: Path, golden: Path) -> tuple[int, Iterator[Row]]:
    """How many rows two directories have, and the rows.

    Raises DumpError, before any row, where one has no npy file.
    """
    return _rows(*(some_npy_files(root) for root in (mine, golden)))


def some_npy_files(root: Path) -> dict[str, Path | DumpError]:
    """What `npy_files` finds. Raises DumpError where there is none."""
    found = npy_files(root)
    if not any(isinstance(one, Path) for one in found.values()):
        what = "there is no npy file in this directory, and no CANN dump file"
        raise DumpError(what, root, "name one that has some, as msaccucmp convert makes them")
    return found


def _rows(mine: Mapping[str, Source], golden: Mapping[str, Source]) -> tuple[int, Iterator[Row]]:
    places = list(_places(mine.keys() | golden.keys()))
    return len(places), (row_of(p, (n, n), (mine.get(n), golden.get(n))) for n, p in places)


def _places(names: set[str]) -> Iterator[tuple[str, Place]]:
    """Names in the order of their rows; what is of no record gets the numbers after the last."""
    records, others = [], []
    for name in names:
        found = _CONVERTED.match(name.removesuffix(".npy"))
        if found:
            ir, number, side = found.groups()
            folder = name[: found.start(1)]
            place = Place(int(number), ir, side, f"{folder}/{ir}/{number}")
            records.append((folder, place.index, side, natural(name), name, place))
        else:
            others.append((natural(name), name))
    last = max((place.index for *_, place in records), default=0)
    for *_, name, place in sorted(records, key=lambda record: record[:5]):
        yield name, place
    for number, (_, name) in enumerate(sorted(others), last + 1):
        yield name, Place(number, name)


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts t2 before t10."""
    return [
        (int(part), "") if part.isdecimal() and part.isascii() else (-1, part)
        for part in _DIGITS.split(name)
    ]


def row_of(place: Place, names: tuple[str, str], sources: tuple[Source, Source]) -> Row:
    """The row of a pair; of what has no partner, or could not be found out, with its reason.

    names: what my side and golden's are called, or would be.
    """
    paths = [None if s is None else name for s, name in zip(sources, names, strict=True)]
    row = _new_row(place, paths)
    for one in sources:
        if isinstance(one, DumpError):
            return _failed(row, one)
    if None in sources:
        missing = sources.index(None)
        reason = f"No data match with {names[missing]} in {('my', 'golden')[missing]} dump data."
        return row._replace(status=Status.UNPAIRED, reasons=(reason,))
    try:
        a, b = (next(iter(tensors_in(s).values())) if isinstance(s, Path) else s
                for s in sources)  # fmt: skip
        return measured(row, a, b)
    except DumpError as error:
        return _failed(row, error)
    except MemoryError:
        return row._replace(reasons=(f"not enough memory to compare {names[0]}",))


def _new_row(place: Place, paths: Sequence[str | None]) -> Row:
    return Row(
        place.index, place.op, place.side, place.record_path, *paths, None, None,
        Status.INCOMPARABLE, None,
    )  # fmt: skip


def _failed(row: Row, error: DumpError) -> Row:
    return row._replace(reasons=(f"{error.what}: {error.where}",))


def measured(row: Row, mine: FileTensor, golden: FileTensor, options: Options = ALL) -> Row:
    """The row with its numbers, or with why it has none.

    What a bare text does not say is taken from the other side. Of the options `skip` has no meaning
    here. Raises DumpError for values that cannot be read.
    """
    taken: tuple[str, ...] = ()
    if mine.bare != golden.bare:
        bare, other = (mine, golden) if mine.bare else (golden, mine)
        filled = in_place_of(bare, other)
        if filled is not None:
            taken = (f"{bare.path} says neither dtype nor shape and is read as the other side's",)
            mine, golden = (filled, golden) if mine.bare else (mine, filled)
    reason = obstacle(mine, golden, (None, None))
    if reason:
        return row._replace(reasons=(_of_files(reason),))
    metrics, custom, failed = measure_arrays(mine.read(), golden.read(), options)
    notes = (*map(_of_files, notes_of(mine, golden, metrics)), *taken)
    return row._replace(
        dtype=mine.dtype,
        shape=mine.shape,
        status=status_of(metrics, mine.dtype == golden.dtype),
        metrics=metrics,
        reasons=(*notes, *filter(None, failed)),
        custom=custom,
    )


def _of_files(reason: str) -> str:
    """What is said of a pair of tensors, where they are in no dump; paths in it stay."""
    return _IN_DUMP.sub(r"\1 in mine", reason)


def npy_files(root: Path) -> dict[str, Path | DumpError]:
    """The npy files below a directory by their path there, and what keeps others from being read.

    Links to directories are not followed, nor is a link to a file that lies elsewhere.
    """
    home, found, folders = root.resolve(), {}, [("", root)]
    while folders:
        above, folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = above + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((f"{name}/", Path(entry.path)))
                    elif entry.is_symlink():
                        found |= _linked(name, Path(entry.path), home)
                    elif name.endswith(".npy"):
                        found[name] = Path(entry.path)
        except OSError as error:
            what = f"this directory cannot be read ({error.strerror})"
            found[above] = DumpError(what, folder, "check its mode")
    return found


def _linked(name: str, path: Path, home: Path) -> dict[str, Path | DumpError]:
    """What a symbolic link in a directory stands for."""
    try:
        target = path.resolve(strict=True)
        if target.is_dir():
            name, what = f"{name}/", "a link to a directory is not followed"
        elif not name.endswith(".npy"):
            return {}
        elif target.is_relative_to(home):
            return {name: path}
        else:
            what = "a link to a file elsewhere is not followed"
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        what = "this link leads nowhere"
    return {name: DumpError(what, path, "copy what it names into the directory")}
