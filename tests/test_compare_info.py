"""`msaccucmp info`: what is in a file, the tree, and whether it is whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from compare.cli import cli
from dumper import dumper, open_dump

INDEX = "_torch_dumper/0/index"


def run(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


class Net(nn.Module):
    """Three blocks that are alike, and a head that is not."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x) + x
        return self.head(x)


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One training step; the file of a finished dump."""
    path = tmp_path_factory.mktemp("info") / "step.h5"
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with dumper(use_dump=True, dump_path=path):
        net(torch.ones(5, 4)).sum().backward()
        optimizer.step()
    return path


@pytest.fixture
def copy(step: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged, sealed as its writer would have."""
    path = tmp_path / "copy.h5"
    path.write_bytes(step.read_bytes())
    with h5py.File(path, "r+") as file:
        digest = hashlib.sha256(file[INDEX][()].tobytes()).hexdigest()
        file.attrs["IndexDigest"] = f"sha256:{digest}"
        environment = json.loads(file.attrs["Environment"])
        environment["choice"] = {"level": "op", "sides": ["input", "output"]}
        file.attrs["Environment"] = json.dumps(environment)
    return path


def test_what_is_in_a_file(step):
    found = json.loads(run("info", step, "--json").stdout)
    with open_dump(step) as dump:
        tensors = [t for r in dump.records for t in (*r.inputs, *r.outputs)]
        stored = {tensor.address: tensor.nbytes for tensor in tensors}
        stubs = sum(len(record.entry.stubs) for record in dump.records)
    assert found["records"] == len(dump.records) == sum(found["phases"].values())
    assert set(found["phases"]) == {"forward", "backward", "optimizer", "grad", "update"}
    assert found["stored_bytes"] == sum(stored.values())
    assert found["stored_bytes"] + found["linked_bytes"] == sum(t.nbytes for t in tensors)
    assert found["tensors"]["stored"] == len(stored)
    assert sum(found["tensors"]["described"].values()) == stubs
    assert found["devices"] == {"cpu": len(tensors)} and found["finished"] is True
    for shares in (found["ops"], found["modules"]):
        assert sum(share["stored"] for share in shares) == found["stored_bytes"]
        assert sum(share["calls"] for share in shares) == found["records"]
    assert "blocks.0.0" in {share["module"] for share in found["modules"]}


def test_what_people_see(step):
    done = run("info", step)
    assert done.exit_code == 0 and done.stderr == ""
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "finished" in lines["state"] and "torch" in lines["made"]
    assert "forward" in lines["records"] and "links save" in lines["tensors"]
    assert "heaviest ops" in done.stdout and "heaviest modules" in done.stdout


