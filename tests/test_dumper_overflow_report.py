"""What is said of overflows: the answer first, in both languages, and whatever a file says."""

from __future__ import annotations

import json
import math
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumper.overflow.bits import BITS, words_of
from dumper.overflow.events import KINDS, Operand, Overflow, Way, events_of
from dumper.overflow.margins import margins
from dumper.overflow.phrases import PHRASES, Say
from dumper.overflow.plain import WIDTH, cells, name, number, rough, scale_text, share
from dumper.overflow.ranges import Range, ranges_of
from dumper.overflow.report import is_fault, report, report_events
from dumper.overflow.scales import loss_scale, scale_of

INF, NAN = math.inf, math.nan


def event(kind="created", seqid=12, ir="mm", phase="forward", dtype="float16", **facts):
    return Overflow(ir, seqid, phase, kind, dtype, **facts)


T5 = event(
    index=(0, 3),
    value=66246.0,
    stored=INF,
    count=1,
    size=2048,
    inputs={
        "mat2": Operand((None, 3), (183.0, 183.0), 64, -1.0, 183.0),
        "self": Operand((0, None), (181.0, 181.0, 1.0), 64, -12.0, 181.0),
        "beta": Operand((), (1.0,), 1, 1.0, 1.0),
    },
    api="torch.nn.functional.linear.0",
    module="fc1",
    source="model.py:31",
    trail=(Way(9, "relu", 310.0), Way(10, "mm", 4700.0), Way(11, "mul", 5.2e4), Way(12, "mm", INF)),
)
NORM = event("propagated", 14, "native_layer_norm", producer=12, stored=NAN, size=8, count=8)


def said(*events: Overflow, **options) -> list[str]:
    return report(events, **options).splitlines()


def headline(*events: Overflow, **options) -> str:
    """The first line and what belongs to it."""
    lines = said(*events, **options)
    return " ".join([lines[0], *(line.strip() for line in lines[1:2] if line.startswith("  "))])


def test_the_answer_comes_first_and_then_the_way_there():
    assert said(NORM, T5) == [
        "the first overflow is /mm/12 (forward, module fc1, model.py:31): "
        "66246 does not fit float16 (largest",
        "  65504)",
        "  the way there: 3.1e2 -> 4.7e3 -> 5.2e4 -> inf",
        "    3.1e2  /relu/9",
        "    4.7e3  /mm/10",
        "    5.2e4  /mul/11",
        "    inf    /mm/12   module fc1",
        "  element result[0, 3]: 66246 in float64, stored as inf; 1 of 2048 elements",
        "    self[0, :]: 64 numbers from -12 to 181; largest 181, 181, 1",
        "    mat2[:, 3]: 64 numbers from -1 to 183; largest 183, 183",
        "    beta = 1",
        "  called by torch.nn.functional.linear.0",
        "  it went on to 1 op",
        "what to do: compute this op in float32 or bfloat16, or make its inputs smaller",
        "",
        "2 events: 1 created, 1 propagated",
        "  /mm/12                 created     forward  66246 does not fit float16 (largest 65504)",
        "  /native_layer_norm/14  propagated  forward  came from /mm/12",
    ]


