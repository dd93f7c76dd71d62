"""Threads, ranks, collectives and users' own hooks: every op once, in the right file."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from forked import Forked
from torch import nn

from dumper import dumper, open_dump


def test_threads_that_run_at_once(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        gate = threading.Barrier(4)

        def work(number: int) -> None:
            gate.wait()
            for _ in range(50):
                torch.full((3,), float(number)).exp()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    with open_dump(tmp_path / "x.h5") as dump:
        assert (dump.skipped, dump.omitted) == ([], ())
        assert [r.seqid for r in dump.records] == list(range(1, 401))
        by_thread: dict[int, set[float]] = {}
        for record in dump.by_ir["exp"]:
            by_thread.setdefault(record.entry.thread, set()).add(record.inputs[0].read()[0].item())
        assert sorted(value for (value,) in by_thread.values()) == [0.0, 1.0, 2.0, 3.0]


def test_a_threads_error_is_its_own(tmp_path: Path) -> None:
    errors = []

    def work() -> None:
        try:
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        except RuntimeError as error:
            errors.append(str(error))

    with dumper(use_dump=True, dump_path=tmp_path / "x.h5"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        torch.ones(2).exp()
    assert len(errors) == 1 and "shapes cannot be multiplied" in errors[0]
    with open_dump(tmp_path / "x.h5") as dump:
        assert [r.ir for r in dump.records] == ["ones", "ones", "mm", "ones", "exp"]


def test_a_users_hook_that_runs_ops_and_raises(tmp_path: Path) -> None:
    """No recursion, one clear error, and torch works afterwards."""
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: torch.ones(2).exp() / (1 // 0))
    with (
        pytest.raises(ZeroDivisionError),
        dumper(use_dump=True, dump_path=tmp_path / "x.h5"),
    ):
        layer(torch.ones(1, 2))
    assert torch.ones(2).tolist() == [1.0, 1.0]
    with open_dump(tmp_path / "x.h5") as dump:
        assert dump.finished
        assert [r.ir for r in dump.records if r.phase == "forward"][-2:] == ["ones", "exp"]


def test_a_context_that_is_never_left(tmp_path: Path, forked: Forked) -> None:
    done = forked.run(
        f"""
        import torch
        torch.utils.dumper(use_dump=True, dump_path={str(tmp_path / "x.h5")!r}).__enter__()
        x = torch.ones(3).exp()
        print(x)
        """
    )
    assert (done.returncode, done.stderr) == (0, "") and "2.7183" in done.stdout
    with open_dump(tmp_path / "x.h5") as dump:
        assert dump.finished and [r.ir for r in dump.records][:2] == ["ones", "exp"]


RANKS = """
    import os, sys
    import torch, torch.distributed as dist
    import torch.distributed._functional_collectives as funcol
    rank, folder = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    store = "file://" + folder + "/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    with torch.utils.dumper(use_dump=True, dump_path=folder + "/r{rank}.h5"):
        t = torch.full((3,), float(rank + 1))
        dist.all_reduce(t)
        if rank == 1:
            dist.recv(torch.zeros(1), 0)
        work = dist.all_reduce(t, async_op=True)
        if rank == 0:
            dist.send(torch.ones(1), 1)  # the other rank takes part only after this
        work.wait()
        t + 0
        got = torch.zeros(3)
        if rank == 0:
            dist.send(t, 1)
        else:
            dist.recv(got, 0)
            got + 0
        functional = funcol.all_reduce(torch.ones(3), "sum", dist.group.WORLD)
        functional * 1
    dist.destroy_process_group()
"""


def test_two_ranks_two_files_and_their_collectives(tmp_path: Path) -> None:
    text = textwrap.dedent(RANKS)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", text, str(rank), str(tmp_path)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "could not be stored" not in errors
    for rank in range(2):
        with open_dump(tmp_path / f"r{rank}.h5") as dump:
            assert dump.finished and dump.environment["rank"] == rank
            first, second = (r for r in dump.records if "allreduce" in r.ir)
            assert first.inputs[0].read().tolist() == [rank + 1.0] * 3
            assert first.outputs[0].read().tolist() == [3.0] * 3
            assert second.outputs == ()
            assert {stub.reason for stub in second.entry.stubs.values()} == {"arrives later"}
            assert first.arguments["process_group"].value == "group 0, ranks 0,1"
            sums = [r.inputs[0].read().tolist() for r in dump.by_ir["add_Tensor"]]
            assert sums == [[6.0] * 3] * (1 + rank)
            (product,) = (r for r in dump.records if r.ir == "mul_Tensor")
            assert product.outputs[0].read().tolist() == [2.0] * 3


def test_forked_children_write_nothing(tmp_path: Path, forked: Forked) -> None:
    done = forked.run(
        f"""
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        class Data(TensorDataset):
            def __getitem__(self, i):
                return super().__getitem__(i)[0].exp() * 2

        loader = DataLoader(Data(torch.ones(8, 2)), num_workers=2, batch_size=2,
                            multiprocessing_context="fork")
        with torch.utils.dumper(use_dump=True, dump_path={str(tmp_path / "x.h5")!r}):
            for batch in loader:
                batch.sin()
        """
    )
    assert done.returncode == 0, done.stderr
    with open_dump(tmp_path / "x.h5") as dump:
        irs = [r.ir for r in dump.records]
        assert dump.finished and dump.skipped == []
        assert irs.count("sin") == 4 and "exp" not in irs
