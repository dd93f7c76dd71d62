"""What an NPU has for the ops of a model, and the profiles that say which ops those are."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dumper.errors import DumpError
from ir2tbe import profiles, trace
from ir2tbe.profiles import read_profile
from ir2tbe.support import COMPOSITE_SOURCE, State, support_of, supported
from ir2tbe.table import table

LINEARS = 3


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what torch.profiler saves of one step, as `trace.json` and `table.txt`."""
    folder = tmp_path_factory.mktemp("profile")
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(LINEARS)), torch.nn.ReLU())
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler,
        torch.profiler.record_function("my step"),
    ):
        net(torch.ones(2, 4)).sum().backward()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    averages = profiler.key_averages()
    (folder / "table.txt").write_text(averages.table(row_limit=-1, max_name_column_width=200))
    (folder / "cut.txt").write_text(averages.table(row_limit=-1, max_name_column_width=15))
    return folder


def write(path: Path, events: object) -> Path:
    path.write_text(json.dumps(events))
    return path


def op(name: str, **more: object) -> dict:
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": 1.5,
        "dur": 2,
        **more,
    }


# What there is for an op


@pytest.mark.parametrize(
    ("name", "state", "source"),
    [
        ("addmm", State.SEQUENCE, "op-plugin@6.0.0"),
        ("mkldnn_convolution", State.SEQUENCE, "op-plugin@6.0.0"),
        ("view", State.NOTHING, "by hand"),
        ("isneginf.out", State.ACLNN_ONLY, "op-plugin@6.0.0"),
        ("tensor_split", State.COMPOSITE, COMPOSITE_SOURCE),
        ("conv2d.padding", State.COMPOSITE, COMPOSITE_SOURCE),  # of conv2d there is a sequence
        ("_thnn_fused_lstm_cell", State.UNKNOWN, None),
        ("UniqueBackward0", State.UNKNOWN, "derivatives.yaml formula"),  # not implemented
        ("mylib::addmm", State.UNKNOWN, None),
        ("aten::native_layer_norm_backw...", State.UNKNOWN, None),
    ],
)
def test_what_there_is_for_an_op(name, state, source):
    found = support_of(table(), name)
    assert (found.state, found.source) == (state, source)


def test_nothing_is_said_without_a_source():
    names = [*table().entries, "tensor_split", "mylib::op"]
    for each in supported(table(), dict.fromkeys(names, 1)):
        said = each.as_json()
        assert said["source"] or (said["state"] == "unknown" and not said["tbe"]), said


def test_ops_keep_order_and_calls():
    found = supported(table(), {"view": 2, "addmm": 7, "view_as": 1})
    assert [(each.name, each.calls) for each in found] == [
        ("view", 2), ("addmm", 7), ("view_as", 1),
    ]  # fmt: skip
    assert found[1].as_json()["tbe"] == ("Mul", "MatMul", "Add")


# Profiles


def test_a_trace_and_a_table_hold_the_same_ops(saved):
    traced, printed = read_profile(saved / "trace.json"), read_profile(saved / "table.txt")
    assert (traced.kind, printed.kind) == ("trace", "table")
    assert set(traced.calls) == set(printed.calls)  # torch counts calls in calls of one name once
    assert traced.calls["aten::addmm"] == printed.calls["aten::addmm"] == LINEARS
    assert traced.calls["aten::relu"] == 1
    assert all(name.startswith("aten::") for name in traced.calls)
    assert traced.passed and printed.passed  # my step, AddmmBackward0, and so on


def test_a_packed_trace_is_read_as_the_trace(saved, tmp_path):
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress((saved / "trace.json").read_bytes()))
    assert read_profile(packed) == read_profile(saved / "trace.json")


def test_names_that_a_table_cut_are_no_ops_of_another_name(saved):
    calls = read_profile(saved / "cut.txt").calls
    cut = [name for name in calls if name.endswith(profiles.CUT)]
    assert cut and all(support_of(table(), name).state is State.UNKNOWN for name in cut)
    assert calls["aten::addmm"] == LINEARS


def test_only_calls_of_ops_count(tmp_path):
    events = [
        op("aten::mm"), op("aten::mm"), op("npu::npu_linear"), op("c10d::allreduce_"),
        op("aten::add", ph="B"), op("aten::sub", cat="kernel"),
        op("my label", cat="user_annotation"),
        op("detach"), op("MmBackward0"), op("torch::autograd::AccumulateGrad"),
        op("autograd::engine::evaluate_function: MmBackward0"),
        op("profiler::_record_function_enter_new"), {"ph": "M", "name": "aten::div"},
        op("aten::\x1b[31m"), op("x" * 501), {**op("aten::t"), "name": 5},
    ]  # fmt: skip
    calls = read_profile(
        write(tmp_path / "t.json", {"traceEvents": events, "other": [1, {}]})
    ).calls
    assert calls == {"aten::mm": 2, "npu::npu_linear": 1, "c10d::allreduce_": 1}


def test_a_trace_of_old_has_no_namespaces_and_no_categories(tmp_path):
    names = ["addmm", "addmm", "AddmmBackward", "mkldnn_convolution"]
    events = [{"ph": "X", "name": name, "pid": "CPU functions"} for name in names]
    events.append({"ph": "X", "name": "gemm", "pid": "CUDA functions"})
    calls = read_profile(write(tmp_path / "t.json", events)).calls
    assert calls == {"aten::addmm": 2, "aten::mkldnn_convolution": 1}


