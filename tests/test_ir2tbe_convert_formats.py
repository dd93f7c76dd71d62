"""msaccucmp convert -f: every pair of formats the original has, and the others both ways, of whole
files; where each element must lie is worked out here, element by element."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from compare.cli import cli
from ir2tbe.cann.content import Dump, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.types import BY_NAME

NAME = "Conv2D.layer_conv.3.2.1673383728093446"
C0 = 16

FOUR, FIVE = ("NCHW", "NHWC", "HWCN", "ND"), ("NCDHW", "ND")
PEERS = (
    ("FRACTAL_NZ", "NCHW"), ("FRACTAL_NZ", "NHWC"), ("FRACTAL_NZ", "ND"),
    ("FRACTAL_Z", "NCHW"), ("FRACTAL_Z", "HWCN"),
    ("NCHW", "FRACTAL_Z"), ("NHWC", "FRACTAL_Z"), ("HWCN", "FRACTAL_Z"),
    ("NC1HWC0", "NCHW"), ("NC1HWC0", "NHWC"), ("NC1HWC0", "HWCN"),
    ("NDC1HWC0", "NCDHW"), ("NDC1HWC0", "ND"),
    ("HWCN", "NCHW"), ("HWCN", "NHWC"), ("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NHWC", "HWCN"),
)  # fmt: skip
"""What the original has, section 6 of the specification."""

OURS = (
    *product(FOUR, ("NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ")),
    *product(FIVE, ("NDC1HWC0", "FRACTAL_Z_3D", "FRACTAL_NZ")),
)
PAIRS = sorted({*PEERS, *OURS, *((tiled, plain) for plain, tiled in OURS), ("NCHW", "HWCN")})


def up(size: int, by: int = 16) -> int:
    return -(-size // by)


def laid_out(image: np.ndarray, axes: str, form: str, groups: int = 1) -> np.ndarray:
    """The image as a format has it. image: axes in the order N, C, (D,) H, W. axes: those that a
    format without names of axes has, in its order."""
    base = "NCDHW" if image.ndim == 5 else "NCHW"
    if form == "ND":
        form = axes
    if set(form) <= set(base):
        return image.transpose([base.index(axis) for axis in form])
    if form == "FRACTAL_NZ":
        plain = laid_out(image, axes, axes)
        *batch, height, width = plain.shape
        stored = np.zeros((*batch, up(width), up(height), 16, C0), image.dtype)
        for *at, h, w in np.ndindex(plain.shape):
            stored[(*at, w // C0, h // 16, h % 16, w % C0)] = plain[(*at, h, w)]
        return stored
    whole = image if image.ndim == 5 else image[:, :, None]
    count, channels, depth, height, width = whole.shape
    if form in ("NC1HWC0", "NDC1HWC0"):
        stored = np.zeros((count, depth, up(channels), height, width, C0), image.dtype)
        for n, c, d, h, w in np.ndindex(whole.shape):
            stored[n, d, c // C0, h, w, c % C0] = whole[n, c, d, h, w]
        return stored if image.ndim == 5 else stored[:, 0]
    each = count // groups
    lines, columns = math.lcm(each, 16) // each, math.lcm(channels, C0) // channels
    side = min(math.lcm(lines, columns), groups)
    tall = up(side * channels)
    rows = up(groups, side) * depth * tall * height * width
    stored = np.zeros((rows, up(side * each), 16, C0), image.dtype)
    for n, c, d, h, w in np.ndindex(whole.shape):
        group = n // each
        column, line = group % side * channels + c, group % side * each + n % each
        row = (group // side * depth + d) * tall + column // C0
        stored[(row * height + h) * width + w, line // 16, line % 16, column % C0] = whole[
            n, c, d, h, w
        ]
    return stored


def image_for(source: str, target: str, groups: int, each: int = 5, channels: int = 19):
    deep = ("NCDHW", "NDC1HWC0", "FRACTAL_Z_3D")
    sizes = (2, 3, 2) if source in deep or target in deep else (3, 2)
    shape = (groups * each, channels, *sizes)
    return np.arange(1, math.prod(shape) + 1, dtype="i4").reshape(shape)


def converted(tmp_path: Path, stored: np.ndarray, source, target, groups, original, *more):
    tensor = tensor_of(np.ascontiguousarray(stored), BY_NAME["int32"], source, original)
    tensor = replace(tensor, sub_format=groups if groups > 1 else 0)
    write(tmp_path / NAME, Dump((tensor,), (tensor,)))
    arguments = ["convert", "-d", tmp_path / NAME, "-out", tmp_path / "out", "-f", target, *more]
    done = CliRunner().invoke(cli, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    first, second = sorted((tmp_path / "out").iterdir())
    found = np.load(first)
    joined = "x".join(map(str, found.shape))
    names = [f"{NAME}.{side}.0.{joined}.npy" for side in ("input", "output")]
    assert [first.name, second.name] == names
    assert second.read_bytes() == first.read_bytes()
    return found


def order_of(source: str, target: str, base: str) -> str:
    """In which order the axes of a format without names are."""
    plain = {source, target} - {"FRACTAL_NZ", "ND"}
    named = plain.pop() if plain and {source, target} & {"FRACTAL_NZ"} else base
    return named if set(named) <= set(base) else base


@pytest.mark.parametrize("by", ["the file", "-s"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair(tmp_path: Path, source: str, target: str, by: str) -> None:
    image = image_for(source, target, 1)
    axes = order_of(source, target, "NCDHW" if image.ndim == 5 else "NCHW")
    expected = laid_out(image, axes, target)
    stored = laid_out(image, axes, source)
    original = image.shape if axes in ("NCHW", "NCDHW") else laid_out(image, axes, axes).shape
    if by == "-s":  # in the format that is asked for, where that is plain
        tiled = source.startswith(("NC1", "NDC1", "FRACTAL"))
        shape = ",".join(map(str, expected.shape))
        found = converted(
            tmp_path, stored, source, target, 1, (), *(("-s", shape) if tiled else ())
        )
    else:
        found = converted(tmp_path, stored, source, target, 1, original)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("groups", "each", "channels"),
    [(2, 16, 16), (3, 5, 3), (5, 8, 4), (8, 1, 1), (2, 17, 33), (4, 32, 16)],
)
@pytest.mark.parametrize(
    ("plain", "tiled"),
    [*product(FOUR, ("FRACTAL_Z",)), *product(FIVE, ("FRACTAL_Z_3D",))],
)
def test_groups_both_ways(tmp_path: Path, plain, tiled, groups, each, channels) -> None:
    image = image_for(plain, tiled, groups, each, channels)
    axes = "NCDHW" if image.ndim == 5 else "NCHW"
    here, there = laid_out(image, axes, plain), laid_out(image, axes, tiled, groups)
    assert set(there[there != 0]) == set(image.ravel())
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    found = converted(tmp_path / "a", here, plain, tiled, groups, here.shape)
    np.testing.assert_array_equal(found, there)
    back = converted(tmp_path / "b", there, tiled, plain, groups, image.shape)
    np.testing.assert_array_equal(back, here)
