"""The two ways to a dataset's claims say the same, and bytes that are no header say nothing."""

import h5py
import numpy as np
import pytest
from dumps import put
from hypothesis import given, settings
from hypothesis import strategies as st

from dumper.facts import Facts, facts_of
from dumper.groups import Tangle
from dumper.headers import Headers
from dumper.window import Window


def headers_of(path):
    """(headers, window): what is made of the facts is the facts."""
    window = Window(path)
    return Headers(window, lambda facts: facts), window


def both(path):
    """(by h5py, from the header, where the elements begin, elements) for every dataset of a file,
    each asked for twice, since what is known of a header serves for the next."""
    headers, window = headers_of(path)
    found = []

    def visit(_, node):
        if isinstance(node, h5py.Dataset):
            address = h5py.h5o.get_info(node.id).addr
            headers.learn(address, node.id)
            ours = headers.at(address)
            assert headers.at(address) == ours
            found.append((facts_of(node.id), *(ours or (None, None)), node[()]))

    with h5py.File(path) as file:
        file.visititems(visit)
    window.close()
    return found


def check(by_h5py: Facts, ours: Facts) -> None:
    for name in ("shape", "stored_name", "stored", "numbers", "strides", "torch_dtype"):
        assert getattr(ours, name) == getattr(by_h5py, name), name


@pytest.mark.parametrize("case", ["tiny/npu", "tiny/gpu", "load/gpu", "rand1/npu"])
def test_golden_files(golden, case):
    path = golden / f"{case}.h5"
    content = path.read_bytes()
    seen = 0
    for by_h5py, ours, at, values in both(path):
        check(by_h5py, ours)
        if ours.data and values.size:
            assert content[at : at + ours.data[1]] == values.tobytes()
            seen += 1
    assert seen


VALUES = {
    "float": np.arange(6, dtype="f4").reshape(2, 3),
    "0-d": np.float64(1.5),
    "empty": np.zeros((0, 3), "i8"),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j], "c8"),
    "big-endian": np.array([1, 2], ">i4"),
}


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110"), "latest"], ids=str)
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_made_files(tmp_path, values, many, libver):
    """Few attributes are read from the header, as our writer's are; where many are kept in a heap
    of their own, h5py is asked, which is what None means."""
    with h5py.File(tmp_path / "d.h5", "w", libver=libver) as file:
        more = {f"more{i}": "x" * 50 for i in range(30 * many)}
        put(file, "x", values, TorchDType=np.bytes_(b"odd"), LiveStride=np.array([7, 9]), **more)
    ((by_h5py, ours, _, _),) = both(tmp_path / "d.h5")
    assert by_h5py.numbers[b"Type"] == 0 and by_h5py.torch_dtype == "odd"
    assert by_h5py.strides[b"LiveStride"] == (7, 9)
    if libver != "latest":
        assert (ours is None) == (many and libver != "earliest")
    if ours is not None:
        check(by_h5py, ours)
        if values.dtype.str.startswith(">"):
            assert ours.data is None  # the bytes are not as numpy has them in memory


KIND = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["f4", "i8", ">f4", "?", "c8"]),
        "shape": st.lists(st.integers(0, 3), max_size=3).map(tuple),
        "device": st.sampled_from([0, 10]),
        "code": st.sampled_from([1, 10]),
        "name": st.sampled_from([None, b"float32", b"bfloat16"]),
        "stride": st.sampled_from([(), (3, 1), (1, 2, 4)]),
        "links": st.integers(1, 3),
    }
)


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110"), "latest"], ids=str)
@pytest.mark.parametrize("times", [False, True])
@settings(max_examples=15)
@given(kinds=st.lists(KIND, min_size=1, max_size=8))
def test_a_kind_that_is_known_is_no_other(tmp_path_factory, libver, times, kinds):
    """Headers of many kinds in turn: each is found for what it is, the second time as the first."""
    path = tmp_path_factory.mktemp("kinds") / "d.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for i, kind in enumerate((*kinds, *kinds)):
            values = np.full(kind["shape"], i % 2, kind["dtype"])
            made = file.create_dataset(f"x{i}", data=values, track_times=times)
            made.attrs["Type"], made.attrs["DeviceType"] = np.int32(0), np.int32(kind["device"])
            made.attrs["DataType"] = np.int32(kind["code"])
            made.attrs["Stride"] = np.array(kind["stride"], "i8")
            if kind["name"]:
                made.attrs["TorchDType"] = np.bytes_(kind["name"])
            for k in range(1, kind["links"]):
                file[f"y{i}_{k}"] = made
    content, known = path.read_bytes(), both(path)
    assert len(known) == 2 * len(kinds)
    for by_h5py, ours, at, values in known:
        check(by_h5py, ours)
        if ours.data and values.size:
            assert content[at : at + values.nbytes] == values.tobytes()


