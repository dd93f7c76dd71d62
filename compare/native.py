"""The compiled loops without the compiler: machine code kept in a cache, called through ctypes.

numba takes a third of a second to start, longer than most comparisons. So it is imported only when
there is no code for these sources on this processor yet; what it makes is kept as an object file
and loaded by llvmlite, in milliseconds. The place is the one that numba would take:
NUMBA_CACHE_DIR, or `__pycache__`, or the user's cache. No place means compiling at every run. A
file is believed when it is whole and only its owner, this user or root, can have written it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

_SOURCES = ("slots", "spreads", "compiling", "bits", "loops", "divergence", "tables",
            "direct_loops", "signatures", "entries", "native")  # fmt: skip

_lock = threading.Lock()
_loaded: dict[str, Callable[..., None]] = {}

# A compiled function's first two arguments: where its result goes, and an exception's; there are
# neither.
_nowhere = (ctypes.c_void_p * 2)()


def loops() -> dict[str, Callable[..., None]]:
    """The functions of entries.py by name, taking addresses and integers; the GIL is released."""
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.update(_load())
    return _loaded


def is_ready() -> bool:
    """Whether the loops need not be compiled."""
    return bool(_loaded) or any(_stored(place) for place in _places(_name()))


def _load() -> dict[str, Callable[..., None]]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name = _name()
    code = next(filter(None, map(_stored, _places(name))), None)
    if code is None:
        from .entries import object_code

        code = object_code(_machine())
        _store(code, name)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return dict(_functions(engine))


def _functions(engine: llvm.ExecutionEngine) -> Iterator[tuple[str, Callable[..., None]]]:
    from .signatures import SIGNATURES

    places = ctypes.addressof(_nowhere), ctypes.addressof(_nowhere) + ctypes.sizeof(ctypes.c_void_p)
    for name, kinds in SIGNATURES.items():
        takes = [ctypes.c_int64 if kind == "n" else ctypes.c_void_p for kind in kinds]
        prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *takes)
        function = prototype(engine.get_function_address(name))
        function.engine = engine  # owns the code, and must not go before what calls it
        yield name, partial(function, *places)


def _machine() -> llvm.TargetMachine:
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=3, codemodel="jitdefault"
    )


def _features() -> str:
    return llvm.get_host_cpu_features().flatten()


def _name() -> str:
    """What the code depends on: the sources, the compiler, the processor."""
    digest = hashlib.sha256()
    for part in (llvmlite.__version__, llvm.get_host_cpu_name(), _features()):
        digest.update(part.encode() + b"\0")
    for source in _SOURCES:
        digest.update(Path(__file__).with_name(f"{source}.py").read_bytes())
    return f"loops-{digest.hexdigest()[:32]}.o"


def _places(name: str) -> Iterator[Path]:
    """Files that may hold the code, the best first."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen, name)
        return
    yield Path(__file__).parent / "__pycache__" / name
    with contextlib.suppress(RuntimeError):  # no home directory
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        yield Path(base, "torch-dumper", name)


def _stored(path: Path) -> bytes | None:
    """The code in a file; None where there is none, or none that can be trusted."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if hasattr(os, "geteuid") and (
                found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022
            ):
                return None
            data = file.read()
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _store(code: bytes, name: str) -> None:
    for path in _places(name):
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            number, partial_name = tempfile.mkstemp(dir=path.parent, prefix=name)
            try:
                with open(number, "wb") as file:
                    file.write(hashlib.sha256(code).digest() + code)
                os.replace(partial_name, path)
            except BaseException:
                os.unlink(partial_name)
                raise
            return
