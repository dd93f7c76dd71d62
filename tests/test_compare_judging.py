"""The judge on recorded ops: every kind of verdict, with the nearest case that is another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compare.judging import (
    Class,
    Context,
    Kind,
    Numerics,
    Row,
    Verdict,
    class_of,
    judge,
    numerics_of,
)
from compare.metrics import compare_arrays
from dumper import open_dump
from dumper.reader import Dump, Record
from dumper.stored import Tensor


@pytest.mark.parametrize(
    "ir, base, kind",
    [
        ("add__Tensor", "add", Class.POINTWISE),
        ("sum_dim_IntList", "sum", Class.REDUCTION),
        ("_foreach_add__List", "_foreach_add", Class.POINTWISE),
        ("native_dropout", "native_dropout", Class.RANDOM),
        ("native_dropout_backward", "native_dropout_backward", Class.POINTWISE),
        ("convolution_backward", "convolution_backward", Class.PRODUCT),
        ("cudnn_convolution", "cudnn_convolution", Class.PRODUCT),
        ("npu_linear", "linear", Class.PRODUCT),
        ("bernoulli__float", "bernoulli", Class.RANDOM),
        ("empty_memory_format", "empty", Class.UNINITIALISED),
        ("_fused_adamw_", "_fused_adamw", Class.OPTIMIZER),
        ("clone", "clone", Class.MOVEMENT),
        ("gt_Scalar", "gt", Class.EXACT),
        ("update", "update", Class.VALUE),
    ],
)
def test_an_ir_has_a_class(ir: str, base: str, kind: Class) -> None:
    found = class_of(ir)
    assert (found.base, found.kind, found.by_default) == (base, kind, False)


@pytest.mark.parametrize("ir", ["made_up", "add_backward", "sum_made_up", ""])
def test_what_the_table_lacks_is_judged_by_default(ir: str) -> None:
    assert class_of(ir).by_default


PLAIN = Context()


class Bench:
    """A dump of a few ops, and verdicts of their outputs changed."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump

    def record(self, ir: str) -> Record:
        return next(record for record in self.dump.records if record.ir == ir)

    def verdict(
        self,
        ir: str,
        change: Callable[[np.ndarray], Any],
        name: str = "result",
        context: Context = PLAIN,
        given: dict[str, Callable[[np.ndarray], np.ndarray]] | None = None,
        dtype: str | None = None,
        without: bool = False,
    ) -> Verdict:
        """Judge an op against itself. change: my output from golden's. given: my inputs from
        golden's. dtype: of my output. without: the file has no inputs."""
        golden = self.record(ir)
        output = next(tensor for tensor in golden.outputs if tensor.name == name)
        arrays = {id(output): output.read()}
        mine = _stand_in(output, dtype)
        arrays[id(mine)] = np.asarray(change(output.read().copy()))
        inputs = []
        for tensor in golden.inputs:
            function = (given or {}).get(tensor.name)
            if function is None:
                inputs.append(tensor)
                continue
            inputs.append(_stand_in(tensor, None))
            arrays[id(inputs[-1])] = function(tensor.read())
        record = replace(golden, inputs=tuple(inputs), has_inputs=not without)
        sides = [arrays[id(side)] for side in (mine, output)]
        if sides[0].dtype != sides[1].dtype:
            sides = [side.astype(np.float32) for side in sides]
        row = Row(record, golden, "output", mine, output, compare_arrays(*sides, False))
        context = replace(context, read=lambda t: arrays[id(t)] if id(t) in arrays else t.read())
        return judge(row, context)


def _stand_in(tensor: Tensor, dtype: str | None) -> Tensor:
    claims = tensor.claims
    if dtype:
        claims = claims._replace(dtype=dtype) if hasattr(claims, "_replace") else replace(
            claims, dtype=dtype)  # fmt: skip
    return Tensor(tensor.record, tensor.side, tensor.name, claims, -1, None, tensor.source)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path: Path = tmp_path_factory.mktemp("judging") / "ops.h5"
    generator = torch.Generator().manual_seed(5)
    a, b = (torch.randn(*shape, generator=generator) for shape in ((20, 512), (512, 30)))
    with torch.utils.dumper(use_dump=True, dump_path=path):
        product = a @ b
        torch.nn.functional.gelu(product + 1.0).half()
        product[:1, :1].clone().mul(3.0)
        torch.topk(a[0], 3)
        torch.rand(4)
        torch.empty(4)
        a.cumsum(0)
        torch.fft.fft(a[0, :8])
        (a * 1e38).exp()
    with open_dump(path) as dump:
        yield Bench(dump)


def kind_and_code(verdict: Verdict) -> tuple[Kind, str]:
    return verdict.kind, verdict.code


