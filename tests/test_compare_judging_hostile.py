"""Judging an op by operands and arguments that a damaged file claims: a verdict, little memory, no
word on stderr. Both sides claim the same, and the result of one is off."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from compare.cli import cli
from compare.engine import compare_dumps
from compare.row import Status
from dumper import open_dump


def product() -> None:
    torch.ones(4, 8) @ torch.ones(8, 5)


def convolution() -> None:
    x, w = (torch.ones(shape, requires_grad=True) for shape in ((2, 4, 8, 8), (4, 4, 3, 3)))
    torch.nn.functional.conv2d(x, w, None, 1, 1).sum().backward()


def norm() -> None:
    torch.nn.functional.layer_norm(torch.arange(32.0).reshape(4, 8), (8,))


def claimed(
    tmp_path: Path, step: Callable[[], None], ir: str, name: str, value: np.ndarray
) -> list:
    """The rows of two dumps of a step, in both of which an input of an op is `value`."""
    paths = [tmp_path / "m.h5", tmp_path / "g.h5"]
    with torch.utils.dumper(use_dump=True, dump_path=paths[1]):
        step()
    with h5py.File(paths[1], "a") as file:
        (seqid,) = file[ir]
        inputs = file[f"{ir}/{seqid}/input"]
        attributes = dict(inputs[name].attrs)
        del inputs[name]
        if "Stride" in attributes:
            attributes["Stride"] = np.array(value.strides) // value.itemsize
        inputs.create_dataset(name, data=value).attrs.update(attributes)
    shutil.copy(paths[1], paths[0])
    with h5py.File(paths[0], "a") as file:
        for output in file[f"{ir}/{seqid}/output"].values():
            if output.size:
                output[...] = output[...] * 1.01 + 0.01
    with open_dump(paths[0]) as mine, open_dump(paths[1]) as golden:
        return [row for row in compare_dumps(mine, golden) if row.op == ir and row.side == "output"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("step", "ir", "name", "value"),
    [
        (product, "mm", "mat2", np.ones((8, 3), "f4")),
        (product, "mm", "mat2", np.ones((1, 8, 5), "f4")),
        (product, "mm", "mat2", np.ones((7, 5), "f4")),
        *((convolution, "convolution_backward", "stride", np.array([s, s]))
          for s in (0, -1, 2, 1000, 1300, 20_000, 10**12)),
        (convolution, "convolution_backward", "stride", np.array([10**6, -99])),
        *((convolution, "convolution_backward", "dilation", np.array([d, d]))
          for d in (0, -7, 1000, 10**12)),
        *((convolution, "convolution", "padding", np.array([p, p])) for p in (-9, 500, 10**9)),
        *((convolution, "convolution", "groups", np.int64(g)) for g in (0, 3, -1, 10**9)),
        (norm, "native_layer_norm", "input", np.zeros(0, "f4")),
        (norm, "native_layer_norm", "normalized_shape", np.array([7])),
    ],
)  # fmt: skip
def test_what_no_call_can_be_is_a_verdict(tmp_path, step, ir, name, value):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = claimed(tmp_path, step, ir, name, value)
    assert rows and any(row.status is Status.DIFFERS for row in rows)
    assert all(row.verdict.code for row in rows)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300 << 10  # KiB


def test_the_smallest_c_is_a_tolerance(tmp_path):
    claimed(tmp_path, product, "mm", "self", np.full((4, 8), 2, "f4"))
    runner = CliRunner()
    paths = ["-m", str(tmp_path / "m.h5"), "-g", str(tmp_path / "g.h5"), "-out", str(tmp_path)]
    runner.invoke(cli, ["compare", *paths])
    (result,) = tmp_path.glob("result_*.json")
    done = runner.invoke(cli, ["judge", "--c", "5e-324", str(result)])
    assert done.exit_code == 1 and "1 differ" in done.output


@pytest.mark.parametrize(
    "scale",
    [
        '{"ratio":2.0,"mine":1.5,"golden":null}', '{"ratio":NaN,"mine":null,"golden":null}',
        '{"ratio":-1.0,"mine":null,"golden":null}', '{"ratio":Infinity,"mine":null,"golden":null}',
        '{"ratio":1%s,"mine":null,"golden":null}' % ("0" * 400), '{"ratio":null}', "[1]", '"x"',
    ],
)  # fmt: skip
def test_a_loss_scale_that_is_none_is_one_message(tmp_path, scale):
    claimed(tmp_path, product, "mm", "self", np.full((4, 8), 2, "f4"))
    runner = CliRunner()
    paths = ["-m", str(tmp_path / "m.h5"), "-g", str(tmp_path / "g.h5"), "-out", str(tmp_path)]
    runner.invoke(cli, ["compare", *paths])
    (result,) = tmp_path.glob("result_*.json")
    text = result.read_text()
    assert '"loss_scale": null' in text
    result.write_text(text.replace('"loss_scale": null', f'"loss_scale": {scale}', 1))
    done = runner.invoke(cli, ["report", str(result)])
    assert done.exit_code == 2 and "this result is damaged" in done.output
