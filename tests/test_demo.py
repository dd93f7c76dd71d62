"""The README's first command does the whole job."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np

from dumper import open_dump

ROOT = Path(__file__).resolve().parent.parent


def test_the_demo_does_the_main_job(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "scripts" / "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in "abcdefg":
        assert f"({step})" in done.stdout
    out = tmp_path / "demo_output"
    apart = []
    for kind in ("free", "load"):
        (csv,) = (out / kind).glob("result_*.csv")
        assert f"result: demo_output/{kind}/{csv.name}" in done.stdout
    for found in re.findall(
        r"(\d+) compared: (\d+) same, (\d+) rounding, (\d+) inherited, (\d+) differ", done.stdout
    ):
        compared, same, rounding, inherited, differ = map(int, found)
        assert compared == same + rounding + inherited and differ == 0  # nothing is wrong
        apart.append(compared - same)
    # Errors are inherited in the free run; in load mode each op has only its own.
    free, loaded = apart
    assert free > 5 * loaded > 0
    with open_dump(out / "npu_load.h5") as load, open_dump(out / "one_op.h5") as one:
        assert load.load_mode
        (record,) = one.records
        assert record.ir == "convolution"
        for tensor in (*record.inputs, *record.outputs):
            name = f"{record.ir}.{record.seqid}.{tensor.side}.{tensor.name}"
            expected = tensor.read()
            np.testing.assert_array_equal(np.load(out / "npy" / f"{name}.npy"), expected)
            text = np.loadtxt(out / "txt" / f"{name}.txt", dtype=np.float32)
            np.testing.assert_array_equal(text.reshape(expected.shape), expected)