@pytest.mark.parametrize(
    ("events", "expected", "fault"),
    [
        ((), "no overflow", False),
        ((event("intended"),), "no overflow; 1 op took or made an infinity", False),
        ((event("intended", 1), event("intended", 2)), "no overflow; 2 ops took or made", False),
        (
            (event("propagated", origin="fc.weight"), event("propagated", 13, producer=12)),
            "no op overflowed: infinity or NaN came into the step from outside, first /mm/12 "
            "(forward): came in with fc.weight",
            True,
        ),
        (
            (event(phase="backward", scale=65536.0, skipped=True, stored=INF),),
            "an overflow in gradients scaled by 65536, and the loss scaler skipped the step: no "
            "fault; it began at /mm/12",
            False,
        ),
        (
            (event(phase="backward", scale=2.0**127, skipped=True),),
            "an overflow in gradients scaled by 2**127, and",
            False,
        ),
        ((event(phase="backward", skipped=True),), "an overflow in gradients, and the", False),
        (
            (event(phase="backward", scale=1.0, stored=INF),),
            "inf was returned for inputs that hold none a step that overflows at loss scale 1: a "
            "fault",
            True,
        ),
        (
            (event(phase="backward", scale=1024.0, stored=INF),),
            "it is among gradients scaled by 1024, and the step was not skipped: a fault",
            True,
        ),
        ((NORM,), "no op overflowed", False),
    ],
)
def test_what_is_a_fault_and_what_is_not(events, expected, fault):
    assert expected in headline(*events)
    assert is_fault(events) is fault


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"value": 65520.0, "stored": INF}, "65520 does not fit float16 (largest 65504)"),
        (
            {"value": 65519.0, "stored": INF},
            "inf was returned; the exact result 65519 fits float16",
        ),
        ({"value": -70000.0, "stored": -65504.0}, "65504), and -65504 was stored"),
        ({"value": NAN, "stored": NAN}, "the result is NaN in exact arithmetic too"),
        ({"value": NAN, "stored": 0.0}, "NaN in exact arithmetic too, and 0 was stored"),
        ({"value": INF, "stored": INF}, "the result is inf in exact arithmetic too"),
        ({"value": None, "stored": NAN}, "NaN was returned for inputs that hold none"),
        ({"value": None, "stored": 65504.0}, "65504 was returned, the limit of float16"),
        ({"value": None, "stored": None, "bits": 0x20}, "the status register says that it overfl"),
        ({"value": None, "stored": None}, "an overflow began here"),
        ({"value": 1.0, "stored": INF, "dtype": "int8"}, "inf was returned"),
        ({"again": 5}, "it took again what seqid 5 made"),
        ({"masked_by": 15}, "it ended at seqid 15"),
        ({"module": ""}, "(forward, the model itself)"),
        ({"rank": 1, "step": 3}, "(rank 1, step 3, forward)"),
    ],
)
def test_what_happened_there(facts, expected):
    known = {"value": 70000.0, "stored": INF} | facts
    assert expected in " ".join(line.strip() for line in said(event(**known)))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"value": 7e4}, "compute this op in float32 or bfloat16"),
        ({"value": 1e39, "dtype": "bfloat16"}, "make its inputs smaller"),
        ({"value": 500.0, "dtype": "float8_e4m3fn"}, "scale the tensor into the range of float8"),
        ({"value": NAN}, "no dtype helps"),
        ({"value": 7e4, "phase": "backward", "scale": 1024.0}, "lower the loss scale"),
        ({"value": 7e4, "phase": "backward", "scale": 1.0}, "compute this op in float32"),
        ({"phase": "backward", "skipped": True}, "nothing, unless every step is skipped"),
        ({"kind": "propagated"}, "look at what the step was given"),
        ({"value": NAN, "inputs": {"self": Operand((1, None), (-INF,) * 4, 4, -INF, -INF)}},
         "its input holds a row of -inf only"),
        ({"value": NAN, "inputs": {"self": Operand((1, None), (-INF, 1.0), 4, -INF, 1.0)}},
         "no dtype helps"),
    ],
)  # fmt: skip
def test_what_to_do(facts, expected):
    (line,) = [line for line in said(event(**facts)) if line.startswith("what to do")]
    assert expected in line


def test_a_masked_overflow_that_backward_uses_again_is_told_of_in_order():
    events = [
        event(seqid=5, ir="exp", dtype="float32", value=2.7e43, stored=INF, masked_by=9),
        event("propagated", 7, "mul", producer=5, stored=NAN),
        event("masked", 9, "where", producer=7),
        event(seqid=20, ir="mul", phase="backward", value=NAN, stored=NAN, again=5),
    ]
    lines = said(*events)
    assert "what to do: a mask behind /exp/5 hides its result and not its gradient" in "\n".join(
        lines
    )
    listed = [line.split()[:2] for line in lines if line.startswith("  /")]
    assert listed == [
        ["/exp/5", "created"],
        ["/mul/7", "propagated"],
        ["/where/9", "masked"],
        ["/mul/20", "created"],
    ]
    text = " ".join(line.strip() for line in lines)
    assert "came from /mul/7, and went no further" in text
    assert "it took again what /exp/5 made" in text
    assert "it ended at /where/9" in f"{lines[0]} {lines[1].strip()}"


def test_ranks_are_named_and_the_lowest_call_of_any_is_first():
    lines = said(event(rank=0, seqid=9), event(rank=1, seqid=4), event("propagated", 9, rank=1))
    assert lines[0].startswith("the first overflow is /mm/4 (rank 1, forward)")
    assert sum("rank 0" in line for line in lines) == 1
    alone = report_events([event()], ranks=True)
    assert "(rank 0, forward)" in alone and "rank" not in report_events([event()])


