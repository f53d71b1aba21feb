"""TensorBoard's event files, written without TensorBoard: `tensorboard --logdir OUTPUT/tensorboard` shows them anywhere.

    events = EventFile(output / "tensorboard", generation=7, first_step=start.step)      # rank 0
    events.scalars(step, {"train/loss": 2.3, "train/top1": 41.2})
    events.image(step, "validation", path.read_bytes())
    events.close()

Each generation writes a file of its own, whose name sorts by the generation: TensorBoard reads files in the order of their names
and never goes back, so a clock that is wrong, or a rank 0 that was paused and writes on, changes nothing. A file begins with the
word that a run has started again after `first_step` steps: TensorBoard then forgets what earlier files say of later steps. So
steps that are done again are seen once.

Only what is used here is written: scalars and PNG images. The package `tensorboard` 2.20 can do the same; with gRPC and a web
server it is 69 MB in the image, and imports in every start. tensorboardX 2.6.5 was tried in November 2026: when the disk is full
its thread ends, and once ten records wait the next call never returns, nor does the training go on. Its messages and checksums
alone would save some 50 lines here, for 3 MB in the image and 0.13 s of each start (0.004 s now). The format: records of TFRecord
(https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details) with messages of event.proto and summary.proto.
"""

import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

VERSION = "brain.Event:2"  # from this one on, the word that a run has started purges by its step
_STARTED = 1  # SessionLog.START
_RGB = 3


class EventFile:
    """The events of one generation. Each call writes one record; a disk that is full costs the curves, not the training."""

    def __init__(self, folder: Path, *, generation: int, first_step: int, clock: Callable[[], float] = time.time) -> None:
        """`first_step` steps are done. Raises OSError when the folder cannot be written."""
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"events.out.tfevents.{generation:010d}.{socket.gethostname()}"
        self._file = self.path.open("ab", buffering=0)
        self._clock = clock
        self._told = False
        self._write(_text(3, VERSION))
        self._write(_number(2, first_step + 1) + _bytes(7, _number(1, _STARTED)))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Points of curves, by their tags; what is before a slash groups them."""
        points = b"".join(_bytes(1, _text(1, tag) + _float(2, value)) for tag, value in values.items())
        self._write(_number(2, step) + _bytes(5, points))

    def image(self, step: int, tag: str, png: bytes) -> None:
        width, height = struct.unpack(">II", png[16:24])  # of the chunk IHDR, which is always the first
        image = _number(1, height) + _number(2, width) + _number(3, _RGB) + _bytes(4, png)
        self._write(_number(2, step) + _bytes(5, _bytes(1, _text(1, tag) + _bytes(4, image))))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: bytes) -> None:
        record = _record(_double(1, self._clock()) + event)
        whole = self._file.tell()
        try:
            if self._file.write(record) != len(record):
                self._file.truncate(whole)  # half a record would hide all that follow
                self._file.seek(whole)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if not self._told:
                print(f"{self.path} cannot be written: {error.strerror}; training goes on", file=sys.stderr, flush=True)
            self._told = True


# Protocol buffers: each field is a key, (number << 3 | wire type), and a value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


# TFRecord: length, its checksum, data, its checksum


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def masked_crc(data: bytes) -> int:
    """Rotated and shifted, so that checksums of data that holds checksums stay good."""
    found = crc32c(data)
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Castagnoli's polynomial, which zlib lacks; some 10 MB a second."""
    table, found = _TABLE, 0xFFFFFFFF
    for byte in data:
        found = table[(found ^ byte) & 0xFF] ^ found >> 8
    return found ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]
