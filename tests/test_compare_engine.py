"""From two dumps to rows: order, what is remembered, what damage costs, tensors of every size."""

import threading
import tracemalloc

import h5py
import numpy as np
import pytest
from dumps import dump, put

from compare import comparing, engine, moduli, rooms
from compare.engine import compare_dumps
from compare.row import Status
from dumper.reader import open_dump

LARGE = 100_000  # float32 elements: enough to be handed to another thread


def rows(mine, golden):
    with open_dump(mine) as left, open_dump(golden) as right:
        return list(compare_dumps(left, right))


def test_rows_keep_their_order_whatever_the_sizes(tmp_path):
    random = np.random.default_rng(0)
    sizes = [LARGE if large else 3 for large in random.integers(0, 2, 150)]
    paths = []
    for name, shift in (("m.h5", 1), ("g.h5", 0)):
        tensors = {
            f"op/{i}/output/x": np.full(size, i, "f4") + np.float32(shift * (i % 3 == 0))
            for i, size in enumerate(sizes)
        }
        paths.append(dump(tmp_path / name, tensors))
    found = rows(*paths)
    assert [row.index for row in found] == list(range(150))
    assert [row.shape for row in found] == [(size,) for size in sizes]
    for i, row in enumerate(found):
        assert row.status is (Status.DIFFERS if i % 3 == 0 else Status.EQUAL)
        assert row.metrics.golden[0] == pytest.approx(i)


def test_linked_values_have_the_numbers_of_what_they_link_to(tmp_path):
    for name, value in (("m.h5", 2.0), ("g.h5", 1.0)):
        with h5py.File(tmp_path / name, "w") as file:
            file["b/2/input/x"] = put(file, "a/1/output/x", np.full(4, value, "f4"))
            put(file, "b/2/output/x", np.full(4, 7, "f4"))
    first, linked, last = rows(tmp_path / "m.h5", tmp_path / "g.h5")
    assert first.metrics == linked.metrics and first.metrics.max_absolute == 1.0
    assert linked.my_path == "/b/2/input/x"
    assert last.status is Status.EQUAL


@pytest.mark.parametrize("size", [4, LARGE])
def test_damage_costs_its_row(tmp_path, size):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("op/1/output/x", (size,), "f4").attrs["Type"] = np.int32(0)
        put(file, "op/2/output/x", np.zeros(size, "f4"))
    tensors = {f"op/{i}/output/x": np.zeros(size, "f4") for i in (1, 2)}
    damaged, good = rows(tmp_path / "m.h5", dump(tmp_path / "g.h5", tensors))
    assert damaged.status is Status.INCOMPARABLE and damaged.metrics is None
    assert "claims" in damaged.reasons[0] and "/op/1/output/x" in damaged.reasons[0]
    assert good.status is Status.EQUAL


def test_a_comparison_may_be_left(tmp_path):
    tensors = {f"op/{i}/output/x": np.zeros(LARGE, "f4") for i in range(5)}
    paths = [dump(tmp_path / name, tensors) for name in ("m.h5", "g.h5")]
    with open_dump(paths[0]) as left, open_dump(paths[1]) as right:
        found = compare_dumps(left, right)
        assert next(found).index == 0
        found.close()
        assert list(found) == []


@pytest.mark.parametrize(
    "ir", ["empty_memory_format", "empty_like", "new_empty", "empty_strided", "new_empty_strided"]
)
def test_uninitialised_memory_is_not_compared(tmp_path, ir):
    """Neither where `empty` returns it nor where an op reads it before it is written."""
    for name, junk in (("m.h5", 3.0), ("g.h5", 4.0)):
        with h5py.File(tmp_path / name, "w") as file:
            put(file, f"{ir}/1/input/size", np.array([2]), kind=2)
            made = put(file, f"{ir}/1/output/result", np.full(2, junk, "f4"))
            put(file, f"{ir}/2/output/result", np.zeros(0, "f4"))
            file["fill__Scalar/3/input/self"] = made
            put(file, "fill__Scalar/3/output/self", np.full(2, 7, "f4"))
    found = {row.my_path: row.status for row in rows(tmp_path / "m.h5", tmp_path / "g.h5")}
    assert found == {
        f"/{ir}/1/output/result": Status.UNINITIALISED,
        f"/{ir}/2/output/result": Status.EQUAL,
        "/fill__Scalar/3/input/self": Status.UNINITIALISED,
        "/fill__Scalar/3/output/self": Status.EQUAL,
    }


