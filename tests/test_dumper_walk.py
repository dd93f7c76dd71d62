"""The way through a file: straight from its bytes and by h5py alone it finds the same; whatever is
odd, damaged or hostile costs itself only."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from dumps import put
from hypothesis import given, settings
from hypothesis import strategies as st

from dumper.reader import Dump, open_dump

WAYS = ["bytes", "h5py"]


def opened(path: Path, way: str) -> Dump:
    """The dump, read straight from the file's bytes where that can be, or by h5py alone."""
    return open_dump(path, checked=way == "h5py")


def found(path: Path, way: str) -> tuple:
    """All that there is in a dump, as plain values."""
    with opened(path, way) as dump:
        records = [
            (
                record.path,
                record.has_inputs,
                [
                    (
                        t.path,
                        t.address,
                        t.dtype,
                        t.shape,
                        t.stride,
                        t.device_type,
                        t.raw().tobytes(),
                    )
                    for t in (*record.inputs, *record.outputs)
                ],
                [
                    (a.path, a.address, a.type, a.shape, dict(a.attributes))
                    for group in (record.arguments, record.results)
                    for a in group.values()
                ],
            )
            for record in dump.records
        ]
        return records, dump.skipped


NAMES = st.sampled_from(["self", "x_10", "x_9", "a", "result", "名字", "\x1b[31m", "..", "z" * 300])
VALUES = st.sampled_from(
    [
        {"data": np.arange(6, dtype="f4").reshape(2, 3)},
        {"data": np.arange(3), "chunks": (2,)},
        {"data": np.float64(1)},
        {"data": np.zeros((0, 2), "i1")},
        {"data": np.array([1, 2], ">i2")},
        {"data": h5py.Empty("f4")},
        {"data": np.array([True])},
    ]
)
NODES = st.deferred(lambda: st.one_of(DATASETS, LISTS, ODD))
DATASETS = st.tuples(st.just("dataset"), VALUES, st.integers(0, 12), st.booleans())
LISTS = st.tuples(
    st.just("group"), st.dictionaries(NAMES, NODES, max_size=4), st.booleans(), st.booleans()
)
ODD = st.sampled_from([("soft",), ("external",), ("type",), ("again",), ("link",)])
SIDES = st.dictionaries(NAMES, NODES, max_size=4)
RECORDS = st.dictionaries(
    st.sampled_from(["input", "output", "other"]), st.tuples(SIDES, st.booleans()), max_size=3
)


def make(group: h5py.Group, name: str, node: tuple, made: list) -> None:
    """Write a node as drawn. made: datasets and groups so far, which links may lead to."""
    kind = node[0]
    if kind == "dataset":
        _, values, attributes, typed = node
        data = group.create_dataset(name, **values)
        if typed:
            data.attrs["Type"] = np.int32(0)
        for i in range(attributes):
            data.attrs[("DataType", "DeviceType", "Stride", f"more{i}")[min(i, 3)]] = np.int32(1)
        made.append(data)
    elif kind == "group":
        _, members, ordered, attribute = node
        below = group.create_group(name, track_order=ordered)
        if attribute:
            below.attrs["note"] = 1
        made.append(below)
        for key, member in members.items():
            make(below, key, member, made)
    elif kind == "soft":
        group[name] = h5py.SoftLink("/op0/1")
    elif kind == "external":
        group[name] = h5py.ExternalLink("other.h5", "/x")
    elif kind == "type":
        group[name] = np.dtype("f4")
    elif made:
        group[name] = made[0] if kind == "again" else made[-1]


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110"), "latest"], ids=str)
@settings(max_examples=40)
@given(records=st.lists(RECORDS, min_size=1, max_size=5), irs=st.integers(1, 3), gone=st.booleans())
def test_both_ways_find_the_same(tmp_path_factory, libver, records, irs, gone):
    path = tmp_path_factory.mktemp("walk") / "d.h5"
    made: list = []
    with h5py.File(path, "w", libver=libver) as file:
        for seqid, sides in enumerate(records):
            record = file.create_group(f"op{seqid % irs}/{seqid}")
            for side, (nodes, ordered) in sides.items():
                below = record.create_group(side, track_order=ordered)
                for name, node in nodes.items():
                    make(below, name, node, made)
            if gone and sides:
                del record[next(iter(sides))]
    assert found(path, "bytes") == found(path, "h5py")


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110"), "latest"], ids=str)
@pytest.mark.parametrize("count", [7, 9, 400])
def test_many_links_in_a_group(tmp_path, libver, count):
    """Small groups are read from the bytes; in HDF5's newer formats h5py is asked for large ones.
    Either way records and members of lists come in the order of their numbers."""
    with h5py.File(tmp_path / "d.h5", "w", libver=libver) as file:
        for i in range(count):
            put(file, f"op/{i}/output/x", np.full(2, i, "f4"))
            put(file, f"zz/{count}/input/list/list_{i}", np.full(2, i, "f4"))
    records, skipped = found(tmp_path / "d.h5", "bytes")
    assert [record[0] for record in records[:-1]] == [f"/op/{i}" for i in range(count)]
    assert [tensor[0].rpartition("_")[2] for tensor in records[-1][2]] == [
        str(i) for i in range(count)
    ]
    assert skipped == [] and found(tmp_path / "d.h5", "h5py") == (records, skipped)


