"""compare by fusion rules of two networks: -f with -cf, and -q with and without -f."""

import numpy as np
import pytest
from folders import op, put, rows, rules, run, save, tensor

from compare.folders.fusion import load

X = np.arange(24, dtype="f4").reshape(2, 3, 2, 2) - 11
RELU = np.maximum(X, 0)


def said(done):
    return [
        (r["TensorIndex"], r["GroundTruth"], r["Verdict"],
         r["VerdictCode"] if r["Verdict"] == "cannot_tell" else "", r["PairedBy"])
        for r in rows(done)
    ]  # fmt: skip


@pytest.fixture
def fused(tmp_path):
    """A network whose conv and relu are one operator with fusion and two without, and whose casts
    the compiler inserted; both with their rules."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Conv2D", "convrelu", [X], [RELU])
    put(mine, 1, "Pooling", "net/pool", [RELU], [RELU + 1])
    put(golden, 0, "Conv2D", "conv", [X], [X])
    put(golden, 1, "Relu", "relu", [X], [RELU])
    put(golden, 2, "Cast", "cast_3", [RELU], [RELU])
    put(golden, 3, "Pooling", "net/pool", [RELU], [RELU + 1])
    opened = rules(
        tmp_path / "on.json",
        op("data", "Data", ["data"], [("data", 0, "NCHW")]),
        op("convrelu", "Conv2D", ["conv", "relu"], [("relu", 0, "NCHW")], ["data:0"]),
        op("net/pool", "Pooling", ["net/pool"], [("net/pool", 0, "NCHW")], ["convrelu:0"]),
    )
    closed = rules(
        tmp_path / "off.json",
        op("data", "Data", ["data"], [("data", 0, "NCHW")]),
        op("conv", "Conv2D", ["conv"], [("conv", 0, "NCHW")], ["data:0"]),
        op("relu", "Relu", ["relu"], [("relu", 0, "NCHW")], ["conv:0"]),
        op("cast_3", "Cast", [], [None], ["relu:0"]),
        op("net/pool", "Pooling", ["net/pool"], [("net/pool", 0, "NCHW")], ["cast_3:0"]),
    )
    return mine, golden, ("-f", opened, "-cf", closed)


def test_a_fused_operator_against_the_ones_it_was_made_of(tmp_path, fused):
    mine, golden, files = fused
    done = run(mine, golden, tmp_path / "out", *files)
    by = "fusion rules"
    assert said(done) == [
        ("convrelu:input:0", "conv", "same", "", by),  # of data there is no file: what conv takes
        ("convrelu:output:0", "relu", "same", "", by),
        ("net/pool:input:0", "relu", "same", "", by),
        ("net/pool:output:0", "net/pool", "same", "", by),
        ("conv:output:0", "conv", "cannot_tell", "fused", "NaN"),
        ("cast_3:output:0", "cast_3", "cannot_tell", "repeated", "NaN"),
    ], done.output
    reasons = [row["CompareFailReason"] for row in rows(done)]
    assert "a part of convrelu" in reasons[4] and "1 inside fused" in done.stdout
    assert done.exit_code == 0 and "4 bit-equal" in done.stdout
    assert run(mine, golden, tmp_path / "out", *files, "-map").exit_code == 0
    put(golden, 4, "Data", "data", (), [X + 1])  # which goes before what others take of it
    assert said(run(mine, golden, tmp_path / "out", *files))[0][1:3] == ("data", "differs")


def test_where_a_fused_operator_is_wrong(tmp_path, fused):
    mine, golden, files = fused
    for path in mine.iterdir():
        path.unlink()
    put(mine, 0, "Conv2D", "convrelu", [X], [RELU + 0.5])
    put(mine, 1, "Pooling", "net/pool", [RELU + 0.5], [RELU + 1.5])
    done = run(mine, golden, tmp_path / "out", *files)
    assert "the first operator that parts from equal inputs: Conv2D convrelu" in done.stdout


def test_formats_of_two_compilations_are_brought_together(tmp_path, fused):
    from ir2tbe.relayout import relayout

    mine, golden, files = fused
    (path,) = (path for path in mine.iterdir() if "convrelu" in path.name)
    path.unlink()
    tiled = tensor(relayout(RELU, "NCHW", "NC1HWC0"), form="NC1HWC0", original=RELU.shape)
    put(mine, 0, "Conv2D", "convrelu", [tensor(X, form="NCHW")], [tiled])
    (path,) = (path for path in golden.iterdir() if path.name.startswith("Relu"))
    path.unlink()
    nhwc = tensor(np.ascontiguousarray(RELU.transpose(0, 2, 3, 1)), form="NHWC")
    put(golden, 1, "Relu", "relu", [X], [nhwc])
    done = run(mine, golden, tmp_path / "out", *files)
    assert said(done)[1] == ("convrelu:output:0", "relu", "same", "", "fusion rules")


def test_runs_and_golden_that_lacks_something(tmp_path, fused):
    mine, golden, files = fused
    put(mine, 5, "Pooling", "net/pool", [RELU], [RELU])
    put(mine, 6, "Unknown", "net/other", [X], [X])
    put(golden, 7, "Unknown", "net/other", [X], [X])
    (golden / next(p.name for p in golden.iterdir() if p.name.startswith("Relu"))).write_bytes(b"")
    done = run(mine, golden, tmp_path / "out", *files)
    found = {(row["Index"], row["TensorIndex"]): row for row in rows(done)}
    assert "net/pool:output:0" in found["3", "net/pool:output:0"]["CompareFailReason"]
    assert found["4", "net/other:output:0"]["PairedBy"] == "name"
    assert found["4", "net/other:input:0"]["VerdictCode"] == "unnamed"
    damaged = found["1", "convrelu:output:0"]
    assert damaged["Verdict"] == "not_comparable" and "Relu.relu" in damaged["CompareFailReason"]
    assert done.exit_code == 1


def test_rules_go_with_what_they_are_for(tmp_path, fused):
    mine, golden, (_, opened, _, closed) = fused
    npy = tmp_path / "npy"
    save(npy, "relu.0.npy", RELU)
    for other, options, word in [
        (
            golden,
            ("-f", opened),
            "only one of two networks has its fusion rules\n  where: -f/--fusion",
        ),
        (
            golden,
            ("-cf", closed),
            "only one of two networks has its fusion rules\n  where: -cf/--close",
        ),
        (golden, ("-q", closed), "golden is a folder of CANN dumps\n  where: -q/--quant"),
        (golden, ("-f", opened, "-cf", closed, "-q", closed), "golden is a folder of CANN dumps"),
        (
            npy,
            ("-f", opened, "-cf", closed),
            "golden is a folder of npy files\n  where: -cf/--close",
        ),
        (golden, ("-f", opened, "-cf", tmp_path / "no.json"), "no.json"),
        (golden, ("-f", opened, "-cf", npy / "relu.0.npy"), "these are no fusion rules"),
    ]:
        done = run(mine, other, tmp_path / "out", *options)
        assert done.exit_code == 2 and word in done.stderr, (options, done.output)
        assert not (tmp_path / "out").exists()


def quantized(path):
    """conv is quantized: quant, conv in int8, dequant; pool after it works in floats again."""
    return rules(
        path,
        op("data", "Data", ["data"], [("data", 0, "NCHW")], (), ["DT_FLOAT16"]),
        op("q", "AscendQuant", ["conv_quant"], [("conv_quant", 0, "NCHW")], ["data:0"],
           ["DT_INT8"]),
        op("conv", "Conv2D", ["conv"], [("conv", 0, "NCHW")], ["q:0", "w:0"], ["DT_INT32"]),
        op("w", "Const", [], [None], (), ["DT_INT8"]),
        op("d", "AscendDequant", ["conv_dequant"], [("conv_dequant", 0, "NCHW")], ["conv:0"],
           ["DT_FLOAT16"]),
        op("pool", "Pooling", ["pool"], [("pool", 0, "NCHW")], ["d:0"], ["DT_FLOAT16"]),
    )  # fmt: skip


def before(path):
    """AMCT's json: what the quantized network's ops were before."""
    return rules(
        path,
        op("conv_quant", "Quant", [], [None], ["data:0"]),
        op("conv", "Convolution", ["conv"], [None], ["conv_quant:0"]),
        op("conv_dequant", "DeQuant", ["conv"], [("conv", 0, "")], ["conv:0"]),
        op("pool", "Pooling", ["pool"], [("pool", 0, "")], ["conv_dequant:0"]),
    )


def test_a_quantized_network_against_the_one_before(tmp_path):
    """What is between quant and dequant is nobody's fault; what comes out of dequant is compared
    with the op that was quantized."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    y, z = X * 2, X * 3
    put(mine, 0, "AscendQuant", "q", [X], [X.astype("i1")])
    put(mine, 1, "Conv2D", "conv", [X.astype("i1"), X.astype("i1")], [X.astype("i4")])
    put(mine, 2, "AscendDequant", "d", [X.astype("i4")], [y + 0.25])
    put(mine, 3, "Pooling", "pool", [y + 0.25], [z])
    for name, array in {"data": X, "conv": y, "pool": z}.items():
        save(golden, f"{name}.0.npy", array)
    files = "-f", quantized(tmp_path / "f.json"), "-q", before(tmp_path / "q.json")
    done = run(mine, golden, tmp_path / "out", *files)
    assert said(done) == [
        ("q:input:0", "data", "same", "", "fusion rules"),
        ("q:output:0", "NaN", "cannot_tell", "quantized", "NaN"),
        ("conv:input:0", "NaN", "cannot_tell", "quantized", "NaN"),
        ("conv:input:1", "NaN", "cannot_tell", "unnamed", "NaN"),
        ("conv:output:0", "NaN", "cannot_tell", "quantized", "NaN"),
        ("d:input:0", "NaN", "cannot_tell", "quantized", "NaN"),
        ("d:output:0", "conv", "differs", "", "fusion rules"),
        ("pool:input:0", "conv", "differs", "", "fusion rules"),
        ("pool:output:0", "pool", "same", "", "fusion rules"),
    ], done.output
    assert done.exit_code == 1 and "4 quantized, which golden has not" in done.stdout
    chinese = run(mine, golden, tmp_path / "out", *files, "--lang", "zh").stdout
    assert "4 个为量化值" in chinese


