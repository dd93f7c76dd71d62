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


def same(tmp_path, *puts, rule, golden="cann"):
    """A comparison of a network with itself; its exit status and verdicts."""
    mine, other, out = both(tmp_path, *puts)
    return run(mine, other, out, *one_rule(tmp_path, *rule))


@pytest.mark.parametrize("golden", ["cann", "npy"])
def test_what_makes_an_input_may_have_run_elsewhere_only(tmp_path, golden):
    """In another subfolder, as in a step before."""
    for side in ("m", "g"):
        put(tmp_path / side / "0", 0, "Relu", "a", (), [X])
        put(tmp_path / side / "1", 1, "Add", "b", [X], [X + 1])
    for at, (name, value) in enumerate({"a": X, "b": X + 1}.items()):
        (tmp_path / "npy").mkdir(exist_ok=True)
        save(tmp_path / "npy" / str(at), f"{name}.0.npy", value)
    options = one_rule(tmp_path, A, B)
    other, options = ("g", options) if golden == "cann" else ("npy", options[:2])
    done = run(tmp_path / "m", tmp_path / other, tmp_path / "out", *options)
    assert verdicts(done) == ["same"] * 3 and done.exit_code == 0, done.output


@pytest.mark.parametrize("places", [("", ""), ("0", "1")])
def test_a_run_that_mine_lacks_is_missed(tmp_path, places):
    for at, place in enumerate(places):
        put(tmp_path / "g" / place, at, "Relu", "a", (), [X])
    put(tmp_path / "m" / places[0], 0, "Relu", "a", (), [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *one_rule(tmp_path, A))
    assert said(done, "VerdictCode")[1][1:] == ("a:output:0", "a", "not_comparable", "no_partner")
    assert done.exit_code == 1


CAST = op("c", "Cast", [], [None], ["a:0"])
AFTER = op("b", "Add", ["b"], [("b", 0, "")], ["c:0"])


@pytest.mark.parametrize("golden", ["cann", "npy"])
@pytest.mark.parametrize("casts", [1, 3])
def test_a_cast_may_run_another_number_of_times(tmp_path, golden, casts):
    """Behind a loop, or in one."""
    makers = [(k, "Relu", "a", (), [X + k]) for k in range(2 if casts == 1 else 1)]
    value = makers[-1][-1][0]
    puts = [
        *makers,
        *[(5 + k, "Cast", "c", [value], [value]) for k in range(casts)],
        (9, "Add", "b", [value], [X]),
    ]
    mine, other, out = both(tmp_path, *puts)
    options = one_rule(tmp_path, A, CAST, AFTER)
    if golden == "npy":
        other, options = tmp_path / "npy", options[:2]
        for k, (*_, (made,)) in enumerate(makers):
            save(other, f"a.0.167338372809344{k}.npy", made)
        save(other, "b.0.npy", X)
    done = run(mine, other, out, *options)
    assert set(verdicts(done)) == {"same"} and done.exit_code == 0, done.output


def test_what_leaves_no_file_is_what_the_same_operator_takes(tmp_path):
    """Data, taken by one that runs once and one that runs thrice, in two steps."""
    data = op("data", "Data", ["data"], [("data", 0, "")])
    b = op("b", "Add", ["b"], [("b", 0, "")], ["data:0"])
    puts = [(0, "Relu", "a", [X], [X])]
    puts += [(1 + k, "Add", "b", [X + k], [X - k]) for k in range(3)]
    done = same(tmp_path, *puts, rule=(data, A, b))
    assert verdicts(done) == ["same"] * 8 and done.exit_code == 0, done.output
    assert all(row["GroundTruth"] == row["NPUDump"] for row in rows(done))


def test_a_taker_whose_inputs_are_not_there_is_passed_over(tmp_path):
    data = op("data", "Data", ["data"], [("data", 0, "")])
    d = op("d", "Add", ["d"], [("d", 0, "")], ["data:0"])
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Add", "d", [X], [X])
    put(golden, 0, "Relu", "a", (), [X])
    put(golden, 1, "Add", "d", [X], [X])
    opened, closed = (
        rules(tmp_path / "on.json", data, d),
        rules(tmp_path / "off.json", data, A, d),
    )
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert [each[3] for each in said(done)][:2] == ["same", "same"]


def test_of_two_that_claim_one_that_ran_as_often_is_taken(tmp_path):
    """golden's cast ran once, what it casts twice, as mine."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    for k in range(2):
        put(mine, k, "Relu", "fused", (), [X + k])
        put(golden, k, "Relu", "a", (), [X + k])
    put(golden, 5, "Cast", "c", [X + 1], [X + 1])
    opened = rules(tmp_path / "on.json", op("fused", "Relu", ["a"], [("a", 0, "")]))
    closed = rules(tmp_path / "off.json", A, op("c", "Cast", [], [("a", 0, "")], ["a:0"]))
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert [each[2:4] for each in said(done)][:2] == [("a", "same"), ("a", "same")]
    assert done.exit_code == 0, done.output


def test_a_piece_of_golden_is_nobodys_fault(tmp_path):
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Softmax", "soft", (), [X])
    put(golden, 0, "Sub", "soft_1", (), [X + 1])
    put(golden, 1, "Exp", "soft_2", (), [X])
    opened = rules(tmp_path / "on.json", op("soft", "Softmax", ["soft"], [("soft", 0, "")]))
    closed = rules(
        tmp_path / "off.json",
        op("soft_1", "Sub", ["soft"], [None]),
        op("soft_2", "Exp", ["soft"], [("soft", 0, "")], ["soft_1:0"]),
    )
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert said(done, "VerdictCode") == [
        ("soft", "soft:output:0", "soft_2", "same", "bit_equal"),
        ("NaN", "soft_1:output:0", "soft_1", "cannot_tell", "fused"),
    ]
    assert done.exit_code == 0


def test_a_split_op_runs_as_its_pieces_do(tmp_path):
    puts = [(k, "Sub", "s_1", (), [X + k]) for k in range(2)]
    rule = (
        op("s_1", "Sub", ["s"], [None]),
        op("s_2", "Exp", ["s"], [("s", 0, "")], ["s_1:0"]),
    )
    done = same(tmp_path, *puts, (5, "Exp", "s_2", [X + 1], [X]), rule=rule)
    assert verdicts(done) == ["same"] * 4 and done.exit_code == 0, done.output


def test_what_makes_another_kind_of_number_is_taken_last(tmp_path):
    """Although it is called like mine."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Conv2D", "conv", (), [X])
    put(golden, 0, "Conv2D", "conv", (), [X.astype("i4")])
    put(golden, 1, "Dequant", "d", (), [X])
    opened = op("conv", "Conv2D", ["conv", "d"], [("conv", 0, "")], (), ["DT_FLOAT"])
    closed = (
        op("conv", "Conv2D", ["conv"], [("conv", 0, "")], (), ["DT_INT32"]),
        op("d", "Dequant", ["d"], [("conv", 0, "")], ["conv:0"], ["DT_FLOAT"]),
    )
    files = rules(tmp_path / "on.json", opened), rules(tmp_path / "off.json", *closed)
    done = run(mine, golden, tmp_path / "out", "-f", files[0], "-cf", files[1])
    assert said(done)[0][2:] == ("d", "same") and done.exit_code == 0, done.output


