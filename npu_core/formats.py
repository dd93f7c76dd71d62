"""The storage formats of Ascend: where each element of a tensor lies in the chip's memory.

The cube unit reads tiles of 16 rows of C0 elements, so its tensors are cut into tiles, padded with
zeros to whole ones, and the tiles are laid out one after the other. A letter below is an axis of
the tensor; where it is cut, 1 is the number of the tile and 0 the place in it:

    NC1HWC0        N C1 H W C0             FRACTAL_Z      G C1 H W, N1, N0, C0
    NDC1HWC0       N D C1 H W C0           FRACTAL_Z_3D   G D C1 H W, N1, N0, C0
    NDHWC          N D H W C               FRACTAL_NZ     batch, W1, H1, H0, W0

G stands for the groups of a convolution, E of them side by side on the diagonal of one block, so
that little channels fill whole tiles; what is off the diagonal is zero. ND, NCHW, NHWC and NCDHW
keep the tensor as it is; NCHW and its relatives take less than four axes by the rank rule, as
(1, C, H, W) filled from C on.

Numpy only, since dump files are converted where there is no torch. Elements are moved as bits, of
any dtype. The rules are those of torch_npu's FormatHelper, and of CANN's format transfers for
groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Format(IntEnum):
    """Every format ACL has a code for (aclFormat; ge::Format from 5 on where ACL names none)."""

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1C0HWPAD = 5
    NHWC1C0 = 6
    FSR_NCHW = 7
    FRACTAL_DECONV = 8
    C1HWNC0 = 9
    FRACTAL_DECONV_TRANSPOSE = 10
    FRACTAL_DECONV_SP_STRIDE_TRANS = 11
    NC1HWC0_C04 = 12
    FRACTAL_Z_C04 = 13
    CHWN = 14
    DECONV_SP_STRIDE8_TRANS = 15
    HWCN = 16
    NC1KHKWHWC0 = 17
    BN_WEIGHT = 18
    FILTER_HWCK = 19
    LOOKUP_LOOKUPS = 20
    LOOKUP_KEYS = 21
    LOOKUP_VALUE = 22
    LOOKUP_OUTPUT = 23
    LOOKUP_HITS = 24
    C1HWNCoC0 = 25
    MD = 26
    NDHWC = 27
    FRACTAL_ZZ = 28
    FRACTAL_NZ = 29
    NCDHW = 30
    DHWCN = 31
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33
    CN = 34
    NC = 35
    DHWNC = 36
    FRACTAL_Z_3D_TRANSPOSE = 37
    FRACTAL_ZN_LSTM = 38
    FRACTAL_Z_G = 39
    RESERVED = 40
    ALL = 41
    NULL = 42
    ND_RNN_BIAS = 43
    FRACTAL_ZN_RNN = 44
    YUV = 45
    YUV_A = 46
    NCL = 47
    FRACTAL_Z_WINO = 48
    C1HWC0 = 49


_TILE = 16  # rows of a tile, whatever the dtype
_UNMOVED = (Format.ND, Format.NCHW, Format.NHWC, Format.NCDHW)
_ORDERS = {  # axes of the tensor, and how they lie in memory
    Format.NC1HWC0: ("NCHW", "N C1 H W C0"),
    Format.NDC1HWC0: ("NCDHW", "N D C1 H W C0"),
    Format.FRACTAL_Z: ("GNCHW", "G C1 H W N1 N0 C0"),
    Format.FRACTAL_Z_3D: ("GNCDHW", "G D C1 H W N1 N0 C0"),
    Format.FRACTAL_NZ: ("BHW", "B W1 H1 H0 W0"),
    Format.NDHWC: ("NCDHW", "N D H W C"),
}
_DEFAULTS = {4: Format.NCHW, 5: Format.NCDHW}  # by rank
_GROUPED = (Format.FRACTAL_Z, Format.FRACTAL_Z_3D)
_RANKS = {  # ranks a format can hold; any where it is absent
    Format.NHWC: (4,),
    Format.NC1HWC0: (0, 1, 2, 3, 4),
    Format.FRACTAL_Z: (0, 1, 2, 3, 4),
    **dict.fromkeys((Format.NCDHW, Format.NDHWC, Format.NDC1HWC0, Format.FRACTAL_Z_3D), (5,)),
}
_PLAIN = (
    {Format.NCHW, Format.NHWC, Format.HWCN, Format.CHWN},
    {Format.NCDHW, Format.NDHWC, Format.DHWCN, Format.DHWNC},
)


def parse(value: str | int) -> Format:
    """The format of a name (`FRACTAL_NZ`) or an ACL code. Raises ValueError for an unknown one."""
    try:
        return Format[value] if isinstance(value, str) else Format(value)
    except (KeyError, ValueError):
        raise ValueError(
            f"unknown format {value!r}: give a name such as FRACTAL_NZ or an ACL code such as 29"
        ) from None


def default_of(rank: int) -> Format:
    """The format of a tensor that nobody cast: NCHW at rank 4, NCDHW at rank 5, else ND."""
    return _DEFAULTS.get(rank, Format.ND)


def base_of(format: int) -> Format:
    """The plain format a format is a layout of: casts between two plain ones move nothing.

    Raises ValueError for a format whose layout is not known.
    """
    known = _known(format)
    if known in _UNMOVED:
        return known
    if known is Format.FRACTAL_NZ:
        return Format.ND
    return Format.NCDHW if _RANKS[known] == (5,) else Format.NCHW


def storage_shape(
    shape: tuple[int, ...], format: int, itemsize: int, groups: int = 1, c0: int | None = None
) -> tuple[int, ...]:
    """The shape in which a tensor lies in memory.

    itemsize: bytes of an element. groups: of the convolution whose weight this is, (N, C / groups,
    ...); FRACTAL_Z and FRACTAL_Z_3D only. c0: elements of a tile's row; None is what torch_npu
    takes, 16, but 32 for one-byte elements in FRACTAL_NZ. The cube itself has rows of 32 bytes, so
    32 // itemsize is right for files of CANN wherever their shape does not say it.
    Raises ValueError for a format without known layout, a rank it cannot hold, and wrong groups.
    """
    return _plan(tuple(shape), format, itemsize, groups, c0).stored


def to_storage(
    array: np.ndarray, format: int, groups: int = 1, c0: int | None = None
) -> np.ndarray:
    """The array as it lies in memory, of shape `storage_shape`; what pads it is zero bits.

    May share memory with `array` where the format moves nothing. Arguments and errors are those of
    `storage_shape`.
    """
    plan = _plan(array.shape, format, array.itemsize, groups, c0)
    if groups > 1:
        array = _merge_groups(array, groups, plan.side)
    padded = base = array.reshape(plan.base)
    if plan.padded != plan.base:
        padded = np.zeros(plan.padded, array.dtype)
        padded[tuple(slice(n) for n in plan.base)] = base
    return padded.reshape(plan.cut).transpose(plan.order).reshape(plan.stored)


def from_storage(
    array: np.ndarray, format: int, shape: tuple[int, ...], groups: int = 1, c0: int | None = None
) -> np.ndarray:
    """The tensor of `shape` out of memory of shape `storage_shape`; padding is dropped unread.

    May share memory with `array`. Raises ValueError as `storage_shape` does, and for an array that
    has not the shape in which such a tensor is stored.
    """
    shape = tuple(shape)
    plan = _plan(shape, format, array.itemsize, groups, c0)
    if array.shape != plan.stored:
        raise ValueError(
            f"a tensor of shape {shape} is stored in {parse(format).name} as {plan.stored}, "
            f"but the array has shape {array.shape}; check shape, groups={groups} and c0={c0}"
        )
    tiles = array.reshape([plan.cut[axis] for axis in plan.order])
    base = tiles.transpose(np.argsort(plan.order)).reshape(plan.padded)
    base = base[tuple(slice(n) for n in plan.base)]
    if groups > 1:
        base = _split_groups(base, shape, groups, plan.side)
    return base.reshape(shape)


def transpose(array: np.ndarray, source: int, target: int) -> np.ndarray:
    """A view of an array in one plain format as another of the same rank: NCHW to NHWC, HWCN, ...

    Raises ValueError for formats that are not NCHW, NHWC, HWCN, CHWN or NCDHW, NDHWC, DHWCN, DHWNC,
    for two of different rank, and for an array of another rank.
    """
    source, target = parse(source), parse(target)
    if not any({source, target} <= family for family in _PLAIN):
        raise ValueError(
            f"cannot transpose {source.name} to {target.name}: give two of NCHW, NHWC, HWCN, CHWN "
            "or two of NCDHW, NDHWC, DHWCN, DHWNC"
        )
    if array.ndim != len(source.name):
        raise ValueError(f"{source.name} needs {len(source.name)} axes, got shape {array.shape}")
    return array.transpose([source.name.index(axis) for axis in target.name])


@dataclass(frozen=True)
class _Plan:
    """The shapes an array passes through, from the tensor's axes to what is stored."""

    side: int  # E, the groups side by side in a block
    base: tuple[int, ...]  # the axes of the format, groups merged
    padded: tuple[int, ...]  # the same, to whole tiles
    cut: tuple[int, ...]  # axes cut into tile and place
    order: tuple[int, ...]  # how these lie in memory
    stored: tuple[int, ...]


