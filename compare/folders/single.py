"""`-op` of a folder of CANN dumps: one tensor of one operator, element by element.

NAME is the operator's, with slashes or as files spell it, or its type and name with a dot
(`MatMul.net_wo`); of one that ran more than once NAME/INDEX says which, by the csv's Index.
"""

from __future__ import annotations

from pathlib import Path

from dumper.errors import DumpError
from ir2tbe.cann.content import Tensor
from ir2tbe.cann.names import name_part

from ..convert import safe
from ..options import SingleOp
from ..single import Shown, write_elements
from .pairs import Golden, Pair, all_pairs
from .plain import axes, in_common
from .rows import values_of
from .scan import Folder, OpFile

_SHOWN = 10


def write_single(
    mine: Folder, golden: Golden, asked: SingleOp, folder: Path, first: int = 0
) -> Shown:
    """Write the files of one tensor against what `compare` sets it against.

    first: only so many elements, 0 for all. Raises DumpError where there is no such operator or
    tensor, no counterpart or another shape or dtype, and where values cannot be read or written.
    """
    op = _operator(mine, asked.name)
    pair = _pair(mine, golden, op, asked)
    x, y, _ = values_of(pair)
    if x.shape != y.shape or pair.reason:
        what = pair.reason or f"shapes differ: {list(x.shape)} in mine, {list(y.shape)} in golden"
        raise DumpError(what, pair.mine.label, "see result_<time>.csv, or -map")
    arrays = x.read(), y.read()
    sources = pair.mine.label, pair.golden.label
    name = safe(f"{op.name.op_type}_{op.name.op_name}_{op.number}")
    needed = 128 + arrays[0].size * max(4, arrays[0].itemsize)
    return write_elements(*arrays, x, sources, name, needed, asked, folder, first, _axes(pair))


def _axes(pair: Pair) -> str:
    """The names of the axes in which the two are compared, as NHWC; '' where nobody names them."""
    mine, golden = pair.mine.tensor, pair.golden.tensor
    return axes(mine, in_common(mine, golden) if isinstance(golden, Tensor) else pair.format)


def _operator(mine: Folder, name: str) -> OpFile:
    found = [op for op in mine.ops if _is(op, name)]
    if not found:
        base, _, number = name.rpartition("/")
        at = [op for op in mine.ops if base and number == str(op.number) and _is(op, base)]
        if at:
            return at[0]
        names = dict.fromkeys(f"{op.name.op_type}.{op.name.op_name}" for op in mine.ops)
        some = ", ".join(list(names)[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)
        raise DumpError(f"no operator is called {name}", mine.root, f"names are {some}")
    if len(found) > 1:
        some = ", ".join(f"{name}/{op.number}" for op in found[:_SHOWN])
        todo = f"name one of them: {some}" + ", ..." * (len(found) > _SHOWN)
        raise DumpError(f"{len(found)} operators are called {name}", mine.root, todo)
    return found[0]


def _is(op: OpFile, name: str) -> bool:
    called = op.name
    return name in (called.op_name, f"{called.op_type}.{called.op_name}") or (
        name_part(name) == called.op_name
    )


def _pair(mine: Folder, golden: Golden, op: OpFile, asked: SingleOp) -> Pair:
    pairs = list(all_pairs(mine, golden, [op.number], rest=False))
    own = [each for each in pairs if each.where == asked.side and each.mine is not None]
    whole = next((each for each in pairs if each.damaged and each.where is None), None)
    if whole is not None:
        raise DumpError(whole.reason, op.path, "dump again")
    if asked.number >= len(own):
        raise DumpError(
            f"this operator has {len(own)} {asked.side} tensors, counted from 0",
            op.path,
            "choose with -o or -i; dump_mode in acl.json says which sides are dumped",
        )
    found = own[asked.number]
    if found.damaged:
        raise DumpError(found.reason, found.mine.label, "name another tensor, or dump again")
    if found.golden is None or found.golden.tensor is None:
        what = found.reason or "this tensor has no counterpart in golden"
        raise DumpError(what, found.mine.label, "see what belongs together with -map")
    return found