TABLE = """some words of the script
----------  ----------  ---------------
Name        Self CPU    Number of Calls
----------  ----------  ---------------
aten::mm    1.5us       3
aten::mm    2.5us       4
my  label   1us         1
----------  ----------  ---------------
Self CPU time total: 1us
"""


def test_a_table_as_old_versions_print_it(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text(TABLE)
    found = read_profile(path)
    assert found.calls == {"aten::mm": 7} and found.passed == 1 and not found.full


@pytest.mark.parametrize(("rows", "full"), [(99, False), (100, True), (101, False)])
def test_a_table_of_as_many_rows_as_are_printed_by_default_may_lack_some(tmp_path, rows, full):
    lines = TABLE.splitlines()
    body = [f"aten::p{i:03}  1us         1" for i in range(rows)]
    path = tmp_path / "t.txt"
    path.write_text("\n".join([*lines[1:4], *body, lines[3], ""]))
    found = read_profile(path)
    assert len(found.calls) == rows and found.full is full


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
events = st.lists(
    st.builds(
        lambda name, args, cat: op(name, args=args, cat=cat),
        st.sampled_from(["aten::mm", "aten::add", "aten::é\U0001f600"]),
        values,
        st.sampled_from(["cpu_op", "kernel"]),
    ),
    max_size=6,
)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@given(events, values, st.booleans(), st.sampled_from([None, 1, "\t"]))
@example([], False, False, None)  # a number at the end, and one in two pieces
@example([], 2.5e17, False, None)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_trace_is_read_as_json_reads_it_whatever_the_pieces(
    tmp_path, monkeypatch, size, found, other, plain, indent
):
    monkeypatch.setattr(trace, "_CHUNK", size)
    whole = found if plain else {"a": other, "traceEvents": found, "": other}
    text = json.dumps(whole, indent=indent, ensure_ascii=plain).encode()
    path = tmp_path / "t.json"
    path.write_bytes(text)
    with path.open("rb") as file:
        calls = trace.ops_of_trace(file, path)
    assert calls == Counter(e["name"] for e in found if e["cat"] == "cpu_op")


# Bad input


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "neither a trace nor a table"),
        (b"words\n" * 10, "neither a trace nor a table"),
        (b"\x00" * 100, "neither a trace nor a table"),
        (b"{}", "no traceEvents"),
        (b'{"traceEvents": []}', "no op in this profile"),
        (b'{"traceEvents": 5}', "'[' is missing"),
        (b'{"traceEvents" []}', "':' is missing"),
        (b'{"traceEvents": []', "ends in the middle"),
        (b'{"traceEvents": [5]}', "no object"),
        (b'{"traceEvents": [{}, {]}', "ends in the middle"),
        (b'{"traceEvents": [{} {}]}', "',' is missing"),
        (b"[]]", "text after its end"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'[{"a": ' + b"9" * 5000 + b"}]", "ends in the middle"),  # a number of no computer
        (b'[{"a": "' + b"x" * (5 << 20) + b'"}]', "more than 4 MiB"),
        (b'[{"a": "\xff"}]', "no UTF-8"),
        (b"\x1f\x8b rubbish", "cannot be read"),
        (gzip.compress(b'[{"ph": "X"}]', mtime=0)[:-12], "ends in the middle"),
        (TABLE.rpartition("-  -")[0].rpartition("\n")[0].encode(), "it was cut"),
        (TABLE.replace("3\n", "x\n").encode(), "row 1 of this table is damaged"),
        (TABLE.replace("aten::mm", "my::x::y").encode(), "no op in this profile"),
        (b"-" * (2 << 20), "too large"),
    ],
)
def test_bad_files_are_one_message(tmp_path, content, what):
    path = tmp_path / "profile"
    path.write_bytes(content)
    with pytest.raises(DumpError) as caught:
        read_profile(path)
    assert what in caught.value.what and str(path) in str(caught.value)


def test_what_is_no_file_is_said(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "absent", pipe, Path("a\0b")):
        assert not profiles.is_dump(path)
        with pytest.raises(DumpError):
            read_profile(path)


def test_a_trace_of_endless_names_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MOST_NAMES", 3)
    most = [op(f"aten::op{i}") for i in range(3)]
    assert len(read_profile(write(tmp_path / "t.json", most)).calls) == 3
    with pytest.raises(DumpError, match="more than 3 names"):
        read_profile(write(tmp_path / "t.json", [*most, op("aten::more")]))


def test_a_packed_trace_of_any_size_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "LARGEST_TEXT", 1 << 20)
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * (3 << 20) + b"]"))
    with pytest.raises(DumpError, match="larger than"):
        read_profile(path)


@given(st.data())
@example(None)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_profile_is_read_or_refused(saved, tmp_path, data):
    name = "trace.json" if data is None else data.draw(st.sampled_from(["trace.json", "table.txt"]))
    content = bytearray((saved / name).read_bytes())
    if data is None:
        del content[len(content) // 2 :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path = tmp_path / "damaged"
    path.write_bytes(content)
    try:
        found = read_profile(path)
    except DumpError as error:
        assert str(path) in str(error)
    else:
        assert data is not None and found.calls
