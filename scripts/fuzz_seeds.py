"""The files that scripts/fuzz damages: dumps of every kind, small, so that a byte that is changed
is often one that counts.

Ours are made by the dumper, where torch is there; the other layouts (the original's, and what any
HDF5 program may write) by plain h5py.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

PAGE = 4096


def make_seeds(folder: Path) -> list[Path]:
    """Write all seeds into `folder`, an existing directory. Returns their paths."""
    try:
        import torch  # noqa: F401 - only whether it is there
    except ImportError:
        made = {}
    else:
        made = {"step": _step, "kinds": _kinds, "checked": _checked}
    made |= {"original": _original, "plain": _plain, "chunked": _chunked, "latest": _latest}
    made |= {"block": _block, "journaled": _journaled}
    return [_made(make, folder / f"{name}.h5") for name, make in made.items()]


def _made(make: Callable[[Path], None], path: Path) -> Path:
    make(path)
    return path


def put(file: h5py.File, path: str, values: object, kind: int = 0, **attributes: object) -> None:
    """Store one value as the original does: attributes of a tensor, `Type` alone for others."""
    values = np.asarray(values)
    data = file.create_dataset(path, data=values)
    data.attrs["Type"] = np.int32(kind)
    if kind == 0:
        codes = {"f4": 1, "u1": 2, "i1": 3, "i2": 5, "i4": 6, "i8": 7, "f2": 10, "f8": 11}
        data.attrs["DataType"] = np.int32(codes.get(values.dtype.str[1:], 1))
        data.attrs["DeviceType"] = np.int32(10)
        data.attrs["FormatType"] = np.int32(2)
        steps = np.ascontiguousarray(values).strides if values.ndim else ()
        data.attrs["Stride"] = np.array([step // values.itemsize for step in steps], np.int64)
    for name, value in attributes.items():
        data.attrs[name] = value


def _step(path: Path) -> None:
    """A training step with modules, calls and phases, of the dumper."""
    import torch

    from dumper import dumper

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    with dumper(use_dump=True, dump_path=path):
        net(torch.ones(2, 3)).sum().backward()


def _kinds(path: Path) -> None:
    """Lists, a sparse tensor, bfloat16, complex, texts and arguments that are no tensors."""
    import torch

    from dumper import dumper

    x = torch.arange(6.0).reshape(2, 3)
    with dumper(use_dump=True, dump_path=path):
        (torch.cat([x, x], dim=0).to(torch.bfloat16), torch.fft.rfft(x), x.to_sparse().to_dense())
        torch.randint(0, 5, (3,), dtype=torch.uint8)


def _checked(path: Path) -> None:
    """A step that overflows, under the overflow check: with events, ranges and a loss scale."""
    import torch

    from dumper import dumper

    x = torch.full((2, 3), 300.0, dtype=torch.float16, requires_grad=True)
    with (
        contextlib.redirect_stdout(io.StringIO()),
        dumper(check_overflow=True, use_dump=True, dump_path=path) as dump,
    ):
        y = (x * x).masked_fill(torch.ones(2, 3, dtype=torch.bool), 1.0) + x
        y.sum().backward()
    assert dump.overflows


def _original(path: Path) -> None:
    """As the original writes: half widened, bytes signed, scalars, options, an empty list."""
    with h5py.File(path, "w") as file:
        for i in range(3):
            put(file, f"cat/1/input/tensors/tensors_{i}", np.arange(4, dtype="f4") + i)
        put(file, "cat/1/input/dim", np.int64(1), 3)
        put(file, "cat/1/output/result", np.arange(12, dtype="f4").reshape(3, 4))
        file["mul/2/input/self"] = file["cat/1/output/result"]
        put(file, "mul/2/input/other", np.float64(2), 7)
        put(file, "mul/2/input/options", np.float32(0), 18, DeviceType=1, DataType=10)
        file.create_group("mul/2/input/none_of_them")
        put(file, "mul/2/output/result", np.array([[1, np.nan], [np.inf, -0.0]], "f4"))
        file["mul/2/output/result"].attrs["DataType"] = np.int32(10)
        put(file, "gt/3/output/result", np.array([0, 1, -1], "i1"))
        file["gt/3/output/result"].attrs["DataType"] = np.int32(2)


def _plain(path: Path) -> None:
    """Every comfort that the dumper writes, in a small file: index, calls, omissions, parts."""
    entry = {"seqid": 2, "ir": "mm", "phase": "forward", "call": 1, "step": 0, "thread": 0}
    entry["names"] = {"mat2": "net.weight"}
    entry["values"] = {"input/self": 1, "input/mat2": 2, "output/result": 3, "output/view": 4}
    entry["stubs"] = {"output/view": ["float32", [2, 2], [2, 1], "view"]}
    after = {"seqid": 3, "ir": "cos", "phase": "backward", "call": 1, "values": {"input/self": 3}}
    call = {"call": 1, "api": "torch.mm.0", "module": "net", "source": "train.py:1"}
    with h5py.File(path, "w") as file:
        put(file, "mm/2/input/self", np.eye(2, dtype="f4"), LiveStride=np.array([1, 2]))
        put(file, "mm/2/input/mat2", np.ones((2, 2), "u2"), TorchDType=np.bytes_(b"bfloat16"))
        put(file, "mm/2/output/result", np.ones((2, 2), [("r", "f4"), ("i", "f4")]))
        put(file, "cos/3/input/self/values", np.ones(2, "f4"))
        put(file, "cos/3/input/self/indices", np.array([[0, 1], [0, 1]]))
        parts = {"kind": "sparse_coo", "shape": [2, 2], "dtype": "float32", "coalesced": True}
        put(file, "cos/3/input/self/kind", _text([parts]), 108)
        put(file, "cos/3/input/list", _text([[1, True, {"complex": [1, 2]}]]), 106)
        put(file, "cos/3/input/name", _text(["x"]), 101)
        put(file, "cos/3/output/result", np.ones(2))
        for name, lines in (
            ("index", [entry, after]),
            ("calls", [call]),
            ("omitted", [{"path": "/mm/2/output/x", "reason": "sparse"}]),
            ("unmatched", [{"ir": "mm"}]),
        ):
            put(file, f"_torch_dumper/0/{name}", _text(lines), 110)
        file.attrs["Finished"] = np.int32(1)
        made = {"torch": "2", "rank": 0, "mode": "free", "choice": {"level": "op"}}
        file.attrs["Environment"] = json.dumps(made)


def _text(lines: list[object]) -> np.ndarray:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return np.frombuffer(text.encode(), np.uint8)


def _chunked(path: Path) -> None:
    """Chunks, filters, texts, and attributes of every sort."""
    with h5py.File(path, "w") as file:
        values = np.arange(60, dtype="f4").reshape(6, 10)
        for i, how in enumerate(
            ({"compression": 4}, {"shuffle": True, "compression": "lzf"}, {"fletcher32": True})
        ):
            data = file.create_dataset(f"op/{i}/output/x", data=values, chunks=(3, 5), **how)
            data.attrs["Type"], data.attrs["DataType"] = np.int32(0), np.int32(1)
        put(file, "op/3/input/text", np.array([b"abc", b"d"]), 101)
        put(file, "op/3/output/x", values, note="of any length", more=np.arange(9.0))
        file["op/3/output/x"].attrs["of texts"] = ["a", "bc"]


def _latest(path: Path) -> None:
    """The newest format: headers with checksums, links and attributes in heaps."""
    with h5py.File(path, "w", libver="latest") as file:
        for i in range(12):
            put(file, f"op/{i}/output/x", np.arange(4, dtype="f4"))
        for i in range(20):
            file["op/1/output/x"].attrs[f"attribute{i}"] = np.arange(i)
        chunks = file.create_dataset(
            "op/1/output/y", (9, 9), "f8", chunks=(2, 2), maxshape=(9, None)
        )
        chunks[...] = 1
        chunks.attrs["Type"] = np.int32(0)


def _block(path: Path) -> None:
    """A user block, which moves every address."""
    with h5py.File(path, "w", userblock_size=512) as file:
        put(file, "op/1/output/x", np.arange(4, dtype="f4"))


def _journaled(path: Path) -> None:
    """A dump whose writer was killed in a flush: its first page is in the journal beside it."""
    with h5py.File(path, "w") as file:
        for i in range(3):
            put(file, f"op/{i}/output/x", np.arange(900, dtype="f4"))
    data = path.read_bytes()
    was = bytes(64) + data[64:PAGE]
    path.write_bytes(data[:8] + was[8:] + data[PAGE:])
    page = zlib.crc32(path.read_bytes()[:PAGE])
    journal(path, len(data), len(data), [(0, page, data[:PAGE])])


def journal(path: Path, before: int, after: int, pages: list[tuple[int, int, bytes]]) -> None:
    """Write a journal beside `path`. pages: number, checksum before the flush, content after it."""
    body = b"".join(struct.pack("<QI", page, was) + made for page, was, made in pages)
    head = struct.pack("<8sQQII", b"TDJRNL02", before, after, len(pages), zlib.crc32(body))
    Path(f"{path}.journal").write_bytes(head + body)
