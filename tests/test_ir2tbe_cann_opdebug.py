"""ir2tbe.cann.opdebug, status and overflow: reports of overflows, and the op each is about."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump, blob_of, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.opdebug import Entry, pack_new, pack_old, parse
from ir2tbe.cann.overflow import look_through, match, reports_of
from ir2tbe.cann.status import meanings
from ir2tbe.cann.types import BY_NAME

STAMP = 1673383728093446

OLD_EXAMPLE = {
    "DHA Atomic Add": {"model_id": 0, "stream_id": 0, "task_id": 0, "task_type": 0,
                       "pc_start": "0x0", "para_base": "0x0", "status": 0},
    "L2 Atomic Add": {"model_id": 0, "stream_id": 0, "task_id": 0, "task_type": 0,
                      "pc_start": "0x0", "para_base": "0x0", "status": 0},
    "AI Core": {"model_id": 514, "stream_id": 563, "task_id": 57, "task_type": 0,
                "pc_start": "0x1008005b0000", "para_base": "0x100800297000",
                "kernel_code": "0x1008005ae000", "block_idx": 1, "status": 32},
}  # fmt: skip
"""The guide's own example of a parsed file."""

CORE = ("model_id", "stream_id", "task_id", "task_type", "context_id", "thread_id", "pc_start",
        "para_base", "core_id", "block_id")  # fmt: skip
SDMA = (*CORE[:6], "src_addr", "dst_addr", "channel_id")
AICPU = (*CORE[:5], "cpu_id", "thread_id")


def old_bytes() -> bytes:
    data = bytearray(2048)
    struct.pack_into("<6Q", data, 256, 514, 563, 57, 0, 0x1008005B0000, 0x100800297000)
    struct.pack_into("<3Q", data, 1024, 0x1008005AE000, 1, 32)
    return bytes(data)


def new_bytes(code: int, count: int, version: int = 0, status: tuple[int, ...] = (32,)) -> bytes:
    values = [*range(1, count + 1), *status]
    head = struct.pack("<6I", 0x5A5A5A5A, version, 1, code, 0, 8 * len(values))
    return head + struct.pack(f"<{len(values)}Q", *values)


def test_the_old_layout_is_the_guides_example() -> None:
    report = parse(old_bytes(), "x")
    assert report.as_json() == OLD_EXAMPLE
    assert list(report.as_json()["AI Core"]) == list(OLD_EXAMPLE["AI Core"])
    assert [entry.overflowed for entry in report.entries] == [False, False, True]


def test_old_places() -> None:
    data = bytearray(2048)
    for number, at in enumerate((0, 128, 256)):
        struct.pack_into("<6Q", data, at, *range(10 * number, 10 * number + 6))
    for number, at in enumerate((512, 768, 1040)):
        struct.pack_into("<Q", data, at, 100 + number)
    report = parse(bytes(data), "x")
    assert [e.fields["stream_id"] for e in report.entries] == [1, 11, 21]
    assert [e.fields["task_id"] for e in report.entries] == [2, 12, 22]
    assert [e.status for e in report.entries] == [(100,), (101,), (102,)]


@pytest.mark.parametrize(
    "code, unit, names",
    [(0, "AIC", CORE), (1, "AIV", CORE), (2, "AICPU", AICPU), (3, "SDMA", SDMA)],
)  # fmt: skip
def test_the_new_layout(code, unit, names) -> None:
    report = parse(new_bytes(code, len(names)), "x")
    (entry,) = report.entries
    assert (entry.unit, entry.status, report.notes) == (unit, (32,), ())
    assert entry.fields == {name: i + 1 for i, name in enumerate(names)}
    shown = report.as_json()
    hexed = {"pc_start", "para_base", "src_addr", "dst_addr"}
    data = {n: hex(v) if n in hexed else v for n, v in entry.fields.items()}
    assert shown == {
        "magic": "0x5a5a5a5a",
        "version": 0,
        "acc_list": {
            "valid": 1, "acc_type": unit, "rsv": 0, "data_len": 8 * (len(names) + 1),
            "data": {**data, "status": 32},
        },
    }  # fmt: skip


