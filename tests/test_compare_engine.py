"""From two dumps to rows: order, what is remembered, what damage costs, tensors of every size."""

import h5py
import numpy as np
import pytest
from dumps import dump, put

from compare.engine import Status, compare_dumps
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
