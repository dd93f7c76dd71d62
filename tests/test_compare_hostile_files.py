"""file_compare of files that lie: one clear message, exit status 2, nothing run, bounded memory."""

import io
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
from dumps import dump
from plainfiles import entry, run, safetensor, save, written

from compare import checkpoints
from compare.files import tensors_in
from dumper.errors import DumpError


def npy(header, data=b"", version=1, length=None):
    size = 2 if version == 1 else 4
    count = len(header) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + count.to_bytes(size, "little") + header + data


PLAIN = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}"


@pytest.mark.parametrize("data", [npy(PLAIN, b"\0" * 8), npy(PLAIN, b"\0" * 8, 2)])
def test_the_nearest_whole_npy(tmp_path, data):
    (tmp_path / "a.npy").write_bytes(data)
    assert tensors_in(tmp_path / "a.npy")["tensor"].read().tolist() == [0, 0]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"\x93NUM", "not an npy"),
        (b"PK\x03\x04" + b"\0" * 60, "not an npy"),
        (npy(PLAIN, b"\0" * 8, 9), "version 9.0"),
        (npy(PLAIN, b"\0" * 7), "claims 8 bytes and 7"),
        (npy(PLAIN, b"\0" * 9), "claims 8 bytes and 9"),
        (npy(PLAIN, b"", 2, 2**32 - 1), "damaged"),
        (npy(PLAIN.replace(b"(2,)", b"(-2,)")), "no shape"),
        (npy(PLAIN.replace(b"(2,)", b"(%d,)" % 2**70)), "claims"),
        (npy(PLAIN.replace(b"(2,)", b"(" + b"1," * 65 + b")"), b"\0" * 4), "no shape"),
        (npy(PLAIN.replace(b"(2,)", b"(" * 3000)), "damaged"),
        (npy(PLAIN.replace(b"(2,)", b"open('x')")), "damaged"),
        (npy(PLAIN.replace(b"<f4", b"|O"), pickle.dumps([1])), "|O are not compared"),
        (npy(PLAIN.replace(b"<f4", b"<V2"), b"\0" * 4), "V2 are not compared"),
        (npy(PLAIN.replace(b"'<f4'", b"[('a','<f4')]"), b"\0" * 8), "record are not compared"),
        (npy(PLAIN.replace(b"<f4", b"<M8[s]"), b"\0" * 16), "are not compared"),
        (npy(PLAIN.replace(b"<f4", b"<f16"), b"\0" * 32), "are not compared"),
    ],
)
def test_npy_files_that_lie(tmp_path, data, word):
    (tmp_path / "a.npy").write_bytes(data)
    done = run(tmp_path / "a.npy", save(tmp_path / "b.npy", [1, 2]), tmp_path)
    assert done.exit_code == 2 and word in done.stderr, done.output
    assert "what to do" in done.stderr and "unexpected" not in done.stderr


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        (b"", "damaged"),
        (b"[]", "no JSON object"),
        (b"{" * 100_000, "damaged"),
        (b'{"a":' * 100_000, "damaged"),
        (b'{"a":1,"a":1}', "twice"),
        ({"a": 1}, "has not dtype"),
        ({"a": entry() | {"more": 1}}, "has not dtype"),
        ({"a": entry(dtype=7)}, "has not dtype"),
        ({"a": entry(shape=(2.0,))}, "no number of bytes"),
        ({"a": entry(shape=(True,))}, "no number of bytes"),
        ({"a": entry(shape=(-2,))}, "no number of bytes"),
        ({"a": entry(shape=(2**62, 2**62))}, "claims"),
        ({"a": entry(shape=(3,))}, "claims 12 bytes and has 8"),
        ({"a": entry(offsets=(8, 0))}, "two offsets"),
        ({"a": entry(offsets=(0, 8, 8))}, "two offsets"),
        ({"a": entry(offsets=(4, 12))}, "begins at byte 4 where byte 0 is due"),
        ({"a": entry(), "b": entry(offsets=(4, 12))}, "begins at byte 4 where byte 8 is due"),
        ({"a": entry(), "b": entry()}, "begins at byte 0 where byte 8 is due"),
        ({"a": entry(shape=(1,), offsets=(0, 4))}, "claims 4 bytes and 8 follow"),
        ({"a": entry(shape=(4,), offsets=(0, 16))}, "claims 16 bytes and 8 follow"),
        ({"a": entry(shape=(1,) * 65)}, "damaged"),
        (b'{"a":' + b"9" * 5000 + b"}", "damaged"),
    ],
)
def test_safetensors_files_that_lie(tmp_path, entries, word):
    good = safetensor(tmp_path / "g.safetensors", {"a": entry()}, b"\0" * 8)
    assert tensors_in(good)["a"].read().tolist() == [0, 0]
    done = run(safetensor(tmp_path / "m.safetensors", entries, b"\0" * 8), good, tmp_path)
    assert done.exit_code == 2 and word in done.stderr, done.output
    assert "unexpected" not in done.stderr


