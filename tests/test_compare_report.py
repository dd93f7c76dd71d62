"""The json of a comparison: what is in it, and the same answer from it without the dumps."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from chains import GOOD, chain, compare, equal_pair, run
from dumps import dump, put


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two dumps: a difference, an op of one side only, an index that says where ops stand."""
    equal_pair(tmp_path, monkeypatch)
    mine = chain([[1, 2], [2, 4], [2, 5], [np.nan]])
    mine["mine_only/4/output/a"] = np.zeros(3, "f4")
    dump(tmp_path / "npu.h5", mine, 10)
    with h5py.File("npu.h5", "r+") as file:
        file.attrs["Environment"] = json.dumps({"torch": "2.9"})
        texts = {
            "index": {"ir": "relu", "seqid": 2, "phase": "forward", "call": 0},
            "calls": {"call": 0, "api": "torch.relu.0", "module": "a.b", "source": "x.py:3"},
        }
        for name, line in texts.items():
            text = np.frombuffer(json.dumps(line).encode() + b"\n", "u1")
            put(file, f"_torch_dumper/0/{name}", text, kind=110)
    return Path("npu.h5"), Path("cpu.h5")


def documents(done):
    """Path of the csv and of the json that a comparison named."""
    json_line, csv_line = done.stdout.splitlines()[-2:]
    return Path(csv_line.removeprefix("result: ")), Path(json_line.removeprefix("json: "))


def read(path):
    return json.loads(path.read_text("ascii"), parse_constant=pytest.fail)


def test_what_is_in_it(pair):
    table, path = documents(compare(*pair))
    found = read(path)
    assert path.stem == table.stem and path.stat().st_mode & 0o777 == 0o600
    assert list(found) == [
        "format", "version", "files", "options", "environments", "summary", "rows", "unpaired",
    ]  # fmt: skip
    assert (found["format"], found["version"]) == ("msaccucmp result", 2)
    assert found["files"]["mine"]["path"] == "npu.h5" and found["files"]["golden"]["device"] == 0
    assert found["environments"] == {"mine": {"torch": "2.9"}, "golden": {}}
    assert found["summary"]["compared"] == len(found["rows"]) == 6
    assert found["summary"]["counts"]["unpaired"] == len(found["unpaired"]) == 1
    assert found["summary"]["unpaired"] == {"no_partner": 1}
    assert found["options"]["loss_scale"] is None and found["options"]["op_map"] is None
    assert [row["row"] for row in found["rows"]] == [1, 2, 3, 4, 5, 6]
    assert found["unpaired"][0]["row"] == 7 and found["unpaired"][0]["metrics"] is None
    first = found["summary"]["first_difference"]
    relu = found["rows"][first["row"] - 1]
    assert relu["verdict"]["kind"] == "differs" and relu["match"] == "op"
    assert first == {
        "row": relu["row"], "ir": "relu", "seqid": 2, "call": "torch.relu.0", "phase": "forward",
        "module": "a.b", "source": "x.py:3", "arg": "output/result",
        "reason": relu["verdict"]["reason"],
    }  # fmt: skip
    assert [relu[key] for key in ("op", "phase", "api", "module", "source")] == [
        "relu", "forward", "torch.relu.0", "a.b", "x.py:3",
    ]  # fmt: skip
    last = found["rows"][-1]["metrics"]
    assert last["MaxAbsoluteError"] == "nan" and last["nan"] == [1, 0, 0]


def test_a_row_is_a_line(pair):
    """So that what is too large to read at once can be read line by line."""
    _, path = documents(compare(*pair))
    lines = [line.rstrip(",") for line in path.read_text().splitlines() if line[:7] == '{"row":']
    assert [json.loads(line)["row"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]


GIVEN = {
    "all": (),
    "some": ("-alg", "5,Last,0", "-c", "own", "-overflow_detection"),
    "first elements": ("-max", "1"),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=list(GIVEN))
def test_the_same_answer_without_the_dumps(pair, given):
    os.makedirs("own/algorithm")
    Path("own/algorithm/alg_Last.py").write_text(
        "def compare(my, golden, args): return str(my[-1]), ''\n"
    )
    done = compare(*pair, *given)
    table, path = documents(done)
    expected = table.read_bytes()
    for name in (*pair, table):
        os.unlink(name)
    again = run("report", path, "-out", "again")
    assert again.exit_code == done.exit_code == 1
    assert again.stderr == done.stderr
    assert again.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-2]
    assert Path(again.stdout.splitlines()[-1].removeprefix("result: ")).read_bytes() == expected
    told = run("report", path)
    assert told.stdout.splitlines() == done.stdout.splitlines()[:-2]
    assert os.listdir() != [] and len(os.listdir("again")) == 1