def test_a_subfolder_that_one_side_has_alone_is_no_obstacle(tmp_path):
    put(tmp_path / "m", 0, "Cast", "c", (), [X])
    put(tmp_path / "m" / "0", 1, "Relu", "a", (), [X])
    for at, (kind, name) in enumerate([("Relu", "a"), ("Cast", "c")]):
        put(tmp_path / "g", at, kind, name, (), [X])
    own = op("c", "Cast", ["c"], [("c", 0, "")])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *one_rule(tmp_path, A, own))
    assert verdicts(done) == ["same"] * 2 and done.exit_code == 0, done.output


@pytest.mark.parametrize("ruled", [True, False])
def test_device_ids_in_names_stay_apart(tmp_path, ruled):
    for side, order in (("m", (0, 1)), ("g", (1, 0))):
        for at, device in enumerate(order):
            path = put(tmp_path / side, at, "Relu", "a", (), [X + device])
            path.rename(f"{path}.{device}")
    options = one_rule(tmp_path, A) if ruled else ()
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *options)
    assert verdicts(done) == ["same"] * 2 and done.exit_code == 0


def test_devices_of_npy_files_stay_apart(tmp_path):
    """-q alone."""
    for side, devices in (("m", "01"), ("g", "1")):
        for device in devices:
            (tmp_path / side).mkdir(exist_ok=True)
            save(tmp_path / side / device, "a.0.npy", X + int(device))
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-q", rules(tmp_path / "q", A))
    found = {row["NPUDumpPath"]: row["Verdict"] for row in rows(done)}
    assert found == {"0/a.0.npy": "not_comparable", "1/a.0.npy": "same"}


