"""msaccucmp convert on folders and lists of CANN dumps: what is found, names that are too long, and
all processors at work."""

from __future__ import annotations

import csv
import os
import uuid
from pathlib import Path

import numpy as np
import pytest
from test_ir2tbe_convert import NAME, STAMP, below, made, one, refused, run

from compare import converting, progress
from ir2tbe import sources
from ir2tbe.cann import folder as folders


def test_a_folder_with_folders(tmp_path: Path) -> None:
    for i, place in enumerate(("", "0/1", "0/1/2")):
        made(tmp_path / "dump" / place / f"Add.a.{i}.2.{STAMP}", one(np.full(3, i, "f2")))
    (tmp_path / "dump" / "notes.txt").write_text("no dump")
    done = run("-d", tmp_path / "dump", "-out", tmp_path / "out")
    assert done.exit_code == 0
    places = {0: "", 1: "0/1/", 2: "0/1/2/"}
    names = {i: f"{place}Add.a.{i}.2.{STAMP}.input.0.npy" for i, place in places.items()}
    assert below(tmp_path / "out") == sorted(names.values())
    for i, name in names.items():
        assert np.load(tmp_path / "out" / name).tolist() == [i] * 3
    assert done.stdout.startswith("3 dump files, ")


def test_several_by_commas(tmp_path: Path) -> None:
    first = made(tmp_path / "a" / NAME, one(np.zeros(1, "f2")))
    second = made(tmp_path / "b" / NAME, one(np.ones(1, "f2")))
    third = made(tmp_path / "x,y" / f"Add.c.1.2.{STAMP}", one(np.ones(1, "f2")))
    done = run("-d", f"{first},{second}", "-out", tmp_path / "out")
    assert done.exit_code == 0
    later, plain = below(tmp_path / "out")
    assert plain == f"{NAME}.input.0.npy" and np.load(tmp_path / "out" / plain) == [0]
    assert later.startswith(f"{NAME}.") and np.load(tmp_path / "out" / later) == [1]
    assert run("-d", third, "-out", tmp_path / "more").exit_code == 0
    assert below(tmp_path / "more") == [f"Add.c.1.2.{STAMP}.input.0.npy"]


@pytest.mark.parametrize("bad", ["x" * 300, "none", "loop", "a\0b", "file/x"])
def test_a_path_that_cannot_be_costs_no_other(tmp_path: Path, bad: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    good = made(tmp_path / "dump" / NAME, one(np.ones(2, "f2")))
    error = refused("-d", f"{tmp_path / bad},{good}", "-out", tmp_path / "out")
    assert error.count("msaccucmp: error: this file cannot be read") == 1
    assert below(tmp_path / "out") == [f"{NAME}.input.0.npy"]


def test_a_file_that_goes_while_it_is_found(tmp_path: Path, monkeypatch) -> None:
    made(tmp_path / "dump" / NAME, one(np.ones(2, "f2")))
    gone = made(tmp_path / "dump" / f"Add.a.1.2.{STAMP}", one(np.ones(2, "f2")))

    def walk(*arguments):
        for folder, files in folders.walk(*arguments):
            gone.unlink()
            yield folder, files

    monkeypatch.setattr(sources, "walk", walk)
    found = sources.find([tmp_path / "dump"])
    assert [source.name for source in found.files] == [NAME]
    assert [error.where for error in found.errors] == [str(gone)]


def test_many_files_by_several_processes(tmp_path: Path) -> None:
    """More than one process takes, with a bad one among them."""
    for i in range(80):
        made(tmp_path / "dump" / f"Add.a.{i}.2.{STAMP}", one(np.full(2, i, "f2")))
    (tmp_path / "dump" / f"Add.a.7.2.{STAMP}").write_bytes(b"\5" + bytes(30))
    done = run("-d", tmp_path / "dump", "-out", tmp_path / "out")
    assert done.exit_code == 2 and done.stderr.count("msaccucmp: error:") == 1
    names = [f"Add.a.{i}.2.{STAMP}.input.0.npy" for i in range(80) if i != 7]
    assert below(tmp_path / "out") == sorted([*names, "convert_failed_file_list.txt"])
    assert all(np.load(tmp_path / "out" / n).tolist() == [int(n.split(".")[2])] * 2 for n in names)
    failed = (tmp_path / "out" / "convert_failed_file_list.txt").read_text()
    assert failed == f"{tmp_path}/dump/Add.a.7.2.{STAMP}\n"


def test_progress_is_by_files_and_every_processor_works(tmp_path: Path, monkeypatch) -> None:
    for i in range(160):
        made(tmp_path / "dump" / f"Add.a.{i}.2.{STAMP}", one(np.full(2, i, "f2")))
    seen = []

    def with_progress(items, title, total):
        for item in items:
            seen.append((title, total))
            yield item

    convert_one = converting.convert_one
    written = tmp_path / "processes"

    def noted(*arguments):
        with open(written, "a") as file:
            file.write(f"{os.getpid()}\n")
        return convert_one(*arguments)

    monkeypatch.setattr(progress, "with_progress", with_progress)
    monkeypatch.setattr(converting, "convert_one", noted)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert run("-d", tmp_path / "dump", "-out", tmp_path / "out").exit_code == 0
    assert seen == [("converting", 160)] * 160
    processes = set(written.read_text().split())
    assert len(processes) == 3 and str(os.getpid()) not in processes


def test_names_that_are_too_long(tmp_path: Path) -> None:
    """254 bytes stay; one more becomes its uuid3, and mapping.csv says what it was."""
    ending = f".3.2.{STAMP}"
    fits = "Add." + "b" * (254 - len("Add." + ending + ".input.0.npy")) + ending
    longer = f"Add.c{fits[4:]}"
    for name in (fits, longer):
        made(tmp_path / "dump" / name, one(np.ones(2, "f2")))
    for _ in range(2):  # the second time the line is there already
        assert run("-d", tmp_path / "dump", "-out", tmp_path / "out").exit_code == 0
    name = f"{longer}.input.0.npy"
    short = f"{uuid.uuid3(uuid.NAMESPACE_DNS, name).hex}.npy"
    expected = sorted([f"{fits}.input.0.npy", short, "mapping.csv"])
    assert below(tmp_path / "out") == expected
    with open(tmp_path / "out" / "mapping.csv", newline="") as file:
        assert list(csv.reader(file)) == [[short, name]]
    assert np.load(tmp_path / "out" / short).tolist() == [1, 1]


def test_short_names_that_a_mapping_explains(tmp_path: Path) -> None:
    made(tmp_path / "dump" / "123456", one(np.ones(2, "f2")))
    made(tmp_path / "dump" / "999", one(np.ones(2, "f2")))
    (tmp_path / "dump" / "mapping.csv").write_text(f"123456,{NAME}\n")
    assert run("-d", tmp_path / "dump", "-out", tmp_path / "out").exit_code == 0
    assert below(tmp_path / "out") == ["123456.input.0.npy"]
