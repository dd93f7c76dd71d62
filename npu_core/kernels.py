"""The boxed kernel: every aten op on npu is the CPU's, run on aliases of the npu tensors.

One Python function per op goes into the dispatcher under PrivateUse1: alias the arguments to CPU,
run, alias the results back, hand back the caller's own tensor for in-place and out= results. What
differs from op to op (numerics, random numbers, fused RNN cells) is composed into `run` when the
kernel is built, so the path of a call stays flat.

`run` enters the dispatcher at the CPU key with `redispatch_boxed`: that is below autograd, autocast
and the user's modes, and unlike calling the op it is not seen by a TorchFunctionMode.

Left to PyTorch: composite ops, and views, which must alias the npu tensor itself. Views with a
kernel per device (as_strided, view, set_, ...) run the CPU's kernel on the npu tensor: it only
touches sizes and storage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from . import (
    accelerator,
    amp,
    cube,
    faults,
    losses,
    memory,
    observe,
    options,
    random,
    signature,
    vector,
)

_NPU, _CPU = "npu", torch.device("cpu")
_CPU_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_COMPOSITE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")

# Ops that take CPU tensors of any rank, as every accelerator's do: copies, indices, lengths.
_MIXED = {
    "copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_",
    "_unsafe_index", "_unsafe_index_put", "_ctc_loss", "_ctc_loss_backward",
}  # fmt: skip
# _unsafe_view returns its argument's memory though the schema marks no alias;
# _pack_padded_sequence has results on two devices; the others are made of ops of which some are the
# cube's. Where those have a kernel for the CPU, it runs on npu tensors and calls the ops on npu.
_LEFT_COMPOSITE = {
    "_unsafe_view", "_pack_padded_sequence", "conv_tbc", "_euclidean_dist",
    "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
    "_grouped_mm", "_foreach_mm",
    # These ask for the size of the storage; an alias has only what the tensor spans.
    "_has_same_storage_numel", "_new_zeros_with_same_feature_meta",
}  # fmt: skip
# Answers which fused attention the device has: none, so that attention becomes plain ops.
_MATH_ATTENTION = 0

# x + 1 reaches the kernel as the number 1 where the schema has a Tensor. Only a call of the op
# makes a tensor of it again (one that does not promote dtypes); redispatch refuses it.
_NUMBERS = {bool, int, float, complex}

built: dict[str, Callable] = {}  # every kernel, by `name.overload`


def overloads(name: str) -> list[str]:
    """The kernels an aten name stands for: itself with an overload, else all of its overloads.

    Empty for a composite op, even if it has an out= variant with a kernel: nobody calls that.
    """
    name = name.removeprefix("aten::")
    if name in built:
        return [name]
    found = [full for full in built if full.partition(".")[0] == name]
    return [] if all(full.endswith("out") for full in found) else found


def register(library: torch.library.Library) -> None:
    """Give every aten op that can run on a dense CPU tensor its kernel on npu."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for full in torch._C._dispatch_get_all_op_names():
        composite = has(full, "CompositeImplicitAutograd") and not has(full, "CPU")
        if composite or not full.startswith("aten::"):
            continue
        name, _, overload = full.removeprefix("aten::").partition(".")
        overload = overload or "default"
        on_cpu = torch._C._dispatch_has_computed_kernel_for_dispatch_key(full, "CPU")
        if not on_cpu and f"{name}.{overload}" not in accelerator.OPS:
            continue
        op = getattr(getattr(torch.ops.aten, name), overload)
        kernel = _kernel(op, name, any(has(full, key) for key in _COMPOSITE))
        if kernel is not None:
            library.m.impl(full.removeprefix("aten::"), "PrivateUse1", kernel, False)


