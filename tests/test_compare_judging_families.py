"""The judge on model families: healthy pairs raise no alarm, a planted fault is seen at its op, and
the table knows every op that a family runs. `scripts/sensitivity` does the same for all of them."""

from __future__ import annotations

import warnings
from pathlib import Path

import families
import pytest
from recorders import Ops
from sensitivities import dumps

import npu_core
from compare.judging import Kind, class_of

STEPS = [(name, device) for name, family in families.FAMILIES.items() for device in family.devices]


@pytest.mark.parametrize("name, device", STEPS)
def test_the_table_knows_every_op_of_a_family(name: str, device: str) -> None:
    with npu_core.use("exact"), Ops() as noted:
        families.make(name, device)()
    names = {op.removeprefix("aten.") for op in noted.seen if op.startswith("aten.")}
    assert len(names) > 20
    irs = {op.removesuffix(".default").replace(".", "_") for op in names}
    assert {ir for ir in irs if class_of(ir).by_default} == set()


HEALTHY = [
    ("resnet", "npu 910A", "cpu"),
    ("embedding", "cpu, fp16 autocast", "cpu"),
    ("embedding", "cpu, bf16 autocast", "cpu"),
]


@pytest.mark.parametrize("family, mine, golden", HEALTHY)
def test_healthy_runs_raise_no_alarm(family: str, mine: str, golden: str, tmp_path: Path) -> None:
    paths = [dumps.dump(family, way, tmp_path) for way in (mine, golden)]
    found = [(record.path, name, verdict) for record, name, verdict in dumps.judged(*paths)]
    kinds = {verdict.kind for _, _, verdict in found}
    assert [each for each in found if each[2].kind is Kind.DIFFERS] == []
    assert kinds & {Kind.ROUNDING, Kind.INHERITED} and len(found) > 200


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumps.dump("resnet", "npu exact", tmp_path_factory.mktemp("faults"))


FAULTS = [
    ("one_element_off", "convolution"),
    ("one_row_swapped", "convolution_backward"),
    ("nan_in_one_element", "threshold_backward"),
    ("wrong_epsilon", "native_batch_norm"),
    ("fp16_accumulation", "mm"),
]


@pytest.mark.parametrize("kind, op", FAULTS)
def test_a_fault_is_seen_at_its_op_and_at_no_other(
    kind: str, op: str, golden: Path, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with npu_core.fault(op, kind, nth=2 if op != "mm" else 1) as fault:
            mine = dumps.dump("resnet", "npu exact", tmp_path, source=golden)
    assert fault.applied
    wrong = [r.ir for r, _, verdict in dumps.judged(mine, golden) if verdict.kind is Kind.DIFFERS]
    assert set(wrong) == {op}
