"""One job, look after look, for tests of what the planner remembers."""

from typing import Any

from ebb.api.status import Progress
from ebb.controller.reconciler.types import Plan
from tests.builders import NOW
from tests.looks import again, look

Object = dict[str, Any]


class Story:
    """The same job, look after look. `at` is seconds from the start."""

    def __init__(self, job: Object) -> None:
        self.job = job

    def look(self, at: float, *pods: Object, progress: Progress | None = None) -> Plan:
        decided = look(self.job, *pods, now=NOW + at, progress=progress)
        self.job = again(self.job, decided)
        return decided


def stalled(decided: Plan) -> tuple[str, str] | None:
    condition = decided.status.condition("Stalled")
    return (condition.status, condition.reason) if condition else None
