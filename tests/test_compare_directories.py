"""compare on two folders of CANN dumps: what pairs, and what is said of it."""

import csv
from collections import Counter
from pathlib import Path
from string import Formatter

import numpy as np
import pytest
from click.testing import CliRunner
from folders import START, header, path_of, put, rows, run
from hypothesis import given
from hypothesis import strategies as st

from compare.cli import cli
from compare.folders.pairs import partners
from compare.folders.phrases import Words
from compare.folders.scan import OpFile
from ir2tbe.cann.names import DumpName

X = np.arange(24, dtype="f4").reshape(2, 3, 2, 2) - 11
ALGORITHMS = (
    "CosineSimilarity MaxAbsoluteError AccumulatedRelativeError RelativeEuclideanDistance "
    "KullbackLeiblerDivergence StandardDeviation MeanAbsoluteError RootMeanSquareError "
    "MaxRelativeError MeanRelativeError"
).split()


def net(folder: Path, wrong: float = 0.0, more: float = 0.0) -> Path:
    """Three operators; the second is wrong, and the third hands it on. more: on all inputs."""
    x = X + np.float32(more)
    put(folder, 0, "Conv2D", "net/conv", [x], [x])
    put(folder, 1, "MatMul", "net/wo", [x, x], [x + np.float32(wrong)])
    put(folder, 2, "Relu", "net/relu", [x + np.float32(wrong)], [2 * x + np.float32(wrong)])
    return folder


def test_the_first_operator_that_parts_from_equal_inputs(tmp_path):
    mine, golden = net(tmp_path / "m", 0.5), net(tmp_path / "g")
    done = run(mine, golden, tmp_path / "out")
    lines = done.stdout.splitlines()
    at = lines.index("the first operator that parts from equal inputs: MatMul net/wo, Index 2")
    assert lines[at + 1].startswith("  output:0: RelativeEuclideanDistance ")
    assert lines[0] == f"my dump   {mine} (3 operators)" and lines[2].startswith(
        "3 of my operators, 7 rows; tensors compared: 7, of which 4 bit-equal, 0 equal in value "
        "and 3 differing; 0 without partner, 0 not comparable"
    )
    assert lines[at + 4].split()[:3] == ["2", "MatMul", "net/wo:output:0"], "the worst first"
    assert done.exit_code == 1 and run(mine, golden, tmp_path / "o", "--exit-zero").exit_code == 0


def test_file_compare_takes_such_folders_too(tmp_path):
    mine, golden = net(tmp_path / "m", 0.5), net(tmp_path / "g")
    paths = ["-m", mine, "-g", golden, "-out", tmp_path / "out"]
    done = CliRunner().invoke(cli, ["file_compare", *map(str, paths)])
    assert done.exit_code == 1 and len(rows(done)) == 7
    assert "parts from equal inputs: MatMul net/wo, Index 2" in done.stdout


def test_other_answers(tmp_path):
    golden = net(tmp_path / "g")
    done = run(net(tmp_path / "a", more=1.0), golden, tmp_path / "out")
    assert "first output that is not as in golden: Conv2D net/conv, Index 1" in done.stdout
    assert "its inputs are not as in golden either" in done.stdout
    for folder, value in (("o", X), ("p", X + 1)):
        put(tmp_path / folder, 0, "Add", "a", (), [value])
        put(tmp_path / folder, 1, "Add", "b", [X], [value])
    done = run(tmp_path / "o", tmp_path / "p", tmp_path / "out")
    assert "parts from equal inputs: Add b, Index 2" in done.stdout
    assert "before it output:0 of Add a, Index 1 is not as in golden; its inputs" in done.stdout
    put(tmp_path / "q", 0, "Add", "a", [X], ())
    put(tmp_path / "r", 0, "Add", "a", [X + 1], ())
    done = run(tmp_path / "q", tmp_path / "r", tmp_path / "out")
    assert "no output differs, but input:0 of Add a, Index 1 is not as in golden" in done.stdout
    same = net(tmp_path / "same")
    assert "nothing differs" in run(golden, same, tmp_path / "out").stdout


def test_a_difference_before_it_with_unknown_inputs(tmp_path):
    """The answer is the output on equal inputs; the one before it is named too."""
    for side, value in (("m", X + 1), ("g", X)):
        put(tmp_path / side, 0, "Add", "a", [X] * (side == "m"), [value])
        put(tmp_path / side, 1, "Mul", "b", [X], [value])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert "parts from equal inputs: Mul b, Index 2" in done.stdout
    assert "of Add a, Index 1 is not as in golden; its inputs were not compared" in done.stdout