def odd(tmp_path, name, value):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "x", np.zeros(2, "f4")).attrs[name] = value
    ((by_h5py, ours, _, _),) = both(tmp_path / "d.h5")
    return by_h5py, ours


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DataType", np.uint32(7)), ("DataType", np.int16(7)), ("DataType", np.array([7])),
        ("DataType", np.array(7, ">i4")), ("TorchDType", "text of another kind"),
    ],
)  # fmt: skip
def test_odd_attributes_are_h5pys_business(tmp_path, name, value):
    by_h5py, ours = odd(tmp_path, name, value)
    assert ours is None or ours.numbers == by_h5py.numbers
    assert by_h5py.numbers[b"DataType"] in (1, 7)


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f.create_dataset("x", (4,), "u1", external=[("/etc/hostname", 0, 4)]),
        lambda f: f.create_dataset("x", (4, 4), "f4", chunks=(2, 2)),
        lambda f: f.create_group("x"),
    ],
)
def test_elements_that_do_not_lie_in_one_piece(tmp_path, make):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        node = make(file)
        address = h5py.h5o.get_info(node.id).addr
        file.flush()
        headers, window = headers_of(tmp_path / "d.h5")
        if isinstance(node, h5py.Dataset):
            headers.learn(address, node.id)
        found = headers.at(address)
        window.close()
    assert not found or (found[0].data, found[1]) == (None, None)


def is_an_answer(found: object) -> bool:
    if isinstance(found, tuple):
        facts, at = found
        return isinstance(facts, Facts) and (at is None or isinstance(at, int))
    return found is None or all(
        isinstance(name, bytes) and (address is None or isinstance(address, int))
        for name, address in found
    )


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110")], ids=str)
@given(data=st.data())
def test_bytes_that_are_no_header_say_nothing(tmp_path_factory, libver, data):
    """Any change of a header's bytes leads to None or to some claims, never to an exception."""
    path = tmp_path_factory.mktemp("headers") / "d.h5"
    with h5py.File(path, "w", libver=libver) as file:
        node = put(file, "x", np.zeros((2, 3), "f4"), TorchDType=np.bytes_(b"bfloat16"))
        address = h5py.h5o.get_info(node.id).addr
        file.flush()
        headers, window = headers_of(path)
        headers.learn(address, node.id)
    assert isinstance(headers.at(address), tuple)
    content = bytearray(path.read_bytes())
    changes = st.tuples(st.integers(0, 400), st.integers(0, 255))
    for offset, value in data.draw(st.lists(changes, min_size=1, max_size=8)):
        content[min(address + offset, len(content) - 1)] = value
    path.write_bytes(content)
    window.forget()
    assert is_an_answer(headers.at(address))
    window.close()
    assert headers.at(address) is None


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110")], ids=str)
@given(data=st.data())
def test_bytes_that_are_no_group_say_nothing(tmp_path_factory, libver, data):
    """Any change of a group's header, tree, names or links."""
    path = tmp_path_factory.mktemp("groups") / "d.h5"
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("x")
        for i in range(8 if libver != "earliest" else 40):
            group.create_group(f"name{i}")
        address = h5py.h5o.get_info(group.id).addr
    headers, window = headers_of(path)
    assert len(headers.at(address)) in (8, 40)
    content = bytearray(path.read_bytes())
    places = st.integers(address, len(content) - 1)
    for offset, value in data.draw(
        st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=60)
    ):
        content[offset] = value
    path.write_bytes(content)
    window.forget()
    try:
        assert is_an_answer(headers.at(address))
    except Tangle:
        pass
    window.close()


def symbol_table(path, count):
    """(content, address of the group, of its tree, of its names) of a group with long names."""
    with h5py.File(path, "w") as file:
        group = file.create_group("x")
        for i in range(count):
            group.create_group(f"name{i:04}")
        address = h5py.h5o.get_info(group.id).addr
    content = bytearray(path.read_bytes())
    tree, heap = (int.from_bytes(content[address + k :][:8], "little") for k in (24, 32))
    assert content[tree : tree + 4] == b"TREE" and content[heap : heap + 4] == b"HEAP"
    return content, address, tree, int.from_bytes(content[heap + 24 : heap + 32], "little")


def asked(path, content, address):
    path.write_bytes(content)
    headers, window = headers_of(path)
    try:
        return headers.at(address)
    finally:
        window.close()


@pytest.mark.parametrize("count", [40, 600])
def test_a_tree_that_leads_to_one_node_twice(tmp_path, count):
    """Thirty levels of that would be 2 ** 30 ways down; HDF5 would take them all."""
    content, address, tree, _ = symbol_table(tmp_path / "d.h5", count)
    assert len(asked(tmp_path / "d.h5", content, address)) == count
    assert content[tree + 5] == (0 if count == 40 else 1)  # its height
    content[tree + 48 : tree + 56] = content[tree + 32 : tree + 40]
    with pytest.raises(Tangle):
        asked(tmp_path / "d.h5", content, address)


