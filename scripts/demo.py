"""The main job, end to end: dump a step, replay it on another device, compare, extract, convert.

The "other device" is the emulated Ascend 910A, which computes matrix products and convolutions in
fp16 as the chip does: so it differs from the CPU for a true reason, and the tool has to find it.
Everything is done as a user does it: `torch.utils.dumper` in the training script, then `msaccucmp`.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("NPU_CORE", "910A")  # read by `import torch`, which registers the device

import torch  # noqa: E402 - see above
from digits_resnet import Step  # noqa: E402

OUT = Path("demo_output")
MSACCUCMP = Path(sys.executable).with_name("msaccucmp")


def say(text: str) -> None:
    """Say what comes next, in one line."""
    print(f"\n== {text}", flush=True)


def msaccucmp(*arguments: object) -> None:
    """Run one command; 1 is its way to say that something differs."""
    print("$ msaccucmp", *arguments, flush=True)
    code = subprocess.run([MSACCUCMP, *map(str, arguments)]).returncode
    if code > 1:
        raise SystemExit(code)


def worst(folder: Path) -> str:
    """The record of the first output in execution order that is not bit-equal."""
    (result,) = folder.glob("result_*.csv")
    with result.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            path = row["GroundTruthPath"].split("/")
            if path[-2:-1] == ["output"] and float(row["ExactMatch"]) < 1:
                return "/".join(path[:3])
    raise SystemExit("the two runs are bit-equal; there is nothing to extract")


def main() -> None:
    """Do it all in OUT, which is made anew."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    cpu, npu, load = OUT / "cpu.h5", OUT / "npu.h5", OUT / "npu_load.h5"

    say("(a) dump one training step of a small ResNet on digits, on cpu")
    step = Step("cpu")
    with torch.utils.dumper(use_dump=True, dump_path=cpu):
        loss = step()
    print(f"loss {loss.item():.6f}, {cpu} {cpu.stat().st_size / 1e6:.1f} MB")

    say("(b) the same step on the emulated npu, free: every op gets what the op before it made")
    step = Step("npu")
    with torch.utils.dumper(use_dump=True, dump_path=npu):
        loss = step()
    print(f"loss {loss.item():.6f}, {npu} {npu.stat().st_size / 1e6:.1f} MB")

    say("(c) the step on npu in load mode: every op gets the inputs that cpu recorded for it")
    step = Step("npu")
    with torch.utils.dumper(use_load=True, dump_path=load, load_file_path=cpu) as context:
        step()
    print(f"{context.matched} ops fed, {len(context.unmatched)} without a counterpart")

    say("(d) compare the free run with cpu; (e) the summary: errors of earlier ops are inherited")
    msaccucmp("compare", "-m", npu, "-g", cpu, "-out", OUT / "free")

    say("(d) compare the load run with cpu; (e) the summary: each op's own error, no other's")
    msaccucmp("compare", "-m", load, "-g", cpu, "-out", OUT / "load")

    record = worst(OUT / "load")
    say(f"(e) the first op that differs, {record}, beside its counterpart on cpu")
    msaccucmp("show", load, record, "-g", cpu)

    say(f"(f) extract {record} to a file of its own")
    one = OUT / "one_op.h5"
    msaccucmp("h5copy", "-pv", "-i", cpu, "-o", one, "-s", f"{record}/", "-d", f"{record}/")

    say("(g) convert its tensors to npy and to txt")
    msaccucmp("convert", "-d", one, "-out", OUT / "npy", "-t", "npy")
    msaccucmp("convert", "-d", one, "-out", OUT / "txt", "-t", "txt")
    for path in sorted((*OUT.glob("npy/*"), *OUT.glob("txt/*"))):
        print(path)


if __name__ == "__main__":
    main()
