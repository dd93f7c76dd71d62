"""Folders of CANN dump files to be compared, and what the command says of them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from compare.cli import cli
from ir2tbe.cann.content import Dump, Origin, Tensor, tensor_of
from ir2tbe.cann.file import write
from ir2tbe.cann.names import name_part
from ir2tbe.cann.types import BY_NAME

START = 1673383728093446


def tensor(values, kind=None, form="ND", original=None, origin=None, groups=0) -> Tensor:
    """origin: (name, output index)."""
    values = np.asarray(values)
    kind = BY_NAME[kind or values.dtype.name]
    shape = values.shape if original is None else original
    made = tensor_of(values, kind, form, shape, Origin(*origin) if origin else None)
    return replace(made, sub_format=groups)


def put(folder: Path, at: int, op_type: str, name: str, inputs=(), outputs=(), **ids: int) -> Path:
    """The at-th file in order of execution. inputs, outputs: tensors, or arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = [
        [t if isinstance(t, Tensor) else tensor(t) for t in side] for side in (inputs, outputs)
    ]
    path = folder / f"{op_type}.{name_part(name)}.{at}.0.{START + at}"
    write(path, Dump(*map(tuple, sides), op_name=name))
    return path


def run(mine, golden, out, *more):
    arguments = ["compare", "-m", mine, "-g", golden, "-out", out, *more]
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def rows(done) -> list[dict[str, str]]:
    """Rows of the csv that the command named last; of columns that are there twice, the first."""
    with open(path_of(done), newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    names = [name if header.index(name) == i else f"{name}2" for i, name in enumerate(header)]
    return [dict(zip(names, line, strict=True)) for line in lines]


def header(done) -> list[str]:
    with open(path_of(done), newline="", encoding="utf-8") as file:
        return next(csv.reader(file))


def path_of(done) -> Path:
    return Path(done.stdout.splitlines()[-1].partition(": ")[2])


def save(folder, name, array):
    folder.mkdir(exist_ok=True)
    np.save(folder / name, array)


def op(name, kind="Relu", fused=None, outputs=(), inputs=(), dtypes=()):
    """An op as ATC lists it. outputs: (original name, index, format) or None. dtypes: of each, as
    DT_INT8."""
    found = {"name": name, "type": kind, "input": list(inputs)}
    if fused is not None:
        names = {"val_type": 1, **({"s": list(fused)} if fused else {})}
        found["attr"] = [
            {"key": "something", "value": 1},
            {"key": "_datadump_original_op_names", "value": {"list": names}},
        ]
    found["output_desc"] = [
        {"attr": []}
        if each is None
        else {
            "attr": [
                {"key": "_datadump_origin_name", "value": {"s": each[0]}},
                {"key": "_datadump_origin_output_index", "value": {"i": each[1]}},
                {"key": "_datadump_origin_format", "value": {"s": each[2]}},
            ]
        }
        for each in outputs
    ]
    for at, dtype in enumerate(dtypes):
        found["output_desc"] += [{"attr": []}] * (at >= len(outputs))
        found["output_desc"][at] = {**found["output_desc"][at], "dtype": dtype}
    return found


def rules(path, *ops):
    path.write_text(json.dumps({"name": "net", "graph": [{"name": "g", "op": list(ops)}]}))
    return path
