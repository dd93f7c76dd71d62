"""Dumps of the original fork, as both its producers wrote them, through convert and compare.

The files are made here as the fork made them: half widened to float32, bytes and bool as int8, a
list as a group, a dtype that it lacks as a dataset with a device and nothing else. The two
producers number the kinds of arguments differently from 6 on; the older one wrote a tensor in the
order of its memory, with the stride that undoes it.
"""

import csv

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from compare.cli import cli
from compare.engine import compare_dumps
from compare.row import Status
from dumper.reader import open_dump

CPU, CUDA, NPU = 0, 1, 10
OLDER = {"SCALAR": 6, "OPT_INT64": 8, "OPT_SCALAR": 9, "SIZE": 12, "SCALAR_TYPE": 13}
LATER = {
    "OPT_DOUBLE": 6, "SCALAR": 7, "OPT_INT64": 9, "OPT_SCALAR": 10, "SIZE": 13, "SCALAR_TYPE": 14,
    "PAIR": 15, "AR_LONG_INT": 16, "OPT_MEM_FMT": 17, "TENSOR_OPTS": 18,
}  # fmt: skip
COMMON = {"TENSOR": 0, "VEC_I64": 2, "I64": 3, "BOOL": 4, "DOUBLE": 5}
PRODUCERS = {"older": COMMON | OLDER, "later": COMMON | LATER}
CODES = {"f4": 1, "u1": 2, "i1": 3, "i2": 5, "i4": 6, "i8": 7, "b1": 9, "f2": 10, "f8": 11}
ON_DISK = {"f2": "<f4", "u1": "i1", "b1": "i1"}

both = pytest.mark.parametrize("producer", list(PRODUCERS))


