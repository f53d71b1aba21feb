"""Between the engine's protobuf values and plain JSON. Pure.

Unlike the SDK's own conversion it keeps an asset's hash, by which a changed file shows, and the placeholders of a preview.
"""

from typing import Any

from google.protobuf import struct_pb2  # type: ignore[import-untyped]

from testing.pulumi.mocks.package import Object

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a tag of the wire format (pulumi.runtime.rpc._special_secret_sig)
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
RESOURCE = "5cf8f73096256a8f31e491e813e4eb8e"


def plain(struct: struct_pb2.Struct) -> Object:
    """Without nulls; secrets and outputs as their values, references as the URN."""
    return {key: _plain(value) for key, value in struct.fields.items() if value.WhichOneof("kind") != "null_value"}


def _plain(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _unwrapped(plain(value.struct_value))
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    return value.bool_value if kind == "bool_value" else value.string_value if kind == "string_value" else None


def _unwrapped(value: Object) -> Any:
    mark = value.get(SIGNATURE)
    if mark in (SECRET, OUTPUT):
        return value.get("value")
    return value["urn"] if mark == RESOURCE else value


def struct(value: Object) -> struct_pb2.Struct:
    result = struct_pb2.Struct()
    result.update(value)
    return result
