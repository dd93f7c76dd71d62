"""`load_with_acl_dump`: what the device is asked for, around which ops, and what is refused."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dumper import DumpError, dumper, open_dump
from dumper.acl_config import EXAMPLE
from dumper.acl_dump import AclDump, running

pytestmark = pytest.mark.usefixtures("exact")

BEGIN = ["synchronize", "init_dump", "set_dump", "synchronize"]
END = ["synchronize", "finalize_dump", "synchronize"]


class Device(TorchDispatchMode):
    """Writes down what `torch.npu` and the ops are asked for, in one list.

    Entered before the dumper it sees every op that is run, with the preparing and the copying.
    fails: calls of torch.npu that raise, and what. stumbles: an op that raises once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.seen: dict[int, tuple[str, int] | None] = {}
        self.configurations: set[str] = set()
        self.fails: dict[str, Exception] = {}
        self.stumbles: str | None = None

    def asked(self, name: str) -> Callable[..., None]:
        def call(*given: Any) -> None:
            self.events.append(name)
            self.configurations.update(given)
            if name in self.fails:
                raise self.fails[name]

        return call

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        name = func.name().removeprefix("aten::")
        self.seen[len(self.events)] = running()
        self.events.append(name)
        if name == self.stumbles:
            self.stumbles = None
            raise RuntimeError("this op will not")
        return func(*args, **(kwargs or {}))

    @property
    def dumped(self) -> list[str]:
        """The ops that ran under the dump; every dump must have its whole frame, around one op."""
        found, i = [], 0
        while i < len(self.events):
            if i in self.seen:
                assert self.seen[i] is None
                i += 1
                continue
            assert self.events[i : i + 4] == BEGIN
            assert self.events[i + 5 : i + 8] == END
            assert self.seen[i + 4] is not None
            found.append(self.events[i + 4])
            i += 8
        return found

    @property
    def others(self) -> list[str]:
        """The ops that ran outside of it."""
        return [self.events[i] for i, record in self.seen.items() if record is None]


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    for name in ("synchronize", "init_dump", "set_dump", "finalize_dump"):
        monkeypatch.setattr(torch.npu, name, device.asked(name))
    monkeypatch.delenv("ACL_DUMP_DATA", raising=False)
    return device


@pytest.fixture
def acl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acl.json").write_text(EXAMPLE)
    return tmp_path / "acl.json"


def step(extra: bool = False) -> None:
    x = torch.arange(6.0).reshape(2, 3).to("npu")
    product = torch.mm(x, x.t())
    if extra:
        product.exp()
    torch.relu(product).add_(1.0)


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "golden.h5"
    with dumper(use_dump=True, dump_path=path, views="dump"):
        step()
    return path


def load(golden: Path, device: Device | None = None, run: Callable = step, **more: Any) -> dumper:
    path = golden.with_name("mine.h5" if device else "plain.h5")
    context = dumper(
        use_load=True,
        dump_path=path,
        load_file_path=golden,
        load_with_acl_dump=device is not None,
        **more,
    )
    with device or torch.no_grad(), warnings.catch_warnings(), context:
        warnings.filterwarnings("ignore", "torch.utils.dumper: .*ran on recorded inputs")
        run()
    return context


def outputs(path: Path) -> dict[str, bytes]:
    with open_dump(path) as dump:
        return {t.path: t.bits().tobytes() for record in dump.records for t in record.outputs}


def test_each_matched_op_runs_alone_in_its_own_dump(
    npu: Device, acl: Path, golden: Path, capsys: pytest.CaptureFixture
) -> None:
    load(golden, npu)
    assert npu.configurations == {str(acl)}
    ops = ["mm", "relu", "add_.Scalar", "add_.Tensor"]
    assert [name for name in npu.dumped if name in ops] == ["mm", "relu", "add_.Tensor"]
    assert not {"t", "view", "reshape"} & set(npu.dumped)
    assert running() is None
    assert f"{len(npu.dumped)} ops ran under ACL dump ({acl.parent / 'acl_dump'})" in (
        capsys.readouterr().err
    )


def test_the_running_record_is_the_one_that_is_recorded(
    npu: Device, acl: Path, golden: Path
) -> None:
    load(golden, npu)
    with open_dump(golden.with_name("mine.h5")) as loaded:
        kept = {(record.ir, record.seqid) for record in loaded.records if record.outputs}
    under = {record for record in npu.seen.values() if record is not None}
    views = {ir for ir, _ in kept - under}
    assert under <= kept
    assert views <= {"t", "view", "_reshape_alias", "arange"}  # which runs on the CPU


