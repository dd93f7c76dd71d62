"""How ops are spelled: the table, a user's own, and dumps of the original fork."""

import json
from dataclasses import replace
from itertools import groupby

import models
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dumper  # noqa: F401 - brings torch.utils.dumper
from compare.alignment import OpMap, align
from dumper.errors import DumpError
from dumper.index import UNKNOWN, Entry
from dumper.layout import VALUES, ir_name, record_path
from dumper.reader import Record, open_dump

TABLE = OpMap.default()


@pytest.mark.parametrize(
    ("ir", "name"),
    [
        ("add_Tensor", "add"),
        ("add__Tensor", "add"),
        ("add_Scalar", "add"),
        ("add_out", "add"),
        ("relu_", "relu"),
        ("bernoulli__float", "bernoulli"),
        ("sum_dim_IntList", "sum"),
        ("native_batch_norm", "batch_norm"),
        ("cudnn_batch_norm", "batch_norm"),
        ("miopen_batch_norm", "batch_norm"),
        ("cudnn_convolution", "convolution"),
        ("cudnn_convolution_backward", "convolution_backward"),
        ("convolution_backward", "convolution_backward"),
        ("_foreach_add__Scalar", "_foreach_add"),
        ("_unsafe_view", "view"),
        ("npu_dtype_cast", "_to_copy"),
        ("max_pool2d_with_indices", "max_pool2d_with_indices"),
        ("__and___Tensor", "bitwise_and"),
        ("npu_something_new_", "something_new"),
    ],
)
def test_one_op_has_one_name(ir, name):
    assert TABLE.canonical(ir) == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NpuConvolutionBackward", "CudnnConvolutionBackward"),
        ("NpuConvolutionBackward", "ThnnConvDepthwise2DBackward"),
        ("NativeBatchNormBackward", "CudnnBatchNormBackward"),
        ("NpuFooBackward", "ThnnFooBackward"),
    ],
)
def test_nodes_of_the_fork(one, other):
    assert TABLE.canonical(one) == TABLE.canonical(other)


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("AddmmBackward0", "addmm"),
        ("AddmmBackward", "addmm"),
        ("AddBackward0", "add"),
        ("CudnnConvolutionBackward", "convolution"),
        ("ThnnConvDepthwise2DBackward", "convolution"),
        ("ConvolutionBackward0", "convolution"),
        ("NativeBatchNormBackward0", "batch_norm"),
        ("torch::autograd::AccumulateGrad", ""),
        ("add_Tensor", ""),
    ],
)
def test_whose_backward_a_node_is(node, name):
    assert TABLE.node(node) == name


def test_ops_of_torch_keep_their_names_apart():
    """Two ops get one name only by a line of the table, a device's prefix, or a place of result."""
    bases = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            ir = ir_name(schema.name, schema.overload_name)
            bases.setdefault(TABLE.canonical(ir), set()).add(schema.name[6:])
    known = set(TABLE.names)
    merged = {
        name: {base for base in found if base.strip("_") not in known and base not in known}
        for name, found in bases.items()
    }
    for name, found in merged.items():
        plain = {base.strip("_") for base in found}
        plain = {
            next((b.removeprefix(p) for p in TABLE.prefixes if b.startswith(p)), b) for b in plain
        }
        assert len(plain - {name.strip("_")}) <= 1, (name, found)


def write(tmp_path, table):
    path = tmp_path / "map.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return path


def test_a_table_extends_the_default(tmp_path):
    table = OpMap.load(
        write(
            tmp_path,
            {
                "names": {"my_norm": "native_layer_norm"},
                "prefixes": ["xpu_"],
                "groups": {"my_op": [["exp", "log?"]], "addmm": [["mm", "mm"]]},
            },
        )
    )
    assert table.canonical("my_norm") == "native_layer_norm"
    assert table.canonical("xpu_my_norm_out") == "native_layer_norm"
    assert table.canonical("add__Tensor") == "add"
    assert [item.name for item in table.groups["addmm"][0]] == ["mm", "mm"]
    assert len(table.groups["addmm"]) == 1 + len(TABLE.groups["addmm"])
    exp, log = table.groups["my_op"][0]
    assert ((exp.name, exp.least), (log.name, log.least)) == (("exp", 1), ("log", 0))