def test_in_chinese(tmp_path):
    done = run(net(tmp_path / "m", 0.5), net(tmp_path / "g"), tmp_path / "out", "--lang", "zh")
    assert "第一个输入相同而输出不同的算子：MatMul net/wo，Index 2" in done.stdout
    assert "待比对算子 3 个" in done.stdout and header(done)[1] == "OpType"


def test_both_languages_say_the_same_things():
    for name, (english, chinese) in Words.phrases.items():
        fields = [{field for _, field, _, _ in Formatter().parse(text)} - {None}
                  for text in (english, chinese)]  # fmt: skip
        assert fields[0] == fields[1], name


def test_columns_are_the_originals(tmp_path):
    put(tmp_path / "m", 0, "Add", "a/b", [X.astype("f2")], [X])
    put(tmp_path / "g", 5, "Add", "a/b", [X.astype("f2")], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    front = "Index OpType NPUDump DataType Address GroundTruth DataType Address TensorIndex Shape"
    found = header(done)
    assert found[:21] == [*front.split(), *ALGORITHMS, "CompareFailReason"]
    assert found[21] == "ExactMatch" and found[-1] == "PairedBy"
    row = rows(done)[0]
    assert (row["NPUDump"], row["GroundTruth"], row["TensorIndex"]) == ("a/b", "a/b", "a/b:input:0")
    more = ("-r", ",,", "-overflow_detection", "-alg", "3,CosineSimilarity")
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *more)
    assert header(done)[:2] == ["Index", "OpSequence"]
    assert header(done)[10:15] == [
        "Shape", "OverFlow", "RelativeEuclideanDistance", "CosineSimilarity", "CompareFailReason",
    ]  # fmt: skip
    assert [row["OverFlow"] for row in rows(done)] == ["NO", "NaN"]


def test_the_rows_of_what_has_no_partner(tmp_path):
    put(tmp_path / "m", 0, "Add", "a", [X, X], [X])
    put(tmp_path / "g", 0, "Add", "a", [X], [X, X])
    put(tmp_path / "m", 1, "TransData", "t", [X], [X])
    put(tmp_path / "g", 1, "Mul", "u", [X], [X])
    put(tmp_path / "m", 2, "Conv2D", "c", [X], ())
    put(tmp_path / "g", 2, "Conv2DV2", "c", [X], ())
    put(tmp_path / "m", 3, "Sub", "s", [X], [X[:1]])
    put(tmp_path / "g", 3, "Sub", "s", [X], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    said = [
        (r["Index"], r["TensorIndex"], r["CompareFailReason"], r["PairedBy"]) for r in rows(done)
    ]
    by = "type and name"
    assert said == [
        ("1", "a:input:0", "", by),
        ("1", "a:input:1", "No data match with a:input:1 in golden dump data.", by),
        ("1", "a:output:0", "", by),
        ("1", "a:output:1", "No data match with a:output:1 in my dump data.", by),
        ("2", "t:input:0", "no operator of this type or name is left in golden for t", "NaN"),
        ("2", "t:output:0", "no operator of this type or name is left in golden for t", "NaN"),
        ("3", "c:input:0", "", "name"),
        ("4", "s:input:0", "", by),
        ("4", "s:output:0", "shapes differ: [1, 3, 2, 2] in mine, [2, 3, 2, 2] in golden", by),
        ("5", "NaN", "No data match with u in my dump data.", "NaN"),
    ]
    assert done.exit_code == 1 and "5 without partner, 1 not comparable" in done.stdout


def test_a_file_without_tensors_is_a_row(tmp_path):
    for at, (mine, golden) in enumerate(["ab", "bb", "cc"]):
        put(tmp_path / "m", at, "Add", mine, (), [X] * (mine == "c"))
        put(tmp_path / "g", at, "Add", golden, (), [X] * (golden == "c"))
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    said = [(r["NPUDump"], r["GroundTruth"], r["Verdict"]) for r in rows(done)]
    assert said == [
        ("a", "NaN", "not_comparable"), ("b", "NaN", "cannot_tell"),
        ("c", "c", "same"), ("NaN", "b", "not_comparable"),
    ]  # fmt: skip


def test_a_mapping_reads_no_value(tmp_path):
    mine, golden = net(tmp_path / "m", 0.5), net(tmp_path / "g")
    done = run(mine, golden, tmp_path / "out", "-map")
    with path_of(done).open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert done.exit_code == 0 and path_of(done).name.startswith("mapping_")
    assert found[1] == {
        "Index": "1", "OpType": "Conv2D", "NPUDump": "net/conv", "GroundTruth": "net/conv",
        "TensorIndex": "net/conv:output:0",
        "NPUDumpPath": f"{mine}/Conv2D.net_conv.0.0.{START}",
        "GroundTruthPath": f"{golden}/Conv2D.net_conv.0.0.{START}",
    }  # fmt: skip
    assert not list((tmp_path / "out").glob("result_*"))
    put(golden, 9, "Mul", "more", [X])
    assert run(mine, golden, tmp_path / "out", "-map").exit_code == 1


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (("-r", "2,3,1"), "23"),
        (("-r", "1,-1,2"), "13"),
        (("-r", ",,"), "123"),
        (("-r", "3,,"), "3"),
        (("-s", "3,1"), "13"),
    ],
)
def test_some_operators_alone(tmp_path, options, numbers):
    """Golden's leftovers are no rows then: of what was not asked for nothing is said."""
    mine, golden = net(tmp_path / "m"), net(tmp_path / "g")
    put(golden, 9, "Mul", "more", [X])
    done = run(mine, golden, tmp_path / "out", *options)
    assert done.exit_code == 0
    assert sorted({row["OpSequence"] for row in rows(done)}) == list(numbers)
    done = run(mine, golden, tmp_path / "out", "-s", "4")
    assert done.exit_code == 2 and "asks for operator 4, and my folder has 3" in done.stderr


