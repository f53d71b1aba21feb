"""The dashboards: what they ask for is there, their files are Grafana's, and they are what the code writes."""

import json
import re
from typing import Any

import pytest

from tests.monitoring.known import asked, exported, series
from workloads import dashboards

PAGES = sorted(path.name for path in dashboards.FOLDER.glob("*.json"))


def page(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dashboards.FOLDER / name).read_text())
    return found


def plain(query: str) -> str:
    """As Grafana sends it: with values in place of variables."""
    query = query.replace("$__rate_interval", "1m")
    label_values = re.fullmatch(r"label_values\((.+), \w+\)", query)
    return re.sub(r"\$\w+", "x", label_values[1] if label_values else query)


def test_there_are_five() -> None:
    assert PAGES == ["gpus.json", "jobs.json", "money.json", "platform.json", "reclaims.json"]


@pytest.mark.parametrize("name", PAGES)
def test_all_that_it_asks_for_is_exported(name: str) -> None:
    known = series(exported())
    found = {title: asked(plain(query)) - known for title, query in dashboards.queries(page(name))}
    assert len(found) > 3
    assert {title: unknown for title, unknown in found.items() if unknown} == {}


@pytest.mark.parametrize("name", PAGES)
def test_its_variables_are_declared(name: str) -> None:
    shown = page(name)
    declared = {one["name"] for one in shown["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(shown))) <= declared


@pytest.mark.parametrize("name", PAGES)
def test_it_passes_grafanas_own_schema(name: str) -> None:
    written = page(name)
    assert dashboards.again(written) == written
    titles = [panel["title"] for panel in written["panels"]]
    assert all(titles)
    assert written["uid"] == f"ebb-{name.removesuffix('.json')}"


def test_what_the_schema_does_not_know_is_found() -> None:
    written = page("jobs.json")
    written["panels"][1]["colour"] = "red"
    assert dashboards.again(written) != written


def test_every_figure_of_ours_is_on_a_dashboard_or_in_an_alert() -> None:
    """But for those of processes, and what only the controller reads."""
    shown = set().union(*(asked(plain(query)) for name in PAGES for _, query in dashboards.queries(page(name))))
    ours = {name for name in exported() if name.startswith("ebb_")}
    hidden = {one for one in ours if not any(shown_as.startswith(one) for shown_as in shown)}
    assert hidden == {"ebb_epoch", "ebb_held_seconds", "ebb_notifications_total", "ebb_program_failures_total"}
