"""The original's options on a command line: what they come to, and what is refused."""

import csv
import subprocess
import sys

import click
import numpy as np
import pytest
from dumps import dump
from test_compare_custom import GOOD, folder

from compare.cli import cli
from compare.options import Asked, SingleOp, original_options
from compare.positions import Positions
from compare.program import Program

NAMES = ("CosineSimilarity", *(f"Other{i}" for i in range(1, 10)))


def run(*arguments, capsys):
    """(status, what was asked or None, what was said on stderr) of a command with the options."""
    seen = []

    @click.group(cls=Program)
    def group() -> None:
        pass

    @group.command()
    @click.option("-m")
    @original_options
    @click.option("-g")
    def compare(m: str, g: str, asked: Asked) -> int:
        seen.append((m, g, asked))
        return 0

    with pytest.raises(SystemExit) as ended:
        group(["compare", "-m", "a", "-g", "b", *arguments])
    assert all(found[:2] == ("a", "b") for found in seen)
    return ended.value.code, seen[0][2] if seen else None, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Asked()),
        (["-c", "a dir+~:目录"], Asked(scripts="a dir+~:目录")),
        (["--custom_script_path", "d", "-a", "A:k=v"], Asked(scripts="d", parameters="A:k=v")),
        (["-max", "5"], Asked(first=5)),
        (["--max_cmp_size", "0"], Asked()),
        (["-overflow_detection"], Asked(overflow=True)),
        (["-p", "1"], Asked(filtered=True)),
        (["--post_process", "0"], Asked()),
        (["-advisor"], Asked(advisor=True)),
        (["-map"], Asked(mapping=True)),
        (["--mapping"], Asked(mapping=True)),
        (["-v", "2"], Asked()),
        (["-op", "relu"], Asked(single=SingleOp("relu"))),
        (["-op", "relu/3", "-o", "2"], Asked(single=SingleOp("relu/3", "output", 2))),
        (["-op", "x", "-i", "0"], Asked(single=SingleOp("x", "input", 0))),
        (["--op_name", "x", "--input_tensor", "1"], Asked(single=SingleOp("x", "input", 1))),
        (
            ["-op", "x", "-n", "1", "-ml", "10000"],
            Asked(single=SingleOp("x", "output", 0, 1, 10000)),
        ),
        (["-op", "x", "--topn", "10000"], Asked(single=SingleOp("x", topn=10000))),
        (["-op", "x", "--max_line", "1000000"], Asked(single=SingleOp("x"))),
        (["-op", "x", "--ignore_single_op_result"], Asked(single=SingleOp("x", elements=False))),
        (["-op", "x", "-max", "3"], Asked(first=3, single=SingleOp("x"))),
        (["-f", "", "-q", "", "-r", "", "-s", ""], Asked()),
        (["-f", "rules.json"], Asked(rules="rules.json")),
        (["-r", "2,9,3"], Asked(positions=Positions("-r 2,9,3", None, 2, 9, 3))),
        (["--range", " , -1 ,"], Asked(positions=Positions("-r  , -1 ,"))),
        (["-s", "3, 1"], Asked(positions=Positions("-s 3, 1", (3, 1)))),
    ],
)
def test_what_is_asked(arguments, expected, capsys):
    assert run(*arguments, capsys=capsys) == (0, expected, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-c", ""], "it is empty; name a file or a directory"),
        (["-max", "-1"], "x>=0"),
        (["-max", "many"], "not a valid integer"),
        (["-p", "2"], "'2' is not one of"),
        (["-v", "3"], "'3' is not one of"),
        (["-op", "x", "-o", "-1"], "x>=0"),
        (["-op", "x", "-n", "0"], "1<=x<=10000"),
        (["-op", "x", "-n", "10001"], "1<=x<=10000"),
        (["-op", "x", "-ml", "9999"], "10000<=x<=1000000"),
        (["-op", "x", "-ml", "1000001"], "10000<=x<=1000000"),
        (["-op", "x", "-o", "0", "-i", "0"], "-o and -i are two tensors"),
        (["-op", "/"], "it is empty"),
        (["-o", "0"], "-o says what to show of one op: it needs -op."),
        (["-i", "0"], "-i says"),
        (["-n", "20"], "-n says"),
        (["-ml", "1000000"], "-ml says"),
        (["--ignore_single_op_result"], "--ignore_single_op_result says"),
        (["-map", "-op", "x"], "-map compares nothing, so that -op would do nothing."),
        (["-map", "-p", "1"], "-p would do nothing"),
        (["-map", "-max", "3"], "-max would do nothing"),
        (["-op", "x", "-advisor"], "-op compares one tensor, so that -advisor would do nothing."),
        (["-op", "x", "-c", "d"], "-c would do nothing"),
        (["-op", "x", "-a", "A:k=v"], "-a would do nothing"),
        (["-op", "x", "-overflow_detection"], "-overflow_detection would do nothing"),
        (["-r", "1,2,1", "-s", "1"], "give one of them"),
        (["-r", "0,2,1"], "is not like 1,-1,1"),
        (["-r", "1,2"], "is not like 1,-1,1"),
        (["-r", "1,-2,1"], "is not like 1,-1,1"),
        (["-r", "5,2,1"], "ends before it begins"),
        (["-s", "1,,2"], "is not like 1,5,9"),
        (["-s", "\u0661"], "is not like 1,5,9"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, words, capsys):
    status, asked, said = run(*arguments, capsys=capsys)
    assert status == 2 and asked is None and words in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-f", "rules.json"], "leave it out: fusion rules"),
        (["-q", "rules.json"], "leave it out: fusion rules"),
        (["-cf", "rules.json"], "leave it out: fusion rules"),
        (["-ffts"], "leave it out: only files of CANN dumps"),
        (["-r", "1,10,2"], "name one op with -op"),
        (["-s", "1,2"], "cut some out with h5copy"),
    ],
)
def test_options_of_folders_are_none_of_dumps(tmp_path, arguments, words, capsys):
    files = [dump(tmp_path / name, {"op/1/output/y": ONE}) for name in ("m.h5", "g.h5")]
    paths = ["-m", files[0], "-g", files[1], "-out", tmp_path / "o"]
    with pytest.raises(SystemExit) as ended:
        cli(["compare", *map(str, paths), *arguments])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and not (tmp_path / "o").exists()
    assert "this option means nothing for HDF5 dumps" in said and words in said
    assert f"where: {arguments[0][:2]}" in said


