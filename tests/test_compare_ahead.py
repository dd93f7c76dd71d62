"""Many small pairs measured in one call: the rows are those of each pair alone."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from h5py import h5d, h5s
from hypothesis import given
from hypothesis import strategies as st

from compare import direct, rooms
from compare.comparing import Options
from compare.engine import compare_dumps
from dumper import dtypes
from dumper.reader import open_dump

NAMES = ("float32", "float64", "float16", "bfloat16", "int32", "int8", "bool")
ODD = (0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 3.0e38, 1e-40)


@st.composite
def pair(draw: st.DrawFn) -> tuple[str, np.ndarray, np.ndarray]:
    """A dtype, and the bits of two tensors: alike, near, or anything."""
    name = draw(st.sampled_from(NAMES))
    kind = dtypes.BY_NAME[name].bits
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([0, 1, 2, 7, 64, 300]))
    made = []
    for _ in range(2):
        values = random.choice([*ODD, *random.normal(0, 9, 3)], size)
        with np.errstate(all="ignore"):
            if name == "bfloat16":
                bits = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            elif kind.kind in "iub":
                bits = (np.nan_to_num(values, posinf=9, neginf=0) % 2).astype(kind)
            else:
                bits = values.astype(kind)
        made.append(bits)
    if draw(st.booleans()):
        made[1] = made[0].copy()
    return name, *made


def write(path: Path, tensors: list[tuple[str, np.ndarray]]) -> Path:
    with h5py.File(path, "w") as file:
        for i, (name, bits) in enumerate(tensors):
            group = file.create_group(f"op/{i}/output")
            kind = dtypes.file_type(dtypes.BY_NAME[name])
            data = h5py.Dataset(
                h5d.create(group.id, b"x", kind, h5s.create_simple(bits.shape))
            )  # fmt: skip
            data.id.write(h5s.ALL, h5s.ALL, bits, kind)
            data.attrs["Type"] = np.int32(0)
            data.attrs["TorchDType"] = np.bytes_(name)
            data.attrs["DeviceType"] = np.int32(10)
    return path


def rows(paths: list[Path], options: Options) -> list[str]:
    with open_dump(paths[0]) as mine, open_dump(paths[1]) as golden:
        return list(map(repr, compare_dumps(mine, golden, options)))


@given(
    st.lists(pair(), min_size=1, max_size=20), st.sampled_from([0, 5]), st.booleans(),
    st.sampled_from([3, 256]),
)  # fmt: skip
def test_rows_are_those_of_each_pair_alone(tmp_path_factory, pairs, first, divergence, many):
    folder = tmp_path_factory.mktemp("ahead")
    paths = [
        write(folder / file, [(name, sides[which]) for name, *sides in pairs])
        for which, file in enumerate(("m.h5", "g.h5"))
    ]
    options = Options(divergence=divergence, first=first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "MANY", many)
        together = rows(paths, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rooms, "KEPT", 0)
        assert together == rows(paths, options)
    assert len(together) == len(pairs)


def test_one_call_takes_them_all(tmp_path, monkeypatch):
    """Of each dtype that the loops read; whatever else there is in the file costs nobody a call."""
    calls = []
    measure = direct.measure

    def counted(loop, pairs, *more, **options):
        calls.append((loop.name, len(pairs)))
        return measure(loop, pairs, *more, **options)

    monkeypatch.setattr(direct, "measure", counted)
    tensors = [("float32", np.full(3, i, "f4")) for i in range(40)]
    tensors += [("float64", np.full(3, i, "f8")) for i in range(10)]
    tensors += [("int32", np.full(3, i, "i4")) for i in range(10)]
    paths = [write(tmp_path / name, tensors) for name in ("m.h5", "g.h5")]
    assert len(rows(paths, Options())) == 60
    assert calls == [("direct_32", 40), ("direct_64", 10)]


def test_a_file_that_ends_too_early_costs_its_rows(tmp_path):
    """After it was opened: what is gone is said, of what is there the numbers come."""
    tensors = [("float32", np.full(50, i, "f4")) for i in range(40)]
    paths = [write(tmp_path / name, tensors) for name in ("m.h5", "g.h5")]
    with open_dump(paths[0]) as mine, open_dump(paths[1]) as golden:
        where = sorted(record.outputs[0].at for record in mine.records)
        with open(paths[0], "r+b") as file:
            file.truncate(where[20])
        found = list(compare_dumps(mine, golden))
    lost = [row for row in found if row.metrics is None]
    assert len(found) == 40 and len(lost) == 20
    assert all("shorter" in row.reasons[0] for row in lost)
