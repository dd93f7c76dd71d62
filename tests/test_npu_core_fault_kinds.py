"""The named faults: what each does to a result, by formulas on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from torch.nn import functional

import npu_core
from npu_core.fault_kinds import KINDS


@pytest.fixture(autouse=True, scope="module")
def exact() -> Iterator[None]:
    with npu_core.use("exact"):
        yield


def faulty(op: str, kind: str, run: Callable, *tensors: torch.Tensor, **options) -> torch.Tensor:
    """What `run` of the tensors returns on npu with the fault on `op`, brought to the CPU."""
    with npu_core.fault(op, kind, **options) as fault:
        result = run(*(t.npu() for t in tensors))
    assert fault.applied == [1]
    return result.cpu()


def integers(*shape: int, seed: int = 0, limit: int = 64) -> torch.Tensor:
    """Whole numbers in float32: their products and short sums are exact, in any order."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-limit, limit + 1, shape, generator=generator).float()


def added_in_half(parts: list[np.ndarray]) -> np.ndarray:
    """The sum of the parts in an accumulator that is rounded to fp16 after each."""
    total = np.zeros_like(parts[0])
    with np.errstate(over="ignore"):
        for part in parts:
            total = (total + part).astype(np.float16).astype(np.float32)
    return total


# Kinds that change what an op computes from.

X, W, B = integers(4, 6, limit=8), integers(6, 6, seed=1, limit=8), integers(6, seed=2, limit=8)
IMAGE, KERNEL = integers(2, 3, 5, 5, limit=8), integers(3, 3, 3, 3, seed=1, limit=8)


@pytest.mark.parametrize(
    ("op", "run", "tensors", "without"),
    [
        ("addmm", functional.linear, (X, W, B), functional.linear(X, W)),
        ("addmm.out", lambda b, x, w: torch.addmm(b, x, w, out=torch.empty_like(x)), (B, X, W),
         X @ W),
        ("addmm_", lambda b, x, w: b.addmm_(x, w), (integers(4, 6, seed=3), X, W), X @ W),
        ("baddbmm", torch.baddbmm, (integers(1, 4, 6), X[None], W[None]), (X @ W)[None]),
        ("addmv", torch.addmv, (B, W, B), W @ B),
        ("convolution", functional.conv2d, (IMAGE, KERNEL, B[:3]),
         functional.conv2d(IMAGE, KERNEL)),
        ("native_layer_norm", lambda x, w, b: functional.layer_norm(x, (6,), w, b), (X, B, B),
         functional.layer_norm(X, (6,), B)),
        ("native_batch_norm",
         lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True), (X, B, B),
         functional.batch_norm(X, None, None, B, training=True)),
    ],
)  # fmt: skip
def test_bias_dropped(op: str, run: Callable, tensors: tuple, without: torch.Tensor) -> None:
    torch.testing.assert_close(faulty(op, "bias_dropped", run, *tensors), without)
    assert not torch.allclose(run(*(t.npu() for t in tensors)).cpu(), without)


def test_bias_dropped_of_a_cell_drops_both() -> None:
    cell = torch.nn.LSTMCell(3, 2)
    x = torch.randn(4, 3)
    bare = torch.nn.LSTMCell(3, 2, bias=False)
    bare.load_state_dict({k: v for k, v in cell.state_dict().items() if "weight" in k})
    op, npu = "_thnn_fused_lstm_cell", cell.npu()
    with torch.no_grad():
        found = faulty(op, "bias_dropped", lambda x: npu(x)[0], x)
        torch.testing.assert_close(found, bare(x)[0])


@pytest.mark.parametrize(("eps", "wrong"), [(1e-5, 1e-2), (1e-8, 1e-5), (0.0, 1e-3)])
def test_wrong_epsilon(eps: float, wrong: float) -> None:
    x = torch.linspace(-0.1, 0.1, 12).reshape(2, 6)
    found = faulty(
        "native_layer_norm", "wrong_epsilon", lambda x: functional.layer_norm(x, (6,), eps=eps), x
    )
    torch.testing.assert_close(found, functional.layer_norm(x, (6,), eps=wrong))


def test_wrong_epsilon_where_none_is_given() -> None:
    x = torch.tensor([0.0, 0.5, 1.0])
    assert torch.equal(faulty("logit", "wrong_epsilon", torch.logit, x), torch.logit(x, 1e-3))


