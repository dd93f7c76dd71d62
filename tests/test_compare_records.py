"""Records as the index describes them: views, stubs, parameters, sparse parts, results."""

import json

import h5py
import numpy as np
import pytest
from dumps import put

from compare.engine import compare_dumps
from compare.judging.verdict import Kind
from compare.row import Status
from compare.summary import Summary
from dumper.reader import open_dump

PARTS, GENERATOR, LINES, SCALAR = 108, 107, 110, 7


def text(file, name, lines):
    """One of the texts that only this package reads."""
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    put(file, f"_torch_dumper/0/{name}", np.frombuffer(body, "u1"), kind=LINES)


def dumped(path, tensors, index=(), others=(), finished=1):
    """A file of ours. index: lines; others: (path, value, Type) of what is no tensor."""
    with h5py.File(path, "w") as file:
        for name, values in tensors.items():
            attributes = {"Uninitialised": np.int32(1)} if name.startswith("!") else {}
            put(file, name.lstrip("!"), values, **attributes)
        for name, value, kind in others:
            put(file, name, value, kind=kind)
        if index:
            text(file, "index", index)
        file.attrs["Finished"] = np.int32(finished)
    return path


def line(ir, seqid, **more):
    return {"ir": ir, "seqid": seqid, "phase": "forward", "step": 0, **more}


def stub(reason, shape=(2,), dtype="float32"):
    return [dtype, list(shape), [1], reason]


def rows(mine, golden):
    with open_dump(mine) as left, open_dump(golden) as right:
        return list(compare_dumps(left, right))


def status(found):
    return {row.my_path or row.golden_path: row.status for row in found}


ONE, TWO = np.ones(2, "f4"), np.full(2, 2, "f4")


@pytest.mark.parametrize("swapped", [False, True])
def test_a_view_on_one_side_is_no_row(tmp_path, swapped):
    """Nor is a view that only one side has at all."""
    view = {"input/self": stub("view"), "output/result": stub("view")}
    whole = {"t/1/input/self": ONE, "t/1/output/result": ONE, "a/2/output/x": ONE}
    described = dumped(
        tmp_path / "m.h5",
        {"a/2/output/x": ONE},
        [line("t", 1, stubs=view), line("a", 2), line("only", 3, stubs=view)],
    )
    stored = dumped(tmp_path / "g.h5", whole, [line("t", 1), line("a", 2)])
    files = (stored, described) if swapped else (described, stored)
    assert status(rows(*files)) == {"/a/2/output/x": Status.EQUAL}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("reason", ["max_bytes", "opaque: Secret"])
def test_what_one_side_left_out_is_one_row(tmp_path, reason, swapped):
    stubs = {"output/result": stub(reason)}
    files = [
        dumped(tmp_path / "m.h5", {"a/1/input/x": ONE}, [line("a", 1, stubs=stubs)]),
        dumped(tmp_path / "g.h5", {"a/1/input/x": ONE, "a/1/output/result": ONE}, [line("a", 1)]),
    ]
    found = rows(*(reversed(files) if swapped else files))
    assert status(found) == {
        "/a/1/input/x": Status.EQUAL,
        "/a/1/output/result": Status.INCOMPARABLE,
    }
    (row,) = [row for row in found if row.status is Status.INCOMPARABLE]
    side = "golden" if swapped else "my dump"
    assert row.reasons == (f"left out of {side}: {reason}",)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_a_level_does_not_keep_is_no_row(tmp_path, swapped):
    """Inside of a call, at level "call": it has a number, and no values here."""
    there = line("a", 1, values={"input/x": 1, "output/y": 2})
    files = [
        dumped(tmp_path / "m.h5", {"a/1/input/x": ONE}, [there]),
        dumped(tmp_path / "g.h5", {"a/1/input/x": ONE, "a/1/output/y": ONE}, [there]),
    ]
    found = rows(*(reversed(files) if swapped else files))
    assert status(found) == {"/a/1/input/x": Status.EQUAL}


def test_arguments_are_missed_only_where_a_record_has_some(tmp_path):
    """Of a record that is only described they are not in the file either."""
    stubs = {"input/x": stub("max_bytes"), "output/y": stub("max_bytes")}
    index = [line("a", 1, stubs=stubs), line("b", 2)]
    mine = dumped(tmp_path / "m.h5", {"b/2/input/x": ONE}, index)
    golden = dumped(
        tmp_path / "g.h5",
        {"a/1/input/x": ONE, "a/1/output/y": ONE, "b/2/input/x": ONE},
        [line("a", 1), line("b", 2)],
        [("a/1/input/p", np.float64(0.5), SCALAR)],
    )
    found = rows(mine, golden)
    assert [row.status for row in found] == [Status.INCOMPARABLE] * 2 + [Status.EQUAL]


