"""The dashboards' panels as a page, drawn from what Prometheus has: Grafana cannot be had here, and somebody should look at them.

html = await drawn(server, began, ended)
"""

import re

from ebb.client.report.chart import Chart, Curve, axis, figure
from ebb.client.report.page import html_page, page_head, section
from tests.monitoring.server import Server
from tests.monitoring.test_dashboards import PAGES, page

MOST = 8  # lines that are told apart
SECONDS = 10  # between two points


async def drawn(server: Server, began: float, ended: float) -> str:
    """A page with a section for each dashboard; panels of programs that do not run here are empty."""
    body = [
        page_head("Ebb's dashboards", "", f"{ended - began:.0f} s of the proof; an hour of the rules lasts a minute there.", "")
    ]
    for name in PAGES:
        charts = []
        for panel in page(name)["panels"]:
            lines: list[Curve] = []
            for target in panel.get("targets", ()):
                lines += await _curves(server, target["expr"], target["legendFormat"], (began, ended), len(lines))
            if lines:
                charts.append(figure(_chart(panel["title"], panel["description"], lines, ended - began)))
        body.append(section(f"{page(name)['title']}, {len(charts)} panels", f'<div class="charts">{"".join(charts)}</div>'))
    return html_page("Ebb's dashboards", body, "Made by <code>make prove-monitoring</code>.")


async def _curves(server: Server, query: str, legend: str, span: tuple[float, float], first: int) -> list[Curve]:
    meant = query.replace("$namespace", ".*").replace("$ebb_job", ".*").replace("$__rate_interval", "20s").replace("[1h]", "[1m]")
    found = await server.range(meant, *span, SECONDS)
    return [
        Curve(
            name=re.sub(r"\{\{(\w+)\}\}", lambda word: series["metric"].get(word[1], ""), legend),  # noqa: B023 - used at once
            points=[(float(at) - span[0], float(value)) for at, value in series["values"] if value not in ("NaN", "+Inf")],
            colour=(first + index) % MOST,
        )
        for index, series in enumerate(found[: MOST - first])
    ]


def _chart(title: str, says: str, lines: list[Curve], seconds: float) -> Chart:
    values = [value for line in lines for _, value in line.points if value is not None] or [0.0]
    return Chart(
        title=title, says=says, x=axis(0, seconds, kind="seconds", exact=True), y=axis(min(0.0, *values), max(values)),
        x_name="time", y_name="", lines=lines, legend=True,
    )  # fmt: skip
