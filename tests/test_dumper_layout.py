"""Names in a dump: reversible, inside what old readers match, like the original's where they can
be."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumper import layout

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(TEXT | st.text("a_x02ef5 .", max_size=12))
def test_escape_is_undone(name):
    assert layout.unescape(layout.escape(name)) == name


@given(TEXT)
def test_escaped_names_stay_inside_what_old_readers_match(name):
    assert re.fullmatch(r"[A-Za-z0-9_]*", layout.escape(name))


@given(TEXT | st.text("a_x02ef5 .", max_size=8), TEXT | st.text("a_x02ef5 .", max_size=8))
def test_different_names_stay_different(one, other):
    assert (layout.escape(one) == layout.escape(other)) == (one == other)


@pytest.mark.parametrize(
    ("qualified", "overload", "ir"),
    [
        ("aten::add", "Tensor", "add_Tensor"),
        ("aten::convolution", "default", "convolution"),
        ("aten::threshold_backward", "", "threshold_backward"),
        ("aten::add_", "Tensor", "add__Tensor"),
        ("mylib::op", "default", "mylib_x003a__x003a_op"),
    ],
)
def test_ir_name(qualified, overload, ir):
    assert layout.ir_name(qualified, overload) == ir


def test_record_path():
    assert layout.record_path("add_Tensor", 7) == "/add_Tensor/7"


def test_codes_of_the_original():
    """The original producer's numbers (spec of the 1.5 fork), which old readers match on."""
    assert [layout.Type(n).name for n in (0, 2, 3, 4, 5, 7, 14, 18)] == [
        "TENSOR",
        "VEC_I64",
        "I64",
        "BOOL",
        "DOUBLE",
        "SCALAR",
        "SCALAR_TYPE",
        "TENSOR_OPTS",
    ]
    assert layout.DEVICE_CODES == {"cpu": 0, "cuda": 1, "npu": 10}