@pytest.mark.parametrize(
    ("mine", "golden", "expected", "words"),
    [
        (stub("meta"), stub("meta"), Status.DESCRIBED, "no data on either side (meta)"),
        (stub("fake"), stub("meta"), Status.DESCRIBED, "shape and dtype are equal"),
        (stub("meta"), stub("meta", (3,)), Status.INCOMPARABLE, "shapes differ: [2] in my dump"),
        (stub("meta"), stub("meta", (2,), "int64"), Status.INCOMPARABLE, "dtypes differ"),
        (stub("meta"), None, Status.INCOMPARABLE, "no data in my dump: meta"),
        (None, stub("meta"), Status.INCOMPARABLE, "no data in golden: meta"),
    ],
)
def test_tensors_without_data(tmp_path, mine, golden, expected, words):
    files = []
    for name, one in (("m.h5", mine), ("g.h5", golden)):
        stubs = {} if one is None else {"output/result": one}
        tensors = {"a/1/output/result": ONE} if one is None else {}
        files.append(dumped(tmp_path / name, tensors, [line("a", 1, stubs=stubs)]))
    (row,) = rows(*files)
    assert row.status is expected and words in row.reasons[0] and row.metrics is None


def values(path, found):
    """Records of gradients and parameters: (IR, name, step, value) in the order of the file."""
    tensors, index = {}, []
    for seqid, (ir, name, step, value) in enumerate(found, 1):
        tensors[f"{ir}/{seqid}/output/{name}"] = value
        index.append(line(ir, seqid, phase=ir, step=step, names={name: f"net.{name}"}))
    return dumped(path, tensors, index)


def test_gradients_and_parameters_pair_by_name_and_step(tmp_path):
    mine = [
        ("grad", "w", 0, ONE),
        ("grad", "b", 0, TWO),
        ("grad", "w", 1, TWO),
        ("update", "w", 0, ONE),
    ]
    golden = [*reversed(mine), ("grad", "extra", 0, ONE)]
    found = rows(values(tmp_path / "m.h5", mine), values(tmp_path / "g.h5", golden))
    assert [row.status for row in found] == [Status.EQUAL] * 4 + [Status.UNPAIRED]
    assert found[0].golden_path == "/grad/4/output/w" and found[4].golden_path == "/grad/5"


def test_a_gradient_that_differs_is_no_op_of_its_own_doing(tmp_path):
    files = [values(tmp_path / n, [("grad", "w", 0, v)]) for n, v in (("m.h5", ONE), ("g.h5", TWO))]
    summary = Summary()
    for row in rows(*files):
        summary.add(row)
    assert summary.first is None and summary.odd.op == "grad" and summary.unexplained == 1
    assert summary.odd.verdict.code == "value_of_no_op" and not summary.nothing_wrong


def test_a_gradient_that_an_op_made_inherits_its_difference(tmp_path):
    files = []
    for name, value in (("m.h5", ONE), ("g.h5", TWO)):
        made, kept = {"output/result": 7}, {"output/w": 7}
        tensors = {
            "mul/1/input/self": ONE, "mul/1/output/result": value, "grad/2/output/w": value,
        }  # fmt: skip
        index = [
            line("mul", 1, values=made),
            line("grad", 2, phase="grad", values=kept, names={"w": "net.w"}),
        ]
        files.append(dumped(tmp_path / name, tensors, index))
    _, made, kept = rows(*files)
    assert made.verdict.kind is Kind.DIFFERS
    assert (kept.verdict.kind, kept.verdict.code) == (Kind.INHERITED, "made_by_an_op")


@pytest.mark.parametrize("marked", ["m.h5", "g.h5"])
def test_what_says_that_it_is_unwritten_is_not_compared(tmp_path, marked):
    """Whatever its IR: a view of `empty`, say. In such a file the IR says nothing more."""
    for name, value in (("m.h5", ONE), ("g.h5", TWO)):
        mark = "!" if name == marked else ""
        dumped(
            tmp_path / name,
            {f"{mark}copy/1/input/x": value, "copy/1/output/y": value, "empty/2/output/x": value},
        )
    found = status(rows(tmp_path / "m.h5", tmp_path / "g.h5"))
    assert found["/copy/1/input/x"] is Status.UNINITIALISED
    assert found["/copy/1/output/y"] is Status.DIFFERS