def test_a_checksum_is_asked_for(tmp_path):
    """A byte of a group's header that says nothing: HDF5 alone sees it, where it must read it."""
    path = tmp_path / "d.h5"
    with h5py.File(path, "w", libver=("v108", "v110")) as file:
        for seqid in (1, 2):
            put(file, f"op/{seqid}/output/x", np.zeros(2, "f4"))
        address = h5py.h5o.get_info(file["op/2"].id).addr
    content = bytearray(path.read_bytes())
    assert content[address : address + 5] == b"OHDR\2" and content[address + 7] == 2
    assert content[address + 20 : address + 28] == b"\xff" * 8
    content[address + 27] ^= 1  # of the address of an index that it does not have
    path.write_bytes(content)
    with open_dump(path) as dump:
        assert [record.seqid for record in dump.records] == [1, 2] and dump.skipped == []
    with open_dump(path, checked=True) as dump:
        assert [record.seqid for record in dump.records] == [1]
        assert [at for at, _ in dump.skipped] == ["/op/2"]


@pytest.mark.parametrize("case", ["tiny/npu", "load/gpu", "rand1/npu"])
def test_golden_files(golden, case):
    records, skipped = found(golden / f"{case}.h5", "bytes")
    assert records and (records, skipped) == found(golden / f"{case}.h5", "h5py")


# Nodes that are not as the layout wants: (what to add to a good file, path, reason).


def external_link(file: h5py.File) -> None:
    file["op/2/output/x"] = h5py.ExternalLink("/etc/hostname", "/x")


def loop(file: h5py.File) -> None:
    group = file.create_group("op/2/output/list")
    group["again"] = group


def tower(file: h5py.File) -> None:
    """Thirty groups with two links each to the next: 2 ** 30 ways down."""
    below = file.create_group("tower")
    for _ in range(30):
        above = file.create_group(None)
        above["a"], above["b"] = below, below
        below = above
    del file["tower"]
    file["op/2/output/tower"] = below


