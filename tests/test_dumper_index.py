"""The index is anyone's text: what is well formed is told, the rest is passed over."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dumper import dumper, open_dump
from dumper.index import UNKNOWN, Stub, entries

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
FIELDS = ("seqid", "ir", "phase", "call", "node", "step", "thread", "names", "values", "stubs")
LINES = st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=5)
CALLS = st.lists(
    st.dictionaries(st.sampled_from(("call", "api", "module", "source")), JSON), max_size=5
)


@given(lines=LINES, calls=CALLS)
def test_nothing_in_it_is_trusted(lines: list[dict], calls: list[dict]) -> None:
    for (ir, seqid), entry in entries(lines, calls).items():
        assert isinstance(ir, str) and isinstance(seqid, int)
        for text in (entry.phase, entry.api, entry.module, entry.source, entry.node):
            assert text is None or isinstance(text, str)
        assert entry.step is None or isinstance(entry.step, int)
        assert all(isinstance(number, int) for number in entry.values.values())
        assert all(isinstance(name, str) for name in entry.names.values())
        assert all(isinstance(stub, Stub) for stub in entry.stubs.values())


def test_a_line_and_its_call() -> None:
    line = {
        "seqid": 3,
        "ir": "mm",
        "phase": "forward",
        "call": 7,
        "step": 1,
        "names": {"mat2": "w"},
        "values": {"input/self": 4},
        "stubs": {"output/result": ["float32", [2, "j1"], None, "view"]},
    }
    call = {"call": 7, "api": "torch.matmul.0", "module": "a.b", "source": "x.py:3"}
    entry = entries([line], [call])["mm", 3]
    assert (entry.api, entry.module, entry.source, entry.step) == (
        "torch.matmul.0",
        "a.b",
        "x.py:3",
        1,
    )
    assert (entry.names, entry.values) == ({"mat2": "w"}, {"input/self": 4})
    assert entry.stubs == {"output/result": Stub("float32", (2, "j1"), None, "view")}


@pytest.mark.parametrize(
    "damaged",
    [
        {"ir": 3, "seqid": 1},
        {"ir": "mm"},
        {"ir": "mm", "seqid": "1"},
        {},
        {"seqid": [1], "ir": "a"},
    ],
)
def test_lines_without_a_record_are_passed_over(damaged: dict) -> None:
    assert entries([damaged, {"ir": "mm", "seqid": 2}], []) == {("mm", 2): UNKNOWN}


def test_a_record_in_the_index_only(tmp_path: Path) -> None:
    """What is described only (`max_bytes`) is a record all the same; a lie costs nothing more."""
    path = tmp_path / "x.h5"
    with dumper(use_dump=True, dump_path=path):
        torch.ones(2).exp()
    with h5py.File(path, "r+") as file:
        node = file["/_torch_dumper/0/index"]
        kind = node.attrs["Type"]
        line = json.dumps(
            {"seqid": 99, "ir": "../mm", "stubs": {"output/r": ["f", [1], None, "x"]}}
        )
        text = node[()].tobytes() + line.encode() + b"\n{broken"
        del file["/_torch_dumper/0/index"]
        made = file.create_dataset("/_torch_dumper/0/index", data=np.frombuffer(text, np.uint8))
        made.attrs["Type"] = kind
    with open_dump(path) as dump:
        assert [r.ir for r in dump.records] == ["ones", "exp", "../mm"]
        assert dump.records[-1].inputs == () and dump.omitted == (("/../mm/99/output/r", "x"),)
