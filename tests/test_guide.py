"""The original guide's snippets and commands, in its order, as a user types them.

Each snippet is a script of its own in the user's folder, because the guide ends a step with exit().
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from users import User

from dumper import open_dump

TRAIN = """
import torch
import torch.nn as nn

device = torch.device("{device}")
torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
inputs, target = torch.randn(8, 1, 8, 8), torch.randint(0, 10, (8,))
model, inputs, target = model.to(device), inputs.to(device), target.to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

for i in range(100):
    {context}
        output = model(inputs)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    exit()
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    return User(tmp_path_factory.mktemp("user"))


def _train(user: User, device: str, context: str) -> None:
    user.script(TRAIN.format(device=device, context=context))


def test_the_guide_in_order(user: User, hdf5_tools: dict[str, str]) -> None:
    # 1. Dump on the device that trains right, then on the other.
    _train(
        user, "cpu", 'with torch.utils.dumper(use_dump=True, dump_path="./model_gpu.h5") as dump:'
    )
    _train(
        user, "npu", 'with torch.utils.dumper(use_dump=True, dump_path="./model_npu.h5") as dump:'
    )

    # 2. Compare; -out is left out, the last line names the csv.
    # The chip rounds as it is known to: nothing is at fault.
    out = user.msaccucmp("compare", "-m", "./model_npu.h5", "-g", "./model_gpu.h5")
    assert "0 differ" in out and "no op is at fault" in out
    named = out.splitlines()[-1].removeprefix("result: ")
    (made,) = user.folder.glob("result_*.csv")
    assert made.samefile(user.folder / named)
    assert made.read_text(encoding="utf-8").startswith("Index,NPUDump,NPUDumpPath,GroundTruthPath,")
    made.unlink()

    # 3. Load: the npu step on the other's inputs; the guide's own example says use_dump.
    for flag in ("use_load", "use_dump"):
        context = (
            f"with torch.utils.dumper({flag}=True, load_file_path='./model_gpu.h5', "
            f"dump_path='./model_{flag}.h5') as dump:"
        )
        _train(user, "npu", context)
        with open_dump(user.folder / f"model_{flag}.h5") as loaded:
            assert loaded.load_mode
            assert loaded.environment["mode"] == "load"
        user.msaccucmp("compare", "-m", f"./model_{flag}.h5", "-g", "./model_gpu.h5")

    # 4. Extract one op with the real h5copy, with the guide's own options.
    with open_dump(user.folder / "model_gpu.h5") as dump:
        op = dump.by_ir["addmm"][0].path
    copy = [hdf5_tools["h5copy"], "-pv", "-i", "./model_gpu.h5", "-o", "./output.h5"]
    user.run(*copy, "-s", f"{op}/", "-d", f"{op}/")

    # 5. Load the extract: that op alone runs on recorded inputs.
    context = (
        "with torch.utils.dumper(use_load=True, load_file_path='./output.h5', "
        "dump_path='./one_op.h5') as dump:"
    )
    _train(user, "npu", context)
    with open_dump(user.folder / "one_op.h5") as loaded:
        assert [record.path for record in loaded.records] == [op]
    user.msaccucmp("compare", "-m", "./one_op.h5", "-g", "./output.h5")

    # 6. Convert, then the documented habit: numpy load, flatten, savetxt.
    user.msaccucmp("convert", "-d", "./output.h5", "-out", "./npy", "-v", "2", "-t", "npy")
    name = f"addmm.{op.split('/')[2]}.output.result"
    habit = (
        f"import numpy as np; "
        f"np.savetxt('result.txt', np.load('npy/{name}.npy').flatten(), fmt='%.9g')"
    )
    user.run(sys.executable, "-c", habit)
    with open_dump(user.folder / "output.h5") as dump:
        (result,) = dump.records[0].outputs
        expected = result.read()
    np.testing.assert_array_equal(
        np.loadtxt(user.folder / "result.txt", dtype=np.float32), expected.flatten()
    )
    user.msaccucmp("convert", "-d", "./output.h5", "-out", "./txt", "-t", "txt")
    np.testing.assert_array_equal(
        np.loadtxt(user.folder / "txt" / f"{name}.txt", dtype=np.float32), expected
    )
