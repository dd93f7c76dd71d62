"""ir2tbe.relayout: every pair of formats there and back, what stands where, the peer, limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_npu_core_formats import peers_conversion

from ir2tbe.relayout import TARGETS, keeps_padding, relayout
from npu_core.formats import to_storage

FOUR = ["NCHW", "NHWC", "HWCN", "CHWN"]
FIVE = ["NCDHW", "NDHWC", "DHWCN", "DHWNC"]
OF_FOUR = ["NC1HWC0", "FRACTAL_Z"]
OF_FIVE = ["NDC1HWC0", "FRACTAL_Z_3D"]
ROUND_TRIPS = [
    *itertools.permutations(FOUR, 2),
    *itertools.permutations(FIVE, 2),
    *itertools.product(FOUR, OF_FOUR),
    *itertools.product(FIVE, OF_FIVE),
    *itertools.product(["ND", *FOUR, *FIVE], ["FRACTAL_NZ"]),
    *itertools.product(["ND"], [*OF_FOUR, *OF_FIVE]),
    ("NCHW", "ND"),
    ("NCDHW", "ND"),
]
GROUPED = ("FRACTAL_Z", "FRACTAL_Z_3D")


@settings(max_examples=12)
@given(st.data())
@pytest.mark.parametrize(("plain", "other"), ROUND_TRIPS)
def test_there_and_back(plain: str, other: str, data) -> None:
    sizes = {
        axis: data.draw(st.sampled_from([1, 2, 15, 16, 17, 33] if axis in "NC" else [1, 2, 3]))
        for axis in "NCDHW"
    }
    groups = data.draw(st.integers(1, 9)) if other in GROUPED else 1
    sizes["N"] *= groups
    axes = plain if plain != "ND" else "NCDHW" if other in OF_FIVE else "NCHW"
    shape = tuple(sizes[axis] for axis in axes)
    dtype = data.draw(st.sampled_from(["u1", "f2", "f4", "c8"]))
    array = (np.arange(math.prod(shape)) % 251).astype(dtype).reshape(shape)
    there = relayout(array, plain, other, (), groups)
    back = relayout(there, other, plain, shape, groups)
    assert back.dtype == array.dtype and back.shape == shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("target", [*FOUR, "ND"])
@pytest.mark.parametrize("source", OF_FOUR)
def test_what_is_tiled_becomes_every_order(source: str, target: str) -> None:
    """Each element is where its letters say; the shape is given in the target's order."""
    image = np.arange(3 * 20 * 2 * 5, dtype="i4").reshape(3, 20, 2, 5)
    order = "NCHW" if target == "ND" else target
    shape = tuple(image.shape["NCHW".index(axis)] for axis in order)
    stored = to_storage(image, source)
    found = relayout(stored, source, target, shape)
    for n, c, h, w in [(0, 0, 0, 0), (2, 19, 1, 4), (1, 16, 0, 3)]:
        at = {"N": n, "C": c, "H": h, "W": w}
        assert found[tuple(at[axis] for axis in order)] == image[n, c, h, w]
    assert found.shape == shape
    for original in (image.shape, shape):  # in which order it is, nobody says
        guessed = relayout(stored, source, target, (), 1, original)
        np.testing.assert_array_equal(guessed, found)
    with pytest.raises(ValueError):
        relayout(stored, source, target, (), 1, (3, 33, 2, 5))


@pytest.mark.parametrize("groups", [2, 3, 32])
def test_groups_lose_nothing(groups: int) -> None:
    """Where the original loses half of the values."""
    weight = np.arange(1, 16 * groups * 16 + 1, dtype="i4").reshape(16 * groups, 16, 1, 1)
    for source in FOUR:
        plain = relayout(weight, "NCHW", source)
        stored = relayout(plain, source, "FRACTAL_Z", (), groups)
        assert set(stored[stored != 0]) == set(weight.ravel())
        back = relayout(stored, "FRACTAL_Z", source, plain.shape, groups)
        np.testing.assert_array_equal(back, plain)


@pytest.mark.parametrize("plain", ["ND", "NCHW", "NHWC"])
def test_nz_of_more_than_two_axes_keeps_them(plain: str) -> None:
    """Where the original returns three; its last two axes are tiled, whatever they are."""
    array = np.arange(2 * 3 * 17 * 20, dtype="i4").reshape(2, 3, 17, 20)
    stored = relayout(array, plain, "FRACTAL_NZ")
    assert stored.shape == (2, 3, 2, 2, 16, 16)
    found = relayout(stored, "FRACTAL_NZ", plain, array.shape)
    np.testing.assert_array_equal(found, array)


