"""The program that keeps a folder of log files within its days and GiB."""

import os
from pathlib import Path

import pytest

from ebb import log_files
from ebb.log_files import LogFile, excess, tidy

DAY = 86_400
NOW = 100 * DAY


def file(name: str, *, days: float, size: int = 10) -> LogFile:
    return LogFile(changed=NOW - days * DAY, path=Path("/logs", name), size=size)


@pytest.mark.parametrize(
    ("files", "keep_bytes", "gone"),
    [
        pytest.param([file("a", days=29)], 100, [], id="all of it stays"),
        pytest.param([file("b", days=31), file("a", days=40), file("c", days=30)], 100, ["a", "b"], id="too old"),
        pytest.param([file("a", days=3), file("b", days=2), file("c", days=1)], 20, ["a"], id="too much"),
        pytest.param([file("a", days=40), file("b", days=2), file("c", days=1)], 20, ["a"], id="what is old makes room"),
        pytest.param([file("a", days=0, size=500)], 100, ["a"], id="one that is larger than all may be"),
        pytest.param([], 100, [], id="nothing"),
    ],
)
def test_the_oldest_go_first(files: list[LogFile], keep_bytes: int, gone: list[str]) -> None:
    found = excess(files, now=NOW, keep_days=30, keep_bytes=keep_bytes)
    assert [one.path.name for one in found] == gone


def test_files_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    for name, days in (("node-1.jsonl.20260101_000000_0123abcd.gz", 40), ("node-1.jsonl", 0)):
        (tmp_path / name).write_text("x" * 10)
        os.utime(tmp_path / name, (NOW - days * DAY,) * 2)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "node-1.jsonl")
    for kept in ("folder", "link"):
        os.utime(tmp_path / kept, (0, 0), follow_symlinks=False)
    gone = tidy(tmp_path, now=NOW, keep_days=30, keep_bytes=100)
    assert [one.path.name for one in gone] == ["node-1.jsonl.20260101_000000_0123abcd.gz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "node-1.jsonl"]


def test_it_says_what_it_has_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.jsonl").write_text("x")
    os.utime(tmp_path / "old.jsonl", (0, 0))
    log_files.main([str(tmp_path), "--keep-days=1", "--keep-gib=1", "--once"])
    assert capsys.readouterr().out == "deleted 1 files, 0.00 GiB, the oldest old.jsonl\n"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        log_files.main([str(tmp_path / "gone"), "--keep-days=1", "--keep-gib=1", "--once"])
    assert ended.value.code == 1
    assert f"cannot tidy {tmp_path / 'gone'}: [Errno 2]" in capsys.readouterr().err