def test_an_old_version_is_said_to_change_nothing(capsys):
    status, asked, said = run("-v", "1", capsys=capsys)
    assert (status, asked) == (0, Asked()) and said.startswith("msaccucmp: note: -v 1 is")


@pytest.mark.parametrize("name", ["CosineSimilarity", "0", "9"])
def test_options_of_our_algorithms_are_said_to_change_nothing(tmp_path, name, capsys):
    """The original's help has such an example, and its algorithms take no options either."""
    place = folder(tmp_path, alg_Mine=GOOD)
    (custom,) = Asked(str(place), f"{name}:max=1,min=0;Mine:k=v").customs(NAMES)
    assert custom.name == "Mine" and f"-a: {name} has no options" in capsys.readouterr().err


def test_options_without_their_algorithm_are_refused(capsys):
    from dumper.errors import DumpError

    with pytest.raises(DumpError, match="there is no algorithm Mine") as error:
        Asked(parameters="Mine:k=v").customs(NAMES)
    assert error.value.todo == "name its folder with -c"
    assert Asked().customs(NAMES) == () and capsys.readouterr().err == ""


ONE, TWO = np.float32([1, 2, 3]), np.float32([1, -2, 3])
AFTER = ("-p", "1", "-advisor", "-overflow_detection", "-max", "2", "-alg", "1,Mine")