@pytest.mark.parametrize("ir", ["EmptyBackward", "emptyish", "my_empty", "embedding"])
def test_other_names_are_compared(tmp_path, ir):
    files = [
        dump(tmp_path / name, {f"{ir}/1/output/x": np.full(2, value, "f4")})
        for name, value in (("m.h5", 1), ("g.h5", 2))
    ]
    assert [row.status for row in rows(*files)] == [Status.DIFFERS]


ARGUMENTS = [
    # (Type, mine, golden, whether they differ)
    (7, np.float64(2), np.float64(3), True),
    (7, np.float64(2), np.float64(2), False),
    (7, np.float64(2), np.int64(2), False),
    (7, np.float64(0.0), np.float64(-0.0), True),
    (5, np.float64(np.nan), np.float64(np.nan), False),
    (4, np.int8(0), np.int8(1), True),
    (3, np.int64(1), np.int64(-1), True),
    (2, np.array([1, 2]), np.array([1, 3]), True),
    (2, np.array([1, 2]), np.array([1]), True),
    (105, np.array([1.0, np.nan]), np.array([1.0, np.nan]), False),
    (14, np.int32(1), np.int32(11), True),
    (101, np.frombuffer(b"none", "u1"), np.frombuffer(b"tanh", "u1"), True),
    # what may differ between devices
    (102, np.frombuffer(b"npu:0", "u1"), np.frombuffer(b"cpu", "u1"), False),
    (103, np.frombuffer(b"strided", "u1"), np.frombuffer(b"sparse", "u1"), False),
    (107, np.frombuffer(b"12345", "u1"), np.frombuffer(b"54321", "u1"), False),
    (17, np.int32(1), np.int32(2), False),
    (18, np.float32(1), np.float32(2), False),
]


def with_argument(path, value, kind=7, extra=None):
    """One op with one tensor in, one out, and an argument `other`; a finished file of ours."""
    with h5py.File(path, "w") as file:
        put(file, "mul/1/input/self", np.arange(2, dtype="f4"))
        if value is not None:
            put(file, "mul/1/input/other", value, kind=kind)
        put(file, "mul/1/output/result", np.ones(2, "f4"))
        if extra is not None:
            file.attrs["Finished"] = np.int32(extra)
    return path


@pytest.mark.parametrize(("kind", "mine", "golden", "differ"), ARGUMENTS)
def test_arguments_have_a_row_where_they_differ(tmp_path, kind, mine, golden, differ):
    found = rows(
        with_argument(tmp_path / "m.h5", mine, kind), with_argument(tmp_path / "g.h5", golden, kind)
    )
    assert [row.status for row in found if row.metrics] == [Status.EQUAL] * 2
    others = [row for row in found if not row.metrics]
    assert len(others) == differ
    for row in others:
        assert row.status is Status.ARGUMENT and row.side == "input"
        assert row.my_path == row.golden_path == "/mul/1/input/other"
        assert row.reasons[0].startswith("arguments differ: ")
        assert found.index(row) == 1  # before the outputs


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("finished", "count"), [(1, 1), (0, 1), (None, 0)])
def test_an_argument_on_one_side_only(tmp_path, finished, count, swapped):
    """In files of ours, which hold all arguments, it is None on the other side; the original drops
    some."""
    files = [
        with_argument(tmp_path / "m.h5", np.float64(2), extra=finished),
        with_argument(tmp_path / "g.h5", None, extra=finished),
    ]
    found = rows(*(reversed(files) if swapped else files))
    unpaired = [row for row in found if row.status is Status.UNPAIRED]
    assert len(unpaired) == count == len(found) - 2
    assert all("/mul/1/input/other" in row.reasons[0] for row in unpaired)


def test_an_argument_that_cannot_be_read_is_not_comparable(tmp_path):
    for name in ("m.h5", "g.h5"):
        with_argument(tmp_path / name, np.frombuffer(b"[1, oops", "u1"), kind=106)
    found = rows(tmp_path / "m.h5", tmp_path / "g.h5")
    assert [row.status for row in found] == [Status.EQUAL, Status.INCOMPARABLE, Status.EQUAL]
    assert "/mul/1/input/other" in found[1].reasons[0]


