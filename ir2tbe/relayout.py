"""A tensor in one Ascend format as the same tensor in another, for files that only name the two.

`npu_core.formats` knows where each element of a tensor lies in a format. A dump file says less: the
stored shape, perhaps the shape before padding, and no order of axes. What is to be assumed stands
here. Formats are plain, whole axes in some order, or tiled; a tiled one is a layout of NCHW, of
NCDHW, or of any tensor's last two axes (FRACTAL_NZ). ND has no names for its axes: it is taken as
NCHW, or as NCDHW where it has five, by tiled formats, and never transposed.
"""

from __future__ import annotations

import numpy as np

from npu_core.formats import Format, from_storage, parse, storage_shape, to_storage, transpose

MOST_AXES = 32
"""What numpy of every supported version can have."""

_FOUR = (Format.NCHW, Format.NHWC, Format.HWCN, Format.CHWN)
_FIVE = (Format.NCDHW, Format.NDHWC, Format.DHWCN, Format.DHWNC)
_TILED = {
    Format.NC1HWC0: Format.NCHW,
    Format.FRACTAL_Z: Format.NCHW,
    Format.NDC1HWC0: Format.NCDHW,
    Format.FRACTAL_Z_3D: Format.NCDHW,
    Format.FRACTAL_NZ: Format.ND,
}
"""Tiled formats, and what each is a layout of."""

_KNOWN = (Format.ND, *_FOUR, *_FIVE, *_TILED)
_GROUPED = (Format.FRACTAL_Z, Format.FRACTAL_Z_3D)
_PADS_CHANNELS = (Format.NC1HWC0, Format.NDC1HWC0)

TARGETS = tuple(format.name for format in _KNOWN)
"""Names of the formats that there are conversions to."""


def relayout(
    array: np.ndarray, source: str | int, target: str | int, shape: tuple[int, ...] = (),
    groups: int = 1, original: tuple[int, ...] = (),
) -> np.ndarray:  # fmt: skip
    """An array that lies in format `source`, in format `target`; it may share memory.

    source, target: names or codes. shape: of the result where that is plain, else of the tensor as
    what `source` is a layout of; used where `source` is tiled. original: the same where nobody says
    in which order; it is taken in that of what `source` is a layout of if it is stored so, else in
    the result's. Without both NC1HWC0 and NDC1HWC0 keep the channels that pad. groups: of a
    convolution, for FRACTAL_Z and FRACTAL_Z_3D. Rows of a tile have as many elements as in
    `source`, else as many as torch_npu takes. Raises ValueError for formats that cannot become each
    other, and for an array that is not what the shape is stored as.
    """
    start, end = parse(source), parse(target)
    if start in _FOUR and array.ndim != 4:
        start = Format.ND  # as the original takes it
    if start is end:
        return array
    for format in (start, end):
        if format not in _KNOWN:
            raise ValueError(
                f"the layout of format {format.name} is not known: those are {', '.join(TARGETS)}"
            )
    c0 = None
    if start in _TILED:
        if not array.ndim:
            raise ValueError(f"a scalar cannot be stored in {start.name}")
        c0 = array.shape[-1]
        base = _TILED[start]
        form = base if end in _TILED else end
        array = _unpacked(array, start, form, shape, groups, original)
        start = form
    if end in _TILED:
        return _packed(array, start, end, groups, c0)
    return _moved(array, start, end)


def keeps_padding(source: str | int, target: str | int, shape: tuple[int, ...]) -> bool:
    """Whether `relayout` keeps channels that pad, for want of a shape."""
    return not shape and parse(source) in _PADS_CHANNELS and parse(source) is not parse(target)


def _unpacked(
    array: np.ndarray, source: Format, form: Format, shape: tuple[int, ...], groups: int,
    original: tuple[int, ...],
) -> np.ndarray:  # fmt: skip
    """What is stored in a tiled format, as a plain one."""
    if (axes := len(shape or original)) > MOST_AXES:
        raise ValueError(f"a shape of {axes} axes is of no tensor")
    base = _TILED[source]
    groups = groups if source in _GROUPED else 1
    moves = form not in (base, Format.ND) and base is not Format.ND
    if moves and form not in (_FOUR if base is Format.NCHW else _FIVE):
        raise ValueError(
            f"{source.name} is a layout of {base.name}, which cannot become {form.name}"
        )
    c0 = array.shape[-1]
    if not shape and moves and _is_stored(original, array, source, groups):
        return transpose(from_storage(array, source, original, groups, c0), base, form)
    shape = shape or original
    if not shape:
        if source not in _PADS_CHANNELS or array.ndim != len(base.name) + 1:
            raise ValueError(f"how {source.name} is padded is not known without a shape")
        shape = _with_padding(array.shape, base)
        if moves:
            shape = tuple(shape[base.name.index(axis)] for axis in form.name)
    if not moves:
        return from_storage(array, source, shape, groups, c0)
    if len(shape) != len(form.name):
        raise ValueError(f"shape {shape} has not the {len(form.name)} axes of {form.name}")
    of_base = tuple(shape[form.name.index(axis)] for axis in base.name)
    return transpose(from_storage(array, source, of_base, groups, c0), base, form)


def _is_stored(shape: tuple[int, ...], array: np.ndarray, format: Format, groups: int) -> bool:
    """Whether a tensor of this shape, as what the format is a layout of, is stored so."""
    try:
        stored = storage_shape(shape, format, array.itemsize, groups, array.shape[-1])
    except ValueError:
        return False
    return bool(shape) and stored == array.shape


def _with_padding(stored: tuple[int, ...], base: Format) -> tuple[int, ...]:
    """N, C1 * C0 and the rest of (N, C1, H, W, C0) or (N, D, C1, H, W, C0)."""
    *front, c0 = stored
    at = 1 if base is Format.NCHW else 2
    channels = front.pop(at) * c0
    return (front[0], channels, *front[1:])


def _packed(
    array: np.ndarray, form: Format, target: Format, groups: int, c0: int | None
) -> np.ndarray:
    base = _TILED[target]
    if form is not base and Format.ND not in (form, base):
        array = transpose(array, form, base)
    return to_storage(array, target, groups if target in _GROUPED else 1, c0)


def _moved(array: np.ndarray, form: Format, target: Format) -> np.ndarray:
    if form is target or target is Format.ND:
        return array
    if form is not Format.ND:
        return transpose(array, form, target)
    if target not in (Format.NCHW, Format.NCDHW) or array.ndim != len(target.name):
        raise ValueError(
            f"ND does not say which axis is which, so shape {array.shape} is not {target.name}"
        )
    return array
