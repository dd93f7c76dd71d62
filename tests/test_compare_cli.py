"""The command line: exit status, the summary, every bad input as one block and exit 2."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from chains import GOOD, ROOT, chain, compare, equal_pair, result, run, script
from dumps import dump, put


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two equal dumps of different devices, in the working directory."""
    return equal_pair(tmp_path, monkeypatch)


def test_equal_dumps(pair):
    done = compare(*pair)
    assert done.exit_code == 0
    assert (
        "6 compared: 6 same, 0 rounding, 0 inherited, 0 differ, 0 not comparable, 0 cannot tell"
        in done.stdout
    )
    assert "nothing differs beyond rounding" in done.stdout
    assert "npu.h5 (npu, 3 records)" in done.stdout and "cpu.h5 (cpu, 3 records)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("result: ./result_20")
    assert [row["ExactMatch"] for row in result(done)] == ["1.000000"] * 6
    assert done.stderr == ""


@pytest.mark.parametrize(("flag", "status"), [((), 1), (("--exit-zero",), 0)])
def test_exit_status_of_a_difference(pair, tmp_path, flag, status):
    dump(tmp_path / "npu.h5", chain([[1, 2], [2, 4], [2, 5], [7]]), 10)
    assert compare(*pair, *flag).exit_code == status


def test_the_op_that_went_wrong_is_named(pair, tmp_path):
    dump(tmp_path / "npu.h5", chain([[1, 2], [2, 4], [2, 5], [7]]), 10)
    done = compare(*pair)
    place = "first difference: op relu, seqid 2\n  output/result: inputs are equal"
    assert place in done.stdout
    table = done.stdout[done.stdout.index("rows that differ most") :].splitlines()
    assert [line.split()[1:3] for line in table[2:-4]] == [
        ["/relu/2/output/result", "differs"],  # which is /sum/3/input/self again
        ["/sum/3/output/result", "inherited"],
    ]
    assert table[-4] == "1 more has the same numbers as one of these"
    assert table[-3].endswith("look at the op: msaccucmp show npu.h5 /relu/2 -g cpu.h5")
    assert [row["Verdict"] for row in result(done)] == [
        "same", "same", "same", "differs", "inherited", "inherited",
    ]  # fmt: skip


ALGORITHMS = [
    (("-alg", "0"), ["CosineSimilarity"]),
    (
        ("-alg", "9", "0", "3"),
        ["MeanRelativeError", "CosineSimilarity", "RelativeEuclideanDistance"],
    ),
    (("--algorithm", "MaxAbsoluteError,0"), ["MaxAbsoluteError", "CosineSimilarity"]),
    (("-alg", "CosineSimilarity", "1", "--exit-zero"), ["CosineSimilarity", "MaxAbsoluteError"]),
]


@pytest.mark.parametrize(("given", "names"), ALGORITHMS)
def test_algorithms_in_the_order_given(pair, given, names):
    (row,) = result(compare(*pair, *given))[:1]
    assert list(row)[6 : 7 + len(names)] == [*names, "CompareFailReason"]


def test_a_custom_algorithm_has_a_column(pair):
    os.makedirs("own/algorithm")
    Path("own/algorithm/alg_Sum.py").write_text(
        "def compare(my, golden, args): return str(my.sum() + golden.sum()), 'of ' + args.what\n"
    )
    given = ("-c", "own", "-a", "Sum:what=all")
    rows = result(compare(*pair, *given, "-overflow_detection"))
    assert list(rows[0])[5:8] == ["Shape", "OverFlow", "CosineSimilarity"]
    assert list(rows[0])[16:19] == ["MeanRelativeError", "Sum", "CompareFailReason"]
    assert [float(row["Sum"]) for row in rows] == [6, 12, 12, 12, 12, 12]
    assert all("of all" in row["CompareFailReason"] for row in rows)
    (first,) = result(compare(*pair, *given, "-alg", "Sum", "0"))[:1]
    assert list(first)[6:9] == ["Sum", "CosineSimilarity", "CompareFailReason"]
    without = compare(*pair, *given, "-alg", "0")
    assert "Sum" not in result(without)[0] and "-alg leaves out Sum" in without.stderr


