"""Intervals of in-place ops: what elements become lies inside, for every op that has a rule."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dumper import dumper
from dumper.ops import op_of
from dumper.overflow.extent import LARGEST, extent_of
from dumper.overflow.intervals import RULES, bound, is_safe

ops = torch.ops.aten
INPLACE = {
    "add": (ops.add_.Tensor, "tt"), "sub": (ops.sub_.Tensor, "tt"), "mul": (ops.mul_.Tensor, "tt"),
    "div": (ops.div_.Tensor, "tt"), "addcmul": (ops.addcmul_.default, "ttt"),
    "addcdiv": (ops.addcdiv_.default, "ttt"), "lerp": (ops.lerp_.Scalar, "ttn"),
    "sqrt": (ops.sqrt_.default, "t"), "neg": (ops.neg_.default, "t"),
    "abs": (ops.abs_.default, "t"), "relu": (ops.relu_.default, "t"),
    "zero": (ops.zero_.default, "t"), "maximum": (ops._foreach_maximum_.List, "ll"),
    "clamp_min": (ops.clamp_min_.default, "tn"), "copy": (ops.copy_.default, "tt"),
    "fill": (ops.fill_.Scalar, "tn"), "masked_fill": (ops.masked_fill_.Scalar, "tbn"),
}  # fmt: skip
NUMBERS = st.floats(-6e4, 6e4, width=32)


def test_every_rule_is_tried():
    assert set(INPLACE) == set(RULES)


@pytest.mark.parametrize("base", INPLACE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@settings(max_examples=60)
@given(data=st.data())
def test_what_an_op_makes_lies_inside(base, dtype, data):
    func, kinds = INPLACE[base]
    size = data.draw(st.integers(1, 4))

    def tensor():
        return torch.tensor(data.draw(st.lists(NUMBERS, min_size=size, max_size=size))).to(dtype)

    make = {
        "t": tensor, "l": lambda: [tensor(), tensor()], "n": lambda: data.draw(NUMBERS),
        "b": lambda: torch.tensor(data.draw(st.lists(st.booleans(), min_size=size, max_size=size))),
    }  # fmt: skip
    args = [make[kind]() for kind in kinds]
    op = op_of(func)
    assert op.base == base
    values = op.bind(tuple(args), {})
    found = bound(base, values, known, torch.finfo(dtype).tiny)
    func(*args)
    if not is_safe(found, LARGEST[dtype]):
        return
    low, high = known(args[0])
    assert found[0] <= low <= high <= found[1]


def known(value):
    tensors = value if isinstance(value, list) else [value]
    extents = [extent_of(t) for t in tensors]
    low, high = min(e[0] for e in extents), max(e[1] for e in extents)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


@pytest.mark.parametrize(
    ("interval", "safe"),
    [((-1.0, 1.0), True), ((0.0, 16375.0), True), ((0.0, 16376.0), False), ((-16376.0, 0.0), False),
     ((math.nan, 1.0), False), (None, False)],
)  # fmt: skip
def test_a_quarter_of_the_dtype_is_safe(interval, safe):
    assert is_safe(interval, 65504.0) is safe


@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.AdamW(p, 0.1),
     lambda p: torch.optim.AdamW(p, 0.1, foreach=True), lambda p: torch.optim.Adagrad(p, 0.1),
     lambda p: torch.optim.RMSprop(p, 0.1, momentum=0.9), lambda p: torch.optim.Adamax(p, 0.1)],
    ids=["sgd", "adamw", "adamw foreach", "adagrad", "rmsprop", "adamax"],
)  # fmt: skip
def test_optimizers_that_overflow_are_still_found(make, tmp_path):
    """Proofs by intervals must not hide what overflows after many harmless steps."""
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float32))
    optimizer = make([weight])
    with dumper(check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
        for step in range(6):
            weight.grad = torch.full((3,), 1.0 if step < 4 else 3e38)
            optimizer.step()
            if step == 3:
                assert not any(e.begins for e in dump.overflows)
    finite = all(t.isfinite().all() for t in _state(optimizer, weight))
    assert any(e.begins for e in dump.overflows) is not finite


def _state(optimizer, weight):
    state = optimizer.state[weight].values()
    return [weight, *(v for v in state if isinstance(v, torch.Tensor))]