def coo(path, indices, numbers, coalesced, shape=(4,)):
    facts = {"kind": "sparse_coo", "dtype": "float32", "shape": list(shape), "coalesced": coalesced}
    kind = np.frombuffer(json.dumps(facts).encode(), "u1")
    tensors = {
        "a/1/output/r/indices": np.asarray([indices], "i8"),
        "a/1/output/r/values": np.asarray(numbers, "f4"),
    }
    return dumped(path, tensors, others=[("a/1/output/r/kind", kind, PARTS)])


@pytest.mark.parametrize(
    ("mine", "golden", "expected"),
    [
        (([2, 0, 2], [1, 5, 2], False), ([0, 2], [5, 3], True), Status.EQUAL),
        (([0, 2], [5, 3], True), ([2, 2, 0], [2, 1, 5], False), Status.EQUAL),
        (([2, 0, 2], [1, 5, 2], False), ([0, 2, 2], [5, 1, 2], False), Status.EQUAL),
        (([0, 2], [5, 3], True), ([0, 2], [5, 4], True), Status.DIFFERS),
        (([0, 0], [5, 3], False), ([0, 2], [5, 3], True), Status.INCOMPARABLE),
        (([0, 1], [5, 3], True), ([0], [5], True), Status.INCOMPARABLE),
        (([], [], False), ([], [], True), Status.EQUAL),
    ],
)
def test_sparse_tensors_are_compared_after_coalesce(tmp_path, mine, golden, expected):
    found = rows(coo(tmp_path / "m.h5", *mine), coo(tmp_path / "g.h5", *golden))
    indices, numbers = sorted(found, key=lambda row: row.my_path)
    assert numbers.status is expected
    if expected is Status.INCOMPARABLE:
        assert indices.status is expected
        assert all(row.reasons[0].startswith("structures differ: ") for row in found)
    else:
        assert indices.status is Status.EQUAL


def test_half_values_are_added_up_in_single_precision(tmp_path):
    """In half precision 2048 + 1 + 1 would be 2048."""
    for name, indices, numbers in (("m.h5", [0, 0, 0], [2048, 1, 1]), ("g.h5", [0], [2050])):
        path = coo(tmp_path / name, indices, numbers, len(indices) == 1)
        with h5py.File(path, "r+") as file:
            half = file["a/1/output/r/values"][()].astype("f2")
            del file["a/1/output/r/values"]
            put(file, "a/1/output/r/values", half)
    assert [row.status for row in rows(tmp_path / "m.h5", tmp_path / "g.h5")] == [Status.EQUAL] * 2


def test_another_shape_of_a_sparse_tensor_is_said(tmp_path):
    files = [coo(tmp_path / n, [0], [1], True, s) for n, s in (("m.h5", (4,)), ("g.h5", (5,)))]
    (row,) = [row for row in rows(*files) if row.metrics is None]
    assert row.status is Status.INCOMPARABLE and row.my_path == "/a/1/output/r/kind"
    assert row.reasons == ("structures differ: shape [4] in my dump, [5] in golden",)


def test_parts_that_make_no_tensor_cost_their_rows(tmp_path):
    mine = coo(tmp_path / "m.h5", [0, 1], [1], False)
    found = rows(mine, coo(tmp_path / "g.h5", [0, 1], [1], True))
    assert {row.status for row in found} == {Status.INCOMPARABLE}
    assert any("make no sparse tensor" in row.reasons[0] for row in found)


def test_the_state_of_a_generator_is_not_compared(tmp_path):
    files = [
        dumped(
            tmp_path / name, {"a/1/output/x": ONE},
            others=[("a/1/input/_rng_state", np.frombuffer(state, "u1"), GENERATOR)],
        )
        for name, state in (("m.h5", b"1234"), ("g.h5", b"4321"))
    ]  # fmt: skip
    assert status(rows(*files)) == {"/a/1/output/x": Status.EQUAL}


@pytest.mark.parametrize(("golden", "count"), [(0.5, 0), (0.75, 1)])
def test_a_number_that_an_op_returned_is_compared(tmp_path, golden, count):
    files = [
        dumped(tmp_path / n, {"item/1/input/self": ONE}, others=[("item/1/output/r", v, SCALAR)])
        for n, v in (("m.h5", np.float64(0.5)), ("g.h5", np.float64(golden)))
    ]
    found = [row for row in rows(*files) if row.side == "output"]
    assert len(found) == count
    for row in found:
        assert row.status is Status.DIFFERS and row.metrics.max_absolute == 0.25
