"""result.json on a disk that is full, for a while or for good."""

import errno
import json
from pathlib import Path

import pytest

from ebb.elastic.runtime.report import write_result


def fail(monkeypatch: pytest.MonkeyPatch, code: int, times: int) -> None:
    write, left = Path.write_text, [OSError(code, "it fails")] * times

    def write_text(path: Path, text: str, encoding: str) -> int:
        if left:
            raise left.pop()
        return write(path, text, encoding=encoding)

    monkeypatch.setattr(Path, "write_text", write_text)
    monkeypatch.setattr("ebb.elastic.room._LOOK_SECONDS", 0.0)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_room_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    fail(monkeypatch, code, times=3)
    write_result(tmp_path, {"step": 7})
    assert json.loads((tmp_path / "result.json").read_text()) == {"step": 7}
    assert capsys.readouterr().err == f"{tmp_path} is full: result.json waits for room, for 300 s\n", "once"


def test_room_for_the_name_is_waited_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, left = Path.rename, [OSError(errno.ENOSPC, "it fails")]

    def full_at_first(path: Path, target: Path) -> Path:
        if left:
            raise left.pop()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full_at_first)
    monkeypatch.setattr("ebb.elastic.room._LOOK_SECONDS", 0.0)
    write_result(tmp_path, {"step": 7})
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(("code", "seconds"), [(errno.EIO, 300.0), (errno.ENOSPC, 0.0)], ids=["not-full", "for-good"])
def test_what_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, seconds: float) -> None:
    fail(monkeypatch, code, times=1)
    monkeypatch.setattr("ebb.elastic.room.ROOM_SECONDS", seconds)
    with pytest.raises(OSError, match="it fails"):
        write_result(tmp_path, {})
    assert not (tmp_path / "result.json").exists()
