"""compare on a folder of CANN dumps and npy files of the original network, with fusion rules."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from folders import START, header, op, put, rows, rules, run, save, tensor

from compare.cli import cli
from compare.folders.fusion import load
from dumper.errors import DumpError
from ir2tbe.relayout import relayout

X = np.arange(24, dtype="f4").reshape(2, 3, 2, 2) - 11


def test_names_tell_without_rules(tmp_path):
    """By what the file says the output was, else by its own name; a name's runs in their order."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    tiled = relayout(X, "NCHW", "NC1HWC0")
    origin = tensor(tiled, form="NC1HWC0", original=X.shape, origin=("net/conv.1", 2))
    put(mine, 0, "Conv2D", "net/fused", [X], [origin])
    put(mine, 1, "Relu", "net/relu", (), [X])
    put(mine, 2, "Relu", "net/relu", (), [X + 1])
    put(mine, 3, "Relu", "net/relu", (), [X])
    save(golden, f"net_conv_1.2.{START}.npy", X)
    save(golden, f"net_relu.0.{START + 5}.npy", X + 1)
    save(golden, f"net_relu.0.{START + 1}.npy", X)
    save(golden, "left.over.1.npy", X)
    np.save(golden / f"Relu.net_relu.1.0.{START}.output.0.npy", X)  # of convert: no golden
    done = run(mine, golden, tmp_path / "out")
    assert header(done).count("Address") == 1 and header(done).count("DataType") == 2
    said = [
        (r["NPUDump"], r["GroundTruth"], r["ExactMatch"], r["PairedBy"], r["Verdict"])
        for r in rows(done)
    ]
    assert said == [
        ("net/fused", "NaN", "NaN", "NaN", "cannot_tell"),
        ("net/fused", "net/conv.1", "1.000000", "original op", "same"),
        ("net/relu", "net/relu", "1.000000", "name", "same"),
        ("net/relu", "net/relu", "1.000000", "name", "same"),
        ("net/relu", "NaN", "NaN", "NaN", "not_comparable"),
        ("NaN", f"Relu.net_relu.1.0.{START}.output.0.npy", "NaN", "NaN", "cannot_tell"),
        ("NaN", "left_over", "NaN", "NaN", "not_comparable"),
    ]
    assert f"golden    {golden} (4 npy files)" in done.stdout and done.exit_code == 1
    assert "1 that no file gives a place in golden" in done.stdout


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (2, 3, 2, 2)])
@pytest.mark.parametrize(
    "options", [(), ("-f", "ND"), ("-t", "msnpy"), ("-t", "msnpy", "-f", "ND")]
)
def test_what_convert_made_is_no_golden(tmp_path, shape, options):
    """Whatever form its name has; next to npy files of ops it is passed over, and that is said."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    value = np.full(shape, 2, "f4")
    for at, name in enumerate(["net/relu", "relu"]):
        put(mine, at, "Relu", name, [value], [value])
    arguments = ["convert", "-d", mine, "-out", golden, "-v", "2", *options]
    assert CliRunner().invoke(cli, [str(each) for each in arguments]).exit_code == 0
    made = {path.name for path in golden.iterdir()}
    assert len(made) == 4
    done = run(mine, golden, tmp_path / "out")
    assert done.exit_code == 2 and not (tmp_path / "out").exists()
    assert "4 npy files here are what convert made of CANN dumps" in done.stderr
    assert "compare the folders of CANN dumps themselves" in done.stderr
    for name in ("net_relu.0.npy", "relu.0.npy"):
        save(golden, name, value)
    done = run(mine, golden, tmp_path / "out")
    assert done.exit_code == 0 and f"{golden} (2 npy files)" in done.stdout, done.output
    assert "4 npy files that convert made of CANN dumps" in done.stdout
    passed = [row for row in rows(done) if row["VerdictCode"] == "converted"]
    assert {row["GroundTruth"] for row in passed} == made
    assert {row["Verdict"] for row in rows(done) if row not in passed} == {"same", "cannot_tell"}
    assert run(mine, golden, tmp_path / "out", "-map").exit_code == 0


@pytest.mark.parametrize(
    ("name", "op", "index"),
    [
        ("output.0.npy", "output", 0),
        ("net.output.0.npy", "net/output", 0),
        (f"output.2.{START}.npy", "output", 2),
        ("net.output.1.2.npy", "net/output/1", 2),
    ],
)
def test_an_op_may_be_called_output(tmp_path, name, op, index):
    """Only behind a dump's name does it say that `convert` was there."""
    put(tmp_path / "m", 0, "Relu", op, (), [X] * (index + 1))
    save(tmp_path / "g", name, X)
    found = rows(run(tmp_path / "m", tmp_path / "g", tmp_path / "out"))
    assert (found[index]["Verdict"], found[index]["PairedBy"]) == ("same", "name")


