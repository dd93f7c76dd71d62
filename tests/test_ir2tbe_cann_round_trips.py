"""ir2tbe.cann.file there and back: every field, type of data and format of a dump file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir2tbe.cann.content import Blob, Dump, Origin, Tensor, blob_of, tensor_of
from ir2tbe.cann.file import read, write
from ir2tbe.cann.formats import CODES, FORMATS
from ir2tbe.cann.types import BY_NAME, TYPES, decode


def content_of(dump: Dump) -> list[tuple[Tensor | Blob, bytes]]:
    return [(part, part.read().tobytes()) for part in dump.parts]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    kind = draw(st.sampled_from(list(TYPES.values())))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    data = draw(st.binary(min_size=kind.nbytes(81), max_size=kind.nbytes(81)))
    bits = np.frombuffer(data, np.uint8) & (63 if kind.name.startswith("float6") else 255)
    values = decode(bits, kind, int(np.prod(shape, dtype=int))).reshape(shape)
    made = tensor_of(values, kind, draw(st.sampled_from(sorted(CODES))))
    numbers = st.integers(0, 2**64 - 1)
    return replace(
        made,
        original_shape=tuple(draw(st.lists(numbers, max_size=3))),
        sub_format=draw(st.integers(-(2**31), 2**31 - 1)),
        address=draw(numbers),
        offset=draw(numbers),
    )


@st.composite
def dumps(draw: st.DrawFn) -> Dump:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    origin = st.none() | st.builds(Origin, text, st.integers(0, 9), st.integers(0, 40))
    outputs = [
        replace(
            tensor,
            origin=draw(origin),
            dim_ranges=tuple(draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))),
        )
        for tensor in draw(st.lists(tensors(), max_size=2))
    ]
    blobs = st.lists(st.builds(blob_of, st.binary(max_size=9), st.integers(0, 3)), max_size=2)
    return Dump(
        tuple(draw(st.lists(tensors(), max_size=2))),
        tuple(outputs),
        tuple(draw(blobs)),
        tuple(draw(blobs)),
        draw(text),
        "2.0",
        draw(st.integers(0, 2**64 - 1)),
        tuple(draw(st.lists(st.tuples(text, text), max_size=2))),
    )


@given(dumps())
def test_a_dump_survives(tmp_path_factory: pytest.TempPathFactory, dump: Dump) -> None:
    folder = tmp_path_factory.mktemp("dump")
    write(folder / "one", dump)
    back = read(folder / "one")
    assert back == dump
    assert content_of(back) == content_of(dump)
    sides = (*back.inputs, *back.outputs), (*dump.inputs, *dump.outputs)
    for mine, theirs in zip(*sides, strict=True):
        if mine.shape and mine.kind.by_shape:
            assert mine.values().tobytes() == theirs.values().tobytes()
    write(folder / "two", back)
    assert (folder / "two").read_bytes() == (folder / "one").read_bytes()


@settings(max_examples=5)
@given(data=st.data())
@pytest.mark.parametrize("name", BY_NAME)
def test_values_of_every_type_survive_a_file(tmp_path_factory, name: str, data) -> None:
    kind = BY_NAME[name]
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    if not kind.by_shape or kind.bits < 8:
        shape = (*shape, 8 // min(kind.bits, 8))  # whole bytes
    size = kind.nbytes(int(np.prod(shape)))
    bits = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8)
    bits = bits & {"bool": 1, "float6_e3m2": 63, "float6_e2m3": 63}.get(name, 255)
    values = decode(bits, kind, int(np.prod(shape)))
    folder = tmp_path_factory.mktemp("type")
    write(folder / "one", Dump((tensor_of(values.reshape(shape), kind),)))
    (back,) = read(folder / "one").inputs
    assert (back.kind, back.values().dtype) == (kind, kind.values)
    assert back.values().shape == (shape if kind.by_shape else (bits.size,))
    write(folder / "two", Dump((tensor_of(back.values(), kind),)))
    if kind.values.kind == "c":  # casts may quiet a signalling NaN
        np.testing.assert_array_equal(back.values().reshape(-1), values)
        np.testing.assert_array_equal(read(folder / "two").inputs[0].values(), back.values())
    else:
        assert back.read().tobytes() == bits.tobytes()
        assert back.values().reshape(-1).tobytes() == values.tobytes()
        assert read(folder / "two").inputs[0].read().tobytes() == bits.tobytes()


def test_every_format_survives_a_file(tmp_path: Path) -> None:
    values = np.zeros(1, "i1")
    tensors = tuple(tensor_of(values, BY_NAME["int8"], name) for name in CODES)
    write(tmp_path / "file", Dump(tensors, tensors))
    back = read(tmp_path / "file")
    for side in (back.inputs, back.outputs):
        assert [FORMATS[tensor.format] for tensor in side] == list(CODES)