def test_an_op_without_a_counterpart_is_not_dumped(npu: Device, acl: Path, golden: Path) -> None:
    context = load(golden, npu, lambda: step(extra=True))
    assert context.unmatched == ["exp"]
    assert "exp" not in npu.dumped
    assert "exp" in npu.others
    assert "relu" in npu.dumped


def test_what_feeds_an_op_is_not_in_its_dump(npu: Device, acl: Path, golden: Path) -> None:
    """add_ computes on a copy, which the live tensor takes afterwards."""
    load(golden, npu)
    assert npu.dumped.count("copy_") == 0
    assert npu.others.count("copy_") > 0


def test_an_op_that_raises_ends_its_dump(npu: Device, acl: Path, golden: Path) -> None:
    npu.stumbles = "relu"
    context = load(golden, npu)
    assert context.unmatched == ["relu"]
    where = npu.events.index("relu")
    assert npu.events[where - 4 : where + 4] == [*BEGIN, "relu", *END]
    assert npu.dumped.count("relu") == 1  # the one that raised; then it runs as it came
    assert npu.others.count("relu") == 1
    assert "add_.Tensor" in npu.dumped


def test_every_step_is_dumped(npu: Device, acl: Path, tmp_path: Path) -> None:
    golden = tmp_path / "golden.h5"
    with dumper(use_dump=True, dump_path=golden) as dump:
        for _ in range(3):
            step()
            dump.step()
    context = dumper(
        use_load=True, dump_path=tmp_path / "x.h5", load_file_path=golden, load_with_acl_dump=True
    )
    with npu, context:
        for _ in range(3):
            step()
            context.step()
    assert context.unmatched == []
    assert npu.dumped.count("mm") == npu.dumped.count("relu") == 3
    records = [record for record in npu.seen.values() if record and record[0] == "mm"]
    assert len(set(records)) == 3


def test_only_what_is_chosen_is_dumped(npu: Device, acl: Path, golden: Path) -> None:
    load(golden, npu, ops="relu")
    assert npu.dumped == ["relu"]


def test_the_results_are_those_without_a_dump(npu: Device, acl: Path, golden: Path) -> None:
    load(golden, npu)
    load(golden)
    assert outputs(golden.with_name("mine.h5")) == outputs(golden.with_name("plain.h5"))


@pytest.mark.parametrize("call", ["synchronize", "init_dump", "set_dump", "finalize_dump"])
@pytest.mark.parametrize(
    "error", [RuntimeError("ret 507899\nmore"), OSError("no room"), DumpError("no room", "x", "y")]
)
def test_training_goes_on_where_the_dump_fails(
    call: str, error: Exception, npu: Device, acl: Path, golden: Path
) -> None:
    npu.fails[call] = error
    with pytest.warns(RuntimeWarning, match="no further op is dumped, training goes on") as said:
        load(golden, npu)
    assert len([w for w in said if "training goes on" in str(w.message)]) == 1
    assert ("ret 507899" if "ret" in str(error) else "no room") in str(said[0].message)
    assert npu.events.count("init_dump") == (call != "synchronize")
    assert npu.events.count("finalize_dump") == 1  # also where it was begun in part only
    assert running() is None
    load(golden)
    assert outputs(golden.with_name("mine.h5")) == outputs(golden.with_name("plain.h5"))


# What is refused before anything is opened or written


def refused(golden: Path, kind: type[Exception], match: str, **arguments: Any) -> None:
    before = sorted(golden.parent.iterdir())
    given = {"use_load": True, "load_file_path": golden, "dump_path": golden.parent / "x.h5"}
    context = dumper(**{**given, "load_with_acl_dump": True, **arguments})
    with pytest.raises(kind, match=match), context:
        raise AssertionError("the context was entered")
    assert sorted(golden.parent.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        {"use_load": False, "load_file_path": None},
        {"use_load": False},
        {"use_load": False, "load_file_path": None, "use_dump": True},
        {"use_load": False, "load_file_path": None, "check_overflow": True},
    ],
)
def test_it_belongs_to_load_mode(arguments: dict, npu: Device, acl: Path, golden: Path) -> None:
    refused(golden, RuntimeError, "load_with_acl_dump dumps the ops of load mode", **arguments)


def test_load_and_dump_is_load_mode(npu: Device, acl: Path, golden: Path) -> None:
    load(golden, npu, use_dump=False)
    both = dumper(
        use_dump=True, load_file_path=golden, dump_path=acl.parent / "both.h5",
        load_with_acl_dump=True,
    )  # fmt: skip
    before = npu.dumped
    with npu, both:
        step()
    assert npu.dumped == [*before, *before]


def test_an_estimate_writes_nothing(npu: Device, acl: Path, golden: Path) -> None:
    refused(golden, RuntimeError, "estimate can not run together", estimate=True)