def test_fusion_rules_tell_outputs_and_inputs(tmp_path):
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Conv2D", "conv1conv1_relu", [X], [X + 1])
    put(mine, 1, "TransData", "trans_7", [X + 1], [tensor(X + 1)])
    put(mine, 2, "Pooling", "pool", [tensor(X + 1)], [X + 2, X])
    save(golden, "data.0.npy", X)
    save(golden, "net_conv1.0.npy", X)
    save(golden, "conv1_relu.0.npy", X + 1)
    save(golden, "pool.0.npy", X + 3)
    file = rules(
        tmp_path / "net.json",
        op("data", "Data"),
        op(
            "conv1conv1_relu",
            fused=("net/conv1", "conv1_relu"),
            outputs=[("conv1_relu", 0, "NCHW")],
            inputs=["data:0", "other:-1"],
        ),
        op("trans_7", "TransData", fused=(), inputs=["conv1conv1_relu:0"]),
        op("pool", fused=("pool",), outputs=[None, None], inputs=["conv1conv1_relu:0"]),
    )
    done = run(mine, golden, tmp_path / "out", "-f", file)
    said = [(r["TensorIndex"], r["GroundTruth"], r["Verdict"]) for r in rows(done)]
    assert said == [
        ("conv1conv1_relu:input:0", "data", "same"),
        ("conv1conv1_relu:output:0", "conv1_relu", "same"),
        ("trans_7:input:0", "conv1_relu", "same"),
        ("trans_7:output:0", "conv1_relu", "same"),  # which it hands on
        ("pool:input:0", "conv1_relu", "same"),
        ("pool:output:0", "pool", "differs"),
        ("pool:output:1", "NaN", "not_comparable"),
        ("net_conv1:output:0", "net_conv1", "cannot_tell"),
    ]
    assert {r["PairedBy"] for r in rows(done)} == {"fusion rules", "NaN"}
    assert "parts from equal inputs: Pooling pool, Index 3" in done.stdout
    reasons = [row["CompareFailReason"] for row in rows(done)]
    assert "part of conv1conv1_relu" in reasons[7]


def test_rules_with_what_atc_leaves_empty(tmp_path):
    """An absent input is '', ops that were fused may be [''], a format may be said elsewhere."""
    put(tmp_path / "m", 0, "Conv2D", "c", [X, X + 1], [tensor(X, form="NCHW")])
    put(tmp_path / "m", 1, "TransData", "t", (), [X])
    save(tmp_path / "g", "data.0.npy", X)
    save(tmp_path / "g", "late.0.npy", X + 1)
    save(tmp_path / "g", "c.0.npy", relayout(X, "NCHW", "NHWC"))
    conv = op("c", fused=("c",), outputs=[("c", 0, "")], inputs=["data:0", "", "late:0"])
    text = json.dumps(conv).replace('"attr": [{"key": "_datadump_origin_name"', (
        '"attr": [{"key": "origin_format", "value": {"s": "NHWC"}}, {"key": "_datadump_origin_name"'
    ))  # fmt: skip
    assert "NHWC" in text
    file = rules(
        tmp_path / "net.json", op("data"), op("late"), json.loads(text), op("t", fused=("",))
    )
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-f", file)
    said = [(r["TensorIndex"], r["GroundTruth"], r["Verdict"]) for r in rows(done)]
    assert said[:4] == [
        ("c:input:0", "data", "same"),
        ("c:input:1", "late", "same"),  # of an absent one nothing is in the file
        ("c:output:0", "c", "same"),
        ("t:output:0", "NaN", "cannot_tell"),
    ]