@pytest.mark.parametrize("name", ["plain", "a dir+~:目录"])
def test_a_command_with_all_of_them(tmp_path, name, capsys):
    """Every path is in a folder whose name the original's options would refuse."""
    place = tmp_path / name
    place.mkdir()
    mine, golden = (
        dump(place / file, {"op/1/input/x": ONE, "op/1/output/y": value})
        for file, value in (("m.h5", TWO), ("g.h5", ONE))
    )
    folder(place / "scripts", alg_Mine=GOOD)
    paths = ["-m", mine, "-g", golden, "-out", place / "out", "-c", place / "scripts"]
    with pytest.raises(SystemExit) as ended:
        cli(["compare", *map(str, paths), *AFTER])
    found = capsys.readouterr()
    assert ended.value.code == 1 and found.err == ""
    (result,) = place.glob("out/result_*.csv")
    rows = list(csv.DictReader(result.open(encoding="utf-8", newline="")))
    assert list(rows[0])[6:10] == ["OverFlow", "MaxAbsoluteError", "Mine", "CompareFailReason"]
    assert [row["Mine"] for row in rows] == ["0.0", "4.0"]
    filtered = place / "out" / f"{result.stem}_filtered"
    (low,) = csv.DictReader((filtered / "filtered_result.csv").open(encoding="utf-8", newline=""))
    assert {key: low[key] for key in rows[1]} == rows[1]
    assert np.load(filtered / low["MyFile"]).tolist() == TWO.tolist()
    advice = (place / "out" / "advisor_summary.txt").read_text().splitlines()
    assert advice[1] == "Operator Index: 1" and "/op/1/output/y" in advice[2]
    assert all(line in found.out.splitlines() for line in advice)


@pytest.mark.parametrize(
    ("arguments", "value", "status", "files"),
    [
        (["-map"], TWO, 0, ["mapping_*.csv"]),
        (["-map"], None, 1, ["mapping_*.csv"]),
        (["-op", "op"], ONE, 0, ["op_output_0*"] * 5),
        (["-op", "op"], TWO, 1, ["op_output_0*"] * 5),
        (["-op", "op", "--exit-zero"], TWO, 0, ["op_output_0*"] * 5),
        (["-op", "op", "-max", "1", "--ignore_single_op_result"], TWO, 0, ["op_output_0*"] * 4),
        (["-op", "op", "-o", "1", "--exit-zero"], ONE, 2, []),
    ],
)
def test_a_command_that_writes_no_result(tmp_path, arguments, value, status, files, capsys):
    mine = dump(tmp_path / "m.h5", {"op/1/output/y": ONE, "other/2/output/y": ONE})
    tensors = {"other/2/output/y": ONE} if value is None else {"op/1/output/y": value}
    golden = dump(tmp_path / "g.h5", {"other/2/output/y": ONE, **tensors})
    with pytest.raises(SystemExit) as ended:
        cli(
            ["compare", "-m", str(mine), "-g", str(golden), "-out", str(tmp_path / "o"), *arguments]
        )
    assert ended.value.code == status and "Traceback" not in capsys.readouterr().err
    there = sorted((tmp_path / "o").glob("*"))
    assert len(there) == len(files) and set(there) == {
        p for f in files for p in (tmp_path / "o").glob(f)
    }


def test_the_options_alone_load_nothing_heavy():
    code = "import sys, compare.options; print({'numpy', 'h5py', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(("first", "status"), [("1", 0), ("2", 1), ("0", 1), ("99", 1)])
def test_only_the_first_elements_are_compared(tmp_path, first, status):
    files = [dump(tmp_path / n, {"op/1/output/y": v}) for n, v in (("m.h5", TWO), ("g.h5", ONE))]
    paths = ["-m", files[0], "-g", files[1], "-out", tmp_path / "o"]
    with pytest.raises(SystemExit) as ended:
        cli(["compare", *map(str, paths), "-max", first])
    assert ended.value.code == status
