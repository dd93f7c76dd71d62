"""One buffer seen from two devices: aliases between a CPU tensor and an npu tensor.

torch's own DLPack capsule carries a device code. Overwriting that one integer makes torch wrap the
same memory for the other device, with the true shape, strides and storage, in 1.3 us; the capsule's
deleter is torch's own C++, so nothing of Python runs when the tensor dies (a Python deleter crashes
the process at exit). The facts needed per argument (device, rank) are read from the capsule too:
Tensor attributes such as `.is_cpu` would be seen by a TorchFunctionMode of the user.

DLPack knows no conj or neg bit and drops them silently; only the `_bits` variants keep them.
"""

from __future__ import annotations

import functools
import pickle
from ctypes import c_char_p, c_int32, c_void_p, py_object, pythonapi
from multiprocessing.reduction import ForkingPickler

import torch
import torch.utils.dlpack
from torch.multiprocessing import reductions

_CPU, _NPU = 1, 12  # kDLCPU, kDLExtDev
_DEVICE_TYPE, _RANK = 8, 16  # offsets in DLTensor: data pointer, device (2 x int32), rank

_int32 = c_int32.from_address
_pointer = pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, (py_object, c_char_p)
_export, _import = torch._C._to_dlpack, torch._C._from_dlpack


DEVICE_COUNT = 1


def check_index(index: int | None) -> None:
    """Raises RuntimeError for a device index that is not emulated."""
    if index is not None and not 0 <= index < DEVICE_COUNT:
        raise RuntimeError(
            f"npu:{index} does not exist: npu_core emulates {DEVICE_COUNT} device, npu:0"
        )


class MixedDevices(RuntimeError):
    """A CPU tensor of rank > 0 met an op that computes on npu."""


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU alias of an npu tensor. A CPU scalar tensor (rank 0) is allowed and comes back as is.

    Raises MixedDevices for any other tensor, as a device without unified memory would.
    """
    capsule = _export(tensor)
    address = _pointer(capsule, b"dltensor")
    code = _int32(address + _DEVICE_TYPE)
    if code.value == _NPU:
        code.value = _CPU
        return _import(capsule)
    if code.value == _CPU and _int32(address + _RANK).value == 0:
        return tensor
    raise MixedDevices


def to_cpu_or_keep(tensor: torch.Tensor) -> torch.Tensor:
    """Like `to_cpu`, for the few ops that take CPU tensors of any rank beside npu ones."""
    capsule = _export(tensor)
    code = _int32(_pointer(capsule, b"dltensor") + _DEVICE_TYPE)
    if code.value != _NPU:
        return tensor
    code.value = _CPU
    return _import(capsule)


def to_npu(tensor: torch.Tensor) -> torch.Tensor:
    """The npu alias of a CPU tensor.

    Raises NotImplementedError for one that is not dense (sparse, quantized, nested, MKL-DNN).
    """
    try:
        capsule = _export(tensor)
    except (RuntimeError, BufferError):
        if tensor.layout is torch.strided and not (tensor.is_quantized or tensor.is_nested):
            raise
        raise NotImplementedError(
            "npu has dense tensors only, no sparse, quantized, nested (strided layout) or MKL-DNN "
            "ones; make such a tensor on the CPU"
        ) from None
    _int32(_pointer(capsule, b"dltensor") + _DEVICE_TYPE).value = _NPU
    return _import(capsule)


def _keeping_bits(alias):
    def convert(tensor: torch.Tensor) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            result = alias(tensor)
            if tensor.is_conj() and not result.is_conj():
                torch._C._set_conj(result, True)
            if tensor.is_neg() and not result.is_neg():
                torch._C._set_neg(result, True)
        return result

    return convert


to_cpu_bits = _keeping_bits(to_cpu)
to_cpu_or_keep_bits = _keeping_bits(to_cpu_or_keep)
to_npu_bits = _keeping_bits(to_npu)


def claim_dlpack() -> None:
    """Let `torch.from_dlpack` take npu tensors: torch knows us there by our unnamed name only."""
    ask = torch.Tensor.__dlpack_device__

    @functools.wraps(ask)
    def dlpack_device(self: torch.Tensor) -> tuple[int, int]:
        if self.device.type != "npu":
            return ask(self)
        return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index

    torch.Tensor.__dlpack_device__ = dlpack_device


def claim_data() -> torch.library.Library:
    """Let `tensor.data = other` change between CPU and npu, as torch_npu does.

    So `module.npu()` keeps its Parameter objects: tied weights stay tied, an optimizer made before
    goes on with them. Answered at autograd's key too, so that no dispatch mode sees the question.
    It stands as long as the returned object lives.
    """
    library = torch.library.Library("aten", "FRAGMENT")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        library.impl("_has_compatible_shallow_copy_type", _both_dense, key)
    return library


def _both_dense(self: torch.Tensor, other: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return all(
            t.device.type in ("cpu", "npu")
            and t.layout is torch.strided
            and not (t.is_quantized or t.is_nested)
            for t in (self, other)
        )


def claim_queues() -> None:
    """Let npu tensors pass between processes, as a DataLoader's workers send them: by a copy.

    torch would look for shared memory of the device; it fails in the thread that feeds the queue,
    and the process at the other end waits for ever.
    """
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce)


def _reduce(tensor: torch.Tensor) -> tuple:
    refused = tensor.requires_grad and not tensor.is_leaf
    if refused or tensor.device.type != "npu":
        return reductions.reduce_tensor(tensor)
    with torch.no_grad():
        if type(tensor) is torch.Tensor and tensor.untyped_storage().nbytes() > tensor.nbytes:
            tensor = tensor.clone().requires_grad_(tensor.requires_grad)  # not all that it views
        return _rebuild, (pickle.dumps(tensor),)


def _rebuild(pickled: bytes) -> torch.Tensor:
    from . import register

    register()  # the other end may be a fresh process
    return pickle.loads(pickled)


def claim_storages() -> None:
    """Let `torch.UntypedStorage(n, device="npu")` work: deepcopy, clone and load begin with it.

    A Python backend has no C++ allocator, and torch calls the missing one: the process dies.
    """
    base = torch._C.StorageBase.__new__

    def new(cls: type, *args: object, device: object = None, **kwargs: object) -> object:
        if device is None:
            return base(cls, *args, **kwargs)
        device = torch.device(device)
        if device.type != "npu":
            return base(cls, *args, device=device, **kwargs)
        check_index(device.index)
        size = args[0] if args else kwargs.get("size", 0)
        if not isinstance(size, int):
            raise TypeError("an npu storage is made from its size in bytes; fill it with copy_")
        return to_npu(torch.empty(size, dtype=torch.uint8)).untyped_storage()

    resize = torch._C.StorageBase.resize_

    def resize_(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != "npu":
            return resize(self, size)
        if size == self.nbytes():
            return self
        raise RuntimeError(
            f"an npu storage of {self.nbytes()} bytes cannot become one of {size}: no backend in "
            "Python can do that; make a new tensor, or resize the tensor with resize_"
        )

    torch.UntypedStorage.__new__ = new
    torch.UntypedStorage.resize_ = resize_