def test_elements_and_own_algorithms(tmp_path):
    scripts = tmp_path / "scripts" / "algorithm"
    scripts.mkdir(parents=True)
    (scripts / "alg_Count.py").write_text("def compare(a, b, args): return str(a.size), args.why")
    put(tmp_path / "m", 0, "Add", "a", (), [np.float32([1, 2, 3])])
    put(tmp_path / "g", 0, "Add", "a", (), [np.float32([1, 2, 4])])
    more = ("-c", scripts.parent, "-a", "Count:why=because", "-alg", "1,Count")
    (row,) = rows(run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *more, "-max", "2"))
    assert (row["MaxAbsoluteError"], row["Count"]) == ("0.000000", "2")
    assert row["CompareFailReason"] == "because" and row["Shape"] == "[3]"
    (scripts / "alg_Count.py").rename(scripts / "alg_address.py")
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-c", scripts.parent)
    assert done.exit_code == 2 and "address is a column" in done.stderr


names = st.lists(
    st.tuples(st.sampled_from(["Add", "Mul"]), st.sampled_from("ab"), st.sampled_from(["", "0"])),
    max_size=12,
)


@given(names, names)
def test_pairing_drops_nothing(mine, golden):
    sides = [
        [OpFile(n, Path(), DumpName(kind, name, 0, None, n), place)
         for n, (kind, name, place) in enumerate(found, 1)]
        for found in (mine, golden)
    ]  # fmt: skip
    found, left = partners(*sides)
    assert sorted([*(op for op, _ in found.values()), *left]) == sides[1]
    for by, key in (
        ("type and name", lambda op: (op.name.op_type, op.name.op_name)),
        ("name", lambda op: op.name.op_name),
    ):
        pairs = [
            (op, found[op.number][0]) for op in sides[0] if found.get(op.number, "  ")[1] == by
        ]
        assert all(key(a) == key(b) for a, b in pairs)
    for key in (
        lambda op: (op.place, op.name.op_type, op.name.op_name),
        lambda op: (op.name.op_type, op.name.op_name),
        lambda op: op.name.op_name,
    ):
        counts = [Counter(map(key, side)) for side in sides]
        paired = Counter(
            key(op) for op in sides[0] if op.number in found and key(found[op.number][0]) == key(op)
        )
        assert all(
            paired[each] == min(counts[0][each], counts[1][each]) for each in paired | counts[0]
        )
    again, _ = partners(sides[0], sides[0])
    assert all(again[op.number][0] is op for op in sides[0])
