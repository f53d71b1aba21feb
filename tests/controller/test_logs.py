"""One JSON object a line, whatever is logged, with the job that it is about."""

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ebb.api.json_logs import JsonFormatter, about, default_format, set_up

log = logging.getLogger("workloads.test")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the process logs, as JSON."""
    root, stream = logging.getLogger(), io.StringIO()
    before, level = root.handlers[:], root.level
    set_up("json", logging.INFO, stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[Any]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_how_bad_who_and_what(written: io.StringIO) -> None:
    log.warning("no room for %d workers", 3)
    (line,) = lines(written)
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "workloads.test", "message": "no room for 3 workers"}


def test_a_line_about_a_job_names_it(written: io.StringIO) -> None:
    with about("elastic-job", "digits"):
        log.info("inside")
    log.info("outside")
    inside, outside = lines(written)
    assert (inside["namespace"], inside["job"]) == ("elastic-job", "digits")
    assert "job" not in outside


def test_jobs_that_are_looked_at_at_once_are_not_mixed_up(written: io.StringIO) -> None:
    async def write() -> None:
        await asyncio.sleep(0)
        log.info("written")

    async def look(name: str) -> None:
        with about("ns", name):
            await asyncio.gather(write(), write())

    async def story() -> None:
        await asyncio.gather(look("a"), look("b"))

    asyncio.run(story())
    assert sorted(line["job"] for line in lines(written)) == ["a", "a", "b", "b"]


def test_a_message_or_a_traceback_of_several_lines_is_one_line(written: io.StringIO) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("it\nbroke ü")
    (line,) = lines(written)
    assert line["message"] == "it\nbroke ü"
    assert line["error"].endswith("ValueError: two\nlines")


def test_what_is_quieter_than_the_level_is_not_written(written: io.StringIO) -> None:
    log.debug("detail")
    assert lines(written) == []


@pytest.mark.parametrize(("terminal", "form"), [(True, "text"), (False, "json")])
def test_people_get_text_and_programs_json(terminal: bool, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert default_format() == form


def test_the_time_has_microseconds() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "m", None, None)
    record.created = 1_800_000_000.25
    assert json.loads(JsonFormatter().format(record))["time"] == "2027-01-15T08:00:00.250000Z"
