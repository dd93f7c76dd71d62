"""Loss scales against a search that tries them all, and against nets that run in float16."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from dumper.overflow.ranges import Range, ranges_of
from dumper.overflow.ranges import facts_of as range_facts
from dumper.overflow.scales import KEPT, LossScale, facts_of, loss_scale, scale_of

POWERS = range(-24, 41)


def of(values, phase="backward", dtype="float32", **facts) -> Range:
    sample = np.asarray(values, np.float32).reshape(-1)
    with np.errstate(invalid="ignore"):
        low, high = (float(sample.min()), float(sample.max())) if sample.size else (0.0, 0.0)
    known = {"ir": "mm", "seqid": 1, "phase": phase, "output": "result", "dtype": dtype}
    known |= {"low": low, "high": high, "size": sample.size, "sample": sample}
    return Range(**(known | facts))


def gradient(values, **facts) -> Range:
    return of(values, **({"phase": "grad", "ir": "grad", "name": "weight"} | facts))


def in_half(values, scale: float) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return (np.asarray(values, np.float64) * scale).astype(np.float16)


def share_kept(values, scale: float) -> float:
    """By looking at each element after a cast."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values) & (values != 0)]
    return np.count_nonzero(in_half(values, scale)) / values.size


def overflows(values, scale: float) -> bool:
    return not np.isfinite(in_half(values, scale)).all()


def magnitudes(least: int, most: int):
    """Numbers of any mantissa with exponents in between, and powers of two themselves."""
    mantissas = st.just(1.0) | st.floats(1, 2, width=16)
    return st.builds(math.ldexp, mantissas, st.integers(least, most))


@given(
    st.lists(magnitudes(-40, 8), min_size=1, max_size=40),
    st.integers(0, 2000),
    st.lists(magnitudes(-20, 20), max_size=4),
)
def test_both_ends_are_those_of_a_search(few, many, results):
    values = np.float32([*few, *[1.0] * many, 0.0])
    found = loss_scale([gradient(values)], [of(each) for each in results])
    everything = np.float32([*values, *results])
    for power in POWERS:
        scale = 2.0**power
        assert found.kept_at(scale) == share_kept(values, scale)
        assert found.overflows_at(scale) is overflows(everything, scale)
    enough = [
        power
        for power in POWERS
        if share_kept(values, 2.0**power) >= KEPT
        and all(share_kept([each], 2.0**power) >= KEPT for each in results)
    ]
    safe = [power for power in POWERS if not overflows(everything, 2.0**power)]
    assert max(found.smallest, 2.0**-24) == 2.0 ** enough[0]
    assert found.largest == 2.0 ** safe[-1] if safe[-1] < 40 else found.largest >= 2.0**40
    assert found.conflict is (found.smallest > found.largest)
    assert (found.kept, found.at_least, found.at_most) == (share_kept(values, 1), False, False)


@given(st.lists(magnitudes(-30, 8), min_size=1, max_size=40), st.integers(-10, 17))
def test_the_scale_that_they_were_computed_with_is_divided_out(values, power):
    current = 2.0**power
    plain = np.float32(values)
    first = loss_scale([gradient(plain)], [of(plain)])
    second = loss_scale([gradient(plain * np.float32(current))], [of(plain * current)], current)
    assert second.current == current and second.kept == first.kept_at(current)
    assert second._replace(current=1.0, kept=first.kept, subnormal=first.subnormal) == first


@given(st.lists(magnitudes(-40, 8), min_size=1, max_size=40), st.floats(0.001, 1e5))
def test_a_scale_that_is_no_power_of_two(values, current):
    found = loss_scale([gradient(values)], [], current)
    plain = np.float64(values) / current
    assert found.kept == share_kept(values, 1)
    for power in POWERS:
        assert found.kept_at(2.0**power) == share_kept(plain, 2.0**power)
        assert found.kept_at(1.5 * 2.0**power) == found.kept_at(2.0**power)
        assert found.kept_at(1.5 * 2.0**power) <= share_kept(plain, 1.5 * 2.0**power)


@pytest.mark.parametrize(("lost", "smallest"), [(1, 2.0**-24), (2, 2.0)])
def test_one_of_a_thousand_may_become_0(lost, smallest):
    values = [1.0] * (1000 - lost) + [2.0**-25] * lost  # a tie, which goes to 0
    found = loss_scale([gradient(values)], [])
    assert found.smallest == smallest and found.kept == 1 - lost / 1000


