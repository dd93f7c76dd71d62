"""In which format the chip would hold each port of a TBE operator.

Where the device keeps its own formats (`npu_core.options.allows_internal_format`; 910A unless it is
switched off) the operators of the cube and of its neighbours ask for theirs: the table below, by
kinds of ports. Everything else takes what it is given: an npu tensor's own label, what an earlier
step made, and an output as its first input where it has the same shape. Without formats of its own
all is plain. What a format cannot hold, by its rank, is plain too.

Sources: torch_npu's OpPreparation calls (formats.json of the facts this project stands on).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from npu_core import options, storage
from npu_core.formats import Format, default_of, storage_shape

GROUPED = (Format.FRACTAL_Z, Format.FRACTAL_Z_3D)
"""The formats that depend on the groups of a convolution."""

_CUBE = (torch.float16, torch.bfloat16, torch.float32)

Kind = Callable[[Tensor], Format | None]


def _feature(value: Tensor) -> Format | None:
    """Images of a convolution: tiled where they are fp16, as op-plugin has it."""
    return Format.NC1HWC0 if value.dim() == 4 and value.dtype is torch.float16 else None


def _filter(value: Tensor) -> Format | None:
    return Format.FRACTAL_Z if value.dim() == 4 else None


def _volume(value: Tensor) -> Format | None:
    return Format.NDC1HWC0 if value.dim() == 5 else None


def _filter_3d(value: Tensor) -> Format | None:
    return Format.FRACTAL_Z_3D if value.dim() == 5 else None


def _matrix(value: Tensor) -> Format | None:
    plain = options.get_option("MM_BMM_ND_ENABLE") == "enable"
    return Format.FRACTAL_NZ if value.dim() > 1 and value.dtype in _CUBE and not plain else None


def _channels(value: Tensor) -> Format | None:
    """Images and vectors over channels, of any dtype."""
    return Format.NC1HWC0 if value.dim() in (1, 4) else None


def _plain(value: Tensor) -> Format | None:
    return default_of(value.dim())


# Inputs and outputs in order; the last of each is that of all further ones.
_KINDS: dict[str, tuple[tuple[Kind, ...], tuple[Kind, ...]]] = {
    "Conv2D": ((_feature, _filter, _plain), (_feature,)),
    "Conv2DTranspose": ((_plain, _feature, _filter, _plain), (_feature,)),
    "Conv2DBackpropInput": ((_plain, _filter, _feature), (_feature,)),
    "Conv2DBackpropFilter": ((_feature, _plain, _feature), (_plain,)),
    "Conv3D": ((_volume, _filter_3d, _plain), (_volume,)),
    "Conv3DTranspose": ((_plain, _volume, _filter_3d, _plain), (_volume,)),
    "Conv3DBackpropInput": ((_plain, _filter_3d, _volume), (_volume,)),
    "Conv3DBackpropFilter": ((_volume, _plain, _volume), (_filter_3d,)),
    **dict.fromkeys(
        ("MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2"),
        ((_matrix, _matrix, _plain), (_matrix,)),
    ),
    **dict.fromkeys(
        (
            "BNTrainingReduce", "BNTrainingUpdate", "BNInfer", "BNTrainingUpdateGrad",
            "BNTrainingReduceGrad", "BNInferGrad", "MaxPoolWithArgmaxV1", "MaxPoolGradWithArgmaxV1",
        ),
        ((_channels,), (_channels,)),
    ),
    **dict.fromkeys(
        (
            "BN3DTrainingReduce", "BN3DTrainingUpdate", "BN3DTrainingUpdateGrad",
            "BN3DTrainingReduceGrad",
        ),
        ((_volume,), (_volume,)),
    ),
}  # fmt: skip


def formats(
    op: str,
    inputs: Sequence[Tensor],
    known: Sequence[Format | None],
    outputs: Sequence[Tensor],
    own: Sequence[Format | None],
) -> tuple[list[Format], list[Format]]:
    """The formats of an operator's inputs and outputs.

    known: of each input that an earlier step made, the format it was made in; None of the others.
    own: of each output that is written over an argument, the format of that; None of the others.
    """
    before = [_given(value, made) for value, made in zip(inputs, known, strict=True)]
    first = (inputs[0].shape, before[0]) if inputs else None
    after = [
        _after(value, first) if label is None else label
        for value, label in zip(outputs, own, strict=True)
    ]
    if op in _KINDS and options.allows_internal_format():
        for found, values, kinds in zip(
            (before, after), (inputs, outputs), _KINDS[op], strict=True
        ):
            for i, value in enumerate(values):
                wanted = kinds[min(i, len(kinds) - 1)](value)
                found[i] = found[i] if wanted is None else wanted
    return before, after


def _given(value: Tensor, made: Format | None) -> Format:
    if made is None and value.device.type == "npu":
        made = Format(storage.get_format(value))
    return made if made is not None and _holds(made, value) else _plain(value)


def _after(value: Tensor, first: tuple[torch.Size, Format] | None) -> Format:
    if first is not None and first[0] == value.shape:
        return first[1]
    return _plain(value)


def _holds(format: Format, value: Tensor) -> bool:
    """Whether a tensor of this rank can be in a format: a label stays on views of other ranks."""
    try:
        storage_shape(tuple(value.shape), format, value.element_size())
    except ValueError:
        return False
    return True
