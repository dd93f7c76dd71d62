"""Files of FFTS+ threads: which thread's they are, and the operator put together."""

import json
from dataclasses import replace

import numpy as np
import pytest
from folders import tensor
from hypothesis import given
from hypothesis import strategies as st

from dumper.errors import DumpError
from ir2tbe.cann.content import Dump
from ir2tbe.cann.joining import joined
from ir2tbe.cann.names import parse
from ir2tbe.cann.threads import of_thread, split_of, thread_of, whole_name

X = np.arange(60, dtype="f4").reshape(4, 5, 3)


@pytest.mark.parametrize(
    ("name", "thread", "whole"),
    [
        ("Conv2D.conv_1.2.9.1670205069987341.4.330.3.0", 3, "conv_1"),
        ("Conv2D.conv_lxslice1.2.9.1670205069987341.4.330.0.0", 1, "conv"),
        ("Conv2D.conv_lxslice12_trans.2.9.1670205069987341.4.330.0.0", 12, "conv_trans"),
        ("Conv2D.p0_new_sub_graph15_sgt_graph_0_vars_conv.2.9.1670205069987341.4.330.0.0", 0,
         "vars_conv"),
        ("Conv2D.conv.2.9.1670205069987341.4.330.65535.0", None, "conv"),
        ("Conv2D.conv.2.9.1670205069987341.0.330.0.0", None, "conv"),
        ("Conv2D.conv_lxslice0.2.9.1670205069987341", None, "conv"),
        ("Conv2D.sgt_graph_3.2.9.1670205069987341", None, "sgt_graph_3"),
    ],
)  # fmt: skip
def test_names_say_which_thread(name, thread, whole):
    found = parse(name)
    assert (thread_of(found), whole_name(found.op_name)) == (thread, whole)


def said(**what):
    return (("_sgt", json.dumps({"threadMode": True, **what})),)


def ranges(*windows):
    """One tensor, by thread: (start, stop) by axis."""
    return [[[{"lower": a, "higher": b} for a, b in window]] for window in windows]


def automatic(windows, array=X, **more):
    """A file a thread, whose shape is the whole one's."""
    slices = ranges(*windows)
    kept = said(slice_instance_num=len(windows), output_tensor_slice=slices,
                input_tensor_slice=slices, **more)  # fmt: skip
    for window in windows:
        part = tensor(np.ascontiguousarray(array[tuple(slice(*each) for each in window)]))
        part = replace(part, shape=array.shape)
        yield Dump((part,), (part,), op_name="net/sgt_graph_0/conv", attributes=kept)


@st.composite
def cuts(draw):
    """Windows along one axis that leave nothing out, and may overlap; or the whole, each time."""
    axis, threads = draw(st.integers(0, 2)), draw(st.integers(1, 3))
    size = X.shape[axis]
    ends = sorted(draw(st.sets(st.integers(1, size - 1), min_size=threads - 1, max_size=2)))
    ends = [*ends[: threads - 1], size]
    begins = [max(0, end - draw(st.integers(0, 2))) for end in [0, *ends[:-1]]]
    if draw(st.booleans()):
        return [[(0, n) for n in X.shape]] * threads
    return [
        [(a, b) if at == axis else (0, n) for at, n in enumerate(X.shape)]
        for a, b in zip(begins, ends, strict=True)
    ]


@given(cuts())
def test_parts_of_automatic_threads_are_put_together(windows):
    files = list(automatic(windows))
    whole = joined(files, range(len(files)))
    assert whole.op_name == "conv" and whole.attributes == ()
    for side in (*whole.inputs, *whole.outputs):
        assert side.shape == X.shape and np.array_equal(side.values(), X)
    for at, window in enumerate(windows):
        name = parse(f"Conv2D.conv.2.9.1670205069987341.4.330.{at}.0")
        (part,) = of_thread(files[at], name).outputs
        assert np.array_equal(part.values(), X[tuple(slice(*each) for each in window)])


