"""The interface between server.py, which speaks gRPC, and the provider packages, which are pure.

Values are plain JSON; what a preview does not know is the text UNKNOWN, as the engine sends it. Outputs go by property name as
in the engine's state (camelCase). plain() and struct() turn the engine's protobuf into JSON and back; unlike the SDK's own
conversion they keep an asset's hash, by which a changed file shows, and the placeholders of a preview.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from google.protobuf import struct_pb2  # type: ignore[import-untyped]

from devcluster.settings import BoxError

Object = dict[str, Any]
Change = Literal["add", "delete", "update"]

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The engine's placeholder in a preview (pulumi.runtime.rpc.UNKNOWN)."""
UNKNOWNS = frozenset(
    (
        *(UNKNOWN, "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7", "3eeb2bf0-c639-47a8-9e75-3b44932eb421"),
        *("6a19a0b0-7e62-4c92-b797-7f8e31da9cc2", "030794c1-ac77-496b-92df-f27374a8bd58"),
        *("e48ece36-62e2-4504-bad9-02848725956a", "dd056dcd-154b-4c76-9bd3-c8f88648b5ff"),
    )
)
"""All placeholders of sdk/go/common/resource/plugin/rpc.go (bool, number, array, asset, archive, object)."""


class MockError(BoxError):
    """The mock does not answer this; the text is one sentence that says what to do."""


@dataclass(frozen=True)
class Asked:
    """The resource that a call is about."""

    urn: str
    token: str
    name: str


@dataclass(frozen=True)
class Failure:
    """A wrong input: `path` in Pulumi's notation, and a sentence."""

    path: str
    reason: str


@dataclass(frozen=True)
class Difference:
    """`changes`: path -> how; `replaces`: those of them that only a new resource can bring."""

    changes: Mapping[str, Change] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    delete_first: bool = False


class Package(Protocol):
    """One provider package. Methods raise MockError for what they do not serve."""

    def check_config(self, inputs: Object) -> list[Failure]: ...

    def configure(self, inputs: Object) -> None:
        """The provider's configuration, as checked; it comes before any other call."""

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        """Inputs with names filled in, and what is wrong with them. `old`: inputs of the last update, {} for a new resource."""

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        """From the old to the new inputs; `outputs` are the old ones."""

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        """Id and outputs."""

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        """New outputs, from the outputs until now, and the old and new inputs."""

    def invoke(self, token: str, arguments: Object) -> Object: ...


def is_unknown(value: object) -> bool:
    return isinstance(value, str) and value in UNKNOWNS


def has_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return is_unknown(value)


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