def _kernel(op: torch._ops.OpOverload, name: str, composite: bool) -> Callable | None:
    """The kernel of one overload; None leaves the op to its composite kernel."""
    sig = signature.read(op)
    run = partial(op._handle.redispatch_boxed, _CPU_KEY)
    if name == "resize_":
        return partial(_resize, run)
    if name == "_fused_sdp_choice":
        return lambda *args, **kwargs: _MATH_ATTENTION
    if sig.view or name in _LEFT_COMPOSITE:
        return None if composite else run
    draws = torch.Tag.nondeterministic_seeded in op.tags
    if draws and sig.generator is None and composite:
        return None  # ends in an op that takes a generator
    full = f"{name}.{op._overloadname}"
    if full in accelerator.OPS:
        run = _unseen(accelerator.OPS[full])
    elif name == "_efficientzerotensor":  # has no memory, so DLPack would hand out none
        run = _unseen(torch.zeros)
    elif name.removesuffix("_") in cube.CUBE:
        run = cube.through_cube(op, run, sig)
    elif name == amp.UNSCALE:
        run = amp.unscale(run)
    elif name in losses.OPS:
        run = losses.with_any_target(run, op)
    elif sig.generator is not None:
        run = random.with_generator(run, sig.generator)
    elif draws:
        run = random.with_state(run)
    watch = vector.watch(op, name, sig)
    kernel = _boxed(op, full, run, _unseen(op), sig, watch, *_aliases(op, name))
    built[full] = _growing_outs(kernel, sig.outs) if sig.outs else kernel
    return built[full]


def _aliases(op: torch._ops.OpOverload, name: str) -> tuple[Callable, Callable]:
    """How this op's tensors become CPU's and npu's.

    Most ops never see a conj or neg bit: a dispatcher fallback resolves it before. The few that opt
    out of that fallback have a kernel under its key.
    """
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    bits = has(op.name(), "Conjugate") or has(op.name(), "Negative")
    mixed = name in _MIXED
    if bits:
        return memory.to_cpu_or_keep_bits if mixed else memory.to_cpu_bits, memory.to_npu_bits
    return memory.to_cpu_or_keep if mixed else memory.to_cpu, memory.to_npu


def _boxed(
    op: torch._ops.OpOverload,
    full: str,
    run: Callable,
    with_numbers: Callable,
    sig: signature.Signature,
    watch: vector.Watch | None,
    to_cpu: Callable,
    to_npu: Callable,
) -> Callable:
    """The function the dispatcher calls for one op."""
    tensors, lists, returned = sig.tensors, sig.lists, sig.returned
    own = returned[0] if returned else None
    planted, live, watched = faults.planted, options.live, observe.live
    # In-place foreach ops bump no version above the kernels: on CPU the ops inside them do, here
    # those run on aliases.
    foreach, own_list = full.startswith("_foreach_"), sig.written[0] if sig.written else 0

    def kernel(*args, **kwargs):
        if watched.observer is not None and not observe.asleep():
            return observe.call(op, kernel, args, kwargs)
        if full in planted and not faults.asleep():
            return faults.call(full, kernel, sig, args, kwargs)
        moved, given, compute = list(args), kwargs, run
        count, stay, grown = len(moved), False, None
        try:
            for i in tensors:
                if i >= count:
                    break
                value = moved[i]
                if type(value) in _NUMBERS:
                    compute = with_numbers
                elif value is not None:
                    moved[i] = to_cpu(value)
            for i in lists:
                if i < count and moved[i] is not None:
                    moved[i] = [None if t is None else to_cpu(t) for t in moved[i]]
            if kwargs:
                given, stay = _move_keywords(kwargs, sig.keywords, to_cpu)
                if sig.outs:
                    grown = _replace_empty_outs(given, sig.outs)
        except memory.MixedDevices:
            raise RuntimeError(
                f"aten::{full}: expected all tensors on npu, but one of rank > 0 is on another "
                "device; move it with .npu()"
            ) from None
        if watch is None or not live.saturating or stay:
            out = compute(*moved, **given)
        else:
            out = watch(compute, args, moved, given)
        if returned is None:
            if isinstance(out, torch.Tensor):
                if not stay:
                    out = args[0] if count and out is moved[0] else to_npu(out)
            elif isinstance(out, tuple | list):
                out = type(out)([to_npu(t) if isinstance(t, torch.Tensor) else t for t in out])
        else:
            if grown is not None:
                _give_back_outs(kwargs, given, sig.outs, grown)
            if len(returned) == 1:
                out = args[own] if type(own) is int else kwargs[own]
            elif returned:
                out = tuple([args[p] if type(p) is int else kwargs[p] for p in returned])
            else:
                out = None
                if foreach:
                    _bump_versions(args[own_list])
        return out

    return kernel


