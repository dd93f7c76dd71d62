"""What `import torch` runs of this project: it sets `torch.utils.dumper` and the emulated device.

torch calls every entry point of group `torch.backends` while it is being imported, and an exception
there kills `import torch`. So this module imports nothing of ours until asked, and lets none out.

Our packages have common names, and a training folder may hold its own `dumper.py`, `compare/` or
`npu_core.py`, first on `sys.path`. That folder keeps its names. This module, whose own name is
unique, is also a package (`__path__`) over the folder it lies in, so that ours is always found by
file: `_torch_dumper_bootstrap.dumper` where the name `dumper` is taken, plain `dumper` otherwise,
so that `import dumper` and `torch.utils.dumper` are one module with one state.
"""

from __future__ import annotations

import os
import sys

__path__ = [os.path.dirname(os.path.abspath(__file__))]


def autoload() -> None:
    """Entry point of torch: set `torch.utils.dumper`, register the emulated npu if asked.

    Asked means: `NPU_CORE` names a profile, or our `npu_core` was imported before torch. Where
    `TORCH_DUMPER` names a configuration, a dump will begin as it says. Never raises: what goes
    wrong is one RuntimeWarning.
    """
    install()
    _register_npu()
    config = os.environ.get("TORCH_DUMPER")
    if config:
        _start_dump(config)


def _register_npu() -> None:
    profile = os.environ.get("NPU_CORE") or None
    if profile is None and not _is_ours("npu_core", sys.modules.get("npu_core")):
        return
    try:
        _package("npu_core").register(profile)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not break `import torch`
        _warn(
            "The emulated npu device is not registered"
            + (f" (NPU_CORE={profile})" if profile else "")
            + f": {type(error).__name__}: {error}\n"
            "torch works without it. Unset NPU_CORE if you do not want the device."
        )


def _start_dump(config: str) -> None:
    try:
        _package("dumper").start(config)
    except Exception as error:  # noqa: BLE001 - as above
        _warn(f"TORCH_DUMPER={config}: {_cannot_load(error)}")


def install() -> None:
    """Set `torch.utils.dumper`, which imports package `dumper` at its first call."""
    import torch.utils

    torch.utils.dumper = _dumper


def msaccucmp() -> None:
    """The console script: our `compare`, also where PYTHONPATH holds another one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    for name in ("dumper", "compare"):
        spec = PathFinder.find_spec(name, __path__)
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)
    from compare.cli import main

    main()


def _dumper(
    enabled: bool = True,
    use_dump: bool = False,
    use_load: bool = False,
    check_overflow: bool = False,
    dump_path: str | os.PathLike[str] | None = None,
    load_file_path: str | os.PathLike[str] | None = None,
    load_with_acl_dump: bool = False,
    *,
    ops=None,
    modules=None,
    phases=None,
    steps=None,
    ranks=None,
    sides=("input", "output"),
    level: str = "op",
    views: str = "skip",
    max_bytes: int | None = None,
    estimate: bool = False,
    model=None,
    memory: int = 1 << 30,
):
    """Context manager around one training step: dump every op to an HDF5 file, or replay one.

        with torch.utils.dumper(use_dump=True, dump_path="cpu.h5"):
            step()
        with torch.utils.dumper(use_load=True, load_file_path="cpu.h5", dump_path="npu.h5"):
            step()

    enabled: False makes it do nothing.
    use_dump: write the inputs and outputs of every op to dump_path.
    use_load: run each op on the inputs recorded in load_file_path, write its outputs to dump_path.
    check_overflow: write only the ops that overflow.
    dump_path: file to write; a folder or None (the working directory) gets a time-stamped file.
    load_file_path: file to load from.
    load_with_acl_dump: dump the loaded ops on the device through ACL too.
    ops, modules: patterns of IR names and of module paths to record.
    phases, steps, ranks, sides: which of these to record.
    level: op, call or module: the boundary whose tensors are kept.
    views: skip or dump the results of views.
    max_bytes: of tensor data in one file.
    estimate: run the step, write nothing, print what a dump would take.
    model: a module, or several by name, to be named before they are called.
    memory: bytes of a value that are copied at once.

    Raises ImportError if package dumper or something it needs cannot be imported.
    `msaccucmp compare` compares two such files.
    """
    try:
        start = _package("dumper").dumper
    except Exception as error:  # a damaged installation fails in any way; the answer is one
        raise ImportError(_cannot_load(error)) from error
    return start(
        enabled=enabled,
        use_dump=use_dump,
        use_load=use_load,
        check_overflow=check_overflow,
        dump_path=dump_path,
        load_file_path=load_file_path,
        load_with_acl_dump=load_with_acl_dump,
        ops=ops,
        modules=modules,
        phases=phases,
        steps=steps,
        ranks=ranks,
        sides=sides,
        level=level,
        views=views,
        max_bytes=max_bytes,
        estimate=estimate,
        model=model,
        memory=memory,
    )


# In this module the plain name belongs to the package, which importing sets as an attribute here.
_dumper.__name__ = _dumper.__qualname__ = "dumper"
_dumper.__module__ = "torch.utils"


def _package(name: str):
    """Our package: by its plain name where that leads to ours, else below this module."""
    import importlib.util

    found = sys.modules.get(name) or importlib.util.find_spec(name)
    return importlib.import_module(name if _is_ours(name, found) else f"{__name__}.{name}")


def _is_ours(name: str, found: object) -> bool:
    """Whether a module, a spec or None is our package of this name."""
    file = getattr(found, "__file__", None) or getattr(found, "origin", None)
    ours = os.path.join(__path__[0], name, "__init__.py")
    return isinstance(file, str) and os.path.realpath(file) == os.path.realpath(ours)


def _cannot_load(error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    missing = missing.partition(".")[0]
    if missing in ("", "dumper", __name__):
        advice = "Reinstall it: pip install --force-reinstall --no-deps torch-dumper"
    else:
        advice = f"Install what is missing: pip install {missing}"
    return (
        f"torch.utils.dumper cannot be loaded from {os.path.join(__path__[0], 'dumper')}: "
        f"{type(error).__name__}: {error}\n{advice}"
    )


def _warn(message: str) -> None:
    import warnings

    try:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    except RuntimeWarning:  # `python -W error`: even then `import torch` must go on
        sys.stderr.write(f"torch-dumper: {message}\n")