@given(st.integers(0, 2), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_parts_of_named_slices_are_put_together(axis, sizes):
    """They have shapes of their own, and the number of cuts says along which axis."""
    shape = [2, 3, 4]
    shape[axis] = sum(sizes)
    values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    counts = [len(sizes) if at == axis else 1 for at in range(3)]
    kept = said(threadMode=False, slice_instance_num=len(sizes), outputCutList=[counts, [1, 1]])
    files = [
        Dump((), (tensor(part), tensor(X)), op_name=f"conv_lxslice{at}", attributes=kept)
        for at, part in enumerate(np.split(values, np.cumsum(sizes)[:-1], axis))
    ]
    whole = joined(files, range(len(files)))
    assert whole.op_name == "conv"
    assert np.array_equal(whole.outputs[0].values(), values)
    assert np.array_equal(whole.outputs[1].values(), X)


@pytest.mark.parametrize("kind", ["int4", "bfloat16", "bool", "uint1"])
def test_every_dtype_is_put_together(kind):
    from ir2tbe.cann.types import BY_NAME

    dtype = BY_NAME[kind].values
    whole = (np.arange(32) % 2).astype(dtype)
    windows = [[(0, 16)], [(16, 32)]]
    files = [
        replace(file, outputs=(replace(tensor(whole[a:b], kind), shape=(32,)),), inputs=())
        for file, ((a, b),) in zip(automatic(windows, whole), windows, strict=True)
    ]
    (found,) = joined(files, [0, 1]).outputs
    assert found.values().tobytes() == whole.tobytes() and found.values().dtype == dtype


def test_a_file_that_says_nothing_is_as_it_lies():
    file = Dump((), (tensor(X),), op_name="a_lxslice0", attributes=(("attributes", "{}"),))
    assert split_of(file) is None and joined([file], [0]).op_name == "a"
    assert joined([file], [0]).outputs[0].values() is not None
    name = parse("Conv2D.a.2.9.1670205069987341.4.330.0.0")
    assert of_thread(file, name) is file
    (whole,) = automatic([[(0, 4), (0, 5), (0, 3)]])
    assert of_thread(whole, parse("Conv2D.a.2.9.1670205069987341")) is whole


HALVES = [[(0, 2), (0, 5), (0, 3)], [(2, 4), (0, 5), (0, 3)]]


@pytest.mark.parametrize(
    ("files", "threads", "words"),
    [
        (lambda a, b: [a], [0], "of its 2 threads these left a file: 0\n"),
        (lambda a, b: [a, b], [0, 2], "these left a file: 0, 2\n"),
        (lambda a, b: [replace(a, attributes=()), b], [0, 1], "do not say how it was split"),
        (lambda a, b: [a, replace(b, outputs=())], [0, 1], "differ in how many outputs"),
    ],
)
def test_what_is_no_whole_operator(files, threads, words):
    with pytest.raises(DumpError, match=words) as raised:
        joined(files(*automatic(HALVES)), threads)
    assert "-ffts" in raised.value.todo


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"output_tensor_slice": ranges([(0, 2), (0, 5), (0, 3)], [(3, 4), (0, 5), (0, 3)])},
         "takes 60 bytes|no thread has some|there are"),
        ({"output_tensor_slice": ranges([(0, 2), (0, 5), (0, 3)], [(0, 2), (0, 5), (0, 3)])}, None),
        ({"output_tensor_slice": []}, "which part of it each of 2 threads has is not said"),
        ({"output_tensor_slice": "no"}, "which part of it"),
        ({"output_tensor_slice": [[[{"lower": 0}]], [[{"higher": True, "lower": 1}]]]},
         "which part of it"),
        ({"output_tensor_slice": ranges([(0, 2)], [(2, 4), (0, 5)])}, "differ in axes"),
        ({"output_tensor_slice": ranges([(0, 1 << 61)], [(0, 1 << 61)])}, "."),
        ({"output_tensor_slice": ranges([(0, 1 << 40), (0, 8)], [(0, 1), (0, 8)])}, "."),
        ({"output_tensor_slice": ranges([(1, 3), (0, 5), (0, 3)], [(3, 5), (0, 5), (0, 3)])},
         "no thread has some"),
        ({"output_tensor_slice": [], "outputCutList": [[2, 2, 1]]}, "which part of it"),
        ({"output_tensor_slice": [], "outputCutList": [[1, 1, 1, 1, 2]]}, "which part of it"),
        ({"output_tensor_slice": [], "outputCutList": [[1, 1, "x"]]}, "which part of it"),
        ({"output_tensor_slice": [], "outputCutList": 7}, "which part of it"),
    ],
)  # fmt: skip
def test_a_tensor_that_cannot_be_put_together_says_so(more, words):
    """When its values are asked for; the operator's other tensors are there."""
    first, second = automatic(HALVES)
    content = json.loads(first.attributes[0][1])
    kept = (("x", json.dumps({**content, **more})),)
    whole = joined([replace(each, attributes=kept) for each in (first, second)], [0, 1])
    assert np.array_equal(whole.inputs[0].values(), X)
    if words is None:
        assert whole.outputs[0].shape == (2, 5, 3)  # as both say
        return
    with pytest.raises(DumpError, match=words):
        whole.outputs[0].values()


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["threadMode", "slice_instance_num", "output_tensor_slice",
                                       "outputCutList", "lower", "higher"]), inner, max_size=4),
    max_leaves=20,
))  # fmt: skip
def test_whatever_the_json_holds(content):
    first, second = automatic(HALVES)
    kept = (("x", json.dumps(content)),)
    files = [replace(each, attributes=kept) for each in (first, second)]
    for numbers in ([0], [0, 1]):
        try:
            whole = joined(files[: len(numbers)], numbers)
            for side in whole.outputs:
                side.values()
        except DumpError:
            pass
    of_thread(first, parse("Conv2D.a.2.9.1670205069987341.4.330.1.0"))