def test_files_of_an_input_that_nobody_knows_the_run_of_are_excused(tmp_path):
    mine, npy = tmp_path / "m", tmp_path / "npy"
    put(mine, 0, "Relu", "a", [X], [X])
    save(npy, "a.0.npy", X)
    for k in range(2):
        save(npy, f"data.0.167338372809344{k}.npy", X)
    data = op("data", "Data", ["data"], [("data", 0, "")])
    done = run(mine, npy, tmp_path / "out", "-f", rules(tmp_path / "r.json", data, A))
    assert [row["VerdictCode"] for row in rows(done)] == ["unnamed", "bit_equal", *["unnamed"] * 2]
    assert done.exit_code == 0


NAMED = op("c", "Cast", [], [("a", 0, "ND")], ["a:0"])


@pytest.mark.parametrize("golden", ["cann", "npy", "npy -q"])
@pytest.mark.parametrize("cast", [CAST, NAMED])
def test_a_cast_that_is_named_too_hands_on(tmp_path, golden, cast):
    """What rules call it, or -q makes of them, is what it was given: its runs are that one's."""
    puts = [(k, "Relu", "a", (), [X + k]) for k in range(2)]
    puts += [(5, "Cast", "c", [X + 1], [X + 1]), (9, "Add", "b", [X + 1], [X])]
    mine, other, out = both(tmp_path, *puts)
    options = one_rule(tmp_path, A, cast, AFTER)
    if golden != "cann":
        other, options = tmp_path / "npy", options[:2]
        for k in range(2):
            save(other, f"a.0.167338372809344{k}.npy", X + k)
        save(other, "b.0.npy", X)
    if golden.endswith("-q"):
        unrelated = rules(tmp_path / "q.json", op("z", "Relu", ["z"], [("z", 0, "")]))
        options = (*options, "-q", unrelated)
    done = run(mine, other, out, *options)
    assert set(verdicts(done)) == {"same"} and done.exit_code == 0, done.output


def test_a_named_cast_of_golden_does_not_stand_for_its_maker(tmp_path):
    """golden's maker is bare in its rules, and is called otherwise than mine."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    for k in range(2):
        put(mine, k, "Relu", "a_r", (), [X + k])
        put(golden, k, "Relu", "a", (), [X + k])
    put(golden, 5, "Cast", "c", [X + 1], [X + 1])
    opened = rules(tmp_path / "on.json", op("a_r", "Relu", ["a"], [("a", 0, "")]))
    closed = rules(tmp_path / "off.json", op("a", "Relu"), NAMED)
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert [each[2:] for each in said(done)][:2] == [("a", "same")] * 2
    assert done.exit_code == 0, done.output


def test_surplus_casts_hand_on_what_was_compared(tmp_path):
    mine, golden = tmp_path / "m", tmp_path / "g"
    for side in (mine, golden):
        put(side, 0, "Relu", "a", (), [X])
    for k in range(2):
        put(golden, 1 + k, "Cast", "c", [X], [X])
    opened, closed = rules(tmp_path / "on.json", A), rules(tmp_path / "off.json", A, NAMED)
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert {row["VerdictCode"] for row in rows(done)} == {"bit_equal", "repeated"}
    assert done.exit_code == 0


def test_a_maker_of_the_same_device_goes_before_others(tmp_path):
    """It ran in the first step only, and the other device's later."""
    for side in "mg":
        for device in range(2):
            folder = tmp_path / side / str(device)
            put(folder / "0", device, "Relu", "a", (), [X + device])
            put(folder / "1", 2 + device, "Add", "b", [X + device], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *one_rule(tmp_path, A, B))
    assert verdicts(done) == ["same"] * 6 and done.exit_code == 0, done.output


