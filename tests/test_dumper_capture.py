"""Capture changes nothing and misses nothing, on every device and family."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import families
import models
import numpy as np
import pytest
import torch
from digits_resnet import Step
from recorders import Ops
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import npu_core
from dumper import dumper, open_dump
from dumper.ops import op_of
from dumper.record import tensors_in
from dumper.tensors import bits_of

FAMILIES = pytest.mark.parametrize("family", models.FAMILIES)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.stride() == other.stride()
        and np.array_equal(bits_of(one), bits_of(other))
    )


def record(path: Path, run: Any) -> list:
    """Run under the dumper and return every record's (ir, inputs, outputs) with values read."""
    with dumper(use_dump=True, dump_path=path):
        run()
    with open_dump(path) as dump:
        assert dump.skipped == []
        return [
            (
                r.ir,
                {t.name: t.read() for t in r.inputs},
                {t.name: t.read() for t in r.outputs},
            )
            for r in dump.records
        ]


@FAMILIES
@pytest.mark.parametrize("optimizer", [models.sgd, models.adamw, models.adamw_foreach])
def test_invisible(family: str, optimizer: Any, device: str, tmp_path: Path) -> None:
    plain, dumped = (models.make(family, device, optimizer) for _ in range(2))
    plain_losses = [plain() for _ in range(2)]
    state = torch.get_rng_state()
    torch.set_rng_state(state)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        losses = [dumped() for _ in range(2)]
    assert all(map(same, plain_losses, losses))
    before, after = plain.state(), dumped.state()
    assert before.keys() == after.keys()
    assert [name for name in before if not same(before[name], after[name])] == []
    assert torch.equal(torch.get_rng_state(), state)


def digest(bits: np.ndarray) -> str:
    return hashlib.sha1(bits.tobytes()).hexdigest()


def copies(tensor: torch.Tensor) -> list[str]:
    """Digests of a tensor's bits, or of its parts' bits, copied now."""
    if tensor.layout is torch.sparse_coo:
        return [*copies(tensor._indices()), *copies(tensor._values())]
    return [digest(bits_of(tensor.clone()))]


