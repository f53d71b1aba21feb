"""The page of `make spot`: what each way saves and how long it takes, by number of GPUs, beside the article's. Pure."""

from collections.abc import Mapping
from html import escape

from benchmarks.spot.curve import ARTICLE
from benchmarks.spot.figures import ON_DEMAND, OURS, Figures
from ebb.client.report.chart import Axis, Chart, Curve, axis, figure, percent, short, table
from ebb.client.report.page import html_page, page_head, section, tile_list

TITLES = {
    OURS: "Ebb",
    "uniform_progress": "Uniform Progress",
    "restarts": "all or none, 42 s a restart",
    "elastic": "torchelastic in one zone, 42 s a change",
    "naive": "spot without checkpoints",
    ON_DEMAND: "on-demand",
}


def page(told: Mapping[int, Mapping[str, Figures]], *, about: str, command: str) -> str:
    """`told`: by number of GPUs, then by way. `about`: the traces and the work, in a sentence."""
    sizes = list(told)
    tiles = [
        (f"{gpus} GPUs", percent(ways[OURS]["saving"] or 0.0), f"saved; late in {ways[OURS]['late']} plays")
        for gpus, ways in told.items()
    ]
    savings, few = (_chart(told, key, *words) for key, *words in _SAVINGS)
    late = _chart(
        told, "times_as_long", "How long it takes", "Time until the work is done, in those that it takes undisturbed.",
        "times as long",
    )  # fmt: skip
    head = ("GPUs", "way", "saved", "least", "against few GPUs", "times as long", "reclaims", "late", "never done")
    rows = [_row(gpus, way, ways[way]) for gpus, ways in told.items() for way in TITLES if way in ways]
    marked = frozenset(index for index, row in enumerate(rows) if row[1] == TITLES[OURS])
    body = [
        page_head(f"Spot machines for {sizes[0]} to {sizes[-1]} GPUs", "", about, ""),
        tile_list(tiles),
        section("By number of GPUs", f'<div class="charts">{figure(savings)}{figure(late)}{figure(few)}</div>'),
        section("All figures", table(head, rows, marked=marked)),
    ]
    return html_page("Spot machines: what they save", body, f"Made by <code>{escape(command)}</code>, in simulated time.")


_SAVINGS = (
    ("saving", "Saved", "Part of the price on as many on-demand machines that was not paid; plays that ended.", "saved"),
    (
        "saving_against_few_gpus",
        "Saved against on-demand machines with few GPUs",
        "More GPUs do less each, so the same work on few of them is cheaper. Behind it the article's: 60 to 70 % up to 16 GPUs, "
        "40 % on 32 and more.",
        "saved",
    ),
)


def _chart(told: Mapping[int, Mapping[str, Figures]], key: str, title: str, says: str, name: str) -> Chart:
    sizes = list(told)
    ways = [way for way in TITLES if way != ON_DEMAND and any(way in found for found in told.values())]
    values = [found[way][key] for found in told.values() for way in ways if found[way][key] is not None]
    share = key != "times_as_long"
    lines = [
        Curve(name=TITLES[way], points=[(gpus, told[gpus][way][key]) for gpus in sizes], colour=index)
        for index, way in enumerate(ways)
    ]
    if key == "saving_against_few_gpus":
        band = [(float(gpus), *ARTICLE[gpus]) for gpus in sizes if gpus in ARTICLE]
        lines.append(Curve(name="the article", points=[], colour=7, band=band))
    return Chart(
        title=title, says=says,
        x=Axis(low=sizes[0], high=max(sizes[-1], sizes[0] + 1), ticks=[(gpus, str(gpus)) for gpus in sizes], log=True),
        y=axis(min([0.0, *values]), max([1.0, *values]), kind="percent" if share else "number"),
        x_name="GPUs", y_name=name, lines=lines, legend=True,
    )  # fmt: skip


def _row(gpus: int, way: str, found: Figures) -> tuple[str, ...]:
    shares = (found["saving"], found["least_saving"], found["saving_against_few_gpus"])
    return (
        str(gpus), TITLES[way], *("" if one is None else percent(one) for one in shares),
        "" if found["times_as_long"] is None else short(found["times_as_long"]), short(found["reclaims"]), str(found["late"]),
        str(found["unfinished"]),
    )  # fmt: skip
