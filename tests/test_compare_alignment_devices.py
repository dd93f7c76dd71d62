"""Alignment of runs that expand calls differently: devices, fused ops, optimizers, autocast."""

from collections import Counter

import models
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import dumper  # noqa: F401 - brings torch.utils.dumper
import npu_core
from compare.alignment import align
from dumper.layout import VALUES
from dumper.reader import open_dump


def dumped(path, step):
    """The records of what `step` runs."""
    with torch.utils.dumper(use_dump=True, dump_path=str(path)):
        step()
    with open_dump(path) as dump:
        return dump.records


def adamw(**options):
    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, **options)


def gpt(optimizer=None):
    return models.make("gpt", "cpu", optimizer or adamw(foreach=False))


def names(records):
    return Counter(record.ir for record in records)


def of(matches, kind):
    return [match for match in matches if match.kind == kind]


def calls(records, phase):
    return {(r.entry.step, r.entry.api) for r in records if r.phase == phase and r.entry.api}


@pytest.mark.parametrize("family", ["gpt", "lstm", "resnet"])
def test_every_call_is_paired_between_devices(tmp_path, family):
    cpu = dumped(tmp_path / "cpu.h5", models.make(family, "cpu"))
    with npu_core.use("exact"):
        npu = dumped(tmp_path / "npu.h5", models.make(family, "npu"))
    matches = align(npu, cpu)
    for phase in ("forward", "backward", "optimizer"):
        paired = set()
        for match in matches:
            if match.mine and match.golden:
                paired |= calls(match.mine, phase) & calls(match.golden, phase)
        assert paired == calls(cpu, phase) == calls(npu, phase)
    ops = of(matches, "op")
    assert all(m.confidence == "high" for m in (*ops, *of(matches, "call")))
    assert all(m.mine[0].entry.api == m.golden[0].entry.api for m in ops)
    values = [m for m in ops if m.mine[0].phase in VALUES]
    assert len(values) == sum(record.phase in VALUES for record in cpu)
    if family == "resnet":
        assert of(matches, "call") == []
    else:
        assert {m.mine[0].phase for m in of(matches, "call")} == {"forward", "backward"}


def test_attention_of_two_kinds_is_one_call(tmp_path):
    flash = dumped(tmp_path / "flash.h5", gpt())
    with sdpa_kernel(SDPBackend.MATH):
        mathematics = dumped(tmp_path / "math.h5", gpt())
    matches = align(flash, mathematics)
    found = of(matches, "call")
    assert [m.mine[0].phase for m in found] == ["forward", "backward"]
    api = "torch.nn.functional.scaled_dot_product_attention.0"
    for match in found:
        inside = [r for r in (*match.mine, *match.golden)]
        assert {r.entry.api for r in inside} == {api}
        assert not set(names(match.mine)) >= set(names(match.golden))
    rest = [m for m in matches if m.kind != "call" and m.mine]
    assert {m.kind for m in rest} == {"op"}


def test_an_op_over_a_list_faces_one_op_a_tensor(tmp_path):
    loop = dumped(tmp_path / "loop.h5", gpt(adamw(foreach=False)))
    lists = dumped(tmp_path / "lists.h5", gpt(adamw(foreach=True)))
    for matches, turned in ((align(lists, loop), False), (align(loop, lists), True)):
        groups = of(matches, "group")
        sides = [(m.golden, m.mine) if turned else (m.mine, m.golden) for m in groups]
        assert {one[0].ir for one, _ in sides} == {
            record.ir for record in lists if record.ir.startswith("_foreach")
        }
        for one, many in sides:
            members = [t for t in one[0].inputs if t.name.startswith("self/")]
            assert len(one) == 1 and len(many) == len(members)
            for record, tensor in zip(many, sorted(members, key=place), strict=True):
                assert tensor.shape in {t.shape for t in record.inputs}


def place(tensor):
    return int(tensor.name.rpartition("_")[2])


@pytest.mark.parametrize("foreach", [True, False])
def test_a_fused_optimizer_faces_all_that_the_other_does(tmp_path, foreach):
    fused = dumped(tmp_path / "fused.h5", gpt(adamw(fused=True)))
    other = dumped(tmp_path / "other.h5", gpt(adamw(foreach=foreach)))
    matches = align(fused, other)
    (group,) = [m for m in of(matches, "group") if m.mine[0].ir == "_fused_adamw_"]
    wanted = {"_foreach_addcdiv__ScalarList"} if foreach else {"addcdiv_", "sqrt", "lerp__Scalar"}
    assert wanted <= set(names(group.golden))
    assert {r.phase for r in group.golden} == {"optimizer"}
    left = [r for m in of(matches, "extra") for r in m.golden if "add" in r.ir]
    assert left == []


def test_casts_of_autocast_are_extra_and_change_nothing_else(tmp_path):
    plain = dumped(tmp_path / "plain.h5", gpt())
    with torch.autocast("cpu", torch.bfloat16):
        cast = dumped(tmp_path / "cast.h5", gpt())
    matches = align(cast, plain)
    extra = of(matches, "extra")
    assert names(r for m in extra for r in m.mine) == {
        "_to_copy": names(cast)["_to_copy"] - names(plain)["_to_copy"]
    }
    assert [m for m in extra if m.golden] == []
    for match in of(matches, "op"):
        assert match.mine[0].entry.api == match.golden[0].entry.api
        assert match.mine[0].ir == match.golden[0].ir


class Written(nn.Module):
    """Linear layers and SiLU, as one call each or written out."""

    def __init__(self, fused):
        super().__init__()
        torch.manual_seed(0)
        self.fused = fused
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) if self.fused else torch.matmul(x, layer.weight.t()) + layer.bias
            x = torch.relu(x)
            x = F.silu(x) if self.fused else x * torch.sigmoid(x)
        return x


def test_what_is_written_out_faces_the_fused_op(tmp_path):
    x = torch.randn(4, 8)
    sides = []
    for fused in (True, False):
        net = Written(fused)
        path = tmp_path / f"{fused}.h5"
        sides.append(dumped(path, lambda net=net: net(x).sum().backward()))
    matches = align(*sides)
    groups = [(m.mine[0].ir, tuple(r.ir for r in m.golden)) for m in of(matches, "group")]
    assert Counter(groups) == {
        ("addmm", ("mm", "add_Tensor")): 3,
        ("silu", ("sigmoid", "mul_Tensor")): 3,
        ("silu_backward", ("mul_Tensor", "mul_Tensor", "sigmoid_backward", "add_Tensor")): 3,
    }
    left = names(r for m in of(matches, "extra") for r in (*m.mine, *m.golden))
    assert set(left) <= {"t", "detach", "view"}
