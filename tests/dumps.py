"""Hand-made dump files in the original's layout, written with plain h5py and nothing of ours."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

CODES = {"f4": 1, "u1": 2, "i1": 3, "i2": 5, "i4": 6, "i8": 7, "f2": 10, "f8": 11}


def put(
    file: h5py.File,
    path: str,
    values: object,
    *,
    kind: int = 0,
    code: int | None = None,
    device: int = 0,
    stride: tuple[int, ...] | None = None,
    **attributes: object,
) -> h5py.Dataset:
    """Store one dataset with a tensor's attributes, or with `Type` alone for another `kind`."""
    values = np.asarray(values)
    data = file.create_dataset(path, data=values)
    data.attrs["Type"] = np.int32(kind)
    if kind == 0:
        data.attrs["DataType"] = np.int32(
            CODES.get(values.dtype.str[1:], 1) if code is None else code
        )
        data.attrs["DeviceType"] = np.int32(device)
        data.attrs["FormatType"] = np.int32(0)
        if stride is None:
            stride = tuple(step // values.itemsize for step in np.ascontiguousarray(values).strides)
        data.attrs["Stride"] = np.array(stride if values.ndim else (), np.int64)
    for name, value in attributes.items():
        data.attrs[name] = value
    return data


def dump(path: Path, tensors: dict[str, object], device: int = 0) -> Path:
    """Write a file with one tensor a path."""
    with h5py.File(path, "w") as file:
        for name, values in tensors.items():
            put(file, name, values, device=device)
    return path
