"""The machine books as text: ConfigMap `ebb-system/ebb-machines`, which the controller writes and `ebb cost` reads. Pure.

    data = write(books)             # of the ConfigMap
    books = read(data)              # raises BooksError

One compact JSON document; keys are only added within one schema, and unknown ones are ignored. A ConfigMap may hold 1 MiB: what
grows with the number of jobs is cut, oldest day first.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from workloads.clock import stamp, unix
from workloads.plan.days import Books, Gap, Line, Standing, Use, Who

NAMESPACE, NAME = "ebb-system", "ebb-machines"
WHERE = f"ConfigMap {NAMESPACE}/{NAME}"
SCHEMA, KEY = "1", "machines.json"
MOST_CHARACTERS = 150_000  # of what each job used: about a thousand jobs, however many days those are
ASSUMED = "Prices are assumed: those of ebb-platform, spot as on-demand less the group's discount."
USE_CHARACTERS, WHO_CHARACTERS = 80, 70  # about, for what one job used on a day, and for its name
Figures = dict[str, dict[str, float]]
T = TypeVar("T", Line, Use)


class BooksError(ValueError):
    """The ConfigMap is not one that this version understands; the message names the key and the fix."""


def write(books: Books) -> dict[str, str]:
    """The ConfigMap's data."""
    jobs = _recent(books.jobs)
    named = {job for uses in jobs.values() for job in uses} | {job for one in books.open.values() for job, _ in one.held}
    told = {
        "note": ASSUMED,
        "begun": stamp(books.begun, digits=3),
        "until": stamp(books.until, digits=3),
        "days": _lines(books.days),
        "months": _lines(books.months),
        "jobs": jobs,
        "who": {job: asdict(who) for job, who in sorted(books.who.items()) if job in named},
        "open": {name: {**asdict(one), "held": dict(one.held)} for name, one in books.open.items()},
        "gaps": [{**asdict(gap), "begun": stamp(gap.begun, digits=3), "ended": stamp(gap.ended, digits=3)} for gap in books.gaps],
    }
    return {"schema": SCHEMA, KEY: _text(told)}


def read(data: Mapping[str, str]) -> Books:
    """Raises BooksError."""
    if data.get("schema") != SCHEMA:
        raise BooksError(
            f"{WHERE}: schema is {data.get('schema')!r}, this version of Ebb reads {SCHEMA!r}: bring `ebb` and the stack to one "
            "version, then run `pulumi up`."
        )
    try:
        root = json.loads(data[KEY])
        return Books(
            begun=_time(root["begun"]),
            until=_time(root["until"]),
            days=_read(root["days"], Line),
            months=_read(root["months"], Line),
            jobs=_read(root["jobs"], Use),
            who={
                job: Who(namespace=one["namespace"], job=one["job"], user=one.get("user", ""))
                for job, one in root.get("who", {}).items()
            },
            open={name: _standing(value) for name, value in root["open"].items()},
            gaps=tuple(
                Gap(begun=_time(gap["begun"]), ended=_time(gap["ended"]), vanished=gap["vanished"], came=gap["came"])
                for gap in root["gaps"]
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BooksError(
            f"{WHERE}: {KEY} is not what the controller writes ({type(error).__name__}: {error}): delete the ConfigMap, and the "
            "controller begins new books."
        ) from error


def _lines(days: Mapping[str, Mapping[str, Line | Use]]) -> dict[str, Figures]:
    return {day: _day(lines) for day, lines in sorted(days.items())}


def _day(lines: Mapping[str, Line | Use]) -> Figures:
    return {name: _figures(line) for name, line in sorted(lines.items())}


def _figures(line: Line | Use) -> dict[str, float]:
    """What is not nothing; seconds to the millisecond. (asdict() would take ten times as long, and the controller waits.)"""
    rounded = ((item.name, round(getattr(line, item.name), 3 if item.name.endswith("seconds") else 8)) for item in fields(line))
    return {name: value for name, value in rounded if value}


def _recent(jobs: Mapping[str, Mapping[str, Use]]) -> dict[str, Figures]:
    """As many days as there is room for, the newest."""
    kept: dict[str, Figures] = {}
    room = MOST_CHARACTERS
    for day in sorted(jobs, reverse=True):
        room -= (USE_CHARACTERS + WHO_CHARACTERS) * len(jobs[day])
        if room < 0:
            break
        kept[day] = _day(jobs[day])
    return kept


def _read(days: Mapping[str, Any], kind: type[T]) -> dict[str, dict[str, T]]:
    known = {item.name for item in fields(kind)}
    return {
        day: {name: kind(**{key: float(value) for key, value in line.items() if key in known}) for name, line in lines.items()}
        for day, lines in days.items()
    }


def _standing(value: Mapping[str, Any]) -> Standing:
    return Standing(
        group=value["group"],
        phase=value["phase"],
        usd=float(value["usd"]),
        on_demand=float(value["on_demand"]),
        gpus=int(value["gpus"]),
        held=tuple(sorted((job, float(share)) for job, share in value["held"].items())),
    )


def _time(text: str) -> float:
    found = unix(text)
    if found is None:
        raise ValueError("a time is missing")
    return found


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