@pytest.mark.parametrize(
    ("op", "run", "tensors", "transposed"),
    [
        ("mm", torch.mm, (X, W), X @ W.t()),
        ("mv", torch.mv, (W, B), W.t() @ B),
        ("addmm", torch.addmm, (B, X, W), B + X @ W.t()),
        ("bmm", torch.bmm, (X[None], W[None]), (X @ W.t())[None]),
        ("convolution", functional.conv2d, (IMAGE, KERNEL),
         functional.conv2d(IMAGE, KERNEL.transpose(0, 1))),
    ],
)  # fmt: skip
def test_transposed_weight(op: str, run: Callable, tensors: tuple, transposed: object) -> None:
    assert torch.equal(faulty(op, "transposed_weight", run, *tensors), transposed)


@given(k=st.integers(1, 100), seed=st.integers(0, 99), dtype=st.sampled_from(["float", "double"]))
def test_fp16_accumulation_of_a_product(k: int, seed: int, dtype: str) -> None:
    a, b = integers(3, k, seed=seed), integers(k, 2, seed=seed + 1)
    c = integers(3, 2, seed=seed + 2)
    blocks = [slice(i, i + 16) for i in range(0, k, 16)]
    parts = [a.numpy()[:, i] @ b.numpy()[i] for i in blocks]
    a, b, c = (getattr(t, dtype)() for t in (a, b, c))
    found = faulty("mm", "fp16_accumulation", torch.mm, a, b)
    assert found.dtype == a.dtype
    assert np.array_equal(found, added_in_half(parts))
    parts[0] = parts[0] + c.numpy()  # a bias comes in with the first block
    for op, run in (("addmm", torch.addmm), ("addmm_", lambda c, a, b: c.addmm_(a, b))):
        found = faulty(op, "fp16_accumulation", run, c, a, b)
        assert np.array_equal(found, added_in_half(parts))


def test_fp16_accumulation_is_another_result() -> None:
    ones = torch.ones(1, 4096)
    found = faulty("mm", "fp16_accumulation", torch.mm, ones + 1, ones.t())
    assert found.item() == 8192  # every partial sum is a multiple of 32 below 8192: exact
    found = faulty("sum", "fp16_accumulation", torch.sum, torch.ones(70_000))
    assert found.item() == 32768  # where 16 more is half a unit, and the even one stays


@pytest.mark.parametrize(("profile", "result"), [("910A", 65504), ("910B", math.inf)])
def test_fp16_accumulation_overflows_as_the_chip_does(profile: str, result: float) -> None:
    with npu_core.use(profile):
        large = torch.full((1, 64), 64.0)
        assert faulty("mm", "fp16_accumulation", torch.mm, large, large.t()).item() == result


