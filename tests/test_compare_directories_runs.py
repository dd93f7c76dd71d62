"""Which run of which operator a tensor belongs to, by rules: loops, devices, names that collide."""

import numpy as np
import pytest
from folders import op, put, rows, rules, run, save

X = np.arange(24, dtype="f4").reshape(4, 6)


def said(done, *more):
    columns = ("NPUDump", "TensorIndex", "GroundTruth", "Verdict", *more)
    return [tuple(row[name] for name in columns) for row in rows(done)]


def verdicts(done):
    return [row["Verdict"] for row in rows(done)]


def both(tmp_path, *puts):
    """The same files on both sides: (at, type, name, inputs, outputs)."""
    for each in puts:
        for side in "mg":
            put(tmp_path / side, *each)
    return tmp_path / "m", tmp_path / "g", tmp_path / "out"


def one_rule(tmp_path, *ops):
    file = rules(tmp_path / "r.json", *ops)
    return "-f", file, "-cf", file


A = op("a", "Relu", ["a"], [("a", 0, "")], ["data:0"])
B = op("b", "Add", ["b"], [("b", 0, "")], ["a:0"])


@pytest.mark.parametrize("golden", ["cann", "npy"])
def test_an_input_came_of_the_last_run_of_what_makes_it(tmp_path, golden):
    files = [(k, "Relu", "a", (), [X + k]) for k in range(3)]
    mine, other, out = both(tmp_path, *files, (3, "Add", "b", [X + 2], [X]))
    options = one_rule(tmp_path, A, B)
    if golden == "npy":
        other, options = tmp_path / "npy", options[:2]
        for k in range(3):
            save(other, f"a.0.167338372809344{k}.npy", X + k)
        save(other, "b.0.npy", X)
    done = run(mine, other, out, *options)
    assert verdicts(done) == ["same"] * 5 and done.exit_code == 0, done.output


def test_one_run_may_be_taken_twice(tmp_path):
    files = [(0, "Relu", "a", (), [X]), *[(k, "Add", "b", [X], [X + k]) for k in (1, 2)]]
    done = run(*both(tmp_path, *files), *one_rule(tmp_path, A, B))
    assert verdicts(done) == ["same"] * 5 and done.exit_code == 0, done.output


def test_runs_of_what_left_no_file(tmp_path):
    """Data: golden has as many as takers, or one; of others nobody knows which."""
    mine, npy = tmp_path / "m", tmp_path / "npy"
    data = op("data", "Data", ["data"], [("data", 0, "")])
    for k in range(2):
        put(mine, k, "Relu", "a", [X + k], [X])
        save(npy, f"a.0.167338372809344{k}.npy", X)
        save(npy, f"data.0.167338372809344{k}.npy", X + k)
    options = "-f", rules(tmp_path / "r.json", data, A)
    done = run(mine, npy, tmp_path / "out", *options)
    assert verdicts(done) == ["same"] * 4
    save(npy, "data.0.1673383728093449.npy", X)
    done = run(mine, npy, tmp_path / "out", *options)
    found = [row for row in rows(done) if row["TensorIndex"] == "a:input:0"]
    assert {row["VerdictCode"] for row in found} == {"unnamed"}
    assert "golden has 3 runs of what made this input" in found[0]["CompareFailReason"]


@pytest.mark.parametrize("golden", ["cann", "npy"])
def test_devices_stay_apart(tmp_path, golden):
    """Although the other side's came in another order."""
    for device, at in ((0, 0), (1, 1)):
        put(tmp_path / "m" / str(device), at, "Relu", "a", (), [X + device])
        put(tmp_path / "g" / str(device), 1 - at, "Relu", "a", (), [X + device])
        (tmp_path / "npy").mkdir(exist_ok=True)
        save(tmp_path / "npy" / str(device), "a.0.npy", X + device)
    options = one_rule(tmp_path, A)
    other, options = ("g", options) if golden == "cann" else ("npy", options[:2])
    done = run(tmp_path / "m", tmp_path / other, tmp_path / "out", *options)
    assert verdicts(done) == ["same"] * 2 and done.exit_code == 0, done.output


def test_the_kth_of_all_where_no_subfolder_is_in_common(tmp_path):
    for at in range(2):
        put(tmp_path / "m" / "20230110" / "0", at, "Relu", "a", (), [X + at])
        put(tmp_path / "g" / "20230111" / "0", at, "Relu", "a", (), [X + at])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *one_rule(tmp_path, A))
    assert verdicts(done) == ["same"] * 2


def test_names_of_one_file_form(tmp_path):
    """Types keep them apart."""
    files = [(0, "Relu", "a/b", (), [X]), (1, "Add", "a_b", (), [X + 1])]
    options = one_rule(
        tmp_path,
        op("a/b", "Relu", ["a/b"], [("a/b", 0, "")]),
        op("a_b", "Add", ["a_b"], [("a_b", 0, "")]),
    )
    done = run(*both(tmp_path, *files), *options)
    assert said(done) == [
        ("a/b", "a/b:output:0", "a/b", "same"), ("a_b", "a_b:output:0", "a_b", "same")
    ]  # fmt: skip
    assert done.exit_code == 0


def test_a_cast_that_rounds_is_no_partner_of_what_it_takes(tmp_path):
    """Of two that claim one output, the one that is called like what made mine."""
    half = X.astype("f2") + np.float16(0.3)
    files = [
        (0, "Conv2D", "conv", (), [X + 0.3]),
        (1, "Cast", "cast", [X + 0.3], [half]),
        (2, "Relu", "relu", [half], [half]),
    ]
    options = one_rule(
        tmp_path,
        op("conv", "Conv2D", ["conv"], [("conv", 0, "")]),
        op("cast", "Cast", [], [("conv", 0, "")], ["conv:0"]),
        op("relu", "Relu", ["relu"], [("relu", 0, "")], ["cast:0"]),
    )
    done = run(*both(tmp_path, *files), *options)
    assert verdicts(done) == ["same"] * 5 and done.exit_code == 0, done.output


