"""The end that every job must come to: plain rules over what is done to it, written a second time, apart from the controller's.

    end = predict(scenario, patient=True)          # before anything runs
    wrong = differences(scenario, end, job)        # after: how the job differs from that, in sentences

Nothing of the controller's planner is used here. Machines are not in these rules at all: that is the claim which is tested.
`patient` is whether the run is long enough for containers that cannot start to be given up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.week import actions
from benchmarks.week.scenarios import Scenario

Object = Mapping[str, Any]

SUCCEEDED, FAILED, SUSPENDED, HELD = "Succeeded", "Failed", "Suspended", "Held"
WAITING, DELETED, UNTOUCHED, RUNNING = "Waiting", "Deleted", "Untouched", "Running"
AT_REST = (SUCCEEDED, FAILED, SUSPENDED, HELD)  # no worker runs, and none will before somebody asks for it
TRIED_AGAIN = (130, 137, 138, 143)  # restartPolicy ExitCode: the codes of SIGINT, SIGKILL, SIGUSR1 and SIGTERM
LEFT = 138  # a launcher's code for "my machine goes away": no failure


@dataclass(frozen=True, kw_only=True)
class End:
    """The state of a job when all has been done to it. `failures`: moments at which its program failed. `gone`: the object is
    deleted, by somebody or because its time after the end was over."""

    state: str
    reason: str = ""
    failures: int = 0
    gone: bool = False

    @property
    def final(self) -> bool:
        """Nothing can happen to the job any more."""
        return self.state in (SUCCEEDED, FAILED, DELETED)


def predict(scenario: Scenario, *, patient: bool) -> End:
    """The end of a life, from its actions alone."""
    end = End(state=RUNNING)
    if "managedBy" in scenario.spec:
        return End(state=UNTOUCHED)
    if scenario.kind == "misfit":
        return End(state=WAITING, reason="NoZoneFits")
    for act in scenario.actions:
        end = after(scenario, end, act, patient=patient)
    return replace(end, gone=end.state == DELETED or (scenario.ttl is not None and end.state in (SUCCEEDED, FAILED)))


LEADS_TO: Mapping[type[actions.Action], tuple[str, str]] = {
    actions.Finish: (SUCCEEDED, "ElasticJobSucceeded"),
    actions.Suspend: (SUSPENDED, "ElasticJobSuspended"),
    actions.Resume: (RUNNING, ""),
    actions.Allow: (RUNNING, ""),
    actions.Delete: (DELETED, ""),
    actions.Overrun: (FAILED, "DeadlineExceeded"),
    actions.Spend: (HELD, "BudgetSpent"),
    actions.Outlive: (HELD, "DeadlinePassed"),
    actions.Hang: (HELD, "NoProgress"),
    actions.Stick: (HELD, "CannotStart"),
}
"""State and reason after an act; of those that are missing here, what it was before."""


def after(scenario: Scenario, end: End, act: actions.Action, *, patient: bool) -> End:
    """The state after one more act."""
    if end.final:
        return end
    if isinstance(act, actions.Fail):
        return _failed(scenario, end, act.code)
    if isinstance(act, actions.Stick) and not patient:
        return replace(end, state=WAITING)
    state, reason = LEADS_TO.get(type(act), (end.state, end.reason))
    return replace(end, state=state, reason=reason)


def _failed(scenario: Scenario, end: End, code: int) -> End:
    if code == LEFT:
        return end
    end = replace(end, failures=end.failures + 1)
    if (
        scenario.policy == "Never"
        or (scenario.policy == "ExitCode" and code not in TRIED_AGAIN)
        or end.failures > scenario.backoff_limit
    ):
        return replace(end, state=FAILED, reason="ElasticJobFailed")
    return end


def differences(scenario: Scenario, end: End, job: Object | None, *, deleted: bool, doubtful: int = 0) -> list[str]:
    """The differences between the job as last seen and the prediction. `deleted`: the object is gone; `doubtful`: failures of
    which nobody can say whether the machine went first."""
    if job is None:
        return [f"{scenario.name}: predicted {end.state}, and was never seen"]
    status = job.get("status") or {}
    wrong = []
    if deleted != end.gone:
        wrong.append(f"{scenario.name}: the object {'is gone' if deleted else 'is still there'}, predicted {_words(end)}")
    found = observed(job)
    if end.state != DELETED and (found.state, found.reason) != (end.state, end.reason or found.reason):
        wrong.append(f"{scenario.name}: predicted {_words(end)}, found {_words(found)}: {describe(job)}")
    if end.state == DELETED and found.state in (SUCCEEDED, FAILED):
        wrong.append(f"{scenario.name}: deleted while it had work to do, and found {_words(found)}: {describe(job)}")
    if not end.failures <= status.get("failures", 0) <= end.failures + doubtful:
        wrong.append(
            f"{scenario.name}: its program failed at {end.failures} moments, status.failures is {status.get('failures', 0)}"
        )
    return wrong


def observed(job: Object) -> End:
    """A job's own words for where it is."""
    status = job.get("status") or {}
    if not status:
        return End(state=UNTOUCHED)
    state, failures = status.get("state", ""), status.get("failures", 0)
    hold = status.get("hold") or {}
    if state == SUSPENDED and hold and not (job.get("spec") or {}).get("suspend"):
        return End(state=HELD, reason=hold["reason"], failures=failures)
    kind = state if state in (SUCCEEDED, FAILED, SUSPENDED) else RUNNING
    return End(state=state, reason=condition(job, kind).get("reason", ""), failures=failures)


def condition(job: Object, kind: str) -> Object:
    """The condition of that type; {} if it was never set."""
    found = (job.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one["type"] == kind), {})


def describe(job: Object) -> str:
    """One line with what the job says about itself."""
    status = job.get("status") or {}
    kind = status.get("state") if status.get("state") in (SUCCEEDED, FAILED, SUSPENDED) else RUNNING
    return f"{status.get('state')} {status.get('ready', '')} ({condition(job, str(kind)).get('message', 'no word')})"


def _words(end: End) -> str:
    return " ".join(part for part in (end.state, f"({end.reason})" if end.reason else "") if part)
