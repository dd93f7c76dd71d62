"""`torch.npu` and what the device adds to torch's classes, as migration scripts call them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import npu_core

MEBI = 1 << 20


pytestmark = pytest.mark.usefixtures("exact")


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="npu")


def seeded(seed: Callable[[int], None]) -> list[float]:
    seed(7)
    return torch.rand(3, device="npu").tolist()


def of_autocast() -> torch.dtype:
    with torch.npu.amp.autocast():
        return (ones(2, 2) @ ones(2, 2)).dtype


# Every name a script must find. Each entry proves that its call does the documented thing.
MUST_HAVE: dict[str, Callable[[], bool]] = {
    "is_available": lambda: torch.npu.is_available() is True,
    "device_count": lambda: torch.npu.device_count() == 1,
    "set_device int": lambda: torch.npu.set_device(0) is None,
    "set_device str": lambda: torch.npu.set_device("npu:0") is None,
    "set_device device": lambda: torch.npu.set_device(torch.device("npu", 0)) is None,
    "current_device": lambda: torch.npu.current_device() == 0,
    "synchronize": lambda: torch.npu.synchronize() is None,
    "current_stream().synchronize": lambda: torch.npu.current_stream().synchronize() is None,
    "default_stream": lambda: torch.npu.default_stream() is torch.npu.current_stream(),
    "Stream": lambda: torch.npu.Stream().query() and torch.npu.Stream().device.type == "npu",
    "Event": lambda: torch.npu.Event(enable_timing=True).query(),
    "device": lambda: torch.npu.device("npu:0").__enter__() is None,
    "stream": lambda: torch.npu.stream(torch.npu.Stream()).__enter__() is None,
    "manual_seed": lambda: (
        seeded(torch.npu.manual_seed) == seeded(torch.npu.manual_seed) != [0.0] * 3
    ),
    "manual_seed_all": lambda: seeded(torch.npu.manual_seed_all) == seeded(torch.npu.manual_seed),
    "amp.autocast": lambda: of_autocast() is torch.half,
    "amp.GradScaler": lambda: torch.npu.amp.GradScaler(init_scale=8.0).get_scale() == 8,
    "empty_cache": lambda: torch.npu.empty_cache() is None,
    "memory_allocated": lambda: torch.npu.memory_allocated() > 0,
    "max_memory_allocated": lambda: torch.npu.max_memory_allocated("npu:0") > 0,
    "memory_reserved": lambda: torch.npu.memory_reserved(0) > 0,
    "reset_peak_memory_stats": lambda: torch.npu.reset_peak_memory_stats() is None,
    "get_device_name": lambda: "emulated" in torch.npu.get_device_name(0),
    "get_device_properties": lambda: torch.npu.get_device_properties(0).total_memory > 0,
    "conv.allow_hf32": lambda: torch.npu.conv.allow_hf32 is True,
    "matmul.allow_hf32": lambda: torch.npu.matmul.allow_hf32 is False,
    "utils.is_support_inf_nan": lambda: torch.npu.utils.is_support_inf_nan() is True,
    "utils.npu_check_overflow": lambda: torch.npu.utils.npu_check_overflow(float("inf")) is True,
    "is_bf16_supported": lambda: torch.npu.is_bf16_supported() is True,
    "Tensor.npu": lambda: torch.ones(1).npu(0, non_blocking=True).is_npu,
    "Tensor.npu str": lambda: torch.ones(1).npu("npu:0").device == torch.device("npu:0"),
    "Tensor.to": lambda: torch.ones(1).to("npu:0").device.type == "npu",
    "Tensor.cpu": lambda: ones(1).cpu().device.type == "cpu",
    "Tensor.type": lambda: ones(1).type() == "torch.npu.FloatTensor",
    "Module.npu": lambda: nn.Linear(1, 1).npu(0).weight.is_npu,
    "Module.to": lambda: nn.Linear(1, 1).to("npu").weight.is_npu,
}


@pytest.mark.parametrize("name", MUST_HAVE)
def test_must_have(name: str) -> None:
    assert MUST_HAVE[name]()


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("set_aoe", ("./dump",)), ("iteration_start", ()), ("iteration_end", ()),
        ("enable_graph_mode", ()), ("disable_graph_mode", ()), ("launch_graph", ()),
        ("set_start_fuzz_compile_step", (3,)), ("global_step_inc", ()), ("prof_init", ("./p",)),
        ("prof_start", ()), ("prof_stop", ()), ("prof_finalize", ()),
    ],
)  # fmt: skip
def test_calls_for_the_chip_alone_are_accepted(name: str, args: tuple) -> None:
    assert getattr(torch.npu, name)(*args) is None


def test_the_chip_reports_no_fault() -> None:
    assert torch.npu.stress_detect() == 0


def test_the_old_profiler_runs_its_block(tmp_path: Path) -> None:
    with torch.npu.profile(str(tmp_path), config=torch.npu.profileConfig(ACL_PROF_ACL_API=True)):
        ran = ones(1) + 1
    assert ran.item() == 2
    assert list(tmp_path.iterdir()) == []


def test_the_module_can_be_imported_by_name() -> None:
    import torch.npu
    import torch.npu.amp
    import torch.npu.utils

    assert torch.get_device_module("npu") is torch.npu


# Options


@pytest.mark.parametrize(
    ("setter", "key", "value"),
    [
        (lambda: torch.npu.set_compile_mode(jit_compile=True), "jitCompile", "enable"),
        (lambda: torch.npu.set_compile_mode(jit_compile=False), "jitCompile", "disable"),
        (lambda: torch.npu.set_mm_bmm_format_nd(True), "MM_BMM_ND_ENABLE", "enable"),
        (lambda: torch.npu.set_option({"ACL_OP_DEBUG_LEVEL": 3}), "ACL_OP_DEBUG_LEVEL", "3"),
        (lambda: setattr(torch.npu.config, "allow_internal_format", False),
         "ALLOW_INTERNAL_FORMAT", "disable"),
        (lambda: setattr(torch.npu.conv, "allow_hf32", False), "ALLOW_CONV_HF32", "disable"),
        (lambda: setattr(torch.npu.matmul, "allow_hf32", True), "ALLOW_MATMUL_HF32", "enable"),
    ],
)  # fmt: skip
def test_switches_set_their_option(setter: Callable[[], None], key: str, value: str) -> None:
    setter()
    assert torch.npu.get_option(key) == value


@pytest.mark.parametrize(("profile", "allowed"), [("910A", True), ("910B", False)])
def test_internal_formats_are_the_default_of_910a_only(profile: str, allowed: bool) -> None:
    with npu_core.use(profile):
        assert torch.npu.config.allow_internal_format is allowed
        torch.npu.config.allow_internal_format = not allowed
        assert torch.npu.config.allow_internal_format is not allowed


def test_a_misspelt_name_is_no_silent_switch() -> None:
    with pytest.raises(AttributeError):
        torch.npu.config.allow_internal_fromat = False
    with pytest.raises(AttributeError, match=r"torch\.npu\.set_devise is not emulated"):
        torch.npu.set_devise(0)


def test_there_is_no_compute_capability() -> None:
    with pytest.warns(UserWarning, match="no compute capability"):
        assert torch.npu.get_device_capability() is None


@pytest.mark.parametrize("profile", ["910A", "910B"])
def test_the_overflow_flag_follows_the_mode(profile: str) -> None:
    with npu_core.use(profile):
        if torch.npu.utils.is_support_inf_nan():
            with pytest.raises(RuntimeError, match="INF_NAN mode"):
                torch.npu.get_npu_overflow_flag()
            return
        torch.npu.clear_npu_overflow_flag()
        assert torch.npu.get_npu_overflow_flag() is False
        torch.full((4,), 60000.0, dtype=torch.half, device="npu") * 2
        assert torch.npu.get_npu_overflow_flag() is True
        torch.npu.clear_npu_overflow_flag()
        assert torch.npu.get_npu_overflow_flag() is False


# Streams and events


def test_a_chosen_stream_is_current_in_its_block_and_thread() -> None:
    before, mine, seen = torch.npu.current_stream(), torch.npu.Stream(), []
    with torch.npu.stream(mine):
        assert torch.npu.current_stream() is mine
        thread = threading.Thread(target=lambda: seen.append(torch.npu.current_stream()))
        thread.start()
        thread.join()
        with torch.npu.stream(None):
            assert torch.npu.current_stream() is mine
    assert torch.npu.current_stream() is before
    assert seen == [torch.npu.default_stream()]


def test_streams_wait_for_events_and_each_other() -> None:
    stream = torch.npu.Stream()
    event = stream.record_event()
    stream.wait_event(event)
    stream.wait_stream(torch.npu.current_stream())
    event.wait(stream)
    event.synchronize()
    assert isinstance(event, torch.npu.Event)
    assert event.query()
    assert isinstance(stream, torch.Stream)
    assert ones(2).record_stream(stream) is None


def test_events_tell_wall_time() -> None:
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    begun = time.perf_counter()
    start.record()
    time.sleep(0.02)
    end.record(torch.npu.current_stream())
    outer = 1000 * (time.perf_counter() - begun)
    assert 20 <= start.elapsed_time(end) <= outer
    assert end.elapsed_time(start) == -start.elapsed_time(end)


@pytest.mark.parametrize(
    ("timing", "record", "message"),
    [(False, True, "enable_timing=True"), (True, False, "must be recorded")],
)
def test_time_needs_timing_and_a_record(timing: bool, record: bool, message: str) -> None:
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(timing)
    start.record()
    if record:
        end.record()
    for first, second in ((start, end), (end, start)):
        with pytest.raises(RuntimeError, match=message):
            first.elapsed_time(second)


@pytest.mark.parametrize("call", ["Stream", "current_stream", "synchronize", "memory_allocated"])
def test_a_device_that_is_not_emulated_is_refused(call: str) -> None:
    getattr(torch.npu, call)("npu:0")
    with pytest.raises(RuntimeError, match="npu:1 does not exist: npu_core emulates 1 device"):
        getattr(torch.npu, call)("npu:1")


# Memory


def test_memory_grows_and_falls_with_a_tensor() -> None:
    before = torch.npu.memory_allocated()
    x = torch.ones(64 * MEBI, dtype=torch.uint8, device="npu")
    grown = torch.npu.memory_allocated() - before
    assert 64 * MEBI <= grown < 65 * MEBI
    assert torch.npu.memory_reserved() >= torch.npu.memory_allocated()
    del x
    assert torch.npu.memory_allocated() - before < MEBI


def test_the_peak_outlives_a_tensor_and_can_be_reset() -> None:
    torch.npu.reset_peak_memory_stats()
    base = torch.npu.memory_reserved()
    x = torch.ones(64 * MEBI, dtype=torch.uint8, device="npu")
    del x
    peak = torch.npu.max_memory_allocated()
    assert peak >= base + 32 * MEBI  # what malloc had resident already may serve a part
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_reserved() < peak
    assert torch.npu.max_memory_allocated() >= torch.npu.memory_allocated()


def test_memory_stats_and_the_hosts_memory() -> None:
    stats = torch.npu.memory_stats()
    assert stats["allocated_bytes.all.current"] <= stats["allocated_bytes.all.peak"]
    assert stats["reserved_bytes.all.current"] <= stats["reserved_bytes.all.peak"]
    summary = torch.npu.memory_summary("npu:0", abbreviated=True)
    assert [line.split()[0] for line in summary.splitlines()] == list(stats)
    assert torch.npu.memory_cached() >= torch.npu.memory_allocated()
    free, total = torch.npu.mem_get_info()
    assert 0 < free < total == torch.npu.get_device_properties().total_memory


# Tensor types

TYPES = [
    ("FloatTensor", torch.float32), ("HalfTensor", torch.float16), ("IntTensor", torch.int32),
    ("LongTensor", torch.int64), ("BoolTensor", torch.bool), ("DoubleTensor", torch.float64),
    ("ShortTensor", torch.int16), ("CharTensor", torch.int8), ("ByteTensor", torch.uint8),
    ("BFloat16Tensor", torch.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_types_make_name_and_recognise_tensors(name: str, dtype: torch.dtype) -> None:
    kind = getattr(torch.npu, name)
    x = kind([1, 0, 1])
    assert (x.device.type, x.dtype, x.tolist()) == ("npu", dtype, [1, 0, 1])
    assert kind(2, 3).shape == kind(torch.Size((2, 3))).shape == (2, 3)
    assert kind().shape == (0,)
    assert x.type() == f"torch.npu.{name}"
    assert isinstance(x, kind)
    assert not isinstance(x.cpu(), kind)
    assert not isinstance(torch.ones(1, dtype=torch.complex64, device="npu"), kind)
    for target in (kind, f"torch.npu.{name}"):
        moved = torch.tensor([1, 0, 1]).type(target)
        assert (moved.device.type, moved.dtype, moved.tolist()) == ("npu", dtype, [1, 0, 1])


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
@pytest.mark.parametrize("target", ["torch.npu.HalfTensor", torch.npu.HalfTensor], ids=str)
def test_types_can_be_the_default(target: object) -> None:
    try:
        torch.set_default_tensor_type(target)
        assert torch.zeros(1).type() == "torch.npu.HalfTensor"
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(1).type() == "torch.FloatTensor"


# Methods


def test_lazy_modules_move_before_they_know_their_shape() -> None:
    lazy = nn.LazyLinear(3).npu()
    assert lazy(ones(2, 4)).shape == (2, 3)
    assert lazy.weight.is_npu


@pytest.mark.parametrize("code", [2, 29, 0])
def test_a_tensor_changes_its_format(code: int) -> None:
    x = torch.randn(2, 3, 4, 5).npu()
    y = x.npu_format_cast(code)
    assert torch.npu.get_npu_format(y) == code
    assert torch.equal(y.cpu(), x.cpu())
    assert torch.npu.get_npu_format(x.npu_format_cast_(code)) == code


def test_a_tensor_changes_its_dtype() -> None:
    assert ones(2).npu_dtype_cast(torch.half).dtype is torch.half


def test_the_autograd_profiler_takes_use_npu_and_nothing_else_new() -> None:
    with torch.autograd.profiler.profile(use_npu=True) as profiled:
        ones(2).add(1)
    assert any(event.key == "aten::add" for event in profiled.key_averages())
    with pytest.raises(TypeError, match="use_moon"):
        torch.autograd.profiler.profile(use_moon=True)


# int32 targets

LOSSES = {
    "1d": ((5, 4), {}),
    "class weights": ((5, 4), {"weight": [0.5, 1.0, 2.0, 0.0]}),
    "ignore_index": ((5, 4), {"ignore_index": 2}),
    "no reduction": ((5, 4), {"reduction": "none"}),
    "sum": ((5, 4), {"reduction": "sum"}),
    "smoothed with weights": ((5, 4), {"label_smoothing": 0.1, "weight": [0.5, 1.0, 2.0, 0.1]}),
    "2d": ((2, 4, 3, 3), {"ignore_index": 1}),
    "2d with weights": ((2, 4, 3, 3), {"weight": [0.5, 1.0, 2.0, 0.1]}),
    "one sample": ((4,), {}),
}


@pytest.mark.parametrize("loss", [functional.cross_entropy, functional.nll_loss])
@pytest.mark.parametrize("case", LOSSES)
def test_int32_targets_give_the_loss_and_gradient_of_int64(loss: Callable, case: str) -> None:
    shape, options = LOSSES[case]
    if loss is functional.nll_loss and "label_smoothing" in options:
        options = {k: v for k, v in options.items() if k != "label_smoothing"}
    if "weight" in options:
        options = options | {"weight": torch.tensor(options["weight"])}
    generator = torch.Generator().manual_seed(1)
    classes = shape[-1] if len(shape) == 1 else shape[1]
    x = torch.randn(shape, generator=generator)
    target = torch.randint(classes, shape[:1] * (len(shape) > 1) + shape[2:], generator=generator)

    def run(device: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        given = {k: v.to(device) if k == "weight" else v for k, v in options.items()}
        leaf = x.to(device).requires_grad_()
        value = loss(leaf, target.to(device, dtype), **given)
        value.sum().backward()
        return value.detach().cpu(), leaf.grad.cpu()

    for ours, theirs in zip(run("npu", torch.int32), run("cpu", torch.int64), strict=True):
        assert torch.equal(ours, theirs)


def test_other_target_dtypes_are_refused_as_on_the_cpu() -> None:
    with pytest.raises(RuntimeError, match="expected target dtype"):
        functional.nll_loss(ones(3, 4), torch.zeros(3, dtype=torch.int16, device="npu"))
