"""What fusion rules say of each tensor: names, formats, absent inputs, inserted and split ops."""

import json

import numpy as np
import pytest
from folders import op, put, rows, rules, run, save, tensor

from compare.folders.fusion import load
from ir2tbe.relayout import relayout

X = np.arange(24, dtype="f4").reshape(2, 3, 2, 2) - 11


def said(done):
    return {
        r["TensorIndex"]: (r["GroundTruth"], r["Verdict"], r["VerdictCode"]) for r in rows(done)
    }


def of(path, name, where="output", index=0, count=1):
    """(name, index) that the rules say a tensor was, or None."""
    loaded = load(path)
    made = (name, index) if where == "output" else loaded.maker(name, index, count)
    found = made and loaded.output(*made)
    return found and found[:2]


def test_an_op_of_which_several_became_is_no_ones_alone(tmp_path):
    """Only the piece that is called so has its result."""
    file = rules(
        tmp_path / "r.json",
        op("soft_1", "Split", ["soft"], [None], ["data:0"]),
        op("soft_2", "Join", ["soft"], [("soft", 0, "")], ["soft_1:0"]),
        op("alone_1", "Relu", ["alone"], [None], ["soft_2:0"]),
    )
    assert of(file, "soft_1") is None and of(file, "soft_2", "input") is None
    assert of(file, "soft_2") == ("soft", 0) and of(file, "alone_1") == ("alone", 0)


def test_what_a_compiler_inserts_hands_on_what_it_is_given(tmp_path):
    file = rules(
        tmp_path / "r.json",
        op("conv", "Conv2D", ["conv"], [("conv", 0, "NCHW")], ["data:0"]),
        op("t", "TransData", [], [None], ["conv:0"]),
        op("c", "Cast", [], [None], ["t:0"]),
        op("relu", "Relu", ["relu"], [("relu", 0, "")], ["c:0"]),
        op("own", "Cast", ["own"], [("own", 0, "")], ["conv:0"]),
        op("other", "Reshape", [], [None], ["conv:0"]),
        op("ring", "Cast", [], [None], ["ring:0"]),
        op("given", "Cast", [], [("late", 3, "")], ["conv:0"]),
    )
    assert of(file, "relu", "input") == of(file, "c") == of(file, "t") == ("conv", 0)
    assert of(file, "own") == ("own", 0) and of(file, "given") == ("late", 3)
    assert of(file, "other") is None and of(file, "ring") is None


@pytest.mark.parametrize(
    ("count", "makers"),
    [(3, ["a", "b", "c"]), (4, ["a", None, "b", "c"]), (2, [None, None]), (9, [None])],
)
def test_absent_inputs_are_in_the_file_or_not(tmp_path, count, makers):
    """How many inputs a file has tells which."""
    ops = [op(name, "Data", [name], [(name, 0, "")]) for name in "abc"]
    file = rules(tmp_path / "r.json", *ops, op("x", inputs=["a:0", "", "b:0", "c:0", "z:-1"]))
    found = [of(file, "x", "input", i, count) for i in range(len(makers))]
    assert found == [name and (name, 0) for name in makers]


def test_outputs_without_an_index_are_where_they_stand(tmp_path):
    two = op("x", "Split", ["s"], [("s", 0, ""), ("s", 0, "")])
    for desc in two["output_desc"]:
        desc["attr"] = [each for each in desc["attr"] if not each["key"].endswith("output_index")]
    empty = op("y", "Split", ["q"], [("q", 0, ""), ("q", 0, "")])
    for desc in empty["output_desc"]:
        desc["attr"][1]["value"] = {}
    file = rules(tmp_path / "r.json", two, empty)
    assert [of(file, "x", index=i) for i in range(2)] == [("s", 0), ("s", 1)]
    assert [of(file, "y", index=i) for i in range(2)] == [("q", 0), ("q", 0)]


def test_a_format_may_stand_without_a_name(tmp_path):
    mine, golden = tmp_path / "m", tmp_path / "g"
    tiles = tensor(relayout(X, "NCHW", "NC1HWC0"), form="NC1HWC0", original=X.shape)
    put(mine, 0, "Conv2D", "conv", (), [tiles])
    save(golden, "conv.0.npy", relayout(X, "NCHW", "NHWC"))
    nameless = op("conv", "Conv2D", ["conv"], [("", 0, "NHWC")])
    done = run(mine, golden, tmp_path / "out", "-f", rules(tmp_path / "r.json", nameless))
    assert said(done) == {"conv:output:0": ("conv", "same", "bit_equal")}