def test_a_table_decides_what_is_a_group(tmp_path):
    golden = [op(1, "mm", (), (1,)), op(2, "tanh", (1,), (2,)), op(3, "sum", (2,), (3,))]
    mine = [golden[0], op(2, "exp", (1,), (7,)), op(3, "log", (7,), (8,)), op(4, "sum", (8,), (9,))]
    assert {m.kind for m in align(mine, golden)} == {"op", "extra"}
    table = OpMap.load(write(tmp_path, {"groups": {"tanh": [["exp", "log"]]}}))
    (group,) = [m for m in align(mine, golden, table) if m.kind == "group"]
    assert [r.ir for r in (*group.mine, *group.golden)] == ["exp", "log", "tanh"]


def op(seqid, ir, takes, gives):
    values = {f"input/a{i}": value for i, value in enumerate(takes)}
    values |= {f"output/r{i}": value for i, value in enumerate(gives)}
    entry = Entry(phase="forward", step=0, values=values)
    return Record(ir, seqid, record_path(ir, seqid), (), (), {}, True, entry)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("[]", "a table of ops is a JSON object"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ({"name": {}}, "name: no such key"),
        ({"names": []}, "names: wants an object"),
        ({"names": {"a": 1}}, "names: wants an object"),
        ({"names": {"a b": "c"}}, "names: wants an object"),
        ({"prefixes": "npu_"}, "prefixes: wants a list"),
        ({"carriers": [1]}, "carriers: wants a list"),
        ({"groups": []}, "groups: wants an object"),
        ({"groups": {"a": []}}, "a wants a list of expansions"),
        ({"groups": {"a": ["b"]}}, "an expansion of a"),
        ({"groups": {"a": [["b?"]]}}, "at least one that must"),
        ({"groups": {"a": [["b!"]]}}, "an expansion of a"),
    ],
)
def test_a_bad_table_is_one_message(tmp_path, table, problem):
    path = write(tmp_path, table)
    with pytest.raises(DumpError, match=problem) as error:
        OpMap.load(path)
    assert error.value.where == str(path)


def test_a_table_that_cannot_be_read(tmp_path):
    (tmp_path / "bytes.json").write_bytes(b'{"names": "\xff"}')
    for path in (tmp_path / "absent.json", tmp_path, tmp_path / "bytes.json", "a\0b"):
        with pytest.raises(DumpError):
            OpMap.load(path)


@given(st.text(max_size=40))
def test_any_name_has_a_name(name):
    assert TABLE.canonical(TABLE.canonical(name)) is not None
    assert isinstance(TABLE.node(name), str)


@pytest.fixture(scope="module", params=["gpt", "lstm", "resnet"])
def step(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("fork") / "run.h5"
    run = models.make(request.param, "cpu")
    with torch.utils.dumper(use_dump=True, dump_path=str(path)):
        run()
    with open_dump(path) as dump:
        return dump.records


def forked(records):
    """What the fork would have recorded, and which of ours each of its records is."""
    found, true = [], {}

    def add(ir, record, members):
        path = record_path(ir, len(found) + 1)
        found.append(replace(record, ir=ir, seqid=len(found) + 1, path=path, entry=UNKNOWN))
        true[path] = {member.path for member in members}

    for (backward, node, *_), run in groupby(records, key=instance):
        members = list(run)
        if not backward and TABLE.canonical(members[0].ir) not in TABLE.carriers:
            if members[0].phase not in VALUES:
                add(members[0].ir, members[0], members)
        elif backward and node and TABLE.node(node):
            add(node.rstrip("0123456789"), replace(members[-1], inputs=()), members)
    return found, true


def instance(record):
    backward = record.phase == "backward"
    return backward, record.entry.node, record.entry.api, None if backward else record.path


def test_the_fork_against_ours(step):
    fork, true = forked(step)
    assert {record.ir.endswith("Backward") for record in fork} == {True, False}
    for matches, theirs, ours in (
        (align(fork, step), "mine", "golden"),
        (align(step, fork), "golden", "mine"),
    ):
        for match in matches:
            for record in getattr(match, theirs):
                assert true[record.path] <= {r.path for r in getattr(match, ours)}
        lone = [m for m in matches if m.kind == "extra"]
        assert [m for m in lone if getattr(m, theirs)] == []


def test_two_dumps_of_the_fork(step):
    fork, _ = forked(step)
    matches = align(fork[:20] + fork[21:], fork)
    (extra,) = [m for m in matches if m.kind == "extra"]
    assert extra.golden[0].ir == fork[20].ir
    told = [m for m in matches if m.kind == "op" and m.confidence == "high"]
    assert told and all(m.mine[0].path == m.golden[0].path for m in told)
