"""What another process found in a dump: the same records as its own walk finds."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from dumps import put
from torch import nn

import dumper
from dumper.reader import Dump, open_dump
from dumper.walked import packed


def step(path: Path) -> Path:
    """Lists, views, scalars, sparse gradients, a generator's state, stubs."""
    table, layer = nn.Embedding(9, 4, sparse=True), nn.Linear(4, 4)
    with dumper.dumper(use_dump=True, dump_path=path):
        x = table(torch.tensor([1, 2, 2]))
        y = torch.cat([layer(x), x.t().contiguous().t()], dim=1)
        nn.functional.dropout(y, 0.5).sum().backward()
        torch.ones(2, device="meta") * 2
    return path


def odd(path: Path) -> Path:
    """What is in no dump, or damaged, among what is."""
    with h5py.File(path, "w") as file:
        put(file, "op/1/output/x", np.ones(3, "f4"))
        put(file, "op/1/input/other/list/0", np.ones((2, 3), "f8"), stride=(1, 2))
        put(file, "op/1/input/n", np.int64(3), kind=3)
        file.create_dataset("op/2/output/x", data=np.ones(3))
        file.create_group("op/3/input/list")
        file.create_group("op/no seqid")
        file["op/4/output/x"] = h5py.SoftLink("/op/1/output/x")
        put(file, "op/5/output/\udcff".encode("utf-8", "surrogateescape"), np.ones(2, "f2"))
    return path


def known(dump: Dump) -> list:
    """All that a dump says of its records."""
    return [
        dump.skipped, dump.omitted, dump.load_mode, dump.device_type,
        [
            (
                record, record.entry, record.has_inputs, record.results,
                [(type(each), each.claims, each.at, each.path) for each in values(record)],
                [repr(each.value) for each in values(record)[len(tensors(record)) :]],
                [each.read().tobytes() for each in tensors(record)],
            )
            for record in dump.records
        ],
    ]  # fmt: skip


def tensors(record) -> list:
    return [*record.inputs, *record.outputs]


def values(record) -> list:
    return [*tensors(record), *record.arguments.values(), *record.results.values()]


@pytest.mark.parametrize("make", [step, odd])
def test_the_same_is_found(tmp_path, make):
    path = make(tmp_path / "a.h5")
    with open_dump(path) as own:
        data = packed(own.state, own.records, own.skipped, own.omitted)
        with open_dump(path, walked=data) as other:
            assert len(own.records) > 3 and known(other) == known(own)
            shared = {id(each.claims) for record in other.records for each in values(record)}
            assert len(shared) == len({id(e.claims) for r in own.records for e in values(r)})


def test_the_golden_pairs(golden):
    for path in sorted(golden.glob("*/*.h5")):
        with open_dump(path) as own:
            data = packed(own.state, own.records, own.skipped, own.omitted)
            with open_dump(path, walked=data) as other:
                assert known(other) == known(own), path
