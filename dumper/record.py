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
from .errors import first_line
from .index import LATER, LAZY, LIMIT, VIEW
from .layout import KIND, SIDES, Type, escape, member, record_path
from .names import Names
from .ops import Argument, Op
from .parts import is_plain, parts_of
from .scopes import Scope
from .tensors import Unstorable, attributes_of, bits_of, dtype_name, is_readable, row_of
from .values import Storage, StoredValues, grown, is_blank, key_of, made_blank, seen_again
from .writer import TensorAttributes, Writer

_NONE = np.zeros((), np.int8)
INPUT, OUTPUT = SIDES


class Call:
    """One op call while it is being recorded."""

    __slots__ = (
        "op", "values", "seqid", "path", "phase", "scope", "node", "step", "thread",
        "kept", "reason", "owner", "wrote", "names", "numbers", "stubs", "look",
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
        self.look: Any = None  # the overflow check's


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
        self._irs: set[str] = set()  # whose schema is in the file
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
        self._limit(call)
        if choice.level != "op":
            call.owner = _owner(choice.level, call)
        wrote = False
        for argument, value in zip(call.op.arguments, call.values, strict=True):
            wrote |= self._argument(call, INPUT, argument.key, argument, value)
        if call.reason is None and INPUT in choice.sides:
            base = f"{call.path}/{INPUT}"
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
        results = list(op.named_results(result))
        for key, made in results:
            if key in op.blank and isinstance(made, torch.Tensor):
                made_blank(self._values.of(made), made)
        if op.arrives_later and not op.waits(call.values):
            self._arriving(tensors_in([result, *(call.values[i] for i in op.written)]))
            call.reason = call.reason or LATER
        if not call.kept:
            return
        results += [(op.arguments[i].key, call.values[i]) for i in op.silent_outputs]
        for key, value in results:
            call.wrote |= self._argument(call, OUTPUT, key, None, value)

    def value(self, phase: str, seqid: int, step: int, name: str, tensor: torch.Tensor) -> None:
        """Store a named tensor as a record of its own: IR and phase are `grad` or `update`."""
        if not self._choice.takes(phase, phase, name.rpartition(".")[0]):
            return
        call = Call(_Value(phase), [], seqid, (phase, Scope(None, None, None), None), step, 0)
        self._limit(call)
        key = escape(name)
        call.names[key] = name
        call.wrote = self._tensor(call, OUTPUT, key, tensor, final=True)
        self.done(call)

    def done(self, call: Call) -> None:
        """The record is whole: note in the index what is known about it."""
        if not call.kept:
            return
        if self._loading and not call.wrote:
            # Old readers count the records of an IR by their groups.
            self._writer.group(f"{call.path}/{OUTPUT}")
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
        if storage is not None:
            self._settle(storage, tensor)

    def omit(self, path: str, reason: str) -> None:
        """List a value, or a whole record, that is not in the file."""
        self.first_omitted = self.first_omitted or f"{path}: {reason}"
        self.omitted += 1
        self._writer.line("omitted", json.dumps({"path": path, "reason": reason}))

    def _limit(self, call: Call) -> None:
        """Where the file holds as much as it may, the record is described only."""
        limit = self._choice.max_bytes
        if limit is not None and self._writer.bytes >= limit:
            call.reason = LIMIT

    def _argument(
        self, call: Call, side: str, key: str, argument: Argument | None, value: Any
    ) -> bool:
        """Store one argument or result; False where nothing stands for it in the file."""
        if isinstance(value, torch.Tensor):
            return self._tensor(call, side, key, value)
        if isinstance(value, (list, tuple)) and _holds_tensors(value, argument):
            return self._list(call, side, key, value)
        if call.reason is not None or (argument is not None and INPUT not in self._choice.sides):
            return False
        path = f"{call.path}/{side}/{key}"
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

    def _list(self, call: Call, side: str, key: str, values: list[torch.Tensor | None]) -> bool:
        wrote, stored = False, call.reason is None and side in self._choice.sides
        if not values and stored:
            self._writer.group(f"{call.path}/{side}/{key}")
            wrote = True
        for i, value in enumerate(values):
            name = member(key, i)
            if isinstance(value, (list, tuple)):
                wrote |= self._list(call, side, name, value)
            elif value is not None:
                wrote |= self._tensor(call, side, name, value)
            elif stored:
                self._writer.argument(f"{call.path}/{side}/{name}", Type.NONE, _NONE)
                wrote = True
        return wrote

    def _tensor(
        self, call: Call, side: str, key: str, tensor: torch.Tensor, final: bool = False
    ) -> bool:
        """Store one tensor; False where it is described only. final: it belongs to no call."""
        place = f"{side}/{key}"
        path = f"{call.path}/{place}"
        storage = self._values.of(tensor)
        if isinstance(tensor, UninitializedTensorMixin):  # of a lazy module: no shape even
            call.stubs[place] = [dtype_name(tensor.dtype), [], None, LAZY]
            return False
        if not is_plain(tensor):
            return self._parts(call, side, key, tensor)
        if storage is not None:
            call.numbers[place] = storage.value
            name = self._names.of_storage(storage.address, tensor)
            if name is not None and side == INPUT:
                call.names[key] = name
        if side not in self._choice.sides:
            return False
        if call.reason is not None:
            call.stubs[place] = stub_of(tensor, call.reason)
            return False
        try:
            row, attributes = row_of(tensor), self._attributes(storage, tensor)
            digest = None
            if storage is not None and storage.volatile:
                digest = hashlib.blake2b(bits_of(tensor), digest_size=16).digest()
                self._values.changed(storage, key_of(tensor, attributes.format_type), digest)
                call.numbers[place] = storage.value
            seen_as = key_of(tensor, attributes.format_type, attributes.uninitialised, digest)
            inside = call.owner is not None and storage is not None and not final
            if inside and self._stays_inside(call, side, tensor, storage, (seen_as, path)):
                return False
            # What no op wrote may be written all the same: ATen fills small tensors by a pointer.
            known = not attributes.uninitialised or side == OUTPUT
            earlier = self._values.find(storage, seen_as) if known else None
            if earlier is not None:
                self._writer.same(path, earlier)
                return True
            if self._only_viewed(call, storage, side) and not final:
                call.stubs[place] = stub_of(tensor, VIEW)
                return False
            self._store(path, tensor, row, attributes, call.scope.module)
        except Unstorable as reason:
            call.stubs[place] = stub_of(tensor, str(reason))
            if not reason.expected:
                self.omit(path, str(reason))
            return False
        self._values.stored(storage, seen_as, path)
        if final and storage is not None:
            self._settle(storage, tensor)
        return True

    def _attributes(self, storage: Storage | None, tensor: torch.Tensor) -> TensorAttributes:
        attributes = attributes_of(tensor)
        attributes.uninitialised = is_blank(storage, tensor)
        return attributes

    def _stays_inside(
        self,
        call: Call,
        side: str,
        tensor: torch.Tensor,
        storage: Storage,
        output: tuple[tuple, str],
    ) -> bool:
        """Whether a tensor does not cross the boundary that is wanted, or not yet.

        output: key and path of a result, which waits until its value leaves.
        """
        if side == OUTPUT:
            if not self._is_old(call, storage):
                storage.maker = call.owner
                storage.waiting.append(output)
            return True
        if storage.maker == call.owner:
            return True
        self._settle(storage, tensor)
        return False

    def _only_viewed(self, call: Call, storage: Storage | None, side: str) -> bool:
        """Whether this is a view op's tensor, which the file need not have.

        Ops that may copy instead (`reshape` in inference mode) are views only where they did not.
        """
        if not call.op.is_view or self._choice.views == "dump" or storage is None:
            return False
        return side == INPUT or self._is_old(call, storage)

    def _is_old(self, call: Call, storage: Storage) -> bool:
        """Whether an output is an unwritten argument's memory."""
        return call.op.is_view and any(
            number == storage.value
            for place, number in call.numbers.items()
            if place.startswith(INPUT)
        )

    def _parts(self, call: Call, side: str, key: str, tensor: torch.Tensor) -> bool:
        place = f"{side}/{key}"
        path = f"{call.path}/{place}"
        try:
            parts = parts_of(tensor)
        except RuntimeError as error:  # a subclass that will not be opened
            parts = None
            self.omit(path, first_line(error))
        if parts is None:
            fake = type(tensor).__name__ == "FakeTensor" or tensor.is_meta
            reason = "fake" if fake else f"opaque: {type(tensor).__name__}, {tensor.layout}"
            call.stubs[place] = stub_of(tensor, reason)
            if not fake:
                self.omit(path, reason)
            return False
        if call.reason is None and side in self._choice.sides:
            self._writer.argument(f"{path}/{KIND}", Type.PARTS, json_bytes(parts.facts))
        for name, part in parts.tensors.items():
            self._tensor(call, side, f"{key}/{name}", part)
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
            self._store(path, output, row_of(output), self._attributes(storage, output), None)
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

    def _ir(self, op: Op) -> str:
        """The IR name as JSON; its schema goes to the file at its first use."""
        if op.ir not in self._irs:
            self._irs.add(op.ir)
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
    except RuntimeError:
        return
    for part in parts.tensors.values() if parts else ():
        yield from _memories(part)


def _owner(level: str, call: Call) -> object:
    """What an op belongs to whose boundary is wanted; an op outside of any is its own."""
    scope = call.scope
    name = scope.api if level == "call" else scope.module
    return call.phase, call.seqid if name is None else name


def stub_of(tensor: torch.Tensor, reason: str) -> list[Any]:
    """[dtype, shape, stride, reason] of a tensor whose values are not stored."""
    shape, stride = [], None
    if not tensor.is_nested:  # a jagged size is a symbol, not a number
        shape = [size if isinstance(size, int) else str(size) for size in tensor.shape]
        if tensor.layout is torch.strided:
            stride = list(tensor.stride())
    return [dtype_name(tensor.dtype), shape, stride, reason]


def _holds_tensors(value: list | tuple, argument: Argument | None) -> bool:
    if argument is not None:
        return "Tensor" in argument.type
    return not value or next(tensors_in(value), None) is not None
