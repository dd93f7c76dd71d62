"""ir2tbe.cann.names and formats: what the name of a dump file says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir2tbe.cann.formats import CODES, FORMATS, format_name
from ir2tbe.cann.names import DumpName, name_part, parse

STAMP = 1673383728093446

PARTS = st.text("ABCxyz019_-", min_size=1, max_size=12)
SMALL = st.integers(0, 70000)
STAMPS = st.integers(10**15, 10**16 - 1)


@pytest.mark.parametrize(
    "name, expected",
    [
        (f"Add.a_b.3.2.{STAMP}", DumpName("Add", "a_b", 3, 2, STAMP)),
        (f"Add.a_b.3.{STAMP}", DumpName("Add", "a_b", 3, None, STAMP)),
        (f"Add.a.0.3.{STAMP}.4.1.0.7", DumpName("Add", "a", 0, 3, STAMP, 4, 1, 0, 7)),
        (f"Add.a.0.3.{STAMP}.4.1.0", DumpName("Add", "a", 0, 3, STAMP, 4, 1, 0)),
        (f"Add.a.0.{STAMP}.4.1.0.7", DumpName("Add", "a", 0, None, STAMP, 4, 1, 0, 7)),
        (f"Add.a.0.{STAMP}.4.1.0", DumpName("Add", "a", 0, None, STAMP, 4, 1, 0)),
        (f"Add.a.0.3.{STAMP}.7", DumpName("Add", "a", 0, 3, STAMP, device_id=7)),
        ("Add.a.0.3.12", DumpName("Add", "a", 0, 3, 12)),
        ("Add.a.0.12", DumpName("Add", "a", 0, None, 12)),
    ],
)
def test_a_name_is_parsed(name: str, expected: DumpName) -> None:
    assert parse(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mapping.csv",
        f"Add.a.b.3.2.{STAMP}",
        f"Add.a.3.2.{STAMP}.input.0.npy",
        f"Add.a.3.2.{STAMP}\n",
        f"Add./a.3.2.{STAMP}",
        f"Add...3.2.{STAMP}",
        f"Add.a.{STAMP}",
        f"Add.a.3.-2.{STAMP}",
        "Add.a." + ".".join("12345678"),
        "Add.a.\u0663.2.\u0664",
        f"Add.a.{'1' * 256}.2.{STAMP}",
    ],
)
def test_another_name_is_none(name: str) -> None:
    assert parse(name) is None


@given(
    PARTS,
    PARTS,
    SMALL,
    st.none() | SMALL,
    STAMPS,
    st.sampled_from([0, 1, 3, 4]),
    st.tuples(SMALL, SMALL, SMALL, SMALL),
)
def test_names_survive(op_type, op_name, task, stream, stamp, extra, rest):
    named = {
        0: {},
        1: {"device_id": rest[3]},
        3: dict(zip(("task_type", "context_id", "thread_id"), rest, strict=False)),
        4: dict(zip(("task_type", "context_id", "thread_id", "device_id"), rest, strict=True)),
    }[extra]
    name = DumpName(op_type, op_name, task, stream, stamp, **named)
    assert parse(str(name)) == name


@pytest.mark.parametrize("name", ["Opdebug.Node_OpDebug", "OpDebug.Node_Opdebug"])
@pytest.mark.parametrize("rest", [f"9.3.{STAMP}", f"9.{STAMP}", f"9.3.{STAMP}.4.1.0.0"])
def test_both_spellings_are_reports(name: str, rest: str) -> None:
    assert parse(f"{name}.{rest}").is_opdebug


def test_an_op_of_that_name_only_is_none() -> None:
    assert not parse(f"Opdebug.Node.9.3.{STAMP}").is_opdebug


@given(st.text(min_size=1, max_size=20))
def test_any_op_name_becomes_part_of_a_name(text: str) -> None:
    assert parse(f"Add.{name_part(text)}.3.2.{STAMP}").op_name == name_part(text)


def test_name_part_replaces_what_the_guide_says() -> None:
    assert name_part("layer1/fc.weight\\a b-c_d") == "layer1_fc_weight_a_b-c_d"


@pytest.mark.parametrize(
    "code, name",
    [(0, "NCHW"), (2, "ND"), (3, "NC1HWC0"), (4, "FRACTAL_Z"), (16, "HWCN"), (27, "NDHWC"),
     (28, "FRACTAL_ZZ"), (29, "FRACTAL_NZ"), (30, "NCDHW"), (33, "FRACTAL_Z_3D"), (35, "NC"),
     (47, "NCL"), (49, "C1HWC0"), (255, "MAX"), (77, "77")],
)  # fmt: skip
def test_format_names(code: int, name: str) -> None:
    assert format_name(code) == name


def test_format_codes_are_the_names_turned_round() -> None:
    assert {CODES[name]: name for name in CODES} == FORMATS
