"""Pairing: the original comparator's rules, on hand-made files."""

import h5py
import numpy as np
import pytest
from dumps import dump

from compare.pairing import Pairing, pairing_of
from dumper.reader import open_dump

CPU, CUDA, NPU = 0, 1, 10


def pairs(tmp_path, mine, golden, devices=(NPU, CUDA)):
    """(index, my path, golden path, reason) of every pair; a record has one output `result`."""
    opened = []
    for name, paths, device in zip(("m.h5", "g.h5"), (mine, golden), devices, strict=True):
        tensors = {
            p if p.count("/") > 1 else f"{p}/output/result": np.zeros(2, "f4") for p in paths
        }
        opened.append(open_dump(dump(tmp_path / name, tensors, device)))
    left, right = opened
    found = pairing_of(left, right).pairs()
    rows = [(row.index, row.mine and row.mine.path, row.golden_path, row.reason) for row in found]
    left.close(), right.close()
    return rows


INPUT = "zz/900/input/x"
"""One record with an input makes a file one of a free run."""

LAST = (900, f"/{INPUT}", f"/{INPUT}", "")


def free(tmp_path, mine, golden, devices=(NPU, CUDA)):
    rows = pairs(tmp_path, [*mine, INPUT], [*golden, INPUT], devices)
    assert rows.count(LAST) == 1
    return [row for row in rows if row != LAST]


def out(ir, seqid, name="result"):
    return f"/{ir}/{seqid}/output/{name}"


def test_calls_belong_together_in_the_order_in_which_they_run(tmp_path):
    rows = free(tmp_path, ["a/1", "b/2", "a/10", "a/9"], ["a/4", "a/11", "b/5", "a/20"])
    assert rows == [
        (1, out("a", 1), out("a", 4), ""),
        (2, out("b", 2), out("b", 5), ""),
        (9, out("a", 9), out("a", 11), ""),
        (10, out("a", 10), out("a", 20), ""),
    ]


@pytest.mark.parametrize("extra", [1, 3, 5])
def test_one_call_more_costs_its_own_row(tmp_path, extra):
    """Counting calls of a name, as the original does, would shift all that follow."""
    calls = ["a/1", "b/2", "a/3", "c/4", "a/5"]
    golden = [call for call in calls if call != f"a/{extra}"]
    rows = free(tmp_path, calls, golden)
    unpaired = [row for row in rows if row[3]]
    assert [row[0] for row in unpaired] == [extra]
    assert all(row[1] == row[2] for row in rows if not row[3])


MAPPED = [
    ("CudnnBatchNormBackward", "NativeBatchNormBackward", (CUDA, CPU)),
    ("NativeBatchNormBackward", "CudnnBatchNormBackward", (NPU, CUDA)),
    ("CudnnConvolutionBackward", "NpuConvolutionBackward", (CUDA, NPU)),
    ("NpuConvolutionBackward", "CudnnConvolutionBackward", (NPU, CUDA)),
    ("NpuConvolutionBackward", "ThnnConvDepthwise2DBackward", (NPU, CUDA)),
    ("NpuFooBackward", "CudnnFooBackward", (NPU, CUDA)),
    ("NpuFooBackward", "ThnnFooBackward", (NPU, CPU)),
    ("ThnnFooBackward", "NpuFooBackward", (CPU, NPU)),
    ("CudnnFooBackward", "NpuFooBackward", (CUDA, NPU)),
    ("NpuFoo", "CudnnFoo", (NPU, CPU)),
    ("NpuFoo", "ThnnFoo", (NPU, CUDA)),
]


@pytest.mark.parametrize(("mine", "golden", "devices"), MAPPED)
def test_mapped_names(tmp_path, mine, golden, devices):
    rows = free(tmp_path, [f"{mine}/1"], [f"{golden}/5"], devices)
    assert rows == [(1, out(mine, 1), out(golden, 5), "")]


