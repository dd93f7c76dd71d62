"""The rule that pairs live ops with recorded ones, on facts alone: no file, no device."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dumper.index import Entry
from dumper.match import NO_CALL, NO_SUCH_OP, NOT_IN_CALL, OTHER_TENSORS, Matcher
from dumper.reader import Record
from dumper.recording import LOOK_AHEAD, Fact, Live, Queue, Recording


@dataclass
class Step:
    """One op of an imagined run: what it takes and makes are numbers of values."""

    ir: str
    takes: tuple[int, ...]
    makes: int
    api: str | None = None
    line: int | None = None
    phase: str = "forward"
    weight: str | None = None
    shape: str = "same"  # ops of another shape differ


def recorded(steps: list[Step], indexed: bool = True, first: int = 1) -> Recording:
    """The steps as a recording; the first of their numbers is `first`."""
    records = []
    counts: dict[str, int] = {}
    for seqid, step in enumerate(steps, first):
        entry = Entry()
        if indexed:
            values = {f"input/x{i}": number for i, number in enumerate(step.takes)}
            entry = Entry(
                phase=step.phase,
                api=_api(step, counts),
                module="",
                source=None if step.line is None else f"net.py:{step.line}",
                step=0,
                names={"w": step.weight} if step.weight else {},
                values=values | {"output/result": step.makes},
            )
        records.append(Record(step.ir, seqid, step.shape, (), (), {}, True, entry))
    return Recording(records)


def _api(step: Step, counts: dict[str, int]) -> str | None:
    if step.api is None or "." in step.api:
        return step.api
    count = counts.get(step.api, 0)
    counts[step.api] = count + 1
    return f"{step.api}.{count}"


def play(recording: Recording, steps: list[Step]) -> list[int | None]:
    """Run the steps live; the seqids they are paired with. Values are known as load mode does."""
    matcher, known, found = Matcher(recording), {}, []
    counts: dict[str, int] = {}
    for number, step in enumerate(steps, 1):
        tensors = {f"x{i}": Fact(None, known.get(value)) for i, value in enumerate(step.takes)}
        if step.weight:
            tensors["w"] = Fact(step.weight, None)
        source = None if step.line is None else f"net.py:{step.line}"
        live = Live(
            step.ir, step.phase, _api(step, counts), "", source, 0, 0, number, tensors
        )  # fmt: skip
        pair = matcher.find(live, lambda r, s=step: None if r.path == s.shape else "shape").record
        found.append(None if pair is None else pair.seqid)
        if pair is not None:
            for i, value in enumerate(step.takes):
                known.setdefault(value, pair.entry.values.get(f"input/x{i}"))
            known[step.makes] = pair.entry.values.get("output/result")
    return found


def net(layers: int = 4) -> list[Step]:
    """Linear, relu and a doubling, all of one shape, again and again."""
    steps, value = [], 0
    for i in range(layers):
        for ir, weight in (("addmm", f"{i}.weight"), ("relu", None), ("mul", None)):
            steps.append(Step(ir, (value,), value + 1, ir, 10 + len(steps), weight=weight))
            value += 1
    return steps


def without(steps: list[Step], at: int) -> list[Step]:
    """The steps less one; what used its result uses its argument."""
    gone = steps[at]
    return [
        Step(
            s.ir, tuple(gone.takes[0] if v == gone.makes else v for v in s.takes), s.makes, s.api,
            s.line, s.phase, s.weight, s.shape,
        )
        for s in steps
        if s is not gone
    ]  # fmt: skip


def with_extra(steps: list[Step], at: int, ir: str, line: int | None) -> list[Step]:
    """The steps with one more of them behind another, whose result is used in place of that's."""
    before = steps[at]
    extra = Step(ir, (before.makes,), 1000, ir, line)
    rest = [
        Step(
            s.ir, tuple(1000 if v == before.makes else v for v in s.takes), s.makes, s.api,
            s.line, s.phase, s.weight, s.shape,
        )
        for s in steps[at + 1 :]
    ]  # fmt: skip
    return [*steps[: at + 1], extra, *rest]


def test_a_run_finds_itself() -> None:
    assert play(recorded(net()), net()) == list(range(1, 13))


@pytest.mark.parametrize("at", range(12))
def test_a_dropped_call_costs_itself_only(at: int) -> None:
    expected = [seqid for seqid in range(1, 13) if seqid != at + 1]
    found = play(recorded(net()), without(net(), at))
    assert all(pair in (seqid, None) for pair, seqid in zip(found, expected, strict=True))
    # one whose tensors are others may be taken for an inserted one, before lines are trusted
    assert found.count(None) <= (1 if at < 6 else 0)


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("ir", ["relu", "mul", "exp"])
def test_an_inserted_call_takes_nobodys_counterpart(at: int, ir: str) -> None:
    steps = net()
    found = play(recorded(steps), with_extra(steps, at, ir, 99))
    following = steps[at + 1].ir if at + 1 < len(steps) else None
    if ir == following:  # two alike in a row: the first computes on what was recorded
        assert found == [*range(1, at + 3), None, *range(at + 3, 13)]
    else:
        assert found == [*range(1, at + 2), None, *range(at + 2, 13)]