def test_a_different_start_is_said(pair, tmp_path):
    dump(tmp_path / "npu.h5", chain([[1, 3], [2, 6], [2, 6], [8]]), 10)
    done = compare(*pair)
    assert done.exit_code == 1
    start = "did not start equal: inputs differ: 1 of 1, first /mul/1/input/self; what follows"
    assert start in done.stdout
    assert "no op is at fault" in done.stdout and "first difference" not in done.stdout
    assert "what to do next: make both runs start equal" in done.stdout


def test_a_different_start_and_an_op_of_its_own(pair, tmp_path):
    """The first op passes on what it was given; the second gets what golden gets and errs."""
    mine = chain([[1, 3], [2, 6], [2, 5], [7]])
    mine["relu/2/input/self"] = np.asarray([2, 4], "f4")
    dump(tmp_path / "npu.h5", mine, 10)
    done = compare(*pair)
    assert done.exit_code == 1
    assert "did not start equal: inputs differ: 1 of 1, first /mul/1/input/self" in done.stdout
    assert "first difference: op relu, seqid 2\n  output/result: inputs are equal" in done.stdout


@pytest.mark.parametrize("later", [False, True])
def test_another_shape_comes_before_what_differs_later(pair, tmp_path, later):
    mine = chain([[1, 2], [2, 4], [2, 4], [6]])
    mine["relu/2/output/result"] = np.zeros((2, 1), "f4")
    for path, value in (("npu.h5", 7 if later else 6), ("cpu.h5", 6)):
        more = {f"neg/4/{side}": np.float32([value, 1]) for side in ("output/result",)}
        dump(tmp_path / path, {**(mine if path == "npu.h5" else chain(GOOD)),
                               "neg/4/input/self": np.float32([-6, -1]), **more})  # fmt: skip
    done = compare(*pair)
    assert done.exit_code == 1
    why = "shapes differ: [2, 1] in my dump, [2] in golden"
    before = f"before it /relu/2/output/result is not as in golden: {why}"
    alone = f"1 could not be compared, first /relu/2/output/result: {why}"
    assert (before if later else alone) in done.stdout
    assert ("first difference: op neg, seqid 4" in done.stdout) is later
    (row,) = [row for row in result(done) if row["NPUDumpPath"] == "/relu/2/output/result"]
    assert (row["Verdict"], row["VerdictCode"]) == ("not_comparable", "shape_differs")


def test_an_op_without_partner_comes_before_what_differs_later(pair, tmp_path):
    mine = {"cast/1/input/x": np.zeros(1, "f4"), **chain([[1, 2], [2, 4], [2, 5], [7]])}
    dump(tmp_path / "npu.h5", mine, 10)
    done = compare(*pair)
    assert "first difference: op relu, seqid 2\n" in done.stdout
    assert "before it /cast/1 is not as in golden: No data match with op:cast in" in done.stdout
    assert "without partner: 1 no_partner" in done.stdout


@pytest.mark.parametrize("outputs", [[2, 4], [2, 5]])
def test_another_argument_is_another_input(pair, tmp_path, outputs):
    """Whether the outputs differ or not: the op was not given the same."""
    for path, value, values in ((pair[0], 2, outputs), (pair[1], 3, [2, 4])):
        dump(tmp_path / path, chain([[1, 2], values, values, [6]]))
        with h5py.File(tmp_path / path, "r+") as file:
            put(file, "mul/1/input/other", np.float64(value), kind=7)
    done = compare(*pair)
    assert done.exit_code == 1
    assert "1 not comparable" in done.stdout and "inputs are equal" not in done.stdout
    assert "/mul/1/input/other" in done.stdout
    assert "arguments differ: 2.0 in my dump, 3.0 in golden" in done.stdout
    (row,) = [row for row in result(done) if row["NPUDumpPath"] == "/mul/1/input/other"]
    assert row["CompareFailReason"] == "arguments differ: 2.0 in my dump, 3.0 in golden"
    assert (row["Verdict"], row["VerdictCode"]) == ("not_comparable", "argument_differs")