def test_equal_is_same(bench: Bench) -> None:
    assert kind_and_code(bench.verdict("mm", lambda x: x)) == (Kind.SAME, "bit_equal")
    found = bench.verdict("mm", lambda x: x.astype(np.float64), dtype="float64")
    assert kind_and_code(found) == (Kind.SAME, "equal_in_value")


def test_another_order_of_a_sum_is_rounding(bench: Bench) -> None:
    record = bench.record("mm")
    a, b = (tensor.read() for tensor in sorted(record.inputs, key=lambda t: t.shape))

    def sequential(_: np.ndarray) -> np.ndarray:
        total = np.zeros((20, 30), np.float32)
        for k in range(512):
            total += a[:, k : k + 1] * b[k]
        return total

    found = bench.verdict("mm", sequential)
    assert found.kind is Kind.ROUNDING
    assert "K=512" in found.reason and "float32" in found.reason
    assert 0 < found.margin <= 1 and found.actual <= found.allowed


def test_more_than_rounding_differs_and_says_whose_it_is(bench: Bench) -> None:
    def off(x: np.ndarray) -> np.ndarray:
        x[3, 4] += 1e-2
        return x

    found = bench.verdict("mm", off)
    assert kind_and_code(found) == (Kind.DIFFERS, "beyond_rounding")
    assert found.culprit == "mine" and found.margin > 10
    assert found.actual == pytest.approx(1e-2, rel=1e-3)


def test_golden_can_be_the_wrong_one(bench: Bench) -> None:
    golden = bench.record("mm")
    a, b = (tensor.read() for tensor in sorted(golden.inputs, key=lambda t: t.shape))
    wrong = (a @ b).copy()
    wrong[0, 0] += 1
    mine = _stand_in(golden.outputs[0], None)
    arrays = {id(golden.outputs[0]): wrong, id(mine): a @ b}
    metrics = compare_arrays(a @ b, wrong, False)
    row = Row(golden, golden, "output", mine, golden.outputs[0], metrics)
    read = lambda t: arrays[id(t)] if id(t) in arrays else t.read()  # noqa: E731
    assert judge(row, Context(read=read)).culprit == "golden"
    arm = Numerics(known_wrong="known to be wrong")
    found = judge(row, Context(golden=arm, read=read))
    assert kind_and_code(found) == (Kind.NOT_COMPARABLE, "known_wrong")
    assert judge(row, Context(mine=arm, read=read)).kind is Kind.DIFFERS


def test_inherited_is_what_the_inputs_explain_and_no_more(bench: Bench) -> None:
    golden = bench.record("mm")
    a, b = (tensor.read() for tensor in sorted(golden.inputs, key=lambda t: t.shape))
    noise = 1e-3 * np.random.default_rng(0).standard_normal(a.shape).astype(np.float32)
    given = {"self": lambda x: x + noise}
    found = bench.verdict("mm", lambda _: (a + noise) @ b, given=given)
    assert kind_and_code(found) == (Kind.INHERITED, "inputs_differ")
    found = bench.verdict("mm", lambda _: (a + noise) @ b + 1e-3, given=given)
    assert kind_and_code(found) == (Kind.DIFFERS, "beyond_inherited")
    assert found.culprit == "mine"


def test_what_a_device_rounds_operands_to_is_named(bench: Bench) -> None:
    golden = bench.record("mm")
    a, b = (tensor.read() for tensor in sorted(golden.inputs, key=lambda t: t.shape))
    half = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
    cube = Context(mine=Numerics(matrix="float16", convolution="float16", saturates=True))
    found = bench.verdict("mm", lambda _: half, context=cube)
    assert kind_and_code(found) == (Kind.INHERITED, "mode_differs")
    assert "matrix operands rounded to float16 (mine)" in found.reason
    assert bench.verdict("mm", lambda _: half).kind is Kind.DIFFERS