def test_an_original_that_its_operator_should_have_is_missed(tmp_path):
    """Names as files have them find their rules too, where they are one op's alone."""
    put(tmp_path / "m", 0, "Relu", "net_r", (), [X])
    save(tmp_path / "g", "r.0.npy", X)
    save(tmp_path / "g", "s_t.0.npy", X)
    file = rules(
        tmp_path / "net.json",
        op("net/r", fused=("q", "r"), outputs=[("r", 0, "NCHW")]),
        op("other", fused=("p", "s/t"), outputs=[("s/t", 0, "NCHW")]),
    )
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-f", file)
    said = [(r["TensorIndex"], r["Verdict"], r["PairedBy"]) for r in rows(done)]
    assert said == [
        ("net_r:output:0", "same", "fusion rules"),
        ("s_t:output:0", "not_comparable", "NaN"),
    ]


@pytest.mark.parametrize("form", ["NCHW", "NHWC", "HWCN"])
@pytest.mark.parametrize("known", ["golden's order", "order of the format"])
def test_rules_say_golden_order_of_axes(tmp_path, form, known):
    golden = relayout(X, "NCHW", form)
    original = golden.shape if known == "golden's order" else X.shape
    tiled = relayout(X, "NCHW", "NC1HWC0")
    put(tmp_path / "m", 0, "Relu", "r", (), [tensor(tiled, form="NC1HWC0", original=original)])
    save(tmp_path / "g", "r.0.npy", golden)
    file = rules(tmp_path / "net.json", op("r", fused=("r",), outputs=[("r", 0, form)]))
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-f", file)
    assert done.exit_code == 0 and rows(done)[0]["ExactMatch"] == "1.000000", done.output
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    assert done.exit_code == (0 if form == "NCHW" else 1)


def test_an_npy_that_cannot_be_read_costs_its_row(tmp_path):
    for name in "ab":
        put(tmp_path / "m", ord(name), "Relu", name, (), [X])
        save(tmp_path / "g", f"{name}.0.npy", X)
    (tmp_path / "g" / "a.0.npy").write_bytes(b"no npy")
    (tmp_path / "g" / "link.0.npy").symlink_to("/etc/hostname")
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out")
    found = rows(done)
    assert [row["ExactMatch"] for row in found] == ["NaN", "1.000000", "NaN"]
    assert "this is not an npy file" in found[0]["CompareFailReason"]
    assert "a link to a file elsewhere is not followed" in found[2]["CompareFailReason"]
    assert done.exit_code == 1


GOOD = op("r", fused=("r",), outputs=[("r", 0, "NCHW")], inputs=["d:0"])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no json"),
        ("[" * 100_000, "no json"),
        ('{"graph": ' + "9" * 5000 + "}", "no json"),
        ("[]", "the whole is not an object"),
        ("{}", "it lists no op"),
        ('{"graph": {}}', "graph of the whole is not a list"),
        ('{"graph": [{"op": [{"name": 1}]}]}', "the name of an op is not a text"),
        (json.dumps({"graph": [{"op": [{**GOOD, "input": ["d"]}]}]}), "names no output"),
        (json.dumps({"graph": [{"op": [{**GOOD, "input": ["d:" + "1" * 50]}]}]}), "is output 111"),
        (json.dumps({"graph": [{"op": [{**GOOD, "attr": [[]]}]}]}), "attribute of r is not"),
        (json.dumps({"graph": [{"op": [op("r" * 2000)]}]}), "has 2000 characters"),
        (
            json.dumps({"graph": [{"op": [op("r", fused="x", outputs=[("r" * 2000, 0, "")])]}]}),
            "_datadump_origin_name of r has 2000 characters",
        ),
        (
            json.dumps({"graph": [{"op": [op("r", outputs=[("r", -1, "NCHW")])]}]}),
            "_datadump_origin_output_index of r is -1",
        ),
        (
            json.dumps({"graph": [{"op": [op("r", outputs=[("r", "0", "NCHW")])]}]}),
            "_datadump_origin_output_index of r is not a whole number",
        ),
    ],
)
def test_rules_that_are_none(tmp_path, text, word):
    path = tmp_path / "net.json"
    path.write_text(text)
    with pytest.raises(DumpError, match="these are no fusion rules") as error:
        load(path)
    assert word in error.value.what
    with pytest.raises(DumpError, match="not a regular file"):
        load(tmp_path)


def test_rules_of_other_goldens_are_refused(tmp_path):
    for side in "mg":
        put(tmp_path / side, 0, "Relu", "r", (), [X])
    file = rules(tmp_path / "net.json", GOOD)
    done = run(tmp_path / "m", tmp_path / "g", tmp_path / "out", "-f", file)
    assert done.exit_code == 2 and "golden is a folder of CANN dumps" in done.stderr
    assert not (tmp_path / "out").exists()