def test_a_dtype_that_is_not_read_costs_its_row(tmp_path):
    entries = {"a": entry("F4", (2,), (0, 1)), "b": entry("U8", (1,), (1, 2))}
    names = "m.safetensors", "g.safetensors"
    files = [safetensor(tmp_path / name, entries, b"ab") for name in names]
    done = run(*files, tmp_path)
    first, second = written(done)
    assert done.exit_code == 1 and second["ExactMatch"] == "1.000000"
    assert first["CompareFailReason"].startswith("tensors of dtype F4 are not compared")


class Runs:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def looped(depth):
    value = inner = []
    for _ in range(depth):
        inner.append([])
        inner = inner[0]
    inner.append(torch.ones(1) if depth < 80 else value)
    return value


def shared(levels):
    """2 ** levels paths to one tensor."""
    value = [torch.ones(1)] * 2
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (Runs(), "objects other than tensors"),
        (torch.nn.Linear(2, 2), "such as torch.nn.modules.linear.Linear"),
        ({"a": torch.ones(1), "model": torch.nn.ReLU()}, "torch.save(model.state_dict(), ...)"),
        (looped(80), "64 levels"),
        (shared(30), "more than 1000 values"),
        ({"a/b": torch.ones(1), "a": {"b": torch.ones(1)}}, "two tensors are called 'a/b'"),
        ({"epoch": 3}, "no tensor"),
    ],
)
def test_pt_files_that_lie(tmp_path, monkeypatch, value, word):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoints, "_MOST_VALUES", 1000)
    torch.save(value, "m.pt")
    torch.save({"a": torch.ones(1)}, "g.pt")
    done = run("m.pt", "g.pt", ".")
    assert done.exit_code == 2 and word in done.stderr, done.output
    assert not (tmp_path / "ran").exists() and "unexpected" not in done.stderr
    assert "x1b" not in done.stderr and "still be loaded" not in done.stderr


def test_an_expanded_tensor_is_not_written_out_beyond_its_file(tmp_path):
    for name in ("m.pt", "g.pt"):
        torch.save(
            {"a": torch.ones(1).expand(2**40), "b": torch.ones(1).expand(20)}, tmp_path / name
        )
    rows = written(run(tmp_path / "m.pt", tmp_path / "g.pt", tmp_path))
    assert rows[0]["CompareFailReason"].startswith("this tensor claims 4398046511104 bytes of ")
    assert rows[1]["ExactMatch"] == "1.000000"


def test_a_pt_that_unpacks_to_more_is_refused(tmp_path):
    torch.save({"a": torch.zeros(1000)}, tmp_path / "g.pt")
    packed = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "g.pt") as old, zipfile.ZipFile(packed, "w", 8) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    (tmp_path / "m.pt").write_bytes(packed.getvalue())
    done = run(tmp_path / "m.pt", tmp_path / "g.pt", tmp_path)
    assert done.exit_code == 2 and "not as torch.save writes" in done.stderr


def test_a_pickle_that_torch_did_not_write(tmp_path):
    (tmp_path / "m.pt").write_bytes(pickle.dumps({"a": 1}, 4))
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "g.pt")
    assert list(tensors_in(tmp_path / "g.pt")) == ["weight", "bias"]
    done = run(tmp_path / "m.pt", tmp_path / "g.pt", tmp_path)
    assert done.exit_code == 2 and "not as torch.save writes" in done.stderr
    assert "Weights only" not in done.stderr


@pytest.mark.parametrize("keep", [0, 1, 4, 100, -1])
@pytest.mark.parametrize("ending", ["pt", "safetensors", "npy"])
def test_truncated_files(tmp_path, ending, keep):
    state = {"a": torch.ones(100)}
    torch.save(state, tmp_path / "g.pt")
    safetensors.torch.save_file(state, tmp_path / "g.safetensors")
    save(tmp_path / "g.npy", [1, 2])
    whole = tmp_path / f"g.{ending}"
    cut = tmp_path / f"m.{ending}"
    cut.write_bytes(whole.read_bytes()[:keep])
    done = run(cut, whole, tmp_path)
    assert done.exit_code == 2 and str(cut) in done.stderr, done.output
    assert "unexpected" not in done.stderr