class BruteForce(TorchDispatchMode):
    """Above the dumper: looks at every op's tensors before and after, the naive and certain way."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[str], list[str]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        if func.namespace == "profiler":
            return func(*args, **(kwargs or {}))
        op = op_of(func)
        values = op.bind(args, kwargs or {})
        with _disable_current_modes():
            before = [c for v in values for t in tensors_in(v) for c in copies(t)]
        result = func(*args, **(kwargs or {}))
        with _disable_current_modes():
            results = result if isinstance(result, (tuple, list)) else [result]
            after = [c for t in results for t in tensors_in(t) for c in copies(t)]
            silent = [t for i in op.silent_outputs for t in tensors_in(values[i])]
            after += [c for t in silent for c in copies(t)]
        self.seen.append((op.ir, before, after))
        return result


@FAMILIES
def test_every_op_with_its_values(family: str, device: str, tmp_path: Path) -> None:
    step = models.make(family, device)
    check_every_value(lambda: (step(), step()), tmp_path / "x.h5")


@pytest.mark.parametrize("family", families.FAMILIES)
def test_no_link_is_wrong(family: str, tmp_path: Path) -> None:
    check_every_value(families.make(family, "cpu"), tmp_path / "x.h5")


def check_every_value(run: Any, path: Path) -> None:
    """Every stored value is what a copy at that moment was, and no op is missing."""
    brute = BruteForce()
    with dumper(use_dump=True, dump_path=path, views="dump"), brute:
        run()
    with open_dump(path) as dump:
        ops = [record for record in dump.records if record.phase not in ("grad", "update")]
        assert [record.ir for record in ops] == [ir for ir, _, _ in brute.seen]
        assert [r.seqid for r in dump.records] == list(range(1, len(dump.records) + 1))
        assert {record.phase for record in ops} == {"forward", "backward", "optimizer"}
        for entry, (ir, before, after) in zip(ops, brute.seen, strict=True):
            for stored, copies in ((entry.inputs, before), (entry.outputs, after)):
                assert sorted(digest(t.bits()) for t in stored) == sorted(copies), (ir, entry.path)


def test_unchanged_values_are_links(device: str, tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path):
        a = torch.ones(4, device=device)
        b = a + 1
        c = b * a
        b.add_(c)
        b * a
    with open_dump(path) as dump:
        at = {
            (r.ir, r.seqid, t.side, t.name): t.address
            for r in dump.records
            for t in (*r.inputs, *r.outputs)
        }
    ones, plus = at["ones", 1, "output", "result"], at["add_Tensor", 2, "output", "result"]
    assert at["add_Tensor", 2, "input", "self"] == ones
    assert (at["mul_Tensor", 3, "input", "self"], at["mul_Tensor", 3, "input", "other"]) == (
        plus,
        ones,
    )
    written = at["add__Tensor", 4, "output", "self"]
    assert at["add__Tensor", 4, "input", "self"] == plus != written
    assert (at["mul_Tensor", 5, "input", "self"], at["mul_Tensor", 5, "input", "other"]) == (
        written,
        ones,
    )


def test_batch_norm_writes_what_its_schema_hides(device: str, tmp_path: Path) -> None:
    norm = torch.nn.BatchNorm1d(3).to(device)
    x = torch.arange(12.0).reshape(4, 3).to(device)
    records = record(tmp_path / "x.h5", lambda: (norm(x), norm(x)))
    first, second = [r for r in records if r[0] == "native_batch_norm"]
    assert not np.array_equal(first[1]["running_mean"], first[2]["running_mean"])
    np.testing.assert_array_equal(first[2]["running_mean"], second[1]["running_mean"])
    np.testing.assert_array_equal(second[2]["running_mean"], norm.running_mean.cpu().numpy())


@pytest.mark.parametrize("shared", ["numpy before", "numpy after", "from_numpy"])
def test_numpy_writes_are_seen(shared: str, tmp_path: Path) -> None:
    array = np.ones(3, np.float32)
    t = torch.from_numpy(array) if shared == "from_numpy" else torch.ones(3)
    if shared == "numpy before":
        array = t.numpy()

    def step() -> None:
        t.exp()
        (t.numpy() if shared == "numpy after" else array)[:] = 5
        t.exp()

    records = record(tmp_path / "x.h5", step)
    first, second = (inputs["self"].tolist() for ir, inputs, _ in records if ir == "exp")
    assert (first, second) == ([1.0] * 3, [5.0] * 3)


IN_PLACE = {
    "add_": lambda t: t.add_(1),
    "copy_": lambda t: t.copy_(torch.full((4,), 7.0, device=t.device)),
    "index_put_": lambda t: t.index_put_((torch.tensor([1], device=t.device),), t.new_zeros(1)),
    "out=": lambda t: torch.add(t.new_ones(4), 5, out=t),
    "slice": lambda t: t[1:3].fill_(9),
    "foreach": lambda t: torch._foreach_mul_([t], 3.0),
    "data": lambda t: t.data.mul_(2),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_input_before_and_output_after(name: str, device: str, tmp_path: Path) -> None:
    t = torch.tensor([1.0, 2.0, 3.0, 4.0]).to(device)
    before = t.cpu().numpy().copy()
    records = record(tmp_path / "x.h5", lambda: (t.exp(), IN_PLACE[name](t), t.exp()))
    exps = [r for r in records if r[0] == "exp"]
    np.testing.assert_array_equal(exps[0][1]["self"], before)
    np.testing.assert_array_equal(exps[1][1]["self"], t.cpu().numpy())
    assert not np.array_equal(before, t.cpu().numpy())
    writing = next(r for r in records if op_writes(r[0]))
    key = next(k for k in writing[2] if k in writing[1])
    assert not np.array_equal(writing[1][key], writing[2][key])


def op_writes(ir: str) -> bool:
    from dumper.ops import overload_named

    return bool(op_of(overload_named(ir)).written)


LAYOUTS = {
    "0-d": lambda t: t.sum(),
    "empty": lambda t: t[:0],
    "transposed": lambda t: t.t(),
    "offset": lambda t: t[1:, 2:],
    "strided": lambda t: t[:, ::2],
    "expanded": lambda t: t[:1].expand(5, 6),
    "split": lambda t: t.split(2, dim=1)[1],
    "channels_last": lambda t: t.reshape(1, 2, 2, 6).contiguous(memory_format=torch.channels_last),
    "unfold": lambda t: t.unfold(1, 3, 1),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_stored_value_is_the_contiguous_one(name: str, device: str, tmp_path: Path) -> None:
    t = LAYOUTS[name](torch.arange(24.0).reshape(4, 6).to(device))
    records = record(tmp_path / "x.h5", lambda: t.neg())
    np.testing.assert_array_equal(records[0][1]["self"], t.cpu().contiguous().numpy())
    with open_dump(tmp_path / "x.h5") as dump:
        stored = dump.records[0].inputs[0]
        assert stored.live_stride == (None if t.is_contiguous() else t.stride())
        assert stored.stride == torch.empty(t.shape).stride()


DTYPES = [
    getattr(torch, name)
    for name in (
        "float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 bool uint8 int8 int16 int32 "
        "int64 uint16 complex64 complex128 complex32"
    ).split()
]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (2, 3)])
def test_bits_survive(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    size = torch.empty(shape, dtype=dtype).nbytes
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (size,), dtype=torch.uint8)
    t = raw.view(dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        torch.clone(t)
    with open_dump(tmp_path / "x.h5") as dump:
        (stored,) = dump.records[0].inputs
        assert (stored.dtype, stored.shape) == (str(dtype).removeprefix("torch."), shape)
        assert stored.bits().tobytes() == raw.numpy().tobytes()


@pytest.mark.parametrize("flag", ["conj", "neg"])
def test_lazy_views_are_resolved(flag: str, device: str, tmp_path: Path) -> None:
    z = torch.tensor([1 + 2j, 3 - 4j]).to(device)
    z = z.conj() if flag == "conj" else z.conj().imag
    records = record(tmp_path / "x.h5", lambda: torch.exp(z))
    taken = [r for r in records if r[0] == "exp"][0][1]["self"]
    np.testing.assert_array_equal(taken, z.cpu().resolve_conj().resolve_neg().numpy())


def test_foreach_still_bumps_versions(device: str, tmp_path: Path) -> None:
    def backward() -> None:
        w = torch.ones(3, device=device, requires_grad=True)
        y = (w * w).sum()
        with torch.no_grad():
            torch._foreach_add_([w], 1.0)
        y.backward()

    message = "modified by an inplace operation"
    with pytest.raises(RuntimeError, match=message):
        backward()
    with (
        pytest.raises(RuntimeError, match=message),
        dumper(use_dump=True, dump_path=tmp_path / "x.h5"),
    ):
        backward()


def test_an_error_of_the_model_is_the_models(device: str, tmp_path: Path) -> None:
    a, b = torch.ones(2, 3, device=device), torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError) as plain:
        torch.mm(a, b)
    with (
        pytest.raises(RuntimeError) as dumped,
        dumper(use_dump=True, dump_path=tmp_path / "x.h5"),
    ):
        a.exp()
        torch.mm(a, b)
    assert str(plain.value) == str(dumped.value)
    with open_dump(tmp_path / "x.h5") as dump:
        assert [(r.ir, len(r.outputs)) for r in dump.records] == [("exp", 1), ("mm", 0)]


def test_records_of_two_contexts_are_apart(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = record(tmp_path / "1.h5", lambda: torch.ones(2).exp())
        torch.ones(2).sin()
        second = record(tmp_path / "2.h5", lambda: torch.ones(2).cos())
    assert [r[0] for r in first] == ["ones", "exp"]
    assert [r[0] for r in second] == ["ones", "cos"]


def test_storages_stay_resizable(device: str, tmp_path: Path) -> None:
    """Reading a tensor through `.numpy()` would forbid torch to resize it ever after."""
    out = torch.empty(0, device=device)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        torch.exp(torch.zeros(3, device=device), out=out)
    torch.exp(torch.zeros(5, device=device), out=out.resize_(0))
    assert out.tolist() == [1.0] * 5


def test_zero_tensors_are_zeros(device: str, tmp_path: Path) -> None:
    """Autograd's zero tensors have no memory; what is recorded is their value."""
    y = torch.ones(3, device=device, requires_grad=True)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        torch.sgn(y).sum().backward()
    assert (y.grad + 0).tolist() == [0.0] * 3
    with open_dump(tmp_path / "x.h5") as dump:
        (zeros,) = dump.by_ir["_efficientzerotensor"][0].outputs
        assert zeros.read().tolist() == [0.0] * 3


