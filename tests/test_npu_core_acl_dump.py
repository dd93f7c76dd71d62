"""`torch.npu.init_dump`, `set_dump`, `finalize_dump`, which an upper floor serves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from npu_core.ascend import acl_dump


class Served:
    """A handler that writes down what it was asked for."""

    def __init__(self, fails: str | None = None) -> None:
        self.calls: list[object] = []
        self.fails = fails

    def init(self) -> None:
        self.calls.append("init")

    def configure(self, path: str) -> None:
        self.calls.append(path)

    def finalize(self) -> None:
        self.calls.append("finalize")
        if self.fails == "finalize":
            raise OSError("no room")


found = Served()


@pytest.fixture
def served() -> Iterator[Served]:
    handler = Served()
    torch.npu.register_dump(handler)
    yield handler
    torch.npu.register_dump(None)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "acl.json"
    path.write_text("{}")
    return str(path)


def installed(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    torch.npu.register_dump(None)
    monkeypatch.setattr(acl_dump, "entry_points", lambda group: points)


def test_the_calls_go_to_the_registered_handler(served: Served, config: str) -> None:
    assert not torch.npu.is_dumping()
    torch.npu.init_dump()
    assert torch.npu.is_dumping()
    assert torch.npu.get_option("mdldumpswitch") == "enable"
    torch.npu.set_dump(config)
    torch.npu.finalize_dump()
    assert not torch.npu.is_dumping()
    assert torch.npu.get_option("mdldumpswitch") == "disable"
    assert served.calls == ["init", config, "finalize"]


def test_a_missing_configuration_is_refused(served: Served, tmp_path: Path) -> None:
    torch.npu.init_dump()
    with pytest.raises(FileNotFoundError, match=r"no configuration file at .*acl\.json"):
        torch.npu.set_dump(str(tmp_path / "acl.json"))
    assert served.calls == ["init"]


def test_set_dump_needs_init_dump(served: Served, config: str) -> None:
    with pytest.raises(RuntimeError, match="call init_dump first"):
        torch.npu.set_dump(config)
    torch.npu.init_dump()
    torch.npu.finalize_dump()
    with pytest.raises(RuntimeError, match="call init_dump first"):
        torch.npu.set_dump(config)
    assert served.calls == ["init", "finalize"]


def test_twice_is_once_and_an_end_needs_no_beginning(served: Served) -> None:
    torch.npu.finalize_dump()
    torch.npu.init_dump()
    torch.npu.init_dump()
    torch.npu.finalize_dump()
    torch.npu.finalize_dump()
    assert served.calls == ["init", "finalize"]


def test_a_dump_that_cannot_be_ended_has_ended() -> None:
    torch.npu.register_dump(Served(fails="finalize"))
    torch.npu.init_dump()
    with pytest.raises(OSError, match="no room"):
        torch.npu.finalize_dump()
    assert not torch.npu.is_dumping()
    torch.npu.register_dump(None)


@pytest.mark.parametrize(
    "call",
    [torch.npu.init_dump, torch.npu.finalize_dump, lambda: torch.npu.set_dump("acl.json")],
    ids=["init", "finalize", "set"],
)
def test_without_a_handler_it_is_said_where_it_comes_from(
    call: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch)
    with pytest.raises(RuntimeError, match="ACL dump.*comes with package ir2tbe"):
        call()


def handler() -> Served:
    return found


def test_the_handler_of_an_installed_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, EntryPoint("one", f"{__name__}:handler", "npu_core.acl_dump"))
    found.calls.clear()
    torch.npu.init_dump()
    torch.npu.finalize_dump()
    torch.npu.register_dump(None)
    assert found.calls == ["init", "finalize"]


SCRIPT = """
import torch, npu_core

class Handler:
    def init(self): print("init")
    def configure(self, path): print(path)
    def finalize(self): print("finalize")

torch.npu.register_dump(Handler())
print("begin")
torch.ones(2, device="npu")
torch.ones(2, device="npu") + 1
print("end", torch.npu.is_dumping())
"""


def script(folder: Path, value: str) -> subprocess.CompletedProcess:
    root = str(Path(__file__).resolve().parent.parent)
    env = {**os.environ, "ACL_DUMP_DATA": value, "PYTHONPATH": root}
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_environment_dumps_the_whole_process(value: str, tmp_path: Path) -> None:
    (tmp_path / "acl.json").write_text("{}")
    done = script(tmp_path, value)
    assert done.returncode == 0, done.stderr
    whole = ["begin", "init", "acl.json", "end True", "finalize"]
    assert done.stdout.splitlines() == (whole if value == "1" else ["begin", "end False"])


def test_the_environment_needs_a_configuration(tmp_path: Path) -> None:
    done = script(tmp_path, "1")
    assert done.returncode == 1
    assert "set_dump: no configuration file at acl.json" in done.stderr.splitlines()[-1]