SKIPPED = {
    "no Type": lambda file: file.create_dataset("mul/1/output/extra", data=[1.0]),
    "no dataspace": lambda file: file.create_dataset(
        "mul/1/output/extra", data=h5py.Empty("f4")
    ).attrs.__setitem__("Type", np.int32(0)),
    "a soft link": lambda file: file.__setitem__("mul/1/output/extra", h5py.SoftLink("/mul")),
    "no seqid": lambda file: file.create_group("mul/one"),
}


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("add", SKIPPED.values(), ids=list(SKIPPED))
def test_what_could_not_be_read_is_not_equal(pair, add, sides):
    for side in sides:
        with h5py.File(pair[side], "r+") as file:
            add(file)
    done = compare(*pair)
    assert done.exit_code == 1
    parts = "1 part" if len(sides) == 1 else "2 parts"
    words = f"no op is shown to be at fault, but {parts} of the files could not be read"
    assert words in done.stdout
    assert "nothing differs" not in done.stdout and "agree" not in done.stdout


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
def test_what_was_left_out_is_not_equal(pair, sides):
    for side in sides:
        with h5py.File(pair[side], "r+") as file:
            text = b'{"path": "/relu/2/output/mask", "reason": "sparse"}\n'
            lines = file.create_dataset("_torch_dumper/0/omitted", data=np.frombuffer(text, "u1"))
            lines.attrs["Type"] = np.int32(110)
    done = compare(*pair)
    assert done.exit_code == 1
    assert "nothing differs" not in done.stdout
    assert f"{len(sides)} not comparable" in done.stdout
    found = [row for row in result(done) if "sparse" in row["CompareFailReason"]]
    assert len(found) == len(sides)
    assert all("/relu/2/output/mask" in (row["NPUDumpPath"], row["GroundTruthPath"])
               for row in found)  # fmt: skip
    assert {row["Index"] for row in found} == {"2"}
    assert "first difference" not in done.stdout or "left out of" in done.stdout


def test_dumps_without_a_common_tensor(pair):
    for path in pair:
        with h5py.File(path, "w") as file:
            file.create_group("add/1/output")
    done = compare(*pair)
    assert done.exit_code == 1
    assert "nothing was compared: the two dumps have no tensor in common" in done.stdout


@pytest.mark.parametrize("side", [0, 1])
def test_load_mode_on_either_side(pair, tmp_path, side):
    outputs = {k: v for k, v in chain([[1, 2], [2, 4], [2, 5], [6]]).items() if "output" in k}
    dump(tmp_path / pair[side], outputs, 10)
    done = compare(*pair)
    assert "3 compared: 2 same, 0 rounding, 0 inherited, 1 differ, 0 not" in done.stdout
    assert "first difference: op relu, seqid 2\n  output/result: inputs are equal" in done.stdout
    assert "in load mode every op ran on the recorded inputs" in done.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sum/3/output/result": np.zeros((1, 1), "f4")}, "shapes differ: [1, 1] in my dump, [1]"),
        ({"sum/3/output/result": np.zeros(1, "i4")}, "dtypes differ: int32 in my dump, float32"),
        ({"extra/9/output/result": np.zeros(1, "f4")}, "No data match with op:extra in golden"),
    ],
)
def test_what_cannot_be_compared_is_a_difference(pair, tmp_path, change, words):
    dump(tmp_path / "npu.h5", {**chain(GOOD), **change}, 10)
    done = compare(*pair)
    assert done.exit_code == 1
    assert any(words in row["CompareFailReason"] for row in result(done))
    assert "nothing that was compared differs beyond rounding, but 1 could not be" in done.stdout


@pytest.mark.parametrize("name", ["with space", "名字", "a:b", "-m", "[bold]x", "e.hdf5"])
@pytest.mark.parametrize("option", ["-out", "--out", "--output"])
def test_any_legal_path(pair, name, option):
    os.mkdir(name)
    mine, golden = Path(name) / "我 的:[1].h5", Path(name) / "gold.dump"
    pair[0].rename(mine)
    pair[1].rename(golden)
    out = f"./{name}/o u:t"
    done = compare(f"./{mine}", f"./{golden}", option, out)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith(f"result: {out}/result_")
    assert len(result(done)) == 6


def test_a_damaged_tensor_costs_its_row(pair, tmp_path):
    with h5py.File(tmp_path / "npu.h5", "r+") as file:
        del file["relu/2/output/result"]
        file.create_dataset("relu/2/output/result", (2,), "f4").attrs["Type"] = np.int32(0)
    done = compare(*pair)
    assert done.exit_code == 1
    reasons = [row["CompareFailReason"] for row in result(done)]
    assert sum("claims 8 bytes and the file holds 0" in reason for reason in reasons) == 1
    assert sum(reason in ("", "This tensor is scalar.") for reason in reasons) == 5
    assert [row["Index"] for row in result(done)] == ["1", "1", "2", "2", "3", "3"]


