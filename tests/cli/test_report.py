"""`ebb report`: the file that it writes, what it prints, what it refuses. Its figures: tests of ebb/client/report."""

import json
import webbrowser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from tests.cli.world import FakeKube, platform_map, session
from tests.client.report import story
from tests.client.report.html import read


def invoke(*words: str, kube: FakeKube | None = None) -> Result:
    kube = kube or FakeKube(platform_map(), story.job())
    return CliRunner().invoke(app, ["report", *words], obj=session(kube), env={"COLUMNS": "80", "TZ": "UTC"})


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_writes_a_page_and_says_where_and_what_is_missing(tmp_path: Path) -> None:
    result = invoke("digits")
    assert (result.exit_code, result.stdout) == (0, "digits.html\n")
    assert "gateway does not run" in result.stderr
    page = read((tmp_path / "digits.html").read_text())
    assert page.all("h1")[0].words == "digits finished"
    assert any("gateway does not run" in note.text for note in page.all("ul", "notes")[0].all("li"))


def test_the_file_can_be_named_and_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for _ in range(2):
        assert invoke("digits", "-o", "a/report.html").stdout == "a/report.html\n"
    assert (tmp_path / "a" / "report.html").stat().st_size > 5000
    assert not (tmp_path / "digits.html").exists()


def test_json_has_the_figures_and_writes_no_file(tmp_path: Path) -> None:
    result = invoke("digits", "-o", "json")
    found = json.loads(result.stdout)
    assert (found["job"]["name"], found["source"]) == ("digits", "the job's status")
    assert [event["what"] for event in found["events"]] == ["placed", "reclaimed", "placed", "ended"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opens", [True, False])
def test_open_shows_it_or_says_how(opens: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def browser(url: str) -> bool:
        shown.append(url)
        return opens

    monkeypatch.setattr(webbrowser, "open", browser)
    result = invoke("digits", "--open")
    assert shown == [(tmp_path / "digits.html").as_uri()]
    assert ("No browser was found" in result.stderr) is not opens
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("other",), 4, "no job named 'other' in elastic-job. There are: digits."),
        (("digits", "-o", "no/where.html"), 2, "there is no folder 'no'. Make it, or name another file with -o."),
        (("digits", "-o", "."), 2, "output '.' is a folder: name a file in it, such as report.html."),
    ],
)
def test_refusals(words: tuple[str, ...], code: int, sentence: str) -> None:
    result = invoke(*words)
    assert result.exit_code == code
    assert sentence in " ".join(result.stderr.split())
