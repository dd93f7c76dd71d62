"""`import torch_npu` under NPU_CORE: its profiler, the cuda transfer, and collectives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from npu_core.ascend import torch_npu

ROOT = Path(__file__).resolve().parent.parent


pytestmark = pytest.mark.usefixtures("exact")


# Profiler


def test_the_profiler_records_steps_and_writes_a_trace(tmp_path: Path) -> None:
    profiler = torch_npu.profiler
    config = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1,
        aic_metrics=profiler.AiCMetrics.PipeUtilization,
        export_type=profiler.ExportType.Text,
        l2_cache=False,
    )
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=0, active=1, warmup=1, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path)),
        experimental_config=config,
        record_shapes=True,
    ) as profiled:
        for _ in range(3):
            torch.ones(2, device="npu") + 1
            profiled.step()
    assert "aten::add" in {event.key for event in profiled.key_averages()}
    assert profiled.npu_config.profiler_level is profiler.ProfilerLevel.Level1
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(TypeError, match="moon"):
        profiler.profile(moon=True)


# In processes of their own


def python(code: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={"PYTHONPATH": str(ROOT), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
        | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_torch_npu_can_be_imported_under_npu_core() -> None:
    done = python(
        "import importlib.util as util\n"
        "assert util.find_spec('torch_npu') is None  # before torch and npu_core\n"
        "import torch, npu_core\n"
        "assert util.find_spec('torch_npu') is not None\n"
        "import torch_npu, torch_npu.npu, torch_npu.npu.utils, torch_npu.contrib\n"
        "from torch_npu.optim import NpuFusedSGD\n"
        "from torch_npu.profiler import profile\n"
        "assert torch_npu.npu is torch.npu and torch_npu.contrib\n"
        "assert torch_npu.get_npu_format(torch.ones(2).npu()) == 2\n"
        "assert util.find_spec('torch_npu') is not None\n"
        "npu_core.register()  # our own torch_npu is not taken for the real one\n"
        "print(npu_core.profile(), torch_npu.__version__ > '2')",
        NPU_CORE="910B",
    )
    assert (done.returncode, done.stdout) == (0, "910B True\n"), done.stderr
    assert "torch_npu is installed" not in done.stderr


def test_there_is_no_torch_npu_without_npu_core() -> None:
    done = python(
        "import importlib.util, torch, npu_core\nassert torch.npu.is_available()\n"
        "print(importlib.util.find_spec('torch_npu'))\nimport torch_npu"
    )
    assert (done.returncode, done.stdout) == (1, "None\n")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch_npu'"


def test_a_cuda_script_runs_on_npu_after_the_transfer(tmp_path: Path) -> None:
    done = python(
        "import sys, torch, npu_core\n"
        "from torch_npu.contrib import transfer_to_npu\n"
        "assert torch.cuda.is_available() and torch.cuda.device_count() == 1\n"
        "device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')\n"
        "assert isinstance(device, torch.device) and torch.device('cpu').type == 'cpu'\n"
        "torch.cuda.set_device(device)\n"
        "torch.cuda.manual_seed_all(0)\n"
        "model = torch.nn.Linear(4, 2).cuda()\n"
        "x = torch.ones(3, 4, device='cuda')\n"
        "assert x.is_cuda and x.device == device == model.weight.device\n"
        "assert torch.ones(1).cuda(0).is_npu and torch.ones(1).to('cuda').is_npu\n"
        "assert torch.ones(1).cuda(non_blocking=True).type() == 'torch.npu.FloatTensor'\n"
        "assert torch.ones(1).type(torch.cuda.HalfTensor).is_npu\n"
        "loss = model(x).sum(); loss.backward(); torch.cuda.synchronize()\n"
        "path = sys.argv[1] + '/cuda'\n"
        "torch.save(model.state_dict(), path)\n"
        "state = torch.load(path, map_location={'npu:0': 'cuda:0'})\n"
        "assert state['weight'].is_cuda\n"
        "with torch.device('cuda'): assert torch.empty(1).is_cuda\n"
        "start = torch.cuda.Event(enable_timing=True); start.record()\n"
        "torch.cuda.empty_cache(); assert torch.cuda.memory_allocated() > 0\n"
        "with torch.cuda.amp.autocast(): assert model(x).dtype is torch.half\n"
        "with torch.autocast('cuda'):\n"
        "    assert model(x).dtype is torch.half and torch.is_autocast_enabled('cuda')\n"
        "from torch.cuda.amp import autocast, custom_fwd, GradScaler\n"
        "assert autocast is torch.npu.amp.autocast and GradScaler is torch.npu.amp.GradScaler\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "optimizer.step(); import torch._dynamo\n"
        "for made in (torch.normal(0., 1., (2,), device='cuda'), torch.asarray(1, device=device),\n"
        "             torch.hann_window(4, device='cuda'), torch.fft.fftfreq(4, device='cuda')):\n"
        "    assert made.is_cuda\n"
        "torch.set_default_tensor_type('torch.cuda.FloatTensor'); assert torch.ones(1).is_cuda\n"
        "torch.set_default_tensor_type('torch.FloatTensor'); assert not torch.ones(1).is_cuda\n"
        "assert 'allocated' in torch.cuda.memory_summary() and torch.cuda.memory_cached() > 0\n"
        "for scaler in (torch.amp.GradScaler(), torch.amp.GradScaler('cuda', init_scale=8.0),\n"
        "               torch.cuda.amp.GradScaler(init_scale=8.0)):\n"
        "    assert isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled()\n"
        "    assert scaler.scale(loss).is_npu\n"
        "import torch.distributed as dist\n"
        "assert dist.is_nccl_available()\n"
        "dist.init_process_group('nccl', init_method='file://' + sys.argv[1] + '/store', rank=0,\n"
        "                        world_size=1)\n"
        "assert dist.get_backend() == dist.get_backend(dist.new_group([0], backend='nccl'))\n"
        "parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])\n"
        "parallel(x).sum().backward()\n"
        "print(dist.get_backend(), 'emulated' in torch.cuda.get_device_name(0))\n"
        "dist.destroy_process_group()",
        str(tmp_path),
        NPU_CORE="exact",
    )
    assert (done.returncode, done.stdout) == (0, "hccl True\n"), done.stderr


def test_two_processes_in_an_hccl_group(tmp_path: Path) -> None:
    done = python(
        "import os, sys, torch, npu_core\n"
        "import torch.distributed as dist\n"
        "child = os.fork()  # a second interpreter would import all of this again\n"
        "rank, store = int(child == 0), 'file://' + sys.argv[1]\n"
        "dist.init_process_group('hccl', init_method=store, rank=rank, world_size=2)\n"
        "assert dist.get_backend() == 'hccl'\n"
        "x = torch.full((3,), rank + 1.0).npu()\n"
        "dist.all_reduce(x)\n"
        "assert x.is_npu and x.tolist() == [3] * 3\n"
        "parts = [torch.zeros(2, device='npu') for _ in range(2)]\n"
        "dist.all_gather(parts, torch.full((2,), float(rank)).npu(), async_op=True).wait()\n"
        "assert [p.tolist() for p in parts] == [[0, 0], [1, 1]]\n"
        "y = torch.full((2,), float(rank + 5)).npu()\n"
        "dist.broadcast(y, 0)\n"
        "assert y.tolist() == [5, 5]\n"
        "dist.send(y + 1, 1) if rank == 0 else dist.recv(y, 0)\n"
        "assert y.tolist() == [5 + rank] * 2\n"
        "objects = [None] * 2\n"
        "dist.all_gather_object(objects, {'rank': rank})\n"
        "assert objects == [{'rank': 0}, {'rank': 1}]\n"
        "total = torch.zeros(1, device='npu')\n"
        "dist.reduce_scatter(total, [torch.full((1,), float(r)).npu() for r in range(2)])\n"
        "assert total.item() == rank * 2\n"
        "layer = torch.nn.Linear(2, 1).npu()\n"
        "model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[0])\n"
        "model(torch.full((1, 2), rank + 1.0).npu()).sum().backward()\n"
        "assert layer.weight.grad.tolist() == [[1.5, 1.5]]\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
        "sys.exit(os.waitpid(child, 0)[1] if child else 0)",
        str(tmp_path / "store"),
    )
    assert done.returncode == 0, done.stderr
