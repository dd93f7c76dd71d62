"""Storage formats: the layout against index formulas, both directions, the peer, and the limits."""

from __future__ import annotations

import io
import itertools
import math
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npu_core import formats
from npu_core.formats import Format

ROOT = Path(__file__).resolve().parent.parent
DTYPES = [np.int8, np.bool_, np.float16, ml_dtypes.bfloat16, np.float32, np.int64, np.complex64]
FOUR_D = [Format.NCHW, Format.NC1HWC0, Format.FRACTAL_Z]
FIVE_D = [Format.NCDHW, Format.NDHWC, Format.NDC1HWC0, Format.FRACTAL_Z_3D]
ANY = [Format.ND, Format.FRACTAL_NZ]

channels = st.sampled_from([0, 1, 3, 15, 16, 17, 33])
few = st.sampled_from([1, 2, 3, 2, 1, 0])


@st.composite
def cases(draw) -> tuple[np.ndarray, Format, int, int | None]:
    """An array of random bits, a format that holds it, groups, and C0."""
    format = draw(st.sampled_from([*FOUR_D, Format.NHWC, *FIVE_D, *ANY]))
    if format in FIVE_D or format is Format.NHWC:
        rank = 5 if format in FIVE_D else 4
    else:
        rank = draw(st.integers(0, 4 if format in FOUR_D else 6))
    tiled = range(max(0, rank - 2), rank) if format in ANY else range(2)
    shape = [draw(channels if axis in tiled else few) for axis in range(rank)]
    groups = 1
    if format in (Format.FRACTAL_Z, Format.FRACTAL_Z_3D) and rank > 3:
        groups = draw(st.integers(1, 20))
        shape[0] = groups * draw(st.sampled_from([1, 2, 3, 8, 17, 0]))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    count = math.prod(shape) * dtype.itemsize
    if dtype == np.bool_:
        bits = np.random.default_rng(count).integers(0, 2, count, np.uint8)
    else:
        bits = np.random.default_rng(count).integers(0, 256, count, np.uint8)
    return bits.view(dtype).reshape(shape), format, groups, draw(st.sampled_from([None, 8, 16, 32]))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@settings(max_examples=400)
@given(cases())
def test_there_and_back_changes_no_bit(case) -> None:
    array, format, groups, c0 = case
    stored = formats.to_storage(array, format, groups, c0)
    assert stored.dtype == array.dtype
    assert stored.shape == formats.storage_shape(array.shape, format, array.itemsize, groups, c0)
    assert same_bits(formats.from_storage(stored, format, array.shape, groups, c0), array)


@settings(max_examples=400)
@given(cases())
def test_what_pads_is_zero_and_is_not_read(case) -> None:
    array, format, groups, c0 = case
    ones = np.full(array.shape, 255, np.uint8)
    stored = formats.to_storage(ones, format, groups, c0 or 16)
    assert int((stored != 0).sum()) == array.size  # each element once, all else zero
    dirty = np.where(stored == 0, np.uint8(7), stored)
    assert same_bits(formats.from_storage(dirty, format, array.shape, groups, c0 or 16), ones)


# The layout itself: where element (n, c, h, w) of the tensor lies


