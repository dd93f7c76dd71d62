"""The first bytes of an HDF5 file: enough to say in our own words why it cannot be opened."""

from __future__ import annotations

from pathlib import Path

from .errors import DumpError

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEAD = 64  # bytes of a superblock that hold what is asked here


def check_file(path: Path) -> int:
    """Say everything about the file that needs no HDF5, so that the words can be ours.

    Returns its size in bytes. Raises DumpError when it is missing, empty, a directory, unreadable,
    truncated, or no HDF5.
    """
    try:
        if path.is_dir():
            raise DumpError("this is a directory, not a dump", path, "name the HDF5 file inside it")
        size = path.stat().st_size
        if not path.is_file():
            raise DumpError("this is not a regular file", path, "copy the dump to a file first")
        with path.open("rb") as file:
            base, head = _superblock(file.read(_HEAD), 0)
            offset = 512
            # a user block moves the superblock to 512 times a power of two
            while not head and offset + 8 <= size:
                file.seek(offset)
                base, head = _superblock(file.read(_HEAD), offset)
                offset *= 2
    except FileNotFoundError:
        raise DumpError(
            "there is no such file", path, "check the path; was the dump written?"
        ) from None
    except PermissionError:
        raise DumpError(
            "no permission to read this file", path, "change its mode or owner"
        ) from None
    except OSError as error:
        raise DumpError(
            f"this file cannot be read ({error.strerror})", path, "check the path and the disk"
        ) from None
    except ValueError as error:  # a NUL in the path
        raise DumpError(f"this is no legal path ({error})", path, "check the path") from None
    if size == 0:
        raise DumpError("this file is empty", path, "run the dump again; nothing was written")
    if not head:
        raise DumpError("this is not an HDF5 file", path, "name a file that the dumper wrote")
    end = _end_of_file(head)
    if end is not None and base + end > size:
        raise DumpError(
            f"this file is truncated: it should have {base + end} bytes and has {size}",
            path,
            "copy it again, completely; if the dump itself was cut off, run it again",
        )
    return size


def has_plain_addresses(path: Path) -> bool:
    """Whether addresses in the file are 8 bytes and count from its first byte, as in every dump."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    fields = _fields(head) if head.startswith(_SIGNATURE) else None
    return fields is not None and fields[0] == 0


def _superblock(block: bytes, offset: int) -> tuple[int, bytes]:
    return (offset, block) if block.startswith(_SIGNATURE) else (0, b"")


def _end_of_file(head: bytes) -> int | None:
    fields = _fields(head)
    if fields is None:
        return None
    base, end = fields
    return end - base if end >= base else end


def _fields(head: bytes) -> tuple[int, int] | None:
    """Base and end-of-file address (HDF5 file format 3.0, II.A); None where it is unusual."""
    if len(head) < _HEAD:
        return None
    version = head[8]
    if version in (0, 1) and head[13] == 8:
        start = 24 + (4 if version == 1 else 0)
    elif version in (2, 3) and head[9] == 8:
        start = 12
    else:
        return None
    base = int.from_bytes(head[start : start + 8], "little")
    return base, int.from_bytes(head[start + 16 : start + 24], "little")
