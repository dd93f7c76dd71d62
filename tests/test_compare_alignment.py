"""Alignment: changes planted in real dumps, and who got whom."""

from collections import Counter
from dataclasses import replace

import edits
import families
import models
import pytest
import torch

import dumper  # noqa: F401 - brings torch.utils.dumper
from compare.alignment import align
from dumper.index import Entry
from dumper.layout import VALUES, record_path
from dumper.reader import Record, open_dump

MAKERS = {
    "gan": lambda: families.make("gan", "cpu"),
    "gpt": lambda: models.make("gpt", "cpu"),
    "lstm": lambda: models.make("lstm", "cpu"),
    "resnet": lambda: models.make("resnet", "cpu"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Records of a training step of each family; their files are not needed again."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for name, make in MAKERS.items():
        step = make()
        with torch.utils.dumper(use_dump=True, dump_path=str(folder / f"{name}.h5")):
            step()
        with open_dump(folder / f"{name}.h5") as dump:
            found[name] = dump.records
    return found


def kinds(matches):
    return Counter(match.kind for match in matches)


def check_whole(matches, mine, golden):
    """Each record is in one match, mine in their order, golden's extras behind what is before."""
    assert [r.path for m in sorted(matches, key=first) for r in m.mine[:1]] == [
        m.mine[0].path for m in matches if m.mine
    ]
    for side, records in (("mine", mine), ("golden", golden)):
        counts = Counter(r.path for match in matches for r in getattr(match, side))
        assert counts == Counter(record.path for record in records)
    assert all(match.why for match in matches)
    assert {match.confidence for match in matches} <= {"high", "low"}


def first(match):
    return match.mine[0].seqid if match.mine else 0


def test_survivors_get_their_true_partner(runs):
    survivors = failed = 0
    for golden in runs.values():
        for seed in range(8):
            run = edits.edited(golden, seed, 6, tuple(edits.EDITS))
            mine = run.finish()
            matches = align(mine, golden)
            check_whole(matches, mine, golden)
            found = edits.judged(run, golden, matches)
            assert [wrong for wrong in found.wrong if wrong[2] == "high"] == []
            survivors += found.survivors
            failed += len(found.wrong) + len(found.lost)
    assert survivors > 10_000
    assert failed <= survivors / 1000


@pytest.mark.parametrize("kind", edits.EDITS)
def test_one_change_costs_itself_and_nothing_else(runs, kind):
    for family in ("resnet", "gpt", "lstm"):
        golden = runs[family]
        for seed in range(3):
            run = edits.edited(golden, seed, 1, (kind,))
            mine = run.finish()
            matches = align(mine, golden)
            found = edits.judged(run, golden, matches)
            assert (found.wrong, found.lost) == ([], [])
            planted = sum(line.planted for line in run.lines)
            gone = len(golden) - (len(mine) - planted)
            extra = kinds(matches)["extra"]
            if kind == "fuse":
                assert extra == 0
                assert kinds(matches)["group"] == len(run.fused)
            else:
                assert extra == planted + gone


def test_a_fused_op_faces_what_it_is_made_of(runs):
    golden = runs["gpt"]
    run = edits.edited(golden, 5, 3, ("fuse",))
    matches = align(run.finish(), golden)
    groups = {match.golden[0].path: match for match in matches if match.kind == "group"}
    assert len(run.fused) == 3
    for product, total, record in run.fused:
        match = groups[record.path]
        assert [r.path for r in match.mine] == [product.record.path, total.record.path]
        assert "table" in match.why[0]


@pytest.mark.parametrize("family", MAKERS)
def test_two_runs_that_do_the_same(runs, family):
    """Numbers of values, threads and lines may differ."""
    golden = runs[family]
    mine = [
        replace(
            r,
            entry=replace(
                r.entry,
                thread=1,
                source="other.py:1",
                values={key: value + 5 for key, value in r.entry.values.items()},
            ),
        )
        for r in golden
    ]
    matches = align(mine, golden)
    assert [(m.mine[0], m.golden[0]) for m in matches] == list(zip(mine, golden, strict=True))
    assert {(m.kind, m.confidence) for m in matches} == {("op", "high")}


def test_values_that_come_from_elsewhere_are_not_the_same(runs):
    """The fast pass over equal runs sees a call that takes another value."""
    golden = runs["gpt"]
    at = next(i for i, r in enumerate(golden) if r.ir == "add_Tensor" and r.phase == "forward")
    entry = golden[at].entry
    values = {**entry.values, "input/other": entry.values["input/self"]}
    mine = [*golden]
    mine[at] = replace(golden[at], entry=replace(entry, values=values))
    matches = align(mine, golden)
    assert kinds(matches) == {"op": len(golden)}
    facts = next(m.why for m in matches if m.mine[0] is mine[at])
    assert any("something else" in fact for fact in facts)


def test_nothing_on_a_side(runs):
    golden = runs["lstm"]
    assert align([], []) == []
    for matches in (align(golden, []), align([], golden)):
        assert kinds(matches) == {"extra": len(golden)}


@pytest.mark.parametrize("wrapper", ["module", "_orig_mod", "_fsdp_wrapped_module"])
def test_wrappers_do_not_change_a_module(runs, wrapper):
    golden = runs["gpt"]
    mine = [wrapped(record, wrapper) for record in golden[1:]]
    matches = align(mine, golden)
    assert kinds(matches) == {"op": len(mine), "extra": 1}
    assert all(m.mine[0].seqid == m.golden[0].seqid for m in matches if m.mine)


def wrapped(record, wrapper):
    entry = record.entry
    if entry.module is None:
        return record
    module = f"{wrapper}.{entry.module}".rstrip(".")
    return replace(record, entry=replace(entry, module=module))


def test_other_modules_leave_order_and_values(runs):
    """A model that is held elsewhere: no module and no parameter has the name it has in golden."""
    golden = runs["resnet"]
    mine = []
    for record in golden[1:]:
        entry = record.entry
        names = {key: f"backbone.{name}" for key, name in entry.names.items()}
        module = None if entry.module is None else f"backbone.{entry.module}"
        mine.append(replace(record, entry=replace(entry, names=names, module=module)))
    matches = align(mine, golden)
    calls = [m for m in matches if m.mine and m.mine[0].phase not in VALUES]
    assert all(m.mine[0].seqid == m.golden[0].seqid for m in calls if m.kind == "op")
    assert Counter(m.kind for m in calls) == {"op": len(calls)}


def op(seqid, ir, takes=(), gives=(), **entry):
    """A record without tensors; takes, gives: numbers of values."""
    values = {f"input/a{i}": value for i, value in enumerate(takes)}
    values |= {f"output/r{i}": value for i, value in enumerate(gives)}
    entry = {"phase": "forward", "step": 0} | entry
    path = record_path(ir, seqid)
    return Record(ir, seqid, path, (), (), {}, True, Entry(values=values, **entry))


def test_a_step_that_is_missing_is_not_the_next_one():
    golden = [op(i + 1, ir, step=i // 3) for i, ir in enumerate(("mm", "add", "relu") * 3)]
    mine = [r for r in golden if r.entry.step != 1]
    matches = align(mine, golden)
    assert [m.golden[0].seqid for m in matches if m.kind == "extra"] == [4, 5, 6]
    assert all(m.mine == m.golden for m in matches if m.kind == "op")


def test_of_equal_calls_in_a_row_nobody_knows_which_is_missing():
    golden = [op(1, "mm"), *(op(i, "relu") for i in range(2, 6)), op(6, "exp")]
    matches = align(golden[:2] + golden[3:], golden)
    told = {(m.kind, m.mine[0].ir): m.confidence for m in matches if m.mine}
    assert told == {("op", "mm"): "high", ("op", "relu"): "low", ("op", "exp"): "high"}


def test_values_tell_equal_calls_apart():
    """The same, but each takes another value: now it is known."""
    golden = [op(i + 1, f"make{i}", (), (i,)) for i in range(4)]
    golden += [op(5 + i, "relu", (i,), (10 + i,)) for i in range(4)]
    matches = align(golden[:5] + golden[6:], golden)
    assert all(m.mine == m.golden and m.confidence == "high" for m in matches if m.mine)
    assert [m.golden[0].seqid for m in matches if not m.mine] == [6]


@pytest.mark.parametrize(
    "key", ["", "i", "output", "input/self/self_", f"input/self/self_{'9' * 5000}", "input/x/x_²"]
)
def test_keys_that_no_dump_has(key):
    """An index may be anyone's."""
    entry = Entry(phase="optimizer", step=2**70, values={key: -1}, names={key: "w"})
    record = Record("_foreach_add__Scalar", 1, "/_foreach_add__Scalar/1", (), (), {}, True, entry)
    other = op(1, "add_", (3,), (4,), phase="optimizer")
    assert kinds(align([record], [other])) == {"extra": 2}
    assert kinds(align([record, other], [record])) == {"op": 1, "extra": 1}