def peak(paths) -> int:
    tracemalloc.start()
    try:
        assert all(row.metrics for row in rows(*paths))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def sixteen(tmp_path, dtype) -> list:
    """Two dumps of sixteen tensors of 4 MiB."""
    size = (4 << 20) // np.dtype(dtype).itemsize
    return [
        dump(tmp_path / name, {f"op/{i}/output/x": np.full(size, i + k, dtype) for i in range(16)})
        for k, name in enumerate(("m.h5", "g.h5"))
    ]


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1", "?", "i4", "i8", "f8"])
def test_memory_does_not_grow_with_tensors(tmp_path, monkeypatch, dtype):
    """Sixteen threads with a large pair each need room for pieces, and tables for 8 bits."""
    paths = sixteen(tmp_path, dtype)
    monkeypatch.setattr(engine.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(rooms, "KEPT", 1 << 16)
    monkeypatch.setattr(rooms, "PIECE", 1 << 14)
    monkeypatch.setattr(rooms, "own", rooms.Rooms())
    comparing.compare_arrays(np.zeros(3, dtype), np.ones(3, dtype))  # what is loaded once
    tables = 16 * 2 * 8 * 65536 * (np.dtype(dtype).itemsize == 1)
    assert peak(paths) < tables + (6 << 20)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_memory_is_bounded_whatever_the_cores(tmp_path, monkeypatch, dtype):
    """What must be read whole takes little more for sixteen pairs than for one alone."""
    paths = sixteen(tmp_path, dtype)
    monkeypatch.setattr(engine.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(engine, "BUDGET", 1)
    monkeypatch.setattr(moduli, "_BLOCK", 4096)
    comparing.compare_arrays(np.zeros(3, dtype), np.ones(3, dtype))
    size = (4 << 20) // np.dtype(dtype).itemsize
    one_pair = 2 * (4 << 20)
    assert peak(paths) < one_pair + 2 * 8 * size + (6 << 20)


def test_several_pairs_share_the_budget(tmp_path, monkeypatch):
    """The next pair waits as long as those before it use the budget up."""
    running, most, lock = 0, 0, threading.Lock()
    measure = comparing.compare_arrays

    def watched(*arrays):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        found = measure(*arrays)
        with lock:
            running -= 1
        return found

    monkeypatch.setattr(comparing, "compare_arrays", watched)
    monkeypatch.setattr(engine.os, "cpu_count", lambda: 8)
    tensors = {f"op/{i}/output/x": np.full(LARGE, i, "c8") for i in range(20)}
    paths = [dump(tmp_path / name, tensors) for name in ("m.h5", "g.h5")]
    monkeypatch.setattr(engine, "BUDGET", 2 * 2 * 2 * 8 * LARGE)  # two pairs, widened
    assert [row.index for row in rows(*paths)] == list(range(20))
    assert most <= 2


def test_memory_that_is_not_there_costs_its_row(tmp_path, monkeypatch):
    measure = comparing.compare_arrays

    def short(mine, golden, *more):
        if mine.size == 3:
            raise MemoryError
        return measure(mine, golden, *more)

    monkeypatch.setattr(comparing, "compare_arrays", short)
    tensors = {f"op/{size}/output/x": np.zeros(size, "c8") for size in (2, 3, 4)}
    found = rows(dump(tmp_path / "m.h5", tensors), dump(tmp_path / "g.h5", tensors))
    assert [row.status for row in found] == [Status.EQUAL, Status.INCOMPARABLE, Status.EQUAL]
    assert "not enough memory" in found[1].reasons[0]


def test_a_size_that_no_file_holds_costs_its_row_at_once(tmp_path):
    """2 ** 50 elements would be millions of parts."""
    paths = tmp_path / "m.h5", tmp_path / "g.h5"
    for path in paths:
        with h5py.File(path, "w") as file:
            data = file.create_dataset("op/1/output/x", (1 << 50,), "f4")
            for name, value in (("Type", 0), ("DataType", 1), ("DeviceType", 0)):
                data.attrs[name] = np.int32(value)
    (row,) = rows(*paths)
    assert row.status is Status.INCOMPARABLE
    assert "claims" in row.reasons[0]
