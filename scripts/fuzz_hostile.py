"""Files that are sound HDF5 and mean harm: written with h5py, for scripts/fuzz and its tests.

Each function of HOSTILE adds one such thing to an open dump, below /op/9 or beside it. What a
reader must never reach lies in the file SECRET beside the dump, whose values are MARK.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from fuzz_bytes import NAMES
from h5py import h5a, h5d, h5g, h5s, h5t

SECRET = "secret.h5"
MARK = np.float32(1234577.0)
"""Survives being printed with six digits or more; no other value of any seed is near it."""

PLACES = ("op/9/output/x", "op/9/output/list/list_0", "op/9/input/x", "op/9/output", "op/9", "op9")
_SMALL = 1 << 20
NUMBERS = (0, -1, 1, 2**31, 2**62, -(2**63), 32, 99)
VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**64, 10**40, -(10**300), 1e400, -0.0, 1.5, "", "\0",
    "\x1b[31m", "a\nb", "=1+1", "../x", "\ud800", "名", "x" * 5000, [], {}, [[]], [0], [-1],
    [2**70], {"complex": [1, 2]}, "input/self", "float32", "view", "forward", "op", "a.b" * 400,
    "." * 50,
)  # fmt: skip


def secret(folder: Path) -> None:
    """Write the file that must not be read."""
    with h5py.File(folder / SECRET, "w") as file:
        file["x"] = np.full(64, MARK)
        file["x"].attrs["Type"] = np.int32(0)
    (folder / "secret.bin").write_bytes(np.full(64, MARK).tobytes())


def as_tensor(data: h5py.Dataset, dice: random.Random) -> None:
    """Give a dataset a tensor's attributes, some of them false."""
    kind = dice.choice((0, 0, 0, 0, *range(1, 19), *range(100, 111), *NUMBERS))
    data.attrs["Type"] = np.int64(kind)
    for name in ("DataType", "DeviceType", "FormatType"):
        if dice.random() < 0.7:
            data.attrs[name] = np.int64(dice.choice((*range(12), *NUMBERS)))
    for name in ("Stride", "LiveStride", "LiveOffset"):
        if dice.random() < 0.4:
            sizes = [dice.choice((1, 2, 3, 0, *NUMBERS)) for _ in range(dice.randrange(4))]
            data.attrs[name] = np.array(sizes, np.int64)
    if dice.random() < 0.3:
        names = (b"bfloat16", b"float8_e4m3fn", b"complex32", b"bool", b"uint64", *NAMES)
        data.attrs["TorchDType"] = np.bytes_(dice.choice(names) or b"x")


def links(file: h5py.File, dice: random.Random) -> None:
    """Soft and external links, at any depth, out of the file, to nothing, in a circle."""
    target = dice.choice((
        h5py.SoftLink("/"), h5py.SoftLink("/op/9"), h5py.SoftLink("/nowhere"),
        h5py.ExternalLink(SECRET, "/x"), h5py.ExternalLink("/etc/passwd", "/"),
        h5py.ExternalLink(Path(file.filename).name, "/"), h5py.ExternalLink("../" + SECRET, "/x"),
    ))  # fmt: skip
    path = dice.choice((*PLACES, "_torch_dumper/0/index", "_torch_dumper/0", "_torch_dumper"))
    file.pop(path, None)
    file[path] = target


def loops(file: h5py.File, dice: random.Random) -> None:
    """Groups that hold themselves, or each other thirty times over."""
    group = file.require_group(dice.choice(("op/9/output/list", "op/9/output", "op/9", "op")))
    if dice.random() < 0.5:
        group["9"] = dice.choice((group, file["/"], group.parent))
        return
    below = file.create_group(None)
    for _ in range(30):
        above = file.create_group(None)
        above["a"], above["b"], below = below, below, above
    group["tower"] = below


