"""Copies, casts and pads as TBE operators: they hang on how a tensor lies in memory."""

from __future__ import annotations

import pytest
import torch
from tbe_calls import (
    DEVICES,
    FLOAT,
    HALF,
    aten,
    called,
    check,
    check_ends,
    check_formats,
    drawn,
)

from npu_core.formats import Format


@pytest.mark.parametrize(
    ("view", "types"),
    [
        (lambda x: x, ()),
        (lambda x: x.mT, ("Transpose",)),
        (lambda x: x.permute(2, 0, 1), ("Transpose",)),
        (lambda x: x[:1].expand(3, 4, 5), ("BroadcastTo",)),
        (lambda x: x[:, 1:3], ("StridedSlice",)),
        (lambda x: x[:, 1:3].mT, ("AsStrided",)),
        (lambda x: x[:, :1, ::2].expand(3, 4, 3), ("AsStrided",)),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_clone_hangs_on_how_the_tensor_lies(view, types, device):
    x = view(drawn(3, 4, 5, device=device))
    call = called(aten.clone.default, x, memory_format=torch.contiguous_format)
    check(call)
    assert call.types == types
    if types == ("Transpose",):
        base, places = (port.value for port in call.ran.steps[0].inputs)
        assert base.is_contiguous() and torch.equal(base.permute(places.tolist()), x)


@pytest.mark.parametrize(
    ("target", "source", "types"),
    [
        (lambda x: x, lambda y: y, ()),
        (lambda x: x, lambda y: y.half(), ("Cast",)),
        (lambda x: x, lambda y: y.cpu(), ()),
        (lambda x: x, lambda y: y.mT.contiguous().mT, ("AsStrided",)),
        (lambda x: x, lambda y: y[:1].expand(3, 4), ("AsStrided",)),
        (lambda x: x, lambda y: y[:1], ("AsStrided",)),
        (lambda x: x.mT.contiguous().mT, lambda y: y, ("ViewCopy",)),
        (lambda x: x.mT.contiguous().mT, lambda y: y.half(), ("Cast", "ViewCopy")),
        (lambda x: x, lambda y: y.half().mT.contiguous().mT, ("AsStrided", "Cast")),
        (lambda x: x.mT.contiguous().mT, lambda y: y.int().mT.contiguous().mT,
         ("AsStrided", "Cast", "ViewCopy")),
    ],
)  # fmt: skip
def test_copy_runs_what_is_needed(target, source, types):
    call = called(aten.copy_.default, target(drawn(3, 4)), source(drawn(3, 4)))
    check(call)
    assert call.types == types


def test_a_copy_into_another_format_is_an_identity():
    target = torch.ops.npu.npu_format_cast(drawn(3, 4), int(Format.FRACTAL_NZ))
    call = called(aten.copy_.default, target, drawn(3, 4))
    check(call)
    assert call.types == ("Identity",)


def test_a_cast_of_the_format_is_an_operator_where_memory_moves():
    cast, tiled = torch.ops.npu.npu_format_cast.default, Format.FRACTAL_NZ
    to = called(cast, drawn(3, 4), int(tiled))
    back = called(cast, to.results[0], int(Format.ND))
    there = called(torch.ops.npu.npu_format_cast_.acl_format, drawn(3, 4), int(tiled))
    for call, formats in (
        (to, [Format.ND, tiled]),
        (back, [tiled, Format.ND]),
        (there, [Format.ND, tiled]),
    ):
        check_ends(call)
        check_formats(call)
        (step,) = call.ran.steps
        assert step.op == "TransData"
        assert [port.format for port in (*step.inputs, *step.outputs)] == formats
    assert called(cast, to.results[0], int(tiled)).types == ()
    assert called(cast, drawn(3, 4), int(Format.NCHW)).types == ()


def test_a_change_of_dtype_is_a_cast_on_the_device_only():
    x = drawn(3, 4)
    call = called(aten._to_copy.default, x, dtype=HALF)
    check(call)
    assert call.types == ("Cast",) and dict(call.ran.steps[0].attributes)["dst_type"] == "float16"
    assert called(aten._to_copy.default, x).types == ()
    assert called(aten._to_copy.default, x, dtype=HALF, device="cpu").types == ()


@pytest.mark.parametrize(
    ("pads", "types"),
    [
        ([0, 1], ("Fill", "PadV3")),
        ([1, 2, 3, 0], ("Fill", "PadV3")),
        ([-1, 2, 0, -1], ("Fill", "PadV3", "StridedSlice", "StridedSlice")),
        ([0, 0, 0, -2], ("StridedSlice",)),
        ([-1, 0, 0, -2], ("StridedSlice", "StridedSlice")),
        ([2, -3], ("Fill", "PadV3", "StridedSlice")),
    ],
)
@pytest.mark.parametrize("dtype", [FLOAT, torch.int64])
def test_padding(pads, types, dtype):
    x = (drawn(2, 4, 5) * 9).to(dtype)
    call = called(aten.constant_pad_nd.default, x, pads, 7)
    check(call)
    assert call.types == types
