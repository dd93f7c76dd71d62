"""What is recorded is what was chosen; sequence ids stay those of the full dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import models
import numpy as np
import pytest
import torch
from torch import nn

from dumper import dumper, open_dump
from dumper.choice import Choice, numbers, words
from dumper.reader import Record


def taken(path: Path, run: Callable[[], object], **choice: object) -> list[Record]:
    with dumper(use_dump=True, dump_path=path, **choice):
        run()
    with open_dump(path) as dump:
        assert dump.skipped == []
        return list(dump.records)


def keys(records: list[Record]) -> list[tuple[int, str]]:
    return [(record.seqid, record.ir) for record in records]


FILTERS = {
    "ops": ({"ops": "addmm"}, lambda r: r.ir == "addmm"),
    "ops by pattern": ({"ops": "native_*,gelu"}, lambda r: r.ir.startswith(("native_", "gelu"))
                       and (r.ir != "gelu_backward")),
    "op without overload": ({"ops": ["add"]}, lambda r: r.ir.startswith("add_T")),
    "module": ({"modules": "mlp"}, lambda r: (r.entry.module or "").startswith("mlp")),
    "modules by pattern": ({"modules": "norm?"}, lambda r: (r.entry.module or "")[:4] == "norm"),
    "phases": ({"phases": "backward,grad"}, lambda r: r.phase in ("backward", "grad")),
    "both": (
        {"phases": "forward", "modules": ["mlp.0", "out"]},
        lambda r: r.phase == "forward" and r.entry.module in ("mlp.0", "out"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_takes_a_part_of_the_whole(name: str, tmp_path: Path) -> None:
    choice, wanted = FILTERS[name]
    whole = taken(tmp_path / "whole.h5", models.make("gpt", "cpu"))
    part = taken(tmp_path / "part.h5", models.make("gpt", "cpu"), **choice)
    expected = [r for r in whole if wanted(r) and r.phase not in ("grad", "update")]
    found = [r for r in part if r.phase not in ("grad", "update")]
    assert expected and keys(found) == keys(expected)
    for mine, other in zip(found, expected, strict=True):
        assert {t.name for t in other.inputs} <= {t.name for t in mine.inputs} | set(
            key.partition("/")[2] for key in mine.entry.stubs
        )


@pytest.mark.parametrize("side", ["input", "output"])
def test_one_side_only(side: str, tmp_path: Path) -> None:
    records = taken(tmp_path / "x.h5", models.make("lstm", "cpu"), sides=side)
    kept = [r.inputs if side == "input" else r.outputs for r in records]
    left = [r.outputs if side == "input" else r.inputs for r in records]
    assert any(kept) and not any(left)


LOOP = 5


@pytest.mark.parametrize("steps", [0, [1, 3], "2-3", range(2), None])
def test_steps_of_a_loop(steps: object, tmp_path: Path) -> None:
    step, path = models.make("lstm", "cpu"), tmp_path / "x.h5"
    seen = []
    with dumper(use_dump=True, dump_path=path, steps=steps) as dump:
        for number in range(LOOP):
            seen.append(torch.utils._python_dispatch._len_torch_dispatch_stack())
            step()
            dump.step()
            del number
    wanted = numbers("steps", steps)
    wanted = set(range(LOOP)) if wanted is None else wanted
    with open_dump(path) as opened:
        assert {r.entry.step for r in opened.records} == wanted
        assert opened.finished
    # nothing of torch is changed while no step is wanted
    assert seen == [int(number in wanted) for number in range(LOOP)]


def test_no_value_is_linked_across_an_unseen_step(tmp_path: Path) -> None:
    t, path = torch.ones(3), tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path, steps=(0, 2)) as dump:
        t.exp()
        dump.step()
        t.add_(1)
        dump.step()
        t.exp()
    with open_dump(path) as opened:
        first, second = (r.inputs[0].read() for r in opened.by_ir["exp"])
    assert (first.tolist(), second.tolist()) == ([1.0] * 3, [2.0] * 3)


def test_a_file_a_step(tmp_path: Path) -> None:
    step = models.make("lstm", "cpu")
    with dumper(use_dump=True, dump_path=tmp_path / "s{step}.h5") as dump:
        for _ in range(3):
            step()
            dump.step()
    counts = []
    for number in range(3):
        with open_dump(tmp_path / f"s{number}.h5") as opened:
            assert opened.finished and {r.entry.step for r in opened.records} == {number}
            assert opened.records[0].seqid == 1
            counts.append([r.ir for r in opened.records])
    assert counts[1] == counts[2]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s0.h5", "s1.h5", "s2.h5"]


@pytest.mark.parametrize("limit", [0, 20_000, 10**9])
def test_max_bytes_keeps_records_whole_from_the_start(limit: int, tmp_path: Path) -> None:
    whole = taken(tmp_path / "whole.h5", models.make("gpt", "cpu"))
    path = tmp_path / "part.h5"
    with dumper(use_dump=True, dump_path=path, max_bytes=limit):
        models.make("gpt", "cpu")()
    with open_dump(path) as dump:
        part = list(dump.records)
        # the model is made inside this context: its records come first
        extra = len(part) - len(whole)
        stubs = [any(s.reason == "max_bytes" for s in r.entry.stubs.values()) for r in part]
        first = stubs.index(True) if True in stubs else len(part)
        assert not any(r.inputs or r.outputs for r, s in zip(part, stubs, strict=True) if s)
        assert extra >= 0 and all(r.outputs or r.inputs or r.arguments or r.entry.stubs
                                  for r in part[:first])  # fmt: skip
        size = sum({t.address: t.nbytes for r in part for t in (*r.inputs, *r.outputs)}.values())
        largest = max(t.nbytes for r in whole for t in (*r.inputs, *r.outputs))
        assert size <= limit + 12 * largest
        if limit == 0:
            assert size == 0
        omitted = {reason for _, reason in dump.omitted}
        assert omitted == ({"max_bytes"} if True in stubs else set())
        stub = next((s for r in part for s in r.entry.stubs.values() if s.reason == "max_bytes"),
                    None)  # fmt: skip
        assert stub is None or (stub.dtype and isinstance(stub.shape, tuple))


@pytest.mark.parametrize("level", ["call", "module"])
def test_boundaries_hold_what_crosses_them(level: str, tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTM(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x)[0])

    def recorded(path: Path, **choice: object) -> dict[tuple[int, str, str], np.ndarray]:
        net.zero_grad()
        with dumper(use_dump=True, dump_path=path, **choice):
            net(x).sum().backward()
        with open_dump(path) as dump:
            return {
                (r.seqid, t.side, t.name): t.read()
                for r in dump.records
                for t in (*r.inputs, *r.outputs)
            }

    torch.manual_seed(0)
    net, x = Two(), torch.randn(3, 2, 4)
    whole = recorded(tmp_path / "whole.h5")
    part = recorded(tmp_path / "part.h5", level=level)
    assert 0 < len(part) < len(whole)
    for key, value in part.items():
        if key in whole and value.dtype != np.uint8:  # the LSTM's scratch memory
            np.testing.assert_array_equal(value, whole[key])
    # what enters: the batch and the parameters; what leaves: the loss and the gradients
    stored = list(part.values())

    def has(tensor: torch.Tensor) -> bool:
        return any(s.shape == tuple(tensor.shape) and np.array_equal(s, tensor) for s in stored)

    hidden = net.first(x)[0]
    loss = net.second(hidden).sum()
    assert has(x) and has(hidden.detach()) and has(loss.detach())
    assert has(net.first.weight_ih_l0.detach())
    assert all(has(p.grad) for p in net.parameters())


def test_views_cost_no_data_unless_wanted(device: str, tmp_path: Path) -> None:
    def step() -> None:
        x = torch.ones(4, 6, device=device)
        (x.t()[1:] + 1).t().view(-1).exp()

    skipped = taken(tmp_path / "skip.h5", step)
    dumped = taken(tmp_path / "dump.h5", step, views="dump")
    assert keys(skipped) == keys(dumped)
    for one, other in zip(skipped, dumped, strict=True):
        if one.ir in ("t", "slice_Tensor", "view"):
            assert one.outputs == () and len(other.outputs) == 1
            stub, tensor = one.entry.stubs["output/result"], other.outputs[0]
            assert (stub.dtype, stub.shape, stub.reason) == (tensor.dtype, tensor.shape, "view")
            assert one.entry.values["output/result"] == one.entry.values["input/self"]
        else:
            assert [t.name for t in one.outputs] == [t.name for t in other.outputs]


@pytest.mark.parametrize(
    "wrong",
    [
        {"level": "layer"},
        {"views": "keep"},
        {"phases": "forwards"},
        {"sides": "inputs"},
        {"steps": "1-"},
        {"ranks": "one"},
        {"max_bytes": -1},
        {"max_bytes": "1 GB"},
        {"steps": "5-3"},
        {"steps": -1},
        {"steps": "0-3000000000"},
        {"steps": True},
        {"sides": ""},
        {"ops": [1]},
        {"modules": 3},
        {"estimate": "yes"},
        {"memory": "x"},
    ],
)
def test_unknown_words_are_errors(wrong: dict, tmp_path: Path) -> None:
    name = next(iter(wrong))
    with pytest.raises(RuntimeError, match=name):
        dumper(use_dump=True, dump_path=tmp_path / "x.h5", **wrong)


@pytest.mark.parametrize(
    ("given", "found"),
    [(None, None), (3, {3}), ("0,4-6", {0, 4, 5, 6}), (range(2), {0, 1}), ([7], {7}), ("", set())],
)
def test_numbers(given: object, found: set[int] | None) -> None:
    assert numbers("steps", given) == found


def test_words() -> None:
    assert words("ops", "a, b") == words("ops", ["a", "b"]) == ("a", "b")
    assert words("ops", None) == ()


@pytest.mark.parametrize(
    ("ir", "pattern", "taken_"),
    [
        ("add_Tensor", "add", True),
        ("add__Tensor", "add", False),
        ("addmm", "add", False),
        ("add_Tensor", "add*", True),
        ("mylib_x003a__x003a_op", "mylib::op", True),
    ],
)
def test_patterns_of_ops(ir: str, pattern: str, taken_: bool) -> None:
    assert Choice(ops=(pattern,)).takes(ir, "forward", None) is taken_


def test_other_ranks_record_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    path = tmp_path / "r{rank}.h5"
    with dumper(use_dump=True, dump_path=path, ranks=0):
        torch.ones(2)
    assert list(tmp_path.iterdir()) == []
    with dumper(use_dump=True, dump_path=path, ranks="0-1"):
        torch.ones(2)
    with open_dump(tmp_path / "r1.h5") as dump:
        assert (dump.environment["rank"], dump.environment["world_size"]) == (1, 2)
    monkeypatch.chdir(tmp_path)  # whose path may have a 1 in it, which would be the rank
    with (
        pytest.raises(RuntimeError, match=r"rank 1 of 2.*\{rank\}"),
        dumper(use_dump=True, dump_path="shared.h5"),
    ):
        pass
