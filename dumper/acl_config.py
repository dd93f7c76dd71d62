"""CANN's acl.json: what an ACL dump is to hold, and where it goes.

    {"dump": {"dump_path": "./acl_dump", "dump_list": [], "dump_mode": "all",
              "dump_op_switch": "on"}}

CANN takes the file as it is: a misspelt field has no effect, and a wrong value is an error number
in a log that nobody reads. So the file is judged here, before anything runs, with all its faults at
once. The fields are those of CANN's reference (`aclmdlSetDump`); other objects of the file, such as
`profiler`, are other tools'.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from .errors import DumpError, printable
from .json_faults import MOST
from .json_file import listed, read_json

EXAMPLE = (
    '{"dump": {"dump_path": "./acl_dump", "dump_list": [], "dump_mode": "all", '
    '"dump_op_switch": "on"}}'
)
"""A right configuration for single ops."""

STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
"""What dump_stats may name."""

_RIGHT = f"correct it; this is a right one: {EXAMPLE}"
_MOST_RANGES = 100  # of dump_step, as in CANN
_LONGEST_STEP = 9  # digits

_WORDS = {
    "dump_mode": ("input", "output", "all"),
    "dump_level": ("op", "kernel", "all"),
    "dump_data": ("tensor", "stats"),
    "dump_op_switch": ("on", "off"),
    "dump_debug": ("on", "off"),
}
# Known, and not for the tensors of single ops: what each is for.
_SCENES = {
    "watcher": "it tells which op of a model overwrites the results of others",
    "lite_exception": "it dumps an op that stopped the AI core",
    "aic_err_brief_dump": "it dumps an op that stopped the AI core",
    "aic_err_norm_dump": "it dumps an op that stopped the AI core, with its attributes",
    "aic_err_detail_dump": "it dumps the AI core that an op stopped, with its registers",
}
_FIELDS = ("dump_path", "dump_list", "dump_step", "dump_stats", *_WORDS)
_KNOWN = (*_FIELDS, "dump_scene", "dump_kernel_data")
_TEXTS = ("layer", "watcher_nodes")
_BLACKLISTS = ("optype_blacklist", "opname_blacklist")
_OF_A_MODEL = ("model_name", *_TEXTS, *_BLACKLISTS, "opname_range")
_STEP = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_VARIABLE = re.compile(r"\$[A-Za-z_{(]")


@dataclass(frozen=True)
class AclConfig:
    """What acl.json asks for.

    path: the file itself, dump_path: the folder that dumps go to; both absolute. dump_list: what to
    dump of whole models, as it is in the file; single ops need none. dump_op_switch: whether single
    ops are dumped. dump_mode: `input`, `output` or `all`; dump_level: `op`, `kernel` or `all`;
    dump_data: `tensor` or `stats`, of which dump_stats are wanted. dump_step: first and last of
    each range of steps; None for all. dump_debug: only ops that overflow are dumped.
    """

    path: Path
    dump_path: Path
    dump_list: tuple[Mapping[str, Any], ...] = ()
    dump_mode: str = "output"
    dump_op_switch: bool = False
    dump_level: str = "all"
    dump_data: str = "tensor"
    dump_stats: tuple[str, ...] = STATISTICS[:-1]
    dump_step: tuple[tuple[int, int], ...] | None = None
    dump_debug: bool = False

    def takes_step(self, step: int) -> bool:
        """Whether a step, counted from 0, is dumped."""
        return self.dump_step is None or any(a <= step <= b for a, b in self.dump_step)


def read_config(path: str | os.PathLike[str]) -> AclConfig:
    """Read an acl.json.

    Raises DumpError for a file that is not there, is no JSON, or asks for what there is not; the
    message names every fault.
    """
    path = Path(path).absolute()
    asked = _parsed(path)
    if not isinstance(asked, dict) or not isinstance(asked.get("dump"), dict):
        raise DumpError('there is no object "dump" in this file', path, _RIGHT)
    return _judged(path, asked["dump"])


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are not there, for this user only. Raises OSError."""
    for above in (*reversed(folder.parents), folder):
        if not above.exists():
            above.mkdir(mode=0o700, exist_ok=True)


def make_folder(config: AclConfig) -> None:
    """Make the folder that dumps go to.

    Raises DumpError where that is no folder, and where nothing can be written into it.
    """
    folder = config.dump_path
    try:
        make_private(folder)
    except OSError as error:
        raise DumpError(
            f"the folder dump_path cannot be made ({error.strerror})",
            folder,
            f"name another one in {config.path}",
        ) from None
    if not folder.is_dir():
        raise DumpError("dump_path is no folder", folder, f"name another one in {config.path}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DumpError(
            "nothing can be written into dump_path", folder, f"name another one in {config.path}"
        )


def _parsed(path: Path) -> Any:
    try:
        return read_json(path, _RIGHT)
    except FileNotFoundError:
        raise DumpError(
            f"there is no {path.name}, which says what to dump",
            f"{path.parent} (the working directory, unless another path was given)",
            f"write one there: {EXAMPLE}",
        ) from None