@pytest.mark.parametrize(
    ("mine", "golden", "devices"),
    [
        ("FooNpu", "FooCudnn", (NPU, CUDA)),
        ("Npu", "Cudnn", (NPU, CUDA)),
    ],
)
def test_names_that_do_not_map(tmp_path, mine, golden, devices):
    rows = free(tmp_path, [f"{mine}/1"], [f"{golden}/5"], devices)
    assert [row[1:3] for row in rows] == [(None, None), (None, f"/{golden}/5")]


def test_an_equal_name_comes_before_a_mapped_one(tmp_path):
    """In load mode, where the seqid alone does not tell them apart."""
    rows = pairs(tmp_path, ["NpuFoo/1", "CudnnFoo/1"], ["CudnnFoo/1"])
    assert sorted(rows, key=lambda row: row[3]) == [
        (1, out("CudnnFoo", 1), out("CudnnFoo", 1), ""),
        (1, None, None, "No data match with op:NpuFoo in golden dump data."),
    ]


def test_convolutions_are_counted_together(tmp_path):
    """A depthwise convolution between two others keeps its place in npu's sequence."""
    npu = "NpuConvolutionBackward"
    cudnn, depthwise = "CudnnConvolutionBackward", "ThnnConvDepthwise2DBackward"
    golden = [f"{cudnn}/10", f"{depthwise}/20", f"{cudnn}/30"]
    rows = free(tmp_path, [f"{npu}/1", f"{npu}/2", f"{npu}/3"], golden)
    assert [row[2] for row in rows] == [out(cudnn, 10), out(depthwise, 20), out(cudnn, 30)]


@pytest.mark.parametrize(
    ("mine", "golden", "argument", "other"),
    [
        ("NpuConvolutionBackward", "CudnnConvolutionBackward", "input", "self"),
        ("CudnnConvolutionBackward", "NpuConvolutionBackward", "self", "input"),
        ("NativeBatchNormBackward", "CudnnBatchNormBackward", "eps", "epsilon"),
    ],
)
def test_mapped_arguments(tmp_path, mine, golden, argument, other):
    left, right = f"{mine}/1/input/{argument}", f"{golden}/2/input/{other}"
    assert pairs(tmp_path, [left], [right]) == [(1, f"/{left}", f"/{right}", "")]


def test_an_argument_of_the_same_name_comes_first(tmp_path):
    mine = "NpuConvolutionBackward/1/input/"
    golden = "CudnnConvolutionBackward/2/input/"
    rows = pairs(tmp_path, [mine + "input"], [golden + "input", golden + "self"])
    assert rows[0][2] == f"/{golden}input"
    assert rows[1] == (
        1,
        None,
        f"/{golden}self",
        f"No data match with /{golden}self in my dump data.",
    )


def test_unpaired_things_have_rows(tmp_path):
    mine = ["a/1/output/x", "a/1/output/mine", "only/2/output/x", "zz/3/input/x"]
    golden = [
        "a/1/input/gold", "a/1/output/x", "a/1/output/gold", "other/2/output/x", "zz/3/input/x",
    ]  # fmt: skip
    assert pairs(tmp_path, mine, golden) == [
        (1, "/a/1/output/mine", None, "No data match with /a/1/output/mine in golden dump data."),
        (1, "/a/1/output/x", "/a/1/output/x", ""),
        (1, None, "/a/1/input/gold", "No data match with /a/1/input/gold in my dump data."),
        (1, None, "/a/1/output/gold", "No data match with /a/1/output/gold in my dump data."),
        (2, None, None, "No data match with op:only in golden dump data."),
        (3, "/zz/3/input/x", "/zz/3/input/x", ""),
        (4, None, "/other/2", "No data match with /other/2 in my dump data."),
    ]


def test_records_that_share_no_tensor_are_unpaired(tmp_path):
    rows = free(tmp_path, ["a/1/output/x"], ["a/1/output/y"])
    assert [row[3] for row in rows] == [
        "No data match with op:a in golden dump data.",
        "No data match with /a/1 in my dump data.",
    ]


