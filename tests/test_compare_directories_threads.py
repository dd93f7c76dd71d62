"""compare and convert on the files that FFTS+ threads leave: put together, or -ffts one by one."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from folders import START, put, rows, run, save, tensor

from compare.cli import cli
from ir2tbe.cann.content import Dump
from ir2tbe.cann.file import write

X = np.arange(24, dtype="f4").reshape(4, 6)
HALVES = ((0, 2), (2, 4))
GRAPH = "partition0_rank1_new_sub_graph3_sgt_graph_0/"


def threads(folder, at, value, name="net/relu", parts=HALVES, shape=True, **more):
    """An operator's files, one a thread, each with some rows. shape: files have the part's own."""
    folder.mkdir(parents=True, exist_ok=True)
    slices = [[[{"lower": a, "higher": b}, {"lower": 0, "higher": 6}]] for a, b in parts]
    said = {"threadMode": True, "slice_instance_num": len(parts), "outputCutList": [[2, 1]],
            "input_tensor_slice": slices, "output_tensor_slice": slices, **more}  # fmt: skip
    for thread, (a, b) in enumerate(parts):
        part = tensor(value[a:b])
        if not shape:
            part = replace(part, shape=value.shape)
        file = GRAPH.replace("/", "_") + name.replace("/", "_")
        path = folder / f"Relu.{file}.2.9.{START + 10 * at + thread}.4.{330 + thread}.{thread}.0"
        kept = (("_sgt_json_info", json.dumps(said)),)
        write(path, Dump((part,), (part,), op_name=GRAPH + name, attributes=kept))


def slices(folder, at, value, name="net/relu"):
    """The same in manual mode: the ops have names of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    said = {"threadMode": False, "slice_instance_num": 2, "outputCutList": [[2, 1]],
            "inputCutList": [[2, 1]]}  # fmt: skip
    for k, (a, b) in enumerate(HALVES):
        part, called = tensor(value[a:b]), f"{name}_lxslice{k}"
        path = folder / f"Relu.{called.replace('/', '_')}.2.9.{START + 10 * at + k}.4.7.0.0"
        kept = (("_sgt_json_info", json.dumps(said)),)
        write(path, Dump((part,), (part,), op_name=called, attributes=kept))


def said(done):
    return [(r["Index"], r["TensorIndex"], r["Shape"], r["Verdict"]) for r in rows(done)]


WHOLE = [("1", f"net/relu:{side}:0", "[4,6]", "same") for side in ("input", "output")]


@pytest.mark.parametrize("shape", [True, False])
@pytest.mark.parametrize("make", [threads, slices])
def test_threads_against_a_device_without_them(tmp_path, make, shape):
    more = {} if make is slices else {"shape": shape}
    make(tmp_path / "m", 0, X, **more)
    put(tmp_path / "g", 0, "Relu", "net/relu", [X], [X])
    for sides in ("mg", "gm"):
        done = run(*(tmp_path / side for side in sides), tmp_path / "out")
        assert said(done) == WHOLE and done.exit_code == 0, done.output
    assert f"{tmp_path / 'm'} (1 operator)" in done.stdout
    save(tmp_path / "npy", "net_relu.0.npy", X)
    done = run(tmp_path / "m", tmp_path / "npy", tmp_path / "out")
    assert said(done)[1] == WHOLE[1] and rows(done)[1]["PairedBy"] == "name"