def test_without_torch_a_pt_is_one_message(tmp_path, monkeypatch):
    torch.save(torch.ones(1), tmp_path / "a.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DumpError, match="needs torch"):
        tensors_in(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("text", "word", "dtype", "size"),
    [
        ("", "no numbers", "float32", 2),
        ("# only a comment\n", "no numbers", "float32", 2),
        ("# shape: [2]\n# dtype: float32\n", "no numbers", "float32", 2),
        ("# shape: [2]\n# dtype: float31\n1\n2\n", "float31", "float32", 2),
        ("# shape: [-2]\n# dtype: float32\n1\n2\n", "[-2]", "float32", 2),
        ("# shape: __import__('os')\n# dtype: float32\n1\n2\n", "do not say", "float32", 2),
        ("# shape: [3]\n# dtype: float32\n1\n2\n", "3 elements are claimed", "float32", 3),
        ("# shape: [9999999]\n# dtype: float32\n1\n2\n", "cannot hold", "float32", 2),
        ("# shape: [2]\n# dtype: int8\n1\n300\n", "not numbers of dtype int8", "int8", 2),
        ("# shape: [2]\n# dtype: int64\n1\n2.5\n", "not numbers of dtype int64", "int64", 2),
        ("1 2\n3\n", "not numbers", "float32", 2),
        ("one two\n", "not numbers", "float32", 2),
        ("\xff\0\0", "not numbers", "float32", 2),
    ],
)
def test_texts_that_lie(tmp_path, text, word, dtype, size):
    (tmp_path / "a.txt").write_bytes(text.encode("utf-8"))
    save(tmp_path / "b.npy", [1, 2])
    (tmp_path / "g.txt").write_text("# shape: [2]\n# dtype: float32\n1\n2\n")
    assert run(tmp_path / "g.txt", tmp_path / "b.npy", tmp_path).exit_code == 0
    done = run(tmp_path / "a.txt", save(tmp_path / "c.npy", np.zeros(size), dtype), tmp_path)
    assert done.exit_code == 2 and word in done.stderr, done.output


def test_paths_that_cannot_be_compared(tmp_path):
    a, b = save(tmp_path / "a.npy", [1]), save(tmp_path / "d" / "b.npy", [1])
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").write_text("1")
    dump(tmp_path / "d.h5", {"mm/1/output/x": np.ones(1)})
    os.mkfifo(tmp_path / "pipe.npy")
    for mine, golden, word in [
        (a, tmp_path / "missing.npy", "No such file"),
        (a, a, "the same file"),
        (a, b.parent, "one is a directory"),
        (b.parent, b.parent, "the same directory"),
        (b.parent, tmp_path / "empty", "no npy file"),
        (a, tmp_path / "a.csv", "'.csv' are not compared"),
        (tmp_path / "d.h5", a, "two dumps are compared by msaccucmp compare"),
        (a, tmp_path / "pipe.npy", "not a regular file"),
        (a, "nul\0.npy", "cannot look at this"),
    ]:
        done = run(mine, golden, tmp_path / "out")
        assert done.exit_code == 2 and word in done.stderr, (golden, done.output)
        assert not (tmp_path / "out").exists()
    done = run(a, b, a)
    assert done.exit_code == 2 and "cannot be written" in done.stderr


def test_names_are_inert(tmp_path):
    name = "=cmd|' /C calc'!A0\x1b[31m\u202e;+1"
    for side in ("m", "g"):
        safetensor(tmp_path / f"{side}.safetensors",
                   {name: entry(), "b": entry(offsets=(8, 16))}, b"\0" * 16)  # fmt: skip
    done = run(tmp_path / "m.safetensors", tmp_path / "g.safetensors", tmp_path)
    assert done.exit_code == 0 and "\x1b" not in done.output
    (row,) = [row for row in written(done) if row["NPUDump"] != "b"]
    assert row["NPUDump"].startswith("'=cmd") and "\x1b" not in row["NPUDump"]


def test_a_broken_file_costs_its_row(tmp_path):
    for side in ("m", "g"):
        for name in "abcd":
            save(tmp_path / side / f"{name}.npy", [1, 2])
    (tmp_path / "m" / "a.npy").write_bytes(b"")
    (tmp_path / "m" / "b.npy").write_bytes((tmp_path / "m" / "c.npy").read_bytes()[:-1])
    (tmp_path / "g" / "d.npy").unlink()
    os.mkfifo(tmp_path / "g" / "d.npy")
    done = run(tmp_path / "m", tmp_path / "g", tmp_path)
    assert done.exit_code == 1
    reasons = [row["CompareFailReason"] for row in written(done)]
    assert reasons[0].startswith("this file is empty: ")
    assert reasons[1].startswith("the header claims 8 bytes and 7 follow it: ")
    assert reasons[2] == "" and reasons[3].startswith("this is not a regular file: ")


def test_links_out_of_a_directory_are_not_followed(tmp_path):
    save(tmp_path / "secret" / "s.npy", [1])
    for side in ("m", "g"):
        save(tmp_path / side / "a.npy", [1])
        (tmp_path / side / "in.npy").symlink_to("a.npy")
        (tmp_path / side / "out.npy").symlink_to("../secret/s.npy")
        (tmp_path / side / "loop").symlink_to(".")
        (tmp_path / side / "round.npy").symlink_to("round.npy")
        (tmp_path / side / "text").symlink_to("/etc/passwd")
    rows = {row["NPUDump"]: row for row in written(run(tmp_path / "m", tmp_path / "g", tmp_path))}
    assert {name for name, row in rows.items() if row["ExactMatch"] != "NaN"} == {"a.npy", "in.npy"}
    assert "not followed" in rows["out.npy"]["CompareFailReason"]
    assert "not followed" in rows["loop/"]["CompareFailReason"]
    assert rows["round.npy"]["CompareFailReason"].startswith("this link leads nowhere")
    assert len(rows) == 5