def test_deep_json_says_nothing():
    assert split_of(Dump(attributes=(("x", "[" * 100_000),))) is None


def changed(files, **changes):
    """The same files with other things said in their json."""
    content = json.loads(files[0].attributes[0][1])
    kept = (("x", json.dumps({**content, **changes})),)
    return [replace(each, attributes=kept) for each in files]


@pytest.mark.parametrize("windows", [
    [[(0, 3), (0, 5), (0, 3)], [(1, 4), (0, 5), (0, 3)]],
    [[(0, 4), (0, 5), (0, 3)]] * 2,
])  # fmt: skip
def test_threads_that_have_the_same_must_agree(windows):
    """Where they overlap, and where each has all."""
    files = list(automatic(windows))
    wrong = X.copy()
    wrong[2, 3, 1] += 99
    files[1] = replace(files[1], outputs=next(iter(automatic([windows[1]], wrong))).outputs)
    whole = joined(files, [0, 1])
    assert np.array_equal(whole.inputs[0].values(), X)
    with pytest.raises(DumpError, match="two of its threads have other values for the same"):
        whole.outputs[0].values()


def test_an_uncut_tensor_is_the_same_in_all_slices():
    kept = said(threadMode=False, slice_instance_num=2, outputCutList=[[1, 1, 1]])
    files = [Dump((), (tensor(X + k),), attributes=kept) for k in (0, 50)]
    with pytest.raises(DumpError, match="other values"):
        joined(files, [0, 1]).outputs[0].values()


@pytest.mark.parametrize("threads", [2, 3, 10**8, 1 << 33, 1 << 61])
def test_the_number_of_threads_takes_no_memory(threads):
    files = changed(list(automatic(HALVES)), slice_instance_num=threads)
    if threads == 2:
        joined(files, [0, 1])
        return
    with pytest.raises(DumpError, match=f"of its {threads} threads these left a file: 0, 1"):
        joined(files, [0, 1])


