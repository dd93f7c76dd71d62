"""The compiled loops put together into one object file. Imported only where there is none yet."""

from __future__ import annotations

import llvmlite.binding as llvm
import numba
from numba import types

from . import direct_loops, divergence, loops, tables
from .signatures import SIGNATURES

_KINDS = {
    "n": types.int64,
    "f": types.CPointer(types.float32),
    "d": types.CPointer(types.float64),
    "b": types.CPointer(types.uint8),
    "s": types.CPointer(types.int16),
    "i": types.CPointer(types.int32),
    "l": types.CPointer(types.int64),
}

_FUNCTIONS = {
    "first_32": loops.first_32,
    "first_64": loops.first_64,
    "first_16": loops.first_16,
    "first_wide": loops.first_wide,
    "second_32": divergence.second_float,
    "second_64": divergence.second_float,
    "second_16": divergence.second_16,
    "second_wide": divergence.second_wide,
    "count_pairs": tables.count_pairs,
    "first_table": tables.first_table,
    "second_table": tables.second_table,
    "find_pair": tables.find_pair,
    "direct_32": direct_loops.direct_32,
    "direct_64": direct_loops.direct_64,
    "direct_16": direct_loops.direct_16,
}


def object_code(machine: llvm.TargetMachine) -> bytes:
    """Compile all functions for a machine; each is found by its name in SIGNATURES."""
    whole = llvm.parse_assembly("")
    for name, kinds in SIGNATURES.items():
        arguments = tuple(_KINDS[kind] for kind in kinds)
        # Without the wrappers that call Python the code stands alone.
        compiled = numba.njit(
            error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
        )(_FUNCTIONS[name])
        compiled.compile(types.void(*arguments))
        result = compiled.overloads[arguments]
        module = llvm.parse_assembly(result.library.get_llvm_str())
        module.get_function(result.fndesc.llvm_func_name).name = name
        whole.link_in(module)
    return machine.emit_object(whole)
