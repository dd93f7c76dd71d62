"""Healthy pairs of runs: what the judge says of ops that all computed right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from compare.judging import Kind

from .dumps import can, dump, judged

PAIRS = (
    ("npu exact", "cpu"),
    ("cpu, 2 threads", "cpu"),
    ("npu 910A", "cpu"),
    ("npu 910B", "cpu"),
    ("npu 910B", "npu 910A"),
    ("cpu, fp16 autocast", "cpu"),
    ("cpu, bf16 autocast", "cpu"),
)
FED = (("npu exact", "cpu"), ("npu 910A", "cpu"), ("npu 910B", "cpu"))
"""The same in load mode: each op is fed golden's inputs."""


def measure(chosen: list[str], folder: Path) -> tuple[list[list[str]], list[str]]:
    """Rows of a table, one a pair of ways, and a line for each false alarm."""
    counts = {pair: Counter() for pair in (*PAIRS, *((f"{a}, fed", b) for a, b in FED))}
    alarms: list[str] = []
    for family in chosen:
        ways = {way for pair in PAIRS for way in pair if can(family, way)}
        paths = {way: dump(family, way, folder) for way in sorted(ways)}
        for (mine, golden), count in counts.items():
            if mine.endswith(", fed"):
                way = mine.removesuffix(", fed")
                if way not in paths:
                    continue
                path = dump(family, way, folder, source=paths[golden])
            elif mine in paths and golden in paths:
                path = paths[mine]
            else:
                continue
            for record, name, verdict in judged(path, paths[golden]):
                count[verdict.kind] += 1
                count["default"] += verdict.by_default
                if verdict.kind is Kind.DIFFERS:
                    where = f"{family}, {mine} against {golden}: {record.path}/output/{name}"
                    alarms.append(f"{where}: {verdict.code}, {verdict.margin:.3g} times allowed")
        for path in paths.values():
            path.unlink()
    rows = [
        [f"{mine} against {golden}", *(str(count[kind]) for kind in Kind), str(count["default"])]
        for (mine, golden), count in counts.items()
    ]
    return rows, alarms
