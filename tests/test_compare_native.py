"""Machine code that is kept: used when it is whole and ours, made again when not."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from compare import entries, native
from compare.measure import address
from compare.metrics import compare_arrays

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The file of the code in a cache of its own, with good code in it."""
    compare_arrays(np.zeros(1), np.ones(1))  # so that there is some
    code = next(filter(None, map(native._stored, native._places(native._name()))))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    native._store(code, native._name())
    return tmp_path / native._name(), code


@pytest.fixture
def compiled(place, monkeypatch) -> list:
    """Grows by one whenever the loops are compiled."""
    found = []

    def compile_(machine):
        found.append(machine)
        return place[1]

    monkeypatch.setattr(entries, "object_code", compile_)
    return found


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


SPOILT = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": cut,
    "one bit": flip,
    "another's to write": lambda path: path.chmod(0o620),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


def test_whole_code_is_used(place, compiled):
    assert set(native._load()) >= {"first_32", "second_32"}
    assert compiled == []
    assert place[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=list(SPOILT))
def test_other_code_is_made_again(place, compiled, spoil):
    path, code = place
    spoil(path)
    assert set(native._load()) >= {"first_32", "second_32"}
    assert len(compiled) == 1
    if path.is_file():  # what stood in its place stays
        assert native._stored(path) == code
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_no_place_means_compiling_again(place, compiled, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/none")
    for times in (1, 2):
        assert set(native._load()) >= {"first_32", "second_32"}
        assert len(compiled) == times


def test_the_code_depends_on_its_sources_and_the_processor(monkeypatch):
    name = native._name()
    assert name == native._name()
    monkeypatch.setattr(native, "_features", lambda: "+none")
    assert native._name() != name


def test_code_lives_as_long_as_its_functions(place, monkeypatch):
    """Also where the loops are loaded again, as by these tests: others still call the first."""
    create, owners = native.llvm.create_mcjit_compiler, []

    def remembered(*given):
        owner = create(*given)
        owners.append(weakref.ref(owner))
        return owner

    monkeypatch.setattr(native.llvm, "create_mcjit_compiler", remembered)
    kept = native._load()["count_pairs"]
    native._load()
    gc.collect()
    assert [owner() is None for owner in owners] == [False, True]
    table, sides = np.zeros(1 << 16, np.int64), np.zeros(4, np.uint8)
    kept(address(sides), address(sides), 4, address(table))
    assert table[0] == 4
    del kept
    gc.collect()
    assert owners[0]() is None


def test_a_comparison_does_not_start_numba(place):
    code = (
        "import sys, numpy as np\n"
        "from compare.metrics import compare_arrays\n"
        "print(compare_arrays(np.zeros(3), np.ones(3)).max_absolute, 'numba' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "1.0 False\n", done.stderr


def test_the_name_depends_on_every_source():
    """Code of a module that was changed must not be taken for that of the new one."""
    script = "import sys, compare.entries; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    ours = {name for name in run.stdout.split() if name.startswith("compare.")}
    assert {f"compare.{name}" for name in native._SOURCES} >= ours
