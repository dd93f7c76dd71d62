"""The peer tool reads what we write: pairs of ours, in both modes, give its numbers and ours.

Where the peer is wrong by rule (golden zeros hidden, empty tensors), ours is checked against plain
numpy instead, as in test_compare_golden. And it reads what `convert` makes of CANN dumps.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import h5py
import models
import numpy as np
import pytest
import test_compare_golden as golden_rules
import torch
from click.testing import CliRunner

import npu_core
from compare.cli import cli
from dumper import dumper, open_dump
from ir2tbe.cann.content import Dump, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.types import BY_NAME


@pytest.fixture(scope="module", params=["free", "load"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cpu.h5 and npu.h5, the emulated 910A's, which differ by fp16 convolutions."""
    folder = tmp_path_factory.mktemp(request.param)
    cpu = models.make("resnet", "cpu")
    with dumper(use_dump=True, dump_path=folder / "cpu.h5"):
        cpu()
    mode = {"use_dump": True}
    if request.param == "load":
        mode = {"use_load": True, "load_file_path": folder / "cpu.h5"}
    with npu_core.use("910A"):
        npu = models.make("resnet", "npu")
        with dumper(dump_path=folder / "npu.h5", **mode):
            npu()
    return folder


def result(folder: Path) -> list[dict]:
    (path,) = folder.glob("result_*.csv")
    return golden_rules.read(path)


def viewed(path: Path) -> set[str]:
    """The records that are views at least in part, by path."""
    with open_dump(path) as dump:
        return {
            record.path
            for record in dump.records
            if any(stub.reason == "view" for stub in record.entry.stubs.values())
        }


def test_the_peer_agrees(pair: Path, peer: list[str], tmp_path: Path) -> None:
    arguments = ["compare", "-m", pair / "npu.h5", "-g", pair / "cpu.h5", "-out"]
    done = subprocess.run([*peer, *arguments, tmp_path / "theirs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcome = CliRunner().invoke(cli, [*map(str, arguments), str(tmp_path / "ours")])
    assert outcome.exit_code == 0, outcome.output  # the chip rounds as it is known to
    ours, theirs = result(tmp_path / "ours"), result(tmp_path / "theirs")
    place = golden_rules.place
    views = viewed(pair / "npu.h5") | viewed(pair / "cpu.h5")
    # The peer knows no views: what only one side stores of one has no partner there.
    theirs = [row for row in theirs if row["GroundTruthPath"] not in views]
    assert [place(row) for row in ours] == [place(row) for row in theirs]
    assert len(ours) > 250
    with h5py.File(pair / "npu.h5") as mine, h5py.File(pair / "cpu.h5") as gold:
        for mine_row, peer_row in zip(ours, theirs, strict=True):
            a, b = mine[mine_row["NPUDumpPath"]][()], gold[mine_row["GroundTruthPath"]][()]
            check_row(mine_row, peer_row, np.asarray(a), np.asarray(b))


def check_row(ours: dict, theirs: dict, mine: np.ndarray, golden: np.ndarray) -> None:
    assert ours["Shape"] == theirs["Shape"]
    assert ours["DataType"] == theirs["DataType"] or mine.dtype == np.int8  # bool: we say bool
    hidden = bool(np.any((golden == 0) & (mine != 0)))
    expected = golden_rules.right(mine, golden) if hidden or not mine.size else {}
    for name in golden_rules.NUMBERS:
        value = float(ours[name])
        if mine.size == 0 or (hidden and name in golden_rules.RELATIVE):
            if expected[name] is not None:
                assert value == pytest.approx(expected[name], rel=1e-6, abs=5e-7), (ours, name)
            continue
        other = float(theirs[name])
        # Both cells are rounded to the sixth digit, and the peer's computed in float32.
        slack = 2 * golden_rules.HALF_DIGIT + golden_rules.float32_error(name, other, mine.size)
        assert value == pytest.approx(other, rel=0, abs=slack, nan_ok=True), (ours, name)
    if mine.size:
        sides = (golden_rules.deviations(row["StandardDeviation"]) for row in (ours, theirs))
        for one, other in zip(*sides, strict=True):
            slack = 1e-3 if other == 0 else 0.5001e-3
            assert one == pytest.approx(other, rel=0, abs=slack), ours


def test_the_peer_reads_every_dtype_it_knows(peer: list[str], tmp_path: Path) -> None:
    """bfloat16 passes as float32; what it cannot know is a refused row, never a crash."""

    def step(device: str) -> None:
        x = torch.linspace(-2, 2, 8).to(device)
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64):
            torch.clone(x.to(dtype))
        torch.clone(x > 0)
        torch.exp(torch.complex(x, x))
        torch.cat([x.to(torch.float8_e5m2), x.to(torch.float8_e5m2)])

    for name, device in (("npu", "npu"), ("cpu", "cpu")):
        with npu_core.use("exact"), dumper(use_dump=True, dump_path=tmp_path / f"{name}.h5"):
            step(device)
    arguments = ["compare", "-m", tmp_path / "npu.h5", "-g", tmp_path / "cpu.h5", "-out"]
    done = subprocess.run([*peer, *arguments, tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["NPUDumpPath"]: row for row in result(tmp_path / "out")}
    clones = [
        row for path, row in rows.items() if path.startswith("/clone/") and "/output/" in path
    ]
    assert len(clones) == 6
    for row in clones:
        assert row["MaxAbsoluteError"] == "0.000000", row
    refused = [row for path, row in rows.items() if path.startswith(("/exp/", "/cat/"))]
    assert len(refused) == 5
    assert all("is not in list" in row["CompareFailReason"] for row in refused)


@pytest.mark.parametrize("kind", ["npy", "msnpy"])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("float16", "f2"), ("bfloat16", "f4"), ("int8", "i1"), ("bool", "?"), ("hifloat8", "f4"),
     ("float8_e4m3fn", "f4"), ("int4", "i1")],
)  # fmt: skip
def test_the_peer_reads_converted_cann_dumps(
    peer: list[str], tmp_path: Path, name: str, dtype: str, kind: str
) -> None:
    """Its file_compare takes both files, and finds the one value by which they differ."""
    paths = []
    for side, last in (("npu", 1), ("cpu", 0)):
        values = np.array([[1, 0, 1], [1, 1, last]]).astype(BY_NAME[name].values)
        (tmp_path / side).mkdir()
        dump = tmp_path / side / "Add.a_b.3.2.1673383728093446"
        write(dump, Dump(outputs=(tensor_of(values, BY_NAME[name]),), op_name="a/b"))
        out = tmp_path / f"{side}_out"
        done = CliRunner().invoke(cli, ["convert", "-d", str(dump), "-out", str(out), "-t", kind])
        assert done.exit_code == 0, done.output
        paths += out.glob("*.npy")
    assert [np.load(path).dtype for path in paths] == [dtype, dtype]
    arguments = ["file_compare", "-m", paths[0], "-g", paths[1], "-out", tmp_path / "theirs"]
    done = subprocess.run([*peer, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "theirs").glob("file_result_*.txt")
    said = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
    assert said["CosineSimilarity"] == f"{4 / np.sqrt(5 * 4):.6f}"
    if name != "bool":  # of which it has no other number
        assert said["MaxAbsoluteError"] == "1.000000"
        assert said["MeanAbsoluteError"] == f"{1 / 6:.6f}"
