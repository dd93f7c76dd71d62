"""The guide's way from an op that goes wrong down to its TBE operators, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from users import User

from dumper import open_dump

ACL = {"dump_path": "output", "dump_list": [], "dump_mode": "all", "dump_op_switch": "on"}

OVERFLOWING = """
import torch

import npu_core

torch.manual_seed(1)
net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).npu()
x = torch.randn(4, 6).npu()


def step():
    with torch.autocast("npu", torch.float16):
        return net(x).sum()


with npu_core.fault("addmm", lambda result: result * float("inf"), nth=1):
    with torch.utils.dumper({context}):
        step().backward()
"""


@pytest.fixture
def user(tmp_path: Path) -> User:
    (tmp_path / "acl.json").write_text(json.dumps({"dump": ACL}))
    return User(tmp_path)


def test_from_an_overflow_to_its_operators(user: User) -> None:
    # 1. The check records the op that overflowed.
    said = user.script(OVERFLOWING.format(context='check_overflow=True, dump_path="overflow.h5"'))
    with open_dump(user.folder / "overflow.h5") as dump:
        (record,) = dump.records
        assert f"IR: {record.ir} SeqId: {record.seqid} is overflow!" in said
        assert record.ir == "addmm"
        shape = next(each.shape for each in record.outputs)

    # 2. That very file is what the same script loads, with the op alone under ACL dump.
    loading = 'use_load=True, load_file_path="overflow.h5", dump_path="loaded.h5", '
    user.script(OVERFLOWING.format(context=loading + "load_with_acl_dump=True"))
    files = sorted((user.folder / "output").rglob(f"*.addmm_{record.seqid}_*"))
    assert sorted(each.name.partition(".")[0] for each in files) == ["Add", "MatMul", "Mul"]
    with open_dump(user.folder / "loaded.h5") as dump:
        assert [(each.ir, each.seqid) for each in dump.records] == [("addmm", record.seqid)]

    # 3. As numpy: the product is sound, and what the op returned is saturated.
    (folder,) = {each.parent for each in files}
    user.msaccucmp("convert", "-d", folder, "-out", "npy", "-f", "ND")
    found = {p.name.partition(".")[0]: np.load(p) for p in user.folder.glob("npy/*.output.0.*npy")}
    assert found["MatMul"].shape == found["Add"].shape == shape
    assert np.abs(found["MatMul"].astype(float)).max() < 100
    assert np.abs(found["Add"].astype(float)).max() == 65504


TRAINING = """
import torch

import npu_core


def step(device, path):
    torch.manual_seed(0)
    linear = torch.nn.Linear
    net = torch.nn.Sequential(linear(8, 8), torch.nn.ReLU(), linear(8, 2)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with torch.utils.dumper(use_dump=True, dump_path=path):
        net(torch.ones(4, 8).to(device)).square().sum().backward()
        optimizer.step()


step("cpu", "gpu.h5")
with npu_core.fault("addmm", "bias_dropped", nth=1):
    step("npu", "npu.h5")
"""


def test_from_a_wrong_step_to_the_wrong_operator(user: User) -> None:
    # 1. A step on both devices, one op of it wrong on npu; the comparison names that op.
    user.script(TRAINING)
    user.msaccucmp("compare", "-m", "npu.h5", "-g", "gpu.h5", "-out", "result", code=1)
    (path,) = user.folder.glob("result/*.json")
    rows = json.loads(path.read_text())["rows"]
    first = next(row for row in rows if row["verdict"]["kind"] == "differs")
    record = first["record_path"].strip("/")
    assert record.startswith("addmm/")

    # 2. The op alone, cut out, and run again on the chip that is as broken, under ACL dump.
    source = f"/{record}/"
    user.msaccucmp("h5copy", "-pv", "-i", "npu.h5", "-o", "case.h5", "-s", source, "-d", source)
    broken = {"NPU_CORE_FAULT": "addmm:bias_dropped"}
    said = user.msaccucmp("replay", "case.h5", "--device", "npu", "--acl", "acl.json", **broken)
    assert f"{record}  Mul, MatMul, Add" in said

    # 3. The same operators on the CPU; both as numpy.
    cpu = {"dump": {**ACL, "dump_path": "cpu"}}
    (user.folder / "cpu.json").write_text(json.dumps(cpu))
    user.msaccucmp("replay", "case.h5", "--device", "cpu", "--acl", "cpu.json")
    found = {}
    for side in ("output", "cpu"):
        (folder,) = {each.parent for each in (user.folder / side).rglob("Add.*")}
        user.msaccucmp("convert", "-d", folder, "-out", f"npy_{side}", "-f", "ND")
        arrays = (user.folder / f"npy_{side}").glob("*.output.0.*npy")
        found[side] = {each.name.partition(".")[0]: np.load(each) for each in arrays}
    apart = {
        name: np.abs(found["output"][name] - found["cpu"][name]).max() for name in found["cpu"]
    }
    # The chip's product rounds its operands to float16; the addition alone is wrong.
    assert apart["Mul"] == 0 and apart["MatMul"] < 2**-10 and apart["Add"] > 0.1

    # 4. In one command, from the row.
    said = user.msaccucmp(
        "replay", "npu.h5", "-op", record, "--against", "cpu", "-out", "replayed", code=1, **broken
    )
    assert "Add" in said.partition("differ most")[2].splitlines()[2]