def test_version_1_has_four_status_words_of_a_core() -> None:
    report = parse(new_bytes(1, 10, 1, (0, 0, 0, 4)), "x")
    assert report.entries[0].status == (0, 0, 0, 4) and report.entries[0].overflowed
    assert report.as_json()["acc_list"]["data"]["status"] == [0, 0, 0, 4]
    assert not parse(new_bytes(0, 10, 1, (0, 0, 0, 0)), "x").entries[0].overflowed
    assert parse(new_bytes(3, 9, 1), "x").entries[0].status == (32,)


def test_several_entries() -> None:
    given = [("AIC", {"task_id": 1}, (32,)), ("SDMA", {"task_id": 2}, (1,))]
    for padding in (b"", bytes(16), bytes(400)):
        report = parse(pack_new(given) + padding, "x")
        assert [(e.unit, e.fields["task_id"], e.status) for e in report.entries] == [
            ("AIC", 1, (32,)),
            ("SDMA", 2, (1,)),
        ]
        assert report.notes == ()
        assert [e["acc_type"] for e in report.as_json()["acc_list"]] == ["AIC", "SDMA"]


@pytest.mark.parametrize(
    "change, note",
    [
        ((4, 7), "version 7"),
        ((8, 0), "valid 0, not 1"),
        ((20, 80), "data_len of AIC is 80, not 88"),
        ((None, b"junk"), "the last 4 bytes"),
    ],
)
def test_what_is_odd_is_said_and_read(change, note) -> None:
    data = bytearray(new_bytes(0, 10))
    place, value = change
    if place is None:
        data += value
    else:
        struct.pack_into("<I", data, place, value)
    report = parse(bytes(data), "x")
    assert report.entries[0].fields["task_id"] == 3
    assert len(report.notes) == 1 and note in report.notes[0]


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "has 0"),
        (bytes(2047), "has 2047"),
        (bytes(2049), "has 2049"),
        (new_bytes(0, 10)[:-1], "AIC has 88 bytes and 87 are left"),
        (new_bytes(0, 10, 1), "AIC has 112 bytes and 88 are left"),
        (new_bytes(4, 10), "acc_type 4"),
        (struct.pack("<2I", 0x5A5A5A5A, 0), "no entry"),
        (struct.pack("<4I", 0x5A5A5A5A, 0, 1, 0), "no entry"),
    ],
)
def test_what_is_no_report(data, said) -> None:
    with pytest.raises(DumpError, match=said) as caught:
        parse(data, "the file")
    assert caught.value.where == "the file"


def test_packing_is_the_layout() -> None:
    ids = dict(zip(CORE, range(1, 11), strict=True))
    assert pack_new([("AIV", ids, (1, 2, 3, 4))], 1) == new_bytes(1, 10, 1, (1, 2, 3, 4))
    core = {
        "model_id": 514, "stream_id": 563, "task_id": 57, "pc_start": 0x1008005B0000,
        "para_base": 0x100800297000, "kernel_code": 0x1008005AE000, "block_idx": 1, "status": 32,
    }  # fmt: skip
    assert pack_old({"AI Core": core}) == old_bytes()


@given(st.binary(max_size=200))
def test_any_bytes_after_the_magic(data: bytes) -> None:
    try:
        report = parse(struct.pack("<I", 0x5A5A5A5A) + data, "x")
    except DumpError:
        return
    assert json.dumps(report.as_json()) and report.entries


