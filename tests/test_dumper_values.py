"""Values have numbers that follow them through views and change with writes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import gpt_step
from hypothesis import given
from hypothesis import strategies as st

from dumper import dumper, open_dump
from dumper.reader import Record
from dumper.values import StoredValues, is_blank, key_of, made_blank, seen_again


def recorded(path: Path, run: object, **choice: object) -> list[Record]:
    with dumper(use_dump=True, dump_path=path, **choice):
        run()
    with open_dump(path) as dump:
        return list(dump.records)


def number(record: Record, place: str) -> int:
    return record.entry.values[place]


def test_numbers_lead_from_producer_to_user(device: str, tmp_path: Path) -> None:
    def step() -> None:
        x = torch.ones(2, 3, device=device)
        y = x.exp()
        y.t().sin()
        y.add_(1)
        y.view(-1).cos()

    by_ir = {r.ir: r for r in recorded(tmp_path / "x.h5", step)}
    made = number(by_ir["exp"], "output/result")
    assert number(by_ir["ones"], "output/result") == number(by_ir["exp"], "input/self") != made
    assert number(by_ir["t"], "input/self") == number(by_ir["t"], "output/result") == made
    assert number(by_ir["sin"], "input/self") == number(by_ir["add__Tensor"], "input/self") == made
    written = number(by_ir["add__Tensor"], "output/self")
    assert written != made
    assert number(by_ir["cos"], "input/self") == written


def test_inference_modes_copies_are_no_views(tmp_path: Path) -> None:
    """`reshape` arrives whole there, and copies when it must; its result is then a value."""

    def step() -> None:
        with torch.inference_mode():
            x = torch.ones(2, 3)
            x.reshape(6)
            x.t().reshape(6)

    viewed, copied = [r for r in recorded(tmp_path / "x.h5", step) if r.ir == "reshape"]
    assert viewed.outputs == () and viewed.entry.stubs["output/result"].reason == "view"
    assert [t.shape for t in copied.outputs] == [(6,)]
    assert number(copied, "output/result") != number(copied, "input/self")


WINDOWS = st.tuples(
    st.sampled_from(("rows", "columns", "transposed", "diagonal", "bytes", "all")),
    st.integers(0, 5),
    st.integers(1, 3),
)


def window(tensor: torch.Tensor, kind: str, start: int, step: int) -> torch.Tensor:
    """Some part of a matrix."""
    return {
        "rows": lambda: tensor[start::step],
        "columns": lambda: tensor[:, start::step],
        "transposed": lambda: tensor.t()[start:, ::step],
        "diagonal": lambda: tensor.diagonal(),
        "bytes": lambda: tensor.view(torch.int16)[start:, ::step],
        "all": lambda: tensor,
    }[kind]()


@given(shape=st.tuples(st.integers(1, 5), st.integers(1, 5)), writes=st.lists(WINDOWS, max_size=5),
       read=WINDOWS)  # fmt: skip
def test_blank_is_what_no_write_reached(shape: tuple, writes: list[tuple], read: tuple) -> None:
    values, tensor, truth = StoredValues(), torch.empty(shape), torch.ones(shape)
    made_blank(values.of(tensor), tensor)
    truth.view(torch.int16).fill_(1)
    for write in writes:
        if window(tensor, *write).numel():
            values.written(window(tensor, *write))
            window(truth, *write).fill_(0)
    seen = window(tensor, *read)
    left = np.ascontiguousarray(window(truth, *read).numpy()).view(np.int16)
    assert is_blank(values.of(seen), seen) == bool(left.any())


def test_what_resize_adds_is_blank(tmp_path: Path) -> None:
    def step() -> None:
        t = torch.ones(4)
        t.resize_(2).exp()
        t.resize_(100).sin()
        t[:4].cos()

    found = {r.ir: r for r in recorded(tmp_path / "x.h5", step)}
    flags = {ir: found[ir].inputs[0].uninitialised for ir in ("exp", "sin", "cos")}
    assert flags == {"exp": False, "sin": True, "cos": False}


def test_uninitialised_until_written(device: str, tmp_path: Path) -> None:
    def step() -> None:
        t = torch.empty(4, device=device)
        t.exp()
        t[:2].fill_(1)
        t[:2].sin()
        t[2:].cos()
        t.fill_(1)
        t.tan()

    path = tmp_path / "x.h5"
    found = {r.ir: r for r in recorded(path, step)}
    (made,) = next(r for ir, r in found.items() if ir.startswith("empty")).outputs
    assert made.uninitialised
    flags = {ir: found[ir].inputs[0].uninitialised for ir in ("exp", "sin", "cos", "tan")}
    assert flags == {"exp": True, "sin": False, "cos": True, "tan": False}


VIEWS = {
    "itself": lambda t: t,
    "transposed": lambda t: t.t(),
    "offset": lambda t: t[1:, 2:],
    "strided": lambda t: t[:, ::2],
    "expanded": lambda t: t[:1].expand(5, 4),
    "conjugate": lambda t: torch.complex(t, t).conj(),
    "negative": lambda t: torch.complex(t, t).conj().imag,
}


@pytest.mark.parametrize("taken", [slice(None), slice(1, 3)])
@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_memory_that_is_filled_by_a_pointer_is_read_again(
    device: str, taken: slice, tmp_path: Path
) -> None:
    """As ATen makes small tensors of lists: `empty`, and then no op that anybody sees."""
    with dumper(use_dump=True, dump_path=tmp_path / "d.h5"):
        x = torch.empty(4, device=device)
        for value in (3.0, 5.0):
            numbers = (ctypes.c_float * 4)(*[value] * 4)
            ctypes.memmove(x.data_ptr(), numbers, ctypes.sizeof(numbers))
            torch.exp(x[taken])
    with open_dump(tmp_path / "d.h5") as dump:
        found = [record.inputs[0].read() for record in dump.by_ir["exp"]]
    size = len(range(4)[taken])
    assert [each.tolist() for each in found] == [[3.0] * size, [5.0] * size]


def test_ctc_losss_lengths_are_those_it_divides_by(tmp_path: Path) -> None:
    logits = torch.randn(6, 2, 5).npu().log_softmax(2)
    targets, lengths = torch.tensor([[1, 2], [3, 4]]).npu(), torch.tensor([2, 2])
    with dumper(use_dump=True, dump_path=tmp_path / "d.h5"):
        torch.nn.functional.ctc_loss(logits, targets, torch.tensor([6, 6]), lengths)
    with open_dump(tmp_path / "d.h5") as dump:
        for record in dump.by_ir["_to_copy"]:
            assert np.array_equal(record.inputs[0].read(), record.outputs[0].read())


@pytest.mark.parametrize("view", VIEWS)
def test_a_key_finds_the_tensor_again(view: str, device: str) -> None:
    tensor = VIEWS[view](torch.arange(12.0).reshape(3, 4).to(device))
    again = seen_again(tensor, key_of(tensor, 0))
    assert torch.equal(again, tensor)
    assert key_of(again, 0) == key_of(tensor, 0)


def test_a_dead_storage_is_forgotten() -> None:
    values = StoredValues()
    for _ in range(100):
        tensor = torch.ones(1000)
        storage = values.of(tensor)
        assert values.find(storage, key_of(tensor, 0)) is None
        values.stored(storage, key_of(tensor, 0), "/a/1/output/result")
        assert values.find(storage, key_of(tensor, 0)) is not None
        del tensor
        assert not values._storages


def test_sliding_windows_do_not_pile_up() -> None:
    values, tensor = StoredValues(), torch.ones(5000)
    for start in range(4000):
        window = tensor[start : start + 10]
        values.stored(values.of(window), key_of(window, 0), "/a/1/output/result")
    assert len(values.of(tensor).paths) <= 1024


def test_links_halve_a_training_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value once: at most 0.55 of the file that stores each tensor at each use."""

    def size(name: str) -> int:
        model, step = gpt_step.make(layers=6)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        step(), optimizer.step()
        with dumper(use_dump=True, dump_path=tmp_path / name):
            step(), optimizer.step()
        found = (tmp_path / name).stat().st_size
        (tmp_path / name).unlink()
        return found

    linked = size("linked.h5")
    monkeypatch.setattr(StoredValues, "find", lambda *_: None)
    assert linked <= 0.55 * size("plain.h5")


def test_mapped_weights_are_stored_once(tmp_path: Path) -> None:
    """Memory that may change without an op is compared by its bytes at each use."""
    weight = torch.from_numpy(np.ones((64, 64), np.float32))
    path = tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path):
        weight.exp(), weight.sin()
        weight.numpy()[0, 0] = 7
        weight.cos()
    with open_dump(path) as dump:
        at = {r.ir: r.inputs[0] for r in dump.records}
        assert at["exp"].address == at["sin"].address != at["cos"].address
        assert (at["sin"].read()[0, 0], at["cos"].read()[0, 0]) == (1, 7)
        seen = {r.ir: number(r, "input/self") for r in dump.records}
        assert seen["exp"] == seen["sin"] != seen["cos"]
