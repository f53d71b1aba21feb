"""What is done stays done for the same code, and only for that."""

import struct
import zlib
from pathlib import Path

from benchmarks.exact import pictures, words
from benchmarks.exact.records import Records, fingerprint


def test_what_is_kept_is_found_again_and_a_torn_last_line_is_none(tmp_path: Path) -> None:
    Records.open(tmp_path, "code").keep("history 1", {"seed": 1})
    again = Records.open(tmp_path, "code")
    assert again.get("history 1") == {"seed": 1}
    assert again.get("history 2") is None
    with again.path.open("a") as file:
        file.write('{"key": "history 2", "va')
    assert Records.open(tmp_path, "code").get("history 2") is None
    assert Records.open(tmp_path, "other").get("history 1") is None


def test_other_code_has_another_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = fingerprint(tmp_path, ["*.py"])
    assert fingerprint(tmp_path, ["*.py"]) == first
    (tmp_path / "a.py").write_text("2")
    assert fingerprint(tmp_path, ["*.py"]) != first


def test_pictures_are_the_same_each_time_and_png(tmp_path: Path) -> None:
    pictures.write(tmp_path / "a")
    pictures.write(tmp_path / "b")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.png"))
    assert len(files) == 3 * (40 + 20)
    for path in files:
        assert (tmp_path / "a" / path).read_bytes() == (tmp_path / "b" / path).read_bytes()
    image = (tmp_path / "a" / files[0]).read_bytes()
    assert struct.unpack(">II", image[16:24]) == (32, 32)
    length = struct.unpack(">I", image[33:37])[0]
    assert len(zlib.decompress(image[41 : 41 + length])) == 32 * (1 + 3 * 32)


def test_the_words_are_the_same_each_time_and_whole_windows(tmp_path: Path) -> None:
    words.write(tmp_path / "a")
    words.write(tmp_path / "b")
    for part, windows in (("train", words.TRAIN), ("val", words.VALIDATION)):
        text = (tmp_path / "a" / f"{part}.bin").read_bytes()
        assert text == (tmp_path / "b" / f"{part}.bin").read_bytes()
        assert len(text) == windows * words.WINDOW + 1
