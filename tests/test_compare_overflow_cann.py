"""`msaccucmp overflow` on CANN overflow dumps: what is said, what is written, how it ends."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from pytest import approx as near

from compare.cli import cli
from compare.overflow.numbers import Numbers, numbers_of
from ir2tbe.cann.content import Blob, Dump, Tensor, blob_of, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.opdebug import pack_new, pack_old
from ir2tbe.cann.types import BY_NAME

STAMP = 1673383728093446
OP = f"MatMul.layer1_fc.3.2.{STAMP}"
REPORT = f"Opdebug.Node_OpDebug.9.3.{STAMP + 945}"
FLOAT32 = 2.0**127 * (2 - 2**-23)
BFLOAT16 = 2.0**127 * (2 - 2**-7)
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def tensor(values: object, dtype: str = "float16", form: str = "ND") -> Tensor:
    kind = BY_NAME[dtype]
    return tensor_of(np.asarray(values, kind.values), kind, form)


def op(
    folder: Path, name: str = OP, *, op_name: str = "", buffers: tuple[Blob, ...] = (),
    tensors: tuple[Tensor, ...] | None = None,
) -> None:  # fmt: skip
    """An op's dump: one input, and an output that saturates."""
    folder.mkdir(parents=True, exist_ok=True)
    if tensors is None:
        tensors = (tensor([[65504, 1, 2]], form="NCHW"),)
    spaces = (blob_of(b"log"),) if buffers else ()
    write(folder / name, Dump((tensor([[300.0, 218.5]]),), tensors, buffers, spaces, op_name))