def test_what_is_missing_from_a_dump_is_said_again(pair):
    with h5py.File("npu.h5", "r+") as file:
        file.create_group("mul/one\x1b[31m")
        file.attrs["Finished"] = np.int32(0)
    done = compare(*pair)
    again = run("report", documents(done)[1])
    assert again.stderr == done.stderr
    assert "is unfinished" in done.stderr and "1 unreadable part" in done.stderr


def test_exit_status_of_equal_dumps(tmp_path, monkeypatch):
    done = compare(*equal_pair(tmp_path, monkeypatch))
    again = run("report", documents(done)[1])
    assert (done.exit_code, again.exit_code) == (0, 0)
    assert "nothing differs beyond rounding" in again.stdout


def test_unread_parts_are_no_equality(tmp_path, monkeypatch):
    pair = equal_pair(tmp_path, monkeypatch)
    with h5py.File("npu.h5", "r+") as file:
        file.create_group("mul/one")
    assert run("report", documents(compare(*pair))[1]).exit_code == 1


def test_names_of_anything(pair):
    """What is no UTF-8, what would run, and what a terminal would obey."""
    name = b"=a;=b\x1b/1/output/\xff\n"
    for path in pair:
        dump(path, chain(GOOD))
        with h5py.File(path, "r+") as file:
            file.move("mul/1/output/result", name)
    done = compare(*pair)
    table, path = documents(done)
    assert "/=a;=b\x1b/1/output/\udcff\n" in [row["my_path"] for row in read(path)["rows"]]
    assert b"\x1b" not in table.read_bytes() + path.read_bytes()
    again = run("report", path, "-out", "again")
    assert next(Path("again").iterdir()).read_bytes() == table.read_bytes()
    assert "\x1b" not in again.stdout + done.stdout


@pytest.mark.parametrize(("field", "value"), [("code", "counts"), ("culprit", "{x}")])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_words_of_a_verdict_are_data(pair, lang, field, value):
    _, path = documents(compare(*pair))
    found = read(path)
    first = found["rows"][found["summary"]["first_difference"]["row"] - 1]
    first["verdict"] |= {field: value, "reason": "{y}"}
    path.write_text(json.dumps(found))
    done = run("report", path, "--lang", lang)
    assert (done.exit_code, done.stderr) == (1, "")
    assert "{x}" not in done.stdout and ("{y}" in done.stdout) is (lang == "en" or field == "code")


def change(**fields):
    return lambda text: json.dumps({**json.loads(text), **fields})


def without(name):
    return lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != name})


def twice(text):
    found = json.loads(text)
    return json.dumps({**found, "rows": found["rows"] * 2})


def one_less(text):
    found = json.loads(text)
    return json.dumps({**found, "rows": found["rows"][1:]})


DAMAGE = {
    "cut": (lambda text: text[: len(text) // 2], "no JSON text"),
    "empty": (lambda text: "", "no JSON text"),
    "nested": (lambda text: "[" * 200_000, "no JSON text"),
    "a list": (lambda text: "[]", "no result of a comparison"),
    "another format": (change(format="x"), "no result of a comparison"),
    "a newer version": (change(version=3), "of version 3; this program reads 2"),
    "an older version": (change(version=1), "of version 1; this program reads 2"),
    "no rows": (without("rows"), "damaged"),
    "no files": (without("files"), "damaged"),
    "files of nothing": (change(files={}), "damaged"),
    "a file of nothing": (change(files={"mine": {}, "golden": {}}), "does not say what it is of"),
    "rows of numbers": (change(rows=[1, 2]), "no row of a result"),
    "rows that are none": (change(rows=5), "damaged"),
    "a row twice": (twice, "missing or there twice"),
    "a row less": (one_less, "missing or there twice"),
    "an algorithm": (
        change(options={"algorithm": ["x"], "custom": [], "overflow_detection": False}), "damaged",
    ),
    "no options": (change(options=[]), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=list(DAMAGE))
def test_a_damaged_json(pair, damage, words):
    _, path = documents(compare(*pair))
    path.write_text(damage(path.read_text()))
    done = run("report", path, "-out", "again")
    block = done.stderr.splitlines()
    assert done.exit_code == 2 and done.stdout == ""
    assert len(block) == 3 and words in block[0] and str(path) in block[1]
    assert not Path("again").exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "there is no such file"),
        (os.mkfifo, "not a regular file"),
        (os.mkdir, "not a regular file"),
        (lambda path: path.write_bytes(b"\xff\xfe\0"), "no JSON text"),
    ],
)
def test_no_json_at_all(tmp_path, make, words):
    make(tmp_path / "x.json")
    done = run("report", tmp_path / "x.json")
    assert done.exit_code == 2 and words in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 3
