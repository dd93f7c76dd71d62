"""Overflows planted in training steps are named, and sound steps are left in peace."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
import torch
from overflows import (
    CPU_BF16,
    CPU_FP32,
    CPU_HALF,
    FAMILIES,
    NPU_A,
    NPU_B,
    First,
    Plant,
    Setting,
    Training,
    assert_same,
    check,
    faulty,
    first_overflow,
    honest,
    placed,
    run,
)
from torch.nn import functional as F

from dumper import dumper
from dumper.overflow.events import Operand


class Case(NamedTuple):
    """One planted overflow. how: `fault`, or what grows."""

    number: int
    family: str
    setting: Setting
    how: str

    def __str__(self) -> str:
        return f"{self.number}-{self.family}-{self.setting.profile or 'cpu'}-{self.how}"


def _cases() -> list[Case]:
    random, found = Random(7), []
    for number in range(20):
        found.append(Case(number, random.choice(FAMILIES), (NPU_A, NPU_B)[number % 2], "fault"))
    hows = ("weight", "input", "loss", "gradient", "optimizer")
    for number in range(20, 40):
        how = hows[number % 5]
        families = ("gpt", "bert", "lstm") if how == "optimizer" else FAMILIES
        setting = (CPU_HALF, NPU_A, NPU_B)[number % 3]
        found.append(Case(number, random.choice(families), setting, how))
    return found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Setting], Path]:
    """Dumps of steps without a plant, by family and setting, made when first asked for."""
    folder = tmp_path_factory.mktemp("sound")

    class Made(dict):
        def __missing__(self, key: tuple[str, Setting]) -> Path:
            path = folder / f"{len(self)}.h5"
            run(Training(*key), None, path, use_dump=True)
            self[key] = path
            return path

    return Made()


@pytest.mark.parametrize("case", _cases(), ids=str)
def test_the_first_op_that_overflows_is_named(
    case: Case, tmp_path: Path, sound: dict[tuple[str, Setting], Path]
) -> None:
    setting = case.setting
    plant, first = _planted(case, tmp_path, sound)
    checked = tmp_path / "checked.h5"
    dump = run(Training(case.family, setting), plant, checked, check_overflow=True)
    begun = [event for event in dump.overflows if event.begins]
    assert begun, f"{plant.name}: nothing was found, it was {first.ir} {first.seqid}"
    event = begun[0]
    assert (event.ir, event.seqid, event.phase) == (first.ir, first.seqid, first.phase)
    assert first.bad[event.output][event.index]
    assert_same(event.stored, first.outputs[event.output][event.index])
    assert event.dtype == str(first.outputs[event.output].dtype)
    assert event.count == first.bad[event.output].sum()
    assert event.kind == _kind(setting, event.stored)
    assert bool(event.bits) == (setting.saturates and case.how != "fault")
    for name, operand in event.inputs.items():
        assert_held(operand, first.inputs[name])
    assert checked.exists()
    if case.how != "fault":
        largest = float(np.finfo(event.dtype).max)
        assert event.value is not None and not abs(event.value) <= largest


def _planted(
    case: Case, folder: Path, sound: dict[tuple[str, Setting], Path]
) -> tuple[Plant, First]:
    """What makes the step overflow, and which op is first then, by a plain dump."""
    for strength in (0, 1):
        random = Random(case.number)
        if case.how == "fault":
            plant = faulty(sound[case.family, case.setting], random)
        else:
            plant = honest(case.how, strength, random)
        path = folder / f"{strength}.h5"
        run(Training(case.family, case.setting), plant, path, use_dump=True)
        first = first_overflow(path, case.setting.saturates)
        if first is not None:
            return plant, first
    raise AssertionError(f"{plant.name} does not overflow")


def _kind(setting: Setting, stored: float) -> str:
    return "saturated" if setting.saturates and math.isfinite(stored) else "created"


def assert_held(operand: Operand, recorded: np.ndarray) -> None:
    """What an input is said to hold is what the record of it holds there."""
    place = tuple(slice(None) if i is None else i for i in operand.index)
    held = recorded[place].astype(np.float64).ravel()
    assert operand.size <= held.size
    assert set(operand.values) <= set(held)
    assert operand.low <= min(operand.values) and max(operand.values) <= operand.high
    if operand.size == held.size:
        assert (operand.low, operand.high) == (held.min(), held.max())
        largest = np.sort(np.abs(held))[::-1][:8]
        assert sorted(map(abs, operand.values), reverse=True) == largest.tolist()


# Sound steps


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("setting", "lowest"),
    [(CPU_FP32, -1.0), (CPU_BF16, -math.inf), (NPU_A, -1.0), (NPU_B, -math.inf)],
    ids=["cpu-fp32", "cpu-bf16", "910A", "910B"],
)
def test_a_sound_step_raises_nothing(
    family: str,
    setting: Setting,
    lowest: float,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recwarn: pytest.WarningsRecorder,
) -> None:
    with placed(setting):
        training = Training(family, setting, lowest)
        with dumper(check_overflow=True, dump_path=tmp_path / "o.h5") as dump:
            for _ in range(2):
                training()
                dump.step()
    assert capsys.readouterr().out == ""
    assert not [one for one in recwarn if "torch.utils.dumper" in str(one.message)]
    assert list(tmp_path.iterdir()) == []
    assert {event.kind for event in dump.overflows} <= {"intended"}
    assert bool(dump.overflows) == (family == "bert" or (family == "gpt" and "npu" in setting))
    assert math.isfinite(training.loss.item())


@pytest.mark.parametrize("setting", [CPU_FP32, NPU_A, NPU_B], ids=["cpu", "910A", "910B"])
@pytest.mark.parametrize("lowest", [-math.inf, torch.finfo(torch.float32).min])
def test_a_mask_from_outside_is_no_overflow(
    setting: Setting, lowest: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = torch.full((4, 4), lowest).triu(1).to(setting.device)
    scores = torch.randn(4, 4, requires_grad=True, device=setting.device)
    dump = check(
        setting, tmp_path, lambda: (F.softmax(scores + mask, -1) * scores.detach()).sum().backward()
    )
    assert capsys.readouterr().out == ""
    assert [(event.ir, event.kind, event.origin) for event in dump.overflows] == [
        ("add_Tensor", "intended", "other")
    ]
