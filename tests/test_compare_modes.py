"""A planted wrong op through the whole chain: many bad rows in a free run, one in load mode.

The npu computes in its exact profile, so bad means not bit-equal. Both directions are shown, with
the load file on either side of the comparison.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import models
import pytest
from click.testing import CliRunner

import npu_core
from compare.cli import cli
from dumper import dumper, open_dump

WRONG = "convolution_backward"


def dump(path: Path, device: str, source: Path | None = None) -> Path:
    step = models.make("resnet", device)
    mode = {"use_load": True, "load_file_path": source} if source else {"use_dump": True}
    with dumper(dump_path=path, **mode):
        step()
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """cpu and faulty npu, each free and fed with the other's inputs."""
    folder = tmp_path_factory.mktemp("planted")
    with (
        npu_core.use("exact"),
        npu_core.fault(WRONG, lambda out: (out[0], out[1] * 1.01, out[2])),
    ):
        cpu, npu = dump(folder / "cpu.h5", "cpu"), dump(folder / "npu.h5", "npu")
        loaded = {
            "npu_fed_by_cpu": dump(folder / "npu_load.h5", "npu", cpu),
            "cpu_fed_by_npu": dump(folder / "cpu_load.h5", "cpu", npu),
        }
    return {"cpu": cpu, "npu": npu, **loaded}


def bad_rows(mine: Path, golden: Path, out: Path) -> list[str]:
    """Paths of my side where an op's values differ; every row must have been compared.

    What a step leaves behind (gradients, parameters) has records of its own, which are no ops.
    """
    done = CliRunner().invoke(
        cli, ["compare", "-m", str(mine), "-g", str(golden), "-out", str(out)]
    )
    assert done.exit_code == 1, done.output
    with open(done.output.splitlines()[-1].removeprefix("result: "), newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 250
    return [
        row["NPUDumpPath"]
        for row in rows
        if float(row["ExactMatch"]) < 1 and row["NPUDump"] not in ("grad", "update")
    ]


@pytest.mark.parametrize(("mine", "golden"), [("npu", "cpu"), ("cpu", "npu")])
def test_a_free_run_spreads_the_error(files, mine: str, golden: str, tmp_path: Path) -> None:
    assert len(bad_rows(files[mine], files[golden], tmp_path)) > 20


@pytest.mark.parametrize(
    ("mine", "golden"),
    [
        ("npu_fed_by_cpu", "cpu"),
        ("cpu", "npu_fed_by_cpu"),
        ("cpu_fed_by_npu", "npu"),
        ("npu", "cpu_fed_by_npu"),
    ],
)
def test_load_mode_leaves_the_wrong_op_alone(files, mine: str, golden: str, tmp_path: Path) -> None:
    with open_dump(files["cpu"]) as recorded:
        wrong = recorded.by_ir[WRONG]
    expected = [f"{record.path}/output/result1" for record in wrong]
    assert bad_rows(files[mine], files[golden], tmp_path) == expected


def test_one_wrong_call_is_one_row(tmp_path: Path) -> None:
    with npu_core.use("exact"):
        cpu = dump(tmp_path / "cpu.h5", "cpu")
        with npu_core.fault("addmm", lambda out: out + 1):
            load = dump(tmp_path / "load.h5", "npu", cpu)
    (path,) = bad_rows(load, cpu, tmp_path)
    assert path.startswith("/addmm/") and path.endswith("/output/result")


def test_a_killed_dump_compares_as_far_as_it_goes(tmp_path: Path) -> None:
    script = """
import sys, torch, dumper
x = torch.zeros(50)
with torch.utils.dumper(use_dump=True, dump_path=sys.argv[1]):
    for _ in range(int(sys.argv[2])):
        x = x + 1
"""
    root = str(Path(__file__).resolve().parent.parent)
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "PYTHONPATH": root}
    killed, whole = tmp_path / "killed.h5", tmp_path / "whole.h5"
    subprocess.run([*command, whole, "400"], env=environment, check=True)
    child = subprocess.Popen([*command, killed, "1000000"], env=environment)
    while not killed.exists() and child.poll() is None:
        time.sleep(0.01)
    deadline = time.monotonic() + 60
    while killed.stat().st_size < 200_000 and time.monotonic() < deadline:
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with open_dump(killed) as left:
        records = len(left.records)
    assert records >= 64
    done = CliRunner().invoke(
        cli, ["compare", "-m", str(killed), "-g", str(whole), "-out", str(tmp_path)]
    )
    assert done.exit_code in (0, 1), done.output
    assert f"killed.h5 (cpu, {records} records" in done.output
    with open(done.stdout.splitlines()[-1].removeprefix("result: "), newline="") as file:
        rows = list(csv.DictReader(file))
    compared = [row for row in rows if row["ExactMatch"] == "1.000000"]
    assert len(compared) == 2 * min(records, 400)
