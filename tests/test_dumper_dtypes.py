"""Dtypes by name: every bit pattern survives HDF5, and old readers see what they know."""

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
from h5py import h5d, h5s
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dumper import dtypes

NAMES = sorted(dtypes.BY_NAME)


def through_file(bits: np.ndarray, name: str) -> np.ndarray:
    """Store bits as a dump does and read them back, through a file in memory."""
    kind = dtypes.file_type(dtypes.BY_NAME[name])
    with h5py.File.in_memory() as file:
        data = h5d.create(file.id, b"x", kind, h5s.create_simple(bits.shape))
        data.write(h5s.ALL, h5s.ALL, bits, mtype=kind)
        back = np.empty_like(bits)
        data.read(h5s.ALL, h5s.ALL, back, mtype=kind)
    return back


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_bits_survive_a_file(name, data):
    bits = dtypes.BY_NAME[name].bits
    raw = data.draw(hnp.arrays(np.uint8, (5 * bits.itemsize,)))
    stored = raw.view(bits)
    assert through_file(stored, name).tobytes() == raw.tobytes()


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", NAMES)
def test_names_and_sizes_are_torchs(name):
    dtype = getattr(torch, name)
    assert torch.empty(0, dtype=dtype).element_size() == dtypes.BY_NAME[name].bits.itemsize


def test_codes_are_the_originals_or_out_of_its_range():
    known = {1: "Float", 2: "Byte", 3: "Char", 5: "Short", 6: "Int", 7: "Long", 9: "Bool"}
    known |= {10: "Half", 11: "Double"}
    for dtype in dtypes.BY_NAME.values():
        assert dtype.code in known or dtype.code >= 100
        assert dtype.named == (dtypes.BY_CODE.get(dtype.code) != dtype)


def test_old_readers_see_bfloat16_as_float32():
    values = np.array([1.5, -2.25, 3e38, np.inf], ml_dtypes.bfloat16)
    kind = dtypes.file_type(dtypes.BY_NAME["bfloat16"])
    with h5py.File.in_memory() as file:
        data = h5d.create(file.id, b"x", kind, h5s.create_simple((4,)))
        data.write(h5s.ALL, h5s.ALL, values.view("<u2"), mtype=kind)
        seen = file["x"][:]
    assert seen.dtype == np.float32
    np.testing.assert_array_equal(seen, values.astype(np.float32))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "complex32"])
@given(data=st.data())
def test_values_are_torchs(name, data):
    """What `as_values` reads from bits is what torch reads from the same bits."""
    bits = dtypes.BY_NAME[name].bits
    raw = data.draw(hnp.arrays(np.uint8, (4 * bits.itemsize,)))
    if name == "bool":
        raw &= 1
    ours = dtypes.as_values(raw.view(bits), name)
    theirs = torch.from_numpy(raw.copy()).view(getattr(torch, name))
    wide = np.complex128 if theirs.is_complex() else None
    if wide is None and not theirs.is_floating_point():
        assert ours.tolist() == theirs.tolist()
        return
    torch_wide = torch.complex128 if wide else torch.float64
    # float8_e8m0fnu reaches float64 by way of float32 in torch
    expected = theirs.to(torch.float32 if theirs.element_size() == 1 else torch_wide)
    with np.errstate(invalid="ignore"):  # signalling NaN
        found = ours.astype(wide or np.float64)
    np.testing.assert_array_equal(found, expected.to(torch_wide).numpy())


def test_complex32_is_widened():
    bits = np.array([(1.5, -2.0)], dtypes.BY_NAME["complex32"].bits)
    assert dtypes.as_values(bits, "complex32").tolist() == [1.5 - 2j]
