"""Quantized tensors: other parameters are a finding before any number."""

from pathlib import Path

import pytest
import torch

from compare.engine import compare_dumps
from compare.row import Row, Status
from dumper import dumper
from dumper.reader import open_dump


def rows(folder: Path, mine: torch.Tensor, golden: torch.Tensor) -> dict[str, Row]:
    """The rows of one op on each tensor, by the name of what was compared."""
    paths = folder / "m.h5", folder / "g.h5"
    for path, tensor in zip(paths, (mine, golden), strict=True):
        with dumper(use_dump=True, dump_path=path):
            tensor.clone()
    with open_dump(paths[0]) as left, open_dump(paths[1]) as right:
        found = compare_dumps(left, right)
        return {row.my_path.rpartition("/")[2]: row for row in found if row.side == "input"}


def per_tensor(scale: float, zero: int) -> torch.Tensor:
    return torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), scale, zero, torch.qint8)


def per_channel(*scales: float) -> torch.Tensor:
    values, zeros = torch.ones(2, 3), torch.zeros(2, dtype=torch.long)
    return torch.quantize_per_channel(values, torch.tensor(scales), zeros, 0, torch.qint8)


OTHER = {
    "scale": (per_tensor(0.5, 3), per_tensor(0.25, 3), "scale 0.5 in my dump, 0.25 in golden"),
    "zero point": (per_tensor(0.5, 3), per_tensor(0.5, 4), "zero_point 3 in my dump, 4 in golden"),
    "scales": (per_channel(0.5, 0.25), per_channel(0.5, 0.125), "scales are not the same"),
}


@pytest.mark.parametrize(("mine", "golden", "words"), OTHER.values(), ids=list(OTHER))
def test_other_parameters(tmp_path, mine, golden, words):
    row = rows(tmp_path, mine, golden)["values"]
    assert (row.status, row.metrics) == (Status.INCOMPARABLE, None)
    assert row.reasons[0].startswith("quantization differs: ") and words in row.reasons[0]


@pytest.mark.parametrize("tensor", [per_tensor(0.5, 3), per_channel(0.5, 0.25)])
def test_the_same_parameters(tmp_path, tensor):
    assert rows(tmp_path, tensor, tensor.clone())["values"].status is Status.EQUAL
