"""Random networks, compiled twice and run on several devices in several steps: every value is
another number, so that a tensor that is set against a wrong one, or a wrong run, differs."""

import random
import shutil
import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest
from folders import op, put, rows, rules, run, save
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ir2tbe.cann.file import read

HARD = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass
class Network:
    """ops: (name, type, what it takes), in order; names of ops are those of their outputs."""

    ops: list[tuple[str, str, list[str]]] = field(default_factory=list)


@dataclass
class Step:
    """A compiled operator. value: the original op whose output it has."""

    name: str
    kind: str
    fused: list[str]
    takes: list[str]
    value: str
    named: bool


def network(chance: random.Random) -> Network:
    found = Network([("data", "Data", [])])
    for i in range(chance.randint(2, 7)):
        taken = [chance.choice(found.ops)[0] for _ in range(chance.randint(1, 2))]
        name = chance.choice(["net/op_{}", "op_{}", "net/deep/op_{}"]).format(i)
        found.ops.append((name, chance.choice(["Add", "Conv2D", "Relu"]), taken))
    return found


def compiled(net: Network, chance: random.Random) -> list[Step]:
    """The same with some ops fused into the only one that takes them, some called otherwise, and
    with operators that hand on what they are given."""
    takers = {name: [other for other, _, taken in net.ops if name in taken] for name, *_ in net.ops}
    made, steps, inner, inner_takes = {}, [], {}, {}
    for name, kind, taken in net.ops:
        parts = [part for each in dict.fromkeys(taken) for part in inner.get(each, [])]
        takes = [each for one in taken for each in (inner_takes[one] if one in inner else [one])]
        if kind != "Data" and len(takers[name]) == 1 and chance.random() < 0.3:
            inner[name] = [*parts, name]
            inner_takes[name] = takes
            continue
        own = name
        if kind != "Data" and chance.random() < 0.3:
            own = chance.choice([f"{name}_r", "".join(each[-1] for each in parts) + name])
        takes = [made[each] for each in takes]
        steps.append(Step(own, kind, [*parts, name], takes, name, chance.random() < 0.7 or parts))
        made[name] = own
        if kind != "Data" and chance.random() < 0.4:
            cast = Step(f"trans_{len(steps)}", chance.choice(["Cast", "TransData"]), [], [own],
                        name, chance.random() < 0.3)  # fmt: skip
            steps.append(cast)
            made[name] = cast.name
    return steps


def json_of(path, steps):
    return rules(
        path,
        *[
            op(s.name, s.kind, s.fused, [(s.value, 0, "") if s.named else None],
               [f"{each}:0" for each in s.takes])
            for s in steps
        ],
    )  # fmt: skip


def values(name: str, device: int, step: int) -> np.ndarray:
    return np.float32([zlib.crc32(f"{name} {device} {step}".encode()) % 10**6, 1])


def dump(folder, steps, where, chance):
    """Run the operators on each device and in each step, those of devices interleaved."""
    made = {step.name: step.value for step in steps}
    queues = [[(place, device, number, s) for s in steps if s.kind != "Data"]
              for place, device, number in where]  # fmt: skip
    by_device: dict[int, list] = {}
    for queue in queues:
        by_device.setdefault(queue[0][1] if queue else 0, []).extend(queue)
    waiting, at = [queue for queue in by_device.values() if queue], 0
    while waiting:
        queue = chance.choice(waiting)
        place, device, number, s = queue.pop(0)
        inputs = [values(made[each], device, number) for each in s.takes]
        put(folder / place, at, s.kind, s.name, inputs, [values(s.value, device, number)])
        at += 1
        waiting = [queue for queue in waiting if queue]


LAYOUTS = ["flat", "step", "device", "device/step"]


def places(layout: str, devices: int, steps: int):
    form = {"flat": "", "step": "{s}", "device": "{d}", "device/step": "{d}/{s}"}[layout]
    return [(form.format(d=d, s=s), d, s) for d in range(devices) for s in range(steps)]


@pytest.fixture
def place(tmp_path):
    def fresh():
        shutil.rmtree(tmp_path, ignore_errors=True)
        tmp_path.mkdir()
        return tmp_path

    return fresh


def network_and_places(seed):
    chance = random.Random(seed)
    layout = chance.choice(LAYOUTS)
    devices = chance.randint(1, 2) if "device" in layout else 1
    return chance, network(chance), places(layout, devices, chance.randint(1, 3))


@HARD
@given(st.integers(0, 1 << 32))
def test_two_compilations_of_one_network(place, seed):
    root, (chance, net, where) = place(), network_and_places(seed)
    files = []
    for side in "mg":
        steps = compiled(net, chance)
        dump(root / side, steps, where, chance)
        files.append(json_of(root / f"{side}.json", steps))
    done = run(root / "m", root / "g", root / "out", "-f", files[0], "-cf", files[1])
    found = rows(done)
    assert {row["Verdict"] for row in found} <= {"same", "cannot_tell"}, done.output
    mine = [row for row in found if ":output:" in row["TensorIndex"] and row["NPUDump"] != "NaN"]
    assert sum(row["Verdict"] == "same" for row in mine) > 0 and done.exit_code == 0


@HARD
@given(st.integers(0, 1 << 32))
def test_a_compiled_network_and_the_original(place, seed):
    root, (chance, net, where) = place(), network_and_places(seed)
    steps = compiled(net, chance)
    dump(root / "m", steps, where, chance)
    for at, (folder, device, number) in enumerate(where):
        for name, *_ in net.ops:
            file = f"{name.replace('/', '_')}.0.{1673383728090000 + at}.npy"
            (root / "npy" / folder).mkdir(parents=True, exist_ok=True)
            save(root / "npy" / folder, file, values(name, device, number))
    done = run(root / "m", root / "npy", root / "out", "-f", json_of(root / "f.json", steps))
    found = [row for row in rows(done) if row["NPUDump"] != "NaN"]
    assert {row["Verdict"] for row in found} == {"same"}, done.output


@HARD
@given(st.integers(0, 1 << 32))
def test_a_wrong_operator_is_the_first_that_parts(place, seed):
    """In one step and on one device."""
    root, (chance, net, where) = place(), network_and_places(seed)
    steps = compiled(net, chance)
    dump(root / "m", steps, where, random.Random(seed))
    shutil.copytree(root / "m", root / "g")
    files = sorted(path for path in (root / "m").rglob("*.0.16*"))
    wrong = chance.choice(files)
    kind, name, at, *_ = wrong.name.split(".")
    step = next(s for s in steps if s.name.replace("/", "_") == name)
    wrong.unlink()
    same = read(root / "g" / wrong.relative_to(root / "m"))
    inputs = [each.values() for each in same.inputs]
    put(wrong.parent, int(at), kind, step.name, inputs, [same.outputs[0].values() + 0.5])
    rule = json_of(root / "r.json", steps)
    done = run(root / "m", root / "g", root / "out", "-f", rule, "-cf", rule)
    first = next(row for row in rows(done) if row["Verdict"] == "differs")
    assert first["TensorIndex"] == f"{step.name}:output:0" and done.exit_code == 1
    assert f"{kind} {step.name}, Index {first['Index']}" in done.stdout
