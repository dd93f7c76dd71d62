"""What a dump says of the run: the wrong ops that were planted in the emulated npu."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import npu_core
from dumper import dumper, open_dump

ROOT = Path(__file__).resolve().parent.parent


def faults_of(path: Path) -> list[dict]:
    with open_dump(path) as dump:
        assert dump.finished
        return dump.environment["npu"]["faults"]


def odd_shape(self: torch.Tensor, mat2: torch.Tensor) -> bool:
    return mat2.shape[1] % 2 == 1


SIGN = {"op": "mm", "change": "sign_flip", "nth": [1], "when": None, "seed": 0}
ROW = {"op": "exp.default", "change": "one_row_swapped", "nth": None, "when": None, "seed": 7}
OWN = {"op": "mm", "change": "abs", "nth": [2, 3], "when": "odd_shape", "seed": 0}


@pytest.mark.filterwarnings("ignore:fault abs")
def test_faults_in_force_and_later_ones_are_listed(tmp_path: Path) -> None:
    path, x = tmp_path / "d.h5", torch.arange(4.0).reshape(2, 2).npu()
    with npu_core.fault("exp", "sign_flip"):
        x.exp()  # over before the dump
    with npu_core.fault("mm", "sign_flip", nth=1):
        with dumper(use_dump=True, dump_path=path):
            x @ x
            with npu_core.fault("exp.default", "one_row_swapped", seed=7):
                x.exp()
            with npu_core.fault("mm", torch.abs, nth=(3, 2), when=odd_shape):
                pass
    with npu_core.fault("exp", "sign_flip"):
        x.exp()  # after it
    assert faults_of(path) == [SIGN, ROW, OWN]


def test_a_fault_over_several_overloads_is_listed_once(tmp_path: Path) -> None:
    path, x = tmp_path / "d.h5", torch.ones(2, 2, device="npu")
    with npu_core.fault("sum", "sign_flip"), dumper(use_dump=True, dump_path=path):
        x.sum()
    assert [fault["op"] for fault in faults_of(path)] == ["sum"]


def test_no_fault_is_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "d.h5"
    with dumper(use_dump=True, dump_path=path):
        torch.ones(2, device="npu").exp()
    assert faults_of(path) == []


def test_a_load_run_lists_them_too(tmp_path: Path) -> None:
    first, second = tmp_path / "first.h5", tmp_path / "second.h5"
    with dumper(use_dump=True, dump_path=first):
        torch.ones(2, device="npu").exp()
    with npu_core.fault("exp.default", "one_element_off") as fault:
        with dumper(use_load=True, load_file_path=first, dump_path=second):
            torch.ones(2, device="npu").exp()
    assert fault.applied == [1]
    assert [listed["change"] for listed in faults_of(second)] == ["one_element_off"]


def test_dumping_does_not_import_the_emulator(tmp_path: Path) -> None:
    code = """
import sys, torch
from dumper import dumper, open_dump
with dumper(use_dump=True, dump_path=sys.argv[1]):
    torch.ones(2).exp()
with open_dump(sys.argv[1]) as dump:
    assert dump.records and "npu" not in dump.environment
assert not [name for name in sys.modules if "npu_core" in name]
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "d.h5")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert done.returncode == 0, done.stderr
