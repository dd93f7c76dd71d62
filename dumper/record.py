"""One op call as entries of the file: every argument and result, tensors and all the rest.

The values come in schema order (`ops.Op.bind`). What costs no data because the file has it already
is a link; a view's result, which is its input seen otherwise, is only described (`Choice.views`),
and so is what has no values (meta tensors). Where only the boundary of calls or modules is wanted
(`Choice.level`), a value is stored when it crosses it: as an input if something outside made it, as
an output when something outside first uses it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import UninitializedTensorMixin

from .choice import Choice
from .draws import STATE, device_of, draws, own_generator, state_of
from .dtypes import DType
from .encode import encode, json_bytes
from .layout import SIDES, Type, escape, record_path
from .names import Names
from .ops import Argument, Op
from .parts import KIND, is_plain, parts_of
from .scopes import Scope
from .tensors import Unstorable, attributes_of, bits_of, is_readable, row_of
from .values import Storage, StoredValues, grown, is_blank, key_of, made_blank, seen_again
from .writer import TensorAttributes, Writer

_NONE = np.zeros((), np.int8)
VIEW, LIMIT, LATER, LAZY = "view", "max_bytes", "arrives later", "lazy"
"""Why a tensor is described only."""


class Call:
    """One op call while it is being recorded."""

    __slots__ = (
        "op", "values", "seqid", "path", "phase", "scope", "node", "step", "thread",
        "kept", "reason", "owner", "wrote", "names", "numbers", "stubs",
    )  # fmt: skip

    def __init__(
        self,
        op: Op,
        values: list[Any],
        seqid: int,
        place: tuple[str, Scope, str | None],
        step: int,
        thread: int,
    ) -> None:
        self.op = op
        self.values = values
        self.seqid = seqid
        self.path = record_path(op.ir, seqid)
        self.phase, self.scope, self.node = place
        self.step = step
        self.thread = thread
        self.kept = True
        self.reason: str | None = None  # why none of its tensors is stored
        self.owner: object = None
        self.wrote = False  # whether any result is in the file
        self.names: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.stubs: dict[str, list[Any]] = {}


class _Value:
    """Stands for the op where a record is none's."""

    is_view = False

    def __init__(self, ir: str) -> None:
        self.ir = ir
        self.schema = f"{ir}: a value, not a call"


