"""Names and codes of the HDF5 dump: the one place that knows how a record lies in a file.

    /<IR>/<seqid>/input/<argument>                  one dataset an argument
    /<IR>/<seqid>/output/<result>
    /<IR>/<seqid>/<side>/<list>/<list>_<i>          the i-th tensor of a list
    /_torch_dumper/0/<name>                         what only comforts: index, omissions

The original dumper, its readers and HDF5's own tools fix most of this. Readers take a node with an
attribute for a dataset and one without for a group, so no group but the root bears attributes; they
look at `Type` 0 only, so everything that is no tensor bears another `Type`; they match names with
`[A-Za-z0-9_]*`, so every other character is escaped. docs/format.md tells it to people.
"""

from __future__ import annotations

import re
from enum import IntEnum

COMFORT = "_torch_dumper"
"""Top-level group of what only this package reads; shaped like an IR so that old readers walk over
it.
"""

FORMAT_VERSION = 1

SIDES = ("input", "output")

VALUES = ("grad", "update")
"""Phases, and IRs, of records that are a value and no call."""

PHASES = ("forward", "backward", "recompute", "optimizer", *VALUES)
"""All phases, as people read them."""

WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch's wrappers of modules add to a qualified name."""

KIND = "kind"
"""Name of the text beside the parts of a tensor that says what they make up."""


class Type(IntEnum):
    """The `Type` attribute. 0-18 are the original producer's; from 100 on they are ours."""

    TENSOR = 0
    VEC_TENSOR = 1
    VEC_I64 = 2
    I64 = 3
    BOOL = 4
    DOUBLE = 5
    OPT_DOUBLE = 6
    SCALAR = 7
    TYPE_AND_SIZE = 8
    OPT_INT64 = 9
    OPT_SCALAR = 10
    VEC_VEC_I64 = 11
    GEOMETRY = 12
    SIZE = 13
    SCALAR_TYPE = 14
    PAIR = 15
    AR_LONG_INT = 16
    OPT_MEM_FMT = 17
    TENSOR_OPTS = 18
    NONE = 100  # an explicit None where leaving the argument out would mean something else
    STRING = 101
    DEVICE = 102
    LAYOUT = 103
    VEC_BOOL = 104
    VEC_DOUBLE = 105
    VEC_SCALAR = 106
    GENERATOR = 107  # the generator's state before the op, bytes
    PARTS = 108  # JSON text: what the tensors beside it make up (sparse, quantized, nested)
    OBJECT = 109  # an object of torch's own (a process group): what it is called
    LINES = 110  # UTF-8 text, one JSON value a line


DEVICE_CODES = {"cpu": 0, "cuda": 1, "npu": 10}
"""`DeviceType` by device name; any other device bears its c10 number."""

DEVICE_NAMES = {code: name for name, code in DEVICE_CODES.items()}

MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
"""c10's memory formats by number."""

_ESCAPED = re.compile(r"_x([0-9a-f]{4,6})_")
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9_]|_(?=x[0-9a-f]{4,6}[^A-Za-z0-9])")


def escape(name: str) -> str:
    """Turn any name into `[A-Za-z0-9_]*`, reversibly: `a.b` becomes `a_x002e_b`."""
    return _TO_ESCAPE.sub(lambda match: f"_x{ord(match[0]):04x}_", name)


def unescape(name: str) -> str:
    """Undo `escape`; a name without its codes comes back unchanged."""
    return _ESCAPED.sub(_character, name)


def _character(match: re.Match[str]) -> str:
    number = int(match[1], 16)
    return chr(number) if number <= 0x10FFFF else match[0]


def ir_name(qualified: str, overload: str) -> str:
    """Name the IR group of an op: `aten::add` + `Tensor` is `add_Tensor`; other namespaces keep
    theirs.
    """
    namespace, _, base = qualified.partition("::")
    name = base if namespace == "aten" else qualified
    return escape(f"{name}_{overload}" if overload not in ("", "default") else name)


def member(key: str, i: int) -> str:
    """The name of the i-th tensor of a list; `key` may be such a name itself."""
    return f"{key}/{key.rpartition('/')[2]}_{i}"


def contiguous_stride(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of contiguous data of a shape, in elements."""
    stride, step = [], 1
    for size in reversed(shape):
        stride.append(step)
        step *= max(size, 1)
    return tuple(reversed(stride))


def record_path(ir: str, seqid: int) -> str:
    """The group of one record, `/<IR>/<seqid>`."""
    return f"/{ir}/{seqid}"