def test_a_sample_counts_for_all_it_is_of():
    small, large = gradient([2.0**-30] * 4, size=4000), gradient([1.0] * 1000)
    found = loss_scale([small, large], [])
    assert found.kept == 0.2 and (found.sampled, found.of) == (1004, 5000)
    assert loss_scale([gradient([2.0**-30] * 4), large], []).kept == 1000 / 1004


def test_subnormal_ones_are_kept_and_counted():
    found = loss_scale([gradient([2.0**-25, 2.0**-24, 2.0**-15, 2.0**-14])], [])
    assert (found.kept, found.subnormal) == (0.75, 0.5)


@pytest.mark.parametrize(
    ("peak", "largest"), [(65520.0, 0.5), (65519.0, 1.0), (32759.9, 2.0), (1.0, 2.0**15)]
)
def test_the_largest_is_the_last_that_fits(peak, largest):
    found = loss_scale([gradient([1e-3])], [of([-peak])])
    assert found.largest == largest
    assert not found.overflows_at(largest) and found.overflows_at(2 * largest)


def test_no_scale_does_both():
    found = loss_scale([gradient([2.0**-40] * 2)], [of([2.0])])
    assert (found.smallest, found.largest, found.conflict) == (2.0**16, 2.0**14, True)
    assert not loss_scale([gradient([2.0**-38] * 2)], [of([2.0])]).conflict


def test_only_backward_limits_it():
    """Phases and dtypes that are no gradients: a weight, an index, the optimizer's own."""
    grads = [gradient([1.0])]
    others = [of([1e4], "forward"), of([1e4], "optimizer"), of([5e4], dtype="int64")]
    assert loss_scale(grads, others).largest == loss_scale(grads, []).largest == 2.0**15
    assert loss_scale(grads, [of([1e4])]).largest == 4


def test_what_autocast_keeps_in_float32_is_no_limit():
    """The loss itself times 65536 is in float32 where the rest is in float16."""
    grads, loss = [gradient([2.0**-10])], of([1.0], dtype="float32")
    assert loss_scale(grads, [loss]).largest == 2.0**15
    assert loss_scale(grads, [loss, of([2.0**-4], dtype="float16")]).largest == 2.0**19


@pytest.mark.parametrize(
    ("result", "smallest"),
    [([2.0**-35, 1e-30], 2.0**11), ([2.0**-34, 1e-30], 2.0**10), ([0.0], 2.0**10),
     ([2.0**-20] + [2.0**-41] * 2000, 2.0**10), ([2.0**-20] + [2.0**-41] * 3000, 2.0**17)],
)  # fmt: skip
def test_what_gradients_are_summed_of_must_arrive(result, smallest):
    """Parameters' gradients are kept at 2**10. The tail of a softmax may vanish where it adds up to
    a thousandth: 2000 * 2**-21 is less than that, 3000 * 2**-21 more."""
    current = 2.0**4
    grads = [gradient([2.0**-34 * current])]
    found = loss_scale(grads, [of(np.float32(result) * np.float32(current))], current)
    assert found.smallest == smallest


# what has overflowed or vanished already


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(("current", "largest"), [(1024.0, 512.0), (1000.0, 512.0), (1.0, 0.5)])
def test_after_an_overflow_the_largest_is_a_bound(bad, current, largest):
    found = loss_scale([gradient([1.0, 2.0])], [of([bad, 1.0], dtype="float16")], current)
    assert (found.largest, found.at_most, found.overflowed) == (largest, True, 1)
    assert found.overflows_at(current) and not found.overflows_at(largest)
    assert found.peak == 1 / current  # what is finite in the float16 result


@pytest.mark.parametrize(("end", "is_full"), [(65504.0, True), (65472.0, False)])
def test_a_device_that_saturates_has_overflowed_at_65504(end, is_full):
    found = loss_scale([gradient([1.0])], [of([end], dtype="float16")], 8.0)
    assert (found.at_most, found.largest) == ((True, 4.0) if is_full else (False, 8.0))
    assert not loss_scale([gradient([1.0])], [of([end])], 8.0).at_most  # float32 goes further


