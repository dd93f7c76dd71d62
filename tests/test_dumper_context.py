"""`torch.utils.dumper`: arguments, paths, life cycle."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path

import pytest
import torch
from forked import Forked

from dumper import DumpError, dumper, open_dump

STAMP = re.compile(r"\d{8}_\d{6}\.\d{6}\.h5")


def step() -> torch.Tensor:
    x = torch.ones(3, requires_grad=True)
    loss = (x * 2).sum()
    loss.backward()
    return x.grad


def recorded(path: Path) -> list[str]:
    with open_dump(path) as dump:
        return [record.ir for record in dump.records]


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.h5"
    with dumper(use_dump=True, dump_path=path):
        step()
    return path


@pytest.mark.parametrize("flag", ["use_dump", "use_load", "check_overflow", "load_with_acl_dump"])
@pytest.mark.parametrize("value", [1, None, "True"])
def test_flags_are_booleans(flag: str, value: object) -> None:
    dumper(**{flag: False})
    with pytest.raises(RuntimeError, match="should be set to True or False!"):
        dumper(**{flag: value})


def test_modes_exclude_each_other(tmp_path: Path, dump: Path) -> None:
    both = dumper(use_dump=True, use_load=True, dump_path=tmp_path / "x.h5", load_file_path=dump)
    with pytest.raises(RuntimeError, match="can not run together!"), both:
        pass


@pytest.mark.parametrize("path", [None, "", "missing.h5", "."])
def test_load_needs_a_file(path: str | None, tmp_path: Path) -> None:
    context = dumper(use_load=True, dump_path=tmp_path / "x.h5", load_file_path=path)
    with pytest.raises(RuntimeError, match="please input a file path"), context:
        pass


def test_load_refuses_what_is_no_dump(tmp_path: Path) -> None:
    other = tmp_path / "other.h5"
    other.write_bytes(b"not HDF5 at all")
    with (
        pytest.raises(DumpError, match="not an HDF5 file"),
        dumper(use_load=True, dump_path=tmp_path / "x.h5", load_file_path=other),
    ):
        pass


def test_dump_and_load_path_differ(dump: Path, tmp_path: Path) -> None:
    link = tmp_path / "same.h5"
    link.symlink_to(dump)
    before = dump.read_bytes()
    for path in (dump, link, f"{dump.parent}/./{dump.name}"):
        with (
            pytest.raises(RuntimeError, match="can not be same!"),
            dumper(use_load=True, dump_path=path, load_file_path=dump),
        ):
            pass
    assert dump.read_bytes() == before


def test_directory_must_exist(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"the directory '.*gone' does not exist"),
        dumper(use_dump=True, dump_path=tmp_path / "gone" / "x.h5"),
    ):
        pass


def test_a_path_must_be_a_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/null", tmp_path / "fifo"):
        with (
            pytest.raises(RuntimeError, match="is no regular file"),
            dumper(use_dump=True, dump_path=path),
        ):
            pass


def test_bytes_are_a_path(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=os.fsencode(tmp_path / "x.h5")):
        step()
    assert "mul_Tensor" in recorded(tmp_path / "x.h5")


@pytest.mark.parametrize("given", [None, "", "here/", "here"])
def test_time_stamped_names(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    with dumper(use_dump=True, dump_path=given) as context:
        step()
    folder = tmp_path / "here" if given else tmp_path
    (made,) = folder.glob("*.h5")
    assert STAMP.fullmatch(made.name)
    assert made.samefile(context.path)


@pytest.mark.parametrize(
    "arguments", [{"enabled": False, "use_dump": True}, {}, {"dump_path": "x.h5"}]
)
def test_nothing_to_do_leaves_no_file(
    arguments: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with dumper(**arguments):
        step()
    assert list(tmp_path.iterdir()) == []


def test_no_op_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path):
        pass
    assert not path.exists()
    with dumper(use_dump=True, dump_path=path):  # nothing was finished, so this one records
        step()
    assert "mul_Tensor" in recorded(path)


def test_not_reentrant(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "outer.h5"):
        with (
            pytest.raises(RuntimeError, match="not reentrant"),
            dumper(use_dump=True, dump_path=tmp_path / "inner.h5"),
        ):
            pass
        step()
    assert "mul_Tensor" in recorded(tmp_path / "outer.h5")
    with dumper(use_dump=True, dump_path=tmp_path / "next.h5"):
        step()
    assert "mul_Tensor" in recorded(tmp_path / "next.h5")


def test_second_entry_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            with dumper(use_dump=True, dump_path=path):
                torch.ones(2).exp()
            first = path.read_bytes()
    assert recorded(path) == ["ones", "exp"]
    assert path.read_bytes() == first
    assert len([w for w in caught if "is kept" in str(w.message)]) == 1


def test_rerun_of_a_script_replaces_the_file(tmp_path: Path, forked: Forked) -> None:
    for op in ("exp", "sin"):
        done = forked.run(
            f"""
            import os, torch, dumper
            os.chdir({str(tmp_path)!r})
            with torch.utils.dumper(use_dump=True, dump_path="./model.h5"):
                torch.ones(2).{op}()
            """
        )
        assert done.returncode == 0, done.stderr
        assert recorded(tmp_path / "model.h5") == ["ones", op]


@pytest.mark.parametrize(
    ("ending", "code"), [("exit()", 0), ("exit(3)", 3), ("raise ValueError('mine')", 1)]
)
def test_leaving_early_finishes_the_file(
    ending: str, code: int, tmp_path: Path, forked: Forked
) -> None:
    done = forked.run(
        f"""
        import os, torch, dumper
        os.chdir({str(tmp_path)!r})
        for i in range(3):
            with torch.utils.dumper(use_dump=True, dump_path="./model.h5"):
                torch.ones(2).exp()
                {ending}
        """
    )
    assert done.returncode == code
    assert ("ValueError: mine" in done.stderr) == (code == 1)
    with open_dump(tmp_path / "model.h5") as dump:
        assert dump.finished
        assert [record.ir for record in dump.records] == ["ones", "exp"]


def test_use_dump_with_a_load_file_loads(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "loaded.h5"
    with dumper(use_dump=True, dump_path=path, load_file_path=dump) as context:
        step()
    with open_dump(path) as loaded:
        assert loaded.load_mode
        assert context.matched == len(loaded.records) > 0


def test_files_are_private(dump: Path) -> None:
    assert dump.stat().st_mode & 0o777 == 0o600


def test_environment_is_a_closed_list(dump: Path) -> None:
    with open_dump(dump) as opened:
        assert opened.environment["torch"] == str(torch.__version__)
        assert opened.environment["mode"] == "dump"
        text = str(opened.environment)
    for private in (os.uname().nodename, str(dump.parent), sys.argv[0]):
        assert private not in text
