"""The record of one run of the engine, read from its event log. Pure, but for reading the file."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

# Several operations make a replacement; the run as a whole replaced the resource.
REPLACEMENTS = frozenset(("replace", "create-replacement", "delete-replaced", "discard-replaced", "read-replacement"))
QUIET = frozenset(("same", "read", "refresh", "read-discard"))
PROVIDERS = "pulumi:providers:"
# What the engine adds to errors that have been said.
REPEATED = (
    "update failed",
    "preview failed",
    "an unhandled error occurred: program exited with non-zero exit code",
    "Running program",
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One operation on one resource. `began` and `ended` are places in the event log; `ended` None: it did not end well."""

    op: str
    urn: str
    began: int
    ended: int | None = None
    diff: Mapping[str, str] = field(default_factory=dict)  # path -> add | update | delete, with -replace where it replaces
    replaces: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    old: Mapping[str, Any] | None = None
    new: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        return name_of(self.urn)

    @property
    def type(self) -> str:
        return type_of(self.urn)


@dataclass(frozen=True, kw_only=True)
class Run:
    """`steps` in the order in which they began, `same` ones too. `states`: of a preview, URN -> resource as it would be."""

    verb: str
    steps: tuple[Step, ...]
    diagnostics: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, int]
    seconds: float
    states: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, verb: str, events: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]], *, seconds: float) -> Self:
        """From the event log and, for a preview, the steps of its JSON document."""
        reader = _Reader()
        for place, event in enumerate(events):
            reader.read(place, event)
        known = {one["urn"]: one.get("newState") or {} for one in states}
        return cls(verb=verb, steps=tuple(reader.steps), diagnostics=tuple(reader.diagnostics), summary=reader.summary,
                   seconds=seconds, states=known)  # fmt: skip

    @property
    def changes(self) -> dict[str, str]:
        """URN -> create, update, replace or delete. A refresh reports what it found: update or delete."""
        found: dict[str, str] = {}
        for step in self.steps:
            if step.op in REPLACEMENTS:
                found[step.urn] = "replace"
            elif step.op not in QUIET:
                found.setdefault(step.urn, step.op)
        return found

    @property
    def same(self) -> set[str]:
        """URNs of what was left alone."""
        return {step.urn for step in self.steps if step.op == "same"} - set(self.changes)

    def urns(self, *ops: str) -> set[str]:
        return {urn for urn, op in self.changes.items() if op in ops}

    def named(self, *ops: str) -> set[str]:
        """Names instead of URNs: for tests whose names are unique."""
        return {name_of(urn) for urn in self.urns(*ops)}

    def step(self, name: str) -> Step:
        """The telling step of the resource with that name or URN: not `same` if there is another. Raises KeyError."""
        found = [step for step in self.steps if name in (step.urn, step.name)]
        if not found:
            raise KeyError(f"no step for {name!r}; there are {sorted({step.name for step in self.steps})}")
        return max(found, key=lambda step: (step.op not in QUIET, bool(step.diff)))

    def started(self, *ops: str) -> list[str]:
        """URNs in the order in which the operations began."""
        return [step.urn for step in self.steps if step.op in ops]

    def finished(self, *ops: str) -> list[str]:
        """URNs in the order in which the operations ended."""
        done = [(step.ended, step.urn) for step in self.steps if step.op in ops and step.ended is not None]
        return [urn for _, urn in sorted(done)]

    def error(self) -> str:
        """The error in the words of the program and the plugins; "" if nothing did."""
        said = [(str(one.get("urn", "")), str(one["message"]).strip()) for one in self.diagnostics if one["severity"] == "error"]
        named = [
            f"{name_of(urn)}: {text}" if urn and name_of(urn) not in text and ":Stack::" not in urn else text
            for urn, text in said
        ]
        telling = [text for text in named if not any(text.removeprefix("error: ").startswith(one) for one in REPEATED)]
        first = [
            text for text in telling if "resource monitor shut down" not in text
        ]  # what the program says when a plugin refused
        return "\n".join(dict.fromkeys(first or telling or named))


class _Reader:
    """Puts the beginning and the end of each operation together."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.diagnostics: list[Mapping[str, Any]] = []
        self.summary: Mapping[str, int] = {}

    def read(self, place: int, event: Mapping[str, Any]) -> None:
        if "resourcePreEvent" in event:
            self.steps.append(_step(event["resourcePreEvent"]["metadata"], place))
        elif "resOutputsEvent" in event:
            self._end(event["resOutputsEvent"]["metadata"], place)
        elif "diagnosticEvent" in event:
            self.diagnostics.append(event["diagnosticEvent"])
        elif "summaryEvent" in event:
            self.summary = event["summaryEvent"].get("resourceChanges") or {}

    def _end(self, data: Mapping[str, Any], place: int) -> None:
        for index in reversed(range(len(self.steps))):
            begun = self.steps[index]
            # A refresh begins as "refresh" and ends as what it found.
            if begun.urn == data["urn"] and begun.ended is None and begun.op in (data["op"], "refresh"):
                self.steps[index] = _step(data, begun.began, place)
                return


def _step(data: Mapping[str, Any], began: int, ended: int | None = None) -> Step:
    detailed = data.get("detailedDiff") or {}
    # Whether it is inputs that differ makes the kind "update" or "add": the words for both are the same here.
    return Step(
        op=str(data["op"]), urn=str(data["urn"]), began=began, ended=ended,
        diff={path: str(one["diffKind"]) for path, one in detailed.items()},
        replaces=tuple(data.get("keys") or ()),
        inputs=(data.get("new") or data.get("old") or {}).get("inputs") or {},
        old=data.get("old"), new=data.get("new"),
    )  # fmt: skip


def name_of(urn: str) -> str:
    return urn.split("::", 3)[-1]


def type_of(urn: str) -> str:
    """The type token, without those of its parents."""
    return urn.split("::", 3)[-2].rpartition("$")[2] if urn.count("::") >= 3 else ""


def parent_types(urn: str) -> list[str]:
    """Type tokens from the outermost parent to the resource's own."""
    return urn.split("::", 3)[-2].split("$")


class EventLog:
    """The engine's event log while it is being written: each `new()` gives the events that came since the last."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def new(self) -> Iterator[Mapping[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._offset += len(whole) + len(newline)
        for line in whole.splitlines():
            yield json.loads(line)