def test_an_unfinished_file_is_compared_as_far_as_it_goes(pair, tmp_path):
    with h5py.File(tmp_path / "npu.h5", "r+") as file:
        file.attrs["Finished"] = np.int32(0)
        del file["sum"]
    done = compare(*pair)
    assert done.exit_code == 1
    assert "4 compared" not in done.stderr and "its last record is /relu/2" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "4 compared: 4 same" in done.stdout and "1 not comparable" in done.stdout


def test_unreadable_parts_are_said(pair, tmp_path):
    with h5py.File(tmp_path / "npu.h5", "r+") as file:
        file.create_group("mul/one\x1b[31m")
    done = compare(*pair)
    assert "1 unreadable part, first /mul/one\\x1b[31m: no seqid" in done.stderr


def test_names_that_would_run_are_inert(pair, tmp_path):
    tensors = {"=cmd()/1/output/\x1b[2J": np.zeros(2, "f4"), **chain(GOOD)}
    dump(tmp_path / "npu.h5", tensors, 10)
    tensors["=cmd()/1/output/\x1b[2J"] = np.ones(2, "f4")
    dump(tmp_path / "cpu.h5", tensors, 0)
    done = compare(*pair)
    row = next(row for row in result(done) if "cmd" in row["NPUDump"])
    assert row["NPUDump"] == "'=cmd()"
    assert "\x1b" not in done.stdout + str(row)


# Trouble: (arguments, words). `good` and `other` are dumps that compare.