def test_operators_that_share_the_first_cache_hold_parts(tmp_path):
    """What goes in and all but the last of what comes out is nobody's fault."""

    def grouped(*args):
        found = op(*args)
        found["attr"].append({"key": "_L1_fusion_sub_graph_no", "value": {"s": "0_1"}})
        return found

    file = rules(
        tmp_path / "r.json",
        op("data", "Data", ["data"], [("data", 0, "")]),
        *[
            grouped(f"{name}_{k}", "Conv2D", [name.upper()], [(name.upper(), 0, "")], [given])
            for k in (1, 2)
            for name, given in (("a", "data:0"), ("b", f"a_{k}:0"))
        ],
    )
    mine, golden = tmp_path / "m", tmp_path / "g"
    for at, name in enumerate(["a_1", "b_1", "a_2", "b_2"]):
        put(mine, at, "Conv2D", name, [X], [X])
    for name in ("data", "A", "B"):
        save(golden, f"{name}.0.npy", X)
    done = run(mine, golden, tmp_path / "out", "-f", file)
    found = said(done)
    assert [found[f"{name}:output:0"][2] for name in ("a_1", "b_1", "a_2", "b_2")] == [
        "fused", "fused", "bit_equal", "bit_equal"
    ]  # fmt: skip
    assert {found[f"{name}:input:0"][2] for name in ("a_1", "b_1", "a_2", "b_2")} == {"fused"}


GRAPH = "partition0_rank2_new_sub_graph15_sgt_graph_0/"


@pytest.mark.parametrize("names", [
    [f"{GRAPH}net/conv_lxslice0", f"{GRAPH}net/conv_lxslice1"],
    ["net/conv_lxslice0", "net/conv_lxslice1"],
    [f"{GRAPH}net/conv"],
    ["net/conv"],
])  # fmt: skip
def test_threads_are_found_by_any_of_their_names(tmp_path, names):
    file = rules(
        tmp_path / "r.json",
        op("data", "Data", ["data"], [("data", 0, "")]),
        *[
            op(name, "Conv2D", ["net/conv", "net/relu"], [("net/relu", 0, "")], ["data:0"])
            for name in names
        ],
    )
    loaded = load(file)
    for name in ("net/conv", "net_conv", *names):
        assert name in loaded and loaded.output(name, 0)[:2] == ("net/relu", 0)
        assert loaded.output(*loaded.maker(name, 0, 1))[:2] == ("data", 0)
    assert loaded.fused_into("net_conv") in names


def test_threads_that_disagree_are_found_by_their_own_names_only(tmp_path):
    file = rules(
        tmp_path / "r.json",
        op("c_lxslice0", "Conv2D", ["a"], [("a", 0, "")]),
        op("c_lxslice1", "Conv2D", ["b"], [("b", 0, "")]),
    )
    assert "c" not in load(file) and of(file, "c_lxslice1") == ("b", 0)


def test_a_file_form_that_another_op_claims_is_no_inner_op(tmp_path):
    file = rules(
        tmp_path / "r.json",
        op("conv", "Conv2D", ["a/b", "c"], [("c", 0, "")]),
        op("a_b", "Add", ["a_b"], [("a_b", 0, "")]),
    )
    assert load(file).fused_into("a_b") is None


def test_ops_that_are_listed_again_are_said(tmp_path):
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Relu", "a", (), [X])
    save(golden, "x.0.npy", X)
    file = rules(
        tmp_path / "r.json", op("a", "Relu", ["x"], [("x", 0, "")]),
        op("a", "Relu", ["x"], [("x", 0, "")]), op("a", "Relu", ["y"], [("y", 0, "")]),
    )  # fmt: skip
    done = run(mine, golden, tmp_path / "out", "-f", file)
    assert said(done)["a:output:0"][:2] == ("x", "same")
    assert "lists 1 ops again and otherwise, first a" in done.stderr


def test_rules_of_another_network_are_said(tmp_path):
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Relu", "a", (), [X])
    save(golden, "a.0.npy", X)
    file = rules(tmp_path / "r.json", op("b", "Relu", ["b"], [("b", 0, "")]))
    done = run(mine, golden, tmp_path / "out", "-f", file)
    assert "has none of the operators in" in done.stderr and done.exit_code == 0


