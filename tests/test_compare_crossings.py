"""Calls that two sides compute by different ops: compared at their boundary, forward and backward.

Attention as 26 ops against 2, an LSTM as 158 against 31: the everyday case between devices.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import models
import pytest
from answers import Answer, answer, record
from torch.nn.attention import SDPBackend, sdpa_kernel

import npu_core
from compare.judging import Kind
from compare.row import MEASURED
from dumper import open_dump
from dumper.reader import Record

ATTENTION = "torch.nn.functional.scaled_dot_product_attention.0"
LSTM = "torch.lstm.0"
FINE = {Kind.SAME, Kind.ROUNDING, Kind.INHERITED}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Steps of a small GPT and an LSTM, each in two ways of computing."""
    folder = tmp_path_factory.mktemp("crossings")
    found = {}
    for name in ("gpt", "lstm"):
        found[f"{name} cpu"] = record(models.make(name, "cpu"), folder / f"{name}-cpu.h5")
        with npu_core.use("exact"):
            found[f"{name} npu"] = record(models.make(name, "npu"), folder / f"{name}-npu.h5")
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            path = folder / f"gpt-{backend.name}.h5"
            found[f"gpt {backend.name}"] = record(models.make("gpt", "cpu"), path)
    return found


PAIRS = {
    ("gpt MATH", "gpt FLASH_ATTENTION"): (ATTENTION, 26, 2),
    ("gpt FLASH_ATTENTION", "gpt MATH"): (ATTENTION, 2, 26),
    ("gpt npu", "gpt cpu"): (ATTENTION, 26, 2),
    ("gpt cpu", "gpt npu"): (ATTENTION, 2, 26),
    ("lstm npu", "lstm cpu"): (LSTM, 158, 31),
    ("lstm cpu", "lstm npu"): (LSTM, 31, 158),
}


@pytest.fixture(scope="module", params=PAIRS, ids=" against ".join)
def pair(request, files) -> tuple[tuple, Answer]:
    mine, golden = request.param
    return PAIRS[request.param], answer(files[mine], files[golden])


def calls_of(found: Answer) -> dict[tuple[str, str], list[Record]]:
    """The API calls of my step, by name and phase, with their records."""
    calls = defaultdict(list)
    for each in found.records.values():
        if each.entry.api is not None:
            calls[each.entry.api, each.phase].append(each)
    return calls


def test_every_api_call_has_its_partner(pair):
    """It is paired op by op, or as one; of what only one side copies, nothing was computed."""
    _, found = pair
    calls = calls_of(found)
    assert len(calls) > 200
    for records in calls.values():
        matches = [found.match(each.path) for each in records]
        assert any(match.golden for match in matches)
    assert set(found.summary.unpaired) <= {"no_copy"}


def test_every_api_call_is_compared(pair):
    """What a call makes has rows, unless it only looks at what was there."""
    _, found = pair
    rows = {row.record_path for row in found.rows if row.side == "output"}
    rows -= {row.record_path for row in found.rows if row.status not in MEASURED}
    for records in calls_of(found).values():
        makes = any(tensor for each in records for tensor in each.outputs)
        copies = any(found.match(each.path).kind == "extra" for each in records)
        assert copies or not makes or rows & {each.path for each in records}, records


def test_the_call_is_compared_as_one(pair):
    """Its ops have no rows of their own; what enters and leaves it has, in both phases."""
    (api, mine, golden), found = pair
    calls = calls_of(found)
    for phase in ("forward", "backward"):
        match = found.match(calls[api, phase][0].path)
        assert match.kind == "call" and match.confidence == "high"
        paths = {each.path for each in match.mine}
        assert paths == {each.path for each in calls[api, phase]}
        rows = [row for row in found.rows if row.record_path in paths]
        assert {row.match for row in rows} == {"call"}
        sides = {side: [r for r in rows if r.side == side] for side in ("input", "output")}
        if phase == "forward":
            assert (len(match.mine), len(match.golden)) == (mine, golden)
            assert len(sides["output"]) == 1
        elif api == ATTENTION:
            assert len(sides["output"]) == 3  # gradients of query, key and value
        else:
            assert len(sides["output"]) == 16  # of the weights: 2 layers, 2 ways, 4 each
        assert sides["input"]