def _known(format: int) -> Format:
    known = parse(format)
    if known not in _ORDERS and known not in _UNMOVED:
        names = ", ".join(f.name for f in (*_UNMOVED, *_ORDERS))
        raise ValueError(f"the layout of format {known.name} is not known: choose one of {names}")
    return known


def _plan(shape: tuple[int, ...], format: int, itemsize: int, groups: int, c0: int | None) -> _Plan:
    known = _known(format)
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape} has a negative size")
    ranks = _RANKS.get(known)
    if ranks is not None and len(shape) not in ranks:
        allowed = f"{ranks[-1]} axes" if len(ranks) == 1 else f"at most {ranks[-1]} axes"
        raise ValueError(f"{known.name} holds tensors of {allowed}, got shape {shape}")
    if groups < 1 or groups > 1 and known not in _GROUPED:
        raise ValueError(f"groups={groups} in {known.name}: only FRACTAL_Z and FRACTAL_Z_3D have "
                         "groups, one or more")  # fmt: skip
    if c0 is None:
        c0 = 32 if known is Format.FRACTAL_NZ and itemsize == 1 else _TILE
    if c0 < 1:
        raise ValueError(f"c0={c0}: a tile's row has one element or more")
    if known in _UNMOVED:
        base = _rank_rule(shape) if known is Format.NCHW and len(shape) < 4 else shape
        return _Plan(1, base, base, base, tuple(range(len(base))), base)

    axes, order = _ORDERS[known]
    side, base = _base_shape(shape, known, groups, c0)
    sizes, padded, cut = {}, [], []
    for axis, size in zip(axes, base, strict=True):
        if f"{axis}1" in order:
            tile = c0 if order.endswith(f"{axis}0") else _TILE
            sizes |= {f"{axis}1": -(-size // tile), f"{axis}0": tile}
            padded.append(sizes[f"{axis}1"] * tile)
            cut += [f"{axis}1", f"{axis}0"]
        else:
            sizes[axis] = size
            padded.append(size)
            cut.append(axis)
    names = order.split()
    stored = [sizes[name] for name in names]
    if known in _GROUPED:  # CANN takes four axes
        stored = [math.prod(stored[:-3]), *stored[-3:]]
    elif known is Format.FRACTAL_NZ:
        stored = [*shape[:-2], *stored[1:]]
    return _Plan(
        side,
        base,
        tuple(padded),
        tuple(sizes[name] for name in cut),
        tuple(cut.index(name) for name in names),
        tuple(stored),
    )


def _rank_rule(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of at most four axes as (N, C, H, W): C, then CH, then CHW are filled first."""
    return shape if len(shape) == 4 else (1, *shape, 1, 1, 1)[:4]


def _base_shape(
    shape: tuple[int, ...], format: Format, groups: int, c0: int
) -> tuple[int, tuple[int, ...]]:
    """E, and the shape as the axes of the format."""
    if format is Format.FRACTAL_NZ:
        height, width = (*shape, 1, 1)[:2] if len(shape) < 2 else shape[-2:]
        return 1, (math.prod(shape[:-2]), height, width)
    shape = shape if len(shape) == 5 else _rank_rule(shape)
    if format not in _GROUPED:
        return 1, shape
    n, c, *space = shape
    if n % groups:
        raise ValueError(f"groups={groups} does not divide the {n} output channels of {shape}")
    side = _side_by_side(n // groups, c, groups, c0)
    return side, (-(-groups // side), side * (n // groups), side * c, *space)


def _side_by_side(n: int, c: int, groups: int, c0: int) -> int:
    """E: how many groups of n x c channels share a block, so that both sides fill whole tiles.

    CANN: min(lcm(lcm(c, c0) / c, lcm(n, 16) / n), groups), and lcm(a, b) / a is b / gcd(a, b).
    """
    return min(math.lcm(c0 // math.gcd(c, c0), _TILE // math.gcd(n, _TILE)), groups)


def _merge_groups(array: np.ndarray, groups: int, side: int) -> np.ndarray:
    """(N, C, ...) to (G, E, N / groups, E, C, ...): E groups on the diagonal of each block."""
    n, c, *space = array.shape
    n, blocks = n // groups, -(-groups // side)
    full = np.zeros((blocks * side, n, c, *space), array.dtype)  # the last block may lack groups
    full[:groups] = array.reshape(groups, n, c, *space)
    merged = np.zeros((blocks, side, n, side, c, *space), array.dtype)
    at = np.arange(side)
    merged[:, at, :, at] = full.reshape(blocks, side, n, c, *space).swapaxes(0, 1)
    return merged


def _split_groups(merged: np.ndarray, shape: tuple[int, ...], groups: int, side: int) -> np.ndarray:
    """The inverse of `_merge_groups`, from (G, E * N / groups, E * C, ...)."""
    n, c, *space = shape
    n, blocks, at = n // groups, merged.shape[0], np.arange(side)
    full = merged.reshape(blocks, side, n, side, c, *space)[:, at, :, at]  # (E, G, n, c, ...)
    return full.swapaxes(0, 1).reshape(blocks * side, n, c, *space)[:groups]
