"""Dumps of the tests' model families under one way of computing each, and their rows judged."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import families
import numpy as np
import torch

import npu_core
from compare.judging import Context, Row, Verdict, judge, numerics_of
from compare.metrics import compare_arrays
from dumper import open_dump
from dumper.reader import Dump, Record
from dumper.stored import Tensor


class Way(NamedTuple):
    """How a step is computed: device, profile of the emulated npu, autocast's dtype, threads."""

    device: str = "cpu"
    profile: str | None = None
    autocast: torch.dtype | None = None
    threads: int = 1


WAYS = {
    "cpu": Way(),
    "cpu, 2 threads": Way(threads=2),
    "cpu, fp16 autocast": Way(autocast=torch.float16),
    "cpu, bf16 autocast": Way(autocast=torch.bfloat16),
    "npu exact": Way("npu", "exact"),
    "npu 910A": Way("npu", "910A"),
    "npu 910B": Way("npu", "910B"),
}

_FLOATS = {"float16", "bfloat16", "float32"}


def can(family: str, way: str) -> bool:
    """Whether a family runs that way; the CPU has no LSTM in fp16."""
    lstm_in_half = family == "lstm" and WAYS[way].autocast is torch.float16
    return WAYS[way].device in families.FAMILIES[family].devices and not lstm_in_half


def dump(family: str, way: str, folder: Path, source: Path | None = None) -> Path:
    """Record a step. source: the dump whose inputs each op is fed, in load mode."""
    how = WAYS[way]
    path = folder / f"{family}-{way.replace(', ', '-').replace(' ', '-')}{'-fed' * bool(source)}.h5"
    path.unlink(missing_ok=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(how.threads)
    try:
        with contextlib.ExitStack() as stack:
            if how.profile:
                stack.enter_context(npu_core.use(how.profile))
            step = families.make(family, how.device)
            if how.autocast:
                stack.enter_context(torch.autocast("cpu", how.autocast))
            options = {"use_load": True, "load_file_path": source} if source else {"use_dump": True}
            with torch.utils.dumper(dump_path=path, **options):
                step()
    finally:
        torch.set_num_threads(threads)
    return path


def judged(mine: Path, golden: Path) -> Iterator[tuple[Record, str, Verdict]]:
    """The verdict of each output that pairs, with the record and the output's name."""
    with open_dump(mine) as a, open_dump(golden) as b:
        context = context_of(a, b)
        for record, partner in partners(a, b):
            theirs = {tensor.name: tensor for tensor in partner.outputs}
            for tensor in record.outputs:
                other = theirs.get(tensor.name)
                if other is None or other.shape != tensor.shape:
                    continue
                if tensor.dtype != other.dtype and not {tensor.dtype, other.dtype} <= _FLOATS:
                    continue
                arrays = [context.read(side) for side in (tensor, other)]
                if tensor.dtype != other.dtype:
                    arrays = [side.astype(np.float32) for side in arrays]
                metrics = compare_arrays(*arrays, False)
                row = Row(record, partner, "output", tensor, other, metrics)
                yield record, tensor.name, judge(row, context)


def context_of(mine: Dump, golden: Dump) -> Context:
    """What is known of the two runs."""
    return Context(
        numerics_of(mine.environment, mine.device_type),
        numerics_of(golden.environment, golden.device_type),
        fed=mine.load_mode,
        read=Tensor.read,
    )


def partners(mine: Dump, golden: Dump) -> Iterator[tuple[Record, Record]]:
    """Records in the order of both; by number in load mode."""
    if mine.load_mode:
        known = {(record.ir, record.seqid): record for record in golden.records}
        for record in mine.records:
            if (record.ir, record.seqid) in known:
                yield record, known[record.ir, record.seqid]
        return
    keys = [[_key(record) for record in side.records] for side in (mine, golden)]
    if keys[0] == keys[1]:
        yield from zip(mine.records, golden.records, strict=True)
        return
    blocks = difflib.SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks()
    for first, second, count in blocks:
        for i in range(count):
            yield mine.records[first + i], golden.records[second + i]


def _key(record: Record) -> tuple:
    return record.ir, record.entry.module, tuple(tensor.shape for tensor in record.outputs)
