"""Parts of a tensor, read into memory that the caller owns, are parts of what `raw` reads."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from dumps import put
from h5py import h5d, h5s
from hypothesis import given
from hypothesis import strategies as st

from dumper import dtypes
from dumper.boxes import boxes
from dumper.errors import DumpError
from dumper.reader import open_dump

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@given(shape=SHAPES, data=st.data())
def test_boxes_are_the_run_of_elements(shape: tuple[int, ...], data: st.DataObject) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    start = data.draw(st.integers(0, array.size))
    count = data.draw(st.integers(0, array.size - start))
    found = list(boxes(shape, start, count))
    assert len(found) <= 2 * len(shape)
    cuts = [tuple(slice(a, a + n) for a, n in zip(*box, strict=True)) for box in found]
    elements = [each for cut in cuts for each in array[cut].reshape(-1).tolist()]
    assert elements == list(range(start, start + count))


VALUES = np.arange(5 * 6 * 7, dtype="f4").reshape(5, 6, 7)
STORED = {
    "plain": {"data": VALUES},
    "plain half": {"data": VALUES.astype("f2")},
    "plain complex": {"data": (VALUES * 1j).astype("c8")},
    "big-endian": {"data": VALUES.astype(">f4")},
    "chunked": {"data": VALUES, "chunks": (2, 3, 4)},
    "packed": {"data": VALUES, "chunks": (2, 3, 4), "compression": 1},
    "0-d": {"data": np.float64(7)},
    "0-d and big-endian": {"data": np.array(7, ">i8")},
    "empty": {"data": np.zeros((0, 3), "f4")},
    "one axis, chunked": {"data": np.arange(100), "chunks": (7,)},
    "bool enum": {"data": VALUES > 40},
}


@pytest.mark.parametrize("stored", STORED.values(), ids=list(STORED))
def test_parts_are_parts_of_the_whole(tmp_path: Path, stored: dict) -> None:
    with h5py.File(tmp_path / "d.h5", "w") as file:
        made = file.create_dataset("op/1/output/x", **stored)
        made.attrs["Type"] = np.int32(0)
        contiguous = made.chunks is None and made.dtype.byteorder != ">" and made.size > 0
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        whole = tensor.raw().reshape(-1)
        assert tensor.is_plain is contiguous or not tensor.size
        assert whole.dtype == tensor.stored
        for start in sorted({0, 1, 41, 42, whole.size // 2, whole.size}):
            for count in (0, 1, 7, 90, whole.size):
                if start + count > whole.size:
                    continue
                out = np.zeros(count, tensor.stored)
                tensor.read_into(out, start)
                assert out.tobytes() == whole[start : start + count].tobytes()


@pytest.mark.parametrize(
    ("count", "start", "dtype"), [(3, 4, "f4"), (7, 0, "f4"), (1, -1, "f4"), (2, 0, "f8")]
)
def test_a_call_that_asks_for_what_is_not_there(tmp_path, count, start, dtype):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/x", np.arange(6, dtype="f4"))
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        tensor.read_into(np.zeros(6, "f4"), 0)
        with pytest.raises(ValueError, match="needed|no elements"):
            tensor.read_into(np.zeros(count, dtype), start)


def test_a_view_that_is_not_contiguous_is_refused(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/x", np.arange(6, dtype="f4"))
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        with pytest.raises(ValueError, match="contiguous"):
            tensor.read_into(np.zeros(6, "f4")[::2], 0)


def test_a_file_that_was_cut_while_open(tmp_path):
    path = tmp_path / "d.h5"
    with h5py.File(path, "w") as file:
        put(file, "op/1/output/x", np.arange(1 << 14, dtype="f4"))
    with open_dump(path) as opened:
        (tensor,) = opened.records[0].outputs
        out = np.zeros(1 << 12, "f4")
        os.truncate(path, os.path.getsize(path) - (1 << 15))
        tensor.read_into(out, 0)
        assert out[-1] == (1 << 12) - 1
        with pytest.raises(DumpError, match="shorter"):
            tensor.read_into(out, (1 << 14) - len(out))


def test_values_that_must_not_be_read_in_parts(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        huge = file.create_dataset("op/1/output/x", (1 << 40,), "f4", chunks=(9,), compression=1)
        huge.attrs["Type"] = np.int32(0)
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        with pytest.raises(DumpError, match="claims"):
            tensor.read_into(np.zeros(4, "f4"), 0)


@pytest.mark.parametrize(
    ("device", "stride", "out_of_order"),
    [
        (1, (1, 3, 3), True), (0, (1, 3, 3), True), (10, (1, 3, 3), False), (1, None, False),
        (1, (2, 1, 1), False), (1, (2, 1, 77), False), (1, (0, 1, 1), False),
    ],
)  # fmt: skip
def test_which_tensors_make_sense_as_a_whole_only(tmp_path, device, stride, out_of_order):
    """Only strides that say another order than C's count; that of an axis of one says nothing."""
    values = np.arange(6, dtype="f4").reshape(3, 2, 1)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/x", values, device=device, stride=stride)
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        assert tensor.needs_order is out_of_order
        assert np.array_equal(tensor.read(), tensor.raw()) is not out_of_order


@pytest.mark.parametrize("name", ["bfloat16", "float16", "bool", "complex64", "uint8", "int64"])
def test_parts_become_values_as_the_whole_does(tmp_path, name):
    row = dtypes.BY_NAME[name]
    bits = (np.arange(40 * row.bits.itemsize) % 2).astype("u1").view(row.bits)
    kind = dtypes.file_type(row)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        group = file.create_group("op/1/output")
        data = h5d.create(group.id, b"x", kind, h5s.create_simple(bits.shape))
        data.write(h5s.ALL, h5s.ALL, bits, mtype=kind)
        group["x"].attrs["Type"], group["x"].attrs["DataType"] = np.int32(0), np.int32(row.code)
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        out = np.empty(10, tensor.stored)
        tensor.read_into(out, 20)
        assert tensor.dtype == name and tensor.is_plain
        assert tensor.bits_of(out).tobytes() == bits[20:30].tobytes()


def test_the_original_widens_half(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/x", np.array([1.5, -0.0, 3], "f4"), code=10)
    with open_dump(tmp_path / "d.h5") as opened:
        (tensor,) = opened.records[0].outputs
        out = np.empty(2, "f4")
        tensor.read_into(out, 1)
        assert tensor.dtype == "float16" and tensor.stored == "f4"
        assert tensor.bits_of(out).tobytes() == np.array([-0.0, 3], "f2").tobytes()
        assert dtypes.as_values(tensor.bits_of(out), "float16").dtype == np.float16