@pytest.mark.parametrize(
    ("name", "can_be"),
    [
        (b"name0007", True), (b"name9", True), (b"name9/03", False), (b"name0006", False),
        (b"name0001", False), (b"", False),
    ],
)  # fmt: skip
def test_names_that_no_group_has(tmp_path, name, can_be):
    """In the place of the last one: a path, a name twice, names in disorder."""
    content, address, _, names = symbol_table(tmp_path / "d.h5", 8)
    at = content.index(b"name0007", names)
    content[at : at + 8] = name.ljust(8, b"\0")
    found = asked(tmp_path / "d.h5", content, address)
    assert (found is not None) is can_be
    assert found is None or found[-1][0] == name


def moved(content, where, size):
    """A file whose `size` bytes, to which the address at `where` leads, are moved to its end."""
    start = int.from_bytes(content[where : where + 8], "little")
    end = len(content)
    content = content[:start] + bytes(size) + content[start + size :] + content[start:][:size]
    content[where : where + 8] = end.to_bytes(8, "little")
    return content


def parts(content, address, tree):
    """(where its address stands, size) of a group's tree, heap, names and only node."""
    heap = int.from_bytes(content[address + 32 : address + 40], "little")
    sizes = {"tree": 544, "heap": 32, "names": 88, "node": 328}
    places = {"tree": address + 24, "heap": address + 32, "names": heap + 24, "node": tree + 32}
    return {part: (places[part], size) for part, size in sizes.items()}


@pytest.mark.parametrize("part", ["tree", "heap", "names", "node"])
def test_a_group_says_the_same_wherever_its_parts_lie(tmp_path, part):
    """HDF5 makes room for them side by side; each may lie anywhere, and where it was is nothing."""
    content, address, tree, names = symbol_table(tmp_path / "d.h5", 4)
    assert (tree, names) == (address + 40, address + 616)
    there = asked(tmp_path / "d.h5", content, address)
    assert [name for name, _ in there] == [b"name%04d" % i for i in range(4)]
    away = moved(content, *parts(content, address, tree)[part])
    assert asked(tmp_path / "d.h5", away, address) == there
    if part != "names":
        away[len(content)] ^= 1  # of its signature
        assert asked(tmp_path / "d.h5", away, address) is None
    assert asked(tmp_path / "d.h5", away[: len(content)], address) is None  # it is not in the file


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110")], ids=str)
@pytest.mark.parametrize("count", [4, 40])
def test_links_come_in_order(tmp_path, libver, count):
    """By name, but a trailing number counts as a number; a soft link has no address."""
    names = [b"a", *(b"x_%d" % i for i in range(count)), b"y_1x", b"z01", b"z1"]
    with h5py.File(tmp_path / "d.h5", "w", libver=libver) as file:
        group = file.create_group("x")
        for name in reversed(names):
            group[name] = h5py.SoftLink("/x") if name == b"x_2" else file.create_group(None)
        address = h5py.h5o.get_info(group.id).addr
        known = {name: h5py.h5o.get_info(group.id, name).addr for name in names if name != b"x_2"}
    headers, window = headers_of(tmp_path / "d.h5")
    found = [headers.at(address) for _ in range(2)]
    window.close()
    if libver != "earliest" and count == 40:
        assert found == [None, None]  # its links are in a heap, which is h5py's business
    else:
        assert found == [[(name, known.get(name)) for name in names]] * 2


def test_names_within_names(tmp_path):
    """A heap of one long name is not read as the many that end as it does."""
    content, address, tree, names = symbol_table(tmp_path / "d.h5", 8)
    node = int.from_bytes(content[tree + 32 : tree + 40], "little")
    content[names : names + 88] = bytes(range(48, 127)).ljust(88, b"\0")
    for first, names_fit in ((0, False), (70, True)):
        for i in range(8):
            at = node + 8 + 40 * i
            content[at : at + 8] = (first + i).to_bytes(8, "little")
        found = asked(tmp_path / "d.h5", content, address)
        assert (found is not None) is names_fit


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110")], ids=str)
def test_a_kind_is_read_once(tmp_path, libver):
    """Or a few times, where HDF5 left something else in the gaps of a header."""
    with h5py.File(tmp_path / "d.h5", "w", libver=libver) as file:
        more = {"LiveStride": np.arange(40), "TorchDType": np.bytes_(b"float32")}
        made = [put(file, f"x{i}", np.full(4, i, "f4"), **more) for i in range(60)]
        file["y"] = made[0]
        addresses = [h5py.h5o.get_info(data.id).addr for data in made]
        file.flush()
        window, read = Window(tmp_path / "d.h5"), []
        headers = Headers(window, lambda facts: read.append(facts) or facts)
        headers.learn(addresses[0], made[0].id)
        begins = {headers.at(address)[1] for address in addresses}
        window.close()
    assert len(begins) == 60 and len(read) < 10
