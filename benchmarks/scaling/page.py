"""The page of `make scaling`: ranks of this machine, and GPUs by the model, beside the articles' curves. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from benchmarks.scaling.cases import (
    ARTICLE_GPUS,
    ASSUMPTIONS,
    FIRST,
    LAST,
    MACHINES,
    NEAR,
    NEARLY_LINEAR,
    PRESETS,
    SIZES,
    SPEED_UPS_64,
)
from benchmarks.scaling.figures import network_here
from benchmarks.scaling.measured import FROM_BYTES
from benchmarks.scaling.model import Point
from ebb.client.report.chart import Axis, Chart, Curve, figure, log_axis, percent, short, table
from ebb.client.report.page import Tile, html_page, page_head, section, tile_list

IDEAL, ARTICLE = 15, 4  # colours of page.css; the ideal is dashed
SIZES_SHOWN = ((8, "8"), (2**10, "1 K"), (2**16, "64 K"), (2**20, "1 M"), (2**23, "8 M"), (2**26, "64 M"))
WORTH_TITLES = {"resnet50": "ResNet-50, batch 64", "efficientnet_b7_batch_1": "EfficientNet-B7, batch 1"}


def page(here: Mapping[str, Any], points: Sequence[Point], model: Mapping[str, Any], *, about: str, command: str) -> str:
    """`about`: the conditions, in a sentence or two."""
    charts = [_here_chart(here), _all_reduce_chart(here, points)]
    modelled = [_model_chart(model, name) for name in ("p4d_efa", "p4d_one_efa", "p4d_sockets", "p3_small")]
    body = [
        page_head("How training scales", "", about, ""),
        tile_list(_tiles(here, model)),
        section("Measured: ranks of this machine", _charts(charts)),
        section("Ranks in numbers", _here_table(here)),
        section(f"Modelled: {FIRST} to {LAST} GPUs", _charts(modelled)),
        section("GPUs in numbers, times as fast", _model_table(model)),
        section("EFA beside TCP", f"<p>{escape(_WORTH)}</p>{_worth_table(model)}"),
        section("Assumptions of the model", f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in ASSUMPTIONS)}</ul>"),
    ]
    return html_page("How training scales", body, f"Made by <code>{escape(command)}</code>; no GPU was there.")


_WORTH = (
    f"The part of an epoch's time that four EFA adapters save against TCP on {ARTICLE_GPUS} A100 of three machines. The model, "
    "whose GPUs never wait for data, has far more than the article: the slower a step, the less a network counts. The last "
    "column has the step with which the model would have the article's part."
)


def _charts(charts: Sequence[Chart]) -> str:
    return f'<div class="charts">{"".join(map(figure, charts))}</div>'


def _tiles(here: Mapping[str, Any], model: Mapping[str, Any]) -> list[Tile]:
    low, high = SPEED_UPS_64
    tiles = [
        (f"{count} ranks here", f"{one['speed_up']:.2f}x", f"as fast as one; the model {one['model_speed_up']:.2f}")
        for count, one in here["ranks"].items()
        if count > 1
    ]
    tiles += [
        (PRESETS[preset].title, f"{found[LAST]:.1f}x", f"{FIRST} to {LAST} GPUs with EFA, by the model")
        for preset, found in model["speed_up"]["p4d_efa"].items()
    ]
    return [*tiles, ("The article", f"{low:g} to {high:g}x", f"{FIRST} to {LAST} GPUs, V100 and T4")]


def _numbers(values: Sequence[int], high: int) -> Axis:
    return Axis(low=values[0], high=high, ticks=[(value, str(value)) for value in values], log=True)


def _here_chart(here: Mapping[str, Any]) -> Chart:
    ranks, cores = list(here["ranks"]), here["cores"]
    last = max(2, *ranks)
    return Chart(
        title="Speed-up of an epoch",
        says=f"In times of one rank; {cores} cores, one thread a rank, so more ranks than {cores} cannot be faster.",
        x=_numbers(ranks, last), y=log_axis(0.5, last), x_name="ranks", y_name="times as fast",
        lines=(
            Curve(name="measured", points=[(count, one["speed_up"]) for count, one in here["ranks"].items()], colour=0),
            Curve(name="model", points=[(count, one["model_speed_up"]) for count, one in here["ranks"].items()], colour=1),
            Curve(name="ideal", points=[(1, 1), (last, last)], colour=IDEAL),
        ),
        legend=True,
    )  # fmt: skip


def _all_reduce_chart(here: Mapping[str, Any], points: Sequence[Point]) -> Chart:
    lines: list[Curve] = []
    for number, ranks in enumerate(sorted({ranks for ranks, _, _ in points})):
        own = [(size, 1000 * seconds) for count, size, seconds in points if count == ranks]
        lines.append(Curve(name=f"{ranks} ranks", points=own, colour=number))
        if network := network_here(points, ranks):
            fitted = [(size, 1000 * network.all_reduce(size, ranks)) for size, _ in own if size >= FROM_BYTES]
            lines.append(Curve(name=f"{ranks} ranks, model", points=fitted, colour=number, faint=True))
    values = [value for line in lines for _, value in line.points if value]
    sizes = [size for _, size, _ in points]
    return Chart(
        title="Time of an all-reduce",
        says="By the program of ebb check network, gloo on this machine; the pale lines are the model, fitted from 64 KB on.",
        x=Axis(low=min(sizes), high=max(sizes), ticks=[one for one in SIZES_SHOWN if one[0] <= max(sizes)], log=True),
        y=log_axis(min(values), max(values)), x_name="bytes", y_name="milliseconds", lines=lines, legend=True,
    )  # fmt: skip


def _model_chart(model: Mapping[str, Any], name: str) -> Chart:
    found, (low, high) = model["speed_up"][name], SPEED_UPS_64
    ideal = LAST / FIRST
    # Straight from nearly linear to what it reports of 64.
    band = [(FIRST, 1.0, 1.0), (NEARLY_LINEAR, NEAR * NEARLY_LINEAR / FIRST, NEARLY_LINEAR / FIRST), (LAST, low, high)]
    lines = [
        Curve(name=PRESETS[preset].title, points=list(speed_ups.items()), colour=number)
        for number, (preset, speed_ups) in enumerate(found.items())
    ]
    return Chart(
        title=MACHINES[name].title,
        says=f"{MACHINES[name].gpu}, in times of {FIRST} GPUs. The band is the article's, of other machines: nearly linear to "
        f"{NEARLY_LINEAR}, {low:g} to {high:g} times on {LAST}.",
        x=_numbers(SIZES, LAST), y=log_axis(0.5, ideal), x_name="GPUs", y_name="times as fast",
        lines=(
            *lines,
            Curve(name="ideal", points=[(FIRST, 1.0), (LAST, ideal)], colour=IDEAL),
            Curve(name="the article", points=[], colour=ARTICLE, band=band),
        ),
        legend=True,
    )  # fmt: skip


def _here_table(here: Mapping[str, Any]) -> str:
    head = ("ranks", "epoch, s", "step, s", "by the model", "off", "speed-up", "efficiency", "bus, GB/s", "hop, us")
    rows = [
        (
            str(count), short(one["epoch_seconds"]), short(one["step_seconds"]), short(one["model_step_seconds"]),
            percent(one["model_off"]), short(one["speed_up"]), percent(one["efficiency"]),
            *("-" if one[key] is None else short(one[key]) for key in ("bus_gb_s", "hop_us")),
        )
        for count, one in here["ranks"].items()
    ]  # fmt: skip
    return table(head, rows)


def _model_table(model: Mapping[str, Any]) -> str:
    head = ("machines", "model", *(f"{gpus} GPUs" for gpus in SIZES), f"efficiency on {LAST}")
    rows = [
        (
            MACHINES[name].title, PRESETS[preset].title, *(short(found[gpus]) for gpus in SIZES),
            percent(found[LAST] * FIRST / LAST),
        )
        for name, presets in model["speed_up"].items()
        for preset, found in presets.items()
    ]  # fmt: skip
    return table(head, rows)


def _worth_table(model: Mapping[str, Any]) -> str:
    rows = [
        (
            WORTH_TITLES[name], percent(one["model"]), " to ".join(percent(share) for share in one["article"]),
            " to ".join(short(seconds) for seconds in one["step_seconds_of_the_article"]),
        )
        for name, one in model["efa_worth"].items()
    ]  # fmt: skip
    return table(("model", "by the model", "by the article", "a step that explains it, s"), rows)
