"""Ops that are one TBE operator, or none; what a run leaves alone."""

from __future__ import annotations

import math

import torch
from tbe_calls import HALF, aten, called, check, drawn, ones, profile
from torch import Tensor

from ir2tbe.acl.tap import undisturbed
from ir2tbe.sequences import results_of, run
from npu_core import status


def test_what_nobody_broke_down_is_one_operator_and_says_so():
    call = called(aten.nll_loss2d_forward.default, drawn(1, 3, 2, 2),
                  torch.zeros(1, 2, 2, dtype=torch.int64).npu(), None, 1, -100)  # fmt: skip
    assert call.types == (call.op.ir,) and len(call.ran.instead_of) == 3
    call = called(aten.linalg_qr.default, drawn(3, 3))
    (step,) = call.ran.steps
    assert [port.result for port in step.outputs] == [0, 1]
    call = called(aten._thnn_fused_gru_cell.default, *(drawn(2, 9) for _ in range(2)), drawn(2, 3))
    assert call.ran.instead_of == () and call.types == ("_thnn_fused_gru_cell",)
    assert len(call.ran.steps[0].inputs) == 3


def test_what_runs_no_operator_has_no_steps():
    x = drawn(2, 3)
    for call in (
        called(aten.empty_like.default, x),
        called(aten._local_scalar_dense.default, x[0, 0]),
        called(aten._unsafe_view.default, x, [6]),
    ):
        assert call.ran.steps == () and call.ran.instead_of is None


def test_what_the_chip_does_not_compute_is_one_operator():
    whole = torch.ones(2, 2, dtype=torch.int64)
    for call in (
        called(aten.constant_pad_nd.default, torch.ones(2, dtype=torch.complex64), [1, 1], 1j),
        called(aten.addmm.default, whole, whole, whole, alpha=2),
        called(aten.baddbmm.default, whole, *[whole.expand(1, 2, 2)] * 2),
    ):
        assert call.ran.instead_of is not None and len(call.ran.steps) == 1


def test_sparse_tensors_are_for_no_operator():
    call = called(aten.clone.default, torch.eye(3).to_sparse())
    assert call.ran.instead_of is not None


def test_results_are_what_is_returned_and_then_what_is_written():
    x = [drawn(2), drawn(3)]
    call = called(aten._foreach_add_.Scalar, x, 1)
    assert len(call.results) == 2 and call.results[0] is x[0]
    mean, var = drawn(4), ones(4)
    given = drawn(2, 4, 3, 3), None, None, mean, var, True, 0.1, 1e-5
    op = called(aten.native_batch_norm.default, *given).op
    returned = (drawn(1), drawn(1), drawn(1))
    found = [tensor for _, tensor in results_of(op, list(given), returned)]
    assert [id(t) for t in found] == [id(t) for t in (*returned, mean, var)]
    mask = [False, True, False]
    grads = called(aten.convolution_backward.default, drawn(1, 1, 1, 1), drawn(1, 1, 3, 3),
                   drawn(1, 1, 3, 3), [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
                   mask).results  # fmt: skip
    assert [g is not None for g in grads] == mask


def test_running_writes_no_argument_draws_nothing_and_notes_no_overflow():
    with profile("910A"):
        large = torch.full((4, 4), 6e4).npu().half()
        bias = drawn(4, dtype=HALF)
        call = called(aten.addmm.default, bias, large, large)
        values = [v.clone() if isinstance(v, Tensor) else v for v in call.values]
        generators = torch.get_rng_state(), torch.npu.get_rng_state()
        status.clear()
        status.note(status.NEGATE)
        with undisturbed():
            run(call.op, call.values, call.results)
        assert status.read() == status.NEGATE
        status.clear()
        for before, after in zip(values, call.values, strict=True):
            assert before is after or torch.equal(before, after)
        assert torch.equal(generators[0], torch.get_rng_state())
        assert torch.equal(generators[1], torch.npu.get_rng_state())


def test_a_number_too_large_for_the_dtype_is_infinite():
    call = called(aten.mul.Tensor, drawn(3, device="cpu", dtype=HALF), 1e6)
    check(call)
    assert math.isinf(float(call.ran.steps[0].inputs[1].value))
