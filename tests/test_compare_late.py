"""What follows a complete result: -p and -advisor that fail or are stopped cost nothing of it; and
the words of a command that choose what it shows."""

import csv
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from chains import GOOD, chain, compare, equal_pair, result, run
from dumps import dump
from test_compare_filtered import claiming


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two dumps of which the last tensor differs."""
    found = equal_pair(tmp_path, monkeypatch)
    dump(tmp_path / "npu.h5", chain([*GOOD[:3], [-6]]), 10)
    return found


def named(done):
    """The json and the csv that the last two lines name, both whole."""
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines()[-2:])
    assert list(lines) == ["json", "result"]
    assert json.loads(Path(lines["json"]).read_text())["summary"]["rows"] == len(result(done))
    return Path(lines["result"])


def test_a_value_that_claims_gigabytes_leaves_the_rest(pair):
    for path in pair:
        claiming(path, "huge/9", 1 << 30)
    done = compare(*pair, "-out", "out", "-p", "1", "-advisor")
    assert done.exit_code == 2 and done.stderr.count("claims 4294967296 bytes") == 2
    filtered = named(done).with_suffix("").with_name(f"{named(done).stem}_filtered")
    rows = list(csv.DictReader(open(filtered / "filtered_result.csv", newline="")))
    last = [row for row in rows if row["NPUDump"] == "sum" and "output" in row["NPUDumpPath"]]
    assert np.load(filtered / last[0]["MyFile"]).tolist() == [-6]
    assert Path("out/advisor_summary.txt").exists() and "advice: out" in done.stdout


@pytest.mark.parametrize("taken", ["filtered", "advisor_summary.txt"])
def test_what_cannot_be_written_leaves_the_rest(pair, monkeypatch, taken):
    monkeypatch.setattr("time.strftime", lambda *_: "result_20260101000000")
    os.mkdir("out")
    if taken == "filtered":
        Path("out/result_20260101000000_filtered").write_text("a file")
    else:
        os.mkdir(f"out/{taken}")
    done = compare(*pair, "-out", "out", "-p", "1", "-advisor")
    assert done.exit_code == 2 and done.stderr.count("msaccucmp: error: ") == 1
    assert named(done).exists()
    assert Path("out/advisor_summary.txt").is_file() is (taken == "filtered")
    written = Path("out/result_20260101000000_filtered/filtered_result.csv")
    assert written.exists() is (taken != "filtered")


def test_many_errors_are_counted(pair):
    for path in pair:
        for i in range(7):
            claiming(path, f"huge/{10 + i}", 1 << 30)
    done = compare(*pair, "-out", "out", "-p", "1")
    assert done.exit_code == 2 and done.stderr.count("claims 4294967296 bytes") == 10
    assert "error: 4 more, as the last one" in done.stderr and named(done).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", [("-p", "1"), ("-p", "1", "-advisor")], ids=len)
def test_a_stop_after_the_result_says_that_it_is_complete(pair, monkeypatch, options, number):
    """The second signal comes while the first one's clearing up is at work."""
    unlink, before = Path.unlink, signal.signal(number, signal.default_int_handler)

    def stop(*_, **given):
        os.kill(os.getpid(), number)

    def again(path, **given):
        if path.parent.name.endswith("_filtered"):
            os.kill(os.getpid(), number)
        unlink(path, **given)

    with monkeypatch.context() as patch:
        patch.setattr("compare.filtered.np.save", stop)
        patch.setattr(Path, "unlink", again)
        done = compare(*pair, "-out", "out", *options)
    assert signal.signal(number, before) is signal.default_int_handler
    what = " and ".join(option for option in options if option != "1")
    assert (done.exit_code, done.stderr) == (
        2,
        f"msaccucmp: error: interrupted; the result is complete, and what {what} write may not be\n"
        "  what to do: give the same command again, which compares anew\n",
    )
    assert named(done).exists() and not list(Path("out").rglob("*.partial"))
    assert not list(Path("out").rglob(".*.partial")) and len(list(Path("out").iterdir())) == 3


@pytest.mark.parametrize(
    "given",
    [
        ("-alg", "9 0 3"),
        ("-alg", "9", "CosineSimilarity", "3"),
        ("-alg", "meanrelativeerror", "0", "relativeEUCLIDEANdistance"),
        ("-alg", "9,", "0", ",3"),
        ("-alg=9", "0", "3"),
        ("--algorithm=9,0", "3"),
    ],
)
def test_algorithms_as_words(pair, given):
    done = compare(*pair, *given, "-out", "out")
    assert done.exit_code == 1
    assert list(result(done)[0])[6:10] == [
        "MeanRelativeError", "CosineSimilarity", "RelativeEuclideanDistance", "CompareFailReason",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("-alg", "0", "cosine"), "the nearest is CosineSimilarity"),
        (("-alg", "all", "0"), "nothing can stand beside it"),
        (("-alg", "0", "10"), "there is no algorithm '10'"),
        (("-c", ""), "'-c' / '--custom_script_path': it is empty"),
        (("-out", ""), "it is empty"),
        (("-m", ""), "'-m' / '--my_dump_path': it is empty"),
        (("-g", ""), "'-g' / '--golden_dump_path': it is empty"),
    ],
)
def test_what_names_nothing_is_one_message(pair, given, words):
    done = compare(*pair, *given)
    assert done.exit_code == 2 and done.stderr.count("msaccucmp: error: ") == 1
    assert words in done.stderr and not done.stdout


def test_report_ends_with_zero_where_asked(pair):
    done = compare(*pair, "-out", "out", "--exit-zero")
    path = named(done).with_suffix(".json")
    assert done.exit_code == 0
    assert run("report", path).exit_code == 1
    assert run("report", path, "--exit-zero").exit_code == 0
    path.write_text("{}")
    assert run("report", path, "--exit-zero").exit_code == 2
    assert "it is empty" in run("report", "").stderr


def test_a_name_of_a_column_is_refused_before_anything_is_compared(pair):
    os.makedirs("own/algorithm")
    Path("own/algorithm/alg_UlpMax.py").write_text("def compare(a, b, c): return '1,2', ''\n")
    done = compare(*pair, "-c", "own", "-out", "out")
    assert done.exit_code == 2 and "no algorithm can be called UlpMax" in done.stderr
    assert not Path("out").exists()
    os.rename("own/algorithm/alg_UlpMax.py", "own/algorithm/alg_Ulp.py")
    assert [row["Ulp"] for row in result(compare(*pair, "-c", "own"))] == ["1,2"] * 6
