"""Ops that draw numbers repeat from their record alone, and only those hold a generator's state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from dumper import dumper, open_dump, run
from dumper.draws import STATE
from dumper.ops import op_of, overload_named

DRAWING: dict[str, Callable[[str], object]] = {
    "dropout": lambda d: F.dropout(torch.ones(50, device=d), 0.5),
    "native_dropout": lambda d: torch.native_dropout(torch.ones(50, device=d), 0.5, True),
    "rand": lambda d: torch.rand(5, device=d),
    "randn_like": lambda d: torch.randn_like(torch.ones(5, device=d)),
    "randint": lambda d: torch.randint(0, 9, (5,), device=d),
    "randperm": lambda d: torch.randperm(9, device=d),
    "bernoulli": lambda d: torch.bernoulli(torch.full((9,), 0.5, device=d)),
    "normal_": lambda d: torch.empty(4, device=d).normal_(),
    "multinomial": lambda d: torch.multinomial(torch.ones(9, device=d), 3),
    "rrelu": lambda d: F.rrelu(-torch.ones(9, device=d), training=True),
}
QUIET: dict[str, Callable[[str], object]] = {
    "dropout of nothing": lambda d: torch.native_dropout(torch.ones(5, device=d), 0.0, True),
    "dropout in evaluation": lambda d: torch.native_dropout(torch.ones(5, device=d), 0.5, False),
    "attention": lambda d: F.scaled_dot_product_attention(*(torch.ones(1, 1, 4, 8, device=d),) * 3),
    "exp": lambda d: torch.ones(3, device=d).exp(),
}


@pytest.mark.parametrize("name", DRAWING)
def test_a_draw_repeats(name: str, device: str, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        DRAWING[name](device)
    after = torch.get_rng_state()
    with open_dump(tmp_path / "x.h5") as dump:
        drawn = [r for r in dump.records if STATE in r.arguments]
        assert drawn
        for record in drawn:
            torch.manual_seed(99)  # whatever the generator stands at now
            again = run(record, device)
            results = again if isinstance(again, tuple) else (again,)
            stored = {tensor.name: torch.from_numpy(tensor.read()) for tensor in record.outputs}
            keys = op_of(overload_named(record.ir)).returns
            for key, result in zip(keys, results, strict=True):
                assert torch.equal(result.cpu(), stored[key])
            assert torch.initial_seed() == 99
    torch.set_rng_state(before)
    DRAWING[name](device)
    if device == "cpu":
        assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize("name", QUIET)
def test_what_draws_nothing_holds_no_state(name: str, device: str, tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        QUIET[name](device)
    with open_dump(tmp_path / "x.h5") as dump:
        assert dump.records and not any(STATE in r.arguments for r in dump.records)


def test_a_generator_of_its_own_is_an_argument(device: str, tmp_path: Path) -> None:
    generator = torch.Generator(device).manual_seed(3)
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        drawn = torch.rand(4, generator=generator, device=device)
    with open_dump(tmp_path / "x.h5") as dump:
        (record,) = (r for r in dump.records if "generator" in r.arguments)
        assert STATE not in record.arguments
        assert torch.equal(run(record, device), drawn)
