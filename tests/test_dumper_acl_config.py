"""CANN's acl.json: what is read of it, and everything that is said against a wrong one."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumper.acl_config import EXAMPLE, STATISTICS, AclConfig, make_folder, read_config
from dumper.errors import DumpError


def written(folder: Path, dump: dict[str, Any] | str | bytes, **beside: Any) -> Path:
    path = folder / "acl.json"
    if isinstance(dump, dict):
        dump = json.dumps({"dump": dump, **beside})
    path.write_bytes(dump if isinstance(dump, bytes) else dump.encode())
    return path


def refused(path: Path) -> str:
    with pytest.raises(DumpError) as caught:
        read_config(path)
    assert str(path) in caught.value.where
    return str(caught.value)


def test_the_example_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, EXAMPLE)
    config = read_config("acl.json")
    assert config == AclConfig(
        path=tmp_path / "acl.json",
        dump_path=tmp_path / "acl_dump",
        dump_mode="all",
        dump_op_switch=True,
    )


def test_what_is_left_out_is_as_in_cann(tmp_path: Path) -> None:
    config = read_config(written(tmp_path, {"dump_path": "/x"}))
    assert (config.dump_mode, config.dump_level, config.dump_data) == ("output", "all", "tensor")
    assert (config.dump_op_switch, config.dump_debug, config.dump_list) == (False, False, ())
    assert set(STATISTICS) - set(config.dump_stats) == {"L2norm"}
    assert all(config.takes_step(step) for step in range(20))


def test_every_field_is_read(tmp_path: Path) -> None:
    model = {
        "model_name": "ResNet-50",
        "layer": ["conv1"],
        "optype_blacklist": [{"name": "conv", "pos": ["input0", "input1"]}],
        "opname_blacklist": [{"name": "conv1"}],
        "opname_range": [{"begin": "conv1", "end": "relu1"}],
        "watcher_nodes": ["C"],
    }
    asked = {
        "dump_path": "out",
        "dump_list": [{}, model],
        "dump_mode": "input",
        "dump_op_switch": "off",
        "dump_level": "kernel",
        "dump_data": "stats",
        "dump_stats": ["Negative Inf", "Max", "L2norm"],
        "dump_step": "0|3-5|10",
        "dump_debug": "off",
    }
    config = read_config(written(tmp_path, asked, profiler={"switch": "on"}, StackSize=1))
    assert config.dump_list == (model,)
    assert (config.dump_mode, config.dump_level, config.dump_data) == ("input", "kernel", "stats")
    assert set(config.dump_stats) == {"Negative Inf", "Max", "L2norm"}
    assert [step for step in range(12) if config.takes_step(step)] == [0, 3, 4, 5, 10]


@pytest.mark.parametrize("nothing", [[], [{}]])
def test_an_empty_dump_list_is_none(nothing: list, tmp_path: Path) -> None:
    asked = {"dump_path": "out", "dump_list": nothing, "dump_debug": "on"}
    config = read_config(written(tmp_path, asked))
    assert config.dump_debug and config.dump_list == ()


@given(spans=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=6))
def test_steps_are_numbers_and_ranges(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]]
) -> None:
    text = "|".join(str(a) if n == 1 else f"{a}-{a + n - 1}" for a, n in spans)
    expected = {step for a, n in spans for step in range(a, a + n)}
    path = written(tmp_path_factory.getbasetemp(), {"dump_path": "x", "dump_step": text})
    config = read_config(path)
    assert {step for step in range(70) if config.takes_step(step)} == expected


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "dump_path is missing"),
        ({"dump_path": 3}, "dump_path is 3: the path of a folder is wanted"),
        ({"dump_path": " "}, "the path of a folder is wanted"),
        ({"dump_path": "a\0b"}, "it holds what cannot be shown"),
        ({"dump_path": "a\ud800"}, "it holds what cannot be shown"),
        ({"dump_path": "$HOME/output"}, '"$HOME/output": CANN fills in no variables; write it out'),
        ({"dump_path": "./$HOME"}, '"./$HOME": CANN fills in no variables; write it out'),
        ({"dump_path": "/x/${USER}/y"}, "CANN fills in no variables; write it out"),
        ({"dump_path": "$(pwd)/x"}, "CANN fills in no variables; write it out"),
        ({"dump_path": "~/acl"}, '"~/acl": CANN puts no home folder for ~; write it out'),
        ({"dump_path": "~"}, "CANN puts no home folder for ~; write it out"),
        ({"dump_path": "~user/acl"}, "CANN puts no home folder for ~; write it out"),
        ({"dump_path": "a\u200bb"}, r'"a\u200bb": it holds what cannot be shown'),
        ({"dump_mode": "all\u200b"}, r'dump_mode is "all\u200b", none of input, output, all'),
        ({"dump_mo\u200bde": "all"}, r'"dump_mo\u200bde" is no field of dump; is dump_mode meant?'),
        ({"dump_pth": "x"}, '"dump_pth" is no field of dump; is dump_path meant?'),
        ({"zzz": 1}, '"zzz" is no field of dump; there are dump_path, '),
        ({"dump_mode": "both"}, 'dump_mode is "both", none of input, output, all'),
        ({"dump_op_switch": True}, "dump_op_switch is true, none of on, off"),
        ({"dump_level": ["op"]}, "dump_level is a list, none of op, kernel, all"),
        ({"dump_data": None}, "dump_data is null, none of tensor, stats"),
        ({"dump_debug": "ON"}, 'dump_debug is "ON", none of on, off'),
        ({"dump_stats": ["Max"]}, 'dump_stats counts only with "dump_data": "stats"'),
        ({"dump_data": "stats", "dump_stats": ["max"]}, 'dump_stats is "max", none of Max, Min'),
        ({"dump_data": "stats", "dump_stats": "Max"}, "dump_stats: a list of some of Max, Min"),
        ({"dump_step": 3}, 'numbers and ranges as in "0|3-5|10" are wanted'),
        ({"dump_step": "1,2"}, 'numbers and ranges as in "0|3-5|10" are wanted'),
        ({"dump_step": "9" * 40}, 'numbers and ranges as in "0|3-5|10" are wanted'),
        ({"dump_step": "5-3"}, "5-3 is no range"),
        ({"dump_step": "|".join(map(str, range(101)))}, "101 parts; CANN takes 100"),
        ({"dump_list": {}}, "dump_list: a list of objects is wanted"),
        ({"dump_list": ["m"]}, "dump_list: a list of objects is wanted"),
        ({"dump_list": [{"modelname": "m"}]}, "is model_name meant?"),
        ({"dump_list": [{"model_name": 1}]}, "model_name: a text is wanted"),
        ({"dump_list": [{"layer": "conv1"}]}, "layer: a list of names of ops is wanted"),
        ({"dump_list": [{"optype_blacklist": [{"pos": 1}]}]}, "optype_blacklist is a list"),
        ({"dump_list": [{"opname_range": [{"begin": "a"}]}]}, "opname_range is a list"),
        ({"dump_debug": "on", "dump_op_switch": "on"}, "leave dump_op_switch out"),
        ({"dump_debug": "on", "dump_list": [{"layer": ["a"]}]}, "leave dump_list out"),
        ({"dump_scene": "watcher"}, "overwrites the results of others; leave it out"),
        ({"dump_scene": "lite_exception"}, "an op that stopped the AI core; leave it out"),
        ({"dump_scene": "all"}, 'dump_scene is "all", none of watcher, '),
        ({"dump_kernel_data": "printf"}, "what Ascend C kernels print; leave it out"),
    ],
)
def test_what_is_wrong_is_named(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    if said != "dump_path is missing":
        asked = {"dump_path": "out", **asked}
    message = refused(written(tmp_path, asked))
    assert said in message
    assert "1 fault:" in message
    assert EXAMPLE in message


@pytest.mark.parametrize("name", ["a~", "x/~/y", "cost$", "5$", "a$1"])
def test_a_path_may_hold_what_no_shell_fills_in(name: str, tmp_path: Path) -> None:
    config = read_config(written(tmp_path, {"dump_path": str(tmp_path / name)}))
    assert config.dump_path == tmp_path / name


def test_all_faults_of_a_file_are_listed(tmp_path: Path) -> None:
    asked = {"dump_mode": "x", "dump_level": "y", "dump_lst": [], "dump_scene": "watcher"}
    message = refused(written(tmp_path, asked))
    for name in ("dump_path", "dump_mode", "dump_level", "dump_list", "dump_scene"):
        assert name in message.partition("what to do")[0]
    assert "5 faults" in message


# The shape of the guide's own example, which can be copied and does not work.
GUIDE = """{
 "dump": {
  "dump_path": "/home/HwHiAiUser/output"  // the directory must exist
  "dump_list": [],
  "dump_mode": "all"  # input, output or all
  "dump_op_switch": "on",
 }
}
"""


def test_the_guides_example_is_refused_with_every_fault_and_its_place(tmp_path: Path) -> None:
    message = refused(written(tmp_path, GUIDE))
    lines = GUIDE.split("\n")
    assert "5 faults" in message
    for line, after, said in (
        (3, '/output"', 'a comma is missing after "/home/HwHiAiUser/output"'),
        (3, "  ", "JSON has no comments; remove // the directory must exist"),
        (5, '"all"', 'a comma is missing after "all"'),
        (5, "  ", "JSON has no comments; remove # input, output or all"),
        (6, '"on"', "the comma before } is one too many"),
    ):
        column = lines[line - 1].rindex(after) + len(after) + 1
        assert f"line {line}, column {column}: {said}" in message


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1]", 'no object "dump"'),
        (b'{"dump": []}', 'no object "dump"'),
        (b'{"profiler": {}}', 'no object "dump"'),
        (b"", "there is nothing"),
        (b'{"dump": {"dump_path": "a", "dump_path": "b"}}', "is there already, in line 1"),
        (b'{"dump":\n"\xff"}', "line 2 of this file is not UTF-8"),
        (b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
        (b'{"dump": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b" " * (1 << 20) + b"{}", "more than 1048576 bytes"),
        (b"," * 5000, "more than 100 faults: (1) line 1, column 1: "),
        (b"[" * 1_000_000, "1 fault: (1) line 1, column 1001: this is nested too deeply"),
        (b'{"dump": {}}\r\r"\xff"', "line 3 of this file is not UTF-8"),
    ],
)
def test_what_is_no_configuration_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    message = refused(written(tmp_path, content))
    assert said in message
    assert len(message) < 10_000


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + EXAMPLE.encode())
    assert read_config(path).dump_op_switch


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("text", [EXAMPLE, "{\n", "// 数据\r\n" + EXAMPLE, "[]", "1"])
@pytest.mark.parametrize("order", ["le", "be"])
@pytest.mark.parametrize("bits", [16, 32])
def test_another_encoding_is_one_fault(
    bits: int, order: str, text: str, mark: bytes, tmp_path: Path
) -> None:
    """With a byte order mark and without."""
    content = (mark.decode("utf-8") + text).encode(f"utf-{bits}-{order}")
    message = refused(written(tmp_path, content))
    said = {"le": "little", "be": "big"}[order]
    assert (
        f"the encoding of this file is UTF-{bits} ({said}-endian), and JSON's is UTF-8" in message
    )
    assert "save it as UTF-8" in message and "fault" not in message


@pytest.mark.parametrize("many", ["fields", "dump_list", "dump_stats"])
def test_a_hundred_faults_are_enough(many: str, tmp_path: Path) -> None:
    names = {f"a{i}": 1 for i in range(50_000)}
    asked: dict[str, Any] = {"dump_path": "x"}
    if many == "fields":
        asked |= names
    else:
        asked[many] = [names] if many == "dump_list" else list(names)
    began = time.process_time()
    message = refused(written(tmp_path, asked))
    assert time.process_time() - began < 1.5  # a tenth of a second; many where all are told
    assert "more than 100 faults" in message and len(message) < 10_000


def test_a_file_that_is_not_there_is_looked_for_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DumpError, match="there is no acl.json") as caught:
        read_config("acl.json")
    assert str(tmp_path) in caught.value.where
    assert "working directory" in caught.value.where
    assert EXAMPLE in caught.value.todo


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "acl.json")
    assert "no regular file" in refused(tmp_path / "acl.json")
    (tmp_path / "folder").mkdir()
    assert "directory" in refused(tmp_path / "folder")


def config_for(folder: Path) -> AclConfig:
    return AclConfig(path=Path("/acl.json"), dump_path=folder)


def test_a_missing_folder_is_made_for_this_user_only(tmp_path: Path) -> None:
    config = config_for(tmp_path / "a" / "b")
    make_folder(config)
    make_folder(config)
    assert [p.stat().st_mode & 0o777 for p in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700] * 2


@pytest.mark.parametrize("below", ["", "x"])
def test_a_file_is_no_folder(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DumpError, match="no folder|cannot be made"):
        make_folder(config_for(tmp_path / "file" / below))


def test_a_name_too_long_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="cannot be made"):
        make_folder(config_for(tmp_path / ("x" * 300)))


def test_a_folder_must_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(DumpError, match="nothing can be written into dump_path"):
        make_folder(config_for(tmp_path))
