"""What goes wrong around a dump (disk, signals, forks, writers) costs the dump, never the step.

Most of it in processes of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import ROOT, Forked

from dumper import dumper, open_dump
from dumper.tensors import bits_of


def test_a_full_disk_stops_recording_not_training(tmp_path: Path, forked: Forked) -> None:
    path = tmp_path / "x.h5"

    script = f"""
        import resource, signal, torch, dumper
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # as a full disk does
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
            x = torch.zeros(1000)
            for _ in range(1000):
                x = x + 1
        print(x.sum().item())
    """
    done = forked.run(script)
    assert done.stdout.strip() == "1000000.0", done.stderr
    assert done.stderr.count("recording stopped at /add_Tensor/") == 1
    with open_dump(path) as dump:
        assert dump.finished is False
        assert len(dump.records) >= 64
        for entry in dump.records[1:]:
            before, after = entry.inputs[0].read(), entry.outputs[0].read()
            np.testing.assert_array_equal(before + 1, after)


@pytest.mark.parametrize("made", ["before", "inside"])
def test_compiled_functions_are_recorded_and_stay_compiled(
    made: str, tmp_path: Path, forked: Forked
) -> None:
    script = f"""
        import torch, dumper
        compiled = []
        def backend(graph, inputs):
            compiled.append(graph)
            return graph.forward
        def make():
            return torch.compile(lambda x: (x.sin() + 1).sum(), backend=backend, fullgraph=True)
        x = torch.ones(3)
        plain = (x.sin() + 1).sum()
        if {made!r} == "before":
            function = make()
            function(x)
        before = len(compiled)
        with torch.utils.dumper(use_dump=True, dump_path={str(tmp_path / "x.h5")!r}):
            if {made!r} == "inside":
                function = make()
            result = function(x)
        assert torch.equal(result, plain)
        assert len(compiled) == before, "compiled under the dumper"
        assert torch.equal(function(x), plain)
        assert len(compiled) == 1, "not compiled after it"
    """
    done = forked.run(script)
    assert done.returncode == 0, done.stderr
    with open_dump(tmp_path / "x.h5") as dump:
        assert [record.ir for record in dump.records] == ["sin", "add_Tensor", "sum"]


def test_a_fault_of_recording_costs_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(tensor: torch.Tensor) -> Any:
        if tensor.numel() == 7:
            raise ArithmeticError("planted")
        return bits_of(tensor)

    monkeypatch.setattr("dumper.record.bits_of", broken)
    with (
        pytest.warns(RuntimeWarning, match="could not be stored, the first /ones/5: Arithm"),
        dumper(use_dump=True, dump_path=tmp_path / "x.h5"),
    ):
        results = [torch.ones(n).exp().sum().item() for n in (3, 7, 5)]
    assert results == pytest.approx([n * np.e for n in (3, 7, 5)])
    with open_dump(tmp_path / "x.h5") as dump:
        assert dump.finished
        assert [r.outputs[0].shape for r in dump.by_ir["ones"] if r.outputs] == [(3,), (5,)]


def test_two_writers_never_share_a_file(tmp_path: Path, forked: Forked) -> None:
    path = tmp_path / "x.h5"
    other = f"""
        import torch, dumper
        with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
            print(torch.ones(2).sum().item())
    """
    with dumper(use_dump=True, dump_path=path):
        torch.ones(3).exp()
        done = forked.run(other)
    assert done.stdout.strip() == "2.0"
    assert "another process is writing this file" in done.stderr
    with open_dump(path) as dump:
        assert dump.finished
        assert [record.ir for record in dump.records] == ["ones", "exp"]


def test_a_killed_runs_journal_is_not_the_next_runs(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    (tmp_path / "x.h5.journal").write_bytes(b"of an earlier run")
    with dumper(use_dump=True, dump_path=path):
        torch.ones(3).exp()
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.h5"]


def test_warnings_as_errors_do_not_end_the_step(tmp_path: Path, forked: Forked) -> None:
    script = f"""
        import warnings, torch, dumper
        warnings.simplefilter("error")
        for i in range(2):
            with torch.utils.dumper(use_dump=True, dump_path={str(tmp_path / "x.h5")!r}):
                torch.ones(2).to_mkldnn()
                print(torch.ones(2).sum().item())
    """
    done = forked.run(script)
    assert done.stdout.split() == ["2.0", "2.0"], done.stderr
    assert done.returncode == 0
    assert "values could not be stored" in done.stderr and "is kept" in done.stderr


def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    script = f"""
        import resource, signal, torch, dumper
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with torch.utils.dumper(use_dump=True, dump_path={str(tmp_path / "x.h5")!r}):
            print(torch.ones(2).sum().item())
    """
    done = subprocess.run(  # its output goes to pipes, which the limit does not hold for
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr
    assert done.stderr.count("recording stopped at /ones/1") == 1


def test_an_interpreter_that_ends_inside_the_context(tmp_path: Path, forked: Forked) -> None:
    path = tmp_path / "x.h5"
    script = f"""
        import torch, dumper
        context = torch.utils.dumper(use_dump=True, dump_path={str(path)!r})
        context.__enter__()
        x = torch.ones(3)
        for _ in range(99):
            x = x + 1
        print(x)
    """
    done = forked.run(script)
    assert done.returncode == 0, done.stderr
    with open_dump(path) as dump:
        assert dump.finished
        assert len(dump.by_ir["add_Tensor"]) == 99


def test_a_forked_child_may_have_its_own_dump(tmp_path: Path, forked: Forked) -> None:
    script = f"""
        import os, torch, dumper
        folder = {str(tmp_path)!r}
        with torch.utils.dumper(use_dump=True, dump_path=folder + "/parent.h5"):
            torch.ones(2).exp()
            child = os.fork()
            if not child:
                with torch.utils.dumper(use_dump=True, dump_path=folder + "/child.h5"):
                    torch.ones(2).sin()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    """
    done = forked.run(script)
    assert done.returncode == 0, done.stderr
    for name, op in (("parent", "exp"), ("child", "sin")):
        with open_dump(tmp_path / f"{name}.h5") as dump:
            assert dump.finished and [r.ir for r in dump.records] == ["ones", op]


def test_ctrl_c_reaches_the_step_and_finishes_the_file(tmp_path: Path, forked: Forked) -> None:
    """Many times, at moments that move through the writing; none is lost, no file is spoilt."""
    script = f"""
        import os, signal, threading, time, torch, dumper
        caught = 0
        for i in range(25):
            path = {str(tmp_path)!r} + f"/{{i}}.h5"
            timer = threading.Timer(
                0.02 + 0.0013 * i, os.kill, (os.getpid(), signal.SIGINT)
            )
            end = time.monotonic() + 20
            try:
                with torch.utils.dumper(use_dump=True, dump_path=path):
                    x = torch.zeros(50)
                    timer.start()
                    while time.monotonic() < end:
                        x = x + 1
            except KeyboardInterrupt:
                caught += 1
            with dumper.open_dump(path) as dump:
                assert dump.finished and not dump.skipped, i
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print(caught)
    """
    done = forked.run(script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "25", done.stderr


@pytest.mark.parametrize("fault", ["abort", "segfault", "exit"])
def test_a_crash_inside_an_op_leaves_what_came_before(
    fault: str, tmp_path: Path, forked: Forked
) -> None:
    """At most the last 64 records are lost; a crash in backward is a crash in an op as well."""
    path = tmp_path / "x.h5"
    script = f"""
        import ctypes, os, torch, dumper
        faults = {{
            "abort": os.abort, "segfault": lambda: ctypes.string_at(0), "exit": lambda: os._exit(3)
        }}
        class Crashes(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, grad):
                faults[{fault!r}]()
        with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
            x = torch.ones(3, requires_grad=True)
            y = x
            for _ in range(150):
                y = y * 1
            Crashes.apply(y).sum().backward()
    """
    done = forked.run(script)
    died = {"abort": -signal.SIGABRT, "segfault": -signal.SIGSEGV, "exit": 3}
    assert done.returncode == died[fault], done.stderr
    with open_dump(path) as dump:
        assert dump.finished is False and dump.skipped == []
        assert len(dump.records) >= 150 - 64
        assert [record.seqid for record in dump.records] == list(range(1, len(dump.records) + 1))


def test_a_child_that_ends_as_a_process_does_leaves_the_file_alone(
    tmp_path: Path, forked: Forked
) -> None:
    """HDF5 closes its files at exit, in a forked child too, where they are the parent's."""
    path = tmp_path / "x.h5"
    script = f"""
        import os, sys, torch, dumper
        with torch.utils.dumper(use_dump=True, dump_path={str(path)!r}):
            x = torch.zeros(30)
            for _ in range(100):
                x = x + 1
            child = os.fork()
            if not child:
                for _ in range(300):
                    x = x + 1
                sys.exit(0)  # leaves the context too
            assert os.waitpid(child, 0)[1] == 0
            for _ in range(100):
                x = x + 1
    """
    done = forked.run(script)
    assert done.returncode == 0, done.stderr
    with open_dump(path) as dump:
        assert dump.finished and dump.skipped == []
        values = [record.outputs[0].read()[0] for record in dump.by_ir["add_Tensor"]]
        assert values == list(range(1, 201))


def test_a_childs_end_does_not_unlock_its_parents_file(tmp_path: Path, forked: Forked) -> None:
    path = tmp_path / "x.h5"
    script = f"""
        import os
        from dumper.writer import Writer
        writer = Writer({str(path)!r}, {{}})
        if not os.fork():
            writer.abandon()
            os._exit(0)
        os.wait()
        try:
            Writer({str(path)!r}, {{}})
        except BlockingIOError as error:
            print(error.strerror)
        writer.close()
    """
    done = forked.run(script)
    assert done.stdout.strip() == "another process is writing this file", done.stderr
    with open_dump(path) as dump:
        assert dump.finished


def test_a_folder_that_cannot_be_written_costs_the_dump_only(
    tmp_path: Path, forked: Forked
) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    script = f"""
        import os, torch, dumper
        folder = {str(folder)!r}
        context = torch.utils.dumper(use_dump=True, dump_path=folder + "/x.h5")
        with context:
            os.rmdir(folder)  # root may write anywhere, so the folder goes
            print(torch.ones(2).sum().item())
    """
    done = forked.run(script)
    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr
    assert done.stderr.count("recording stopped at /ones/1") == 1
    assert "No such file or directory" in done.stderr
