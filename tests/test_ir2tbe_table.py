"""The table from ops to TBE ops: its names in any spelling, what it says, and how sure it is."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ir2tbe.table import ACLNN_ONLY, How, table

MARKS = {
    "curated", "curated-low", "static", "static-lowmatch", "formula", "formula-partial", "derived",
    ACLNN_ONLY,
}  # fmt: skip
SOURCES = {
    "op-plugin@6.0.0", "torch_npu@v1.11.0-3.0.0", "pytorch-fork@v1.5.0", "derivatives.yaml formula",
    None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("addmm", "aten::addmm"),
        ("aten::addmm", "aten::addmm"),
        ("aten::addmm.default", "aten::addmm"),
        ("torch.ops.aten.addmm", "aten::addmm"),
        ("torch.addmm", "aten::addmm"),
        ("addmm.out", "aten::addmm.out"),
        ("add_Tensor", "aten::add.Tensor"),
        ("aten::add.Tensor", "aten::add.Tensor"),
        ("torch.ops.aten.add.Tensor", "aten::add.Tensor"),
        ("add__Tensor", "aten::add_.Tensor"),
        ("AddmmBackward", "ir::AddmmBackward0"),
        ("AddmmBackward0", "ir::AddmmBackward0"),
        ("NpuConvolutionBackward", "ir::NpuConvolutionBackward"),
        ("torch::autograd::AccumulateGrad", "ir::AccumulateGrad"),
        ("npu_linear", "npu::npu_linear"),
        ("torch_npu.npu_linear", "npu::npu_linear"),
        ("npu_x003a__x003a_npu_linear", "npu::npu_linear"),  # as a dump names it
    ],
)
def test_an_op_is_found_by_any_spelling(spelling, name):
    found = table().find(spelling)
    assert found.how is How.EXACT and found.entries[0].name == name


@pytest.mark.parametrize(
    ("spelling", "how", "name"),
    [
        ("add", How.ANY_OVERLOAD, "aten::add.Tensor"),
        ("MulBackward", How.ANY_OVERLOAD, "ir::MulBackward0"),
        ("addmm.dtype", How.OTHER_OVERLOAD, "aten::addmm"),
        ("addmm_Scalar", How.OTHER_OVERLOAD, "aten::addmm"),
        ("detach_", How.IN_PLACE, "aten::detach"),
        ("mkldnn_convolution", How.OTHER_DEVICE, "aten::convolution"),
    ],
)
def test_what_is_not_the_very_op_is_said(spelling, how, name):
    found = table().find(spelling)
    assert found.how is how and found.entries[0].name == name
    assert found.approximate


@pytest.mark.parametrize(
    "name",
    [
        "", "addmm_x", "ad", "add.", ".Tensor", "aten::", "::add", "aten::add.Tensor.x",
        "mylib::add", "npu::addmm", "../addmm", "add mm", "x" * 201, "addmm\n", "aten::addmm...",
        "index_reduce",  # index is an op, and reduce an overload of another one
        "scatter_reduce",
        "Adam (torch 1.5)",
    ],
)  # fmt: skip
def test_what_is_no_op_of_the_table_is_not_found(name):
    assert table().find(name) is None


@given(st.text(max_size=30) | st.from_regex(r"[a-z:._]{1,20}", fullmatch=True))
def test_no_name_is_an_error(name):
    found = table().find(name)
    assert found is None or found.entries
    assert len(table().near(name)) <= 5 and isinstance(table().is_composite(name), bool)


def test_every_op_is_found_by_its_own_name_and_its_ir():
    entries = [e for e in table().entries.values() if not e.name.startswith("recipe::")]
    assert len(entries) > 1500
    for entry in entries:
        found = table().find(entry.name)
        assert found.how is How.EXACT and found.entries[0] == entry
        assert entry in table().find(entry.ir).entries


def test_what_is_known_of_the_device_is_in_the_table():
    def tbe(name):
        return table().find(name).entries[0].tbe

    assert tbe("addmm") == ("Mul", "MatMul", "Add")  # 910A
    assert tbe("native_batch_norm") == ("BNTrainingReduce", "BNTrainingUpdate")
    assert tbe("mm") == ("MatMul",)
    assert tbe("view") == ()
    assert tbe("isneginf.out") is None
    variants = dict(table().find("addmm").entries[0].variants)
    assert variants["beta != 1 (910A)"] == ("Mul", "MatMul", "AxpyV2")


def test_steps_have_ports_in_order():
    reduce, update = table().find("native_batch_norm").entries[0].steps
    assert reduce.inputs == ("x=self",) and reduce.outputs == ("sum=sum", "square_sum=square_sum")
    assert reduce.alternatives == ("BN3DTrainingReduce",) and update.attributes[0] == "epsilon"
    mul, matmul, add = table().find("addmm").entries[0].steps
    assert mul.inputs is None and add.inputs is None  # not in the table
    assert matmul.inputs == ("contiguous_mat1", "contiguous_mat2", "self")


def test_every_line_has_a_mark_a_source_and_plain_names():
    op = re.compile("[A-Z][A-Za-z0-9]*")
    for entry in table().entries.values():
        assert entry.confidence in MARKS and entry.source in SOURCES, entry.name
        assert (entry.steps is None) == (entry.confidence == ACLNN_ONLY), entry.name
        assert entry.steps is not None or entry.aclnn, entry.name
        sequences = [entry.tbe or (), *(tbe for _, tbe in entry.variants)]
        assert all(op.fullmatch(each) for tbe in sequences for each in tbe), entry.name


def test_only_what_was_checked_is_not_approximate():
    assert not table().find("addmm").approximate
    for name in ("relu", "AcosBackward0", "AcoshBackward0", "var.correction", "xlogy.OutTensor"):
        assert table().find(name).approximate, name


def test_a_derivative_that_is_not_implemented_is_no_empty_sequence():
    for name in ("UniqueBackward0", "GeqrfBackward0", "LinearBackwardBackward0"):
        assert table().find(name).entries[0].unresolved, name
    assert not table().find("TBackward0").entries[0].unresolved


def test_a_name_of_a_profile_may_be_any_overload():
    (only,) = table().find("where").entries
    assert only.name == "aten::where"
    found = table().find("where", whole=False)
    assert found.how is How.ANY_OVERLOAD and found.approximate
    assert ("Select",) in found.sequences and ("ReduceSum", "NonZero") in found.sequences
    assert table().find("mm", whole=False).sequences == (("MatMul",),)
    assert not table().find("mm", whole=False).approximate


def test_who_uses_a_tbe_op():
    users = {use.entry.name: use.kind for use in table().users("BNTrainingReduce")}
    assert users["aten::native_batch_norm"] == "sequence" and "aten::addmm" not in users
    conditions = {
        (use.entry.name, use.where) for use in table().users("BNInfer") if use.kind == "condition"
    }
    assert ("aten::native_batch_norm", "training=False") in conditions
    alternatives = [use for use in table().users("BN3DTrainingReduce") if use.kind == "alternative"]
    assert "aten::native_batch_norm" in {use.entry.name for use in alternatives}
    kinds = {use.entry.name: use.kind for use in table().users("aclnnAddmm")}
    assert kinds["aten::addmm"] == "aclnn"
    assert table().users("BNTrainingreduce") == () and table().users("addmm") == ()


def test_each_use_is_one_that_the_op_has():
    for op in ("MatMul", "Cast", "ReduceSum", "Identity"):
        for use in table().users(op):
            held = {
                "sequence": use.entry.tbe or (),
                "alternative": [a for s in use.entry.steps or () for a in s.alternatives],
                "condition": dict(use.entry.variants).get(use.where, ()),
                "release": (use.entry.releases or {}).get(use.where, ()),
                "aclnn": use.entry.aclnn,
            }
            assert op in held[use.kind] or use.kind == "condition", (op, use.entry.name)


@pytest.mark.parametrize(
    ("name", "near"), [("adddmm", "addmm"), ("bntrainingreduce", "BNTrainingReduce")]
)
def test_near_names(name, near):
    assert table().near(name)[0] == near


def test_composites_are_what_pytorch_says():
    names = [
        f"Composite{each}"
        for each in ("ImplicitAutograd", "ExplicitAutograd", "ExplicitAutogradNonFunctional")
    ]
    known = [n for n in torch._C._dispatch_get_all_op_names() if table().is_composite(n)]
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    made = [name for name in known if any(has(name, key) for key in names)]
    assert len(known) > 400 and len(made) > 0.9 * len(known)
    assert table().is_composite("tensor_split") and not table().is_composite("addmm")
    assert not table().is_composite("mylib::tensor_split")
