"""Files of tensors to be compared, and what file_compare says of them."""

from __future__ import annotations

import csv
import json

import numpy as np
from click.testing import CliRunner

from compare.cli import cli


def run(mine, golden, out, *more):
    arguments = ["file_compare", "-m", mine, "-g", golden, "-out", out, *more]
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def written(done):
    """The lines of a pair's result by name, or the rows of a csv."""
    path = done.stdout.splitlines()[-1].removeprefix("result: ")
    with open(path, newline="", encoding="utf-8") as file:
        if path.endswith(".csv"):
            return list(csv.DictReader(file))
        return dict(line.rstrip("\n").split(": ", 1) for line in file)


def save(path, values, dtype="f4"):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.asarray(values, dtype))
    return path


def safetensor(path, entries, data=b""):
    """A file by the published layout. entries: the header, or its bytes."""
    header = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}
