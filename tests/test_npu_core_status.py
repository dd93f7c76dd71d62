"""The status register as scripts read it: shapes and return conventions of each chip."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from recorders import Ops

import npu_core
from npu_core import status


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    with npu_core.use("910A"):
        status.clear()
        yield
        status.clear()


def overflow() -> None:
    torch.tensor([6e4], dtype=torch.float16).npu().mul_(2)


def buffer() -> torch.Tensor:
    return status.alloc_float_status(torch.ones(1, device="npu"))


def test_bits_stay_until_they_are_cleared() -> None:
    assert status.read() == 0
    overflow()
    torch.ones(2, device="npu") + 1
    assert status.read() == status.VECTOR
    torch.tensor([-1.0]).npu().to(torch.uint8)
    assert status.read() == status.VECTOR | status.UNSIGNED == 0xA0
    status.clear()
    assert status.read() == 0


@pytest.mark.parametrize("profile", ["910A", "910B", "exact"])
def test_alloc_gives_eight_zeros(profile: str) -> None:
    with npu_core.use(profile):
        given = buffer()
    assert (given.dtype, given.tolist()) == (torch.float32, [0.0] * 8)
    assert given.is_npu


def test_910a_writes_the_register_into_its_argument() -> None:
    overflow()
    given = buffer()
    assert status.get_float_status(given) is given
    assert given.tolist() == [float(status.VECTOR)] + [0.0] * 7
    assert status.read() == status.VECTOR  # reading does not clear


def test_910b_returns_a_new_int32_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INF_NAN_MODE_FORCE_DISABLE", "1")
    with npu_core.use("910B"):
        overflow()
        given = buffer()
        found = status.get_float_status(given)
    assert (found.dtype, found.tolist()) == (torch.int32, [status.VECTOR] + [0] * 7)
    assert given.tolist() == [0.0] * 8


def test_the_debug_status_is_int32_on_910a_too() -> None:
    assert status.get_float_status(buffer(), mode=1).dtype is torch.int32


@pytest.mark.parametrize("mode", [0, 1])
def test_clear_returns_eight_zeros(mode: int) -> None:
    overflow()
    cleared = status.clear_float_status(buffer(), mode)
    assert (cleared.dtype, cleared.tolist()) == (torch.float32, [0.0] * 8)
    assert status.read() == 0


@pytest.mark.parametrize("call", [status.get_float_status, status.clear_float_status])
def test_bad_arguments_are_refused(call: object) -> None:
    with pytest.raises(ValueError, match="mode=2: 0 is the status register, 1 the debug status"):
        call(buffer(), 2)
    with pytest.raises(ValueError, match=r"a float status is float32\[8\].*float32.*\[7\]"):
        call(torch.zeros(7, device="npu"))
    with pytest.raises(ValueError, match="int32"):
        call(torch.zeros(8, dtype=torch.int32, device="npu"))


def test_the_calls_are_ops_that_a_dispatch_mode_sees() -> None:
    with Ops() as ops:
        status.clear_float_status(status.get_float_status(buffer()))
    assert [name for name in ops.seen if name.startswith("npu.")] == [
        "npu.npu_alloc_float_status.default", "npu.npu_get_float_status.default",
        "npu.npu_clear_float_status.default",
    ]  # fmt: skip


def test_the_overflow_flag_of_saturation_mode() -> None:
    assert status.get_overflow_flag() is False
    overflow()
    assert status.get_overflow_flag() is True
    status.clear_overflow_flag()
    assert status.get_overflow_flag() is False


@pytest.mark.parametrize("profile", ["910B", "exact"])
def test_the_overflow_flag_in_inf_nan_mode(profile: str) -> None:
    with npu_core.use(profile):
        with pytest.raises(RuntimeError, match="INF_NAN mode.*look for them in the gradients"):
            status.get_overflow_flag()
        with pytest.warns(UserWarning, match="does nothing in INF_NAN mode"):
            status.clear_overflow_flag()


def test_check_overflow_in_saturation_mode_reads_and_clears_the_register() -> None:
    finite = torch.ones(2, device="npu")
    assert status.check_overflow(finite) is False
    overflow()
    assert status.check_overflow(finite) is True
    assert status.check_overflow(finite) is False


@pytest.mark.parametrize(
    ("grad", "overflowed"),
    [([1.0, 2.0], False), ([1.0, float("inf")], True), ([float("nan")], True)],
)
def test_check_overflow_in_inf_nan_mode_sums_the_gradient(grad: list, overflowed: bool) -> None:
    with npu_core.use("910B"):
        tensor = torch.tensor(grad).npu()
        assert status.check_overflow(tensor) is overflowed
        assert status.check_overflow(float(sum(grad))) is overflowed
