"""Qualified names of modules, parameters and buffers, as `named_modules()` gives them.

The modules that the step calls from outside are the roots. The first root that holds anything is
the model: its names are those of its state_dict. What another root holds (a discriminator) bears
that root's class before its name. What wrappers add to a name is left out, so that a run
under DistributedDataParallel, FSDP or torch.compile names things as a plain run does.

Parameters are recognised by their storage, so that `weight.t()` and `weight.data` are found too.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .layout import WRAPPERS
from .tensors import storage_of


class Names:
    """Names of what the roots hold. models: names for modules known beforehand, by their label."""

    def __init__(self, models: Mapping[str, nn.Module] | None = None) -> None:
        # All by weak references: a module that the step makes and drops must not live on.
        self._modules: dict[int, tuple[weakref.ref, str]] = {}
        self._storages: dict[int, list[tuple[weakref.ref, int, int, str]]] = {}
        self._roots: dict[str, weakref.ref] = {}
        self._lazy = False  # some parameter had no memory yet
        for label, model in (models or {}).items():
            self._add(label, model)

    def of_module(self, module: nn.Module, inside: str | None = None) -> str:
        """The module's qualified name. inside: the module that calls it.

        One not seen before is a root, if it holds anything; else its class is its name, since such
        modules (a loss, an activation) are often made anew for each call. Below the caller's name.
        """
        found = self._modules.get(id(module))
        if found is not None and found[0]() is module:
            return found[1]
        if not _holds_tensors(module):
            return _join(inside or "", type(module).__name__)
        # Inside another one: its owner keeps it where torch does not look, in a plain list say.
        self._add(self._label(module, inside), module)
        return self._modules[id(module)][1]

    def refresh(self, module: nn.Module) -> None:
        """A root is called again: its parameters may lie elsewhere now (`.double()`, lazy ones)."""
        for label, root in self._alive():
            if root is module:
                self._add(label, root)

    def of_tensor(self, tensor: torch.Tensor) -> str | None:
        """The name of the parameter or buffer that this tensor is, or is a whole view of."""
        with torch._C.DisableTorchFunction():
            storage = storage_of(tensor)
            return None if storage is None else self.of_storage(storage._cdata, tensor)

    def of_storage(self, address: int, tensor: torch.Tensor) -> str | None:
        """`of_tensor` where the address of the tensor's live storage is known."""
        found = self._storages.get(address)
        if found is None:
            return None
        for ref, offset, numel, name in found:
            if ref() is not None and (tensor.storage_offset(), tensor.numel()) == (offset, numel):
                return name
        return None

    def settle(self, module: nn.Module) -> None:
        """A root returned: what was lazy in it has its memory now."""
        if self._lazy:
            self._lazy = False
            self.refresh(module)

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter of every root once, as it is now."""
        seen: set[int] = set()
        for label, root in self._alive():
            for name, parameter in root.named_parameters():
                if id(parameter) not in seen and not is_lazy(parameter):
                    seen.add(id(parameter))
                    yield _join(label, _plain(root, name)), parameter

    def statistics(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The running statistics of every normalisation layer of every root."""
        for label, root in self._alive():
            for name, module in root.named_modules():
                if isinstance(module, nn.modules.batchnorm._NormBase):
                    for key, buffer in module.named_buffers(recurse=False):
                        if is_lazy(buffer):
                            continue
                        yield _join(label, _plain(root, f"{name}.{key}" if name else key)), buffer

    def _label(self, root: nn.Module, inside: str | None) -> str:
        for label, ref in list(self._roots.items()):
            if ref() is None and label:
                del self._roots[label]
        if "" not in self._roots and inside is None:
            return ""
        name, number = _join(inside or "", type(_unwrapped(root)).__name__), 1
        while (label := name if number == 1 else f"{name}_{number}") in self._roots:
            number += 1
        return label

    def _add(self, label: str, root: nn.Module) -> None:
        self._roots[label] = weakref.ref(root)
        with torch._C.DisableTorchFunction():  # no call of the user's, for none of the user's modes
            self._add_all(label, root)

    def _add_all(self, label: str, root: nn.Module) -> None:
        for name, module in root.named_modules():
            known = self._modules.get(id(module))
            if known is None or known[0]() is not module:
                self._modules[id(module)] = weakref.ref(module), _join(label, _plain(root, name))
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            if is_lazy(tensor):
                self._lazy = True
                continue
            storage = storage_of(tensor)
            if storage is None or self.of_storage(storage._cdata, tensor) is not None:
                continue  # it has none, or is known: a root is looked through at each call
            known = self._storages.get(storage._cdata, ())
            entry = (weakref.ref(storage), tensor.storage_offset(), tensor.numel())
            alive = [old for old in known if old[0]() is not None]
            named = (*entry, _join(label, _plain(root, name)))
            self._storages[storage._cdata] = [*alive, named]

    def _alive(self) -> Iterator[tuple[str, nn.Module]]:
        for label, ref in list(self._roots.items()):
            root = ref()
            if root is not None:
                yield label, root


def _holds_tensors(module: nn.Module) -> bool:
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())


def _join(label: str, name: str) -> str:
    return f"{label}.{name}" if label and name else label or name


def _plain(root: nn.Module, name: str) -> str:
    """A qualified name below `root` without what wrappers add to it."""
    parts, module = [], root
    for part in name.split("."):
        wrapper = part in WRAPPERS or (part == "module" and _is_wrapper(module))
        if not wrapper:
            parts.append(part)
        module = getattr(module, part, None)
    return ".".join(parts)


def _is_wrapper(module: object) -> bool:
    """Whether a module does nothing but hold another one under the name `module`."""
    return (
        isinstance(module, nn.Module)
        and not isinstance(module, torch.jit.ScriptModule)  # whose parts are no dictionaries
        and list(module._modules) == ["module"]
        and not module._parameters
    )


def _unwrapped(module: nn.Module) -> nn.Module:
    while not isinstance(module, torch.jit.ScriptModule):
        inner = [module._modules.get(name) for name in ("_orig_mod", "_fsdp_wrapped_module")]
        if _is_wrapper(module):
            inner.append(module._modules["module"])
        found = next((m for m in inner if m is not None), None)
        if found is None:
            return module
        module = found
    return module
