"""Pairs of dumps in the peer's layout for the benchmark of comparing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

NPU, CUDA = 10, 1
CODES = {"float32": 1, "int8": 3, "float16": 10, "float64": 11, "bfloat16": 1}
Pair = tuple[Path, Path]


def dense(
    folder: Path, ops: int, names: tuple[str, ...], elements: int, dtype: str = "float32"
) -> Pair:
    """Random values; mine are golden's with a relative error of a thousandth."""
    paths = _paths(folder)
    for path, device, noise in zip(paths, (NPU, CUDA), (1e-3, 0.0), strict=True):
        random = np.random.default_rng(1)
        base = random.standard_normal(elements).astype(np.float32)
        error = np.float32(noise) * random.standard_normal(elements).astype(np.float32)
        with h5py.File(path, "w") as file:
            for seqid in range(1, ops + 1):
                values = base * np.float32(1 + seqid / ops)
                for i, name in enumerate(names):
                    at = f"op{seqid % 20}/{seqid}/{name}"
                    _tensor(file, at, values * (1 + error * (i + 1)), dtype, device)
    return paths


def sparse(folder: Path, tensors: int, elements: int) -> Pair:
    """Files of any size that hold next to nothing: all elements but two of a tensor are zero."""
    paths = _paths(folder)
    plan = h5p.create(h5p.DATASET_CREATE)
    plan.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    plan.set_fill_time(h5d.FILL_TIME_NEVER)
    for path, device in zip(paths, (NPU, CUDA), strict=True):
        with h5py.File(path, "w") as file:
            for seqid in range(1, tensors + 1):
                group = file.create_group(f"op/{seqid}/output")
                space = h5s.create_simple((elements,))
                data = h5py.Dataset(h5d.create(group.id, b"result", h5t.IEEE_F32LE, space, plan))
                data[elements // 3], data[elements - 1] = 1.0, device
                _attributes(data, "float32", device)
    return paths


def _paths(folder: Path) -> Pair:
    folder.mkdir()
    return folder / "npu.h5", folder / "cuda.h5"


def _tensor(file: h5py.File, at: str, values: np.ndarray, dtype: str, device: int) -> None:
    data = file.create_dataset(at, values.shape, _KINDS[dtype])
    data.id.write(h5s.ALL, h5s.ALL, *_stored(values, dtype))
    _attributes(data, dtype, device)


def _bfloat16() -> h5t.TypeID:
    kind = h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


_KINDS = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "int8": np.int8,
    "bfloat16": h5py.Datatype(_bfloat16()),
}


def _stored(values: np.ndarray, dtype: str) -> tuple[np.ndarray, h5t.TypeID | None]:
    """Values and the type that they have in memory."""
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16), _bfloat16()
    if dtype == "int8":
        values = np.clip(values * 25, -128, 127)
    return values.astype(dtype), None


def _attributes(data: h5py.Dataset, dtype: str, device: int) -> None:
    for key, value in (("Type", 0), ("DataType", CODES[dtype]), ("DeviceType", device)):
        data.attrs[key] = np.int32(value)
    data.attrs["FormatType"] = np.int32(0)
    data.attrs["Stride"] = np.array([1], np.int64)
    if dtype == "bfloat16":
        data.attrs["TorchDType"] = np.bytes_(dtype)  # of fixed length, as ours is


def once(make: Callable[..., Pair], *arguments: object) -> Callable[[], Pair]:
    """A pair that is written when it is first asked for."""
    found: list[Pair] = []

    def pair() -> Pair:
        if not found:
            found.append(make(*arguments))
        return found[0]

    return pair
