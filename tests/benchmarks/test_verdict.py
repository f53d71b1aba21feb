"""The end of a measurement: its status, its line, and what is left of its folder."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.verdict import BROKEN, FAILED, INTERRUPTED, KEPT, Say, conclude


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which temporary ones are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("raised", "broken", "status"),
    [
        pytest.param(None, [], KEPT, id="kept"),
        pytest.param(None, ["lost is 3, and may be 0 at most"], BROKEN, id="broken"),
        pytest.param(OSError("no room"), [], FAILED, id="not run"),
        pytest.param(KeyboardInterrupt(), [], INTERRUPTED, id="interrupted"),
    ],
)
def test_each_end_has_a_status_and_only_what_somebody_has_to_look_at_stays(
    folders: Path, capsys: pytest.CaptureFixture[str], raised: BaseException | None, broken: list[str], status: int
) -> None:
    def measure(folder: Path, say: Say) -> dict[str, Any]:
        (folder / "log").touch()
        say("one history")
        if raised is not None:
            raise raised
        return {"lost": 3}

    def judge(found: dict[str, Any]) -> list[str]:
        assert found == {"lost": 3}
        return broken

    assert conclude("trial", measure, judge, failures=(OSError,)) == status
    left = list(folders.glob("ebb-trial-*/log"))
    assert bool(left) is (status in (BROKEN, FAILED))
    told = capsys.readouterr()
    assert told.out == ("" if raised else '{"lost": 3}\n')
    words = [f"broken: {broken[0]}"] if broken else ["error: no room"] if status == FAILED else []
    assert told.err.splitlines() == ["one history", *(f"{each}; its folders are kept in {left[0].parent}" for each in words)]


def test_an_error_of_the_measurement_itself_is_not_hidden(folders: Path) -> None:
    def measure(_folder: Path, _say: Say) -> dict[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        conclude("trial", measure, lambda _found: [], failures=(OSError,))
    assert list(folders.glob("ebb-trial-*")), "its folder stays too"
