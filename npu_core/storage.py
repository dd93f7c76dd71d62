"""Which storage format an npu tensor is in, and the casts between formats.

Memory of the emulated device is always plain, so a format is a label: it changes no value and no
op, but it is what scripts ask for, and what a dump records. `formats` says how the memory would lie
on the chip.

The label belongs to the storage, as on the device: views share it, and the storage's own Python
object carries it, which torch keeps alive exactly as long as the memory. A storage without label is
in the default format of its tensor's rank, so tensors that nobody casts cost nothing. Copies, dtype
casts, results of ops and what is loaded from a file have no label; the device hands formats on
through some ops, which is not emulated.

Casts are ops of namespace `npu`, as torch_npu's are: dispatch modes see them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from . import formats, observe, options
from .formats import Format

_LABEL = "_npu_core_label"
_below_autograd = torch._C._AutoDispatchBelowADInplaceOrView

# Weights that `module.npu()` casts, as torch_npu 1.8 to 1.11 does.
_WEIGHTS: tuple[tuple[type | tuple[type, ...], tuple[str, ...], Format], ...] = (
    (nn.Linear, ("weight",), Format.FRACTAL_NZ),
    (
        nn.MultiheadAttention,
        ("q_proj_weight", "k_proj_weight", "v_proj_weight"),
        Format.FRACTAL_NZ,
    ),
    (
        (nn.BatchNorm1d, nn.BatchNorm2d),
        ("weight", "bias", "running_mean", "running_var"),
        Format.NC1HWC0,
    ),
    (nn.Conv2d, ("weight",), Format.FRACTAL_Z),
    (nn.Conv3d, ("weight",), Format.FRACTAL_Z_3D),
)


class _Label(NamedTuple):
    format: Format
    base: tuple[int, ...]  # shape of the tensor the memory was made for


def get_format(tensor: Tensor) -> int:
    """The ACL code of the format a tensor's memory is in.

    Without a cast that is NCDHW (30) at rank 5, NCHW (0) at rank 4, else ND (2).
    Raises TypeError for what is no npu tensor.
    """
    if not isinstance(tensor, Tensor) or tensor.device.type != "npu":
        where = tensor.device if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"a storage format needs a tensor on npu, got one on {where}")
    label = _label_of(tensor)
    return int(label.format if label else formats.default_of(tensor.dim()))


def storage_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape in which a tensor's memory would lie on the chip; a view has that of its base.

    Raises TypeError for what is no npu tensor.
    """
    code = get_format(tensor)
    return formats.storage_shape(_base(tensor), code, tensor.element_size())


def storage_size(tensor: Tensor) -> int:
    """How many elements `storage_shape` has, padding included. Raises TypeError like it."""
    return math.prod(storage_shape(tensor))


def format_cast(tensor: Tensor, acl_format: int | Tensor) -> Tensor:
    """The tensor in a format, given by its ACL code or as that of another npu tensor.

    The tensor itself where it is in that format, and where both formats are plain ones (ND, NCHW,
    NHWC, NCDHW), which only relabels it. Else a new tensor with a copy of the memory; size, stride
    and offset stay, and gradients pass.
    Raises TypeError for what is no npu tensor; ValueError for a format that is unknown or cannot
    hold the tensor's rank: four axes at most in NC1HWC0 and FRACTAL_Z, five in those of 3-D.
    """
    return torch.ops.npu.npu_format_cast(tensor, _code(tensor, acl_format))


def format_cast_(tensor: Tensor, acl_format: int | Tensor) -> Tensor:
    """Cast in place to an ACL code, or write another npu tensor's values into `tensor`'s format.

    A cast that is no relabelling gives the tensor new memory: views of the old no longer follow it.
    Raises as `format_cast` does.
    """
    code = _code(tensor, acl_format)  # raises for a tensor elsewhere
    return torch.ops.npu.npu_format_cast_(
        tensor, acl_format if isinstance(acl_format, Tensor) else code
    )


def cast_weights(module: nn.Module) -> None:
    """Cast a module's weights on npu to the formats its layers compute in.

    The parameters stay the same objects. Where the device keeps plain formats nothing happens: on
    910B and exact unless the option ALLOW_INTERNAL_FORMAT enables it, on 910A if it disables it.
    Weights of grouped Conv2d stay plain, and MM_BMM_ND_ENABLE leaves those of matrix products so.
    Conv3d's are rounded to fp16 on the way: there is no other way into FRACTAL_Z_3D.
    """
    if not options.allows_internal_format():
        return
    plain_matrices = options.get_option("MM_BMM_ND_ENABLE") == "enable"
    with torch.no_grad():
        for layer in module.modules():
            for kind, names, target in _WEIGHTS:
                if not isinstance(layer, kind) or (
                    target is Format.FRACTAL_NZ
                    and plain_matrices
                    or target is Format.FRACTAL_Z
                    and layer.groups > 1
                ):
                    continue
                for name in names:
                    _cast_weight(layer._parameters.get(name, layer._buffers.get(name)), target)


def _cast_weight(weight: Tensor | None, target: Format) -> None:
    if weight is None or nn.parameter.is_lazy(weight) or weight.device.type != "npu":
        return
    data = weight.data
    if target is Format.FRACTAL_Z_3D and get_format(data) != target:
        data = data.half().to(data.dtype)
    weight.data = format_cast(data, target)


