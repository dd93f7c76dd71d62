"""What several test files share: the golden pairs, and the two outside tools that read our files.

The peer and the HDF5 tools may be absent on a developer's machine: tests that need them are then
skipped. CI sets TORCH_DUMPER_REQUIRE_PEERS=1, and there an absent one is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:
    # Workers share the cores: threads of torch's own in each would only wait for each other's.
    # Before torch is imported, and for the processes that tests start.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402, F401 - before npu_core, which then registers its device
from forked import Forked  # noqa: E402

import npu_core  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

# A deadline is a timing test, and this suite has none.
settings.register_profile("torch-dumper", deadline=None)
settings.load_profile("torch-dumper")


@pytest.fixture(scope="session")
def golden() -> Path:
    """Folder of the golden pairs: `<case>/{npu.h5,gpu.h5,result.csv}`."""
    return ROOT / "tests" / "golden"


@pytest.fixture(scope="session")
def peer() -> list[str]:
    """Command of the peer's msaccucmp, which `scripts/peer` installs: append `compare -m ...`."""
    python = ROOT / ".peer" / "bin" / "python"
    if not python.exists():
        _absent("the peer", "scripts/peer")
    # Prints the path; installs nothing where the peer is complete.
    found = subprocess.run([ROOT / "scripts" / "peer"], capture_output=True, text=True, check=True)
    return [str(python), found.stdout.strip()]


@pytest.fixture(scope="session")
def probe(peer: list[str]) -> None:
    """That `scripts/peer probe` has installed what msprobe's own dumper imports."""
    if not list((ROOT / ".peer" / "lib").glob("python*/site-packages/tensorboard")):
        _absent("what msprobe imports", "scripts/peer probe")


@pytest.fixture(scope="session")
def hdf5_tools() -> dict[str, str]:
    """Path of each of the real HDF5 tools h5copy, h5dump, h5ls, by name."""
    tools = {name: shutil.which(name) for name in ("h5copy", "h5dump", "h5ls")}
    if None in tools.values():
        _absent("h5copy, h5dump or h5ls", "apt-get install hdf5-tools")
    return tools


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """Runs scripts that dump, without each of them importing torch again."""
    process = Forked("torch, torch._dynamo, dumper")
    yield process
    process.close()


def _absent(what: str, install: str) -> NoReturn:
    message = f"{what} is not installed; install it with: {install}"
    if os.environ.get("TORCH_DUMPER_REQUIRE_PEERS") == "1":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture
def exact() -> Iterator[None]:
    """The emulated npu in its `exact` profile."""
    with npu_core.use("exact"):
        yield


@pytest.fixture(params=["cpu", "npu"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each device in turn; the emulated npu in its `exact` profile is bit-equal to the CPU."""
    if request.param == "cpu":
        yield "cpu"
        return
    with npu_core.use("exact"):
        yield "npu"