def test_equal_networks_with_what_a_compiler_inserted_and_split(tmp_path):
    files = [
        (0, "Conv2D", "conv", [X], [X]),
        (1, "TransData", "t", [X], [X + 1]),
        (2, "Split", "s_1", [X + 1], [X + 2]),
        (3, "Join", "s_2", [X + 2], [X + 3]),
    ]
    options = one_rule(
        tmp_path,
        op("conv", "Conv2D", ["conv"], [("conv", 0, "")], ["data:0"]),
        op("t", "TransData", [], [None], ["conv:0"]),
        op("s_1", "Split", ["s"], [None], ["t:0"]),
        op("s_2", "Join", ["s"], [("s", 0, "")], ["s_1:0"]),
        op("data", "Data", ["data"], [("data", 0, "")]),
    )
    done = run(*both(tmp_path, *files), *options)
    assert verdicts(done) == ["same"] * 8 and done.exit_code == 0, done.output


def test_what_is_inside_an_operator_of_golden_is_not_taken_by_its_name(tmp_path):
    """Golden still fuses add and relu, into an operator that is called add."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Add", "add", (), [X])
    put(mine, 1, "Relu", "relu", [X], [X + 1])
    put(golden, 0, "Add", "add", (), [X + 1])
    opened = rules(
        tmp_path / "on.json",
        op("add", "Add", ["add"], [("add", 0, "")]),
        op("relu", "Relu", ["relu"], [("relu", 0, "")], ["add:0"]),
    )
    closed = rules(tmp_path / "off.json", op("add", "Add", ["add", "relu"], [("relu", 0, "")]))
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert said(done, "VerdictCode") == [
        ("add", "add:output:0", "NaN", "cannot_tell", "fused"),
        ("relu", "relu:input:0", "NaN", "cannot_tell", "fused"),
        ("relu", "relu:output:0", "add", "same", "bit_equal"),
    ]
    assert "add is a part of golden's add" in rows(done)[0]["CompareFailReason"]


def test_every_file_of_golden_is_in_a_row(tmp_path):
    """One with inputs only, a damaged one (once), one of which another has the output too."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    for at, name in enumerate(["a", "b"]):
        put(mine, at, "Relu", name, (), [X])
    put(golden, 0, "Relu", "a", (), [X])
    put(golden, 1, "Cast", "c", (), [X])
    put(golden, 2, "Relu", "b", (), [X]).write_bytes(b"")
    put(golden, 3, "Assign", "lost", [X + 9], ())
    closed = rules(
        tmp_path / "off.json",
        op("a", "Relu", ["a"], [("a", 0, "")]),
        op("c", "Cast", [], [("a", 0, "")], ["a:0"]),
        op("b", "Relu", ["b"], [("b", 0, "")]),
        op("lost", "Assign", ["lost"], [None]),
    )
    opened = rules(tmp_path / "on.json", *[op(n, "Relu", [n], [(n, 0, "")]) for n in "ab"])
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert said(done, "VerdictCode") == [
        ("a", "a:output:0", "a", "same", "bit_equal"),
        ("b", "b:output:0", "b", "not_comparable", "no_numbers"),
        ("NaN", "c:output:0", "c", "cannot_tell", "repeated"),
        ("NaN", "NaN", "lost", "not_comparable", "no_partner"),
    ]
    assert "1 that golden has of what was compared" in done.stdout and done.exit_code == 1


def test_an_output_that_an_inserted_op_claims_is_missed(tmp_path):
    """golden's b is made by an op that the compiler inserted; mine has no file of it."""
    put(tmp_path / "m", 0, "Relu", "a", (), [X])
    put(tmp_path / "g", 0, "Relu", "a", (), [X])
    put(tmp_path / "g", 1, "Dequant", "d", (), [X])
    file = rules(tmp_path / "r.json", A, op("d", "Dequant", [], [("b", 0, "")]))
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-f", file, "-cf", file)
    assert said(done, "VerdictCode")[1][2:] == ("d", "not_comparable", "no_partner")
    assert done.exit_code == 1


def test_a_damaged_file_of_mine_names_its_partner(tmp_path):
    mine, golden, out = both(tmp_path, (0, "Relu", "a", (), [X]), (1, "Relu", "b", (), [X]))
    next(path for path in mine.iterdir() if ".a." in path.name).write_bytes(b"")
    for more in ((), ("-map",)):
        done = run(mine, golden, out, *more)
        assert rows(done)[0]["NPUDump"] == rows(done)[0]["GroundTruth"] == "a"
        assert done.exit_code == 1


def test_one_tensor_is_shown_although_another_cannot_be_read(tmp_path):
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Relu", "x", [X, X], [X])
    for name in ("in", "x"):
        save(golden, f"{name}.0.npy", X)
    (golden / "in2.0.npy").write_bytes(b"no npy")
    file = rules(
        tmp_path / "r.json",
        *[op(name, "Data", [name], [(name, 0, "")]) for name in ("in", "in2")],
        op("x", "Relu", ["x"], [("x", 0, "")], ["in:0", "in2:0"]),
    )
    options = "-f", file, "-op", "x"
    assert run(mine, golden, tmp_path / "out", *options).exit_code == 0
    assert run(mine, golden, tmp_path / "out", *options, "-i", "0").exit_code == 0
    done = run(mine, golden, tmp_path / "out", *options, "-i", "1")
    assert done.exit_code == 2 and "in2.0.npy" in done.stderr and "x:input:1" in done.stderr
