"""`npu_fusion_attention`: layouts, masks, dropout, gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from formulas import close, random, softmax

from npu_core.ascend import torch_npu

pytestmark = pytest.mark.usefixtures("exact")


B, N, S, T, D = 2, 4, 5, 7, 6  # batch, heads, queries, keys, depth


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, hidden: np.ndarray | None, pse: object):
    scores = 0.3 * (q @ k.swapaxes(-1, -2) + pse)
    if hidden is not None:
        scores = np.where(hidden, -np.inf, scores)
    return softmax(scores) @ v, scores


def packed(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A BNSD tensor in another layout."""
    return {
        "BNSD": lambda: x,
        "BSND": lambda: x.transpose(1, 2).contiguous(),
        "BSH": lambda: x.transpose(1, 2).flatten(2),
        "SBH": lambda: x.permute(2, 0, 1, 3).flatten(2),
    }[layout]()


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("heads", [N, 2, 1])
def test_fusion_attention_in_every_layout(layout: str, heads: int) -> None:
    q, k, v = random(B, N, S, D), random(B, heads, T, D, seed=1), random(B, heads, T, D, seed=2)
    many = [np.repeat(t.cpu().numpy(), N // heads, 1) for t in (k, v)]
    expected, scores = attention(q.cpu().numpy(), *many, None, 0.0)
    out = torch_npu.npu_fusion_attention(
        *(packed(t, layout) for t in (q, k, v)), N, layout, scale=0.3
    )
    assert [type(part) for part in out] == [torch.Tensor] * 4 + [int] * 3
    assert close(out[0], packed(torch.from_numpy(expected), layout).numpy())
    top = scores.max(-1, keepdims=True)
    assert close(out[1], np.repeat(top, 8, -1))
    assert close(out[2], np.repeat(np.exp(scores - top).sum(-1, keepdims=True), 8, -1))
    assert out[4:] == (0, 0, 0)


ROW, COLUMN = np.arange(S)[:, None], np.arange(T)
SPARSE = {
    "given": (0, {}, (ROW + COLUMN) % 3 == 1),
    "all": (1, {}, (ROW + COLUMN) % 3 == 1),
    "upper left": (2, {}, COLUMN > ROW),
    "lower right": (3, {}, COLUMN > ROW + T - S),
    "band": (
        4,
        {"pre_tockens": 2, "next_tockens": 1},
        (COLUMN > ROW + T - S + 1) | (COLUMN < ROW + T - S - 2),
    ),
}


@pytest.mark.parametrize("case", SPARSE)
def test_fusion_attention_masks(case: str) -> None:
    mode, tokens, hidden = SPARSE[case]
    q, k, v = random(B, N, S, D), random(B, N, T, D, seed=1), random(B, N, T, D, seed=2)
    pse = random(B, N, S, T, seed=3)
    mask = torch.from_numpy(hidden).npu()
    given = mask if mode < 2 else torch.ones(8, 8, device="npu").triu(1).bool()

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pse: torch.Tensor) -> torch.Tensor:
        return torch_npu.npu_fusion_attention(
            q, k, v, N, "BNSD", pse, atten_mask=given, scale=0.3, sparse_mode=mode, **tokens
        )[0]

    expected, _ = attention(*(t.cpu().numpy() for t in (q, k, v)), hidden, pse.cpu().numpy())
    assert close(ours(q, k, v, pse), expected)
    small = [t[:1, :1].clone().requires_grad_() for t in (q, k, v, pse)]
    assert torch.autograd.gradcheck(
        lambda *args: torch_npu.npu_fusion_attention(
            *args[:3], 1, "BNSD", args[3], atten_mask=given, scale=0.3, sparse_mode=mode, **tokens
        )[0],
        small,
    )


def test_fusion_attention_of_a_row_with_nothing_left_is_zero() -> None:
    q, k, v = (random(1, 1, 3, 4, seed=i).requires_grad_() for i in range(3))
    mask = torch.zeros(3, 3, dtype=torch.uint8)
    mask[1] = 1
    out = torch_npu.npu_fusion_attention(q, k, v, 1, "BNSD", atten_mask=mask.npu())[0]
    out.sum().backward()
    assert out[0, 0, 1].tolist() == [0] * 4
    assert out[0, 0, 0].abs().sum().item() > 0
    assert q.grad.isfinite().all().item()


def test_fusion_attention_drops_what_it_says() -> None:
    q, k = torch.zeros(1, 1, 64, 4, device="npu"), torch.zeros(1, 1, 64, 4, device="npu")
    v = torch.eye(64, device="npu").view(1, 1, 64, 64)
    torch.manual_seed(5)
    weights, *_, seed, offset, length = torch_npu.npu_fusion_attention(
        q, k, v, 1, "BNSD", keep_prob=0.75
    )
    kept = weights[weights != 0] * 64
    assert torch.allclose(kept.cpu(), torch.full(kept.shape, 1 / 0.75))
    # 4096 draws: within five standard deviations of the share kept
    assert abs(len(kept) / 4096 - 0.75) < 5 * math.sqrt(0.75 * 0.25 / 4096)
    assert (seed, offset, length) == (5, 0, 4096)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"input_layout": "TND"}, RuntimeError, "not emulated"),
        ({"sparse_mode": 5}, RuntimeError, "not emulated"),
        ({"input_layout": "NBSD"}, ValueError, "BNSD, BSND, BSH, SBH"),
        ({"keep_prob": 0.0}, ValueError, "above 0 and at most 1"),
        ({"keep_prob": 1.5}, ValueError, "above 0 and at most 1"),
        ({"sparse_mode": -1}, ValueError, "0 to 4"),
        ({"key": (1, 3, 5, 4), "value": (1, 3, 5, 4)}, ValueError, "head_num=4 in BNSD"),
        ({"head_num": 3}, ValueError, "head_num=3 in BNSD"),
        ({"key": (1, 4, 5, 3)}, ValueError, "head_num=4 in BNSD"),
        ({"input_layout": "BSH"}, ValueError, "needs 3 axes"),
        ({"key": (1, 4, 0, 4), "value": (1, 4, 0, 4)}, ValueError, "none empty"),
        ({"input_layout": "BSH", "query": (1, 5, 9), "key": (1, 5, 8), "value": (1, 5, 8)},
         ValueError, "head_num=4 in BSH"),
        ({"input_layout": "BSH", "query": (1, 5, 8), "key": (1, 5, 7), "value": (1, 5, 8)},
         ValueError, "head_num=4 in BSH"),
        ({"input_layout": "BSH", "query": (1, 5, 8), "key": (1, 5, 1), "value": (1, 5, 8)},
         ValueError, "head_num=4 in BSH"),
    ],
    ids=str,
)  # fmt: skip
def test_fusion_attention_refuses(change: dict, error: type, message: str) -> None:
    given = {name: (1, 4, 5, 4) for name in ("query", "key", "value")}
    given |= {"head_num": 4, "input_layout": "BNSD"} | change
    for name in ("query", "key", "value"):
        given[name] = random(*given[name])
    with pytest.raises(error, match=message):
        torch_npu.npu_fusion_attention(**given)


def test_fusion_attention_refuses_dtypes_that_no_kernel_takes() -> None:
    x = random(1, 1, 2, 4)
    for wrong in (x.int(), x.half()):
        with pytest.raises(ValueError, match="one floating dtype"):
            torch_npu.npu_fusion_attention(x, wrong, x, 1, "BNSD")
    with pytest.raises(ValueError, match="one floating dtype"):
        torch_npu.npu_fusion_attention(x.int(), x.int(), x.int(), 1, "BNSD")
