"""The user's line: the nearest one that is neither torch's nor ours, never an absolute path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dumper.source import user_line

MODULE = """
import sys
from dumper.source import user_line

def here():
    return user_line(sys._getframe())
"""


def test_this_line() -> None:
    line = user_line(sys._getframe())
    number = sys._getframe().f_lineno - 1
    assert line.rpartition("/")[2] == f"{Path(__file__).name}:{number}"
    assert not line.startswith("/")


@pytest.mark.parametrize("inside", ["helper.py", "package/deep/helper.py"])
def test_files_are_named_as_python_finds_them(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / inside
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict = {}
    exec(compile(MODULE, str(file), "exec"), namespace)
    assert namespace["here"]() == f"{inside}:6"


@pytest.mark.parametrize("file", ["<stdin>", "<string>", "<ipython-input-1>"])
def test_code_without_a_file(file: str) -> None:
    namespace: dict = {}
    exec(compile(MODULE, file, "exec"), namespace)
    assert namespace["here"]() == f"{file}:6"


def test_a_file_outside_of_every_path_keeps_its_name_only() -> None:
    namespace: dict = {}
    exec(compile(MODULE, "/nowhere/secret/name.py", "exec"), namespace)
    assert namespace["here"]() == "name.py:6"


def test_no_frame() -> None:
    assert user_line(None) is None