def report(folder: Path, name: str = REPORT, data: bytes | None = None, **core: int) -> None:
    """An Opdebug file in the old layout, of task 3 and stream 2, or with these bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    core = {"task_id": 3, "stream_id": 2, "status": 32, **core}
    data = pack_old({"AI Core": core}) if data is None else data
    write(folder / name, Dump(outputs=(tensor(np.frombuffer(data, "u1"), "uint8"),)))


def overflow(tmp_path: Path, *more: object) -> Result:
    arguments = ["overflow", "-d", tmp_path / "dump", "-out", tmp_path / "out", *more]
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def summary(tmp_path: Path) -> list[str]:
    (path,) = (tmp_path / "out").glob("overflow_summary_*.txt")
    return path.read_text(encoding="utf-8").splitlines()


def out(tmp_path: Path) -> set[str]:
    return {p.name for p in (tmp_path / "out").iterdir() if "summary" not in p.name}


def test_an_overflow(tmp_path: Path) -> None:
    op(tmp_path / "dump" / "0", op_name="layer1/fc")
    report(tmp_path / "dump" / "0")
    done = overflow(tmp_path)
    assert done.exit_code == 1, done.output
    assert "MatMul layer1/fc" in done.stdout
    assert "task 3, stream 2, 2023-01-10 20:48:48.094391 UTC" in done.stdout
    assert "AI Core, status 32: 0x20 floating-point compute overflow" in done.stdout
    line = next(line for line in done.stdout.splitlines() if "output.0" in line)
    assert re.split("  +", line.strip()) == [
        "output.0", "float16", "[1,3]", "NCHW", "1", "65504", "21835.7",
        "1 saturated, first at [0,0]",
    ]  # fmt: skip
    assert summary(tmp_path) == [
        "=" * 49 + "[1]" + "=" * 50,
        "[MatMul] layer1/fc",
        " [AI Core][TaskId:3][StreamId:2][Status:32]",
        " -[0x20: floating-point compute overflow]",
        f" [timestamp:{STAMP + 945}]",
        f" {OP}.input.0.npy",
        " -[Format: ND] [Shape: (1, 2)] [Dtype: float16] [Max: 300.0] [Min: 218.5] [Mean: 259.25]",
        " -[NaN: 0] [Inf: 0] [Saturated: 0]",
        f" {OP}.output.0.npy",
        " -[Format: NCHW] [Shape: (1, 3)] [Dtype: float16] [Max: 65504.0] [Min: 1.0] "
        "[Mean: 21835.666]",
        " -[NaN: 0] [Inf: 0] [Saturated: 1] [First: (0, 0)]",
    ]
    assert out(tmp_path) == {
        f"{OP}.input.0.npy",
        f"{OP}.output.0.npy",
        f"{REPORT}.output.0.json",
    }
    written = np.load(tmp_path / "out" / f"{OP}.output.0.npy")
    assert written.dtype == np.float16 and written.tolist() == [[65504.0, 1.0, 2.0]]
    text = (tmp_path / "out" / f"{REPORT}.output.0.json").read_text()
    assert text == json.dumps(json.loads(text), indent=4)
    assert json.loads(text)["AI Core"]["task_id"] == 3
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in (tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    "name, op_file",
    [
        (f"Opdebug.Node_OpDebug.9.3.{STAMP}", OP),
        (f"OpDebug.Node_Opdebug.9.3.{STAMP}", OP),
        (f"OpDebug.Node_Opdebug.9.{STAMP}", f"MatMul.layer1_fc.3.{STAMP}"),
        (f"Opdebug.Node_OpDebug.9.3.{STAMP}.4.1.0.0", OP),
    ],
)
def test_names_with_and_without_stream(tmp_path: Path, name: str, op_file: str) -> None:
    op(tmp_path / "dump", op_file)
    report(tmp_path / "dump", name)
    done = overflow(tmp_path)
    assert done.exit_code == 1
    assert f"{op_file}.input.0.npy" in out(tmp_path)
    assert ("its file's name has no stream_id" in done.stdout) == (op_file != OP)


def test_buffers_and_workspaces_are_written_too(tmp_path: Path) -> None:
    """The peer ends with 1 and a traceback here."""
    op(tmp_path / "dump", buffers=(blob_of(b"L1 data"),))
    report(tmp_path / "dump")
    assert overflow(tmp_path).exit_code == 1
    assert (tmp_path / "out" / f"{OP}.l1buffer.0.bin").read_bytes() == b"L1 data"
    assert (tmp_path / "out" / f"{OP}.space.0.bin").read_bytes() == b"log"


def test_status_0_is_passed_over(tmp_path: Path) -> None:
    """The peer ends with 35 and no summary here."""
    op(tmp_path / "dump")
    report(tmp_path / "dump", f"Opdebug.Node_OpDebug.1.2.{STAMP}", status=0)
    report(tmp_path / "dump")
    done = overflow(tmp_path)
    assert done.exit_code == 1
    assert f"Opdebug.Node_OpDebug.1.2.{STAMP}: status 0, no overflow" in done.stdout
    assert len([line for line in summary(tmp_path) if line.startswith("===")]) == 1
    assert f"Opdebug.Node_OpDebug.1.2.{STAMP}.output.0.json" in out(tmp_path)


@pytest.mark.parametrize("version, words", [(0, (0,)), (1, (0, 0, 0, 0))])
def test_status_0_only(tmp_path: Path, version: int, words: tuple[int, ...]) -> None:
    report(tmp_path / "dump", data=pack_new([("AIC", {"task_id": 3}, words)], version))
    done = overflow(tmp_path)
    assert done.exit_code == 0
    assert "nothing overflowed" in done.stdout and "result:" not in done.stdout
    assert not list((tmp_path / "out").glob("*.txt"))


def test_no_report(tmp_path: Path) -> None:
    op(tmp_path / "dump")
    done = overflow(tmp_path)
    assert done.exit_code == 0
    assert "no report of an overflow" in done.stdout and "dump_debug" in done.stdout
    assert not (tmp_path / "out").exists()


def test_n_counts_the_first_by_time(tmp_path: Path) -> None:
    for i in (2, 0, 3, 1):
        report(tmp_path / "dump" / str(9 - i), f"Opdebug.Node_OpDebug.9.3.{STAMP + i}", task_id=i)
    for asked, expected in ((1, [0]), (3, [0, 1, 2]), (9, [0, 1, 2, 3])):
        done = overflow(tmp_path, "-n", asked)
        tasks = re.findall(r"task (\d)", done.stdout)
        assert [int(task) for task in tasks] == expected
        rest = 4 - len(expected)
        assert ("not looked at; -n 4 looks at all" in done.stdout) == bool(rest)


@pytest.mark.parametrize("count", ["0", "-1", "x"])
def test_n_is_positive(tmp_path: Path, count: str) -> None:
    report(tmp_path / "dump")
    assert overflow(tmp_path, "-n", count).exit_code == 2


def test_an_op_that_was_not_dumped(tmp_path: Path) -> None:
    report(tmp_path / "dump")
    op(tmp_path / "dump", f"MatMul.a.3.1.{STAMP}")
    done = overflow(tmp_path)
    assert done.exit_code == 1
    assert "the op's dump is not in" in done.stdout
    assert summary(tmp_path)[1].startswith(" [AI Core]")


def test_units_with_different_ops_are_two_overflows(tmp_path: Path) -> None:
    op(tmp_path / "dump")
    op(tmp_path / "dump", f"Add.b.4.2.{STAMP}")
    given = {
        "L2 Atomic Add": {"task_id": 4, "stream_id": 2, "status": 1},
        "AI Core": {"task_id": 3, "stream_id": 2, "status": 272},
    }
    report(tmp_path / "dump", data=pack_old(given))
    assert overflow(tmp_path).exit_code == 1
    heads = [line for line in summary(tmp_path) if line.startswith(("=", "["))]
    assert [re.sub("=+", "", head) for head in heads] == [
        "[1]", "[Add] b", "[2]", "[MatMul] layer1_fc",
    ]  # fmt: skip


def test_units_with_one_op_are_one_overflow(tmp_path: Path) -> None:
    op(tmp_path / "dump")
    ids = {"task_id": 3, "stream_id": 2, "context_id": 65535, "thread_id": 65535}
    data = pack_new([("AIC", ids, (0x400, 0, 0, 0)), ("AIV", ids, (0x21, 0, 4, 0))], 1)
    report(tmp_path / "dump", data=data)
    assert overflow(tmp_path).exit_code == 1
    assert summary(tmp_path)[1:7] == [
        "[MatMul] layer1_fc",
        " [AIC][TaskId:3][StreamId:2][Status:[1024, 0, 0, 0]]",
        " -[0x400 of word 0: CUBE accumulation overflow]",
        " [AIV][TaskId:3][StreamId:2][Status:[33, 0, 4, 0]]",
        " -[0x20 of word 0: floating-point compute overflow]",
        " -[0x1 of word 0: meaning not documented]",
    ]


def test_files_of_one_name_in_two_folders(tmp_path: Path) -> None:
    for folder, value in (("0", 1.0), ("1", 2.0)):
        op(tmp_path / "dump" / folder, tensors=(tensor([value]),))
        report(tmp_path / "dump" / folder)
    assert overflow(tmp_path, "-n", 2).exit_code == 1
    named = [line.strip() for line in summary(tmp_path) if "output.0.npy" in line]
    values = [np.load(tmp_path / "out" / name).tolist() for name in named]
    assert values == [[1.0], [2.0]]
    assert len(list((tmp_path / "out").glob("*.json"))) == 2


def test_a_second_run_replaces_files_and_adds_a_summary(tmp_path: Path) -> None:
    op(tmp_path / "dump")
    report(tmp_path / "dump")
    first, second = overflow(tmp_path), overflow(tmp_path)
    assert (first.exit_code, second.exit_code) == (1, 1)
    assert len(out(tmp_path)) == 3
    assert len(list((tmp_path / "out").glob("overflow_summary_*"))) == 2


def test_the_output_may_be_the_dumps_own_folder(tmp_path: Path) -> None:
    op(tmp_path / "dump")
    report(tmp_path / "dump")
    arguments = ["overflow", "-d", str(tmp_path / "dump"), "-out", str(tmp_path / "dump")]
    for _ in range(2):
        done = CliRunner().invoke(cli, [*arguments, "-n", "9"])
        assert done.exit_code == 1 and "1 report of an overflow" in done.stdout


def test_exit_zero(tmp_path: Path) -> None:
    op(tmp_path / "dump")
    report(tmp_path / "dump")
    assert overflow(tmp_path, "--exit-zero").exit_code == 0
    (tmp_path / "dump" / OP).write_bytes(b"cut")
    assert overflow(tmp_path, "--exit-zero").exit_code == 2


def test_chinese(tmp_path: Path) -> None:
    op(tmp_path / "dump", f"MatMul.layer1_fc.3.{STAMP}")
    report(tmp_path / "dump", status=0x7FF)
    report(tmp_path / "dump", f"Opdebug.Node_OpDebug.9.3.{STAMP}", status=0)
    report(tmp_path / "dump", f"Opdebug.Node_OpDebug.9.3.{STAMP + 10**6}")
    done = overflow(tmp_path, "--lang", "zh")
    assert done.exit_code == 1
    for line in done.stdout.splitlines():
        if not line.startswith(("result: ", "[")) and not re.match(r" +(in|out)put\.", line):
            assert CHINESE.search(line), line
    assert not CHINESE.search("\n".join(summary(tmp_path)))


@pytest.mark.parametrize("damaged", [OP, REPORT])
def test_a_damaged_file_costs_no_other(tmp_path: Path, damaged: str) -> None:
    op(tmp_path / "dump")
    report(tmp_path / "dump")
    op(tmp_path / "dump", f"Add.b.4.2.{STAMP}")
    report(tmp_path / "dump", f"Opdebug.Node_OpDebug.9.3.{STAMP + 10**6}", task_id=4)
    path = tmp_path / "dump" / damaged
    path.write_bytes(path.read_bytes()[:-1])
    done = overflow(tmp_path, "-n", 9)
    assert done.exit_code == 2
    assert done.stderr.count("msaccucmp: error:") == 1 and damaged in done.stderr
    assert "what to do" in done.stderr and "Traceback" not in done.output
    assert "Add b" in done.stdout and "result: " in done.stdout


def test_a_tensor_of_unknown_type_costs_no_other(tmp_path: Path) -> None:
    odd = Tensor(99, 2, (2,), 4, lambda: np.zeros(4, np.uint8))
    op(tmp_path / "dump", tensors=(odd, tensor([1.0])))
    report(tmp_path / "dump")
    done = overflow(tmp_path)
    assert done.exit_code == 2
    assert "data type has code 99" in done.stderr and "output 0 of" in done.stderr
    assert out(tmp_path) >= {f"{OP}.input.0.npy", f"{OP}.output.1.npy"}
    assert " -[Format: ND] [Shape: (2,)] [Dtype: type 99] [Not read: " in "\n".join(
        summary(tmp_path)
    )


@pytest.mark.parametrize("what", ["none", "file"])
def test_what_is_no_folder(tmp_path: Path, what: str) -> None:
    (tmp_path / "file").write_text("x")
    arguments = ["overflow", "-d", str(tmp_path / what), "-out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert "no such file" in done.stderr or "not an HDF5 file" in done.stderr
    assert what in done.stderr and not (tmp_path / "out").exists()


def test_a_link_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    op(tmp_path / "dump")
    report(tmp_path / "dump")
    (tmp_path / "out").mkdir()
    (tmp_path / "mine").write_text("mine")
    for name in (f"{OP}.output.0.npy", f"{REPORT}.output.0.json"):
        (tmp_path / "out" / name).symlink_to(tmp_path / "mine")
    done = overflow(tmp_path)
    assert done.exit_code == 2 and done.stderr.count("symbolic link") == 2
    assert (tmp_path / "mine").read_text() == "mine"
    assert "result: " in done.stdout


def test_names_in_a_file_are_inert(tmp_path: Path) -> None:
    op(tmp_path / "dump", op_name="a\x1b[31m\n[Fake] b/../../c")
    report(tmp_path / "dump")
    done = overflow(tmp_path)
    assert done.exit_code == 1
    assert "\x1b" not in done.output
    assert summary(tmp_path)[1] == r"[MatMul] a\x1b[31m\n[Fake] b/../../c"
    assert not list(tmp_path.glob("c*"))


def test_a_very_long_name(tmp_path: Path) -> None:
    name = f"MatMul.{'x' * 215}.3.2.{STAMP}"
    op(tmp_path / "dump", name)
    report(tmp_path / "dump")
    assert overflow(tmp_path).exit_code == 1
    (made,) = (tmp_path / "out").glob("*.input.0.npy")
    assert re.fullmatch(r"[0-9a-f]{32}\.input\.0\.npy", made.name)


@pytest.mark.parametrize(
    "dtype, values, stored, least, greatest",
    [
        ("bfloat16", [1.0, float("nan")], "float32", "1.0", "1.0"),
        ("float8_e4m3fn", [448.0, -448.0], "float32", "-448.0", "448.0"),
        ("hifloat8", [0.5, float("inf")], "float32", "0.5", "0.5"),
        ("int4", [-8, 7], "int8", "-8", "7"),
        ("bool", [True, False], "bool", "False", "True"),
        ("int64", [2**63 - 1, 5], "int64", "5", str(2**63 - 1)),
        ("float64", [1e300, 0.1], "float64", "0.1", "1e+300"),
        ("complex64", [3 + 4j, 0], "complex64", "0.0", "5.0"),
        ("float16", [float("nan"), float("inf")], "float16", "NaN", "NaN"),
    ],
)
def test_dtypes(tmp_path: Path, dtype, values, stored, least, greatest) -> None:
    op(tmp_path / "dump", tensors=(tensor(values, dtype),))
    report(tmp_path / "dump")
    assert overflow(tmp_path).exit_code == 1
    found = np.load(tmp_path / "out" / f"{OP}.output.0.npy")
    assert found.dtype == stored
    np.testing.assert_array_equal(found, np.array(values, found.dtype))
    line = summary(tmp_path)[-2]
    assert f"[Dtype: {dtype}] [Max: {greatest}] [Min: {least}]" in line


def test_what_is_no_number_has_none(tmp_path: Path) -> None:
    op(tmp_path / "dump", tensors=(tensor(np.frombuffer(b"text", "u1"), "string"),))
    report(tmp_path / "dump")
    assert overflow(tmp_path).exit_code == 1
    assert summary(tmp_path)[-1] == " -[Format: ND] [Shape: (4,)] [Dtype: string]"


@pytest.mark.parametrize(
    "dtype, values, expected",
    [
        ("float16", [], (None, None, None, 0, 0, 0, None)),
        ("float16", [[1, -65504], [np.nan, 3]], (-65504.0, 3.0, near(-65500 / 3), 1, 0, 1, (0, 1))),
        ("float32", [1, np.inf, 65504], (1.0, 65504.0, 32752.5, 0, 1, 0, (1,))),
        ("float32", FLOAT32, (FLOAT32, FLOAT32, FLOAT32, 0, 0, 1, ())),
        ("int8", [127, -128, 0], (-128, 127, near(-1 / 3), 0, 0, 2, (0,))),
        ("uint8", [0, 255, 0], (0, 255, 85.0, 0, 0, 1, (1,))),
        ("int64", [2**63 - 2, 2**63 - 1], (2**63 - 2, 2**63 - 1, 2.0**63, 0, 0, 1, (1,))),
        ("bool", [True, True], (1.0, 1.0, 1.0, 0, 0, 0, None)),
        ("complex64", [0, complex(0, np.nan)], (0.0, 0.0, 0.0, 1, 0, 0, (1,))),
        ("bfloat16", [1, BFLOAT16], (1.0, BFLOAT16, near(BFLOAT16 / 2), 0, 0, 1, (1,))),
        ("float4_e2m1", [6, -6, 4], (-6.0, 6.0, near(4 / 3), 0, 0, 2, (0,))),
        ("float8_e5m2", [57344, np.inf], (57344.0, 57344.0, 57344.0, 0, 1, 1, (0,))),
    ],
)
def test_numbers(dtype: str, values: object, expected: tuple[object, ...]) -> None:
    kind = BY_NAME[dtype]
    assert numbers_of(np.asarray(values, kind.values), kind) == Numbers(*expected)


def test_numbers_of_many_pieces() -> None:
    """An array of more than a piece, of which the last element is the only odd one."""
    kind = BY_NAME["float16"]
    values = np.ones((3, 1 << 19), "f2")
    values[0, 0], values[2, -1] = 3, 65504
    found = numbers_of(values, kind)
    assert (found.least, found.greatest, found.saturated) == (1.0, 65504.0, 1)
    assert found.first == (2, (1 << 19) - 1)
    assert found.mean == pytest.approx(values.mean(dtype="f8"), rel=1e-12)


def test_every_e4m3fn_is_counted_once() -> None:
    kind = BY_NAME["float8_e4m3fn"]
    values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    found = numbers_of(values, kind)
    assert (found.nan, found.infinite, found.saturated) == (2, 0, 2)
    assert (found.least, found.greatest, found.first) == (-448.0, 448.0, (0x7E,))