def test_pointwise_ops_are_judged_in_ulps(bench: Bench) -> None:
    def by(ulps: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: (x.view(np.int32) + ulps).view(np.float32)

    assert bench.verdict("add_Tensor", by(1)).kind is Kind.ROUNDING
    found = bench.verdict("add_Tensor", by(40))
    assert kind_and_code(found) == (Kind.DIFFERS, "beyond_rounding")


def test_what_moves_or_chooses_is_exact_on_equal_inputs(bench: Bench) -> None:
    def next_float(x: np.ndarray) -> np.ndarray:
        return np.nextafter(x, np.float32(9))

    found = bench.verdict("clone", next_float)
    assert kind_and_code(found) == (Kind.DIFFERS, "not_exact")
    found = bench.verdict("topk", lambda x: x[::-1], "indices")
    assert kind_and_code(found) == (Kind.DIFFERS, "not_exact")
    given = {"self": lambda x: x[::-1]}
    found = bench.verdict("topk", lambda x: x[::-1], "indices", given=given)
    assert kind_and_code(found) == (Kind.INHERITED, "decided_by_inputs")


def test_random_and_unwritten_memory_is_not_judged(bench: Bench) -> None:
    found = bench.verdict("rand", lambda x: 1 - x)
    assert found.kind is Kind.NOT_COMPARABLE and found.code.startswith("random")
    found = bench.verdict("empty_memory_format", lambda x: x + 1)
    assert kind_and_code(found) == (Kind.NOT_COMPARABLE, "uninitialised")


def test_one_element_is_low_evidence(bench: Bench) -> None:
    found = bench.verdict("mul_Tensor", lambda x: x * 2)
    assert found.kind is Kind.DIFFERS and found.low_evidence
    assert not bench.verdict("mm", lambda x: x * 2).low_evidence


def test_saturation_against_infinity_is_named(bench: Bench) -> None:
    def saturated(x: np.ndarray) -> np.ndarray:
        return np.where(np.isinf(x), np.finfo(np.float32).max, x)

    found = bench.verdict("exp", saturated)
    assert kind_and_code(found) == (Kind.NOT_COMPARABLE, "saturation")
    found = bench.verdict("exp", lambda x: np.where(np.isinf(x), np.float32(1e30), x))
    assert kind_and_code(found) == (Kind.DIFFERS, "nonfinite")


def test_nan_in_one_element_differs(bench: Bench) -> None:
    def with_nan(x: np.ndarray) -> np.ndarray:
        x[1, 1] = np.nan
        return x

    assert kind_and_code(bench.verdict("gelu", with_nan)) == (Kind.DIFFERS, "nonfinite")


def test_without_inputs_a_weaker_rule_says_so(bench: Bench) -> None:
    found = bench.verdict("mm", lambda x: x * np.float32(1 + 3e-7), without=True)
    assert found.weak and found.kind is Kind.ROUNDING
    found = bench.verdict("mm", lambda x: x * np.float32(1.01), without=True)
    assert found.weak and kind_and_code(found) == (Kind.CANNOT_TELL, "no_inputs")
    assert not bench.verdict("mm", lambda x: x * np.float32(1.01)).weak


def test_an_op_without_a_rule_says_so(bench: Bench) -> None:
    found = bench.verdict("_fft_r2c", lambda x: x * np.complex64(1 + 1e-7))
    assert found.by_default and found.kind is Kind.ROUNDING
    found = bench.verdict("_fft_r2c", lambda x: x * np.complex64(1.1))
    assert found.by_default and kind_and_code(found) == (Kind.DIFFERS, "beyond_default")


def test_half_against_float_is_allowed_what_half_is(bench: Bench) -> None:
    found = bench.verdict("mm", lambda x: x.astype(np.float16), dtype="float16")
    assert found.kind is Kind.ROUNDING and "float16 against float32" in found.reason
    found = bench.verdict("mm", lambda x: (x * 1.01).astype(np.float16), dtype="float16")
    assert found.kind is Kind.DIFFERS


NPU = {"npu": {"device": "Ascend 910A (emulated by npu_core)"}}
CUDA = {"cuda": {"device": "a"}, "matmul_precision": "high", "cudnn_allow_tf32": True,
        "fp16_reduced_precision": True}  # fmt: skip


@pytest.mark.parametrize(
    "environment, device, expected",
    [
        ({}, 0, Numerics()),
        (NPU, 0, Numerics()),
        (NPU, 10, Numerics("float16", "float16", saturates=True)),
        ({"npu": {"device": "Ascend910B3"}}, 10, Numerics(convolution="hf32")),
        ({"npu": {"device": "Ascend910B3", "conv_allow_hf32": False}}, 10, Numerics()),
        ({"npu": {"device": "Ascend exact CPU numerics"}}, 10, Numerics()),
        (CUDA, 1, Numerics("tf32", "tf32", narrow_steps=False, split=("float16",))),
        ({"npu": "hostile", "cuda": 3, "platform": ["x"]}, 10, Numerics()),
    ],
)
def test_arithmetic_follows_from_the_environment(
    environment: dict, device: int, expected: Numerics
) -> None:
    assert numerics_of(environment, device) == expected


def test_a_cpu_of_arm_is_known_to_be_wrong() -> None:
    assert numerics_of({"platform": "Linux aarch64"}, 0).known_wrong
    assert not numerics_of({"platform": "Linux aarch64"}, 10).known_wrong
    assert not numerics_of({"platform": "Linux x86_64"}, 0).known_wrong