def test_a_quantized_network_against_itself_before_it_was_compiled(tmp_path):
    """-f alone: golden is the quantized network, whose ops have other integers."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "AscendDequant", "d", [X.astype("i4")], [X])
    save(golden, "conv_dequant.0.npy", X)
    done = run(mine, golden, tmp_path / "out", "-f", quantized(tmp_path / "f.json"))
    assert [row[3] for row in said(done)] == ["quantized", ""] and done.exit_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "fused", "dtype", "holds"),
    [
        ("AscendQuant", "x", None, "DT_INT8", True),
        ("AscendQuant", "x", None, "DT_FLOAT16", False),
        ("Quant", "conv1_quant_layer", None, "DT_INT8", True),
        ("Relu", "x", ["a/AscendQuant"], "DT_INT8", True),
        ("Relu", "x", ["a.quant"], "DT_INT8", True),
        ("Relu", "x", ["a.quant"], "", True),
        ("Relu", "a.quantizer", None, "DT_INT8", False),
        ("Relu", "vq.quant_conv", None, "DT_INT8", False),
        ("Relu", "a.quant_1", None, "DT_INT8", True),
        ("Relu", "conv1_dequant_layer", None, "DT_INT8", False),
        ("Relu", "x", None, "DT_INT8", False),
    ],
)
def test_what_quantizes(tmp_path, kind, name, fused, dtype, holds):
    file = rules(
        tmp_path / "r.json",
        op("after", "Cast", None, [None], [f"{name}:0"], ["DT_FLOAT16"]),
        op(name, kind, fused, [None], ["data:0"], [dtype]),
    )
    found = load(file)
    assert found.is_quantized(name, "output", 0) is holds
    assert found.is_quantized("after", "input", 0) is holds
    assert found.is_quantized("after", "output", 0) is holds  # a cast does not dequantize
    assert not found.is_quantized("data", "output", 0)


@pytest.mark.parametrize(
    ("kind", "name", "dtype", "holds"),
    [
        ("AscendDequant", "x", "DT_FLOAT16", False),
        ("AscendDequant", "x", "DT_BF16", False),
        ("AscendDequant", "x", "", False),
        ("AscendDequant", "x", "DT_INT8", True),
        ("Relu", "x.dequant", "DT_FLOAT", False),
        ("Relu", "x_anti_quant_layer", "DT_FLOAT16", False),
        ("Relu", "x_anti_quant_layer", "DT_INT8", True),
        ("Cast", "x", "DT_FLOAT16", True),
    ],
)
def test_what_dequantizes(tmp_path, kind, name, dtype, holds):
    file = rules(
        tmp_path / "r.json",
        op("q", "AscendQuant", None, [None], ["data:0"], ["DT_INT8"]),
        op(name, kind, None, [None], ["q:0"], [dtype]),
        op("ring", "While", None, [None], [f"{name}:0", "ring:0"], [""]),
    )
    found = load(file)
    assert found.is_quantized(name, "output", 0) is holds
    assert found.is_quantized("ring", "output", 0) is holds


def test_npy_files_of_a_quantized_network(tmp_path):
    """-q alone: both sides are npy files of ops."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    for name, array in {
        "conv_dequant": X, "pool": X + 1, "only": X, "conv_quant": X, "conv": X, "same": X
    }.items():  # fmt: skip
        save(mine, f"{name}.0.npy", array)
    for name, array in {"conv": X, "pool": X, "same": X, "left": X, "bad": X}.items():
        save(golden, f"{name}.0.npy", array)
    np.save(mine / "what.npy", X)
    (mine / "bad.0.npy").write_bytes(b"no npy")
    file = before(tmp_path / "q.json")
    done = run(mine, golden, tmp_path / "out", "-q", file)
    found = {(r["NPUDumpPath"], r["GroundTruthPath"]): r for r in rows(done)}
    assert found["conv_dequant.0.npy", "conv.0.npy"]["Verdict"] == "same", done.output
    assert found["pool.0.npy", "pool.0.npy"]["Verdict"] == "differs"
    assert found["same.0.npy", "same.0.npy"]["Verdict"] == "same"
    assert found["only.0.npy", "NaN"]["Verdict"] == "not_comparable"
    assert found["conv_quant.0.npy", "NaN"]["VerdictCode"] == "inserted"
    assert found["NaN", "left.0.npy"]["Verdict"] == "not_comparable"
    assert found["what.npy", "NaN"]["Verdict"] == "not_comparable"
    assert "bad.0.npy" in found["bad.0.npy", "bad.0.npy"]["CompareFailReason"]
    assert done.exit_code == 1
    two = run(mine / "pool.0.npy", golden / "pool.0.npy", tmp_path / "o2", "-q", file)
    assert two.exit_code == 2 and "these are two files\n  where: -q" in two.stderr
    for root, other in ((mine, golden), (golden, mine)):
        (tmp_path / "none").mkdir(exist_ok=True)
        np.save(tmp_path / "none" / "some.npy", X)
        sides = (tmp_path / "none", other) if root is mine else (other, tmp_path / "none")
        refused = run(*sides, tmp_path / "o2", "-q", file)
        assert refused.exit_code == 2 and "no npy file that is called like" in refused.stderr
    more = run(mine, golden, tmp_path / "o2", "-q", file, "-max", "3")
    assert more.exit_code == 2 and not (tmp_path / "o2").exists()
