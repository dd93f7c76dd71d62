"""Training leaks nothing: a short run of what scripts/soak runs, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from soak import CASES, Growth

ROOT = Path(__file__).resolve().parent.parent

CODE = """
import json, torch, npu_core, soak

def leaking(step, lost):
    return lambda: (step(), lost.append(torch.empty(1, device="npu")))

torch.set_num_threads(1)
steps = {name: make() for name, make in soak.CASES.items()}
steps["leaking"] = leaking(soak.CASES["mlp"](), [])
# Past the one time, after some 200 steps, that the interpreter's own memory grows.
print(json.dumps({name: soak.grow(step, 260, 200) for name, step in steps.items()}))
"""


@pytest.fixture(scope="module")
def growths() -> dict[str, Growth]:
    """What `soak.grow` finds for each case, and for one that loses a tensor a step."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: Growth(*figures) for name, figures in json.loads(done.stdout).items()}


@pytest.mark.parametrize("case", CASES)
def test_memory_stays_flat(case: str, growths: dict[str, Growth]) -> None:
    assert growths[case].flat, growths[case]


def test_one_lost_tensor_a_step_is_seen(growths: dict[str, Growth]) -> None:
    assert not growths["leaking"].flat, growths["leaking"]
