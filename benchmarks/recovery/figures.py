"""From the changes that were timed to the last line, and which promises they keep. Pure.

A figure is None where the system did not survive the change before the cap, in any round.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.controller.figures import percentile
from benchmarks.recovery.timeline import Change

Figures = dict[str, Any]
Found = Mapping[str, Mapping[str, Sequence[Change | str]]]  # system -> event -> one for each round
DEFAULTS, BEST = ("etcd", "c10d"), ("etcd_best", "c10d_best", "etcd_v2_best")
WANTED_RATIO = 5.0
# The trainer's --checkpoint-seconds by default, in steps of STEP_SECONDS.
INTERVAL_STEPS = 3000
# With its state in memory a job does at most the step under way again.
STEPS_AT_RISK = {"ours": INTERVAL_STEPS, "memory": 1}
OURS = tuple(STEPS_AT_RISK)
WITH_NOTICE = ("notice", "join")


@dataclass(frozen=True, kw_only=True)
class Promise:
    kept: bool
    text: str


def figure(changes: Sequence[Change | str]) -> Figures | None:
    """Of one system and one event."""
    survived = [change for change in changes if isinstance(change, Change)]
    if not survived or len(survived) < len(changes):
        return None
    seconds = [change.seconds for change in survived]
    return {
        "median_seconds": round(statistics.median(seconds), 2),
        "p95_seconds": round(percentile(seconds, 95), 2),
        "full_seconds": round(statistics.median(change.full_seconds for change in survived), 2),
        "steps_redone": max(change.steps_redone for change in survived),
        "samples_lost": max(change.samples_lost for change in survived),
    }


def figures(found: Found) -> dict[str, dict[str, Figures | None]]:
    return {system: {event: figure(changes) for event, changes in events.items()} for system, events in found.items()}


def reasons(found: Found) -> dict[str, str]:
    """Why there is no figure: "system event" -> in words."""
    told = {}
    for system, events in found.items():
        for event, changes in events.items():
            failed = [change for change in changes if isinstance(change, str)]
            if failed:
                told[f"{system} {event}"] = f"{len(failed)} of {len(changes)}: {failed[0]}"
    return told


def promises(table: Mapping[str, Mapping[str, Figures | None]]) -> list[Promise]:
    """Those of which both sides were measured; a rival that did not survive is beaten."""
    made: list[Promise] = []
    for system, event, ours in [(name, *found) for name in OURS for found in table.get(name, {}).items()]:
        if ours is None:
            made.append(Promise(kept=False, text=f"{event}: {system} did not go on"))
            continue
        made += _against(event, ours, table, DEFAULTS, WANTED_RATIO)
        made += _against(event, ours, table, BEST, 1.0)
        limit = 0.0 if event in WITH_NOTICE else STEPS_AT_RISK[system]
        fine = ours["steps_redone"] <= limit and ours["samples_lost"] == 0
        made.append(
            Promise(
                kept=fine,
                text=f"{event}, {system}: {ours['steps_redone']:g} steps redone, at most {limit:g}; "
                f"{ours['samples_lost']} samples lost",
            )
        )
    return made


def _against(
    event: str, ours: Figures, table: Mapping[str, Mapping[str, Figures | None]], rivals: Sequence[str], ratio: float
) -> list[Promise]:
    made = []
    for rival in rivals:
        if event not in table.get(rival, {}):
            continue
        theirs = table[rival][event]
        seconds = ours["median_seconds"]
        if theirs is None:
            made.append(Promise(kept=True, text=f"{event}: {seconds:g} s, {rival} does not go on"))
            continue
        found = theirs["median_seconds"] / seconds
        words = f"{event}: {seconds:g} s, {rival} {theirs['median_seconds']:g} s: {found:.1f} times, wanted {ratio:g}"
        made.append(Promise(kept=found >= ratio, text=words))
    return made


def table_lines(table: Mapping[str, Mapping[str, Figures | None]], events: Sequence[str]) -> list[str]:
    """For people: a row for each system, seconds and steps redone for each event."""
    lines = ["  ".join([f"{'seconds (steps redone)':24}", *(f"{event:>16}" for event in events)])]
    for system, found in table.items():
        cells = []
        for event in events:
            one = found.get(event)
            known = f"{one['median_seconds']:.1f} ({one['steps_redone']:.0f})" if one else ""
            cells.append(f"{known or ('-' if event in found else ''):>16}")
        lines.append("  ".join([f"{system:24}", *cells]))
    return lines