def test_an_edited_script_is_followed() -> None:
    """All lines below an edit are others, by one distance."""
    live = net()
    for step in live[5:]:
        step.line += 7
    assert play(recorded(net()), live) == list(range(1, 13))


def test_an_inserted_factory_call_takes_nobodys_counterpart() -> None:
    """Calls without tensors are told apart by their lines alone, once those are trusted."""
    steps = [Step("zeros", (), i, "zeros", 10 + i) for i in range(8)]
    live = [*steps[:6], Step("zeros", (), 100, "zeros", 99), *steps[6:]]
    assert play(recorded(steps), live) == [1, 2, 3, 4, 5, 6, None, 7, 8]


def test_backward_follows_its_forward_call() -> None:
    """An inserted relu shifts the numbers of the later ones; their backward is found all the
    same."""
    forward = net()
    backward = [
        Step("threshold_backward", (), 500 + i, f"relu.{i}", phase="backward")
        for i in reversed(range(4))
    ]
    recording = recorded(forward + backward)
    live_backward = [
        Step("threshold_backward", (), 500 + i, f"relu.{i}", phase="backward")
        for i in reversed(range(5))
    ]
    # behind the first mul: relu 1 is the extra one
    live = with_extra(forward, 2, "relu", 99) + live_backward
    found = play(recording, live)
    assert found[13:] == [13, 14, 15, None, 16]


def test_the_same_call_elsewhere_is_found_by_its_tensors() -> None:
    steps = net()
    live = net()
    for step in live:
        if step.ir == "mul":
            step.api = "multiply"
    assert play(recorded(steps), live) == list(range(1, 13))


def test_other_shapes_are_no_counterparts() -> None:
    live = net(1)
    live[1].shape = "other"
    recording = recorded(net(1))
    matcher = Matcher(recording)
    facts = {"w": Fact("0.weight", None)}
    first = Live("addmm", "forward", "addmm.0", "", None, 0, 0, 1, facts)
    assert matcher.find(first, lambda record: None).record.seqid == 1
    second = Live("relu", "forward", "relu.0", "", None, 0, 0, 2, {})
    found = matcher.find(second, lambda record: "shape of self: recorded (3, 4), live (3, 5)")
    assert (found.record, found.expanded) == (None, False)
    assert found.reason == "shape of self: recorded (3, 4), live (3, 5)"


REASONS = {
    "no such op": (Live("exp", "forward", "exp.0", "", None, 0, 0, 1, {}), NO_SUCH_OP),
    "no such call": (Live("relu", "forward", "sigmoid.0", "", None, 0, 0, 1, {}), NO_CALL),
    "other parameter": (
        Live("addmm", "forward", "addmm.0", "", None, 0, 0, 1, {"w": Fact("9.weight", None)}),
        OTHER_TENSORS,
    ),
    "other ops in the call": (Live("sum", "forward", "relu.0", "", None, 0, 0, 1, {}), NOT_IN_CALL),
}


@pytest.mark.parametrize(("live", "reason"), REASONS.values(), ids=list(REASONS))
def test_reasons(live: Live, reason: str) -> None:
    found = Matcher(recorded(net())).find(live, lambda record: None)
    assert (found.record, found.reason) == (None, reason)
    assert found.expanded is (reason == NOT_IN_CALL)


def test_a_model_under_another_path_is_matched_by_shapes_and_values() -> None:
    recording = recorded(net(1))
    matcher = Matcher(recording)
    facts = {"w": Fact("wrapped.0.weight", None)}
    for number, ir in enumerate(("addmm", "relu", "mul"), 1):
        live = Live(ir, "forward", f"{ir}.0", "wrapped", None, 0, 0, number, facts)
        assert matcher.find(live, lambda record: None).record.seqid == number


def test_an_extract_waits_for_its_number() -> None:
    """One record that bore the number 7: six live ops of its kind pass by."""
    recording = recorded([Step("relu", (), 0)], indexed=False, first=7)
    assert recording.extract
    assert play(recording, [Step("relu", (), i) for i in range(9)]) == [None] * 6 + [7] + [None] * 2


def test_an_extract_whose_number_fits_nothing_takes_the_next_of_its_shape() -> None:
    recording = recorded([Step("relu", (), 0)], indexed=False, first=3)
    live = [Step("relu", (), 0), Step("relu", (), 1), Step("mul", (), 2), Step("relu", (), 3)]
    live[0].shape = "other"
    assert play(recording, live) == [None, None, None, 3]


def test_a_whole_run_without_an_index_is_matched_in_order() -> None:
    recording = recorded([Step("relu", (), 0), Step("mul", (), 0), Step("relu", (), 0)], False)
    assert not recording.extract
    live = [Step("mul", (), 0), Step("relu", (), 0), Step("exp", (), 0), Step("relu", (), 0)]
    assert play(recording, live) == [2, 1, None, 3]


def test_a_search_looks_at_two_windows_whatever_was_passed_over() -> None:
    queue = Queue()
    for item in range(1000):
        queue.append(item)
    for item in range(300, 600):  # nobody takes the first ones
        queue.take(item)
    items = [item for _, item in queue]
    assert items[:LOOK_AHEAD] == list(range(LOOK_AHEAD))
    assert items[LOOK_AHEAD:] == list(range(600, 600 + LOOK_AHEAD))
    for item in range(300):
        queue.take(item)
    assert next(iter(queue)) == (600, 600)
