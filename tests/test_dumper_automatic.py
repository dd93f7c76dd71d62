"""TORCH_DUMPER: a dump of a script that nobody edits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dumper import DumpError, open_dump
from dumper.automatic import arguments

FORWARD = """
import torch
torch.nn.Linear(4, 8)(torch.ones(3, 4))
print("ran")
"""
"""Enough to begin a dump; an optimizer imports torch's compiler, which takes a second."""

SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
print("trained", torch.nn.Module.__call__.__module__)
"""


def train(tmp_path: Path, config: object, source: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    script, file = tmp_path / "train.py", tmp_path / "dump.json"
    script.write_text(source)
    if config is not None:
        file.write_text(config if isinstance(config, str) else json.dumps(config))
    return subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TORCH_DUMPER": str(file)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("steps", [None, "1-2"])
def test_the_steps_of_a_script(steps: str | None, tmp_path: Path) -> None:
    config = {"dump_path": "auto.h5"} | ({"steps": steps} if steps else {})
    done = train(tmp_path, config)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "trained torch.nn.modules.module\n"
    with open_dump(tmp_path / "auto.h5") as dump:
        assert dump.finished
        assert {r.entry.step for r in dump.records} == ({1, 2} if steps else {0})
        expected = {"forward", "backward", "grad", "optimizer", "update"}
        assert {r.phase for r in dump.records} == expected
        assert {r.entry.module for r in dump.by_ir["addmm"]} == {"0", "2"}


WRONG = {
    "no file": (None, "cannot be read"),
    "no JSON": ("{", "cannot be read"),
    "a list": ([], "no JSON object"),
    "unknown name": ({"dumppath": "x"}, "'dumppath' is no argument"),
    "no directory": ({"dump_path": "nowhere/x.h5"}, "does not exist"),
    "wrong word": ({"dump_path": "x.h5", "level": "layer"}, "level: 'layer'"),
    "wrong type": ({"dump_path": 3}, "nothing will be dumped"),
    "no flag": ({"dump_path": "x.h5", "use_dump": "yes"}, "True or False"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_once_and_the_script_runs(name: str, tmp_path: Path) -> None:
    config, message = WRONG[name]
    done = train(tmp_path, config, FORWARD)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr.count("nothing will be dumped") == 1 and message in done.stderr
    assert "Traceback" not in done.stderr


def test_defaults_of_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"dump_path": "x.h5"}')
    assert arguments(file) == {"dump_path": "x.h5", "use_dump": True, "steps": 0}
    file.write_text('{"use_load": true, "steps": [1]}')
    assert arguments(file) == {"use_load": True, "steps": [1]}
    file.write_text('{"model": 3}')
    with pytest.raises(DumpError, match="'model' is no argument"):
        arguments(file)


def test_children_of_a_dumping_process_do_not_dump(tmp_path: Path) -> None:
    script = (
        SCRIPT
        + """
import subprocess, sys
if len(sys.argv) == 1:
    child = subprocess.run([sys.executable, sys.argv[0], "child"], capture_output=True, text=True)
    assert child.returncode == 0 and child.stderr == "", child.stderr
"""
    )
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "dump.json").write_text('{"dump_path": "auto.h5", "steps": "0-9"}')
    done = subprocess.run(
        [sys.executable, "train.py"],
        env={**os.environ, "TORCH_DUMPER": "dump.json"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with open_dump(tmp_path / "auto.h5") as dump:
        assert dump.finished and {r.entry.step for r in dump.records} == {0, 1, 2, 3}