def test_a_long_list_is_cut_and_what_begins_is_in_it():
    rows = [event("propagated", i, producer=1) for i in range(50)] + [event(seqid=99)]
    lines = said(*rows, most=10)
    listed = [line for line in lines if line.startswith("  /mm/") and "came" in line]
    assert len(listed) == 9 and any("/mm/99" in line and "created" in line for line in lines)
    assert lines[-1] == "  and 41 more: 41 propagated"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, ()),
        (0x20, ("floating-point computing overflowed",)),
        (272, (BITS[0x10][0], BITS[0x100][0])),
        (0x1020, (BITS[0x20][0], "unknown bits 0x1000")),
        (2**62, ("unknown bits 0x4000000000000000",)),
    ],
)
def test_status_bits_in_words(status, words):
    assert words_of(status) == words
    assert len(words_of(status, "zh")) == len(words)
    if status:
        line = next(line for line in said(event(bits=status)) if "status register 0x" in line)
        assert f"{status:#x}: {words[0][:20]}" in line


def test_a_status_has_no_sign():
    with pytest.raises(ValueError):
        words_of(-1)


# the other half: ranges


def a_range(values, ir="mul", seqid=1, dtype="float32", **facts) -> Range:
    sample = np.asarray(values, np.float32)
    known = {"phase": "forward", "output": "result", "size": sample.size, "sample": sample}
    low, high = float(sample.min()), float(sample.max())
    return Range(
        **({"ir": ir, "seqid": seqid, "dtype": dtype, "low": low, "high": high} | known | facts)
    )


def of(*ranges: Range, scale=None) -> str:
    return "\n".join(margins(ranges, scale))


def test_head_room_names_the_nearest_and_what_would_not_fit():
    text = of(
        a_range([1.0, -16376.0], seqid=3, dtype="float16", module="fc1"),
        a_range([65536.0], seqid=4, module="head"),
        a_range([65504.0], seqid=5),
    )
    assert "  /mul/3 result  2.0 bits left of float16, largest 1.6e4, module fc1" in text
    assert "1 of 2 outputs in float32, bfloat16 or float64 would not fit float16" in text
    assert "  /mul/4 result  largest 6.6e4 in float32, module head" in text
    assert "/mul/5" not in text
    assert "all 2 outputs" in of(a_range([65519.0]), a_range([1.0]))
    assert "the one output" in of(a_range([65519.0]))


def test_underflow_has_shares_and_the_worst_op():
    tiny, fine = 2.0**-26, 2.0**-20
    text = of(a_range([1.0, tiny], seqid=1), a_range([tiny, tiny, fine], seqid=2, module="norm"))
    (line,) = [line for line in text.splitlines() if line.startswith("  float16 ")]
    assert "60 % become 0, 20 % subnormal; worst /mul/2 result: 67 % become 0, module norm" in line
    assert "  bfloat16       0 % become 0, 0 % subnormal" in text
    assert "none of the non-zero values would become 0 or subnormal" in of(a_range([1.0, 0.0]))


def test_samples_are_said_to_be_samples():
    assert "2 of 5000 elements were looked at" in of(a_range([1.0, 1e-9], size=5000))
    assert "looked at" not in of(a_range([1.0, 1e-9]))


def test_what_became_0_already_is_told():
    text = of(a_range([0.0, 0.0, 1.0], dtype="float16", vanished=1, zeros_looked=1))
    assert "  /mul/1 result  67 % of its values became 0 in float16" in text
    assert "already" not in of(a_range([0.0, 1.0], dtype="float16", vanished=0, zeros_looked=1))


def gradients(magnitude: float) -> list[Range]:
    values = np.full(1000, magnitude)
    return [a_range(values, "grad", phase="grad", name="fc1.weight")]


def test_a_loss_scale_is_told_with_both_ends():
    found = gradients(2.0**-30)
    backward = [a_range([2.0**-10], phase="backward")]
    text = of(*backward, *found, scale=loss_scale(found, backward, 1.0))
    joined = " ".join(line.strip() for line in text.splitlines())
    assert (
        "loss scale: smallest that keeps 99.9 % of gradients: 64; largest that is safe: 2**25; now "
        "1: 100 % of gradients become 0 in float16"
    ) in joined
    assert "what to do: set the loss scale between 64 and 2**25" in text
    assert "  fc1.weight  100 % become 0, 0 % subnormal" in text
    right = loss_scale(gradients(2.0**-20), [a_range([1.0], phase="backward")], 1024.0)
    assert "the loss scale is right" in of(scale=right)


def test_a_conflict_of_the_two_ends_is_said():
    found, backward = gradients(2.0**-30), [a_range([60000.0], phase="backward")]
    text = of(scale=loss_scale(found, backward, 1.0))
    assert "no scale does both: keep the widest gradients in bfloat16 or float32" in text


# languages, names, numbers, hostile files


