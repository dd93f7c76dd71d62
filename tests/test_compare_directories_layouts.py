"""compare on two folders of CANN dumps: tensors in any layout and data type."""

import ml_dtypes
import numpy as np
import pytest
from folders import put, rows, run, tensor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ir2tbe.relayout import relayout

X = np.arange(24, dtype="f4").reshape(2, 3, 2, 2) - 11
LAYOUTS = {
    4: ("ND", "NCHW", "NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ"),
    5: ("ND", "NCDHW", "NDC1HWC0", "FRACTAL_Z_3D", "FRACTAL_NZ"),
}
AS_ND = ("ND", "FRACTAL_NZ")


def laid(values, form, **more):
    """A tensor as it lies in a format of a device."""
    base = "NCHW" if values.ndim == 4 else "NCDHW"
    stored = relayout(values, "ND" if form in AS_ND else base, form)
    return tensor(stored, form=form, original=values.shape, **more)


@st.composite
def values(draw):
    rank = draw(st.sampled_from(sorted(LAYOUTS)))
    shape = draw(st.lists(st.integers(1, 19), min_size=rank, max_size=rank))
    dtype = draw(st.sampled_from(["f2", "f4", "bfloat16", "i1"]))
    seed = draw(st.integers(0, 2**32 - 1))
    found = np.random.default_rng(seed).standard_normal(shape[:2] + [min(n, 3) for n in shape[2:]])
    return (found * 8).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_layouts_change_nothing(tmp_path_factory, data):
    """One tensor in whatever layout each side keeps it in is equal, bit by bit."""
    place = tmp_path_factory.mktemp("layouts")
    array = data.draw(values())
    for side in "mg":
        form = data.draw(st.sampled_from(LAYOUTS[array.ndim]))
        put(place / side, 0, "Add", "a", [laid(array, form)], [array])
    done = run(place / "m", place / "g", place / "out")
    assert done.exit_code == 0, done.output
    assert [row["ExactMatch"] for row in rows(done)] == ["1.000000"] * 2
    assert rows(done)[0]["Shape"] == str(list(array.shape)).replace(" ", "")


@pytest.mark.parametrize("golden", ["NCHW", "NHWC", "HWCN"])
@pytest.mark.parametrize("mine", ["NCHW", "NHWC", "HWCN", "NC1HWC0", "FRACTAL_Z"])
def test_axes_are_put_in_golden_order(tmp_path, mine, golden):
    for side, form in (("m", mine), ("g", golden)):
        stored = relayout(X, "NCHW", form)
        put(tmp_path / side, 0, "Add", "a", (), [tensor(stored, form=form, original=X.shape)])
    (row,) = rows(run(tmp_path / "m", tmp_path / "g", tmp_path / "out"))
    shape = {"NCHW": "[2,3,2,2]", "NHWC": "[2,2,2,3]", "HWCN": "[2,2,3,2]"}[golden]
    assert (row["ExactMatch"], row["Shape"]) == ("1.000000", shape), row


def test_nd_has_no_names_for_axes(tmp_path):
    last = np.moveaxis(X, 1, -1)
    put(tmp_path / "m", 0, "Add", "a", (), [tensor(last, form="NHWC")])
    put(tmp_path / "g", 0, "Add", "a", (), [X])
    (row,) = rows(run(tmp_path / "m", tmp_path / "g", tmp_path / "out"))
    reason = "shapes differ: [2, 2, 2, 3] in mine, [2, 3, 2, 2] in golden"
    assert row["CompareFailReason"] == reason


def test_groups_of_a_convolution(tmp_path):
    weight = np.arange(32 * 8 * 2, dtype="f2").reshape(32, 8, 1, 2)
    stored = relayout(weight, "NCHW", "FRACTAL_Z", groups=4)
    tiled = tensor(stored, form="FRACTAL_Z", original=weight.shape, groups=4)
    put(tmp_path / "m", 0, "Conv2D", "c", [tiled])
    put(tmp_path / "g", 0, "Conv2D", "c", [tensor(weight, form="NCHW")])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert done.exit_code == 0 and rows(done)[0]["ExactMatch"] == "1.000000"


def test_what_nobody_can_unpack_is_compared_as_it_lies(tmp_path):
    stored = np.ones((1, 1, 16, 16), "f2")
    odd = tensor(stored, form="FRACTAL_NZ", original=())
    for side in "mg":
        put(tmp_path / side, 0, "MatMul", "a", [odd], [odd])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert done.exit_code == 0
    assert all("as both lie in FRACTAL_NZ" in row["CompareFailReason"] for row in rows(done))
    put(tmp_path / "n", 0, "MatMul", "a", [odd], [tensor(np.ones((16, 16), "f2"))])
    one, other = rows(run(tmp_path / "m", tmp_path / "n", tmp_path / "out"))
    assert one["ExactMatch"] == "1.000000" and other["ExactMatch"] == "NaN"
    assert "is padded is not known without a shape" in other["CompareFailReason"]


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("int4", np.arange(-8, 8).astype(ml_dtypes.int4)),
        ("float4_e2m1", np.arange(4).astype(ml_dtypes.float4_e2m1fn)),
        ("float8_e8m0", np.ones(3, ml_dtypes.float8_e8m0fnu)),
        ("hifloat8", np.ones(3, "f4")),
        ("uint1", np.ones(8, "u1")),
        ("complex32", np.ones(3, "c8")),
        ("string", np.frombuffer(b"text", "u1")),
        ("float4_e1m2", np.ones(4, "u1")),
        ("bool", np.ones(3, "?")),
    ],
)
def test_every_kind_of_data_type(tmp_path, kind, array):
    other = array.copy()
    other[0] = not other[0] if kind == "bool" else array[1] if array[1] != array[0] else 0
    for side, held in (("m", array), ("g", other), ("n", array)):
        put(tmp_path / side, 0, "Cast", "c", (), [tensor(held, kind)])
    same = run(tmp_path / "m", tmp_path / "n", tmp_path / "out")
    assert same.exit_code == 0 and rows(same)[0]["DataType"] == kind, same.output
    apart = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert apart.exit_code == 1 and rows(apart)[0]["Verdict"] == "differs", apart.output


def test_dtypes_of_one_value(tmp_path):
    half = X.astype("f2")
    put(tmp_path / "m", 0, "Cast", "c", [half, X.astype("i4")], [X > 0])
    put(tmp_path / "g", 0, "Cast", "c", [half.astype("f4"), X.astype("i8")], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    found = rows(done)
    assert [row["VerdictCode"] for row in found] == ["equal_in_value"] * 2 + ["no_numbers"]
    assert [(row["DataType"], row["DataType2"]) for row in found][:2] == [
        ("float16", "float32"), ("int32", "int64"),
    ]  # fmt: skip
    assert "dtypes differ: bool in mine, float32 in golden" in found[2]["CompareFailReason"]
    assert done.exit_code == 1