def _judged(path: Path, asked: dict[str, Any]) -> AclConfig:
    found: list[str] = []
    for name in islice((name for name in asked if name not in _KNOWN), MOST + 1):
        found.append(f"{_quoted(name)} is no field of dump{_nearest(name, _KNOWN)}")
    given = {name: value for name, value in asked.items() if name in _FIELDS}
    taken: dict[str, Any] = {}
    for name, value in given.items():
        taken[name] = _READERS.get(name, _word)(name, value, found)
    _elsewhere(asked, found)
    if "dump_path" not in asked:
        found.append("dump_path is missing: the folder that dumps go to")
    if "dump_stats" in asked and asked.get("dump_data") != "stats":
        found.append('dump_stats counts only with "dump_data": "stats"')
    if taken.get("dump_debug"):
        for name in ("dump_op_switch", "dump_list"):
            if taken.get(name):
                found.append(f'"dump_debug": "on" dumps ops that overflow, alone; leave {name} out')
    if found:
        raise DumpError(f"this configuration cannot be followed, {listed(found)}", path, _RIGHT)
    return AclConfig(path=path, **taken)


def _elsewhere(asked: dict[str, Any], found: list[str]) -> None:
    """Fields of CANN's for other ends."""
    scene = asked.get("dump_scene")
    if "dump_scene" in asked:
        what = _SCENES.get(scene) if isinstance(scene, str) else None
        if what is None:
            found.append(_none_of("dump_scene", scene, tuple(_SCENES)))
        else:
            found.append(f"dump_scene {scene} is not for sound single ops: {what}; leave it out")
    if "dump_kernel_data" in asked:
        found.append("dump_kernel_data is for what Ascend C kernels print; leave it out")


def _word(name: str, value: object, found: list[str]) -> str | bool | None:
    allowed = _WORDS[name]
    if not isinstance(value, str) or value not in allowed:
        found.append(_none_of(name, value, allowed))
        return None
    return value == "on" if "on" in allowed else value


def _dump_path(name: str, value: object, found: list[str]) -> Path | None:
    if not isinstance(value, str) or not value.strip():
        found.append(f"{name} is {_quoted(value)}: the path of a folder is wanted")
    elif "\0" in value or not value.isprintable():
        found.append(f"{name} is {_quoted(value)}: it holds what cannot be shown")
    elif _VARIABLE.search(value):
        found.append(f"{name} is {_quoted(value)}: CANN fills in no variables; write it out")
    elif value.startswith("~"):
        found.append(f"{name} is {_quoted(value)}: CANN puts no home folder for ~; write it out")
    else:
        return Path(os.path.abspath(value))
    return None


def _dump_step(name: str, value: object, found: list[str]) -> tuple[tuple[int, int], ...] | None:
    what = 'numbers and ranges as in "0|3-5|10" are wanted'
    parts = value.split("|") if isinstance(value, str) else []
    ranges = []
    for part in parts[: _MOST_RANGES + 1]:
        match = _STEP.fullmatch(part)
        if match is None or len(part) > 2 * _LONGEST_STEP + 1:
            parts = []
            break
        first, last = int(match[1]), int(match[2] or match[1])
        if match[2] and first >= last:
            what = f"{part} is no range: it begins where it ends, or behind"
            parts = []
            break
        ranges.append((first, last))
    if not parts:
        found.append(f"{name} is {_quoted(value)}: {what}")
    elif len(parts) > _MOST_RANGES:
        found.append(f"{name} has {len(parts)} parts; CANN takes {_MOST_RANGES}")
    return tuple(ranges)


def _dump_stats(name: str, value: object, found: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        found.append(f"{name}: a list of some of {', '.join(STATISTICS)} is wanted")
        return ()
    others = (word for word in value if not isinstance(word, str) or word not in STATISTICS)
    found += [_none_of(name, word, STATISTICS) for word in islice(others, MOST + 1)]
    return tuple(word for word in STATISTICS if word in value)


def _dump_list(name: str, value: object, found: list[str]) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(model, dict) for model in value):
        found.append(f"{name}: a list of objects is wanted, [] for single ops")
        return ()
    for model in value:
        for field, content in model.items():
            if len(found) > MOST:
                return ()
            if field not in _OF_A_MODEL:
                found.append(
                    f"{_quoted(field)} is no field of dump_list{_nearest(field, _OF_A_MODEL)}"
                )
            elif field == "model_name" and not isinstance(content, str):
                found.append("model_name: a text is wanted")
            elif field in _TEXTS and not _texts(content):
                found.append(f"{field}: a list of names of ops is wanted")
            elif field in _BLACKLISTS and not _objects(content, _is_blacklisted):
                found.append(
                    f'{field} is {_quoted(content)}: [{{"name": ..., "pos": ["input0"]}}] is wanted'
                )
            elif field == "opname_range" and not _objects(content, _is_range):
                found.append(
                    f'{field} is {_quoted(content)}: [{{"begin": ..., "end": ...}}] is wanted'
                )
    return tuple(model for model in value if model)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _objects(value: object, right: Callable[[dict[str, Any]], bool]) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and right(one) for one in value)


def _is_blacklisted(one: dict[str, Any]) -> bool:
    return (
        one.keys() <= {"name", "pos"}
        and isinstance(one.get("name", ""), str)
        and (_texts(one.get("pos", [])))
    )


def _is_range(one: dict[str, Any]) -> bool:
    return one.keys() == {"begin", "end"} and all(isinstance(name, str) for name in one.values())


_READERS: dict[str, Callable[[str, Any, list[str]], Any]] = {
    "dump_path": _dump_path,
    "dump_list": _dump_list,
    "dump_step": _dump_step,
    "dump_stats": _dump_stats,
}


def _none_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    return f"{name} is {_quoted(value)}, none of {', '.join(allowed)}"


def _quoted(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    value = value[:60] if isinstance(value, str) else value
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _nearest(name: str, known: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(name[:60], known, 1)
    return f"; is {found[0]} meant?" if found else f"; there are {', '.join(known)}"