@pytest.mark.parametrize("cut", [[3, 1, 1], [1, 2, 1, 1, 1, 2]])
def test_a_cut_into_another_number_of_parts_is_no_cut(cut):
    kept = said(threadMode=False, outputCutList=[cut])
    files = [Dump((), (tensor(X),), attributes=kept)] * 2
    with pytest.raises(DumpError, match="which part of it each of 2 threads has is not said"):
        joined(files, [0, 1]).outputs[0].values()


def test_texts_are_not_put_together():
    files = [
        replace(file, outputs=(replace(file.outputs[0], data_type=13),))
        for file in automatic(HALVES)
    ]
    with pytest.raises(DumpError, match="string is not put together"):
        joined(files, [0, 1]).outputs[0].values()


def test_a_file_that_holds_more_than_its_part_is_not_cut():
    files = [replace(file, outputs=(tensor(X),)) for file in automatic(HALVES)]
    with pytest.raises(DumpError, match="its file holds more than the part"):
        joined(files, [0, 1]).outputs[0].values()
    name = parse("Conv2D.a.2.9.1670205069987341.4.330.1.0")
    with pytest.raises(DumpError, match="its file holds more than the part"):
        of_thread(files[1], name).outputs[0].values()


@pytest.mark.parametrize("form", ["NC1HWC0", "FRACTAL_NZ", "NCHW"])
@pytest.mark.parametrize("own", [True, False])
def test_shapes_before_padding_are_put_together(form, own):
    """Whether the files have each part's own, or the whole's."""
    from ir2tbe.relayout import relayout

    value = np.arange(2 * 20 * 4 * 4, dtype="f2").reshape(2, 20, 4, 4)
    plain, axes = ("ND", 6) if form == "FRACTAL_NZ" else ("NCHW", 5 if form == "NC1HWC0" else 4)
    cut = [2, *[1] * (axes - 1)]
    kept = said(threadMode=False, slice_instance_num=2, outputCutList=[cut])
    files = []
    for part in (value[:1], value[1:]):
        stored = part if form == plain else relayout(part, plain, form)
        shape = part.shape if own else value.shape
        files.append(Dump((), (tensor(stored, form=form, original=shape),), attributes=kept))
    (whole,) = joined(files, [0, 1]).outputs
    assert whole.original_shape == value.shape
    back = relayout(whole.values(), form, plain, original=whole.original_shape)
    assert np.array_equal(back, value)


@pytest.mark.parametrize("name", ["x" * 4_000_000, "sgt_graph_" * 400_000, "_lxslice" * 500_000])
def test_long_names_take_no_time(name):
    assert whole_name(name) == name or len(whole_name(name)) < len(name)


def test_parts_that_overlap_have_one_shape_before_padding():
    """Rows that two threads read are counted once."""
    from ir2tbe.relayout import relayout

    value = np.arange(2 * 3 * 6 * 4, dtype="f2").reshape(2, 3, 6, 4)
    windows, files = ((0, 4), (2, 6)), []
    slices = [
        [[{"lower": a, "higher": b} for a, b in ((0, 2), (0, 1), rows, (0, 4), (0, 16))]]
        for rows in windows
    ]
    kept = said(slice_instance_num=2, output_tensor_slice=slices)
    for a, b in windows:
        part = np.ascontiguousarray(value[:, :, a:b])
        stored = relayout(part, "NCHW", "NC1HWC0")
        files.append(Dump((), (tensor(stored, form="NC1HWC0", original=part.shape),),
                          attributes=kept))  # fmt: skip
    (whole,) = joined(files, [0, 1]).outputs
    assert whole.original_shape == value.shape
    back = relayout(whole.values(), "NC1HWC0", "NCHW", original=whole.original_shape)
    assert np.array_equal(back, value)
