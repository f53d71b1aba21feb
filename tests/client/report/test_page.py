"""The page itself: well-formed, of one piece, of a bounded size, the right values in its curves, nobody's markup but ours."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ebb.client.jobs.view import view
from ebb.client.report.chart import COLOURS
from ebb.client.report.data import RunOfSweep, RunReport, SweepReport, run_report, sweep_report
from ebb.client.report.lines import SPANS, Reader
from ebb.client.report.page import run_page, sweep_page
from ebb.client.secrets.uses import SecretUse
from tests.client.report import story
from tests.client.report.html import Element, curve, read

MADE = "2026-11-22T13:00:00Z"
EVIL = """</script></style><img src=x onerror="alert('1')"> & <b>"""


def made(lines: Sequence[dict[str, Any]], name: str = "digits", notes: Sequence[str] = (), **changes: Any) -> RunReport:
    reader = Reader()
    for line in lines:
        reader.add(line)
    job = view(story.job(name, **changes))
    return run_report(job, reader.done(), now=story.BEGIN + 200, source="metrics.jsonl", paid_seconds=352.0, notes=notes)


def swept(runs: int, name: str = "scan") -> SweepReport:
    lines = list(story.metric_lines(until=90.0))
    each = [
        RunOfSweep(
            job=f"{name}-{number}",
            settings=f"lr={number}",
            command=f"ebb submit -- python train.py --lr {number}",
            report=made([{**line, "loss": line["loss"] + number} for line in lines], f"{name}-{number}"),
            last_loss=lines[-1]["loss"] + number,
            value=lines[-1]["loss"] + number,
            step=lines[-1]["step"],
        )
        for number in range(runs)
    ]
    return sweep_report(name, "elastic-job", each)


LINES = list(story.metric_lines())
RUN = made(LINES)
HTML = run_page(RUN, made=MADE)
PAGES = {"job": HTML, "empty job": run_page(made([]), made=MADE), "sweep": sweep_page(swept(4), made=MADE)}


def plot(page: Element, title: str) -> Element:
    [found] = [figure for figure in page.all("figure") if figure.all("h3")[0].text == title]
    return found.all("div", "plot")[0]


@pytest.mark.parametrize("html", PAGES.values(), ids=PAGES)
def test_every_page_is_well_formed_and_of_one_piece(html: str) -> None:
    page = read(html)
    assert page.attributes["lang"] == "en"
    assert page.all("title")[0].text
    assert "://" not in html
    assert not re.search(r"url\(|@import|\bfetch\(|XMLHttpRequest|\bimport\b *\(|sendBeacon|WebSocket", html)
    assert not [each for each in _everything(page) if {"src", "href", "action", "srcset", "onclick"} & set(each.attributes)]
    [policy] = [each for each in page.all("meta") if "content-security-policy" in each.attributes.get("http-equiv", "").lower()]
    assert policy.attributes["content"].startswith("default-src 'none'")


@pytest.mark.parametrize("html", PAGES.values(), ids=PAGES)
def test_who_does_not_see_the_plots_can_read_them(html: str) -> None:
    page = read(html)
    for svg in page.all("svg"):
        assert svg.attributes["role"] == "img"
        assert len(svg.attributes["aria-label"]) > 30
    for region in page.all("div", "scroll"):
        assert region.attributes["aria-label"]
        assert region.all("th")[0].attributes["scope"] == "col"


def test_each_plot_of_a_job_has_its_numbers_in_a_table() -> None:
    figures = read(HTML).all("figure")
    titles = [figure.all("h3")[0].text for figure in figures]
    assert titles == [
        "Loss against time",
        "Loss against samples",
        "Rate against time",
        "Rate against samples",
        "top1 against samples",
        "Workers and zones",
        "Goodput",
        "Money against on-demand",
    ]
    assert all(2 <= len(figure.all("details")[0].all("tr")) <= 13 for figure in figures)


def test_a_job_that_has_ended_is_at_its_last_line() -> None:
    """The platform last looked some steps before; while it trains, what the platform saw is shown as everywhere."""
    last = LINES[-1]["step"]
    for ended, step in (("2026-11-21T12:03:02Z", last), (None, last - 3)):
        page = read(run_page(made(LINES, progress={"step": last - 3}, completionTime=ended), made=MADE))
        tiles = {tile.all("dt")[0].text: tile.all("dd")[0].text for tile in page.all("div", "tile")}
        assert tiles["Steps"].replace(",", "").startswith(str(step))


def test_a_job_names_its_secrets() -> None:
    run = replace(RUN, job=replace(RUN.job, secrets=(SecretUse(name="hf-token", variable="HF_TOKEN"), SecretUse(name="lab"))))
    assert "Secrets: hf-token as HF_TOKEN, lab for its image." in run_page(run, made=MADE)
    assert "Secrets" not in HTML


def test_a_job_shows_its_gpus() -> None:
    used = {"ranks": [3], "utilization": 40, "memoryUsedBytes": 12 * 2**30, "memoryTotalBytes": 16 * 2**30}
    idle = {"worker": 1, "gpu": 0, "utilization": 4, "idleSeconds": 840}
    page = read(run_page(made([], gpus=[{"worker": 0, "gpu": 1, **used}, idle]), made=MADE))
    tiles = {tile.all("dt")[0].text: tile.all("dd")[0].text for tile in page.all("div", "tile")}
    assert tiles["GPUs busy"].replace("\u00a0", " ") == "22 %"
    assert "when last seen; 1 hardly used" in [small.text for small in page.all("small")]
    rows = [[cell.text for cell in row.all("td")] for row in page.all("tr")]
    assert ["3", "1 of worker 0", "40 %", "12.0 GiB", "16 GiB", ""] in rows
    assert ["-", "0 of worker 1", "4 %", "-", "-", "hardly used for 14 min"] in rows
    assert "GPUs" not in HTML


def test_no_plot_is_drawn_without_a_curve() -> None:
    """The platform knows the goodput of a job whose metric lines cannot be read."""
    cost = {"usdSpent": 0.0185, "usdOnDemand": 0.0617, "machineSeconds": 352.0, "usefulMachineSeconds": 300.0}
    run = made([], cost=cost, progress={"step": 900, "usefulSeconds": 120.0})
    assert run.goodput == pytest.approx(300 / 352)
    page = read(run_page(run, made=MADE))
    assert [figure.all("h3")[0].text for figure in page.all("figure")] == ["Money against on-demand"]
    assert "Goodput" in [label.text for label in page.all("dt")]


def test_the_curves_hold_the_values() -> None:
    page = read(HTML)
    losses = curve(plot(page, "Loss against time"), "loss")
    wanted = [(point.seconds, point.loss.mean) for point in RUN.points if point.loss]
    assert [x for x, _ in losses] == pytest.approx([x for x, _ in wanted], abs=0.2)
    assert [y for _, y in losses] == pytest.approx([y for _, y in wanted], abs=0.002)
    over_samples = curve(plot(page, "Loss against samples"), "loss")
    assert over_samples[-1] == pytest.approx([LINES[-1]["step"] * story.BATCH, losses[-1][1]])
    assert curve(plot(page, "Rate against time"), "samples/s")[-1][1] == pytest.approx(480, abs=2)
    assert curve(plot(page, "Money against on-demand"), "spent")[-1] == pytest.approx((182.0, 0.0185), abs=1e-4)
    workers = curve(plot(page, "Workers and zones"), "workers")
    assert [round(value) for _, value in workers[::2]] == [0, 2, 0, 1, 0, 2, 0, 3, 0]


def test_losses_of_very_different_size_are_put_back_through_a_logarithm() -> None:
    lines = [{"time": story.BEGIN + step, "step": step, "loss": 10.0 ** (-step / 20)} for step in range(1, 100)]
    page = read(run_page(made(lines), made=MADE))
    found = curve(plot(page, "Loss against steps"), "loss")
    assert [value for _, value in found] == [pytest.approx(line["loss"], rel=0.01) for line in lines]


def test_reclaims_are_marked_and_in_the_table() -> None:
    page = read(HTML)
    [mark] = plot(page, "Workers and zones").all("path", "mark")
    assert mark.all("title")[0].text == "worker 1 on spot-t4-local-a-x1b2c was lost: the cloud takes its machine back"
    [row] = page.all("tr", "marked")
    assert [cell.text for cell in row.all("td")] == [
        "1 min 8 s",
        "2026-11-21 12:01:07",
        "worker 1 on spot-t4-local-a-x1b2c was lost: the cloud takes its machine back",
        "local-a",
        "2.4 s",
        "1",
    ]
    assert [strip.text for strip in page.all("span", "strip")] == ["local-a", "local-b"]


def test_what_could_not_be_had_is_said_on_the_page() -> None:
    note = "The job's folder could not be read: no gateway."
    assert note in [each.text for each in read(run_page(made([], notes=[note]), made=MADE)).all("ul", "notes")[0].all("li")]


def test_nothing_that_a_user_wrote_becomes_markup() -> None:
    history = [{"at": "2026-11-21T12:01:07Z", "what": "reclaimed", "worker": 1, "node": "m", "cause": EVIL}]
    history += [{"at": "2026-11-21T12:00:01Z", "what": "placed", "cause": EVIL}]
    lines = [{**line, "figures": {EVIL: 0.5}} for line in LINES[:50]]
    conditions = [{"type": "Failed", "status": "True", "reason": "x", "message": EVIL}]
    run = made(lines, EVIL, [EVIL], history=history, conditions=conditions)
    sweep = sweep_report(EVIL, EVIL, [RunOfSweep(job=EVIL, settings=EVIL, command=EVIL, report=run)])
    for html in (run_page(run, made=MADE), sweep_page(sweep, made=MADE)):
        page = read(html)  # fails for an element that is none of ours, such as <img> or <b>
        assert page.all("h1")[0].words.startswith(EVIL)
        assert len(page.all("script")) == len(page.all("style")) == 1
        assert any(cell.text == EVIL for cell in page.all("td"))


def test_the_page_of_the_largest_job_is_bounded() -> None:
    """Its lines are as many points as there may be, and its membership changed more often than is kept."""
    lines = [
        {**LINES[-1], "time": story.BEGIN + number, "step": number, "generation": number // 3, "world_size": 1 + number // 3 % 2}
        for number in range(6000)
    ]
    run = made(lines)
    assert SPANS <= len(run.points) <= 2 * SPANS
    assert len(run.stretches) > 500
    html = run_page(run, made=MADE)
    read(html)
    assert len(html) < 400_000


def test_a_sweep_has_all_runs_in_one_picture_and_in_one_table() -> None:
    page = read(PAGES["sweep"])
    lines = plot(page, "Loss against samples").all("path", "line")
    assert [line.attributes["data-name"] for line in lines] == ["lr=3", "lr=2", "lr=1", "lr=0"]  # the best on top
    keys = page.all("figure")[0].all("ul", "legend")[0].all("li")
    assert [key.text for key in keys] == ["lr=0", "lr=1", "lr=2", "lr=3"]
    table = next(each for each in page.all("table") if each.all("th")[1].text == "Settings")
    assert [row.all("td")[1].text for row in table.all("tr")[1:]] == ["lr=0", "lr=1", "lr=2", "lr=3"]
    assert table.all("tr")[1].all("td")[4].text.endswith("(best)")


def test_of_very_many_runs_the_best_are_named_and_the_page_is_bounded() -> None:
    html = sweep_page(swept(60), made=MADE)
    page = read(html)
    drawn = plot(page, "Loss against samples").all("path", "line")
    assert len(drawn) == 60
    assert sum("faint" in line.attributes["class"] for line in drawn) == 60 - 2 * COLOURS
    assert len(html) < 60 * 5_000


def test_pauses_too_short_to_be_seen_do_not_fill_the_picture_of_a_long_job() -> None:
    lines = [
        {**LINES[0], "time": story.BEGIN + 90.0 * each, "step": each, "generation": (each - 1) // 10} for each in range(1, 1001)
    ]
    lines[500:] = [{**line, "time": line["time"] + 3600.0} for line in lines[500:]]
    page = read(run_page(made(lines, completionTime="2026-11-22T14:00:00Z"), made=MADE))
    drops = [x for x, value in curve(plot(page, "Workers and zones"), "workers") if round(value) == 0]
    assert sorted({round(x / 3600) for x in drops}) == [0, 13, 14, 26]  # its begin, the hour's pause, its end


def test_a_long_wait_for_machines_does_not_flatten_the_curves() -> None:
    late = [{**line, "time": line["time"] + 36_000.0} for line in LINES]
    page = read(run_page(made(late, completionTime="2026-11-21T22:03:02Z"), made=MADE))
    first = curve(plot(page, "Loss against time"), "loss")[0][0]
    low, high, _ = plot(page, "Loss against time").attributes["data-x"].split()
    assert (first - float(low)) / (float(high) - float(low)) < 0.1


def _everything(element: Element) -> list[Element]:
    return [element, *(deeper for child in element.children for deeper in _everything(child))]