def test_both_languages_have_all_phrases_and_the_same_places():
    for key, (english, chinese) in PHRASES.items():
        places = [
            {field for _, field, _, _ in string.Formatter().parse(text) if field}
            for text in (english, chinese)
        ]
        plural = not key.startswith("one ")
        assert english and chinese
        assert (places[0] == places[1]) or not plural, key
        if not plural:
            assert key.removeprefix("one ") in PHRASES
    assert all(kind in PHRASES for kind in KINDS)


@pytest.mark.parametrize("lang", ["de", "", "EN"])
def test_no_other_language(lang):
    for tell in (Say, lambda lang: report([], lang=lang), lambda lang: words_of(1, lang)):
        with pytest.raises(ValueError):
            tell(lang)


def test_chinese_says_as_much_as_english():
    events = [T5, NORM, event("masked", 15, producer=14), event("intended", 3)]
    backward = [a_range([1e5], phase="backward")]
    ranges = [*backward, *gradients(1e-9)]
    scale = loss_scale(ranges[1:], backward, 1.0)
    english, chinese = (report(events, ranges, scale, lang=lang) for lang in ("en", "zh"))
    for text in (english, chinese):
        for word in (
            "/mm/12",
            "66246",
            "3.1e2 -> 4.7e3 -> 5.2e4 -> inf",
            "fc1.weight",
            "model.py:31",
        ):
            assert word in text
    words = set("created propagated masked intended what overflow loss".split())
    assert not words & set(chinese.replace("loss scale", "").split())


@pytest.mark.parametrize(
    ("value", "expected"),
    [(66246.0, "66246"), (-1.5, "-1.5"), (1.5e38, "1.5e38"), (INF, "inf"), (-INF, "-inf"),
     (NAN, "NaN"), (0.1, "0.1"), (1e-9, "1e-9"), (162754.791419, "162754.791")],
)  # fmt: skip
def test_numbers(value, expected):
    assert number(value) == expected


def test_shares_of_nearly_none_and_nearly_all_are_not_rounded_away():
    assert [share(part) for part in (0, 1e-9, 0.0049, 0.43, 0.9999, 1)] == [
        "0 %", "< 0.1 %", "0.5 %", "43 %", "> 99.9 %", "100 %",
    ]  # fmt: skip
    assert rough(310.0) == "3.1e2" and scale_text(65536.0) == "65536"


HOSTILE = "a\x1b[31m\n\u202eb" + "x" * 300 + "end"


def test_hostile_names_are_inert_and_cut():
    shown = name(HOSTILE)
    assert len(shown) == 72 and shown.startswith(r"a\x1b[31m\n\u202eb") and shown.endswith("end")
    hostile = event(
        ir=HOSTILE, phase=HOSTILE, dtype=HOSTILE, output=HOSTILE, module=HOSTILE, api=HOSTILE,
        source=HOSTILE, index=(7,) * 5000, value=1.0, stored=2.0, count=2, size=3,
        inputs={HOSTILE + str(i): Operand((None,) * 999, (1e308,) * 999, 2**62, 0, 1)
                for i in range(99)},
        trail=tuple(Way(i, HOSTILE, 1e300) for i in range(5000)), bits=2**63 - 1,
    )  # fmt: skip
    lines = said(hostile, event("propagated", 13, producer=2**62, origin=HOSTILE))
    assert len(lines) < 80
    assert all(cells(line) <= WIDTH and line.isprintable() for line in lines)
    assert any("and 93 more inputs" in line for line in lines)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = list(Overflow.__dataclass_fields__)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(NAMES), JSON, max_size=12), max_size=5
    ),
    st.sampled_from(["en", "zh"]),
)  # fmt: skip
def test_whatever_a_file_says_is_told_in_plain_lines(lines, lang):
    base = {"ir": "mm", "seqid": 1, "phase": "forward", "kind": "created", "dtype": "float16"}
    facts = [{"event": i, **base, **line} for i, line in enumerate(lines)]
    text = report(events_of(json.loads(json.dumps(facts))), lang=lang)
    assert text and all(cells(line) <= WIDTH and line.isprintable() for line in text.splitlines())


@settings(max_examples=200, deadline=None)
@given(JSON, JSON, st.floats(), st.floats(), st.integers(0, 2**63 - 1))
def test_whatever_ranges_a_file_has_is_told(sample, lost, low, high, size):
    line = {
        "ir": "mm", "seqid": 1, "phase": "forward", "output": "result", "dtype": "float16",
        "low": low, "high": high, "size": size, "sample": sample, "lost": lost,
    }  # fmt: skip
    ranges = ranges_of([line, {**line, "dtype": "float32", "ir": "grad"}])
    lines = margins(ranges, scale_of([line, {}]))
    assert all(cells(line) <= WIDTH and line.isprintable() for line in lines)
