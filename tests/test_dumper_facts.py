"""The two ways to a dataset's claims say the same, and bytes that are no header say nothing."""

import h5py
import numpy as np
import pytest
from dumps import put
from hypothesis import given
from hypothesis import strategies as st

from dumper.facts import Facts, Headers, facts_of


def both(path):
    """(by h5py, from the header) for every dataset of a file."""
    headers, found = Headers(path), []

    def visit(_, node):
        if isinstance(node, h5py.Dataset):
            address = h5py.h5o.get_info(node.id).addr
            headers.learn(address, node.id)
            found.append((facts_of(node.id), headers.facts(address), node[()]))

    with h5py.File(path) as file:
        file.visititems(visit)
    headers.close()
    return found


def check(by_h5py: Facts, ours: Facts) -> None:
    for name in ("shape", "stored_name", "stored", "numbers", "strides", "torch_dtype"):
        assert getattr(ours, name) == getattr(by_h5py, name), name


@pytest.mark.parametrize("case", ["tiny/npu", "tiny/gpu", "load/gpu", "rand1/npu"])
def test_golden_files(golden, case):
    path = golden / f"{case}.h5"
    content = path.read_bytes()
    for by_h5py, ours, values in both(path):
        check(by_h5py, ours)
        if ours.data and values.size:
            at, size = ours.data
            assert content[at : at + size] == values.tobytes()


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
    ((by_h5py, ours, _),) = both(tmp_path / "d.h5")
    assert by_h5py.numbers[b"Type"] == 0 and by_h5py.torch_dtype == "odd"
    assert by_h5py.strides[b"LiveStride"] == (7, 9)
    if libver != "latest":
        assert (ours is None) == (many and libver != "earliest")
    if ours is not None:
        check(by_h5py, ours)
        if values.dtype.str.startswith(">"):
            assert ours.data is None  # the bytes are not as numpy has them in memory


def odd(tmp_path, name, value):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        put(file, "x", np.zeros(2, "f4")).attrs[name] = value
    ((by_h5py, ours, _),) = both(tmp_path / "d.h5")
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
        headers = Headers(tmp_path / "d.h5")
        if isinstance(node, h5py.Dataset):
            headers.learn(address, node.id)
        facts = headers.facts(address)
        headers.close()
    assert facts is None or facts.data is None


@pytest.mark.parametrize("libver", ["earliest", ("v108", "v110")], ids=str)
@given(data=st.data())
def test_bytes_that_are_no_header_say_nothing(tmp_path_factory, libver, data):
    """Any change of a header's bytes leads to None or to some claims, never to an exception."""
    path = tmp_path_factory.mktemp("headers") / "d.h5"
    with h5py.File(path, "w", libver=libver) as file:
        node = put(file, "x", np.zeros((2, 3), "f4"), TorchDType=np.bytes_(b"bfloat16"))
        address = h5py.h5o.get_info(node.id).addr
        file.flush()
        headers = Headers(path)
        headers.learn(address, node.id)
    content = bytearray(path.read_bytes())
    assert headers.facts(address) is not None
    changes = st.tuples(st.integers(0, 400), st.integers(0, 255))
    for offset, value in data.draw(st.lists(changes, min_size=1, max_size=8)):
        content[min(address + offset, len(content) - 1)] = value
    path.write_bytes(content)
    found = headers.facts(address)
    headers.close()
    assert found is None or isinstance(found, Facts)
    assert headers.facts(address) is None  # closed
