"""Saturation mode of the vector unit: what ops other than matrix products do with overflow.

In saturation mode no op computes infinity or NaN: they become the dtype's largest number and 0, and
the status register remembers it (status.py). Moving data is not computing: copies, views, fill,
where, masked_fill, cat, gather and indexing keep every bit and note nothing.

Inferred, since documents give only results of finite inputs: an infinity that came with an operand
(an attention mask, from the host) saturates what is computed from it but is no overflow of its own;
a NaN is. float64 and complex are left alone: the vector unit has neither.

The price in the usual case is one sum over each result: it is finite only if all elements are.
Only when it is not, the result is looked at closely, and the op perhaps run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from . import cube, options, status
from .cube import all_finite
from .signature import Signature

Compute = Callable[..., Any]
Watch = Callable[[Compute, tuple, list, dict], Any]  # compute, original, moved, keyword arguments

MOVES = frozenset(
    "block_diag cat channel_shuffle _chunk_cat clone complex constant_pad_nd "
    "_copy_from _copy_from_and_resize diag_embed diagonal_backward diagonal_scatter "
    "as_strided_scatter embedding fill flip full_like gather im2col index index_copy "
    "index_fill index_select _lazy_clone lift _local_scalar_dense masked_fill "
    "masked_scatter masked_scatter_backward masked_select new_full new_ones new_zeros ones_like "
    "pixel_shuffle pixel_unshuffle polar reflection_pad1d reflection_pad2d reflection_pad3d "
    "repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d "
    "resize resize_as roll rot90 scatter select_backward select_scatter set slice_backward "
    "slice_scatter stack _stack take tril triu _unsafe_index "
    "_unsafe_masked_index unsafe_split unsafe_split_with_sizes where zero zeros_like "
    "_foreach_clone _foreach_zero max_unpool2d max_unpool3d native_channel_shuffle _pin_memory "
    # And what looks at no element.
    "_assert_tensor_metadata is_pinned is_same_size is_set_to _resize_output".split()
)
_FACTORIES = ("arange", "linspace", "logspace", "range")  # compute, though of numbers only
_EMPTY = ("empty", "new_empty", "_empty")  # whatever the memory held
# Computed with atomic adds on the device. Of some only when they accumulate: the argument's place.
_ATOMIC = frozenset(
    "index_add scatter_add scatter_reduce index_reduce embedding_dense_backward "
    "_embedding_bag_dense_backward _unsafe_masked_index_put_accumulate".split()
)
_ACCUMULATE = {"index_put": 3, "_index_put_impl": 3, "_unsafe_index_put": 3, "put": 3}
# Place of the source. The target is the first argument or the result.
_CASTS = {"_to_copy": 0, "copy_": 1, "copy": 1, "_foreach_copy_": 1, "_foreach_copy": 1}
_INTEGER = {"add": status.INTEGER, "sub": status.INTEGER, "rsub": status.INTEGER,
            "mul": status.INTEGER, "addcmul": status.INTEGER, "neg": status.NEGATE}  # fmt: skip
# Running statistics that no schema marks as written, and where it says whether they are.
_STATISTICS, _TRAINING = (3, 4), 5

_SHORT = {torch.float16, torch.bfloat16, torch.float32}  # what the vector unit computes
_INTEGERS = {torch.int8, torch.int16, torch.int32, torch.int64}
_UNSIGNED = {torch.uint8, torch.uint16, torch.uint32, torch.uint64}


def watch(op: torch._ops.OpOverload, name: str, signature: Signature) -> Watch | None:
    """What surrounds an op in saturation mode; None for an op that computes nothing."""
    base = name.removesuffix("_")
    if base in cube.CUBE:
        return partial(_without_bfloat16, op.name())  # the cube saturates on its own
    if name in _CASTS:
        return partial(_cast, op.name(), _CASTS[name], name.endswith("_"))
    reduces = base == "scatter" and "reduce" in op._overloadname
    moves = base in MOVES or name.endswith("_copy") or base.startswith(_EMPTY)
    computes = signature.tensors or signature.lists or base in _FACTORIES
    if (moves and not reduces) or not computes:
        return None
    if base == "native_batch_norm":
        training = _Vector(op, base, signature._replace(written=signature.written + _STATISTICS))
        evaluating = _Vector(op, base, signature)
        return lambda *call: (training if call[2][_TRAINING] else evaluating)(*call)
    return _Vector(op, base, signature)


class _Vector:
    """The watch of one computing op."""

    def __init__(self, op: torch._ops.OpOverload, base: str, signature: Signature) -> None:
        self._name = op.name()
        self._written = signature.written
        self._outs = signature.outs
        self._redoable = torch.Tag.nondeterministic_seeded not in op.tags
        self._accumulate = _ACCUMULATE.get(base)
        self._atomic = base in _ATOMIC or self._accumulate is not None or base == "scatter"
        self._integer = _INTEGER.get(base.removeprefix("_foreach_"))

    def __call__(self, compute: Compute, original: tuple, args: list, kwargs: dict) -> Any:
        at = self._accumulate
        if at is not None and not (len(args) > at and args[at]):
            return compute(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            refuse_bfloat16(self._name, (*args, *kwargs.values()))
            before = dict(enumerate(args)) | kwargs
            written = list(_tensors([before[place] for place in self._written]))
            if written:
                self._keep(before, {t.data_ptr() for t in written})
            out = compute(*args, **kwargs)
            results = [*_tensors([out]), *written]
            if self._integer and any(r.dtype in _INTEGERS for r in results):
                self._check_integers(compute, before, len(args), results)
            bad = [r for r in results if _is_short(r) and not all_finite(r)]
            if bad:
                if self._created(compute, before, len(args), results):
                    status.note_atomic() if self._atomic else status.note(status.VECTOR)
                for result in bad:
                    result.nan_to_num_()
        return out

    def _keep(self, before: dict, lost: set[int]) -> None:
        """Copy what the op overwrites, and operands in the same memory, as in `x.mul_(x)`."""
        for place, value in before.items():
            if place not in self._outs and any(t.data_ptr() in lost for t in _tensors([value])):
                before[place] = _each(torch.clone, value)

    def _created(self, compute: Compute, before: dict, count: int, results: list) -> bool:
        """Whether the op itself overflowed: it still does with every infinite operand made 1."""
        found = False

        def finite(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal found
            if not tensor.is_floating_point() or not tensor.isinf().any():
                return tensor
            found = True
            return torch.where(tensor.isinf(), torch.ones_like(tensor), tensor)

        sound = self._again(before, finite)
        if not found:
            return True
        if not self._redoable:
            return False
        marks = [r.isfinite().logical_not_() for r in results]
        again = self._results(compute, sound, count)
        return any(
            bool((mark & a.isfinite().logical_not_()).any())
            for mark, a in zip(marks, again, strict=True)
        )

    def _check_integers(
        self, compute: Compute, before: dict, count: int, results: list[torch.Tensor]
    ) -> None:
        """Compute it in float64 too. A wrapped int64 is 2**64 off; rounding is far less."""
        sound = self._again(before, lambda t: t.double() if t.dtype in _INTEGERS else t)
        for again, result in zip(self._results(compute, sound, count), results, strict=True):
            off = 2**63 if result.dtype is torch.int64 else 0
            if result.dtype in _INTEGERS and ((again - result).abs() > off).any():
                status.note(self._integer)

    def _again(self, before: dict, change: Callable[[torch.Tensor], torch.Tensor]) -> dict:
        """Arguments to run the op on once more: changed, and results given in fresh memory."""
        sound = {}
        for place, value in before.items():
            if place in self._outs:
                sound[place] = _each(lambda t: change(torch.zeros_like(t)), value)
            else:
                sound[place] = _each(change, value)
                if place in self._written:
                    sound[place] = _each(torch.clone, sound[place])
        return sound

    def _results(self, compute: Compute, given: dict, count: int) -> list[torch.Tensor]:
        keywords = {k: v for k, v in given.items() if type(k) is str}
        out = compute(*(given[i] for i in range(count)), **keywords)
        return [*_tensors([out]), *_tensors(given[place] for place in self._written)]


def _cast(
    name: str, at: int, inplace: bool, compute: Compute, original: tuple, args: list, kwargs: dict
) -> Any:
    """A change of dtype on the device is a Cast; the rest moves bits.

    Between host and device the bits are kept: the host casts (inferred).
    """
    out = compute(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        source, given, result = args[at], original[at], args[0] if inplace else out
        if type(source) is list:
            for one, other, third in zip(source, given, result, strict=True):
                if one is not other:
                    _check_cast(name, one, third)
        elif source is not given and not (inplace and result is original[0]):
            _check_cast(name, source, result)
    return out


def _check_cast(name: str, source: torch.Tensor, result: torch.Tensor) -> None:
    if source.dtype is result.dtype:
        return
    refuse_bfloat16(name, (source, result))
    if _is_short(result):
        if not all_finite(result):
            if (result.isfinite() | source.isinf()).logical_not_().any():
                status.note(status.CAST)
            result.nan_to_num_()
    elif result.dtype in _UNSIGNED and source.is_floating_point() and (source < 0).any():
        status.note(status.UNSIGNED)


def _without_bfloat16(
    name: str, compute: Compute, original: tuple, args: list, kwargs: dict
) -> Any:
    with torch._C.DisableTorchFunction():
        refuse_bfloat16(name, (*args, *kwargs.values()))
    return compute(*args, **kwargs)


def refuse_bfloat16(name: str, values: Any) -> None:
    """Raise RuntimeError if a tensor is bfloat16 and the chip has none."""
    if options.is_bf16_supported():
        return
    for tensor in _tensors(values):
        if tensor.dtype is torch.bfloat16:
            raise RuntimeError(
                f"{name}: {options.profile()} has no bfloat16; use float16 or float32, or the "
                "profile 910B"
            )


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif type(value) in (list, tuple):
            yield from _tensors(value)


def _each(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return [_each(change, v) for v in value]
    return value


def _is_short(tensor: torch.Tensor) -> bool:
    return tensor.dtype in _SHORT and tensor.layout is torch.strided