def test_hostile_names_are_shown_inert(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("evil\x1b[31m/1/output/x\x07", data=np.ones(2, "f4"))
        data.attrs["Type"] = np.int32(0)
    for arguments in (("info", tmp_path / "a.h5"), ("show", tmp_path / "a.h5", "evil\x1b[31m/1")):
        done = run(*arguments)
        assert done.exit_code == 0 and "\\x1b[31m" in done.stdout
        assert "\x1b" not in done.stdout and "\x07" not in done.stdout


def tree(step, *arguments):
    done = run("info", step, "--tree", "--json", *arguments)
    assert done.exit_code == 0, done.output
    return {node["name"]: node for node in json.loads(done.stdout)}


def below(node):
    return {child["name"]: child for child in node["children"]}


def flows(node, phase, side):
    return [(flow["dtype"], flow["shape"], flow["name"]) for flow in node["phases"][phase][side]]


def test_the_tree_has_what_enters_and_leaves(step):
    model = tree(step)["(model)"]
    assert flows(model, "forward", "leaving") == [("float32", [5, 2], None)]
    entering = flows(model, "forward", "entering")
    assert [flow for flow in entering if flow[2] is None] == [("float32", [5, 4], None)]
    names = {name for *_, name in entering if name is not None}
    assert names == {name for name, _ in Net().named_parameters()}
    head = below(model)["head"]
    (linear,) = [child for child in head["children"] if "linear" in child["name"]]
    assert linear["name"] == "torch.nn.functional.linear.3"
    for node in (head, linear):
        assert flows(node, "forward", "leaving") == [("float32", [5, 2], None)]
        sizes = {tuple(shape) for _, shape, _ in flows(node, "backward", "leaving")}
        assert sizes == {(5, 4), (2, 4), (2,)}  # of input, weight and bias


def test_siblings_that_are_alike_are_shown_once(step):
    """The first block has an input without gradient, so its backward is another."""
    blocks = below(below(tree(step)["(model)"])["blocks"])
    assert list(blocks) == ["blocks.0", "blocks.1"]
    assert blocks["blocks.1"]["alike"] == ["blocks.1", "blocks.2"]
    shown = run("info", step, "--tree").stdout
    assert "1 … 2 (2 alike)" in shown and "F.linear.0" in shown


@pytest.mark.parametrize(("depth", "hidden"), [(0, 2), (1, 3)])
def test_the_depth_of_the_tree(step, depth, hidden):
    node = tree(step, "--depth", depth)["(model)"]
    for _ in range(depth):
        node = below(node)["blocks"]
    assert node["hidden"] == hidden and node["children"] == []


def test_a_file_without_calls_has_no_tree(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("op/1/output/x", data=np.ones(2, "f4")).attrs["Type"] = np.int32(0)
    done = run("info", tmp_path / "a.h5", "--tree")
    assert done.exit_code == 2 and "does not say which calls" in done.stderr


def verify(path):
    done = run("info", path, "--verify", "--json")
    return done.exit_code, json.loads(done.stdout)


def test_a_whole_file(copy):
    code, found = verify(copy)
    assert (code, found["whole"], found["problems"], found["notes"]) == (0, True, [], [])
    assert found["datasets"] > found["records"] > 0


def test_a_file_as_the_dumper_leaves_it(step):
    assert run("info", step, "--verify").exit_code == 0


def shorten_index(file):
    lines = file[INDEX][()].tobytes().splitlines(keepends=True)
    kind = file[INDEX].attrs["Type"]
    del file[INDEX]
    file.create_dataset(INDEX, data=np.frombuffer(b"".join(lines[:-1]), "u1")).attrs["Type"] = kind


def lose_record(file):
    del file["relu"][next(iter(file["relu"]))]


def lose_tensor(file):
    del file["relu"][next(iter(file["relu"]))]["output/result"]


def claim_more(file):
    data = file.create_dataset("op/99/output/x", (1000,), "f4")  # of which nothing was written
    data.attrs["Type"] = np.int32(0)


def unfinish(file):
    file.attrs["Finished"] = np.int32(0)


DAMAGE = {
    "the index": (shorten_index, "not what the writer wrote"),
    "a record": (lose_record, "in the index, but not in the file"),
    "a tensor": (lose_tensor, "in the index, but not in the file"),
    "bytes": (claim_more, "claims 4000 bytes"),
    "the end": (unfinish, "unfinished: the last record is /update/"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGE.values(), ids=list(DAMAGE))
def test_what_is_missing_is_found(copy, damage, words):
    with h5py.File(copy, "r+") as file:
        damage(file)
    code, found = verify(copy)
    assert code == 1 and not found["whole"]
    assert any(words in problem["problem"] for problem in found["problems"])
    shown = run("info", copy, "--verify")
    assert shown.exit_code == 1 and words in shown.stdout and "not whole" in shown.stdout


def test_an_older_file_has_no_digest_and_that_is_said(copy):
    with h5py.File(copy, "r+") as file:
        del file.attrs["IndexDigest"]
    code, found = verify(copy)
    assert code == 0 and any("no digest" in note for note in found["notes"])


@pytest.mark.parametrize("keep", [0, 100, 5000])
def test_what_cannot_be_read_is_trouble(copy, keep):
    copy.write_bytes(copy.read_bytes()[:keep])
    for more in ((), ("--verify",), ("--tree",)):
        done = run("info", copy, *more)
        assert done.exit_code == 2 and done.stderr.startswith("msaccucmp: error: ")
        assert done.stdout == ""
