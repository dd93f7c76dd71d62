"""kill -9 at any moment costs the last 64 records or the last second, and never the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
KILLS, SLOW = 200, 8


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """What is left of every killed writer; `killed.py` has opened and read every file."""
    folder = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "killed.py", folder, str(KILLS), str(SLOW)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_killed_writer_left_a_file_that_was_read(killed: list[dict]) -> None:
    assert len(killed) == KILLS + SLOW
    assert max(died["found"] for died in killed) > 64


def test_a_third_died_inside_a_flush(killed: list[dict]) -> None:
    inside = [died for died in killed if died["how"] == "commit"]
    assert len(inside) >= KILLS // 3
    # Both sides of the moment at which a journal begins to count were hit.
    assert {died["journal"] for died in inside} == {True, False}
    assert any(died["found"] > died["done"] for died in inside), "none was read through a journal"
    assert any(died["found"] < died["done"] for died in inside)


def test_64_records_at_most_are_lost(killed: list[dict]) -> None:
    assert max(died["done"] - died["found"] for died in killed) <= 64


def test_slow_records_lose_a_second_at_most(killed: list[dict]) -> None:
    slow = [died for died in killed if died["how"] == "slow"]
    assert len(slow) == SLOW
    assert all(died["found"] for died in slow)
    assert max(died["lost_s"] for died in slow) <= 1.0
