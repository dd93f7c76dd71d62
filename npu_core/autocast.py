"""Autocast on npu: which ops run in the lower precision, and which in float32.

The lists and their rules are those torch_npu registers (torch_npu/csrc/aten/AutoCastOps.cpp; the
rules are PyTorch's, ATen/autocast_mode.h). They are not CUDA's of today: rms_norm, the upsample
ops, vdot and linalg_vecdot are on none of them. Its entries for named dimensions and for cuDNN's
ops, which npu has not, are left out.

A kernel under AutocastPrivateUse1 casts its arguments and hands the call on with that key taken
away. So a cast is an ordinary `_to_copy` that autograd records and the user's modes see, and
outside of autocast nothing of this is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._C import DispatchKeySet

LOWER = (
    "_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d "
    "conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul "
    "einsum mm mv linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell "
    "_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "_scaled_dot_product_flash_attention scaled_dot_product_attention"
).split()
FLOAT = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan "
    "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm "
    "group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity "
    "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div "
    "l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss "
    "soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist "
    "pdist cdist renorm logsumexp"
).split()
# Compute in float32 by way of their `dtype` argument, unless the caller gave it.
FLOAT_RESULT = (
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm "
    "linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList"
).split()
# The same, of ops that take a `dtype` in another overload only.
FLOAT_OVERLOAD = {
    "norm.Scalar": "norm.ScalarOpt_dtype",
    "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype",
}
# Run in the widest dtype among their arguments.
WIDEST = (
    "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put tensordot scatter_add"
).split()
BANNED = ("binary_cross_entropy",)

_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_KEYS = DispatchKeySet(_KEY)
_to = torch.ops.aten.to.dtype._handle.redispatch_boxed  # a call would be seen by function modes

# The casts of weights, so that a weight used twice is cast, and its gradient summed, once. As
# PyTorch's own, it belongs to all threads and lasts until an outermost autocast block ends. The
# cast's graph holds the weight anyhow, so the weight is held here too, and its id cannot be reused.
_cache: dict[tuple[int, torch.dtype, bool], tuple[torch.Tensor, torch.Tensor]] = {}

Arguments = tuple[Iterable, dict[str, Any]]
Prepare = Callable[[DispatchKeySet, tuple, dict[str, Any]], Arguments]


def register(library: torch.library.Library) -> list[Callable]:
    """Give every listed op its autocast kernel; returns the kernels. Ops not listed pass."""
    kernels = {name: _kernel(_op(name), _to_lower) for name in LOWER}
    kernels |= {name: _kernel(_op(name), _to_float) for name in FLOAT}
    kernels |= {name: _kernel(_op(name), _with_dtype(_op(name))) for name in FLOAT_RESULT}
    kernels |= {name: _kernel(_op(to), _append_dtype) for name, to in FLOAT_OVERLOAD.items()}
    kernels |= {name: _kernel(_op(name), _to_widest) for name in WIDEST}
    kernels |= {name: _banned for name in BANNED}
    for name, kernel in kernels.items():
        library.m.impl(name, "AutocastPrivateUse1", kernel, True)
    return list(kernels.values())


def claim_cache() -> None:
    """Let `torch.clear_autocast_cache`, which ends an outermost block, clear ours too."""
    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        clear()
        _cache.clear()

    torch.clear_autocast_cache = clear_autocast_cache


def _op(name: str) -> torch._ops.OpOverload:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def _kernel(op: torch._ops.OpOverload, prepare: Prepare) -> Callable:
    """Run `op`, in which nothing is cast any more, on the arguments that `prepare` makes."""
    run = op._handle.redispatch_boxed

    def kernel(keys: DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        keys = keys.remove(_KEY)
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            args, kwargs = prepare(keys, args, kwargs)
            return run(keys, *args, **kwargs)

    return kernel


def _to_lower(keys: DispatchKeySet, args: tuple, kwargs: dict[str, Any]) -> Arguments:
    return _cast_all(keys, torch.get_autocast_dtype("npu"), args, kwargs)


def _to_float(keys: DispatchKeySet, args: tuple, kwargs: dict[str, Any]) -> Arguments:
    return _cast_all(keys, torch.float32, args, kwargs)


def _to_widest(keys: DispatchKeySet, args: tuple, kwargs: dict[str, Any]) -> Arguments:
    lower = torch.get_autocast_dtype("npu")
    with torch._C.DisableTorchFunction():
        found = {t.dtype for t in _tensors((*args, *kwargs.values())) if _eligible(t)}
    if found - {lower, torch.float32}:
        raise RuntimeError(
            f"autocast to {lower} met an op that runs in the widest dtype of its arguments, and "
            f"they are {', '.join(sorted(map(str, found)))}: cast them to {lower} or torch.float32"
        )
    wide = torch.float32 if torch.float32 in found else lower
    return _cast_all(keys, wide, args, kwargs)


def _with_dtype(op: torch._ops.OpOverload) -> Prepare:
    place = [argument.name for argument in op._schema.arguments].index("dtype")

    def prepare(keys: DispatchKeySet, args: tuple, kwargs: dict[str, Any]) -> Arguments:
        with torch._C.DisableTorchFunction():
            given = len(args) > place or kwargs.get("dtype") is not None
            if not given and _eligible(args[0]):
                kwargs = {**kwargs, "dtype": torch.float32}
        return args, kwargs

    return prepare


def _append_dtype(keys: DispatchKeySet, args: tuple, kwargs: dict[str, Any]) -> Arguments:
    self, *rest = args
    with torch._C.DisableTorchFunction():
        dtype = torch.float32 if _eligible(self) else self.dtype
    # The dispatcher drops trailing defaults, which the other overload does not have.
    p, *dims = rest or [2]
    if dims:
        dims = [dims[0], dims[1] if len(dims) > 1 else False]
    return (self, p, *dims), {**kwargs, "dtype": dtype}


def _banned(keys: DispatchKeySet, *args: Any, **kwargs: Any) -> None:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: use "
        "binary_cross_entropy_with_logits or BCEWithLogitsLoss without the sigmoid before it, or "
        "call it on float32 in a block of autocast(enabled=False)"
    )


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from _tensors(value)


def _eligible(tensor: torch.Tensor) -> bool:
    """Whether autocast may cast this tensor: a float on npu, but no double."""
    return (
        tensor.device.type == "npu"
        and tensor.is_floating_point()
        and tensor.dtype is not torch.float64
    )


def _cast_all(
    keys: DispatchKeySet, dtype: torch.dtype, args: tuple, kwargs: dict[str, Any]
) -> Arguments:
    return (
        [_cast(keys, dtype, value) for value in args],
        {name: _cast(keys, dtype, value) for name, value in kwargs.items()},
    )


def _cast(keys: DispatchKeySet, dtype: torch.dtype, value: Any) -> Any:
    if type(value) in (list, tuple):
        return [_cast(keys, dtype, v) for v in value]
    if not isinstance(value, torch.Tensor):
        return value
    with torch._C.DisableTorchFunction():
        if value.dtype is dtype or not _eligible(value):
            return value
        weight = (
            value.dtype is torch.float32
            and value.requires_grad
            and value.is_leaf
            and not value._is_view()
            and torch.is_autocast_cache_enabled()
        )
        # A cast made without grad mode has no graph: it must not serve a call that needs one.
        place = (id(value), dtype, torch.is_grad_enabled()) if weight else None
    if place is None:
        return _to(keys, value, dtype)
    kept = _cache.get(place)
    if kept is None:  # one step: another thread may clear between two
        kept = _cache[place] = value, _to(keys, value, dtype)
    return kept[1]