def elsewhere(file: h5py.File, dice: random.Random) -> None:
    """Datasets whose values lie in another file."""
    path = dice.choice((*PLACES[:3], "_torch_dumper/0/index"))
    file.pop(path, None)
    if dice.random() < 0.5:
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(dice.choice((SECRET, ".", "/etc/passwd")), "x", (64,))[:4]
        data = file.create_virtual_dataset(path, layout)
    else:
        where = dice.choice(("secret.bin", "/etc/passwd", "../secret.bin"))
        data = file.create_dataset(path, (4,), "f4", external=[(where, 0, 16)])
    as_tensor(data, dice)
    if path.endswith("index"):
        data.attrs["Type"] = np.int32(110)


def shapes(file: h5py.File, dice: random.Random) -> None:
    """Shapes that claim more than the file holds, or are odd."""
    shape = tuple(
        dice.choice((0, 1, 2, 3, 7, 2**20, 2**31, 2**40, 2**62))
        for _ in range(dice.choice((0, 1, 1, 2, 3, 32)))
    )
    how: dict[str, Any] = {}
    if shape and dice.random() < 0.5:
        how["chunks"] = tuple(dice.choice((1, 2, 3)) for _ in shape)
        how["compression"] = dice.choice((None, "gzip", "lzf"))
        how["shuffle"] = dice.random() < 0.3
    dtype = dice.choice(("f4", "i1", "f8", "c8", "?", "f2", h5py.string_dtype()))
    with contextlib.suppress(ValueError, TypeError, OSError):  # HDF5 itself refuses some
        data = file.create_dataset(dice.choice(PLACES[:3]), shape, dtype, **how)
        as_tensor(data, dice)
        # what is not in chunks would make the file as large as it claims to be
        if 0 not in shape and (data.chunks or data.nbytes < _SMALL) and dice.random() < 0.5:
            data[(0,) * len(shape)] = 1


def bombs(file: h5py.File, dice: random.Random) -> None:
    """Attributes by the thousand, or large, or of the wrong kind, where ours are looked for."""
    with contextlib.suppress(KeyError):
        del file["op/9/output/x"]
    data = file.create_dataset("op/9/output/x", data=np.ones(3, "f4"))
    as_tensor(data, dice)
    name = dice.choice(("Type", "Stride", "DataType", "TorchDType", "LiveStride", "Environment"))
    node = file["/"] if name == "Environment" else data
    way = dice.randrange(5)
    if way == 0:
        for i in range(dice.choice((9, 3000))):  # past h5py, which takes long for many
            h5a.create(node.id, b"%s%d" % (name.encode(), i), h5t.STD_I64LE, h5s.create(h5s.SCALAR))
    elif way == 1:
        node.attrs[name] = np.zeros(dice.choice((100, 8000)), "i8")
    elif way == 2:
        node.attrs.create(name, "x" * dice.choice((10, 5_000_000)))  # variable length: in a heap
    elif way == 3:
        odd = (h5py.Empty("f4"), np.void(b"abc"), ["a", "b"], np.ones((2, 2)), 1 + 2j, file.ref)
        node.attrs[name] = dice.choice(odd)
    else:
        node.attrs[name] = np.bytes_(dice.choice(NAMES) or b"\xff")


def deep(file: h5py.File, dice: random.Random) -> None:
    """Groups in groups, or side by side."""
    place = dice.choice(("op/9/output", "op/9", "op"))
    if dice.random() < 0.5:
        file.require_group(place + "/a" * dice.choice((31, 300)))
    else:
        group = file.require_group(place)
        for i in range(dice.choice((10, 1500))):
            group.create_group(f"g{i}")


def names(file: h5py.File, dice: random.Random) -> None:
    """Names that mean something to a spreadsheet, a terminal, a file system or a regular one."""
    parts = [
        dice.choice(NAMES) or b"x" if dice.random() < 0.5 else sound
        for sound in (b"op", b"9", b"output", b"list", b"list_0")
    ]
    at = file.id
    with contextlib.suppress(ValueError, KeyError):  # what is "." or "/" is no name to HDF5
        for part in parts[:-1]:
            part = part.replace(b"/", b"\\")
            at = (h5g.open if at.links.exists(part) else h5g.create)(at, part)
        space = h5s.create_simple((2,))
        data = h5d.create(at, parts[-1].replace(b"/", b"\\"), h5t.IEEE_F32LE, space)
        data.write(h5s.ALL, h5s.ALL, np.ones(2, "f4"))
        h5py.Dataset(data).attrs["Type"] = np.int32(0)