def _bump_versions(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def _move_keywords(kwargs: dict, keywords: tuple[str, ...], to_cpu: Callable) -> tuple[dict, bool]:
    """Keyword arguments for the CPU, and whether the result is asked for elsewhere than on npu."""
    given, stay = kwargs.copy(), False
    for key in keywords:
        value = given.get(key)
        if isinstance(value, list | tuple):
            given[key] = [to_cpu(t) for t in value]
        elif value is not None:
            given[key] = to_cpu(value)
    device = given.get("device")
    if device is not None:
        if device.type == _NPU:
            memory.check_index(device.index)
            given["device"] = _CPU
        else:
            stay = True
    given.pop("pin_memory", None)  # npu memory is host memory, and no CPU op here can pin
    return given, stay


def _growing_outs(kernel: Callable, outs: tuple[str, ...]) -> Callable:
    """`kernel` of an op with `out`, called again with an empty one where that was too small."""

    def growing(*args, **kwargs):
        try:
            return kernel(*args, **kwargs)
        except RuntimeError as error:
            if "not resizable" not in str(error):
                raise
        with torch._C.DisableTorchFunction():
            for key in outs:
                kwargs[key].resize_(0)
        return kernel(*args, **kwargs)

    return growing


def _replace_empty_outs(given: dict, outs: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Give each empty `out` an owner of its memory: an alias cannot be resized by the op."""
    grown = {}
    with torch._C.DisableTorchFunction():
        for key in outs:
            value = given[key]
            if isinstance(value, torch.Tensor) and value.numel() == 0:
                grown[key] = given[key] = torch.empty_like(value)
    return grown


def _give_back_outs(
    kwargs: dict, given: dict, outs: tuple[str, ...], grown: dict[str, torch.Tensor]
) -> None:
    """Bring the caller's `out` tensors to the memory and shape the op gave ours."""
    with torch._C.DisableTorchFunction():
        for key in outs:
            mine, ours = kwargs[key], given[key]
            if key in grown:
                _adopt(mine, ours, ours.storage_offset(), ours.shape, ours.stride())
            elif isinstance(mine, torch.Tensor) and mine.shape != ours.shape:
                mine.resize_(ours.shape)


def _adopt(npu: torch.Tensor, cpu: torch.Tensor, offset: int, size: tuple, stride: tuple) -> None:
    """Let an npu tensor live in the memory of a CPU tensor."""
    npu.set_(memory.to_npu(cpu).untyped_storage(), offset, size, stride)


def _resize(run: Callable, self: torch.Tensor, size: list[int], **kwargs) -> torch.Tensor:
    """resize_: the CPU kernel cannot grow npu storage, so a larger one is put under it first."""
    with torch._C.DisableTorchFunction():
        have = self.untyped_storage().nbytes() // self.element_size()
        need = self.storage_offset() + math.prod(size)
        if need > have:
            grown = torch.empty(need, dtype=self.dtype)
            grown[:have].copy_(memory.to_cpu(self.as_strided((have,), (1,), 0)))
            _adopt(self, grown, self.storage_offset(), self.shape, self.stride())
        run(self, size, **kwargs)
    return self


def _unseen(function: Callable) -> Callable:
    """A function on CPU tensors whose torch calls no TorchFunctionMode of the user sees."""

    def run(*args, **kwargs):
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return run
