"""Tensors that are made of other tensors: sparse, quantized, nested, and subclasses.

Each is stored as its named parts below `<argument>/`, beside one text that says what they make up
(`Type.PARTS`), so that indices compare with indices and values with values. Subclasses say their
parts by torch's own protocol, `__tensor_flatten__` (jagged nested tensors, DTensor and most others
have it); such a one is not made again from a file, since that would run a class that a file names.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .errors import DumpError, first_line
from .tensors import dtype_name

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
_LAYOUTS = {str(layout).removeprefix("torch."): layout for layout in _COMPRESSED}


class Parts(NamedTuple):
    """facts: JSON values with at least kind, shape and dtype. tensors: the parts by name."""

    facts: dict[str, Any]
    tensors: dict[str, torch.Tensor]


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is dense memory with strides, and nothing but that."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    )


def parts_of(tensor: torch.Tensor) -> Parts | None:
    """Take a tensor apart; None for one that has no parts: plain, or opaque."""
    if hasattr(tensor, "trigger_wait"):  # of a collective: what it holds has not arrived yet
        tensor = tensor.trigger_wait()
        return Parts(_facts("subclass AsyncCollectiveTensor", tensor), {"elem": tensor})
    if hasattr(type(tensor), "__tensor_flatten__") and not is_plain(tensor):
        names, _ = tensor.__tensor_flatten__()
        held = ((name.lstrip("_"), getattr(tensor, name)) for name in names)
        found = {name: part for name, part in held if isinstance(part, torch.Tensor)}
        return Parts(_facts(f"subclass {type(tensor).__name__}", tensor), found)
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return None
    plain = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        facts = _facts("sparse_coo", tensor) | {"coalesced": tensor.is_coalesced()}
        return Parts(facts, {"indices": plain._indices(), "values": plain._values()})
    if tensor.layout in _COMPRESSED:
        kind = str(tensor.layout).removeprefix("torch.")
        found = {name: getattr(plain, name)() for name in _COMPRESSED[tensor.layout]}
        return Parts(_facts(kind, tensor), found | {"values": plain.values()})
    if tensor.is_quantized:
        return _quantized(plain)
    if tensor.is_nested:
        sizes, strides = plain._nested_tensor_size(), plain._nested_tensor_strides()
        offsets = plain._nested_tensor_storage_offsets()
        found = {"values": plain.values(), "sizes": sizes, "strides": strides, "offsets": offsets}
        return Parts({"kind": "nested", "dtype": dtype_name(tensor.dtype), "shape": None}, found)
    return None


def _quantized(tensor: torch.Tensor) -> Parts | None:
    facts = _facts("quantized", tensor)
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        facts |= {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
        return Parts(facts, {"values": tensor.int_repr()})
    if tensor.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
        facts["axis"] = tensor.q_per_channel_axis()
        scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        found = {"values": tensor.int_repr(), "scales": scales, "zero_points": zeros}
        return Parts(facts, found)
    return None


def _facts(kind: str, tensor: torch.Tensor) -> dict[str, Any]:
    # A jagged tensor's ragged size is a symbol, not a number.
    shape = [int(size) if isinstance(size, int) else str(size) for size in tensor.shape]
    return {"kind": kind, "dtype": dtype_name(tensor.dtype), "shape": shape}


def assemble(facts: dict[str, Any], parts: dict[str, torch.Tensor], path: str) -> torch.Tensor:
    """Make the tensor again from its parts. Raises DumpError for what a file cannot make."""
    kind = facts.get("kind")
    try:
        if kind == "sparse_coo":
            return torch.sparse_coo_tensor(
                parts["indices"],
                parts["values"],
                facts["shape"],
                is_coalesced=facts["coalesced"],
                check_invariants=True,
            )
        if kind in _LAYOUTS:
            first, second = _COMPRESSED[_LAYOUTS[kind]]
            return torch.sparse_compressed_tensor(
                parts[first],
                parts[second],
                parts["values"],
                facts["shape"],
                layout=_LAYOUTS[kind],
                check_invariants=True,
            )
        if kind == "quantized" and "axis" in facts:
            return torch._make_per_channel_quantized_tensor(
                parts["values"], parts["scales"], parts["zero_points"], facts["axis"]
            )
        if kind == "quantized":
            return torch._make_per_tensor_quantized_tensor(
                parts["values"], facts["scale"], facts["zero_point"]
            )
        if kind == "nested":
            return torch._nested_view_from_buffer(
                parts["values"], parts["sizes"], parts["strides"], parts["offsets"]
            )
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise DumpError(
            f"these parts do not make a {kind} tensor ({first_line(error)})",
            path,
            "dump the op again",
        ) from None
    raise DumpError(
        f"a tensor of kind {kind!r} is not made again from a file",
        path,
        "compare its parts; run the op in the program that made it",
    )