@pytest.mark.parametrize(
    ("size", "fused"), [(2_000, 1_000), (1, 1)]
)  # a region is walked once, whatever hangs on it
def test_a_dense_quantized_region_takes_no_time(tmp_path, size, fused):
    outputs = [None] * size
    file = rules(
        tmp_path / "r.json",
        op("q", "AscendQuant", None, outputs, ["data:0"], ["DT_INT8"] * size),
        op("b", "Concat", [f"n{i}" for i in range(fused)], outputs,
           [f"q:{i}" for i in range(size)], ["DT_INT8"] * size),
    )  # fmt: skip
    assert load(file).is_quantized("b", "output", size - 1)


def test_shapes_of_quantized_values_are_none(tmp_path):
    file = rules(
        tmp_path / "r.json",
        op("q", "AscendQuant", None, [None], ["data:0"], ["DT_INT8"]),
        op("s", "Shape", None, [None], ["q:0"], ["DT_INT32"]),
        op("r", "Reshape", ["r"], [None], ["data:0", "s:0"], ["DT_FLOAT"]),
    )
    assert not load(file).is_quantized("s", "output", 0)
    assert not load(file).is_quantized("r", "output", 0)


def test_integers_that_a_dequantizing_op_is_given_are_quantized(tmp_path):
    """Whoever has made them."""
    file = rules(
        tmp_path / "r.json",
        op("conv", "Conv2D", ["conv"], [None], ["data:0"], ["DT_INT32"]),
        op("scale", "Const", None, [None], (), ["DT_FLOAT"]),
        op("d", "AscendDequant", None, [None], ["conv:0", "scale:0"], ["DT_FLOAT16"]),
    )
    loaded = load(file)
    assert loaded.is_quantized("conv", "output", 0) and loaded.is_quantized("d", "input", 0, 2)
    assert not loaded.is_quantized("scale", "output", 0)
    assert not loaded.is_quantized("d", "output", 0)


def test_two_sides_of_a_quantized_network_are_compared(tmp_path):
    """-f alone, golden has the same integers."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    whole = X.astype("i1")
    put(mine, 0, "AscendQuant", "q", [X], [whole])
    save(golden, "conv_quant.0.npy", whole)
    save(golden, "data.0.npy", X)
    file = rules(
        tmp_path / "r.json",
        op("data", "Data", ["data"], [("data", 0, "")]),
        op("q", "AscendQuant", ["conv_quant"], [("conv_quant", 0, "")], ["data:0"], ["DT_INT8"]),
    )
    done = run(mine, golden, tmp_path / "out", "-f", file)
    assert said(done)["q:output:0"][:2] == ("conv_quant", "same") and done.exit_code == 0
    save(golden, "conv_quant.0.npy", X)  # floats that stand for themselves
    done = run(mine, golden, tmp_path / "out", "-f", file)
    assert said(done)["q:output:0"] == ("conv_quant", "cannot_tell", "quantized")
    assert done.exit_code == 0 and json.loads(file.read_text())


def test_an_op_that_computes_floats_of_integers_has_dequantized_them(tmp_path):
    """Whatever it is called; what only casts has not."""
    file = rules(
        tmp_path / "r.json",
        op("q", "AscendQuant", None, [None], ["data:0"], ["DT_INT8"]),
        op("mm", "QuantBatchMatmulV3", ["mm"], [None], ["q:0", "w:0"], ["DT_FLOAT16"]),
        op("relu", "Relu", ["relu"], [None], ["mm:0"], ["DT_FLOAT16"]),
        op("cast", "Cast", [], [None], ["q:0"], ["DT_FLOAT16"]),
        op("pool", "MaxPool", ["pool"], [None], ["cast:0"], ["DT_FLOAT16"]),
        op("arg", "ArgMax", ["arg"], [None], ["q:0"], ["DT_INT32"]),
        op("gather", "Gather", ["gather"], [None], ["data:0", "arg:0"], ["DT_FLOAT"]),
    )
    found = {name for name in ("q", "mm", "relu", "cast", "pool", "arg", "gather")
             if load(file).is_quantized(name, "output", 0)}  # fmt: skip
    assert found == {"q", "cast", "pool", "arg"}


def test_constants_that_a_dequantizing_op_is_given_are_none(tmp_path):
    file = rules(
        tmp_path / "r.json",
        op("shape", "Const", None, [None], (), ["DT_INT32"]),
        op("f", "Conv2D", ["conv", "conv_dequant_layer"], [("conv", 0, "")], ["shape:0"],
           ["DT_FLOAT"]),
        op("r", "Reshape", ["r"], [None], ["data:0", "shape:0"], ["DT_FLOAT"]),
    )  # fmt: skip
    assert not any(load(file).is_quantized(name, "output", 0) for name in ("shape", "f", "r"))


def test_ops_without_names_are_what_amct_says(tmp_path):
    """-f says nothing of conv and conv_scale, -q that both became of conv."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "Conv2D", "conv", (), [X + 9])
    put(mine, 1, "Mul", "conv_scale", (), [X])
    save(golden, "conv.0.npy", X)
    first = rules(tmp_path / "f.json", op("conv", "Conv2D"), op("conv_scale", "Mul"))
    second = rules(
        tmp_path / "q.json",
        op("conv", "Conv2D", ["conv"], [None]),
        op("conv_scale", "Mul", ["conv"], [("conv", 0, "")]),
    )
    done = run(mine, golden, tmp_path / "out", "-f", first, "-q", second)
    assert said(done) == {
        "conv:output:0": ("NaN", "cannot_tell", "unnamed"),
        "conv_scale:output:0": ("conv", "same", "bit_equal"),
    }
    assert done.exit_code == 0