def test_batch_norms_that_hide_their_writes(tmp_path: Path) -> None:
    x, mean, var = torch.randn(4, 2), torch.zeros(2), torch.ones(2)

    def step() -> None:
        mean + 0
        torch.batch_norm_update_stats(x, mean, var, 0.1)
        mean + 0

    records = record(tmp_path / "x.h5", step)
    first, second = (inputs["self"] for ir, inputs, _ in records if ir == "add_Tensor")
    assert first.tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(second, mean.numpy())


def test_version_counters_are_the_same(device: str, tmp_path: Path) -> None:
    def versions(path: Path | None) -> list[int]:
        w, v = torch.ones(3, device=device), torch.ones(2, device=device)
        with dumper(enabled=path is not None, use_dump=True, dump_path=path):
            torch._foreach_add_([w, v], 1.0)
            w.mul_(2)
            torch._foreach_mul_([w], 3.0)
        return [w._version, v._version]

    assert versions(tmp_path / "x.h5") == versions(None)


class Weight(torch.nn.Parameter):
    """A parameter class of a user's own."""


def test_plain_subclasses_are_stored(device: str, tmp_path: Path) -> None:
    w = Weight(torch.ones(3, 3, device=device))
    records = record(tmp_path / "x.h5", lambda: torch.mm(torch.ones(3, 3, device=device), w))
    assert records[-1][1]["mat2"].tolist() == [[1.0] * 3] * 3