def test_rows_are_as_long_as_stored() -> None:
    image = np.arange(2 * 9 * 2 * 2, dtype="f4").reshape(2, 9, 2, 2)
    stored = to_storage(image, "NC1HWC0", c0=8)
    np.testing.assert_array_equal(relayout(stored, "NC1HWC0", "NCHW", image.shape), image)
    weight = relayout(stored, "NC1HWC0", "FRACTAL_Z", image.shape)
    assert weight.shape == (2 * 2 * 2, 1, 16, 8)
    np.testing.assert_array_equal(relayout(weight, "FRACTAL_Z", "NCHW", image.shape), image)


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("NC1HWC0", "NCHW", (2, 32, 3, 4)),
        ("NC1HWC0", "NHWC", (2, 3, 4, 32)),
        ("NC1HWC0", "ND", (2, 32, 3, 4)),
        ("NDC1HWC0", "NCDHW", (2, 32, 5, 3, 4)),
        ("NDC1HWC0", "NDHWC", (2, 5, 3, 4, 32)),
    ],
)
def test_without_a_shape_channels_stay_padded(source: str, target: str, shape: tuple) -> None:
    depth = (5,) if source == "NDC1HWC0" else ()
    array = np.ones((2, *depth, 2, 3, 4, 16), "f2")
    assert relayout(array, source, target).shape == shape
    assert keeps_padding(source, target, ()) and not keeps_padding(source, target, shape)


def test_a_vector_is_channels() -> None:
    bias = np.arange(20, dtype="f2")
    stored = relayout(bias, "ND", "NC1HWC0")
    assert stored.shape == (1, 2, 1, 1, 16)
    np.testing.assert_array_equal(relayout(stored, "NC1HWC0", "NCHW", (20,)), bias)


def test_a_format_of_four_axes_with_another_number_is_nd() -> None:
    array = np.arange(6, dtype="f2").reshape(2, 3)
    for source in FOUR:
        assert relayout(array, source, "ND") is array
        stored = relayout(array, source, "FRACTAL_NZ")
        np.testing.assert_array_equal(stored, to_storage(array, "FRACTAL_NZ"))


@pytest.mark.parametrize("name", [*TARGETS, "MD", 18])
def test_the_same_format_moves_nothing(name) -> None:
    array = np.ones((2, 3, 4, 5))
    assert relayout(array, name, name) is array


@pytest.mark.parametrize(
    ("source", "target", "stored", "shape", "words"),
    [
        ("ND", "NCHW", (2, 3), (), "ND does not say"),
        ("ND", "NHWC", (2, 3, 4, 5), (), "ND does not say"),
        ("NCHW", "NCDHW", (2, 3, 4, 5), (), "cannot transpose NCHW to NCDHW"),
        ("NCHW", "NDC1HWC0", (2, 3, 4, 5), (), "cannot transpose NCHW to NCDHW"),
        ("NC1HWC0", "NCHW", (1, 2, 3, 4, 16), (1, 33, 3, 4), "stored in NC1HWC0"),
        ("NC1HWC0", "NHWC", (1, 2, 3, 4, 16), (20,), "has not the 4 axes of NHWC"),
        ("NC1HWC0", "NDHWC", (1, 2, 3, 4, 16), (), "cannot become NDHWC"),
        ("NC1HWC0", "NCHW", (), (), "a scalar cannot be stored"),
        ("NC1HWC0", "NCHW", (16,), (), "not known without a shape"),
        ("NC1HWC0", "NCHW", (1, 2, 3, 4, 0), (1, 0, 3, 4), "c0=0"),
        ("NC1HWC0", "NCHW", (1, 2, 3, 4, 16), (1,) * 33, "33 axes"),
        ("FRACTAL_Z", "NCHW", (12, 1, 16, 16), (), "not known without a shape"),
        ("FRACTAL_NZ", "ND", (1, 1, 16, 16), (), "not known without a shape"),
        ("BN_WEIGHT", "NCHW", (2, 2), (), "layout of format BN_WEIGHT is not known"),
        ("NCHW", "BN_WEIGHT", (2, 2), (), "layout of format BN_WEIGHT is not known"),
        (300, "NCHW", (2, 2), (), "unknown format 300"),
        ("NDHWC", "NCDHW", (2, 2), (), "needs 5 axes"),
    ],
)
def test_what_cannot_be(source, target, stored, shape, words: str) -> None:
    with pytest.raises(ValueError) as error:
        relayout(np.zeros(stored, "f2"), source, target, shape)
    assert words in str(error.value)


def test_groups_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="groups=5 does not divide"):
        relayout(np.zeros((12, 1, 1, 1)), "NCHW", "FRACTAL_Z", (), 5)


PEERS = [
    ("NC1HWC0", "NHWC", (2, 40, 3, 2), 1),
    ("NC1HWC0", "HWCN", (2, 40, 3, 2), 1),
    ("FRACTAL_Z", "HWCN", (20, 5, 3, 2), 1),
    ("NHWC", "FRACTAL_Z", (20, 5, 3, 2), 1),
    ("HWCN", "NCHW", (2, 3, 4, 5), 1),
    ("NHWC", "HWCN", (2, 3, 4, 5), 1),
]


@pytest.mark.parametrize(("source", "target", "sizes", "groups"), PEERS)
def test_the_peer_says_the_same(peer: list[str], source, target, sizes, groups) -> None:
    image = np.random.default_rng(0).random(sizes, np.float32)
    array = np.ascontiguousarray(relayout(image, "NCHW", source))
    shape = tuple(sizes["NCHW".index(axis)] for axis in target) if target in FOUR else ()
    ours = relayout(array, source, target, shape, groups)
    theirs = peers_conversion(*peer, source, target, array, ours.shape)
    if theirs.size == ours.size:
        theirs = theirs.reshape(ours.shape)
    cut = tuple(slice(size) for size in ours.shape)  # it leaves padding, which is cut later
    np.testing.assert_array_equal(theirs[cut], ours)