def test_gradients_that_are_not_finite_are_left_out_and_counted():
    found = loss_scale([gradient([math.nan, math.inf, -math.inf, 2.0**-30, 1.0])], [])
    assert (found.kept, found.not_finite, found.overflowed) == (0.5, 3, 1)


def test_where_few_results_vanished_the_smallest_is_exact():
    result = of([0.0] + [1.0] * 1000, vanished=1, zeros_looked=1)
    found = loss_scale([gradient([2.0**-10])], [result], 256.0)
    assert (found.at_least, found.smallest) == (False, 2.0**-6)
    assert found.vanished == 1 / 1002


def test_where_results_vanished_the_smallest_is_a_bound():
    result = of([0.0] * 2 + [1.0] * 2, vanished=1, zeros_looked=2)
    found = loss_scale([gradient([2.0**-10])], [result], 256.0)
    assert (found.at_least, found.smallest) == (True, 512.0)
    assert found.vanished == 1 / (1 + 3)  # one of two zeros, beside two results and a gradient


@pytest.mark.parametrize(("beside", "share"), [([], 1.0), ([0.5] * 3999, 1 / 4000)])
def test_where_all_gradients_vanished_there_is_still_a_bound(beside, share):
    result = of([0.0, *beside], dtype="float16", vanished=1, zeros_looked=1)
    found = loss_scale([gradient([0.0] * 4)], [result])
    assert (found.smallest, found.at_least, found.kept, found.vanished) == (2.0, True, 0.0, share)
    assert found.kept_at(2.0**20) == 0.0 and found.largest == (2.0**16 if beside else math.inf)


@pytest.mark.parametrize(
    "grads", [[], [gradient([])], [gradient([0.0])], [gradient([3], dtype="int8")]]
)
def test_without_a_gradient_there_is_none(grads):
    assert loss_scale(grads, [of([1.0])]) is None
    assert loss_scale([*grads, gradient([1.0])], [of([1.0])]) is not None


@pytest.mark.parametrize("scale", [0.0, -2.0, math.inf, math.nan])
def test_what_is_no_scale(scale):
    found = loss_scale([gradient([1.0])], [])
    for ask in (found.kept_at, found.overflows_at, lambda x: loss_scale([gradient([1.0])], [], x)):
        with pytest.raises(ValueError, match="not a positive finite number"):
            ask(scale)
        ask(5e-324)


@given(
    st.lists(st.floats(allow_nan=False, width=64), min_size=1, max_size=5),
    st.floats(1e-300, 1.7e308),
)
def test_gradients_and_scales_of_any_size(values, current):
    sample = np.array(values)
    assume(np.isfinite(sample[sample != 0]).any())
    grad = gradient(0.0, dtype="float64", sample=sample, size=sample.size)
    grad.low, grad.high = float(sample.min()), float(sample.max())
    found = loss_scale([grad], [], current)
    assert 0 < found.smallest and 0 < found.largest and 0 <= found.kept <= 1
    assert scale_of([json.loads(json.dumps(facts_of(found), allow_nan=False))]) == found


# nets


