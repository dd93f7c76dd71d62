"""ACL dump on the emulated npu: which files it writes of which ops, and that it changes nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import npu_core
from dumper.errors import DumpError
from ir2tbe.cann import file as cann_file
from ir2tbe.cann.content import Dump
from ir2tbe.cann.folder import DumpFile, Missed, walk
from ir2tbe.cann.formats import format_name
from ir2tbe.cann.overflow import look_through
from ir2tbe.relayout import relayout
from npu_core import status
from npu_core.storage import format_cast


class Acl:
    """An ACL dump in a folder: `with acl(dump_mode="all"):`, then `files`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __call__(self, run: Callable[[], object], **fields: object) -> list[tuple[DumpFile, Dump]]:
        """What is dumped while `run` runs, in order."""
        self._count += 1
        self.root = self._folder / f"dump{self._count}"
        config = self._folder / "acl.json"
        asked = {"dump_path": str(self.root), "dump_list": [], "dump_op_switch": "on", **fields}
        config.write_text(json.dumps({"dump": {k: v for k, v in asked.items() if v is not None}}))
        torch.npu.init_dump()
        try:
            torch.npu.set_dump(str(config))
            run()
        finally:
            torch.npu.finalize_dump()
        found = [each for _, files in walk(self.root, Missed()) for each in files]
        found.sort(key=lambda each: each.name.task_id)
        return [(each, cann_file.read(each.path)) for each in found]


@pytest.fixture
def acl(tmp_path: Path) -> Iterator[Acl]:
    with npu_core.use("910A"):
        yield Acl(tmp_path)


def types(found: list[tuple[DumpFile, Dump]]) -> list[str]:
    return [each.name.op_type for each, _ in found]


def plain(tensor: object) -> np.ndarray:
    """Values of a tensor in a file, out of the chip's format."""
    return relayout(tensor.values(), format_name(tensor.format), "ND", tensor.original_shape)


def test_addmm_is_three_operators_and_the_last_has_its_result(acl: Acl) -> None:
    bias, x, weight = (torch.randn(n).npu() for n in ((4,), (2, 3), (3, 4)))
    made = []
    found = acl(lambda: made.append(torch.addmm(bias, x, weight)), dump_mode="all")
    assert types(found) == ["Mul", "MatMul", "Add"]
    (mul, product, add) = (dump for _, dump in found)
    assert np.array_equal(plain(mul.outputs[0]), plain(product.inputs[0]))
    assert np.array_equal(plain(product.outputs[0]), torch.mm(x, weight).cpu().numpy())
    assert np.array_equal(plain(add.outputs[0]), made[0].cpu().numpy())
    assert add.outputs[0].origin.name == f"{add.op_name.rpartition('/')[0]}/output/result"
    assert product.outputs[0].origin is None  # nothing that the op returned
    assert format_name(product.inputs[1].format) == "FRACTAL_NZ"
    assert json.loads(add.attributes[0][1])["emulator"] == "npu_core"


def test_names_and_folders(acl: Acl) -> None:
    x = torch.ones(3).npu()
    found = acl(lambda: x + 1)
    ((each, dump),) = found
    time, device, model, index = each.path.relative_to(acl.root).parts[:-1]
    assert len(time) == 14 and (device, model) == ("0", "0")
    assert index.isdigit()  # how many steps optimizers made since the process's first dump
    assert each.path.name == str(each.name)
    assert (each.name.op_type, each.name.stream_id) == ("Add", 0)
    assert each.name.op_name == dump.op_name.replace("/", "_")
    assert dump.op_name.startswith("add_Tensor/")
    assert each.path.stat().st_mode & 0o777 == 0o600
    made = [above for above in each.path.parents if above.is_relative_to(acl.root)]
    assert len(made) == 5 and {above.stat().st_mode & 0o777 for above in made[:-1]} == {0o700}


@pytest.mark.parametrize(("mode", "inputs", "outputs"), [
    (None, 0, 1), ("output", 0, 1), ("input", 2, 0), ("all", 2, 1),
])  # fmt: skip
def test_dump_mode(acl: Acl, mode: str | None, inputs: int, outputs: int) -> None:
    x = torch.ones(3).npu()
    ((_, dump),) = acl(lambda: x + x, dump_mode=mode)
    assert (len(dump.inputs), len(dump.outputs)) == (inputs, outputs)