def test_the_users_own_modes_see_none_of_our_work(device: str, tmp_path: Path) -> None:
    seen = []
    for enabled in (False, True):
        x = torch.ones(3, 2, device=device).t()
        with (
            Ops() as mode,
            dumper(enabled=enabled, use_dump=True, dump_path=tmp_path / "x.h5"),
        ):
            (x * 2).sum()
        seen.append(mode.seen)
    assert seen[0] == seen[1]
    with open_dump(tmp_path / "x.h5") as dump:
        assert [r.ir for r in dump.records] == ["mul_Tensor", "sum"]


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_the_demos_step_is_unchanged(device: str, tmp_path: Path) -> None:
    """On the 910A too, whose convolutions narrow their operands."""
    with npu_core.use("910A"):
        plain, dumped = Step(device), Step(device)
        loss = plain()
        with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
            assert same(loss, dumped())
        pairs = zip(plain.model.parameters(), dumped.model.parameters(), strict=True)
        for one, other in pairs:
            assert same(one.detach(), other.detach()) and same(one.grad, other.grad)
        buffers = zip(plain.model.buffers(), dumped.model.buffers(), strict=True)
        assert all(same(one, other) for one, other in buffers)


@pytest.mark.parametrize("memory", [0, 100, 1000, 10**6])
def test_copies_are_made_in_parts(memory: int, device: str, tmp_path: Path) -> None:
    t = torch.arange(6000.0).reshape(20, 300).to(device)
    path = tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path, memory=memory):
        t.t().neg()
        t[:, ::2].exp()
        torch.complex(t, t).conj().sin()
    with open_dump(path) as dump:
        assert dump.omitted == ()
        at = {r.ir: r for r in dump.records}
        np.testing.assert_array_equal(at["neg"].inputs[0].read(), t.cpu().t())
        np.testing.assert_array_equal(at["exp"].inputs[0].read(), t.cpu()[:, ::2])
        taken = next(i for r in dump.records if r.ir in ("sin", "clone") for i in r.inputs)
        np.testing.assert_array_equal(taken.read(), torch.complex(t, t).conj().cpu().resolve_conj())
