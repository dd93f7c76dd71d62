"""Exact values against the whole op in float64: cuts by every rule, any shape, stride and place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from exact_calls import Call, Calls, call, copied, oracle, tensors_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.testing._internal.common_methods_invocations import op_db

from dumper.overflow import exact
from dumper.overflow.exact import elements

aten = torch.ops.aten
HALF = torch.float16
FEW = settings(max_examples=25)

CAST_TO_INTEGER = "_to_copy"
"""Its exact value is the number before its fraction is dropped, which the op itself cannot say."""


def random(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def agrees(made: Call, whole: bool = False, at: int | None = None) -> int:
    """Check elements of all that a call made; how many values were compared.

    whole: whether the op may be run whole. at: one element by number, else some of them.
    """
    expected, compared = oracle(made), 0
    for name, tensor in tensors_of(*made):
        if not tensor.numel():
            continue
        numbers = range(0, tensor.numel(), -(-tensor.numel() // 7)) if at is None else [at]
        places = [torch.unravel_index(torch.tensor(n % tensor.numel()), tensor.shape)
                  for n in numbers]  # fmt: skip
        indices = [tuple(int(i) for i in place) for place in places]
        wanted = expected[name]
        finite = wanted[wanted.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        for index, found in zip(indices, elements(*made, name, indices), strict=True):
            assert found.value is not None, (made.op.ir, name, found.why)
            value = float(wanted[index])
            assert (
                found.value == value
                or math.isnan(found.value)
                and math.isnan(value)
                or abs(found.value - value) <= 1e-9 * scale
            ), (made.op.ir, name, index, found, value)
            compared += 1
    assert compared or not made.op.returns
    return compared


def cut(made: Call, at: int | None = None) -> None:
    """Check a call whose op must not be run whole."""
    original = exact._Call._whole
    exact._Call._whole = lambda self: (None, {}, "it was run whole")
    try:
        agrees(made, at=at)
    finally:
        exact._Call._whole = original


shapes = st.lists(st.integers(1, 4), min_size=0, max_size=4)


@FEW
@given(shape=shapes, data=st.data())
def test_inputs_that_are_broadcast(shape: list[int], data: st.DataObject) -> None:
    def one() -> torch.Tensor:
        drop = data.draw(st.integers(0, len(shape)))
        sizes = [data.draw(st.sampled_from([1, n])) for n in shape[drop:]]
        order = data.draw(st.permutations(range(len(sizes))))
        made = random(*(sizes[axis] for axis in order))
        return made.permute([order.index(axis) for axis in range(len(sizes))])

    at = data.draw(st.integers(0, 255))
    cut(call(aten.addcmul.default, one(), one(), one(), value=3), at)
    cut(call(aten.where.self, one() > 0, one(), one()), at)
    cut(call(aten.mul.Tensor, one().expand(shape), one()), at)


convolutions = st.fixed_dictionaries(
    {
        "rank": st.integers(1, 3),
        "groups": st.integers(1, 3),
        "deep": st.integers(1, 2),
        "wide": st.integers(1, 2),
        "kernel": st.lists(st.integers(1, 3), min_size=3, max_size=3),
        "stride": st.lists(st.integers(1, 3), min_size=3, max_size=3),
        "padding": st.lists(st.integers(0, 2), min_size=3, max_size=3),
        "dilation": st.lists(st.integers(1, 3), min_size=3, max_size=3),
        "extra": st.lists(st.integers(0, 2), min_size=3, max_size=3),
        "transposed": st.booleans(),
    }
)


@settings(max_examples=60)
@given(g=convolutions, at=st.integers(0, 10**6))
def test_convolutions_and_their_gradients(g: dict[str, Any], at: int) -> None:
    rank, groups = g["rank"], g["groups"]
    kernel, stride, padding, dilation = (
        g[name][:rank] for name in ("kernel", "stride", "padding", "dilation")
    )
    if g["transposed"]:
        size = [2 * p + 3 for p in padding]
        extra = [e % max(s, d) for e, s, d in zip(g["extra"][:rank], stride, dilation, strict=True)]
        weight = random(groups * g["deep"], g["wide"], *kernel, dtype=torch.float32)
        x = random(2, groups * g["deep"], *size, dtype=torch.float32)
    else:
        size = [d * (k - 1) + 4 for d, k in zip(dilation, kernel, strict=True)]
        extra = [0] * rank
        weight = random(groups * g["wide"], g["deep"], *kernel, dtype=torch.float32)
        x = random(2, groups * g["deep"], *size, dtype=torch.float32)
    bias = random(groups * g["wide"], dtype=torch.float32)
    geometry = (stride, padding, dilation, g["transposed"], extra, groups)
    made = call(aten.convolution.default, x, weight, bias, *geometry)
    cut(made, at)
    grad = random(*made.result.shape, dtype=torch.float32)
    backward = call(aten.convolution_backward.default, grad, x, weight, [len(bias)], *geometry,
                    [True] * 3)  # fmt: skip
    cut(backward, at)


@FEW
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_rows(shape: list[int], data: st.DataObject) -> None:
    x, at = random(*shape, dtype=torch.float32), data.draw(st.integers(0, 255))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    dims = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    keep = data.draw(st.booleans())
    for made in (
        call(aten.sum.dim_IntList, x, dims, keep), call(aten.amax.default, x, dims, keep),
        call(aten.var_mean.correction, x, dims, correction=0, keepdim=keep),
        call(aten.linalg_vector_norm.default, x, 3, dims, keep), call(aten.max.dim, x, dim, keep),
        call(aten.logsumexp.default, x, dims, keep), call(aten.cumsum.default, x, dim),
        call(aten._softmax.default, x, dim, False), call(aten.sort.default, x, dim),
        call(aten._log_softmax_backward_data.default, x, x * 2, dim, torch.float32),
    ):  # fmt: skip
        cut(made, at)


@FEW
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3), data=st.data())
def test_elements_that_are_moved(shape: list[int], data: st.DataObject) -> None:
    x, at = random(*shape), data.draw(st.integers(0, 255))
    dim = data.draw(st.integers(0, len(shape) - 1))
    rows = torch.tensor(data.draw(st.lists(st.integers(0, shape[dim] - 1), min_size=1)))
    cut(call(aten.index_select.default, x, dim - len(shape), rows), at)
    cut(call(aten.cat.default, [torch.empty(0), x, x * 2, x.narrow(dim, 0, 1)], dim), at)
    cut(call(aten.stack.default, [x, x + 1], dim), at)
    cut(call(aten.gather.default, x, dim, x.argsort(dim)), at)
    cut(call(aten.take.default, x, rows - 1), at)
    cut(call(aten.embedding.default, x.reshape(shape[0], -1), rows % shape[0]), at)
    indices: list[torch.Tensor | None] = []
    for n in shape:
        given_here = data.draw(st.booleans())
        column = torch.tensor([[-1], [0]]) % n
        indices.append(data.draw(st.sampled_from([column, column[0]])) if given_here else None)
    if any(index is not None for index in indices):
        cut(call(aten.index.Tensor, x, indices), at)


def norm_calls() -> list[Call]:
    with Calls() as calls:
        image = random(3, 4, 2, 5, dtype=torch.float32).requires_grad_()
        weight = random(4, dtype=torch.float32).requires_grad_()
        mean, var = torch.zeros(4), torch.ones(4)
        for training in (True, False):
            made = F.batch_norm(image, mean, var, weight, weight, training)
            torch.autograd.grad((made * made).sum(), [image, weight])
        made = F.group_norm(image, 2, weight, weight)
        torch.autograd.grad((made * made).sum(), [image])
        scale = random(2, 5, dtype=torch.float32).requires_grad_()
        made = F.layer_norm(image, (2, 5), scale, scale)
        torch.autograd.grad((made * made).sum(), [image, scale])
    return [made for made in calls.seen if "norm" in made.op.ir]


def test_normalisations() -> None:
    calls = norm_calls()
    assert {made.op.ir for made in calls} == {
        "native_batch_norm", "native_batch_norm_backward", "native_group_norm",
        "native_group_norm_backward", "native_layer_norm", "native_layer_norm_backward",
    }  # fmt: skip
    for made in calls:
        agrees(made) if made.op.ir == "native_group_norm_backward" else cut(made)


@pytest.mark.parametrize("dtype", [HALF, torch.float64])
def test_the_eps_that_a_root_mean_square_takes_on_its_own(dtype: torch.dtype) -> None:
    x = torch.full((2, 4), 1e-3, dtype=dtype)
    made = call(aten._fused_rms_norm.default, x, [4], None, None)
    found = made.at("result0", 1, 2)
    eps = torch.finfo(torch.float32 if dtype is HALF else dtype).eps
    value = x[0, 0].item()
    assert found.value == pytest.approx(value / math.sqrt(value**2 + eps), rel=1e-12)
    assert found.value == pytest.approx(made.result[0][1, 2].item(), rel=1e-3)
    explicit = call(aten._fused_rms_norm.default, x, [4], None, 1e-5)
    cut(explicit)


def test_planes_and_columns() -> None:
    image = random(2, 3, 4, 6, dtype=torch.float32)
    cut(call(aten.max_pool2d_with_indices.default, image, [2, 2]))
    cut(call(aten.avg_pool2d_backward.default, image[:, :, :2, :3], image, [2, 2], [2, 2], [0, 0],
             False, True, None))  # fmt: skip
    cut(call(aten.upsample_bilinear2d.default, image, [7, 5], False))
    cut(call(aten.upsample_nearest2d_backward.default, image, [4, 6], [2, 3, 2, 3]))
    cut(call(aten.reflection_pad2d.default, image, [1, 2, 1, 0]))
    rows = torch.tensor([[1, 4], [1, 0]])
    cut(call(aten.embedding_dense_backward.default, random(2, 2, 3), rows, 5, -1, False))


def test_products_of_every_form() -> None:
    a, b, v = random(3, 4), random(4, 5), random(4)
    batch, other = random(2, 3, 4), random(2, 4, 5)
    for made in (
        call(aten.mm.default, a, b), call(aten.bmm.default, batch, other),
        call(aten.mv.default, a, v), call(aten.addmv.default, random(3), a, v, beta=2),
        call(aten.addmm.default, random(3, 1), a, b), call(aten.addr.default, a, random(3), v),
        call(aten.baddbmm.default, random(5), batch, other, alpha=-1),
        call(aten.addbmm_.default, random(3, 5), batch, other, beta=0.5),
        call(aten.mm.out, a, b, out=torch.empty(3, 5, dtype=HALF)),
        call(aten.linear.default, batch, b.t()),
        call(aten._addmm_activation.default, random(5), a, b),
    ):  # fmt: skip
        cut(made)
    agrees(call(aten.dot.default, v, v))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "added", "bool"])
def test_attention(causal: bool, mask: str | None) -> None:
    query, key = random(2, 3, 5, 8, dtype=torch.float32), random(2, 3, 4, 8, dtype=torch.float32)
    value = random(2, 3, 4, 8, dtype=torch.float32) + 1
    masks = {"added": random(2, 1, 5, 4, dtype=torch.float32), "bool": random(5, 4) > -0.3}
    given_mask = masks.get(mask)
    added = given_mask.float().log() if mask == "bool" else given_mask  # the kernel's own form
    made = call(
        aten._scaled_dot_product_flash_attention_for_cpu.default, query, key, value, 0.0, causal,
        attn_mask=added,
    )  # fmt: skip
    wide = F.scaled_dot_product_attention(
        query.double(), key.double(), value.double(), None if added is None else added.double(),
        is_causal=causal,
    )  # fmt: skip
    for index in [(0, 0, 0, 0), (1, 2, 4, 7), (1, 0, 2, 3)]:
        assert made.at("output", *index).value == pytest.approx(float(wide[index]), rel=1e-9)


def test_an_optimizer_s_step_over_lists() -> None:
    def tensors(scale: float) -> list[torch.Tensor]:
        return [random(3, dtype=torch.float32).abs() * scale, random(2, 2).float().abs() * scale]

    steps = [torch.tensor(3.0), torch.tensor(3.0)]
    made = call(aten._fused_adam_.default, tensors(1), tensors(2), tensors(3), tensors(4), [],
                steps, lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False,
                maximize=False)  # fmt: skip
    cut(made)
    found = made.at("exp_avg_sqs/exp_avg_sqs_1", 1, 1)
    assert found.inputs["grads/grads_1"].index == (1, 1)
    assert found.inputs["state_steps/state_steps_1"].values == (3.0,)
    grads = [torch.full((2, 2), 4e4, dtype=HALF), torch.full((3,), 3.0, dtype=HALF)]
    made = call(aten._amp_foreach_non_finite_check_and_unscale_.default, grads, torch.zeros(1),
                torch.tensor([2.0]))  # fmt: skip
    assert made.at("self/self_0", 1, 0).value == 8e4 and made.at("self/self_1", 2).value == 6


def test_what_only_cuda_has_is_computed_by_its_twin() -> None:
    image, weight = random(2, 3, 4, dtype=torch.float32), random(3, dtype=torch.float32)
    running = torch.zeros(3), torch.ones(3)
    real = call(aten.native_batch_norm.default, image, weight, weight, *running, True, 0.1, 1e-5)
    values = copied([image, weight, weight, torch.zeros(3), torch.ones(3), True, 0.1, 1e-5])
    made = Call(exact.op_of(aten.cudnn_batch_norm.default), values, (*real.result, torch.empty(0)))
    wanted = oracle(real)
    assert made.at("result0", 1, 2, 3).value == pytest.approx(float(wanted["result0"][1, 2, 3]))
    assert made.at("result2", 1).value == pytest.approx(float(wanted["result2"][1]))
    back = call(aten.native_batch_norm_backward.default, image * 2, image, weight, *running,
                *real.result[1:], True, 1e-5, [True] * 3)  # fmt: skip
    values = [image, image * 2, weight, *running, *real.result[1:], 1e-5, torch.empty(0)]
    made = Call(exact.op_of(aten.cudnn_batch_norm_backward.default), values, back.result)
    wanted = oracle(back)
    assert made.at("result0", 0, 1, 2).value == pytest.approx(float(wanted["result0"][0, 1, 2]))
    assert made.at("result1", 2).value == pytest.approx(float(wanted["result1"][2]))


@pytest.mark.parametrize("part", range(4))
def test_torch_s_own_samples(part: int) -> None:
    """Of every ninth operator (all of them agree too, in half a minute)."""
    compared = 0
    for info in op_db[part::36]:
        if torch.float32 not in info.supported_dtypes("cpu"):
            continue
        if info.name.startswith(("jiterator", "nn.functional.ctc_loss")):
            continue  # of CUDA only; returns memory that it has not written
        for sample in list(info.sample_inputs("cpu", torch.float32))[:2]:
            with Calls() as calls:
                info.op(sample.input, *sample.args, **sample.kwargs)
            for made in calls.seen:
                compared += _known(made)
    assert compared > 30


def _known(made: Call) -> int:
    """Check what is known of a call; what is not must say why."""
    compared = 0
    for name, tensor in tensors_of(*made):
        if not tensor.numel():
            continue
        found = made.at(name, *(n - 1 for n in tensor.shape))
        if found.value is None:
            assert found.why
        elif made.op.ir != CAST_TO_INTEGER:
            value = float(oracle(made)[name].reshape(-1)[-1])
            assert found.value == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)
            compared += 1
    return compared
