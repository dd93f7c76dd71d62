"""`torch_npu.profiler`: torch's profiler under Ascend's names and arguments.

It measures the emulation, whose ops run on the CPU. What to collect of the chip (levels, AI Core
metrics, export formats) is accepted and kept in the configuration, and no file of the chip is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import torch


class ProfilerActivity(Enum):
    """What to watch: on the emulated device both are the CPU's work."""

    CPU = 0
    NPU = 1


class ProfilerLevel(Enum):
    """How much of the chip to collect."""

    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(Enum):
    """Which counters of the AI Core to collect."""

    AiCoreNone = "AiCoreNone"
    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"


class ExportType(Enum):
    """Which files of the chip to write."""

    Text = "Text"
    Db = "Db"


class _ExperimentalConfig:
    """The chip's part of the configuration: accepted and kept."""

    def __init__(
        self,
        profiler_level: ProfilerLevel = ProfilerLevel.Level0,
        aic_metrics: AiCMetrics = AiCMetrics.AiCoreNone,
        export_type: ExportType = ExportType.Text,
        **others: Any,
    ) -> None:
        self.profiler_level, self.aic_metrics = profiler_level, aic_metrics
        self.export_type, self.others = export_type, others


class profile(torch.profiler.profile):  # noqa: N801 (torch's own name)
    """torch.profiler.profile of the emulation. Raises TypeError for what torch's does not take."""

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        experimental_config: _ExperimentalConfig | None = None,
        **options: Any,
    ) -> None:
        self.npu_config = experimental_config or _ExperimentalConfig()
        super().__init__(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def schedule(
    wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0
) -> Callable:
    """torch.profiler.schedule in the order of Ascend's arguments, all in steps."""
    return torch.profiler.schedule(
        wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first
    )


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, analyse_flag: bool = True
) -> Callable[[torch.profiler.profile], None]:
    """torch.profiler.tensorboard_trace_handler; analyse_flag is of the chip's files."""
    return torch.profiler.tensorboard_trace_handler(dir_name, worker_name)


ProfilerAction = torch.profiler.ProfilerAction
