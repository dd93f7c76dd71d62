"""The estimate is the size that the dump then has, and its advice does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import models
import pytest

from dumper import dumper, open_dump

UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}


def size(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS[unit]


def estimated(path: Path, capsys: pytest.CaptureFixture, **choice: object) -> str:
    step = models.make("gpt", "cpu")
    with dumper(use_dump=True, dump_path=path, estimate=True, **choice):
        step()
    assert not path.exists()
    return capsys.readouterr().out


def stored(path: Path, **choice: object) -> tuple[int, int, int]:
    """Records, bytes of values, and the file's size, of the same step dumped."""
    step = models.make("gpt", "cpu")
    with dumper(use_dump=True, dump_path=path, **choice):
        step()
    with open_dump(path) as dump:
        tensors = [t for r in dump.records for t in (*r.inputs, *r.outputs)]
        values = {t.address: t.nbytes for t in tensors}
        return len(dump.records), sum(values.values()), path.stat().st_size


def rows(text: str, title: str) -> dict[str, float]:
    block = text.partition(f"by {title}:\n")[2]
    found = {}
    for line in block.splitlines():
        match = re.fullmatch(r" +([\d.e+]+ [kMG]?B)  (.+)", line)
        if not match:
            break
        found[match[2]] = size(match[1])
    return found


@pytest.mark.parametrize("choice", [{}, {"modules": "mlp"}, {"level": "module"}, {"ops": "addmm"}])
def test_it_is_the_size_of_the_dump(
    choice: dict, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    text = estimated(tmp_path / "none.h5", capsys, **choice)
    records, values, file = stored(tmp_path / "x.h5", **choice)
    said = re.match(r"a dump of this would take about (\S+ \S+) in (\d+) records\n", text)
    assert int(said[2]) == records
    assert 0.5 * file <= size(said[1]) <= 2 * file
    assert sum(rows(text, "op").values()) == pytest.approx(values, rel=0.02)
    assert sum(rows(text, "module").values()) == pytest.approx(values, rel=0.02)


def test_its_filters_keep_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = estimated(tmp_path / "none.h5", capsys)
    for name in ("modules", "ops"):
        pattern, keeps = re.search(rf'{name}="([^"]+)"  keeps (\S+ \S+)', text).groups()
        _, values, _ = stored(tmp_path / f"{name}.h5", **{name: pattern})
        # more than that, where an input is made outside of the filter
        assert values >= 0.98 * size(keeps)
    limit = int(re.search(r"max_bytes=(\d+)", text)[1])
    _, values, _ = stored(tmp_path / "limit.h5", max_bytes=limit)
    assert values < 3 * limit


def test_training_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    plain, counted = models.make("lstm", "cpu"), models.make("lstm", "cpu")
    loss = plain()
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5", estimate=True):
        assert counted().equal(loss)
    assert all(value.equal(counted.state()[name]) for name, value in plain.state().items())
    assert capsys.readouterr().out.startswith("a dump of this")
