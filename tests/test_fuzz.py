"""scripts/fuzz: that it runs, that its files are what they should be, and that it sees faults."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest
from fuzz import Pool
from fuzz_bytes import checksum, damage, map_of
from fuzz_hostile import HOSTILE
from fuzz_seeds import make_seeds
from fuzz_worker import Seed, make

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}"}

FAULTY = """
import json, os, sys
from pathlib import Path
import click, numpy as np
from fuzz_hostile import MARK
from fuzz_worker import Watch, attempt
from compare.program import Program

def sound(): click.echo("nothing differs")
def escape(): click.echo("a \\x1b[31m", color=True)
def traceback(): raise ValueError("lost")
def unexpected(): raise AttributeError("lost")
def status(): sys.exit(3)
def silent(): sys.exit(2)
def leak(): click.echo(f"{MARK:.0f}")
def outside(): Path("../x").write_text("x")
def link(): Path("out/x").symlink_to("/etc/passwd")
def formula(): Path("out/r.csv").write_text(",".join(["1"] * 16 + ["=1+1"]))
def torn(): Path("out/r.csv").write_text("1,2")
def no_json(): Path("out/r.json").write_text("{")
def values(): np.save("out/r.npy", np.full(4, MARK))

box = Path(sys.argv[1], "box")
(box / "out").mkdir(parents=True)
os.chdir(box)
watch = Watch(box)
found = {}
for call in (sound, escape, traceback, unexpected, status, silent, leak, outside, link, formula,
             torn, no_json, values):
    group = click.Group("group") if call in (traceback, status, silent) else Program("group")
    group.add_command(click.Command(call.__name__, callback=call))
    found[call.__name__] = [fault.kind for fault in attempt(group, [call.__name__], watch, box)]
    for path in Path("out").iterdir():
        path.unlink()
print(json.dumps(found))
"""

KINDS = {
    "escape": "a control character in the output of escape",
    "traceback": "traceback: ValueError at no place of ours",
    "unexpected": "unexpected: AttributeError",
    "status": "exit status 3 of status",
    "silent": "no message by silent",
    "leak": "another file's values in the output of leak",
    "outside": "written outside of the output folder by outside",
    "link": "no plain file made by link",
    "formula": "a formula in the csv",
    "torn": "a torn row in the csv",
    "no_json": "a result that is no JSON",
    "values": "another file's values in a file of values",
}


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Seed]:
    """The files that are damaged."""
    paths = make_seeds(tmp_path_factory.mktemp("seeds"))
    found = []
    for path in paths:
        beside = Path(f"{path}.journal")
        journal = beside.read_bytes() if beside.exists() else None
        found.append(Seed(path.stem, path.read_bytes(), journal, map_of(path.read_bytes())))
    return found


def test_a_short_run() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "fuzz.py", "--quick"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == (
        "fuzz files=80 faults=0 seed=0 contained=0 spoilt=0\n",
        0,
    ), done.stderr


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The kinds of fault that are seen in commands with one each, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTY, tmp_path_factory.mktemp("judged")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", KINDS)
def test_a_fault_is_seen(judged: dict[str, list[str]], name: str) -> None:
    assert any(kind.startswith(KINDS[name]) for kind in judged[name]), judged[name]


def test_what_is_sound_is_no_fault(judged: dict[str, list[str]]) -> None:
    assert judged["sound"] == []


def dies(connection, folder) -> None:
    connection.recv()
    connection.send(("--help",))
    os.kill(os.getpid(), signal.SIGSEGV)


def hangs(connection, folder) -> None:
    connection.recv()
    connection.send(("--help",))
    time.sleep(1000)


def answers(connection, folder) -> None:
    for _ in range(2):
        connection.recv()
        connection.send(("info", "bad.h5"))
        connection.send([])


PROGRAMS = {
    "well": "import sys; sys.exit(1)",
    "says": "import sys; sys.stderr.write('my ...\\nmsaccucmp: error: x'); sys.exit(2)",
    "silent": "import sys; sys.exit(2)",
    "raises": "raise ValueError",
    "killed": "import os; os.kill(os.getpid(), 11)",
    "other": "import sys; sys.exit(7)",
}  # fmt: skip


@pytest.mark.parametrize(
    ("program", "counts"),
    [
        ("well", (0, 1)),
        ("says", (1, 0)),
        ("silent", None),
        ("raises", None),
        ("killed", None),
        ("other", None),
    ],
)
@pytest.mark.parametrize(
    ("serve", "seconds", "kind"),
    [(dies, 60.0, "died with -11 at no place"), (hangs, 0.5, "over 0.5 s in --help")],
)
def test_a_process_that_is_lost_is_a_fault(
    tmp_path, monkeypatch, serve, seconds, kind, program, counts
) -> None:
    """Unless the program itself ends as it must; and the next file is another process's."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAMS[program])
    monkeypatch.setattr("fuzz._PROGRAM", path)
    pool = Pool(tmp_path, None, serve, (), seconds)
    found = {n: [fault.kind for fault in faults] for n, faults in pool.run([5], 1)}
    assert found == {5: [kind] if counts is None else []}
    assert (pool.contained, pool.spoilt) == (counts or (0, 0))


def test_a_process_that_answers_is_none(tmp_path) -> None:
    pool = Pool(tmp_path, None, answers, (), 60.0)
    assert dict(pool.run([5, 6], 1)) == {5: [], 6: []}


def test_a_file_is_made_again_by_its_number(tmp_path, seeds) -> None:
    made = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        for number in range(40):
            (place := folder / str(number)).mkdir(parents=True)
            bad, _ = make(number, 3, seeds, place)
            made.append(bad.read_bytes())
    assert len(set(made[:40])) > 30  # of some only the journal is damaged
    for one, other in zip(made[:40], made[40:], strict=True):
        assert len(one) == len(other)
        # the times that HDF5 notes in headers, and their checksums
        assert sum(a != b for a, b in zip(one, other, strict=True)) < 100


def test_damage_goes_where_the_structures_are(seeds) -> None:
    """Sizes stay in most files, and the checksums that HDF5 asks for are right again."""
    (latest,) = [seed for seed in seeds if seed.name == "latest"]
    assert checksum(latest.data[:44]) == int.from_bytes(latest.data[44:48], "little")
    damaged = [damage(random.Random(i), latest.data, latest.where, []) for i in range(60)]
    whole = [data for data in damaged if len(data) == len(latest.data)]
    assert sum(data != latest.data for data in whole) > 40
    sealed = [checksum(data[:44]) == int.from_bytes(data[44:48], "little") for data in whole]
    assert sum(sealed) > 40


@pytest.mark.parametrize("add", dict.fromkeys(HOSTILE), ids=lambda add: add.__name__)
def test_hostile_content_is_sound_hdf5(tmp_path, seeds, add) -> None:
    """Whatever is added, HDF5 opens the file and the records that were there stay."""
    (plain,) = [seed for seed in seeds if seed.name == "plain"]
    changed = 0
    for number in range(12):
        path = tmp_path / "a.h5"
        path.write_bytes(plain.data)
        with h5py.File(path, "r+") as file:
            add(file, random.Random(number))
        changed += path.read_bytes() != plain.data
        with h5py.File(path, "r") as file:
            assert "mm/2/output/result" in file
    assert changed > 6