@pytest.mark.parametrize(
    "unit, status, expected",
    [
        ("AI Core", (32,), [(0x20, "floating-point compute", 0)]),
        ("AI Core", (272,), [(0x10, "integer add", 0), (0x100, "fp32 -> fp16", 0)]),
        ("AIC", (0x400,), [(0x400, "CUBE", 0)]),
        ("AIV", (0x88,), [(0x8, "NEG", 0), (0x80, "unsigned", 0)]),
        ("AI Core", (0x21,), [(0x20, "floating-point", 0), (1, "not documented", 0)]),
        ("AI Core", (2**63,), [(2**63, "not documented", 0)]),
        ("AIC", (32, 0, 0, 32), [(0x20, "floating-point", 0), (0x20, "not documented", 3)]),
        ("SDMA", (32,), [(32, "not documented", 0)]),
        ("AICPU", (3,), [(3, "not documented", 0)]),
        ("L2 Atomic Add", (1,), [(1, "atomic add", 0)]),
        ("DHA Atomic Add", (5,), [(5, "atomic add", 0)]),
        ("AI Core", (0,), []),
    ],
)
def test_status_in_words(unit, status, expected) -> None:
    found = meanings(Entry(unit, {}, status))
    assert [(m.mask, m.word) for m in found] == [(mask, word) for mask, _, word in expected]
    assert all(said in m.text for m, (_, said, _) in zip(found, expected, strict=True))


# Folders


def put(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")


def near(folder: Path, **ids: int):
    """What matches a report with these ids in a folder that holds one."""
    tree = look_through(folder)
    return match(Entry("AIC", {"task_id": 3, "stream_id": 2, **ids}, (32,)), tree.ops[folder])


REPORT = f"Opdebug.Node_OpDebug.9.3.{STAMP}"


@pytest.mark.parametrize(
    "names, ids, expected, missing",
    [
        (["A.a.3.2.1000000000000000"], {}, "A.a.3.2.1000000000000000", ()),
        (["A.a.3.1.1000000000000000"], {}, None, None),
        (["A.a.4.2.1000000000000000"], {}, None, None),
        (["A.a.3.1000000000000000"], {}, "A.a.3.1000000000000000", ("stream_id",)),
        (
            ["A.a.3.1000000000000000", "A.b.3.2.2000000000000000"],
            {},
            "A.b.3.2.2000000000000000",
            (),
        ),
        (
            ["A.b.3.2.2000000000000000", "A.a.3.2.1000000000000000"],
            {},
            "A.a.3.2.1000000000000000",
            (),
        ),
        (
            ["A.a.3.2.1000000000000000.4.1.0.0", "A.a.3.2.1000000000000001.4.1.5.0"],
            {"context_id": 1, "thread_id": 5},
            "A.a.3.2.1000000000000001.4.1.5.0",
            (),
        ),
        (
            ["A.a.3.2.1000000000000000.4.1.0.0"],
            {"context_id": 0, "thread_id": 0},
            None,
            None,
        ),
        (
            ["A.a.3.2.1000000000000000.4.1.0.0"],
            {"context_id": 65535, "thread_id": 65535},
            "A.a.3.2.1000000000000000.4.1.0.0",
            (),
        ),
        ([], {}, None, None),
    ],
)
def test_the_ops_dump_is_found(tmp_path: Path, names, ids, expected, missing) -> None:
    put(tmp_path, REPORT, f"Opdebug.Node_OpDebug.3.2.{STAMP}", *names)
    found = near(tmp_path, **ids)
    assert (found.file.path.name if found else None) == expected
    assert (found.missing if found else None) == missing


def test_others_with_the_same_ids_are_counted(tmp_path: Path) -> None:
    put(tmp_path, REPORT, *(f"A.a{i}.3.2.100000000000000{i}" for i in range(3)))
    assert near(tmp_path).others == 2


def test_only_the_reports_own_folder_is_searched(tmp_path: Path) -> None:
    put(tmp_path / "0", REPORT)
    put(tmp_path / "1", f"A.a.3.2.{STAMP}")
    put(tmp_path / "0" / "deeper", f"A.a.3.2.{STAMP}")
    tree = look_through(tmp_path)
    assert list(tree.ops) == [tmp_path / "0"]
    assert (
        match(Entry("AIC", {"task_id": 3, "stream_id": 2}, (1,)), tree.ops[tmp_path / "0"]) is None
    )


def test_reports_come_by_time(tmp_path: Path) -> None:
    put(tmp_path / "b", "Opdebug.Node_OpDebug.1.2.2000000000000000")
    put(tmp_path / "a", "OpDebug.Node_Opdebug.1.3000000000000000")
    put(tmp_path / "c", "Opdebug.Node_OpDebug.1.2.1000000000000000.4.1.0.0")
    assert [f.path.parent.name for f in look_through(tmp_path).reports] == ["c", "b", "a"]


def test_short_names_are_looked_up(tmp_path: Path) -> None:
    put(tmp_path, REPORT, "123456", "654321", "999")
    (tmp_path / "mapping.csv").write_text(
        f"123456,MatMul.long_name.3.2.{STAMP}\n654321,no dump\n../999,A.a.3.2.1\nmore\n\n"
    )
    found = near(tmp_path)
    assert (found.file.path.name, found.file.name.op_name) == ("123456", "long_name")


@pytest.mark.parametrize("text", [b"\xff\xfe\n", b'a,"' + b"x" * 200_000])
def test_a_mapping_that_is_none_is_said(tmp_path: Path, text: bytes) -> None:
    put(tmp_path, REPORT)
    (tmp_path / "mapping.csv").write_bytes(text)
    tree = look_through(tmp_path)
    assert len(tree.errors) == 1 and "mapping.csv" in tree.errors[0].where
    assert len(tree.reports) == 1


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, REPORT, f"A.a.3.2.{STAMP}")
    put(tmp_path / "out", "secret")
    (root / f"B.b.3.2.{STAMP}").symlink_to(tmp_path / "out" / "secret")
    (root / f"C.c.3.2.{STAMP}").symlink_to(root / "gone")
    (root / f"D.d.4.2.{STAMP}").symlink_to(root / f"A.a.3.2.{STAMP}")
    (root / f"E.e.4.2.{STAMP}").symlink_to(root / f"E.e.4.2.{STAMP}")
    (root / "up").symlink_to(tmp_path)
    tree = look_through(root)
    assert {f.name.op_type for f in tree.ops[root]} == {"A", "D"}
    assert {p.name[0] for p, why in tree.passed if "link" in why} == {"B", "C", "E"}


