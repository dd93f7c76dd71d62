"""`scripts/opinfo`: a sample of its pairs, and that it tells equal from different and lost."""

from __future__ import annotations

import inspect
import os
from multiprocessing.connection import Connection
from pathlib import Path

import models
import opinfo
import pytest
import torch
from opinfo import EQUAL, EXCEPTIONS, Pair
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import npu_core

LISTED = opinfo.read_exceptions(EXCEPTIONS)
ADD = Pair("add", "forward", "float32")
ALL = list(opinfo.pairs())


pytestmark = pytest.mark.usefixtures("exact")


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_a_sample_of_the_database_is_as_listed(start: int) -> None:
    sample = ALL[start::400]
    outcomes = {pair: opinfo.measure(pair) for pair in sample}
    assert opinfo.wrongs(outcomes, LISTED) == []
    assert EQUAL in outcomes.values()


def test_every_aten_op_that_the_cpu_computes_is_on_npu() -> None:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    ours = ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd",
            "CompositeExplicitAutogradNonFunctional")  # fmt: skip
    on_cpu = [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        and torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")
    ]
    assert len(on_cpu) > 2000
    assert [name for name in on_cpu if not any(has(name, key) for key in ours)] == []


@pytest.mark.parametrize("pair", [ADD, Pair("add", "gradient", "float64")], ids=str)
def test_a_wrong_kernel_is_found(pair: Pair) -> None:
    assert opinfo.measure(pair) == EQUAL
    op = "add" if pair.direction == "forward" else "sum"
    with npu_core.fault(op, lambda out: out + 1):
        assert "elements differ" in opinfo.measure(pair)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda out: out.double(), "dtype"),
        (lambda out: out.unsqueeze(0), "shape"),
        (lambda out: out.unsqueeze(-1).repeat_interleave(2, -1)[..., 0], "stride"),
    ],
)
def test_what_is_compared_beside_values(change, difference: str) -> None:  # noqa: ANN001
    with npu_core.fault("add", change):
        assert difference in opinfo.measure(ADD)


def test_a_process_that_dies_loses_one_pair() -> None:
    three = ALL[:3]
    found = dict(opinfo.measured(three, 1, serve=die_at_the_second))
    assert found[three[0]] == found[three[2]] == EQUAL
    assert "exit code 7" in found[three[1]]


def die_at_the_second(connection: Connection) -> None:
    while True:
        try:
            pair = connection.recv()
        except EOFError:
            return
        if pair == ALL[1]:
            os._exit(7)
        connection.send(EQUAL)


def test_only_what_is_not_as_listed_is_wrong() -> None:
    other = Pair("sub", "forward", "float32")
    exceptions = {ADD: opinfo.REASONS[0]}
    assert opinfo.wrongs({ADD: "differs", other: EQUAL}, exceptions) == []
    assert opinfo.wrongs({ADD: EQUAL}, exceptions) != []
    assert opinfo.wrongs({other: "differs"}, exceptions) == [f"{other}: differs"]
    assert opinfo.rate({ADD: "differs", other: EQUAL}) == (1, 2)


def test_exceptions_are_read_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"# note\n[{opinfo.REASONS[1]}]\nadd forward float32 bool\n")
    assert opinfo.read_exceptions(path) == {
        ADD: opinfo.REASONS[1],
        Pair("add", "forward", "bool"): opinfo.REASONS[1],
    }


@pytest.mark.parametrize(
    "text",
    [
        "[because]\nadd forward float32",
        "add forward float32",
        f"[{opinfo.REASONS[0]}]\nnot_an_op forward float32",
        f"[{opinfo.REASONS[0]}]\nadd gradient int64",
        f"[{opinfo.REASONS[0]}]\nadd backward float32",
        f"[{opinfo.REASONS[0]}]\nadd forward float32 float32",
    ],
)
def test_a_wrong_list_is_refused_with_the_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="list.txt line"):
        opinfo.read_exceptions(path)


class _Names(TorchDispatchMode):
    def __init__(self, found: set[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        self.found.add(func._schema.name.removeprefix("aten::").removesuffix("_"))
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self, found: list) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        self.found.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_no_exception_is_an_op_of_the_model_families(family: str, device: str) -> None:
    names: set[str] = set()
    functions: list = []
    step = models.make(family, device)
    with _Names(names), _Functions(functions):
        step()
    assert len(names) > 10 < len(functions)
    for pair in LISTED:
        op = opinfo.OPS[pair.op]
        assert op.aten_name not in names
        assert inspect.unwrap(op.op) not in functions
