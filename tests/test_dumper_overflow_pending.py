"""Devices that must not be waited for: the same events as where every op is looked at at once.

No such device is needed for most of it: the CPU's tensors are held and looked at in batches, too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dumper import dumper, open_dump
from dumper.overflow import pending, proof, vanished, watch

HALF = torch.float16


def product_then_norm() -> None:
    a = torch.full((4, 16), 100.0, dtype=HALF)
    b = torch.full((16, 4), 60.0, dtype=HALF)
    F.layer_norm((a @ b) * 0.5, (4,)).sum()


def hidden_by_where() -> None:
    x = torch.tensor([1.0, 100.0], requires_grad=True)
    y = torch.exp(x) * torch.zeros(2)
    torch.where(y.isnan(), torch.zeros(()), y).sum().backward()


def masked_softmax() -> None:
    scores = torch.randn(2, 4, requires_grad=True)
    mask = torch.tensor([[False] * 4, [True] * 4])
    torch.softmax(scores.masked_fill(mask, float("-inf")), -1).sum().backward()


def overwritten_since() -> None:
    x = torch.tensor([300.0, 2.0], dtype=HALF)
    for _ in range(3):
        x.mul_(x)
    x.zero_()


def optimizer_of_large_gradients() -> None:
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1e38, momentum=0.9)
    for _ in range(4):
        weight.grad = torch.full((4,), 3.0)
        optimizer.step()


def in_lists() -> None:
    torch._foreach_mul_([torch.full((2,), 2.0 * i, dtype=HALF) for i in range(4)], 20000.0)


SCENES = [
    product_then_norm, hidden_by_where, masked_softmax, overwritten_since,
    optimizer_of_large_gradients, in_lists,
]  # fmt: skip


def events(path: Path, run: Callable[[], None]) -> list:
    torch.manual_seed(0)
    with dumper(check_overflow=True, dump_path=path) as dump:
        run()
    return [
        (e.kind, e.ir, e.seqid, e.output, e.index, repr(e.value), repr(e.stored), e.inputs,
         e.producer, e.again, e.masked_by)
        for e in dump.overflows
    ]  # fmt: skip


def records(path: Path) -> list:
    with open_dump(path) as dump:
        return [
            (r.path, [(t.name, t.bits().tobytes()) for t in (*r.inputs, *r.outputs)])
            for r in dump.records
        ]


@pytest.mark.parametrize("run", SCENES, ids=lambda run: run.__name__)
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_the_same_events_and_the_same_file(run, batch, tmp_path, monkeypatch):
    once, late = tmp_path / "once.h5", tmp_path / "late.h5"
    expected = events(once, run)
    assert any(event[0] in ("created", "saturated") for event in expected)
    for module in (pending, watch, vanished, proof):
        monkeypatch.setattr(module, "is_immediate", lambda tensor: False)
    monkeypatch.setattr(pending, "_BATCH", batch)
    assert repr(events(late, run)) == repr(expected)
    assert records(late) == records(once)


def test_what_is_held_is_bounded(tmp_path, monkeypatch):
    """Results wait for the device until so many bytes of them do."""
    monkeypatch.setattr(watch, "is_immediate", lambda tensor: False)
    monkeypatch.setattr(pending, "_BATCH_BYTES", 4000)
    held = []
    take = pending.Pending._take

    def counted(self, batch):
        held.append(sum(pending._bytes(look) for look in batch.looks))
        take(self, batch)

    monkeypatch.setattr(pending.Pending, "_take", counted)
    with dumper(check_overflow=True, dump_path=tmp_path / "o.h5"):
        for _ in range(20):
            torch.ones(300) * 2  # 1200 bytes each, and those of the ones
    assert max(held) <= 4000 + 1200 and sum(held) == 40 * 1200


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_no_host_synchronisation_per_op(tmp_path):
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 64, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", HALF):
            loss = model(x).float().pow(2).mean()
        loss.backward()
        optimizer.step()

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with dumper(check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert dump.overflows == [] and len(dump.ranges) > 20