def test_the_switch_off_dumps_nothing_and_says_so(acl: Acl) -> None:
    x = torch.ones(3).npu()
    with pytest.warns(RuntimeWarning, match="dump_op_switch is off"):
        assert acl(lambda: x + x, dump_op_switch="off") == []


def test_inputs_are_those_before_the_op(acl: Acl) -> None:
    x = torch.ones(3).npu()
    ((_, dump),) = acl(lambda: x.mul_(x).add_(0) if x[0] == 2 else x.add_(x), dump_mode="all")[-1:]
    assert [plain(each).tolist() for each in (*dump.inputs, *dump.outputs)] == [[1.0] * 3] * 2 + [
        [2.0] * 3
    ]


def test_steps_are_counted_by_the_optimizer(acl: Acl) -> None:
    weight = torch.nn.Parameter(torch.ones(3).npu())
    optimizer = torch.optim.SGD([weight], 0.1)

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            (weight * 2).sum().backward()
            optimizer.step()

    first = {each.path.parent.name for each, _ in acl(train)}
    base = min(map(int, first))
    assert first == {str(base + i) for i in range(3)}
    again = acl(train, dump_step=f"{base + 4}|{base + 90}-{base + 99}")
    assert {each.path.parent.name for each, _ in again} == {str(base + 4)}


@pytest.mark.parametrize(("level", "expected"), [
    ("op", ["Add"]), ("kernel", ["aclnnAdd_Add"]), ("all", ["Add", "aclnnAdd_Add"]),
])  # fmt: skip
def test_dump_level(acl: Acl, level: str, expected: list[str]) -> None:
    x = torch.ones(3).npu()
    with npu_core.use("910B"):
        assert types(acl(lambda: x + x, dump_level=level)) == expected
    assert types(acl(lambda: x + x, dump_level=level)) == ["Add"]  # 910A has no aclnn


def test_statistics_in_the_place_of_tensors(acl: Acl) -> None:
    x = torch.tensor([[1.0, -3.0], [float("nan"), float("-inf")]]).npu()
    with npu_core.use("exact"):
        assert acl(lambda: x + x, dump_data="stats", dump_stats=["Max", "Nan", "L2norm"]) == []
    (path,) = acl.root.rglob("*.csv")
    header, line = path.read_text().splitlines()
    cells = dict(zip(header.split(","), line.split(","), strict=True))
    assert path.name.startswith("Add.add_Tensor_")
    assert (cells["Input/Output"], cells["Index"]) == ("Output", "0")
    assert (cells["Data Type"], cells["Format"], cells["Shape"]) == ("DT_FLOAT", "ND", "2x2")
    assert (cells["Data Size"], cells["Count"], cells["Nan Count"]) == ("16", "4", "1")
    assert (float(cells["Max Value"]), cells["Min Value"]) == (2.0, "")
    assert float(cells["L2norm"]) == pytest.approx(40**0.5)


def test_dump_debug_dumps_what_overflowed_with_its_report(acl: Acl) -> None:
    x = torch.full((2, 3), 300.0, dtype=torch.half).npu()
    status.clear()

    def run() -> None:
        x + 1
        torch.addmm(torch.zeros(2, dtype=torch.half).npu(), x, x.t())  # 270000 is no half
        x + 2

    found = acl(run, dump_debug="on", dump_op_switch=None, dump_list=None)
    assert types(found) == ["MatMul", "Opdebug"]
    tree = look_through(acl.root)
    assert len(tree.reports) == 1 and not tree.errors
    assert (plain(found[0][1].outputs[0]) == 65504).all()
    assert len(found[0][1].inputs) == 2
    assert status.read() != 0  # for the scaler that reads it


def test_dump_debug_says_where_there_is_no_register(acl: Acl) -> None:
    x = torch.full((2,), 60000.0, dtype=torch.half).npu()
    with npu_core.use("910B"), pytest.warns(RuntimeWarning, match="no status register in use"):
        assert acl(lambda: x + x, dump_debug="on", dump_op_switch=None, dump_list=None) == []