def test_runs_and_a_wrong_thread(tmp_path):
    """The k-th files of all threads are the k-th run; what differs in one thread does in all."""
    for side in "mg":
        threads(tmp_path / side, 0, X)
        threads(tmp_path / side, 1, X + (side == "m") * (X > 20))
        put(tmp_path / side, 20, "Add", "net/add", [X], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert [row[3] for row in said(done)] == ["same", "same", "differs", "differs", "same", "same"]
    assert "Relu net/relu, Index 2" in done.stdout


def test_one_by_one_with_ffts(tmp_path):
    for side in "mg":
        threads(tmp_path / side, 0, X + (side == "m") * (X > 20))
        slices(tmp_path / side, 1, X, "net/b")
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-ffts")
    assert said(done) == [
        ("1", f"{GRAPH}net/relu:input:0", "[2,6]", "same"),
        ("1", f"{GRAPH}net/relu:output:0", "[2,6]", "same"),
        ("2", f"{GRAPH}net/relu:input:0", "[2,6]", "differs"),
        ("2", f"{GRAPH}net/relu:output:0", "[2,6]", "differs"),
        ("3", "net/b_lxslice0:input:0", "[2,6]", "same"),
        ("3", "net/b_lxslice0:output:0", "[2,6]", "same"),
        ("4", "net/b_lxslice1:input:0", "[2,6]", "same"),
        ("4", "net/b_lxslice1:output:0", "[2,6]", "same"),
    ], done.output
    assert "(4 operators)" in done.stdout and "changes nothing" not in done.stderr


def test_ffts_without_threads_is_said(tmp_path):
    for side in "mg":
        put(tmp_path / side, 0, "Relu", "a", [X], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-ffts")
    assert done.exit_code == 0 and "-ffts changes nothing" in done.stderr


@pytest.mark.parametrize("side", ["m", "g"])
def test_a_thread_that_left_no_file(tmp_path, side):
    for each in "mg":
        threads(tmp_path / each, 0, X)
        put(tmp_path / each, 1, "Add", "b", [X], [X])
    next(path for path in (tmp_path / side).iterdir() if path.name.endswith(".4.331.1.0")).unlink()
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    first, *rest = rows(done)
    assert "of its 2 threads these left a file: 0" in first["CompareFailReason"]
    assert [row["Verdict"] for row in rest] == ["same", "same"] and done.exit_code == 1


def test_a_tensor_of_which_no_part_is_said_is_one_row(tmp_path):
    threads(tmp_path / "m", 0, X, input_tensor_slice=[])
    put(tmp_path / "g", 0, "Relu", "net/relu", [X], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    source, output = rows(done)
    assert "which part of it each of 2 threads has is not said" in source["CompareFailReason"]
    assert output["Verdict"] == "same" and done.exit_code == 1
    single = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-op", "net/relu")
    assert single.exit_code == 0 and "TotalCount:24" in single.stdout, single.output


@pytest.mark.parametrize("shape", [True, False])
def test_convert_gives_a_thread_its_own_shape(tmp_path, shape):
    threads(tmp_path / "m", 0, X, shape=shape)
    out = tmp_path / "out"
    done = CliRunner().invoke(cli, ["convert", "-d", str(tmp_path / "m"), "-out", str(out)])
    assert done.exit_code == 0, done.output
    found = [np.load(path) for path in sorted(out.glob("*output.0.npy"))]
    assert np.array_equal(np.concatenate(found), X) and len(found) == 2


def test_automatic_files_one_by_one_have_the_shapes_of_their_parts(tmp_path):
    """Where the files have those of the whole."""
    for side in "mg":
        threads(tmp_path / side, 0, X, shape=False)
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-ffts")
    assert {(row[2], row[3]) for row in said(done)} == {("[2,6]", "same")}, done.output
    assert done.exit_code == 0


def test_a_missing_file_blames_no_other_run(tmp_path):
    """Which files belong together is not known then, of any run."""
    for side in "mg":
        for k in range(3):
            threads(tmp_path / side, k, X + 100 * k)
        put(tmp_path / side, 90, "Add", "b", [X], [X])
    first = min(path for path in (tmp_path / "m").iterdir() if path.name.endswith(".4.330.0.0"))
    first.unlink()
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    *runs, last, _ = rows(done)
    assert len(runs) == 3 and last["Verdict"] == "same"
    for row in runs:
        assert "different numbers of files" in row["CompareFailReason"]
        assert row["Verdict"] == "not_comparable" and row["GroundTruth"] != "NaN"


def test_two_graphs_with_an_operator_of_one_name(tmp_path):
    """Each has its own number of threads."""
    other = GRAPH.replace("graph_0", "graph_1")
    for side in "mg":
        threads(tmp_path / side, 0, X)
        for path in list((tmp_path / side).iterdir()):
            path.rename(path.with_name(path.name.replace("sgt_graph_0", "sgt_graph_1")))
        threads(tmp_path / side, 5, X + 1, parts=((0, 1), (1, 2), (2, 4)))
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert [row[3] for row in said(done)] == ["same"] * 4 and other and done.exit_code == 0


def test_a_whole_operator_of_a_graph_has_its_name_too(tmp_path):
    """No thread's file, but of FFTS+."""
    name = f"{GRAPH}net/relu"
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / f"Relu.{name.replace('/', '_')}.1.2.{START}.4.487.65535.0"
    write(path, Dump((tensor(X),), (tensor(X),), op_name=name))
    put(tmp_path / "g", 0, "Relu", "net/relu", [X], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert said(done) == WHOLE and done.exit_code == 0, done.output


def test_what_could_not_be_read_parts_from_nothing(tmp_path):
    """Its operator is not called the first that parts."""
    threads(tmp_path / "m", 0, X, output_tensor_slice=[], outputCutList=[])
    put(tmp_path / "g", 0, "Relu", "net/relu", [X], [X])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-advisor")
    assert "no output that was compared differs, but output:0 of Relu net/relu" in done.stdout
    assert "parts" not in done.stdout.replace("parts from equal inputs. The first row", "")
    assert "No operator is seen to part from equal inputs" in done.stdout


def test_convert_brings_a_part_to_another_format(tmp_path):
    """The shape before padding is the whole's, and so not the part's."""
    from ir2tbe.relayout import relayout

    value = np.arange(2 * 16 * 2 * 2, dtype="f4").reshape(2, 16, 2, 2)
    said = {"threadMode": True, "slice_instance_num": 2, "output_tensor_slice": [
        [[{"lower": k, "higher": k + 1}, *[{"lower": 0, "higher": n} for n in (1, 2, 2, 16)]]]
        for k in range(2)
    ]}  # fmt: skip
    (tmp_path / "m").mkdir()
    for k in range(2):
        stored = relayout(value[k : k + 1], "NCHW", "NC1HWC0")
        part = tensor(stored, form="NC1HWC0", original=value.shape)
        path = tmp_path / "m" / f"Relu.a.2.9.{START + k}.4.{330 + k}.{k}.0"
        write(path, Dump((), (part,), op_name="a", attributes=(("x", json.dumps(said)),)))
    out = tmp_path / "out"
    arguments = ["convert", "-d", tmp_path / "m", "-out", out, "-f", "NCHW"]
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    found = [np.load(path) for path in sorted(out.glob("*.npy"))]
    assert np.array_equal(np.concatenate(found), value)


@pytest.mark.parametrize("make", [threads, slices])
def test_threads_one_by_one_with_rules(tmp_path, make):
    """Each with that thread."""
    from folders import op, rules

    for side in "mg":
        make(tmp_path / side, 0, X)
    names = [f"{GRAPH}net/relu"] if make is threads else [f"net/relu_lxslice{k}" for k in range(2)]
    file = rules(tmp_path / "r.json", *[op(n, "Relu", ["r"], [("r", 0, "")]) for n in names])
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-ffts", "-f", file, "-cf", file)
    outputs = [row for row in rows(done) if ":output:" in row["TensorIndex"]]
    assert [row["Verdict"] for row in outputs] == ["same"] * 2, done.output