@given(
    channels=st.sampled_from([1, 3, 16, 20]),
    groups=st.sampled_from([1, 2]),
    transposed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_fp16_accumulation_of_a_convolution(
    channels: int, groups: int, transposed: bool, seed: int
) -> None:
    run = functional.conv_transpose2d if transposed else functional.conv2d
    x = integers(2, channels * groups, 4, 4, seed=seed)
    shape = (channels * groups, 2) if transposed else (2 * groups, channels)
    weight, bias = integers(*shape, 2, 2, seed=seed + 1), integers(2 * groups, seed=seed + 2)
    parts = []
    for first in range(0, channels, 16):
        for tap in np.ndindex(2, 2):
            part = torch.zeros_like(weight)
            for group in range(groups if transposed else 1):
                rows = slice(group * channels + first, group * channels + min(first + 16, channels))
                at = (rows, slice(None), *tap) if transposed else (slice(None), rows, *tap)
                part[at] = weight[at]
            parts.append(run(x, part, groups=groups).numpy())
    parts[0] = parts[0] + bias.numpy()[:, None, None]
    found = faulty(
        "convolution", "fp16_accumulation", lambda *t: run(*t, groups=groups), x, weight, bias
    )
    assert np.array_equal(found, added_in_half(parts))


@pytest.mark.parametrize("wanted", [(True, True, True), (False, True, False), (True, False, True)])
def test_fp16_accumulation_of_a_convolution_backward(wanted: tuple[bool, ...]) -> None:
    x, weight = integers(2, 3, 5, 5), integers(20, 3, 2, 2, seed=1)
    gradient = integers(2, 20, 4, 4, seed=2)
    tensors = [gradient.npu(), x.npu(), weight.npu()]
    with npu_core.fault("convolution_backward", "fp16_accumulation"):
        found = torch.ops.aten.convolution_backward(
            *tensors, [20], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, wanted
        )
    grads = gradient.movedim(1, 0).flatten(1)  # channel by place
    patches = functional.unfold(x, 2).movedim(1, 0).flatten(1)  # weight by place
    blocks = [slice(i, i + 16) for i in range(0, grads.shape[1], 16)]
    expected = [
        [
            functional.conv_transpose2d(gradient[:, i], weight[i])
            for i in (slice(16), slice(16, 20))
        ],
        [(grads[:, i] @ patches[:, i].t()).view(20, 3, 2, 2) for i in blocks],
        [grads[:, i].sum(1) for i in blocks],
    ]
    for asked, result, parts in zip(wanted, found, expected, strict=True):
        if asked:
            assert np.array_equal(result.cpu(), added_in_half([part.numpy() for part in parts]))
        else:
            assert result is None


@given(
    x=arrays(np.float32, array_shapes(max_dims=3, max_side=24), elements=st.integers(-500, 500)),
    data=st.data(),
)
def test_fp16_accumulation_of_a_sum(x: np.ndarray, data: st.DataObject) -> None:
    dims = data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1).map(sorted))
    keep = data.draw(st.booleans())
    flat = np.moveaxis(x, dims, range(-len(dims), 0))
    flat = flat.reshape(*flat.shape[: x.ndim - len(dims)], -1)
    parts = [flat[..., i : i + 16].sum(-1) for i in range(0, flat.shape[-1], 16)]
    found = faulty(
        "sum", "fp16_accumulation", lambda x: x.sum(dims, keepdim=keep), torch.from_numpy(x)
    )
    expected = np.expand_dims(added_in_half(parts), tuple(dims)) if keep else added_in_half(parts)
    assert np.array_equal(found, expected)


# Kinds that change the result.

finite = arrays(
    np.float32, array_shapes(max_dims=4, max_side=5),
    elements=st.floats(-(2.0**127), 2.0**127, width=32),
)  # fmt: skip


def relabelled(kind: str, x: torch.Tensor, **options) -> torch.Tensor:
    """What an op whose sound result is x returns with the fault."""
    return faulty("clone", kind, torch.clone, x, **options)


@given(x=finite, seed=st.integers(0, 1000))
def test_one_element_off(x: np.ndarray, seed: int) -> None:
    found = relabelled("one_element_off", torch.from_numpy(x), seed=seed).numpy()
    (at,) = np.argwhere(found != x)
    largest = np.abs(x).max() or 1
    assert np.isfinite(found).all()
    off = abs(float(found[tuple(at)]) - float(x[tuple(at)]))
    assert off == pytest.approx(largest, rel=1e-6)
    again = relabelled("one_element_off", torch.from_numpy(x), seed=seed).numpy()
    assert np.array_equal(found, again)


@given(x=finite, seed=st.integers(0, 1000))
def test_nan_in_one_element(x: np.ndarray, seed: int) -> None:
    found = relabelled("nan_in_one_element", torch.from_numpy(x), seed=seed).numpy()
    assert np.isnan(found).sum() == 1
    assert (found != x).sum() == 1


def test_a_seed_chooses_the_element() -> None:
    places = {
        relabelled("nan_in_one_element", torch.zeros(50), seed=seed).isnan().nonzero().item()
        for seed in range(20)
    }
    assert len(places) > 5


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_one_element_off_of_what_is_not_finite(value: float) -> None:
    assert relabelled("one_element_off", torch.tensor([value])).tolist() == [0]


