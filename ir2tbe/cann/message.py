"""The protobuf message at the head of a dump file, `toolkit.dumpdata.DumpData`.

Described here and not compiled from a .proto: one table, no generated code that must fit the
installed protobuf. The descriptors lie in a pool of their own, since CANN's own Python packages
register the same names in the common one. Enums are int32 on the wire; they are read as numbers,
so that a code of a later CANN is a number that nobody knows and no error.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from dumper.errors import DumpError

_PACKAGE = "toolkit.dumpdata"
_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "u64": _FIELD.TYPE_UINT64,
    "u32": _FIELD.TYPE_UINT32,
    "i32": _FIELD.TYPE_INT32,
    "enum": _FIELD.TYPE_INT32,
}

_MESSAGES = {
    "Shape": ("1 dim u64*",),
    "DimRange": ("1 dim_start u64", "2 dim_end u64"),
    "OriginalOp": ("1 name string", "2 output_index u32", "3 data_type enum", "4 format enum"),
    "OpAttr": ("1 name string", "2 value string"),
    "OpInput": (
        "1 data_type enum", "2 format enum", "3 shape Shape", "4 data bytes", "5 size u64",
        "6 original_shape Shape", "7 sub_format i32", "8 address u64", "9 offset u64",
    ),
    "OpOutput": (
        "1 data_type enum", "2 format enum", "3 shape Shape", "4 original_op OriginalOp",
        "5 data bytes", "6 size u64", "7 original_shape Shape", "8 sub_format i32",
        "9 address u64", "10 dim_range DimRange*", "11 offset u64",
    ),
    "OpBuffer": ("1 buffer_type enum", "2 data bytes", "3 size u64"),
    "Workspace": ("1 type enum", "2 data bytes", "3 size u64"),
    "DumpData": (
        "1 version string", "2 dump_time u64", "3 output OpOutput*", "4 input OpInput*",
        "5 buffer OpBuffer*", "6 op_name string", "7 attr OpAttr*", "8 space Workspace*",
    ),
}  # fmt: skip
"""Fields as `number name type`; a star is many."""


def _make() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(
        name="dump_data.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            number, title, kind = field.split()
            label = _FIELD.LABEL_REPEATED if kind.endswith("*") else _FIELD.LABEL_OPTIONAL
            added = message.field.add(name=title, number=int(number), label=label)
            kind = kind.rstrip("*")
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.DumpData"))


DumpData = _make()
"""The class of the message."""


def parsed(header: bytes, path: object) -> Message:
    """A `DumpData` from the bytes of a header. Raises DumpError for what is none."""
    try:
        return DumpData.FromString(header)
    except DecodeError as error:
        raise DumpError(
            f"the header is no DumpData message ({error})",
            path,
            "this is no dump file of CANN, or it is damaged: copy it again, or dump again",
        ) from None
