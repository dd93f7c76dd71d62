"""In which order the cube sums: blocks of 16, seen in every bit."""

from __future__ import annotations

import itertools
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import npu_core
from dumper import open_dump
from npu_core import blocks, workers

Array = np.ndarray

# The order of the sums. Numbers are small integers times a power of two that is one for a block:
# a sum of 16 products is then exact in fp32 in any order, and the sum of the blocks is not.


pytestmark = pytest.mark.usefixtures("exact")


@pytest.fixture(params=[None, 700, 1])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is worked on at once, which must not matter: None is as it comes."""
    if request.param:
        monkeypatch.setattr(blocks, "_TILE", request.param)


def small(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-15, 16, shape).astype(np.float64)


def powers(*shape: int) -> Array:
    return np.resize(2.0 ** np.array([10, -14, 9, -13, 8]), shape)


def tensor(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x)).float()


def fold(start: Array, sums: list[Array]) -> Array:
    """Exact sums of blocks, added one after the other with fp32 rounding."""
    acc = start.astype(np.float32)
    for block in sums:
        assert (block.astype(np.float32) == block).all()
        acc = acc + block.astype(np.float32)
    return acc


@pytest.mark.parametrize("k", [15, 16, 17, 32, 200])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 5), (16, 3), (17, 1), (64, 33)])
@pytest.mark.parametrize("profile", ["910A", "910B"])
@pytest.mark.usefixtures("tile")
def test_matrix_products_are_summed_in_blocks_of_16(profile: str, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(k)
    scale = powers(-(-k // 16)).repeat(16)[:k]
    a, b, start = small(rng, m, k) * scale, small(rng, k, n), small(rng, m, n) / 3
    sums = [a[:, i : i + 16] @ b[i : i + 16] for i in range(0, k, 16)]
    expected = torch.from_numpy(fold(start, sums))
    x, y, s = (tensor(t).npu() for t in (a, b, start))
    with npu_core.use(profile):
        assert torch.equal(torch.addmm(s, x, y).cpu(), expected)
        assert torch.equal(torch.addmm(s, x, y.t().contiguous().t()).cpu(), expected)
        assert torch.equal(torch.baddbmm(s[None], x[None], y[None])[0].cpu(), expected)
    if k == 200 and m * n > 1:
        assert not np.array_equal(fold(start, sums[::-1]), expected.numpy())


def test_a_block_is_summed_before_it_is_added() -> None:
    """2**24 + 1 is no fp32 number, 2**24 + 2 is: pairs of ones count, lonely ones do not."""
    for together, expected in ((1, 2.0**24), (2, 2.0**24 + 16)):
        a = torch.zeros(9, 16)
        a[0, 0], a[1:, :together] = 2**12, 1
        b = torch.ones(9, 16)
        b[0, 0] = 2**12
        for rows, columns in ((1, 1), (16, 3), (64, 64)):
            x, y = a.view(1, -1).repeat(rows, 1).npu(), b.view(-1, 1).repeat(1, columns).npu()
            with npu_core.use("910A"):
                assert torch.mm(x, y).unique().tolist() == [expected]


def windows(x: Array, kernel: tuple, stride: int, dilation: int) -> Array:
    """(N, C, *image) as (N, C, *size, *kernel)."""
    rank = len(kernel)
    reach = [(k - 1) * dilation + 1 for k in kernel]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, 2 + rank)))
    steps = [slice(None, None, stride)] * rank + [slice(None, None, dilation)] * rank
    return view[(..., *steps)]


def convolve(x: Array, weight: Array, stride: int, dilation: int) -> Array:
    """Blocks of 16 channels at one kernel position; groups 1, no padding."""
    kernel = weight.shape[2:]
    seen = windows(x, kernel, stride, dilation)
    sums = [
        np.einsum(
            "nc...,oc->no...", seen[(..., *at)][:, c : c + 16], weight[:, c : c + 16][(..., *at)]
        )
        for c in range(0, weight.shape[1], 16)
        for at in itertools.product(*map(range, kernel))
    ]
    assert len(sums) > 2
    result = fold(np.zeros(sums[0].shape), sums)
    assert not np.array_equal(fold(np.zeros(sums[0].shape), sums[::-1]), result)
    return result


GEOMETRIES = [(1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 1, 2)]  # stride, padding, dilation


@pytest.mark.parametrize(("stride", "padding", "dilation"), GEOMETRIES)
@pytest.mark.parametrize("kernel", [(3,), (3, 2), (2, 2, 3)], ids=str)
@pytest.mark.usefixtures("tile")
def test_convolutions_are_summed_in_blocks_of_16(
    kernel: tuple, stride: int, padding: int, dilation: int
) -> None:
    rng, rank, ci, co = np.random.default_rng(0), len(kernel), 20, 35
    move = {"stride": stride, "padding": padding, "dilation": dilation}
    conv = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    back = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    border = [(0, 0)] * 2 + [(padding, padding)] * rank
    x = small(rng, 2, ci, *[8] * rank)
    into = powers(1, 2, *kernel).repeat(16, 1)[:, :ci]  # one for each block of the forward
    weight = small(rng, co, ci, *kernel) * into
    with npu_core.use("910A"):
        result = conv(tensor(x).npu(), tensor(weight).npu(), **move).cpu()
    assert np.array_equal(result.numpy(), convolve(np.pad(x, border), weight, stride, dilation))

    # Gradient of the input: the convolution of the stuffed gradient with the turned kernel.
    weight = small(rng, co, ci, *kernel) * powers(3, 1, *kernel).repeat(16, 0)[:co]
    grad = small(rng, *result.shape)
    leaf = tensor(x).npu().requires_grad_()
    with npu_core.use("910A"):
        conv(leaf, tensor(weight).npu(), **move).backward(tensor(grad).npu())
        rest = [n - (g - 1) * stride - 1 for n, g in zip(x.shape[2:], grad.shape[2:], strict=True)]
        more = [r + 2 * padding - (k - 1) * dilation for r, k in zip(rest, kernel, strict=True)]
        same = back(tensor(grad).npu(), tensor(weight).npu(), output_padding=more, **move)
    reach = [(k - 1) * dilation for k in kernel]
    wide = [n + 2 * padding + r for n, r in zip(x.shape[2:], reach, strict=True)]
    stuffed = np.zeros((*grad.shape[:2], *wide))
    ends = [r + (g - 1) * stride + 1 for r, g in zip(reach, grad.shape[2:], strict=True)]
    inside = [slice(r, e, stride) for r, e in zip(reach, ends, strict=True)]
    stuffed[(..., *inside)] = grad
    turned = np.flip(weight, tuple(range(2, 2 + rank))).swapaxes(0, 1)
    whole = convolve(stuffed, turned, 1, dilation)
    expected = whole[(..., *[slice(padding, padding + n) for n in x.shape[2:]])]
    assert np.array_equal(leaf.grad.cpu().numpy(), expected)
    assert np.array_equal(same.cpu().numpy(), expected)  # a transposed convolution is the same


@pytest.mark.parametrize(("stride", "padding", "dilation"), GEOMETRIES)
@pytest.mark.usefixtures("tile")
def test_weight_gradients_are_summed_in_blocks_of_16_positions(
    stride: int, padding: int, dilation: int
) -> None:
    rng = np.random.default_rng(0)
    x, weight = small(rng, 3, 5, 12, 11), torch.zeros(4, 5, 3, 2).npu().requires_grad_()
    with npu_core.use("910A"):
        out = F.conv2d(tensor(x).npu(), weight, None, stride, padding, dilation)
        count = out[0, 0].numel()
        scale = powers(3, 1, -(-count // 16)).repeat(16, 2)[:, :, :count]
        grad = small(rng, 3, 4, count) * scale
        out.backward(tensor(grad.reshape(out.shape)).npu())
    seen = windows(np.pad(x, [(0, 0)] * 2 + [(padding,) * 2] * 2), (3, 2), stride, dilation)
    seen = seen.reshape(3, 5, count, 3, 2)
    sums = [
        np.einsum("ol,clhw->ochw", grad[n, :, i : i + 16], seen[n, :, i : i + 16])
        for n in range(3)
        for i in range(0, count, 16)
    ]
    expected = fold(np.zeros(weight.shape), sums)
    assert np.array_equal(weight.grad.cpu().numpy(), expected)
    assert not np.array_equal(fold(np.zeros(weight.shape), sums[::-1]), expected)


def test_a_dump_holds_an_op_and_none_of_its_parts(tmp_path, monkeypatch) -> None:
    """A large convolution is shared out to threads of ours, which start inside of the dump."""
    monkeypatch.setattr(workers, "_jobs", SimpleQueue())
    monkeypatch.setattr(workers, "_started", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    path = tmp_path / "x.h5"
    try:
        with npu_core.use("910A"):
            x, w = (torch.ones(shape, device="npu") for shape in ((8, 64, 16, 16), (64, 64, 3, 3)))
            with torch.utils.dumper(use_dump=True, dump_path=path):
                for _ in range(3):
                    F.conv2d(x, w, padding=1)
    finally:
        torch.set_num_threads(before)
    assert workers._started == 1
    with open_dump(path) as dump:
        assert [record.ir for record in dump.records] == ["convolution"] * 3