def test_a_cast_of_other_runs_does_not_stand_for_its_maker(tmp_path):
    """golden has no file of a, only of what its last run became."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    for k in range(3):
        put(mine, k, "Relu", "a", (), [X + k])
    put(golden, 5, "Cast", "c", [X + 2], [X + 2])
    opened, closed = rules(tmp_path / "on.json", A), rules(tmp_path / "off.json", A, CAST)
    done = run(mine, golden, tmp_path / "out", "-f", opened, "-cf", closed)
    assert [each[2:] for each in said(done)][:3] == [("NaN", "not_comparable")] * 3


@pytest.mark.parametrize("golden", ["cann", "npy"])
def test_a_subfolder_says_which_run_of_data_it_is(tmp_path, golden):
    """Once a device, and its taker runs twice."""
    data = op("data", "Data", ["data"], [("data", 0, "")])
    for device in range(2):
        for side in "mg":
            for k in range(2):
                value = X + device + (1000 if side == "m" and device else 0)
                put(tmp_path / side / str(device), 4 * device + k, "Relu", "a", [value], [X])
        put(tmp_path / "g" / str(device), 9, "Data", "data", (), [X + device])
        (tmp_path / "npy").mkdir(exist_ok=True)
        save(tmp_path / "npy" / str(device), "data.0.npy", X + device)
    options = one_rule(tmp_path, data, A)
    other, options = ("g", options) if golden == "cann" else ("npy", options[:2])
    done = run(tmp_path / "m", tmp_path / other, tmp_path / "out", *options)
    found = [row["Verdict"] for row in rows(done) if row["TensorIndex"] == "a:input:0"]
    assert found == ["same", "same", "differs", "differs"] and done.exit_code == 1


def test_inserted_operators_of_one_name_that_are_given_the_same_are_compared(tmp_path):
    """Others are not: a compiler's numbers in names mean nothing."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    for side, value in ((mine, X), (golden, X + 1)):
        put(side, 0, "Relu", "a", (), [X])
        put(side, 1, "AscendQuant", "q", [X], [value])
    q = op("q", "AscendQuant", [], [None], ["a:0"], ["DT_INT8"])
    other = op("q", "AscendQuant", [], [None], ["z:0"], ["DT_INT8"])
    for second, verdict in ((q, "differs"), (other, "cannot_tell")):
        z = op("z", "Relu", ["z"], [("z", 0, "")])
        files = rules(tmp_path / "on.json", A, q), rules(tmp_path / "off.json", A, z, second)
        done = run(mine, golden, tmp_path / "out", "-f", files[0], "-cf", files[1])
        found = {row["TensorIndex"]: row["Verdict"] for row in rows(done)}
        assert found["q:output:0"] == verdict, done.output


def test_what_is_taken_twice_is_compared_twice(tmp_path):
    """Each input with that input."""
    data = op("data", "Data", ["data"], [("data", 0, "")])
    twice = op("d", "Add", ["d"], [("d", 0, "")], ["data:0", "data:0"])
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Add", "d", [X, X], [X])
    put(golden, 0, "Add", "d", [X + 1, X], [X])
    done = run(mine, golden, tmp_path / "out", *one_rule(tmp_path, data, twice))
    assert verdicts(done) == ["differs", "same", "same"]


def test_many_takers_of_one_value_take_no_time(tmp_path):
    from compare.folders.runs import Partners, Runs, Where

    many = 20_000
    where = Where(None, "", None)
    mine = Runs([("a", where, n) for n in range(many)])
    partners = Partners(mine, Runs([("d", where, n) for n in range(many)]))
    assert all(partners.likely("a", n, "d") == (n, many) for n in range(many))


def test_a_device_id_says_which_run_of_what_left_no_file_it_is(tmp_path):
    """mine has no file of a; its consumers came in another order than golden's."""
    for side, order in (("m", (0, 1)), ("g", (1, 0))):
        for at, device in enumerate(order):
            if side == "g":
                path = put(tmp_path / side, at, "Relu", "a", (), [X + device])
                path.rename(f"{path}.{device}")
            path = put(tmp_path / side, 5 + at, "Add", "b", [X + device], [X])
            path.rename(f"{path}.{device}")
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", *one_rule(tmp_path, A, B))
    assert {row["TensorIndex"]: row["Verdict"] for row in rows(done) if row["NPUDump"] == "b"} == {
        "b:input:0": "same", "b:output:0": "same"
    }  # fmt: skip
    assert "differs" not in verdicts(done)