@given(
    x=arrays(np.float32, array_shapes(min_dims=2, max_dims=4, min_side=2, max_side=4),
             elements=st.integers(-999, 999), unique=True),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_one_row_swapped(x: np.ndarray, seed: int) -> None:
    found = relabelled("one_row_swapped", torch.from_numpy(x), seed=seed).numpy()
    rows, mine = x.reshape(-1, x.shape[-1]), found.reshape(-1, x.shape[-1])
    moved = (rows != mine).any(1)
    assert moved.sum() == 2
    assert np.array_equal(mine[moved], rows[moved][::-1])


def test_one_row_swapped_takes_rows_that_differ() -> None:
    x = torch.zeros(5, 2)
    x[3] = 1
    for seed in range(5):
        assert relabelled("one_row_swapped", x, seed=seed)[3].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("dtype", "through"),
    [
        (torch.float32, torch.float16),
        (torch.float64, torch.float16),
        (torch.float16, torch.bfloat16),
        (torch.bfloat16, torch.float8_e5m2),
    ],
)
def test_wrong_dtype_cast(dtype: torch.dtype, through: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 50).to(dtype)
    found = relabelled("wrong_dtype_cast", x)
    assert found.dtype == dtype
    assert torch.equal(found, x.to(through).to(dtype))
    assert not torch.equal(found, x)


@given(x=finite)
def test_sign_flip_and_saturate(x: np.ndarray) -> None:
    assert np.array_equal(relabelled("sign_flip", torch.from_numpy(x)), -x)
    half = np.abs(x).max() / 2
    found = relabelled("saturate", torch.from_numpy(x))
    assert np.array_equal(found, np.clip(x, -half, half))


def test_saturate_leaves_nothing_that_is_not_finite() -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 8, -6, 3])
    assert relabelled("saturate", x).tolist() == [4, -4, 0, 4, -4, 3]


def test_stale_buffer_is_the_last_computed_of_the_same_shape_and_dtype() -> None:
    def step(value: float, shape: tuple = (2,), dtype: torch.dtype = torch.float32) -> float:
        return torch.full(shape, value, dtype=dtype).npu().exp2().max().item()

    with npu_core.fault("exp2", "stale_buffer") as fault:
        assert [step(1), step(2), step(3)] == [2, 2, 4]  # of 2, not the stale 2 returned for it
        assert (step(4, (3,)), step(5, dtype=torch.float64)) == (16, 32)
        assert step(6) == 8
    assert fault.applied == [2, 3, 6]
    with pytest.warns(UserWarning, match=r"calls \[1\] were not changed"):
        with npu_core.fault("exp2", "stale_buffer", nth=[1, 3]) as fault:
            assert [step(1), step(2), step(3)] == [2, 4, 4]
    assert fault.applied == [3]


# Which result, and whose memory.


def test_the_first_floating_point_result_is_changed() -> None:
    x = torch.tensor([[1.0, 3.0]], device="npu")
    with npu_core.fault("max.dim", "sign_flip"):
        values, indices = x.max(1)
    assert (values.tolist(), indices.tolist()) == ([-3], [1])
    many = [torch.ones(2, device="npu"), torch.ones(1, device="npu")]
    with npu_core.fault("_foreach_add_", "sign_flip"):
        torch._foreach_add_(many, 1)
    assert [t.tolist() for t in many] == [[-2, -2], [2]]
    with npu_core.fault("_foreach_add", "sign_flip"):
        assert [t.tolist() for t in torch._foreach_add(many, 1)] == [[1, 1], [3]]


def test_results_of_the_caller_are_overwritten() -> None:
    x, out = torch.ones(2, device="npu"), torch.empty(2, device="npu")
    with npu_core.fault("add_", "sign_flip"):
        assert x.add_(1) is x
    with npu_core.fault("add.out", "nan_in_one_element"):
        assert torch.add(x, 1, out=out) is out
    assert x.tolist() == [-2, -2]
    assert out.isnan().sum().item() == 1


def test_kinds_nest() -> None:
    tensors = (B, X, W)
    with npu_core.fault("addmm", "sign_flip") as outer:
        found = faulty("addmm", "bias_dropped", torch.addmm, *tensors)
        assert torch.equal(found, -(X @ W))
        # many runs inside are one call to the fault around which it stands
        found = faulty("addmm", "fp16_accumulation", torch.addmm, *tensors)
        assert torch.equal(found, -torch.addmm(*tensors))
    assert (outer.calls, outer.applied) == (2, [1, 2])