def test_the_whole_process_is_dumped_already(
    npu: Device, acl: Path, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACL_DUMP_DATA", "1")
    text = "environment variable ACL_DUMP_DATA should be 0 when set load_with_acl_dump=True"
    refused(golden, RuntimeError, text)
    monkeypatch.setenv("ACL_DUMP_DATA", "0")
    load(golden, npu)


def test_a_dump_is_on_already(acl: Path, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = SimpleNamespace(init=lambda: None, configure=lambda path: None, finalize=lambda: None)
    torch.npu.register_dump(served)
    torch.npu.init_dump()
    try:
        refused(golden, RuntimeError, "an ACL dump is on already.*finalize_dump")
    finally:
        torch.npu.finalize_dump()
        AclDump()
        torch.npu.register_dump(None)


def test_torch_npu_is_asked_whether_a_dump_is_on(
    npu: Device, acl: Path, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"mdldumpswitch": b"enable"}
    vendor = SimpleNamespace(_C=SimpleNamespace(_npu_getOption=options.get))
    monkeypatch.delattr(torch.npu, "is_dumping")
    monkeypatch.setitem(sys.modules, "torch_npu", vendor)
    refused(golden, RuntimeError, "an ACL dump is on already")
    for value in (b"disable", None):
        options["mdldumpswitch"] = value
        AclDump()


def test_there_must_be_an_npu(acl: Path, golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.npu, "is_available", lambda: False)
    refused(golden, RuntimeError, "ACL dump needs an npu")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no acl.json"),
        ('{"dump": {"dump_path": "a" "dump_mode": "all"}}', "a comma is missing"),
        ('{"dump": {"dump_path": "a"}}', "dump_op_switch is off"),
        (EXAMPLE.replace("./acl_dump", "golden.h5"), "dump_path is no folder"),
    ],
)
def test_the_configuration_must_be_right(
    content: str | None, said: str, npu: Device, acl: Path, golden: Path
) -> None:
    if content is None:
        acl.unlink()
    else:
        acl.write_text(content)
    refused(golden, DumpError, said)
    assert npu.events == []


def test_overflow_dumps_need_no_switch(npu: Device, acl: Path) -> None:
    acl.write_text('{"dump": {"dump_path": "made", "dump_debug": "on"}}')
    AclDump()
    assert (acl.parent / "made").is_dir()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"all"', '"output"', "the inputs of the TBE operators are not dumped"),
        ('"all"', '"input"', "the outputs of the TBE operators are not dumped"),
        ("[]", '[{"model_name": "m"}]', "dump_list names models"),
    ],
)
def test_half_a_dump_is_said(before: str, after: str, said: str, npu: Device, acl: Path) -> None:
    acl.write_text(EXAMPLE.replace(before, after))
    with pytest.warns(RuntimeWarning, match=said) as found:
        AclDump()
    assert len(found) == 1


# One op, for whoever runs it


def test_around_a_block(npu: Device, acl: Path) -> None:
    with AclDump("acl.json").around("mm", 7):
        npu.events.append("op")
        assert running() == ("mm", 7)
    assert npu.events == [*BEGIN, "op", *END]
    assert running() is None


def test_around_a_block_that_raises(npu: Device, acl: Path) -> None:
    npu.fails["finalize_dump"] = OSError("no room")
    with (
        pytest.warns(RuntimeWarning, match="mm/7 cannot be ended.*no room"),
        pytest.raises(KeyError, match="mine"),
        AclDump().around("mm", 7),
    ):
        raise KeyError("mine")
    assert running() is None


@pytest.mark.parametrize(("call", "what"), [("set_dump", "begun"), ("finalize_dump", "ended")])
def test_around_a_block_the_dump_itself_fails(call: str, what: str, npu: Device, acl: Path) -> None:
    npu.fails[call] = RuntimeError("no room")
    dump = AclDump()
    with pytest.raises(DumpError, match=rf"mm/7 cannot be {what} \(no room\)"):
        with dump.around("mm", 7):
            npu.events.append("op")
    assert ("op" in npu.events) == (what == "ended")
    npu.fails.clear()
    with dump.around("mm", 8):
        assert running() == ("mm", 8)


def test_dumps_do_not_nest(npu: Device, acl: Path) -> None:
    dump = AclDump()
    with dump.around("mm", 1):
        with pytest.raises(RuntimeError, match="inside that of another"), dump.around("mm", 2):
            pass
        assert running() == ("mm", 1)
    assert npu.events == [*BEGIN, *END]


def test_threads_take_turns(npu: Device, acl: Path) -> None:
    dump = AclDump()

    def work(number: int) -> None:
        for i in range(50):
            dump.call("mm", number * 100 + i, lambda: npu.events.append("op"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert npu.events == [*BEGIN, "op", *END] * 200