def places(format: Format, shape: tuple[int, ...], groups: int, c0: int):
    """Index in the tensor and index in storage of every element, one by one, by formula."""
    for index in itertools.product(*map(range, shape)):
        if format is Format.FRACTAL_NZ:
            *batch, h, w = (*index, 0, 0)[:2] if len(index) < 2 else index
            yield index, (*batch, w // c0, h // 16, h % 16, w % c0)
            continue
        if len(shape) == 5:
            n, c, d, h, w = index
            _, channels, _, height, width = shape
        else:
            n, c, h, w = index if len(index) == 4 else (0, *index, 0, 0, 0)[:4]
            _, channels, height, width = shape if len(shape) == 4 else (1, *shape, 1, 1, 1)[:4]
            d = 0
        if format is Format.NCHW:
            yield index, (n, c, h, w)
        elif format is Format.NC1HWC0:
            yield index, (n, c // c0, h, w, c % c0)
        elif format is Format.NDHWC:
            yield index, (n, d, h, w, c)
        elif format is Format.NDC1HWC0:
            yield index, (n, d, c // c0, h, w, c % c0)
        elif format in (Format.FRACTAL_Z, Format.FRACTAL_Z_3D):
            depth = shape[2] if len(shape) == 5 else 1
            per_group = (shape[0] if len(shape) > 3 else 1) // groups
            e = min(
                math.lcm(math.lcm(channels, c0) // channels, math.lcm(per_group, 16) // per_group),
                groups,
            )
            g = n // per_group
            column, line = g % e * channels + c, g % e * per_group + n % per_group
            c1 = -(-e * channels // c0)
            row = (((g // e * depth + d) * c1 + column // c0) * height + h) * width + w
            yield index, (row, line // 16, line % 16, column % c0)
        else:
            yield index, index


@settings(max_examples=400)
@given(cases())
def test_every_element_lies_where_the_formula_says(case) -> None:
    array, format, groups, c0 = case
    array = np.arange(array.size, dtype=np.int32).reshape(array.shape)
    stored = formats.to_storage(array, format, groups, c0)
    for index, place in places(format, array.shape, groups, c0 or 16):
        assert stored[place] == array[index], (index, place)


@pytest.mark.parametrize(
    ("shape", "format", "itemsize", "stored"),
    [
        ((), Format.ND, 4, ()),
        ((2, 3, 4, 5, 6, 7), Format.ND, 4, (2, 3, 4, 5, 6, 7)),
        ((), Format.NCHW, 4, (1, 1, 1, 1)),
        ((7,), Format.NCHW, 4, (1, 7, 1, 1)),
        ((7, 8), Format.NCHW, 4, (1, 7, 8, 1)),
        ((7, 8, 9), Format.NCHW, 4, (1, 7, 8, 9)),
        ((1, 2, 3, 4, 5), Format.NCHW, 4, (1, 2, 3, 4, 5)),
        ((2, 17, 3, 4), Format.NC1HWC0, 2, (2, 2, 3, 4, 16)),
        ((64,), Format.NC1HWC0, 4, (1, 4, 1, 1, 16)),
        ((17, 33, 5, 3), Format.FRACTAL_Z, 4, (45, 2, 16, 16)),
        ((4, 5, 20, 33), Format.FRACTAL_NZ, 2, (4, 5, 3, 2, 16, 16)),
        ((20, 33), Format.FRACTAL_NZ, 4, (3, 2, 16, 16)),
        ((20, 33), Format.FRACTAL_NZ, 1, (2, 2, 16, 32)),
        ((20,), Format.FRACTAL_NZ, 2, (1, 2, 16, 16)),
        ((2, 17, 3, 4, 5), Format.NDC1HWC0, 4, (2, 3, 2, 4, 5, 16)),
        ((17, 33, 2, 5, 3), Format.FRACTAL_Z_3D, 2, (90, 2, 16, 16)),
        ((2, 3, 4, 5, 6), Format.NDHWC, 4, (2, 4, 5, 6, 3)),
    ],
)
def test_storage_shapes_of_torch_npu(shape, format, itemsize, stored) -> None:
    assert formats.storage_shape(shape, format, itemsize) == stored


def test_c0_of_the_hardware_follows_the_dtype() -> None:
    assert formats.storage_shape((1, 9, 2, 2), Format.NC1HWC0, 4, c0=32 // 4) == (1, 2, 2, 2, 8)
    assert formats.storage_shape((1, 9, 2, 2), Format.NC1HWC0, 1, c0=32 // 1) == (1, 1, 2, 2, 32)


@pytest.mark.parametrize("groups", [2, 3, 32])
def test_a_grouped_weight_keeps_every_value(groups: int) -> None:
    """Two groups of 16 x 16 channels: the conversion of the peer loses half of them."""
    array = np.arange(1, 16 * groups * 16 + 1, dtype=np.float32).reshape(16 * groups, 16, 1, 1)
    stored = formats.to_storage(array, Format.FRACTAL_Z, groups)
    assert set(stored[stored != 0]) == set(array.ravel())


# Plain formats


@pytest.mark.parametrize("source", ["NCHW", "NHWC", "HWCN", "CHWN"])
@pytest.mark.parametrize("target", ["NCHW", "NHWC", "HWCN", "CHWN"])
def test_transposing_moves_every_axis_to_its_letter(source: str, target: str) -> None:
    lengths = {"N": 2, "C": 3, "H": 4, "W": 5}
    array = np.zeros([lengths[axis] for axis in source])
    moved = formats.transpose(array, formats.parse(source), formats.parse(target))
    assert moved.shape == tuple(lengths[axis] for axis in target)
    at = {"N": 1, "C": 2, "H": 3, "W": 4}
    array[tuple(at[axis] for axis in source)] = 1
    assert moved[tuple(at[axis] for axis in target)] == 1


def test_transposing_5d() -> None:
    array = np.zeros((2, 3, 4, 5, 6))
    assert formats.transpose(array, Format.NCDHW, Format.DHWCN).shape == (4, 5, 6, 3, 2)


@pytest.mark.parametrize(
    ("source", "target", "rank", "match"),
    [
        (Format.NCHW, Format.NDHWC, 4, "cannot transpose NCHW to NDHWC"),
        (Format.NCHW, Format.NC1HWC0, 4, "cannot transpose"),
        (Format.ND, Format.NCHW, 4, "cannot transpose"),
        (Format.NCHW, Format.NHWC, 5, "NCHW needs 4 axes"),
    ],
)
def test_what_cannot_be_transposed(source, target, rank, match) -> None:
    with pytest.raises(ValueError, match=match):
        formats.transpose(np.zeros((1,) * rank), source, target)


# Names and codes


def test_codes_are_those_of_acl() -> None:
    """The enum aclFormat of acl_base.h."""
    codes = {
        "UNDEFINED": -1, "NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4,
        "NC1HWC0_C04": 12, "HWCN": 16, "NDHWC": 27, "FRACTAL_NZ": 29, "NCDHW": 30, "NDC1HWC0": 32,
        "FRACTAL_Z_3D": 33, "NC": 35, "NCL": 47,
    }  # fmt: skip
    assert {name: formats.parse(name) for name in codes} == codes


@pytest.mark.parametrize(
    ("base", "layouts"),
    [
        (Format.ND, [Format.ND, Format.FRACTAL_NZ]),
        (Format.NCHW, [Format.NCHW, Format.NC1HWC0, Format.FRACTAL_Z]),
        (Format.NHWC, [Format.NHWC]),
        (Format.NCDHW, FIVE_D),
    ],
)
def test_every_layout_has_its_plain_format(base: Format, layouts: list[Format]) -> None:
    assert {formats.base_of(layout) for layout in layouts} == {base}


def test_parsing_takes_names_and_codes() -> None:
    assert formats.parse("FRACTAL_NZ") is formats.parse(29) is Format.FRACTAL_NZ


@pytest.mark.parametrize("value", ["fractal_nz", "", 50, -2])
def test_parsing_refuses_others(value) -> None:
    with pytest.raises(ValueError, match="unknown format"):
        formats.parse(value)


# Limits: the nearest valid shape, and one past it


@pytest.mark.parametrize(
    ("format", "good", "bad", "match"),
    [
        (Format.NHWC, (1, 2, 3, 4), (2, 3, 4), "NHWC holds tensors of 4 axes"),
        (Format.NHWC, (1, 2, 3, 4), (1, 2, 3, 4, 5), "NHWC holds tensors of 4 axes"),
        (Format.NC1HWC0, (1, 2, 3, 4), (1, 2, 3, 4, 1), "at most 4 axes, got shape"),
        (Format.FRACTAL_Z, (1, 2, 3, 4), (1, 1, 2, 3, 4), "at most 4 axes, got shape"),
        (Format.NCDHW, (1, 2, 3, 4, 5), (1, 2, 3, 4), "NCDHW holds tensors of 5 axes"),
        (Format.NDHWC, (1, 2, 3, 4, 5), (1, 2, 3, 4), "5 axes"),
        (Format.NDC1HWC0, (1, 2, 3, 4, 5), (1, 2, 3, 4), "5 axes"),
        (Format.FRACTAL_Z_3D, (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), "5 axes"),
    ],
)
def test_ranks_a_format_cannot_hold(format, good, bad, match) -> None:
    assert formats.storage_shape(good, format, 4)
    with pytest.raises(ValueError, match=match):
        formats.storage_shape(bad, format, 4)


def test_groups_must_divide_the_output_channels() -> None:
    array = np.zeros((12, 1, 1, 1))
    formats.to_storage(array, Format.FRACTAL_Z, groups=4)
    with pytest.raises(ValueError, match="groups=5 does not divide the 12 output channels"):
        formats.to_storage(array, Format.FRACTAL_Z, groups=5)
    with pytest.raises(ValueError, match="only FRACTAL_Z and FRACTAL_Z_3D have groups"):
        formats.to_storage(array, Format.NC1HWC0, groups=2)
    with pytest.raises(ValueError, match="groups=0"):
        formats.to_storage(array, Format.FRACTAL_Z, groups=0)


def test_c0_must_be_positive() -> None:
    with pytest.raises(ValueError, match="c0=0"):
        formats.to_storage(np.zeros((4, 4)), Format.FRACTAL_NZ, c0=0)


def test_a_format_without_known_layout_is_named() -> None:
    with pytest.raises(ValueError, match="layout of format NC1HWC0_C04 is not known"):
        formats.to_storage(np.zeros((1, 2, 3, 4)), Format.NC1HWC0_C04)


def test_storage_of_another_shape_is_refused() -> None:
    stored = np.zeros((3, 2, 16, 16), np.float16)
    assert formats.from_storage(stored, Format.FRACTAL_NZ, (17, 33)).shape == (17, 33)
    with pytest.raises(ValueError, match=r"stored in FRACTAL_NZ as \(3, 3, 16, 16\)"):
        formats.from_storage(stored, "FRACTAL_NZ", (33, 33))


@pytest.mark.parametrize("format", [Format.ND, Format.NC1HWC0, Format.FRACTAL_Z, Format.FRACTAL_NZ])
def test_a_negative_size_is_refused(format: Format) -> None:
    assert formats.storage_shape((0, 3), format, 2)
    with pytest.raises(ValueError, match="negative size"):
        formats.storage_shape((-1, 3), format, 2)


# The peer, where it is right


def test_the_peer_reads_what_we_store_and_stores_what_we_read(peer: list[str]) -> None:
    rng = np.random.default_rng(0)
    python, tool = peer
    arrays = {
        "conv": (rng.random((20, 5, 3, 2), np.float32), Format.FRACTAL_Z, "FRACTAL_Z", "NCHW"),
        "hwc": (rng.random((2, 40, 3, 2), np.float32), Format.NC1HWC0, "NC1HWC0", "NCHW"),
        "mm": (rng.random((20, 37), np.float32), Format.FRACTAL_NZ, "FRACTAL_NZ", "ND"),
        "vol": (rng.random((2, 20, 2, 3, 4), np.float32), Format.NDC1HWC0, "NDC1HWC0", "NCDHW"),
    }
    for array, format, source, target in arrays.values():
        stored = formats.to_storage(array, format)
        theirs = peers_conversion(python, tool, source, target, stored, array.shape)
        assert same_bits(theirs[tuple(slice(n) for n in array.shape)].copy(), array)
    array = arrays["conv"][0]
    stored = formats.to_storage(array, Format.FRACTAL_Z)
    theirs = peers_conversion(python, tool, "NCHW", "FRACTAL_Z", array, stored.shape)
    assert same_bits(theirs.reshape(stored.shape), stored)
    moved = formats.transpose(array, Format.NCHW, Format.HWCN)
    theirs = peers_conversion(python, tool, "HWCN", "FRACTAL_Z", moved.copy(), stored.shape)
    assert same_bits(theirs.reshape(stored.shape), stored)
    grouped = rng.random((12, 2, 3, 1), np.float32)  # one block of three groups: the peer is right
    stored = formats.to_storage(grouped, Format.FRACTAL_Z, groups=3)
    theirs = peers_conversion(python, tool, "NCHW", "FRACTAL_Z", grouped, stored.shape, 3)
    assert same_bits(theirs.reshape(stored.shape), stored)


def peers_conversion(python, tool, source, target, array, shape, *groups) -> np.ndarray:
    """What one of the peer's converters, run in its own Python, makes of an array."""
    folder = Path(tool).parent / "format_manager" / "builtin_format_convert"
    call = (
        "import importlib.util, io, sys\n"
        "import numpy as np\n"
        f"path = {str(folder / f'convert_{source}_to_{target}.py')!r}\n"
        f"sys.path[:0] = [{str(Path(tool).parent)!r}, {str(Path(tool).parents[2])!r}]\n"
        "spec = importlib.util.spec_from_file_location('peers', path)\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "array = np.load(io.BytesIO(sys.stdin.buffer.read()))\n"
        f"out = module.convert({list(array.shape)}, {list(shape)}, array.reshape(-1), *{groups})\n"
        "file = io.BytesIO(); np.save(file, np.asarray(out))\n"
        "sys.stdout.buffer.write(file.getvalue())\n"
    )
    given = io.BytesIO()
    np.save(given, np.ascontiguousarray(array))
    done = subprocess.run(
        [python, "-c", call], input=given.getvalue(), capture_output=True, check=True
    )
    return np.load(io.BytesIO(done.stdout))


def test_formats_cost_no_torch() -> None:
    code = (
        "import sys, numpy\n"
        "from npu_core import formats\n"
        "formats.to_storage(numpy.ones((3, 4)), formats.Format.FRACTAL_NZ)\n"
        "sys.exit('torch' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
