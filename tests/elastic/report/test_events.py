"""TensorBoard's event files: the format to the byte, and no step twice after a restart."""

import dataclasses
import struct
from pathlib import Path

import pytest
import torch
from torchvision.io import encode_png

from ebb.elastic.report import Curves, EventFile
from ebb.elastic.report.events import crc32c, masked_crc
from ebb.elastic.runtime.metrics import Progress
from tests.elastic.report import board


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"123456789", 0xE3069283),  # RFC 3720, appendix B.4, has the rest
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_checksum_is_castagnolis(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


def test_a_file_to_the_byte(tmp_path: Path) -> None:
    events = EventFile(tmp_path, generation=7, first_step=2, clock=lambda: 1.5)
    events.scalars(300, {"a": 0.5})
    events.close()
    time = b"\x09" + struct.pack("<d", 1.5)
    messages = [
        time + b"\x1a\x0dbrain.Event:2",
        time + b"\x10\x03" + b"\x3a\x02\x08\x01",
        time + b"\x10\xac\x02" + b"\x2a\x0a\x0a\x08\x0a\x01a\x15" + struct.pack("<f", 0.5),
    ]
    expected = b""
    for data in messages:
        length = struct.pack("<Q", len(data))
        expected += length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))
    assert events.path.read_bytes() == expected
    assert events.path.name.startswith("events.out.tfevents.0000000007.")


def test_steps_that_are_done_again_are_seen_once(tmp_path: Path) -> None:
    first = EventFile(tmp_path, generation=9, first_step=0)
    for step in (10, 20, 30, 40):
        first.scalars(step, {"train/loss": step / 10})
    second = EventFile(tmp_path, generation=10, first_step=25)  # from a checkpoint; its clock may be anywhere
    second.scalars(30, {"train/loss": 33.0})
    first.scalars(50, {"train/loss": 99.0})  # a rank 0 that was paused and goes on
    second.scalars(40, {"train/loss": 44.0})
    first.close()
    second.close()
    assert board.curves(tmp_path) == {"train/loss": [(10, 1.0), (20, 2.0), (30, 33.0), (40, 44.0)]}


def test_an_image_comes_back_whole(tmp_path: Path) -> None:
    png = bytes(encode_png(torch.arange(3 * 5 * 300, dtype=torch.int64).remainder(251).byte().view(3, 5, 300)).numpy())
    events = EventFile(tmp_path, generation=1, first_step=0)
    events.image(1200, "validation", png)
    events.close()
    event = board.events(events.path)[-1]
    (value,) = event.summary.value
    assert (event.step, value.tag, value.image.width, value.image.height, value.image.colorspace) == (
        1200,
        "validation",
        300,
        5,
        3,
    )
    assert value.image.encoded_image_string == png


def test_a_full_disk_is_said_once_and_hides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = EventFile(tmp_path, generation=1, first_step=0)
    events.scalars(1, {"a": 1.0})

    class Full:
        """A disk that takes half of a record, then nothing, then recovers."""

        def __init__(self) -> None:
            self.inner, self.writes = events._file, 0

        def write(self, data: bytes) -> int:
            self.writes += 1
            if self.writes == 1:
                return self.inner.write(data[: len(data) // 2]) or 0
            if self.writes < 4:
                raise OSError(28, "No space left on device")
            return self.inner.write(data) or 0

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    events._file = Full()  # type: ignore[assignment]
    for step in (2, 3, 4, 5):
        events.scalars(step, {"a": float(step)})
    events._file.close()
    assert board.curves(tmp_path) == {"a": [(1, 1.0), (5, 5.0)]}
    assert capsys.readouterr().err.count("No space left on device; training goes on") == 1


def test_lines_become_curves(tmp_path: Path) -> None:
    events = EventFile(tmp_path, generation=3, first_step=0)
    line = Progress(
        time=0.0, step=20, total_steps=100, epoch=0.2, loss=2.5, samples_per_second=640.0, world_size=4, generation=3,
        useful_seconds=1.0, lost_seconds=0.5, steps_redone=2, checkpoint_seconds=0.0, step_seconds=0.125, data_seconds=0.25,
        figures={"top1": 0.5},
    )  # fmt: skip
    curves = Curves(events, more=lambda: {"train/rate": 0.0625})
    curves(line)
    curves(dataclasses.replace(line, step=30, loss=2.0))
    events.close()
    found = board.curves(tmp_path)
    assert found["train/loss"] == [(20, 2.5), (30, 2.0)]
    assert {tag: points[0][1] for tag, points in found.items()} == {
        "train/loss": 2.5,
        "train/top1": 0.5,
        "train/rate": 0.0625,
        "time/samples_per_second": 640.0,
        "time/step_seconds": 0.125,
        "time/data_seconds": 0.25,
        "job/epoch": pytest.approx(0.2),
        "job/world_size": 4.0,
        "job/generation": 3.0,
        "job/lost_seconds": 0.5,
        "job/steps_redone": 2.0,
    }