def types(file: h5py.File, dice: random.Random) -> None:
    """Types that no tensor has: texts, references, compounds, odd widths, other byte orders."""
    odd_float, odd_int = h5t.IEEE_F64LE.copy(), h5t.STD_I32LE.copy()
    odd_float.set_fields(59, 49, 10, 0, 49)
    odd_int.set_precision(dice.choice((1, 17, 31)))
    kinds: list[h5t.TypeID] = [odd_float, odd_int, h5t.STD_B8LE, h5t.UNIX_D32LE, h5t.STD_REF_OBJ]
    kinds += [h5t.IEEE_F32BE, h5t.STD_U64BE, h5t.C_S1, h5t.create(h5t.OPAQUE, 5)]
    kinds += [h5t.vlen_create(h5t.STD_I32LE), h5t.array_create(h5t.STD_I8LE, (3,))]
    kinds.append(h5t.py_create(np.dtype([("r", "f4"), ("i", "f8")])))
    kinds.append(h5t.py_create(np.dtype([("a", "S3"), ("b", [("c", "i1")])])))
    kinds.append(h5t.py_create(h5py.enum_dtype({"A": 1, "\x1b[31m": 2}, "i2"), logical=True))
    group = file.require_group(dice.choice(("op/9/output", "op/9/input")))
    if "t" in group:
        del group["t"]
    shape = dice.choice(((), (2,), (2, 3)))
    with contextlib.suppress(ValueError):  # HDF5 itself refuses some
        h5d.create(group.id, b"t", dice.choice(kinds), h5s.create_simple(shape))
        as_tensor(group["t"], dice)


def texts(file: h5py.File, dice: random.Random) -> None:
    """The texts in the file: JSON that is not as the writer's, or no JSON."""
    found: list[h5py.Dataset] = []

    def note(_: str, node: object) -> None:
        if isinstance(node, h5py.Dataset) and node.dtype == np.uint8 and node.nbytes < _SMALL:
            found.append(node)

    file.visititems(note)
    for data in dice.sample(found, min(len(found), 2)):
        lines = data[()].tobytes().rstrip(b"\0").decode("utf-8", "replace").splitlines()
        new = "\n".join(altered(dice, line) for line in lines).encode("utf-8", "surrogatepass")
        path, kind = data.name, data.attrs.get("Type", 110)
        del file[path]
        file.create_dataset(path, data=np.frombuffer(new or b"\n", np.uint8))
        file[path].attrs["Type"] = kind
    if "Environment" in file.attrs and dice.random() < 0.5:
        text = altered(dice, str(file.attrs["Environment"])).encode("utf-8", "replace")
        file.attrs["Environment"] = text.replace(b"\0", b"")[:60_000]


def altered(dice: random.Random, text: str) -> str:
    """A JSON text with some of its values replaced by others; sometimes no JSON at all."""
    if dice.random() < 0.1:
        return dice.choice(("[" * 100_000, "{", "", '{"seqid": ' + "9" * 5000 + "}", text[:-3]))
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return json.dumps(_altered(dice, value, 0.15))


def _altered(dice: random.Random, value: Any, often: float) -> Any:
    if dice.random() < often / 3:
        return dice.choice(VALUES)
    if isinstance(value, dict):
        found = {key: _altered(dice, item, often) for key, item in value.items()}
        if dice.random() < often:
            key = dice.choice(("names", "values", "stubs", "sides", "choice", "", "input/self"))
            found[key] = dice.choice(VALUES)
        return found
    if isinstance(value, list):
        return [_altered(dice, item, often) for item in value]
    return dice.choice(VALUES) if dice.random() < often else value


HOSTILE: tuple[Callable[[h5py.File, random.Random], None], ...]
HOSTILE = (links, loops, elsewhere, shapes, bombs, deep, names, types, texts, texts)