class Fork:
    """A file as one producer writes it."""

    def __init__(self, path, producer, device=CPU):
        self._file = h5py.File(path, "w", libver="earliest")
        self._kinds, self._device, self._older = PRODUCERS[producer], device, producer == "older"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def tensor(self, path, values):
        """The data of any array, in its own stride where the producer is the older one."""
        values = np.asarray(values)
        kind = values.dtype.str[1:]
        stored = (
            values.view("i1") if kind in ("u1", "b1") else values.astype(ON_DISK.get(kind, kind))
        )
        stride = np.array([step // values.itemsize for step in values.strides], np.int64)
        if self._older and not values.flags.c_contiguous:
            stored = stored.ravel("K").reshape(values.shape)  # as it lies in memory
        else:
            stride = np.array(
                [step // values.itemsize for step in np.ascontiguousarray(values).strides], np.int64
            )[: values.ndim]
        data = self._file.create_dataset(
            path, data=np.ascontiguousarray(stored).reshape(values.shape)
        )
        numbers = {"DeviceType": self._device, "DataType": CODES[kind], "FormatType": 0, "Type": 0}
        for name, number in numbers.items():
            data.attrs[name] = np.int32(number)
        data.attrs["Stride"] = stride

    def tensors(self, path, members):
        for i, values in enumerate(members):
            self.tensor(f"{path}/{path.rpartition('/')[2]}_{i}", values)

    def stub(self, path, shape):
        """What a bfloat16 or complex tensor leaves behind."""
        self._file.create_dataset(path, shape, "<f4").attrs["DeviceType"] = np.int32(self._device)

    def argument(self, path, value, kind):
        data = self._file.create_dataset(path, data=value)
        data.attrs["Type"] = np.int32(self._kinds[kind])

    def options(self, path):
        self.argument(path, np.float32(0), "TENSOR_OPTS")
        numbers = {"DeviceType": self._device, "DataType": 1, "RequiresGrad": 0}
        for name, number in numbers.items():
            self._file[path].attrs[name] = np.int32(number)


TENSORS = {
    "f4": np.array([[1.5, -0.0, 3e38], [1e-45, -2, 7]], "f4"),
    "f2": np.array([[65504, -0.0, 6e-8], [1.5, np.inf, -2]], "f2"),
    "u1": np.array([[0, 127, 128], [200, 255, 1]], "u1"),
    "i1": np.array([[0, 127, -128], [-1, 5, 1]], "i1"),
    "b1": np.array([[True, False, True], [False, False, True]]),
    "i2": np.array([[-(2**15), 2**15 - 1, 0], [1, 2, 3]], "i2"),
    "i4": np.array([[-(2**31), 2**31 - 1, 0], [1, 2, 3]], "i4"),
    "i8": np.array([[2**62 + 1, -(2**63), 0], [1, 2, 3]], "i8"),
    "f8": np.array([[1e300, -0.0, 5e-324], [1, 2, 3]], "f8"),
}


def compared(mine, golden):
    with open_dump(mine) as left, open_dump(golden) as right:
        return list(compare_dumps(left, right))


def command(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def table(done):
    with open(done.stdout.splitlines()[-1].removeprefix("result: "), newline="") as file:
        return {row["NPUDumpPath"]: row for row in csv.DictReader(file)}


@both
@pytest.mark.parametrize("kind", list(TENSORS))
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "0-d", "empty"])
def test_a_tensor_has_its_dtype_and_its_bits(tmp_path, producer, kind, layout):
    values = {
        "contiguous": TENSORS[kind],
        "transposed": TENSORS[kind].T,
        "0-d": TENSORS[kind][1, 0],
        "empty": TENSORS[kind][:0],
    }[layout]
    for name, device in (("m.h5", NPU), ("g.h5", CUDA)):
        with Fork(tmp_path / name, producer, device) as file:
            # the older npu wrote contiguous data; there its Stride is no order to undo
            file.tensor("op/1/output/result", values if device == CUDA else values.copy("C"))
    (row,) = compared(tmp_path / "m.h5", tmp_path / "g.h5")
    assert (row.status, row.dtype, row.shape) == (Status.EQUAL, values.dtype.name, values.shape)
    for name in ("m", "g"):
        done = command("convert", "-d", tmp_path / f"{name}.h5", "-out", tmp_path / name)
        assert done.exit_code == 0, done.output
        found = np.load(tmp_path / name / "op.1.output.result.npy")
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        assert found.tobytes() == values.tobytes()


@both
@pytest.mark.parametrize(
    ("kind", "mine", "golden", "error"),
    [
        ("u1", [200, 3], [100, 3], 100),
        ("u1", [255, 0], [0, 0], 255),
        ("b1", [True, True], [False, True], 1),
        ("f2", [65504, 1], [65472, 1], 32),
        ("i8", [2**53 + 1, 0], [2**53, 0], 1),
        ("f8", [1 + 2**-50, 0], [1, 0], 2.0**-50),
    ],
)
def test_numbers_are_those_of_the_real_dtype(tmp_path, producer, kind, mine, golden, error):
    """200 and 100 as signed bytes would be 156 apart."""
    for name, device, values in (("m.h5", NPU, mine), ("g.h5", CUDA, golden)):
        with Fork(tmp_path / name, producer, device) as file:
            file.tensor("op/1/output/result", np.array(values, kind))
    (row,) = compared(tmp_path / "m.h5", tmp_path / "g.h5")
    assert row.status is Status.DIFFERS and row.metrics.max_absolute == error


@both
@pytest.mark.parametrize(("kind", "other"), [("f2", "f4"), ("i4", "i8")])
def test_the_dtypes_that_it_takes_for_one_are_compared(tmp_path, producer, kind, other):
    for name, device, dtype in (("m.h5", NPU, kind), ("g.h5", CUDA, other)):
        with Fork(tmp_path / name, producer, device) as file:
            file.tensor("op/1/output/result", np.array([1, 2], dtype))
    (row,) = compared(tmp_path / "m.h5", tmp_path / "g.h5")
    names = [np.dtype(dtype).name for dtype in (kind, other)]
    assert row.status is Status.ALIKE and row.dtype == names[0]
    assert row.reasons == (f"dtypes: {names[0]} in my dump, {names[1]} in golden",)


def test_a_stride_of_0_that_was_written_out_is_not_applied(tmp_path):
    """The older producer's expanded tensor: its data is there in full."""
    values = np.array([[1, 1, 1], [2, 2, 2]], "f4")
    for name, device in (("m.h5", NPU), ("g.h5", CUDA)):
        with Fork(tmp_path / name, "older", device) as file:
            file.tensor("op/1/output/result", values)
            file._file["op/1/output/result"].attrs["Stride"] = np.array([1, 0], np.int64)
    (row,) = compared(tmp_path / "m.h5", tmp_path / "g.h5")
    assert row.status is Status.EQUAL and row.metrics.golden == (1.5, 0.5)


@both
def test_a_list_is_its_members(tmp_path, producer):
    members = [np.full(2, i, "f2") for i in range(11)]
    for name, device in (("m.h5", NPU), ("g.h5", CPU)):
        with Fork(tmp_path / name, producer, device) as file:
            file.tensors("CatBackward/3/input/grads", members)
            file.tensors("CatBackward/3/output/grad_inputs", members[:: -1 if device else 1])
    rows = {row.my_path: row for row in compared(tmp_path / "m.h5", tmp_path / "g.h5")}
    assert len(rows) == 22
    for i in range(11):
        row = rows[f"/CatBackward/3/output/grad_inputs/grad_inputs_{i}"]
        assert row.metrics.max_absolute == abs(10 - 2 * i) and row.dtype == "float16"
        assert rows[f"/CatBackward/3/input/grads/grads_{i}"].status is Status.EQUAL
    assert command("convert", "-d", tmp_path / "m.h5", "-out", tmp_path).exit_code == 0
    found = np.load(tmp_path / "CatBackward.3.output.grad_inputs.2.npy")
    assert found.tolist() == [8, 8] and found.dtype == "f2"


@both
@pytest.mark.parametrize("sides", ["m", "g", "mg"])
def test_a_stub_costs_no_other_row_and_is_said(tmp_path, producer, sides):
    for name, device in (("m", NPU), ("g", CUDA)):
        with Fork(tmp_path / f"{name}.h5", producer, device) as file:
            file.tensor("mm/1/output/result", np.ones(2, "f4"))
            if name in sides:
                file.stub("mm/2/output/result", (2, 3))
            else:
                file.tensor("mm/2/output/result", np.ones((2, 3), "f4"))
            file.tensor("mm/3/output/result", np.ones(3, "f4"))
    done = command("compare", "-m", tmp_path / "m.h5", "-g", tmp_path / "g.h5", "-out", tmp_path)
    assert done.exit_code == 1
    rows = table(done)
    assert {rows[f"/mm/{i}/output/result"]["ExactMatch"] for i in (1, 3)} == {"1.000000"}
    assert done.stderr.count("1 unreadable part, first /mm/2/output/result") == len(sides)
    assert "nothing differs" not in done.stdout and "agree" not in done.stdout


ARGUMENTS = [
    ("alpha", np.float64(1.5), "SCALAR"), ("beta", np.int64(2), "SCALAR"),
    ("flag", np.int8(1), "SCALAR"), ("train", np.int8(1), "BOOL"),
    ("eps", np.float64(0.1), "DOUBLE"),
    ("dim", np.int64(-1), "I64"), ("size", np.array([2, 3]), "VEC_I64"),
    ("n", np.int64(4), "SIZE"), ("min", np.float64(0), "OPT_SCALAR"),
    ("step", np.int64(1), "OPT_INT64"),
    ("dtype", np.int32(10), "SCALAR_TYPE"),
]  # fmt: skip
LATER_ONLY = [
    ("scale", np.float64(2.0), "OPT_DOUBLE"), ("pair", np.array([1, 2]), "PAIR"),
    ("pad", np.array([0, 1]), "AR_LONG_INT"), ("format", np.int32(0), "OPT_MEM_FMT"),
]  # fmt: skip


def with_arguments(path, producer, device, change=None):
    found = ARGUMENTS + (LATER_ONLY if producer == "later" else [])
    with Fork(path, producer, device) as file:
        file.tensor("op/1/input/self", np.ones(2, "f4"))
        for name, value, kind in found:
            other = value - type(value.flat[0])(1) if name == change else value
            file.argument(f"op/1/input/{name}", other, kind)
        if producer == "later":
            file.options("op/1/input/options")
        file.tensor("op/1/output/result", np.ones(2, "f4"))
    return [name for name, *_ in found]


@both
def test_equal_arguments_have_no_row(tmp_path, producer):
    for name, device in (("m.h5", NPU), ("g.h5", CUDA)):
        with_arguments(tmp_path / name, producer, device)
    rows = compared(tmp_path / "m.h5", tmp_path / "g.h5")
    assert [(row.side, row.status) for row in rows] == [
        ("input", Status.EQUAL), ("output", Status.EQUAL),
    ]  # fmt: skip


@both
@pytest.mark.parametrize("name", [name for name, *_ in ARGUMENTS if name != "dtype"])
def test_another_argument_has_a_row(tmp_path, producer, name):
    """Whatever number its kind has."""
    with_arguments(tmp_path / "m.h5", producer, NPU, name)
    with_arguments(tmp_path / "g.h5", producer, CUDA)
    (row,) = [row for row in compared(tmp_path / "m.h5", tmp_path / "g.h5") if not row.metrics]
    assert row.status is Status.ARGUMENT and row.my_path == f"/op/1/input/{name}"


@pytest.mark.parametrize("swapped", [False, True])
def test_the_two_producers_against_each_other(tmp_path, swapped):
    """Values have their dtypes and numbers, whichever made which; so have arguments."""
    files = tmp_path / "m.h5", tmp_path / "g.h5"
    for path, producer, device in zip(
        reversed(files) if swapped else files, PRODUCERS, (CUDA, NPU), strict=True
    ):
        with Fork(path, producer, device) as file:
            for kind, values in TENSORS.items():
                file.tensor(f"{kind}/1/output/result", values.T)
            for name, value, argument in ARGUMENTS[:-1]:
                file.argument(f"f4/1/input/{name}", value, argument)
    rows = compared(*files)
    assert {row.op for row in rows} == set(TENSORS)
    assert {row.status for row in rows} == {Status.EQUAL}, [row.reasons for row in rows]


@both
def test_load_mode_has_outputs_only_and_pairs_by_seqid(tmp_path, producer):
    """Numbers of groups in the order of HDF5: 1, 10, 2."""
    with Fork(tmp_path / "g.h5", producer, CUDA) as file:
        for seqid in (1, 2, 10):
            file.tensor(f"mm/{seqid}/input/self", np.full(2, seqid, "f2"))
            file.tensor(f"mm/{seqid}/output/result", np.full(2, seqid, "f2"))
    with Fork(tmp_path / "m.h5", producer, NPU) as file:
        for seqid in (10, 2):
            file.tensor(f"mm/{seqid}/output/result", np.full(2, seqid, "f2"))
    rows = compared(tmp_path / "m.h5", tmp_path / "g.h5")
    assert [(row.index, row.status) for row in rows if row.metrics] == [
        (2, Status.EQUAL), (10, Status.EQUAL),
    ]  # fmt: skip
    (unpaired,) = [row for row in rows if not row.metrics]
    assert unpaired.golden_path == "/mm/1" and unpaired.status is Status.UNPAIRED


@both
def test_an_op_that_the_devices_spell_differently(tmp_path, producer):
    names = {
        "m.h5": (NPU, "NpuConvolutionBackward", "input"),
        "g.h5": (CUDA, "CudnnConvolutionBackward", "self"),
    }
    for name, (device, ir, argument) in names.items():
        with Fork(tmp_path / name, producer, device) as file:
            file.tensor(f"{ir}/5/input/{argument}", np.array([1, 2], "f2"))
            file.tensors(f"{ir}/5/output/grad_inputs", [np.array([3, 4], "f2")])
    rows = compared(tmp_path / "m.h5", tmp_path / "g.h5")
    assert [(row.my_path, row.golden_path, row.status) for row in rows] == [
        ("/NpuConvolutionBackward/5/input/input", "/CudnnConvolutionBackward/5/input/self",
         Status.EQUAL),
        ("/NpuConvolutionBackward/5/output/grad_inputs/grad_inputs_0",
         "/CudnnConvolutionBackward/5/output/grad_inputs/grad_inputs_0", Status.EQUAL),
    ]  # fmt: skip