BAD_NODES = {
    "a record with a name": (lambda f: f.create_group("op/two/output"), "/op/two", "seqid"),
    "a dataset for a record": (lambda f: f.create_dataset("op/2", data=1), "/op/2", "group"),
    "a dataset for an IR": (lambda f: f.create_dataset("stray", data=1), "/stray", "group"),
    "a dataset below a record": (
        lambda f: f.create_dataset("op/2/x", data=1), "/op/2/x", "neither input nor output",
    ),
    "no attributes": (
        lambda f: f.create_dataset("op/2/output/x", data=1), "/op/2/output/x", "Type",
    ),
    "Type is text": (
        lambda f: f.create_dataset("op/2/output/x", data=1).attrs.__setitem__("Type", "0"),
        "/op/2/output/x", "the attribute Type is no integer",
    ),
    "Type is a list": (
        lambda f: f.create_dataset("op/2/output/x", data=1).attrs.__setitem__("Type", [0, 0]),
        "/op/2/output/x", "the attribute Type has shape (2,)",
    ),
    "Type is empty": (
        lambda f: f.create_dataset("op/2/output/x", data=1).attrs.__setitem__(
            "Type", h5py.Empty("i4")
        ),
        "/op/2/output/x", "the attribute Type is no integer",
    ),
    "no dataspace": (
        lambda f: f.create_dataset("op/2/output/x", data=h5py.Empty("f4")).attrs.__setitem__(
            "Type", np.int32(0)
        ),
        "/op/2/output/x", "without a dataspace",
    ),
    "an argument without dataspace": (
        lambda f: f.create_dataset("op/2/input/x", data=h5py.Empty("i8")).attrs.__setitem__(
            "Type", np.int32(3)
        ),
        "/op/2/input/x", "without a dataspace",
    ),
    "a soft link": (
        lambda f: f.__setitem__("op/2/output/x", h5py.SoftLink("/op/1/output/x")),
        "/op/2/output/x", "link",
    ),
    "a soft link for a record": (
        lambda f: f.__setitem__("op/2", h5py.SoftLink("/op/1")), "/op/2", "link",
    ),
    "an external link": (external_link, "/op/2/output/x", "link"),
    "a loop": (loop, "/op/2/output/list/again", "second link"),
    "a named datatype": (
        lambda f: f.__setitem__("op/2/output/x", np.dtype("f4")), "/op/2/output/x", "neither",
    ),
    "too deep": (
        lambda f: f.create_group("op/2/output/" + "/".join("x" * 40)),
        "/op/2/output/" + "/".join("x" * 30), "32 groups",
    ),
    "a tower of links": (tower, "/op/2/output/tower/a/a", ""),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("add", "path", "reason"), BAD_NODES.values(), ids=list(BAD_NODES))
def test_a_bad_node_costs_itself_only(tmp_path, add, path, reason, way):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/x", np.arange(2, dtype="f4"))
        put(file, "zz/3/output/x", np.arange(2, dtype="f4"))
        add(file)
    with opened(tmp_path / "d.h5", way) as dump:
        tensors = [tensor.path for record in dump.records for tensor in record.outputs]
        skipped = dump.skipped
    assert tensors == ["/op/1/output/x", "/zz/3/output/x"]
    if not path.endswith("tower/a/a"):
        assert [(at, reason in why) for at, why in skipped] == [(path, True)]
    else:  # each level has one link too many, and that is all
        assert len(skipped) <= 30


WRONG_ATTRIBUTES = {
    "text": "1", "two": np.array([1, 1], "i4"), "a fraction": np.float32(1.5),
    "empty": h5py.Empty("i4"), "huge": np.uint64(2**64 - 1), "negative": np.int32(-5),
    "of length 0": np.zeros(0, "i8"), "a matrix": np.ones((2, 2), "i4"), "a reference": None,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", WRONG_ATTRIBUTES.values(), ids=list(WRONG_ATTRIBUTES))
@pytest.mark.parametrize(
    "name",
    ["DataType", "DeviceType", "FormatType", "Stride", "LiveStride", "LiveOffset", "TorchDType"],
)
def test_an_attribute_of_a_wrong_kind_costs_only_itself(tmp_path, name, value, way):
    values = np.arange(6, dtype="f4").reshape(2, 3)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/x", values).attrs[name] = file.ref if value is None else value
    with opened(tmp_path / "d.h5", way) as dump:
        (tensor,) = dump.records[0].outputs
        assert dump.skipped == []
        assert tensor.dtype == "float32"
        np.testing.assert_array_equal(tensor.read(), values)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "value", [np.array([0], "i4"), np.zeros((1, 1), "i8"), np.uint8(0), np.bool_(False)]
)
def test_a_type_of_one_element_counts(tmp_path, value, way):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "op/1/output/x", np.zeros(2, "f4")).attrs["Type"] = value
    with opened(tmp_path / "d.h5", way) as dump:
        (record,) = dump.records
        assert [tensor.path for tensor in record.outputs] == ["/op/1/output/x"]