def truncated(path):
    data = Path("good").read_bytes()
    path.write_bytes(data[: len(data) // 2])


def no_records(path):
    h5py.File(path, "w").close()


def no_dump(path):
    with h5py.File(path, "w") as file:
        file["weights"] = np.zeros(3)


def stray_list(path):
    with h5py.File(path, "w") as file:
        put(file, "op/first/output/x", np.zeros(2))


BAD_FILES = {
    "missing": (lambda path: None, "there is no such file"),
    "empty": (lambda path: path.touch(), "this file is empty"),
    "truncated": (truncated, "this file is truncated"),
    "no HDF5": (lambda path: path.write_bytes(os.urandom(5000)), "this is not an HDF5 file"),
    "a csv": (lambda path: path.write_text("Index,NPUDump\r\n"), "this is not an HDF5 file"),
    "a directory": (lambda path: path.mkdir(), "this is a directory"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "the same file": (lambda path: path.hardlink_to("good"), "both paths name the same file"),
    "a link to it": (lambda path: path.symlink_to("good"), "both paths name the same file"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "there is no such file"),
    "a link loop": (lambda path: path.symlink_to(path.name), "cannot be read"),
    "no records": (no_records, "there is no record in this file"),
    "another HDF5 file": (no_dump, "there is no record in this file; /weights: not a group"),
    "no seqids": (stray_list, "there is no record in this file; /op/first: no seqid"),
}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("make", "words"), BAD_FILES.values(), ids=list(BAD_FILES))
def test_bad_files(tmp_path, monkeypatch, make, words, swapped):
    monkeypatch.chdir(tmp_path)
    dump(Path("good"), chain(GOOD))
    make(Path("bad"))
    sides = ("bad", "good") if swapped else ("good", "bad")
    done = compare(*sides, "-out", "out")
    block = done.stderr.splitlines()
    assert done.exit_code == 2
    assert block[0].startswith("msaccucmp: error: ") and words in block[0]
    assert block[1].startswith("  where: ") and "bad" in block[1]
    assert block[2].startswith("  what to do: ")
    assert len(block) == 3 and done.stdout == ""
    assert not Path("out").exists()


BAD_USE = {
    "nothing": ((), "Usage"),
    "no command": (("compere",), "No such command 'compere'"),
    "no golden": (("compare", "-m", "npu.h5"), "Missing option '-g'"),
    "an unknown option": (("compare", "-m", "a", "-g", "b", "--algo", "0"), "No such option"),
    "an algorithm": (("compare", "-m", "npu.h5", "-g", "cpu.h5", "-alg", "10"), "algorithm '10'"),
    "nothing to resume": (("compare", "-m", "a", "-g", "b", "-map", "--resume"), "--resume"),
    "a mapping by algorithm": (("compare", "-m", "a", "-g", "b", "-map", "-alg", "0"), "-alg"),
    "a mapping by a table": (
        ("compare", "-m", "a", "-g", "b", "-map", "--op-map", "c"),
        "--op-map",
    ),
    "a reason and a mapping": (
        ("compare", "-m", "a", "-g", "b", "-map", "--explain-align", "mul/1"),
        "--explain-align",
    ),
    "a reason and advice": (
        ("compare", "-m", "a", "-g", "b", "-advisor", "--explain-align", "mul/1"),
        "no result",
    ),
    "a table for files": (("compare", "-m", "a.npy", "-g", "b.npy", "--op-map", "c"), "only -out"),
    "a reason for files": (
        ("compare", "-m", "a.npy", "-g", "b.npy", "--explain-align", "mul/1"),
        "only -out",
    ),
    "a language for files": (
        ("compare", "-m", "a.npy", "-g", "b.npy", "--lang", "zh"),
        "only -out",
    ),
    "another language": (
        ("compare", "-m", "npu.h5", "-g", "cpu.h5", "--lang", "fr"),
        "'fr' is not",
    ),
    "a file for -out": (
        ("compare", "-m", "npu.h5", "-g", "cpu.h5", "-out", "cpu.h5"),
        "in the way",
    ),
    "below a file": (("compare", "-m", "npu.h5", "-g", "cpu.h5", "-out", "cpu.h5/x"), "in the way"),
    "a NUL": (("compare", "-m", "a\0b", "-g", "cpu.h5"), "legal path"),
    "a type": (("convert", "-d", "npu.h5", "-t", "bin"), "'bin' is not"),
    "a flag": (("h5copy", "-i", "a", "-o", "b", "-s", "c", "-d", "d", "-f", "deep"), "'deep'"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD_USE.values(), ids=list(BAD_USE))
def test_bad_use(pair, arguments, words):
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert done.stdout == ""
    assert sorted(os.listdir()) == ["cpu.h5", "npu.h5"]


def test_a_directory_that_cannot_be_made(pair):
    """/proc takes no directory from anyone, root included."""
    done = compare(*pair, "-out", "/proc/none")
    assert done.exit_code == 2 and "the result cannot be written" in done.stderr
    assert len(done.stderr.splitlines()) == 3


def test_from_a_checkout(pair, tmp_path):
    good = script("compare", "-m", "npu.h5", "-g", "cpu.h5", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[-1].startswith("result: ./result_")
    bad = script("compare", "-m", "npu.h5", "-g", "nope.h5", cwd=tmp_path)
    assert bad.returncode == 2
    assert bad.stderr.splitlines()[0] == "msaccucmp: error: there is no such file"


ESCAPED = "\\u540d\\u5b57\\xe9"


@pytest.mark.parametrize(
    ("environment", "out", "shown"),
    [
        ({"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}, "名字é", ESCAPED),
        ({"PYTHONIOENCODING": "gbk", "PYTHONUTF8": "0"}, "名字é", "名字é"),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, "out", ESCAPED),
        ({"LC_ALL": "C"}, "名字é", "名字é"),
    ],
)
def test_a_console_that_cannot_encode(pair, tmp_path, environment, out, shown):
    encoding = "gbk" if "gbk" in environment.values() else "utf-8"
    dump(tmp_path / "npu.h5", {**chain([[1, 2], [2, 4], [2, 5], [7]]), "名字é/9/output/x": [1.0]})
    dump(tmp_path / "cpu.h5", {**chain(GOOD), "名字é/9/output/x": [2.0]})
    done = script(
        "compare", "-m", "npu.h5", "-g", "cpu.h5", "-out", out,
        cwd=tmp_path, encoding=encoding, **environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert f"result: {out if out == 'out' else shown}/result_" in done.stdout
    assert f"/{shown}/9/output/x" in done.stdout


def test_comparing_needs_no_torch(pair, tmp_path):
    code = (
        "import sys, compare.cli as c\n"
        "try: c.cli.main(['compare', '-m', 'npu.h5', '-g', 'cpu.h5'])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.stdout.splitlines()[-1] == "0 False"


def test_no_place_for_compiled_loops(pair, tmp_path):
    """numba without a writable cache compiles anew, and that is all."""
    done = script(
        "compare", "-m", "npu.h5", "-g", "cpu.h5", cwd=tmp_path, NUMBA_CACHE_DIR="/proc/none"
    )
    assert (done.returncode, done.stderr) == (0, "")