def test_what_is_excused_is_no_finding(tmp_path):
    """A quantized value with integers here and floats in golden."""
    mine, golden = tmp_path / "m", tmp_path / "g"
    put(mine, 0, "AscendQuant", "q", [X], [X.astype("i1")])
    for name in ("data", "conv"):
        save(golden, f"{name}.0.npy", X)
    file = rules(
        tmp_path / "r.json",
        op("data", "Data", ["data"], [("data", 0, "")]),
        op("q", "AscendQuant", ["conv"], [("conv", 0, "")], ["data:0"], ["DT_INT8"]),
    )
    done = run(mine, golden, tmp_path / "out", "-f", file, "-advisor")
    assert said(done)["q:output:0"] == ("conv", "cannot_tell", "quantized")
    assert "nothing differs" in done.stdout and "0 not comparable" in done.stdout
    assert "Operator Index: NA" in done.stdout and done.exit_code == 0


@pytest.mark.parametrize("agree", [True, False])
@pytest.mark.parametrize("slice", ["", "_lxslice0"])
def test_an_op_in_two_graphs(tmp_path, agree, slice):
    """Files have the graph in their names, which the rules do too."""
    names = [f"p_sgt_graph_{k}/net/relu{slice}" for k in range(2)]
    files = [
        op(name, "Relu", [f"r{0 if agree else k}"], [(f"r{0 if agree else k}", 0, "")])
        for k, name in enumerate(names)
    ]
    mine, golden = tmp_path / "m", tmp_path / "g"
    for k, name in enumerate(names):
        path = put(mine, k, "Relu", name, (), [X + k])
        path.rename(f"{path}.4.3{k}.0.0")
        save(golden, f"r{0 if agree else k}.0.167338372809344{k}.npy", X + k)
    done = run(mine, golden, tmp_path / "out", "-f", rules(tmp_path / "r.json", *files))
    assert [row["Verdict"] for row in rows(done)] == ["same"] * 2 and done.exit_code == 0
    assert "has none of the operators" not in done.stderr


def test_the_format_is_no_part_of_what_a_group_makes(tmp_path):
    grouped = [
        op(name, "Conv2D", ["A"], [("A", 0, form)])
        for name, form in (("a_1", "ND"), ("a_2", "NCHW"))
    ]
    for each in grouped:
        each["attr"].append({"key": "_L1_fusion_sub_graph_no", "value": {"s": "0_1"}})
    loaded = load(rules(tmp_path / "r.json", *grouped))
    assert [loaded.is_inside(name, "output", 0) for name in ("a_1", "a_2")] == [True, False]


def test_slices_that_no_op_is_named_for(tmp_path):
    """They are of the op that they are called after."""
    file = rules(tmp_path / "r.json", *[op(f"b_lxslice{k}", "Relu") for k in range(2)])
    assert of(file, "b") == of(file, "b_lxslice1") == ("b", 0)
    second = rules(tmp_path / "q.json", op("b", "Relu", ["x"], [("y", 0, "")]))
    composed = load(file).before(load(second))
    assert composed.output("b", 0)[:2] == ("y", 0)


def test_many_casts_of_one_value_take_no_time(tmp_path):
    casts = [op(f"c{k}", "Cast", [], [None], ["a:0"]) for k in range(20_000)]
    first = op("a", "Relu", ["a"], [("a", 0, "")])
    loaded = load(rules(tmp_path / "r.json", first, *casts))
    assert loaded.output("c19999", 0)[:2] == ("a", 0)