def test_folders_that_are_too_deep_are_said(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["x"] * 30)
    put(deep, REPORT)
    put(deep / "y", REPORT)
    tree = look_through(tmp_path)
    assert [f.path.parent for f in tree.reports] == [deep]
    assert [path for path, _ in tree.passed] == [deep / "y"]


@pytest.mark.parametrize("name", ["none", "file", "a\0b"])
def test_what_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DumpError, match="no folder|cannot look"):
        look_through(tmp_path / name)


def test_reports_of_a_file(tmp_path: Path) -> None:
    outputs = [
        tensor_of(np.frombuffer(data, "i1"), BY_NAME["undefined"])
        for data in (old_bytes(), new_bytes(3, 9))
    ]
    write(tmp_path / "two", Dump(outputs=tuple(outputs), buffers=(blob_of(b"x"),)))
    first, second = reports_of(tmp_path / "two")
    assert (len(first.entries), second.entries[0].unit) == (3, "SDMA")


@pytest.mark.parametrize("count, size, said", [(0, 0, "0 outputs"), (65, 2048, "65 outputs"),
                                               (1, 1 << 17, "no 131072 bytes")])  # fmt: skip
def test_reports_that_are_none(tmp_path: Path, count: int, size: int, said: str) -> None:
    outputs = [tensor_of(np.zeros(size, "u1"), BY_NAME["uint8"]) for _ in range(count)]
    write(tmp_path / "file", Dump(outputs=tuple(outputs), op_name="x"))
    with pytest.raises(DumpError, match=said):
        reports_of(tmp_path / "file")
