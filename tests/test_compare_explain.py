"""`--explain-align`: what an op belongs to, and why. `--op-map`: names of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import chains
import models
import pytest
from answers import record
from torch.nn.attention import SDPBackend, sdpa_kernel

from dumper import open_dump


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small GPT's step with attention written out, and with its fused kernel."""
    folder = tmp_path_factory.mktemp("explain")
    found = []
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            found.append(record(models.make("gpt", "cpu"), folder / f"{backend.name}.h5"))
    return found[0], found[1]


@pytest.fixture(scope="module")
def paths(files: tuple[Path, Path]) -> dict[str, list[str]]:
    """Paths of my records, by IR."""
    found: dict[str, list[str]] = {}
    with open_dump(files[0]) as opened:
        for each in opened.records:
            found.setdefault(each.ir, []).append(each.path)
    return found


def explained(files: tuple[Path, Path], op: str):
    return chains.compare(*files, "--explain-align", op)


def test_an_op_that_is_paired_by_itself(files, paths):
    done = explained(files, paths["gelu"][0])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and not done.stderr
    assert lines[0] == "paired by: op, high confidence"
    mine, golden = [line for line in lines if line.startswith(("my dump", "golden"))]
    assert mine.startswith(f"my dump   {paths['gelu'][0]} (torch.nn.functional.gelu.0, mlp.1, ")
    assert golden.startswith("golden    /gelu/") and "torch.nn.functional.gelu.0" in golden
    reasons = [line for line in lines if line.startswith("because ")]
    assert reasons and all(len(line) > len("because ") for line in reasons)
    assert len(lines) == 3 + len(reasons)


@pytest.mark.parametrize(
    "spell", [str, lambda path: path[1:], lambda path: f"{path}/output/result", lambda p: f"{p}/"]
)
def test_an_op_is_named_as_a_path_or_as_a_rows_tensor(files, paths, spell):
    path = paths["gelu"][0]
    assert explained(files, spell(path)).stdout == explained(files, path).stdout


def test_an_op_inside_of_a_call_that_is_paired_as_one(files, paths):
    done = explained(files, paths["_safe_softmax"][0])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert lines[0] == "paired by: call, high confidence"
    mine = [line for line in lines if line.startswith("my dump")]
    assert len(mine) == 26  # all of them: what a call holds is shown on request
    golden = [line for line in lines if line.startswith("golden")]
    assert len(golden) == 2
    assert golden[0].startswith("golden    /_scaled_dot_product_flash_attention_for_cpu/")


def test_an_op_without_partner(files):
    """The fused kernel hands its output over as it is; written out, it must be copied first."""
    with open_dump(files[0]) as a, open_dump(files[1]) as b:
        theirs = [r.ir for r in b.records if r.phase == "forward"]
        clones = [r.path for r in a.records if r.phase == "forward" and r.ir == "clone"]
    assert "clone" not in theirs
    alone = [done for path in clones if (done := explained(files, path)).exit_code == 1]
    assert alone
    for done in alone:
        assert "paired by: extra" in done.stdout and "golden    nothing" in done.stdout


def test_an_op_that_only_golden_has(files):
    """A row of it names it by golden's path."""
    turned = files[1], files[0]
    with open_dump(files[0]) as a, open_dump(files[1]) as b:
        known = {record.path for record in b.records}
        clones = [r.path for r in a.records if r.phase == "forward" and r.ir == "clone"]
    assert not known & set(clones)
    alone = [done for path in clones if "extra" in (done := explained(turned, path)).stdout]
    assert alone
    for done in alone:
        assert done.exit_code == 1
        assert "my dump   nothing" in done.stdout and "golden    /clone/" in done.stdout


def test_it_writes_no_result(files, paths, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explained(files, paths["gelu"][0])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "op", ["gelu/99999", "nothing/1", "gelu", "/", "", "../..", "gelu/-1", "/x/y/z"]
)
def test_an_op_that_is_not_there(files, op):
    done = explained(files, op)
    assert done.exit_code == 2 and not done.stdout
    assert done.stderr.count("msaccucmp: error") == 1
    assert "Traceback" not in done.stderr


def test_in_load_mode(files, tmp_path):
    with sdpa_kernel(SDPBackend.MATH):
        fed = record(models.make("gpt", "cpu"), tmp_path / "fed.h5", files[0])
    done = chains.compare(fed, files[0], "--explain-align", "gelu/" + fed_seqid(fed, "gelu"))
    assert done.exit_code == 0
    assert "because by seqid, in load mode" in done.stdout


def fed_seqid(path: Path, ir: str) -> str:
    with open_dump(path) as opened:
        return next(str(each.seqid) for each in opened.records if each.ir == ir)


# --op-map


def test_a_map_of_the_users_own(tmp_path, monkeypatch):
    """What a vendor calls otherwise belongs together once it is told."""
    mine, golden = chains.equal_pair(tmp_path, monkeypatch)
    renamed = {
        path.replace("relu/", "my_relu_thing/"): value
        for path, value in chains.chain(chains.GOOD).items()
    }
    chains.dump(tmp_path / "npu.h5", renamed, 10)
    op = ("--explain-align", "my_relu_thing/2")
    assert chains.compare(mine, golden, *op).exit_code == 1
    Path("map.json").write_text(json.dumps({"names": {"my_relu_thing": "relu"}}))
    told = chains.compare(mine, golden, *op, "--op-map", "map.json")
    assert told.exit_code == 0 and "golden    /relu/2" in told.stdout
    assert chains.compare(mine, golden, "--op-map", "map.json").exit_code == 0


BAD = {
    "empty": b"",
    "no JSON": b"{names: }",
    "no UTF-8": b"\xff\xfe{}",
    "a list": b"[]",
    "a number": b"1",
    "unknown key": b'{"nmaes": {}}',
    "names of numbers": b'{"names": {"a": 1}}',
    "names of lists": b'{"names": ["a"]}',
    "groups of names": b'{"groups": {"addmm": "mm"}}',
    "empty groups": b'{"groups": {"addmm": []}}',
    "optional groups": b'{"groups": {"addmm": [["mm?"]]}}',
    "deep": b"[" * 100000,
    "names that are paths": b'{"names": {"../x": "y"}}',
}


@pytest.mark.parametrize("kind", [*BAD, "missing", "a folder"])
def test_a_bad_map(tmp_path, monkeypatch, kind):
    """One message that says what and where, exit status 2, and no result."""
    mine, golden = chains.equal_pair(tmp_path, monkeypatch)
    path = Path("map.json")
    if kind == "a folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(BAD[kind])
    done = chains.compare(mine, golden, "--op-map", path, "-out", "out")
    assert done.exit_code == 2 and not done.stdout
    assert done.stderr.count("msaccucmp: error") == 1 and "map.json" in done.stderr
    assert "what to do" in done.stderr and len(done.stderr.splitlines()) <= 4
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "good", [b"{}", b'{"names": {}}', b'{"groups": {"addmm": [["mm", "add"]]}}']
)
def test_the_nearest_good_maps(tmp_path, monkeypatch, good):
    mine, golden = chains.equal_pair(tmp_path, monkeypatch)
    Path("map.json").write_bytes(good)
    assert chains.compare(mine, golden, "--op-map", "map.json").exit_code == 0