def claim_modules() -> None:
    """Let `module.npu()` and `module.to("npu")` cast weights; called once, with the device."""
    to, npu = nn.Module.to, nn.Module.npu

    @functools.wraps(to)
    def moved(self: nn.Module, *args: object, **kwargs: object) -> nn.Module:
        result = to(self, *args, **kwargs)
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
        if device is not None and device.type == "npu":
            cast_weights(self)
        return result

    @functools.wraps(npu)
    def moved_to_npu(self: nn.Module, *args: object, **kwargs: object) -> nn.Module:
        result = npu(self, *args, **kwargs)
        cast_weights(self)
        return result

    nn.Module.to, nn.Module.npu = moved, moved_to_npu


def register(library: torch.library.Library) -> None:
    """Define the casts as ops in a library of namespace `npu`; called once, with the device."""
    for schema, key, kernel in (
        ("npu_format_cast(Tensor self, int acl_format) -> Tensor", "PrivateUse1",
         _observed("npu_format_cast", _cast)),
        ("npu_format_cast.Tensor(Tensor self, Tensor dst) -> Tensor",
         "CompositeImplicitAutograd", _unseen(format_cast)),
        ("npu_format_cast_.acl_format(Tensor(a!) self, int acl_format) -> Tensor(a!)",
         "PrivateUse1", _observed("npu_format_cast_", _cast_in_place)),
        ("npu_format_cast_(Tensor(a!) self, Tensor src) -> Tensor(a!)",
         "CompositeImplicitAutograd", _unseen(Tensor.copy_)),
        ("get_npu_format(Tensor self) -> int", "PrivateUse1", _unseen(get_format)),
        ("get_storage_size(Tensor self) -> int", "PrivateUse1", _unseen(storage_size)),
    ):  # fmt: skip
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, key)
    library.impl("npu_format_cast", _cast_with_gradient, "AutogradPrivateUse1")
    library.impl("npu_format_cast_.acl_format", _cast_in_place_with_gradient, "AutogradPrivateUse1")


def _observed(name: str, kernel: Callable) -> Callable:
    """A cast, seen by whoever observes the device where it is more than a label."""

    def cast(self: Tensor, acl_format: int) -> Tensor:
        if observe.live.observer is None or observe.asleep() or not _moves(self, acl_format):
            return kernel(self, acl_format)
        packet = getattr(torch.ops.npu, name)
        op = packet.acl_format if name.endswith("_") else packet.default
        return observe.call(op, kernel, (self, acl_format), {})

    return cast


def _code(tensor: Tensor, format: int | Tensor) -> int:
    get_format(tensor)  # raises for a tensor elsewhere
    return get_format(format) if isinstance(format, Tensor) else int(formats.parse(format))


def _label_of(tensor: Tensor) -> _Label | None:
    return getattr(tensor.untyped_storage(), _LABEL, None)


def _base(tensor: Tensor) -> tuple[int, ...]:
    """The shape of the tensor that a view was taken of; its own where torch does not know one."""
    label = _label_of(tensor)
    if label:
        return label.base
    return tuple(tensor.shape if tensor._base is None else tensor._base.shape)


def _moves(tensor: Tensor, target: int) -> bool:
    """Whether a cast to `target` is more than a label. Raises ValueError where it is impossible."""
    current = get_format(tensor)
    if current == target:
        return False
    formats.storage_shape(_base(tensor), target, tensor.element_size())
    return not all(formats.base_of(f) == f for f in (current, target))


def _set_label(tensor: Tensor, format: int, base: tuple[int, ...]) -> None:
    setattr(tensor.untyped_storage(), _LABEL, _Label(formats.parse(format), base))


def _unseen(kernel: Callable) -> Callable:
    """A kernel whose torch calls no TorchFunctionMode of the user sees."""

    @functools.wraps(kernel)
    def quiet(*args: object) -> object:
        with torch._C.DisableTorchFunction():
            return kernel(*args)

    return quiet


@_unseen
def _cast(self: Tensor, acl_format: int) -> Tensor:
    if get_format(self) == acl_format:
        return self
    if not _moves(self, acl_format):
        _set_label(self, acl_format, _base(self))
        return self
    elements = self.untyped_storage().nbytes() // self.element_size()
    whole = self.as_strided((elements,), (1,), 0).clone()  # other views of it stay as they are
    _set_label(whole, acl_format, _base(self))
    return whole.as_strided(self.shape, self.stride(), self.storage_offset())


@_unseen
def _cast_in_place(self: Tensor, acl_format: int) -> Tensor:
    cast = _cast(self, acl_format)
    if cast is not self:
        self.set_(cast.untyped_storage(), self.storage_offset(), self.shape, self.stride())
    return self


class NpuFormatCast(torch.autograd.Function):
    """A cast that makes a new tensor: the gradient is the result's."""

    @staticmethod
    def forward(ctx: object, self: Tensor, acl_format: int) -> Tensor:
        with _below_autograd():
            return torch.ops.npu.npu_format_cast(self, acl_format)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


@_unseen
def _cast_with_gradient(self: Tensor, acl_format: int) -> Tensor:
    if self.requires_grad and torch.is_grad_enabled() and _moves(self, acl_format):
        return NpuFormatCast.apply(self, acl_format)
    with _below_autograd():  # the tensor itself, history and all; a Function would wrap it
        return torch.ops.npu.npu_format_cast(self, acl_format)


@_unseen
def _cast_in_place_with_gradient(self: Tensor, acl_format: int) -> Tensor:
    with _below_autograd():  # no value changes: history stays, no version is counted
        return torch.ops.npu.npu_format_cast_(self, acl_format)