def test_the_layout_of_a_result_is_kept() -> None:
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    for kind in ("one_element_off", "sign_flip", "saturate", "one_row_swapped", "wrong_dtype_cast"):
        assert relabelled(kind, x).stride() == x.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("profile", ["910A", "910B"])
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"wrong_epsilon", "stale_buffer"}))
def test_every_kind_is_another_result_where_numerics_are_emulated(
    kind: str, profile: str, dtype: torch.dtype
) -> None:
    bias, x, weight = (torch.randn(s).to(dtype).npu() for s in ((32,), (4, 32), (32, 32)))
    with npu_core.use(profile):
        sound = torch.addmm(bias, x, weight)
        with npu_core.fault("addmm", kind):
            found = torch.addmm(bias, x, weight)
    assert (found.dtype, found.shape) == (sound.dtype, sound.shape)
    assert not torch.equal(found, sound)
    assert found.isfinite().all().item() is (kind != "nan_in_one_element")


# What does not fit.


@pytest.mark.parametrize(
    ("kind", "op", "fits"),
    [
        ("bias_dropped", "mm", "addmm"),
        ("bias_dropped", "convolution_backward", "convolution"),
        ("bias_dropped", "native_layer_norm_backward", "native_layer_norm"),
        ("bias_dropped", "_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_lstm_cell"),
        ("bias_dropped", "softplus", "addr"),
        ("wrong_epsilon", "native_layer_norm_backward", "native_layer_norm"),
        ("wrong_epsilon", "linspace", "logit"),
        ("transposed_weight", "native_layer_norm", "mm"),
        ("fp16_accumulation", "_addmm_activation", "addmm"),
        ("fp16_accumulation", "mean", "sum"),
        ("fp16_accumulation", "convolution_backward.out", "convolution_backward"),
    ],
)
def test_a_kind_is_refused_where_the_op_lacks_what_it_changes(
    kind: str, op: str, fits: str
) -> None:
    npu_core.fault(fits, kind)
    with pytest.raises(ValueError, match=f"{kind} does not fit {op}, it needs .*arguments of {op}"):
        npu_core.fault(op, kind)


@pytest.mark.parametrize(
    ("kind", "op", "call", "message"),
    [
        ("transposed_weight", "mm", lambda x, w: x.t() @ x[:, :2], "mat2 is 4 x 2"),
        ("transposed_weight", "mm", lambda x, w: x[:, :1] @ w[:1, :1], "mat2 is 1 x 1"),
        ("bias_dropped", "convolution", lambda x, w: functional.conv1d(x[None], w[:, :4, None]),
         "this call has no bias"),
        ("bias_dropped", "addmm", lambda x, w: torch.addmm(x, x, w, beta=0), "beta is 0"),
        ("one_row_swapped", "mm", lambda x, w: x[:1] @ w, "no two rows differ"),
        ("one_row_swapped", "mv", lambda x, w: w.mv(x[0]), "no two rows differ"),
        ("sign_flip", "argmax", lambda x, w: x.argmax(), "no floating-point numbers"),
        ("sign_flip", "mm", lambda x, w: x[:0] @ w, "no floating-point numbers"),
        ("stale_buffer", "argmax", lambda x, w: x.argmax(), "no floating-point numbers"),
        ("fp16_accumulation", "sum", lambda x, w: x.int().sum(), "self is torch.int32"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_changed_is_an_error(
    kind: str, op: str, call: Callable, message: str
) -> None:
    x, w = X.npu(), W.npu()
    with pytest.raises(RuntimeError, match=rf"fault on {op}\.\w+: .*{message}"):
        with npu_core.fault(op, kind):
            call(x, w)


def test_epsilon_of_batch_norm_is_read_in_evaluation_only() -> None:
    x = X.npu().requires_grad_()
    mean, var = torch.zeros(6).npu(), torch.ones(6).npu()
    op = "native_batch_norm_backward"
    with npu_core.fault(op, "wrong_epsilon") as fault:
        functional.batch_norm(x, mean, var, eps=1e-3).sum().backward()
    assert fault.applied == [1]
    torch.testing.assert_close(x.grad.cpu(), torch.full_like(X, 2**-0.5))  # (1 + 1e-3 * 1000)
    with pytest.raises(RuntimeError, match="in training"), npu_core.fault(op, "wrong_epsilon"):
        functional.batch_norm(x, mean, var, training=True).sum().backward()
