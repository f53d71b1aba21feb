"""From the changes that were timed to the last line: figures, the promises they keep and the goals they meet. Pure.

    table = figures(found);  table["ours"]["notice"]["1600"]["p95_seconds"]
    promises(table);  goals(table)          # a broken promise fails the run; a goal of time depends on the machine, and does not

A figure is None where the system did not survive the change before the cap, in any round.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.controller.figures import percentile
from benchmarks.recovery.play import EVENTS
from benchmarks.recovery.timeline import Change

Figures = dict[str, Any]
Found = Mapping[str, Mapping[str, Mapping[str, Sequence[Change | str]]]]  # system -> event -> MB of state -> one for each round
Table = Mapping[str, Mapping[str, Mapping[str, Figures | None]]]
DEFAULTS, BEST = ("etcd", "c10d", "etcd_v2"), ("etcd_best", "c10d_best", "etcd_v2_best")
WANTED_RATIO = 5.0
# The trainer's --checkpoint-seconds by default, in steps of STEP_SECONDS; in memory at most the step under way is done again.
STEPS_AT_RISK = {"ours": 1, "restart": 3000}
WITH_NOTICE = ("notice", "join", "join_two")
# Of sockets' names and processes' numbers in /proc, at each change: a checkpoint of the smallest state here is five times that.
MOST_BYTES_READ = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Promise:
    kept: bool
    text: str


def figure(changes: Sequence[Change | str]) -> Figures | None:
    """Of one system, one event and one size of state."""
    survived = [change for change in changes if isinstance(change, Change)]
    if not survived or len(survived) < len(changes):
        return None
    seconds = [change.seconds for change in survived]
    beside = [max(0.0, change.seconds - change.transfer_seconds) for change in survived]
    return {
        "median_seconds": round(statistics.median(seconds), 2),
        "p95_seconds": round(percentile(seconds, 95), 2),
        "p95_beside_transfer_seconds": round(percentile(beside, 95), 2),
        "transfer_seconds": round(statistics.median(change.transfer_seconds for change in survived), 2),
        "gap_seconds": round(statistics.median(change.gap_seconds for change in survived), 2),
        "full_seconds": round(statistics.median(change.full_seconds for change in survived), 2),
        "step_seconds": round(statistics.median(change.step_seconds for change in survived), 2),
        "steps_redone": max(change.steps_redone for change in survived),
        "samples_lost": max(change.samples_lost for change in survived),
        "bytes_read": max(change.bytes_read for change in survived),
        "pids_kept": all(change.pids_kept for change in survived),
        "load": round(statistics.median(change.load for change in survived), 1),
        "events": len(survived),
    }


def figures(found: Found) -> dict[str, dict[str, dict[str, Figures | None]]]:
    return {
        system: {event: {state: figure(changes) for state, changes in states.items()} for event, states in events.items()}
        for system, events in found.items()
    }


def reasons(found: Found) -> dict[str, str]:
    """Why there is no figure: "system event state" -> in words."""
    told = {}
    for system, event, state, changes in _all(found):
        failed = [change for change in changes if isinstance(change, str)]
        if failed:
            told[f"{system} {event} {state}"] = f"{len(failed)} of {len(changes)}: {failed[0]}"
    return told


def promises(table: Table) -> list[Promise]:
    """Those that hold on any machine, however slow."""
    made = []
    for system, event, state, found in _all(table):
        if system not in STEPS_AT_RISK:
            continue
        name = f"{event}, {state} MB, {system}"
        if found is None:
            made.append(Promise(kept=False, text=f"{name}: it did not go on"))
            continue
        limit = 0 if event in WITH_NOTICE else STEPS_AT_RISK[system]
        redone, lost = found["steps_redone"], found["samples_lost"]
        words = f"{name}: {redone:g} steps redone, at most {limit}; {lost} samples lost"
        made.append(Promise(kept=redone <= limit and lost == 0, text=words))
        if system == "ours":
            kept = found["pids_kept"] and found["bytes_read"] <= MOST_BYTES_READ
            pids = "the same" if found["pids_kept"] else "other"
            made.append(Promise(kept=kept, text=f"{name}: {pids} processes at the others, {found['bytes_read']:,} bytes read"))
    return made


def goals(table: Table) -> list[Promise]:
    """Times: ours against their limits, and against each rival that was measured; one that did not survive is beaten."""
    made = []
    for system, event, state, ours in _all(table):
        if system != "ours" or ours is None:
            continue
        seconds, limit = ours["p95_beside_transfer_seconds"], EVENTS[event].goal_seconds
        words = f"{event}, {state} MB: {seconds:g} s beside the transfer, of which p95 is to be at most {limit:g}"
        made.append(Promise(kept=seconds <= limit, text=words))
        for rival in (*DEFAULTS, *BEST):
            if state in table.get(rival, {}).get(event, {}):
                made.append(_against(rival, f"{event}, {state} MB", ours, table[rival][event][state]))
    return made


def _against(rival: str, name: str, ours: Figures, theirs: Figures | None) -> Promise:
    seconds, ratio = ours["median_seconds"], 1.0 if rival in BEST else WANTED_RATIO
    if theirs is None:
        return Promise(kept=True, text=f"{name}: {seconds:g} s, {rival} does not go on")
    found = theirs["median_seconds"] / max(seconds, 0.01)  # as exact as it is told
    words = f"{name}: {seconds:g} s, {rival} {theirs['median_seconds']:g} s: {found:.1f} times, wanted {ratio:g}"
    return Promise(kept=found >= ratio, text=words)


def _all(table: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[tuple[str, str, str, Any]]:
    return [
        (system, event, state, found)
        for system, events in table.items()
        for event, states in events.items()
        for state, found in states.items()
    ]


def table_lines(table: Table) -> list[str]:
    """For people: a row for each system and size of state; seconds, and steps redone, for each event."""
    found = {(system, state): {} for system, _, state, _ in _all(table)}  # type: dict[tuple[str, str], dict[str, Figures | None]]
    for system, event, state, one in _all(table):
        found[system, state][event] = one
    events = [event for event in EVENTS if any(event in cells for cells in found.values())]
    lines = ["  ".join([f"{'median seconds (steps redone)':30}", *(f"{event:>18}" for event in events)])]
    for (system, state), cells in found.items():
        words = []
        for event in events:
            one = cells.get(event)
            known = f"{one['median_seconds']:.2f} ({one['steps_redone']:.0f})" if one else ""
            words.append(f"{known or ('-' if event in cells else ''):>18}")
        lines.append("  ".join([f"{system + ', ' + state + ' MB':30}", *words]))
    return lines
