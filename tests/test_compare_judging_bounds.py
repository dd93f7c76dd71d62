"""The bounds of sums and products: legal orders stay inside, and a large op is judged in parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.judging import class_of
from compare.judging.bounds import Call, Pair, by_norms, measure
from compare.judging.judge import UNFIT

F32 = ("float32", "float32")


def call(**arrays: np.ndarray) -> Call:
    return Call(arrays, dict.fromkeys(arrays, "float32"), {})


def sequential(a: np.ndarray, b: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Products added one after the other."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in order:
        total += a[:, k : k + 1] * b[k]
    return total


def blocked(a: np.ndarray, b: np.ndarray, size: int) -> np.ndarray:
    """Blocks of K, added one after the other."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], size):
        total += a[:, k : k + size] @ b[k : k + size]
    return total


KINDS = {
    "normal": lambda r, shape: r.standard_normal(shape),
    "positive": lambda r, shape: r.random(shape),
    "half zero": lambda r, shape: np.maximum(r.standard_normal(shape), 0),
    "one large term": lambda r, shape: r.standard_normal(shape) * np.where(
        np.arange(shape[-1]) == 1, 1e4, 1),
    "tiny": lambda r, shape: r.standard_normal(shape) * 1e-17,
    "constant": lambda r, shape: np.full(shape, 0.1),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10)
@given(st.integers(0, 99), st.sampled_from([3, 34, 500, 3000]), st.sampled_from([1, 16, 128]))
def test_every_legal_order_of_a_product_is_rounding(
    kind: str, seed: int, k: int, size: int
) -> None:
    r = np.random.default_rng(seed)
    a = KINDS[kind](r, (8, k)).astype(np.float32)
    b = KINDS[kind](r, (9, k)).T.astype(np.float32)
    mine, golden = sequential(a, b, r.permutation(k)), blocked(a, b, size)
    op, given_ = class_of("mm"), call(self=a, mat2=b)
    found = measure(op, "result", Pair(mine, golden, F32), given_, given_, equal=True)
    assert found.left <= 1


@pytest.mark.parametrize("kind", KINDS)
@given(st.integers(0, 99), st.sampled_from([3, 500, 20000]))
def test_every_legal_order_of_a_sum_is_rounding(kind: str, seed: int, k: int) -> None:
    r = np.random.default_rng(seed)
    x = KINDS[kind](r, (4, k)).astype(np.float32)
    mine = np.cumsum(x, 1, dtype=np.float32)[:, -1]
    call_ = call(self=x)._replace(values={"dim": [1], "keepdim": False})
    pair = Pair(mine, x.sum(1), F32)
    assert measure(class_of("sum"), "result", pair, call_, call_, equal=True).left <= 1


@given(st.integers(0, 99), st.sampled_from([2, 11, 49]))
def test_runs_of_equal_terms_are_rounded_alike(seed: int, run: int) -> None:
    r = np.random.default_rng(seed)
    x = np.repeat(r.standard_normal((64, 30)).astype(np.float32), run, 1)
    mine = np.cumsum(x, 1, dtype=np.float32)[:, -1]
    call_ = call(self=x)._replace(values={"dim": [1], "keepdim": False})
    pair = Pair(mine, x.astype(np.float64).sum(1).astype(np.float32), F32)
    assert measure(class_of("sum"), "result", pair, call_, call_, equal=True).left <= 1


@pytest.mark.parametrize("error", [3e-5, 1e-3])
@pytest.mark.parametrize("kind", ["normal", "positive", "half zero"])
def test_an_error_of_one_element_is_seen(kind: str, error: float) -> None:
    r = np.random.default_rng(1)
    a, b = (KINDS[kind](r, shape).astype(np.float32) for shape in ((40, 256), (256, 30)))
    golden = a @ b
    mine = golden.copy()
    mine[7, 9] += error * np.abs(a[7]) @ np.abs(b[:, 9])
    op, given_ = class_of("mm"), call(self=a, mat2=b)
    pair = Pair(mine, golden, F32)
    assert by_norms(op, "result", pair, given_) is None
    found = measure(op, "result", pair, given_, given_, equal=True)
    assert found.left > 1 and found.mine > 1 and found.golden <= 1


GEOMETRY = {"stride": [2, 1], "padding": [1, 0], "dilation": [1, 2], "groups": 2,
            "transposed": False, "output_padding": [0, 0], "output_mask": [True] * 3}  # fmt: skip


def convolution() -> dict[str, tuple[Call, np.ndarray]]:
    """A call of a convolution and its results, by IR and output."""
    import torch

    x, w = torch.randn(4, 6, 9, 9), torch.randn(8, 3, 3, 2)
    y = torch.nn.functional.conv2d(x, w, None, (2, 1), (1, 0), (1, 2), 2)
    d = torch.randn(y.shape)
    back = torch.ops.aten.convolution_backward(
        d, x, w, [8], [2, 1], [1, 0], [1, 2], False, [0, 0], 2, [True] * 3
    )
    forward = call(input=x.numpy(), weight=w.numpy())._replace(values=GEOMETRY)
    backward = call(grad_output=d.numpy(), input=x.numpy(), weight=w.numpy())
    backward = backward._replace(values=GEOMETRY)
    return {
        "convolution result": (forward, y.numpy()),
        "convolution_backward result0": (backward, back[0].numpy()),
        "convolution_backward result1": (backward, back[1].numpy()),
    }


