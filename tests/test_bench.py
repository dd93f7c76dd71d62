"""scripts/bench: what it prints and writes, and what it says without its baseline."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent / "scripts" / "bench.py"


def bench(*arguments, **environment):
    return subprocess.run(
        [sys.executable, BENCH, *arguments],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def test_without_the_peer():
    done = bench("compare", "--quick", TORCH_DUMPER_PEER_PYTHON="/nonexistent")
    assert done.returncode == 2
    assert "the peer is not installed" in done.stderr and "scripts/peer" in done.stderr
    assert done.stdout == ""


def test_an_unknown_name():
    done = bench("nothing")
    assert done.returncode == 2 and "compare" in done.stderr


EMULATED = "emulated Ascend NPU, profile {}; not real hardware\n"


def check_report(done, target, name, *baselines, stderr=""):
    """The table's last line and the json say the same, and the json has every single run."""
    assert (done.returncode, done.stderr) == (0, stderr)
    report = json.loads(target.read_text())
    assert done.stdout.splitlines()[-1] == f"{name} ratio={report['ratio']:.2f}"
    assert report["ratio"] == min(case["ratio"] for case in report["cases"] if case["limit"])
    for case in report["cases"]:
        ours, theirs = (statistics.median(case[key]) for key in ("ours", "theirs"))
        assert case["ratio"] == theirs / ours
        assert len(case["ours"]) == len(case["theirs"]) == 1
        assert case["baseline"] in baselines
    assert report["machine"]["cores"] and report["versions"]["h5py"]


def test_compare_against_the_peer(peer, tmp_path):
    target = tmp_path / "bench.json"
    done = bench(
        "compare", "--quick", "--runs", "1", "--json", target,
        TORCH_DUMPER_PEER_PYTHON=peer[0], TORCH_DUMPER_PEER=peer[1],
    )  # fmt: skip
    check_report(
        done, target, "compare", "peer / 15", "peer / 25", "peer, all ten / 25",
        "numpy, read and sum", "200 ops, 20 % more", "float32, half the rate", "500 MB",
    )  # fmt: skip


def test_dump_against_msprobe(probe, tmp_path):
    target = tmp_path / "bench.json"
    done = bench("dump", "--quick", "--runs", "1", "--json", target)
    check_report(
        done, target, "dump", "a third of msprobe L1 tensor", "plain write / 0.6",
        "the first 100 / 0.8", "16 MB", "memory=64 MiB and 64 MB of its own", "plain step + 1 %",
    )  # fmt: skip


def test_npu_against_the_cpu(tmp_path):
    target = tmp_path / "bench.json"
    done = bench("npu", "--quick", "--runs", "1", "--json", target, NPU_CORE="910A")
    check_report(
        done, target, "npu", "CPU", "empty dispatch mode, CPU", stderr=EMULATED.format("910A")
    )


def test_the_overflow_check_against_the_plain_step(tmp_path):
    target = tmp_path / "bench.json"
    done = bench("overflow", "--quick", "--runs", "1", "--json", target)
    check_report(
        done, target, "overflow", "plain step x 1.2", "plain step", "a mode that does nothing",
        "isfinite().all().item()", "torch DebugMode", "plain step x 3.0",
    )  # fmt: skip


def test_convert_against_plain_reading_and_writing(tmp_path):
    target = tmp_path / "bench.json"
    done = bench("convert", "--quick", "--runs", "1", "--json", target)
    check_report(
        done, target, "convert", "read and write / 0.6", "read and write", "20 ms",
        "1000 files a second", "made plainly", "twice a tensor",
    )  # fmt: skip