def test_a_scaler_that_reads_the_register_still_finds_the_overflow(acl: Acl) -> None:
    weight = torch.nn.Parameter(torch.full((4,), 300.0).npu())
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("npu", init_scale=2.0**16)

    def step() -> None:
        with torch.autocast("npu", torch.float16):
            loss = (weight.half() * weight.half()).sum()  # 90000 is no half
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    status.clear()
    assert "Opdebug" in types(acl(step, dump_debug="on", dump_op_switch=None, dump_list=None))
    assert scaler.get_scale() == 2.0**15 and weight[0].item() == 300.0


def test_the_program_computes_what_it_does_without(acl: Acl) -> None:
    def step() -> list[torch.Tensor]:
        torch.manual_seed(3)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(16, 3), torch.nn.LayerNorm(3),
        ).npu()  # fmt: skip
        optimizer = torch.optim.Adam(net.parameters())
        with torch.autocast("npu", torch.float16):
            loss = net(torch.randn(2, 2, 4, 4).npu()).square().sum()
        loss.backward()
        optimizer.step()
        return [loss, *(p.grad for p in net.parameters()), *net.state_dict().values()]

    status.clear()
    before = step(), status.read(), torch.npu.get_rng_state()
    status.clear()
    after = []
    assert len(acl(lambda: after.append(step()))) > 30
    for a, b in zip(before[0], after[0], strict=True):
        assert torch.equal(a, b)
    assert status.read() == before[1]
    assert torch.equal(torch.npu.get_rng_state(), before[2])


def test_a_fault_stands_in_the_last_operator_and_is_counted_once(acl: Acl) -> None:
    bias, x = torch.ones(3).npu(), torch.ones(3, 3).npu()
    with npu_core.fault("addmm", "sign_flip", nth=2) as fault:
        found = acl(lambda: [torch.addmm(bias, x, x) for _ in range(3)])
    assert fault.applied == [2] and fault.calls == 3
    last = [plain(dump.outputs[0])[0, 0] for each, dump in found if each.name.op_type == "Add"]
    inner = {plain(dump.outputs[0])[0, 0] for each, dump in found if each.name.op_type == "MatMul"}
    assert last == [4.0, -4.0, 4.0] and inner == {3.0}


def test_a_fault_on_what_computes_the_values_between_does_not_fire(acl: Acl) -> None:
    bias, x = torch.ones(3).npu(), torch.ones(3, 3).npu()
    with npu_core.fault("mm", "sign_flip") as fault:
        found = acl(lambda: [torch.addmm(bias, x, x), torch.mm(x, x)])
    assert fault.calls == 1  # that of the program
    products = [plain(dump.outputs[0])[0, 0] for each, dump in found if "Mat" in each.name.op_type]
    assert products == [3.0, -3.0]


def test_other_threads_are_dumped_too(acl: Acl) -> None:
    x = torch.ones(3).npu()

    def run() -> None:
        threads = [threading.Thread(target=lambda: [x + 1 for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(acl(run)) == 80


def test_what_cannot_be_written_is_said_once_and_the_program_goes_on(acl: Acl) -> None:
    x = torch.ones(3).npu()

    def run() -> None:
        x + 1
        (file,) = acl.root.rglob("Add.*")
        folder = file.parent
        file.unlink()
        folder.rmdir()
        folder.write_text("in the way")
        assert (x + 2).tolist() == [3.0] * 3
        assert (x + 3).tolist() == [4.0] * 3

    with pytest.warns(RuntimeWarning, match="ACL dump stopped at add_Tensor") as said:
        acl(run)
    assert sum("ACL dump stopped" in str(each.message) for each in said) == 1


def test_a_cast_of_the_format_is_dumped_where_it_moves(acl: Acl) -> None:
    x = torch.randn(2, 3, 4, 4).npu()

    def run() -> None:
        cast = format_cast(x, 3)
        format_cast(cast, 3)  # it is in that format

    ((each, dump),) = acl(run, dump_mode="all")
    formats = [format_name(t.format) for t in (dump.inputs[0], dump.outputs[0])]
    assert formats == ["NCHW", "NC1HWC0"]
    assert each.name.op_type == "TransData"
    assert np.array_equal(plain(dump.outputs[0]), x.cpu().numpy())


def test_a_faulty_configuration_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text('{"dump": {"dump_path": "x" "dump_list": []}}')
    torch.npu.init_dump()
    try:
        with pytest.raises(DumpError, match="comma"):
            torch.npu.set_dump(str(config))
    finally:
        torch.npu.finalize_dump()
