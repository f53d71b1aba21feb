"""What TensorBoard makes of a folder, written from its documentation: records checked, messages decoded by protobuf itself.

EventAccumulator.Reload() of tensorboard 2.20 gave the same on the same files (2026-11-21).
"""

import struct
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

from ebb.elastic.report.events import VERSION, masked_crc

_TYPES = descriptor_pb2.FieldDescriptorProto
_FIELDS: dict[str, list[tuple[str, int, int, str]]] = {
    "SessionLog": [("status", 1, _TYPES.TYPE_INT32, "")],
    "Image": [
        ("height", 1, _TYPES.TYPE_INT32, ""),
        ("width", 2, _TYPES.TYPE_INT32, ""),
        ("colorspace", 3, _TYPES.TYPE_INT32, ""),
        ("encoded_image_string", 4, _TYPES.TYPE_BYTES, ""),
    ],
    "Value": [
        ("tag", 1, _TYPES.TYPE_STRING, ""),
        ("simple_value", 2, _TYPES.TYPE_FLOAT, ""),
        ("image", 4, _TYPES.TYPE_MESSAGE, "Image"),
    ],
    "Summary": [("value", 1, _TYPES.TYPE_MESSAGE, "Value")],
    "Event": [
        ("wall_time", 1, _TYPES.TYPE_DOUBLE, ""),
        ("step", 2, _TYPES.TYPE_INT64, ""),
        ("file_version", 3, _TYPES.TYPE_STRING, ""),
        ("summary", 5, _TYPES.TYPE_MESSAGE, "Summary"),
        ("session_log", 7, _TYPES.TYPE_MESSAGE, "SessionLog"),
    ],
}  # event.proto and summary.proto of TensorFlow


def _event_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="board", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = _TYPES.LABEL_REPEATED if (name, field) == ("Summary", "value") else _TYPES.LABEL_OPTIONAL
            message.field.add(name=field, number=number, type=kind, label=label, type_name=f".board.{of}" if of else None)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("board.Event"))


Event = _event_class()


def events(path: Path) -> list[Any]:
    """All whole records of a file; one that is cut off ends it, a wrong checksum fails."""
    content, found, at = path.read_bytes(), [], 0
    while len(content) - at >= 12:
        (length,) = struct.unpack_from("<Q", content, at)
        if len(content) - at < 16 + length:
            break
        data = content[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", content, at + 8)[0] == masked_crc(content[at : at + 8])
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked_crc(data)
        found.append(Event.FromString(data))
        at += 16 + length
    return found


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What is drawn: files in the order of their names; the word that a run has started forgets later steps."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.glob("*tfevents*")):
        version = ""
        for event in events(path):
            version = event.file_version or version
            assert version == VERSION
            if event.session_log.status == 1:
                found = {tag: [point for point in points if point[0] < event.step] for tag, points in found.items()}
            for value in event.summary.value:
                if not value.HasField("image"):
                    found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found