def test_nothing_is_wrong(pair):
    """Verdicts are rounding, and what is inherited of that."""
    _, found = pair
    assert not found.wrong()
    assert found.summary.nothing_wrong and found.summary.start.equal
    kinds = {row.verdict.kind for row in found.rows if row.match == "call" and row.side == "output"}
    assert kinds <= FINE and Kind.ROUNDING in kinds


# By API call: ops of npu inside it, and which call of each.
INSIDE = {
    "gpt": [
        ("bmm.default", 1, "forward"), ("bmm.default", 2, "forward"),
        ("_safe_softmax.default", 1, "forward"), ("mul.Scalar", 1, "forward"),
        ("bmm.default", 3, "backward"), ("bmm.default", 6, "backward"),
        ("_softmax_backward_data.default", 1, "backward"), ("mul.Scalar", 3, "backward"),
    ],
    "lstm": [
        ("_thnn_fused_lstm_cell.default", 1, "forward"),
        ("_thnn_fused_lstm_cell.default", 20, "forward"),
        ("_thnn_fused_lstm_cell_backward_impl.default", 1, "backward"),
        ("_thnn_fused_lstm_cell_backward_impl.default", 20, "backward"),
    ],
}  # fmt: skip


KINDS = ("sign_flip", "one_element_off", "nan_in_one_element", "saturate", "wrong_dtype_cast")
PLANTED = [(name, *where) for name, places in INSIDE.items() for where in places]


@pytest.mark.parametrize(
    ("name", "op", "nth", "phase", "kind"),
    [(*where, KINDS[i % 5]) for i, where in enumerate(PLANTED)]
    + [(*where, KINDS[(i + 2) % 5]) for i, where in enumerate(PLANTED)],
)
def test_a_wrong_op_inside_is_seen(files, name, op, nth, phase, kind, tmp_path, exact):
    """The call is the first that differs, in the phase that the op is of."""
    with npu_core.fault(op, kind, nth=nth) as fault:
        mine = record(models.make(name, "npu"), tmp_path / "mine.h5")
    assert fault.applied == [nth]
    found = answer(mine, files[f"{name} cpu"])
    first = found.summary.first
    record_ = found.records[first.record_path]
    assert (record_.entry.api, record_.phase) == ({"gpt": ATTENTION, "lstm": LSTM}[name], phase)
    assert first.match == "call" and first.side == "output"


def test_a_wrong_op_outside_is_not_taken_for_the_call(files, tmp_path, exact):
    """What enters the call differs then, and is not its own error."""
    with npu_core.fault("native_layer_norm.default", "sign_flip", nth=1):
        mine = record(models.make("gpt", "npu"), tmp_path / "mine.h5")
    found = answer(mine, files["gpt cpu"])
    assert found.summary.first.op == "native_layer_norm"
    calls = [row for row in found.rows if row.match == "call" and row.side == "output"]
    assert {row.verdict.kind for row in calls} <= {Kind.INHERITED, Kind.CANNOT_TELL}


def test_load_mode_compares_every_op(files, tmp_path, exact):
    """There the ops of both sides are the same, and none is hidden in a call."""
    with sdpa_kernel(SDPBackend.MATH):
        path = record(models.make("gpt", "cpu"), tmp_path / "fed.h5", files["gpt MATH"])
    found = answer(path, files["gpt MATH"])
    with open_dump(path) as opened:
        assert opened.load_mode
    assert {match.kind for match in found.matches} == {"op"}
    assert found.summary.nothing_wrong