@pytest.mark.parametrize("name", convolution())
def test_norms_settle_a_healthy_convolution_and_no_wrong_one(name: str) -> None:
    given_, golden = convolution()[name]
    ir, output = name.split()
    mine = golden + np.float32(1e-7) * np.abs(golden)
    assert by_norms(class_of(ir), output, Pair(mine, golden, F32), given_) is not None
    mine = golden.copy()
    mine[1, 1] += 1e-3
    assert by_norms(class_of(ir), output, Pair(mine, golden, F32), given_) is None


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("name", ["mm", "_softmax", "add", *convolution()])
def test_parts_say_what_the_whole_says(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = np.random.default_rng(3)
    x, y = (r.standard_normal((12, 10)).astype(np.float32) for _ in range(2))
    if name in convolution():
        (ir, output), (given_, golden) = name.split(), convolution()[name]
    else:
        ir, output, given_ = name, "result", call(self=x, other=y[0])
        if name == "mm":
            given_ = call(self=x, mat2=y.T)
        values = {"dim": 1, "alpha": 1}
        given_ = given_._replace(values=values)
        golden = {"mm": x @ y.T, "add": x + y[0]}.get(name)
        if golden is None:
            golden = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    mine = golden * (1 + 1e-6 * r.standard_normal(golden.shape)).astype(np.float32)
    pair = Pair(mine, golden, F32)
    whole = measure(class_of(ir), output, pair, given_, given_, equal=True)
    monkeypatch.setattr("compare.judging.bounds.BLOCK", block)
    found = measure(class_of(ir), output, pair, given_, given_, equal=True)
    assert found.size == whole.size == golden.size
    assert found.left == pytest.approx(whole.left, rel=1e-4)


def test_of_a_very_large_product_the_suspicious_rows_are_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compare.judging.bounds.BUDGET", 4000)
    r = np.random.default_rng(3)
    a, b = (r.standard_normal(shape).astype(np.float32) for shape in ((100, 20), (20, 10)))
    golden, given_ = a @ b, call(self=a, mat2=b)
    mine = golden.copy()
    for wrong in (False, True):
        if wrong:
            mine[77, 3] += 0.1
        pair = Pair(mine + np.float32(1e-7), golden, F32)
        found = measure(class_of("mm"), "result", pair, given_, given_, equal=True)
        assert 0 < found.size < golden.size
        assert (found.left > 1) is wrong


ONE = np.ones((2, 3, 4, 4), np.float32)
HUGE = 1 << 40
POOL = {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil_mode": False}


@pytest.mark.parametrize(
    "ir, arrays, values",
    [
        ("select_backward", {"grad_output": ONE}, {"input_sizes": [HUGE, HUGE], "dim": 0,
                                                   "index": 0}),
        ("select_backward", {"grad_output": ONE}, {"input_sizes": [-1], "dim": 0, "index": 0}),
        ("repeat", {"self": ONE}, {"repeats": [HUGE, 1, 1, 1]}),
        ("constant_pad_nd", {"self": ONE}, {"pad": [0, HUGE]}),
        ("max_pool2d_with_indices", {"self": ONE}, POOL | {"kernel_size": [HUGE, HUGE]}),
        ("max_pool2d_with_indices", {"self": ONE}, POOL | {"padding": [HUGE, 0]}),
        ("avg_pool2d", {"self": ONE}, POOL | {"padding": [HUGE, 0]}),
        ("avg_pool2d", {"self": ONE}, POOL | {"stride": [0, 0]}),
        ("convolution", {"input": ONE, "weight": ONE}, GEOMETRY | {"padding": [HUGE, HUGE]}),
        ("convolution", {"input": ONE, "weight": ONE}, GEOMETRY | {"stride": [0, 0]}),
        ("convolution", {"input": ONE, "weight": ONE}, {}),
        ("embedding_dense_backward", {"grad_output": ONE, "indices": np.arange(2)},
         {"num_weights": HUGE}),
        ("mul", {"self": np.ones((90000, 1), "f4"), "other": np.ones(90000, "f4")}, {}),
        ("sum", {"self": ONE}, {"dim": ["x"]}),
        ("mm", {"self": ONE}, {}),
        ("pow", {"self": ONE}, {"exponent": "x"}),
    ],
)  # fmt: skip
def test_arguments_that_no_op_has_are_refused(ir: str, arrays: dict, values: dict) -> None:
    given_ = call(**arrays)._replace(values=values)
    output = "result0" if "max_pool" in ir else "result"
    with pytest.raises((*UNFIT, MemoryError)):
        measure(class_of(ir), output, Pair(ONE, ONE + 1, F32), given_, given_, equal=True)