@pytest.mark.parametrize("swapped", [False, True])
def test_load_mode_pairs_by_seqid_on_either_side(tmp_path, swapped):
    load = ["relu/5", "relu/2"]
    full = ["relu/1", "relu/2", "relu/5", "relu/2/input/self"]
    sides = (full, load) if swapped else (load, full)
    rows = pairs(tmp_path, *sides)
    paired = [(row[0], row[1], row[2]) for row in rows if row[1] and row[2]]
    assert paired == [(n, out("relu", n), out("relu", n)) for n in (2, 5)]
    (unpaired,) = [row for row in rows if not (row[1] and row[2])]
    words = "op:relu in golden" if swapped else "/relu/1 in my"
    assert words in unpaired[3]


def test_lists_pair_by_member(tmp_path):
    names = [f"cat/1/input/tensors/tensors_{i}" for i in range(11)]
    rows = pairs(tmp_path, names, names)
    assert [row[1] for row in rows] == [f"/{name}" for name in names]
    assert all(row[1] == row[2] for row in rows)


def test_records_without_tensors_have_no_rows(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_group("a/1/output")
    with open_dump(tmp_path / "x.h5") as left, open_dump(tmp_path / "x.h5") as right:
        assert len(left.records) == 1
        assert list(Pairing(left.records, right.records, by_seqid=True).pairs()) == []


OMITTED = [
    # (left out, (index, my path, golden path) of its row for mine and for golden)
    ("/a/1/input/w", (1, "/a/1/input/w", None), (1, None, "/a/1/input/w")),
    ("/a/1/output/list/list_0", (1, "/a/1/output/list/list_0", None), None),
    ("/a/1", (1, "/a/1", None), (1, None, "/a/1")),
    ("/lost/2", (2, "/lost/2", None), (901, None, "/lost/2")),
    ("/lost/2/input/w", (2, "/lost/2/input/w", None), (901, None, "/lost/2/input/w")),
    ("the end", (901, "the end", None), (901, None, "the end")),
    ("None", (901, "None", None), None),
    ("/", (901, "/", None), None),
    ("/a/b/c", (901, "/a/b/c", None), None),
]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("path", "mine", "golden"), OMITTED)
def test_what_was_left_out_has_rows(tmp_path, path, mine, golden, both):
    names = ["a/1/input/x", "a/1/output/x", "zz/900/output/x"]
    opened = [
        open_dump(dump(tmp_path / name, {n: np.zeros(2, "f4") for n in names}))
        for name in ("m.h5", "g.h5")
    ]
    note = ((path, "sparse"),)
    found = list(
        Pairing(
            *(side.records for side in opened),
            by_seqid=False,
            omitted=(note, note if both else ()),
        ).pairs()
    )
    rows = [(row.index, row.my_path, row.golden_path) for row in found if row.omitted]
    assert rows[0] == mine and len(rows) == 1 + both
    if both and golden:
        assert rows[1] == golden
    assert all("sparse" in row.reason for row in found if row.omitted)
    assert [row.index for row in found] == sorted(row.index for row in found)
    assert sum(bool(row.mine and row.golden) for row in found) == len(names)


def test_what_was_left_out_keeps_its_place_in_the_count(tmp_path):
    """The second call of three is lost in my dump; the third still belongs to the third."""
    mine = dump(tmp_path / "m.h5", {f"a/{i}/output/x": np.zeros(1, "f4") for i in (1, 3)})
    golden = dump(tmp_path / "g.h5", {f"a/{i}/output/x": np.zeros(1, "f4") for i in (1, 2, 3)})
    with open_dump(mine) as left, open_dump(golden) as right:
        found = Pairing(
            left.records, right.records, by_seqid=False, omitted=([("/a/2", "disk full")], [])
        ).pairs()
        paired = [(row.my_path, row.golden_path) for row in found if row.mine and row.golden]
    assert paired == [(f"/a/{i}/output/x",) * 2 for i in (1, 3)]


def test_inputs_left_out_do_not_matter_in_load_mode(tmp_path):
    path = dump(tmp_path / "m.h5", {"a/1/output/x": np.zeros(1, "f4")})
    with open_dump(path) as one:
        note = [("/a/1/input/w", "sparse"), ("/a/1/output/y", "sparse")]
        found = Pairing(one.records, one.records, by_seqid=True, omitted=(note, [])).pairs()
        assert [row.my_path for row in found] == ["/a/1/output/y", "/a/1/output/x"]