class Halfway(torch.nn.Module):
    """A net whose inputs are small, and so are its parameters' gradients, before all others."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.first = torch.nn.Parameter(torch.randn(16, 32, generator=generator) / 4)
        self.second = torch.nn.Parameter(torch.randn(32, 8, generator=generator) / 6)
        self.x = torch.randn(64, 16, generator=generator) * 2.0**-8
        self.slope = torch.randn(64, 8, generator=generator) * 2.0**-20

    def gradients(self, dtype: torch.dtype, scale: float) -> dict[str, torch.Tensor]:
        """Gradients of parameters and of what is between them, by name, computed in a dtype."""
        made = {"first": self.first.detach().to(dtype).requires_grad_()}
        made["second"] = self.second.detach().to(dtype).requires_grad_()
        made["hidden"] = self.x.to(dtype) @ made["first"]
        made["result"] = made["hidden"].tanh() @ made["second"]
        for between in (made["hidden"], made["result"]):
            between.retain_grad()
        made["result"].backward((self.slope * scale).to(dtype))
        return {name: each.grad for name, each in made.items()}


def ranges(grads: dict[str, torch.Tensor]) -> tuple[list[Range], list[Range]]:
    dtype = str(next(iter(grads.values())).dtype).removeprefix("torch.")
    arrays = {name: each.float().numpy() for name, each in grads.items()}
    results = [of(each, dtype=dtype, output=name) for name, each in arrays.items()]
    own = [gradient(arrays[name], dtype=dtype, name=name) for name in ("first", "second")]
    return own, results


def nonzero(grads: dict[str, torch.Tensor]) -> float:
    own = [grads["first"], grads["second"]]
    return sum(map(torch.count_nonzero, own)).item() / sum(each.numel() for each in own)


def test_a_net_whose_gradients_vanish_at_scale_1_and_not_at_1024():
    net = Halfway()
    wide = loss_scale(*ranges(net.gradients(torch.float32, 1)))
    at_1, at_1024 = (net.gradients(torch.float16, scale) for scale in (1, 1024))
    assert nonzero(at_1) < 0.2 and nonzero(at_1024) >= KEPT
    assert wide.kept < 0.2 and 1 < wide.smallest <= 1024 and not wide.conflict
    assert not wide.at_least and wide.kept_at(1024) >= KEPT
    # and the other way: from a step that was scaled, what no scale would have done
    scaled = loss_scale(*ranges(at_1024), 1024.0)
    assert scaled.kept >= KEPT and scaled.kept_at(1) < 0.2
    assert wide.smallest / 2 <= scaled.smallest <= 2 * wide.smallest  # of 768 elements, the least


def test_the_ends_are_where_the_net_in_float16_has_them():
    net = Halfway()
    wide = loss_scale(*ranges(net.gradients(torch.float32, 1)))
    finite = [
        power
        for power in POWERS
        if all(each.isfinite().all() for each in net.gradients(torch.float16, 2.0**power).values())
    ]
    assert wide.largest == 2.0 ** finite[-1]
    for power in range(0, finite[-1]):
        made = nonzero(net.gradients(torch.float16, 2.0**power))
        # what float16 rounds on the way makes a few of the smallest larger, and a few 0
        assert wide.kept_at(2.0**power) == pytest.approx(made, abs=0.02)


# the file

GOOD = facts_of(loss_scale([gradient([1e-9, 1.0, 0.0])], [of([3.0])], 8.0))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=3))
def test_any_line_is_read_or_passed_over(lines):
    assert scale_of(lines) is None
    assert facts_of(scale_of([*lines, GOOD, *lines])) == GOOD


@given(st.sampled_from(sorted(GOOD)), JSON)
def test_any_field_may_be_anything(name, value):
    found = scale_of([json.loads(json.dumps(GOOD)) | {name: value}])
    if found is not None:
        assert 0 <= found.kept_at(1024.0) <= 1
        assert found.overflows_at(1.0) in (True, False) and found.conflict in (True, False)
        assert scale_of([facts_of(found)]) == found


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        ({"current": 5e-324}, True),
        ({"current": 0}, False),
        ({"current": "inf"}, False),
        ({"largest": "inf"}, True),
        ({"peak": "inf"}, False),
        ({"kept": 1}, True),
        ({"kept": 1.01}, False),
        ({"kept": "nan"}, False),
        ({"spread": []}, True),
        ({"spread": [[1]]}, False),
        ({"spread": [[True, 1.0]]}, False),
        ({"spread": [[4095, 1.0]]}, True),
        ({"spread": [[4096, 1.0]]}, False),
        ({"spread": [[1, 1e308], [2, 1e308]]}, False),
        ({"format": "bfloat16"}, False),
        ({"of": -1}, False),
    ],
)
def test_lines_whose_numbers_cannot_be(change, is_read):
    assert (scale_of([GOOD | change]) is not None) is is_read


def test_the_last_line_counts():
    found = scale_of([GOOD, GOOD | {"current": 16.0}, GOOD | {"current": -1.0}])
    assert isinstance(found, LossScale) and found.current == 16


def test_ranges_of_a_file_limit_it_and_have_no_gradients():
    result = of([3.0, 0.0], vanished=1, zeros_looked=1)
    (again,) = ranges_of([json.loads(json.dumps(range_facts(result)))])
    grads = [gradient([1.0])]
    assert loss_scale(grads, [again]) == loss_scale(grads, [result])
    assert loss_scale(ranges_of([range_facts(grads[0])]), [again]) is None
