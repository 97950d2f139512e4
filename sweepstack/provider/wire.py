"""Converts property values between the engine's protobuf structs and plain Python.

The engine marks values that a preview can't know yet with a reserved string, and wraps secrets in a map with a reserved
key. The Pulumi SDK defines both (`pulumi/runtime/rpc.py`, `UNKNOWN` and `_special_sig_key`). Every number arrives as a
double. Whole numbers become int here; a number that must keep its exact form travels as JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import struct_pb2

from sweepstack.core.engine_secret import SIGNATURE_KEY
from sweepstack.onbox.common.dataclass import dataclass

UNKNOWN_SENTINEL: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"


class Unknown:
    """A value that a preview does not know yet."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value that travels as a secret: the engine's state keeps it encrypted."""

    value: Any

    def __repr__(self) -> str:
        return "<secret>"


def to_python(struct: struct_pb2.Struct, *, secrets: bool = False) -> dict[str, Any]:
    """A struct as plain dicts, lists, str, int, float, bool, None; `UNKNOWN` for what a preview does not know yet.

    `secrets`: keep secret values wrapped, as `Secret`.
    """
    return {key: _value_to_python(value, secrets) for key, value in struct.fields.items()}


def _value_to_python(value: struct_pb2.Value, secrets: bool) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        fields = value.struct_value.fields
        if SIGNATURE_KEY in fields and fields[SIGNATURE_KEY].string_value == SECRET_SIGNATURE:
            inner = _value_to_python(fields["value"], secrets)
            return Secret(inner) if secrets else inner
        return to_python(value.struct_value, secrets=secrets)
    if kind == "list_value":
        return [_value_to_python(item, secrets) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if kind == "string_value":
        return UNKNOWN if value.string_value == UNKNOWN_SENTINEL else value.string_value
    if kind == "bool_value":
        return value.bool_value
    return None


def to_struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Plain Python as a struct. `UNKNOWN` becomes the engine's mark. Raises TypeError for other types."""
    struct = struct_pb2.Struct()
    for key, value in values.items():
        struct.fields[key].CopyFrom(_value_from_python(value))
    return struct


def _value_from_python(value: Any) -> struct_pb2.Value:
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, Unknown):
        return struct_pb2.Value(string_value=UNKNOWN_SENTINEL)
    if isinstance(value, Secret):
        wrapped = {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value.value}
        return struct_pb2.Value(struct_value=to_struct(wrapped))
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, int | float):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=to_struct(value))
    if isinstance(value, list | tuple):
        return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_value_from_python(item) for item in value]))
    raise TypeError(f"a {type(value).__name__} cannot travel to the engine")


def holds_unknown(value: Any) -> bool:
    """Whether a value, or anything inside it, is not known yet."""
    if isinstance(value, Unknown):
        return True
    if isinstance(value, Secret):
        return holds_unknown(value.value)
    if isinstance(value, Mapping):
        return any(holds_unknown(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_unknown(item) for item in value)
    return False


def bare(value: Any) -> Any:
    """A value without the wrapping of secrets, at any depth."""
    if isinstance(value, Secret):
        return bare(value.value)
    if isinstance(value, Mapping):
        return {key: bare(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bare(item) for item in value]
    return value
