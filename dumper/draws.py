"""Ops that draw random numbers, and the state of the generator they draw from.

The state before the op goes into its record, so that the record alone repeats the draw. An op that
could draw but was told not to (dropout with p=0, evaluation) is no such op.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from .ops import Op

STATE = "_rng_state"
"""Name of the state among a record's inputs."""


def draws(op: Op, values: list[Any]) -> bool:
    """Whether this call draws numbers."""
    if not op.seeded or device_of(op, values).type == "meta":
        return False
    for argument, value in zip(op.arguments, values, strict=True):
        if argument.name in ("p", "dropout_p", "dropout") and value == 0:
            return False
        if argument.name in ("train", "training", "is_training") and value is False:
            return False
    return True


def device_of(op: Op, values: list[Any]) -> torch.device:
    """The device whose generator a call draws from."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value.device
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            return value[0].device
    for argument, value in zip(op.arguments, values, strict=True):
        if argument.name == "device" and value is not None:
            return torch.device(value)
    return torch.device("cpu")


def own_generator(values: list[Any]) -> bool:
    """Whether a call brings its generator, whose state is recorded as an argument."""
    return any(isinstance(value, torch.Generator) for value in values)


def state_of(device: torch.device) -> np.ndarray:
    """The default generator's state on a device, as bytes."""
    return _random(device).get_rng_state(*_index(device)).cpu().numpy()


@contextmanager
def drawing_from(device: torch.device, state: bytes) -> Iterator[None]:
    """Let the device's default generator stand at `state`, and put it back afterwards."""
    random, index = _random(device), _index(device)
    before = random.get_rng_state(*index)
    random.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8), *index)
    try:
        yield
    finally:
        random.set_rng_state(before, *index)


def _random(device: torch.device) -> Any:
    return torch.random if device.type == "cpu" else getattr(torch, device.type)


def _index(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "cpu" else (device,)
