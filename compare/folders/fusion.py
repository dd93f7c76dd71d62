"""Fusion rules read: the json that says what a compiled network was made of.

It is what ATC makes of a compiled model, or AMCT of a quantized network: `graph` lists
graphs, each of which lists under `op` operators. An operator says in `attr` which ops were fused
into it, in `output_desc` what each of its outputs was called before and its type, and in `input`
who makes what it takes. Whatever else there is, is passed over; what is there in another form than
this is an error, and not guessed at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dumper.errors import DumpError, first_line

from ..files import opened
from .rules import Op, Original, Rules

_BYTES = 128 << 20
"""Of a file: Python's objects take up to 30 times as much, and large networks have some 30 MB."""

_LONGEST = 1024
"""Characters of a name; none that is meant has more."""

_FUSED = "_datadump_original_op_names"
_NAME = "_datadump_origin_name"
_INDEX = "_datadump_origin_output_index"
_FORMAT = "_datadump_origin_format"
_GROUP = "_L1_fusion_sub_graph_no"
_PLAIN_FORMAT = "origin_format"
"""What stands for it where it is missing or empty."""


def load(path: Path) -> Rules:
    """Read the rules. Raises DumpError for what is no such json."""
    with opened(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _BYTES:
            raise _bad(path, f"it has {size} bytes, and {_BYTES} are read at most")
        text = file.read()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"it is no json that can be read ({first_line(error)})") from None
    del text
    try:
        ops = list(_ops(content))
    except _Odd as odd:
        raise _bad(path, str(odd)) from None
    if not ops:
        raise _bad(path, "it lists no op under graph")
    return Rules(ops)


class _Odd(Exception):
    """What is not as ATC writes it."""


def _bad(path: Path, what: str) -> DumpError:
    todo = (
        "name the json that `atc --mode=1 --om=MODEL.om --json=RULES.json` makes of the model, or "
        "that AMCT makes of a quantized network"
    )
    return DumpError(f"these are no fusion rules: {what}", path, todo)


def _ops(content: Any) -> Iterator[Op]:
    for graph in _items(_is(dict, content, "the whole"), "graph", "the whole"):
        for op in _items(_is(dict, graph, "a graph"), "op", "a graph"):
            name = _name(_is(dict, op, "an op").get("name"), "the name of an op")
            attributes = _attributes(op, name)
            fused = None
            if _FUSED in attributes:
                names = _is(dict, attributes[_FUSED].get("list"), f"{_FUSED} of {name}")
                found = _items(names, "s", name)
                named = (_name(each, f"{_FUSED} of {name}") for each in found)
                fused = tuple(filter(None, named))  # one that is '' is none
            descs = _items(op, "output_desc", name)
            found = [_attributes(_is(dict, o, f"an output of {name}"), name) for o in descs]
            outputs = tuple(_original(each, i, name) for i, each in enumerate(found))
            dtypes = (_is(str, o.get("dtype", ""), f"the dtype of {name}") for o in descs)
            inputs = [_source(each, name) for each in _items(op, "input", name)]
            group = attributes.get(_GROUP, {}).get("s", "")
            yield Op(
                name,
                _is(str, op.get("type", ""), f"the type of {name}"),
                fused,
                tuple(original for original, _ in outputs),
                tuple(form for _, form in outputs),
                tuple(dtypes),
                tuple(each for each in inputs if each[1] >= 0),
                _is(str, group, f"{_GROUP} of {name}"),
            )


def _original(
    attributes: dict[str, dict], at: int, name: str
) -> tuple[Original | None, str | None]:
    """What the at-th output was, None where that is not said, and its format likewise."""
    origin = _name(attributes.get(_NAME, {}).get("s", ""), f"{_NAME} of {name}")
    index = _is(int, attributes.get(_INDEX, {"i": at}).get("i", 0), f"{_INDEX} of {name}")
    forms = [
        _is(str, attributes.get(key, {}).get("s", ""), f"{key} of {name}")
        for key in (_FORMAT, _PLAIN_FORMAT)
    ]
    if not 0 <= index < 1 << 32:
        raise _Odd(f"{_INDEX} of {name} is {str(index)[:20]}")
    form = next(filter(None, forms), None)
    return (Original(origin, index, form) if origin else None), form


def _source(text: Any, name: str) -> tuple[str, int]:
    """`op:0` of an input; a control edge has the number -1, and nobody makes an absent one."""
    if text == "":
        return "", 0
    op, _, number = _is(str, text, f"an input of {name}").rpartition(":")
    if not (number.removeprefix("-").isascii() and number.removeprefix("-").isdigit()):
        raise _Odd(f"an input of {name} is {text[:80]!r}, which names no output of an op")
    if len(number) > 9:
        raise _Odd(f"an input of {name} is output {number[:20]} of an op")
    return op, int(number)


def _attributes(owner: dict, name: str) -> dict[str, dict]:
    """Those of ours that an op or an output has, each with its value."""
    found = {}
    for each in _items(owner, "attr", name):
        key = _is(dict, each, f"an attribute of {name}").get("key")
        if key in (_FUSED, _NAME, _INDEX, _FORMAT, _PLAIN_FORMAT, _GROUP):
            found[key] = _is(dict, each.get("value"), f"{key} of {name}")
    return found


def _items(owner: dict, key: str, name: str) -> list:
    return _is(list, owner.get(key, []), f"{key} of {name}")


def _name(value: Any, what: str) -> str:
    """A name of an op, which rows will have."""
    if len(name := _is(str, value, what)) > _LONGEST:
        raise _Odd(f"{what} has {len(name)} characters, and {_LONGEST} are the most")
    return name


def _is(kind: type, value: Any, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        names = {dict: "an object", list: "a list", str: "a text", int: "a whole number"}
        raise _Odd(f"{what[:200]} is not {names[kind]}")
    return value