class Recorder:
    """Writes records into one file; holds what links one record to earlier ones."""

    def __init__(self, writer: Writer, choice: Choice, names: Names, loading: bool = False) -> None:
        self._writer = writer
        self._loading = loading
        self._choice = choice
        self._names = names
        self._values = StoredValues()
        self._tables: dict[str, int] = {}
        self._scopes = 0
        self.omitted = 0
        self.first_omitted: str | None = None

    def forget(self) -> None:
        """Ops went unseen: what storages hold is not known any more."""
        self._values.forget()

    def inputs(self, call: Call) -> None:
        """Store a call's arguments as they are before the op runs."""
        choice = self._choice
        call.kept = choice.takes(call.op.ir, call.phase, call.scope.module)
        if not call.kept:
            return
        if choice.max_bytes is not None and self._writer.bytes >= choice.max_bytes:
            call.reason = LIMIT
        if choice.level != "op":
            call.owner = _owner(choice.level, call)
        base = f"{call.path}/{SIDES[0]}"
        wrote = False
        for argument, value in zip(call.op.arguments, call.values, strict=True):
            wrote |= self._argument(call, base, argument.key, argument, value)
        if call.reason is None and choice.inputs:
            if draws(call.op, call.values) and not own_generator(call.values):
                state = state_of(device_of(call.op, call.values))
                self._writer.argument(f"{base}/{STATE}", Type.GENERATOR, state)
            elif not wrote and choice.level == "op":
                self._writer.group(base)  # its absence would mean a load-mode record

    def outputs(self, call: Call, result: Any) -> None:
        """Store a call's results, and the arguments it changed without returning them."""
        op = call.op
        for i in op.written:
            for tensor in tensors_in(call.values[i]):
                if op.resizes:
                    grown(self._values.of(tensor), tensor)
                else:
                    self._written(tensor, call.owner)
        results = (result,) if len(op.returns) == 1 else tuple(result or ())
        if op.blank:
            self._made_blank(op, results)
        if op.arrives_later and not op.waits(call.values):
            self._arriving(tensors_in([*results, *(call.values[i] for i in op.written)]))
            call.reason = call.reason or LATER
        if not call.kept:
            return
        base = f"{call.path}/{SIDES[1]}"
        for key, value in zip(op.returns, results, strict=True):
            call.wrote |= self._argument(call, base, key, None, value)
        for i in op.silent_outputs:
            call.wrote |= self._argument(call, base, op.arguments[i].key, None, call.values[i])

    def value(self, phase: str, seqid: int, step: int, name: str, tensor: torch.Tensor) -> None:
        """Store a named tensor as a record of its own: IR and phase are `grad` or `update`."""
        if not self._choice.takes(phase, phase, name.rpartition(".")[0]):
            return
        call = Call(_Value(phase), [], seqid, (phase, Scope(None, None, None), None), step, 0)
        if self._choice.max_bytes is not None and self._writer.bytes >= self._choice.max_bytes:
            call.reason = LIMIT
        key = escape(name)
        call.names[key] = name
        base = f"{call.path}/{SIDES[1]}"
        call.wrote = self._tensor(call, base, key, tensor, final=True)
        self.done(call)

    def done(self, call: Call) -> None:
        """The record is whole: note in the index what is known about it."""
        if not call.kept:
            return
        if self._loading and not call.wrote:
            # Old readers count the records of an IR by their groups.
            self._writer.group(f"{call.path}/{SIDES[1]}")
        line = [f'{{"seqid":{call.seqid},"ir":{self._ir(call.op)},"phase":"{call.phase}"']
        if number := self._scope(call.scope):
            line.append(f'"call":{number}')
        if call.node is not None:
            line.append(f'"node":{json.dumps(call.node)}')
        line.append(f'"step":{call.step}')
        if call.thread:
            line.append(f'"thread":{call.thread}')
        for key, found in (
            ("names", call.names),
            ("values", call.numbers),
            ("stubs", call.stubs),
        ):
            if found:
                line.append(f'"{key}":{json.dumps(found, separators=(",", ":"))}')
        self._writer.line("index", ",".join(line) + "}")
        self._writer.record_done()

    def leaving(self, tensor: torch.Tensor) -> None:
        """A tensor leaves the call or module that made it: store it, if it waits for that."""
        storage = self._values.of(tensor)
        if storage is not None and storage.waiting:
            self._settle(storage, tensor)

    def omit(self, path: str, reason: str) -> None:
        """List a value, or a whole record, that is not in the file."""
        self.first_omitted = self.first_omitted or f"{path}: {reason}"
        self.omitted += 1
        self._writer.line("omitted", json.dumps({"path": path, "reason": reason}))

    def _argument(
        self, call: Call, base: str, key: str, argument: Argument | None, value: Any
    ) -> bool:
        """Store one argument or result; False where nothing stands for it in the file."""
        if isinstance(value, torch.Tensor):
            return self._tensor(call, base, key, value)
        if isinstance(value, (list, tuple)) and _holds_tensors(value, argument):
            return self._list(call, base, key, value)
        if call.reason is not None or (argument is not None and not self._choice.inputs):
            return False
        path = f"{base}/{key}"
        if value is None:
            if argument is None or not argument.has_default or argument.default is None:
                return False
            self._writer.argument(path, Type.NONE, _NONE)
            return True
        encoded = encode(argument, value)
        if encoded is None:
            self.omit(path, f"a value of type {type(value).__name__} is not stored")
            return False
        self._writer.argument(path, *encoded)
        return True

    def _list(self, call: Call, base: str, key: str, values: list[torch.Tensor | None]) -> bool:
        path, wrote = f"{base}/{key}", False
        stored = call.reason is None and self._side(base)
        if not values and stored:
            self._writer.group(path)
            wrote = True
        for i, value in enumerate(values):
            member = f"{key}/{key.rpartition('/')[2]}_{i}"
            if isinstance(value, (list, tuple)):
                wrote |= self._list(call, base, member, value)
            elif value is not None:
                wrote |= self._tensor(call, base, member, value)
            elif stored:
                self._writer.argument(f"{base}/{member}", Type.NONE, _NONE)
                wrote = True
        return wrote

    def _side(self, base: str) -> bool:
        return self._choice.inputs if base.endswith(SIDES[0]) else self._choice.outputs

    def _tensor(
        self, call: Call, base: str, key: str, tensor: torch.Tensor, final: bool = False
    ) -> bool:
        path = f"{base}/{key}"
        side = base[base.rindex("/") + 1 :]
        storage = self._values.of(tensor)
        place = f"{side}/{key}"
        if isinstance(tensor, UninitializedTensorMixin):  # of a lazy module: no shape even
            call.stubs[place] = [_name(tensor.dtype), [], None, LAZY]
            return False
        if not is_plain(tensor):
            return self._parts(call, base, key, tensor)
        if storage is not None:
            call.numbers[place] = storage.value
            name = self._names.of_storage(storage.address, tensor)
            if name is not None and side == SIDES[0]:
                call.names[key] = name
        if not self._side(base):
            return False
        if call.reason is not None:
            call.stubs[place] = _stub(tensor, call.reason)
            return False
        try:
            row, attributes = row_of(tensor), attributes_of(tensor)
            attributes.uninitialised = blank = is_blank(storage, tensor)
            digest = None
            if storage is not None and storage.volatile:
                digest = hashlib.blake2b(bits_of(tensor), digest_size=16).digest()
                self._values.changed(storage, key_of(tensor, attributes.format_type), digest)
                call.numbers[place] = storage.value
            seen_as = key_of(tensor, attributes.format_type, blank, digest)
            is_output = side == SIDES[1]
            if call.owner is not None and storage is not None and not final:
                if is_output:
                    if not self._is_old(call, storage):
                        storage.maker = call.owner
                        storage.waiting.append((seen_as, path))
                    return False
                if storage.maker == call.owner:
                    return False
                if storage.waiting:
                    self._settle(storage, tensor)
            earlier = self._values.find(storage, seen_as)
            if earlier is not None:
                self._writer.same(path, earlier)
                return True
            if self._only_viewed(call, storage, is_output) and not final:
                call.stubs[place] = _stub(tensor, VIEW)
                return False
            self._store(path, tensor, row, attributes, call.scope.module)
        except Unstorable as reason:
            call.stubs[place] = _stub(tensor, str(reason))
            if not reason.expected:
                self.omit(path, str(reason))
            return False
        self._values.stored(storage, seen_as, path)
        if final and storage is not None:
            self._settle(storage, tensor)
        return True

    def _only_viewed(self, call: Call, storage: Storage | None, is_output: bool) -> bool:
        """Whether this is a view op's tensor, which the file need not have.

        Ops that may copy instead (`reshape` in inference mode) are views only where they did not.
        """
        if not call.op.is_view or self._choice.views == "dump" or storage is None:
            return False
        return not is_output or self._is_old(call, storage)

    def _is_old(self, call: Call, storage: Storage) -> bool:
        """Whether an output is an unwritten argument's memory."""
        return call.op.is_view and any(
            number == storage.value
            for place, number in call.numbers.items()
            if place.startswith(SIDES[0])
        )

    def _parts(self, call: Call, base: str, key: str, tensor: torch.Tensor) -> bool:
        try:
            parts = parts_of(tensor)
        except (RuntimeError, NotImplementedError) as error:  # a subclass that will not be opened
            parts = None
            self.omit(f"{base}/{key}", str(error).partition("\n")[0])
        if parts is None:
            side = base[base.rindex("/") + 1 :]
            fake = type(tensor).__name__ == "FakeTensor" or tensor.is_meta
            reason = "fake" if fake else f"opaque: {type(tensor).__name__}, {tensor.layout}"
            call.stubs[f"{side}/{key}"] = _stub(tensor, reason)
            if not fake:
                self.omit(f"{base}/{key}", reason)
            return False
        if call.reason is None and self._side(base):
            self._writer.argument(f"{base}/{key}/{KIND}", Type.PARTS, json_bytes(parts.facts))
        for name, part in parts.tensors.items():
            self._tensor(call, base, f"{key}/{name}", part)
        return True

    def _settle(self, storage: Storage, tensor: torch.Tensor) -> None:
        """Store the outputs that waited for their value to leave, in whatever view it does."""
        waiting, storage.waiting = storage.waiting, []
        for seen_as, path in waiting:
            earlier = self._values.find(storage, seen_as)
            if earlier is not None:
                self._writer.same(path, earlier)
                continue
            output = seen_again(tensor, seen_as)
            attributes = attributes_of(output)
            attributes.uninitialised = is_blank(storage, output)
            self._store(path, output, row_of(output), attributes, None)
            self._values.stored(storage, seen_as, path)

    def _store(
        self, path: str, tensor: torch.Tensor, row: DType, attributes: TensorAttributes, module: str
    ) -> None:
        size = tensor.numel() * row.bits.itemsize
        if not self._writer.wants_values:
            self._writer.described(path, size, module)
        elif size <= self._writer.memory or not tensor.dim() or is_readable(tensor):
            self._writer.tensor(path, bits_of(tensor), row, attributes)
        else:  # a copy must be made, and may not be made at once
            plain, rows = tensor.detach(), len(tensor)
            step = max(1, self._writer.memory * rows // size)
            parts = (bits_of(plain[at : at + step]) for at in range(0, rows, step))
            self._writer.parts(path, tuple(tensor.shape), parts, row, attributes)

    def _written(self, tensor: torch.Tensor, owner: object) -> None:
        for part in _memories(tensor):
            self._values.written(part, owner)

    def _arriving(self, tensors: Iterator[torch.Tensor]) -> None:
        """What another process sends is there at some later time, without an op."""
        for tensor in tensors:
            for part in _memories(tensor):
                storage = self._values.of(part)
                if storage is not None:
                    storage.volatile = True

    def _made_blank(self, op: Op, results: tuple) -> None:
        for key, result in zip(op.returns, results, strict=True):
            if key in op.blank and isinstance(result, torch.Tensor):
                made_blank(self._values.of(result), result)

    def _ir(self, op: Op) -> str:
        """The IR name as JSON; its schema goes to the file at its first use."""
        if op.ir not in self._tables:
            self._tables[op.ir] = 0
            self._writer.line("ops", json.dumps({"ir": op.ir, "schema": op.schema}))
        return json.dumps(op.ir)

    def _scope(self, scope: Scope) -> int:
        """The scope's number in the file, where it is described at its first use."""
        if not scope.number and (scope.api or scope.module is not None or scope.source):
            self._scopes += 1
            scope.number = self._scopes
            facts = {"call": scope.number, "api": scope.api, "module": scope.module}
            facts["source"] = scope.source
            self._writer.line(
                "calls", json.dumps({k: v for k, v in facts.items() if v is not None})
            )
        return scope.number


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of one argument or result: itself, or the members of a list, of lists too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for member in value:
            if member is not None:
                yield from tensors_in(member)


def _memories(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The plain tensors whose memory a tensor is."""
    if is_plain(tensor):
        yield tensor
        return
    try:
        parts = parts_of(tensor)
    except (RuntimeError, NotImplementedError):
        return
    for part in parts.tensors.values() if parts else ():
        yield from _memories(part)


def _owner(level: str, call: Call) -> object:
    """What an op belongs to whose boundary is wanted; an op outside of any is its own."""
    scope = call.scope
    name = scope.api if level == "call" else scope.module
    return call.phase, call.seqid if name is None else name


def _stub(tensor: torch.Tensor, reason: str) -> list[Any]:
    """[dtype, shape, stride, reason] of a tensor whose values are not stored."""
    plain = tensor.layout is torch.strided and not tensor.is_nested
    dtype = _name(tensor.dtype)
    shape = (
        [size if isinstance(size, int) else str(size) for size in tensor.shape]
        if (not tensor.is_nested or is_plain(tensor))
        else []
    )
    return [dtype, shape, list(tensor.stride()) if plain else None, reason]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _holds_tensors(value: list | tuple, argument: Argument | None) -> bool:
    if argument is not None:
        return "Tensor" in argument.type
    return not value or next(tensors_in(value), None) is not None
