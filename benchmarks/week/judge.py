"""Rules that must hold at every moment, whatever happens: checked with every event of the watches, and every second.

    judge = Judge(sight, ledger, acts_since=...); pods.listeners.append(judge.pod); jobs.listeners.append(judge.job); judge.look()

Pods and jobs come on two watches, so what joins them counts only when it lasts. Each violation is said once.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from benchmarks.week.cloud import SILENT, Sight
from benchmarks.week.ledger import Ledger
from benchmarks.week.model import FAILED, SUCCEEDED, SUSPENDED
from benchmarks.week.seen import Worker, worker

Object = dict[str, Any]

LATE_SECONDS = 5.0  # between two watches of a busy API server, and a controller in the middle of a round
RELEASE_SECONDS = 100.0  # until an ended job holds no pod: a silent machine's kubelet never says that one is gone
PROGRESS_SECONDS = 29.0  # figures alone are written at most every 30 s, in whole seconds
# Until the controller knows that a machine is silent: 23 s after its last word, and again if its watch broke meanwhile; 4 s for
# its round and ours. Kubernetes itself knows after 50 s.
KNOWN_SECONDS = 50.0
SENT_MOST = 3  # one worker to one silent machine: a controller that has just begun to act knows of no silence
FIGURES = ("progress", "lastReconcileTime")
SUMS = ("usdSpent", "usdOnDemand", "machineSeconds", "at")
"""Parts of a status, and of its cost, that change all the time. What the machines cost per hour does not."""


class Judge:
    """See the module's docstring. `acts_since()`: since when (monotonic) the controller that acts now has."""

    def __init__(self, sight: Sight, ledger: Ledger, *, acts_since: Callable[[], float]) -> None:
        self._sight, self._ledger, self._acts_since = sight, ledger, acts_since
        self.violations: list[str] = []
        self.last: dict[str, Object] = {}  # every job that ever was, as last seen
        self._since: dict[tuple[str, str], float] = {}
        self._idle_since: dict[str, float] = {}  # job -> since when it is ended or suspended
        self._figures_at: dict[str, float] = {}
        self._made: dict[str, tuple[float, float]] = {}  # pod -> when it was made, and since when who made it had acted
        self._sent: Counter[tuple[str, int, str]] = Counter()  # (job, index, silent machine) -> pods

    def violation(self, text: str) -> None:
        """Note it, once."""
        if text not in self.violations:
            self.violations.append(text)
            print(f"VIOLATION {text}", flush=True)

    def pod(self, old: Object | None, new: Object | None) -> None:
        """A listener of pods."""
        one = worker(new) if new else None
        if one is None:
            return
        job = self.last.get(one.job_uid)
        there = self._sight.crowd.of(one.job_uid)
        most = job["spec"]["maxReplicas"] if job else len(there)
        if len(there) > most:
            self.violation(f"{one.job}: {len(there)} pods at once, maxReplicas is {most}")
        zones = {other.zone for other in there if other.zone}
        if len(zones) > 1:
            self.violation(f"{one.job}: pods in {' and '.join(sorted(zones))} at once")
        if old is None:
            self._made[one.uid] = time.monotonic(), self._acts_since()
        self._count_sent(worker(old) if old else None, one)
        idle = self._idle_since.get(one.job_uid)
        if old is None and job and idle and time.monotonic() - idle > LATE_SECONDS:
            self.violation(f"{one.job}: pod {one.name} was created for a job that is {job['status']['state']}")

    @property
    def sent_to_silent(self) -> int:
        """Workers that were placed on machines after these fell silent."""
        return self._sent.total()

    def _count_sent(self, before: Worker | None, one: Worker) -> None:
        """Kubernetes itself takes most of a minute to keep pods off a silent machine. Those that were made before the controller
        could know may be placed there, also when it deletes others from it. Those that it makes later must not."""
        if (before and before.node) or self._ledger.machines.get(one.node) != SILENT:
            return
        sent = one.job_uid, one.index, one.node
        self._sent[sent] += 1
        if self._sent[sent] > SENT_MOST:
            self.violation(
                f"{one.job}: worker {one.index} was sent to {one.node} more than {SENT_MOST} times after it fell silent"
            )
        made, acts_since = self._made[one.uid]
        late = made - max(self._ledger.since[one.node], acts_since)
        if late > KNOWN_SECONDS:
            self.violation(f"{one.job}: pod {one.name} was made {late:.0f} s after {one.node} fell silent, and was sent there")

    def job(self, old: Object | None, new: Object | None) -> None:
        """A listener of jobs."""
        value = new or old
        assert value is not None
        uid = value["metadata"]["uid"]
        self.last[uid] = value
        if new is None:
            return
        status, name = new.get("status") or {}, new["metadata"]["name"]
        before = ((old or {}).get("status") or {}).get("state")
        if before in (SUCCEEDED, FAILED) and status.get("state") != before:
            self.violation(f"{name}: came back from {before} to {status.get('state')}")
        account = self._ledger.accounts[uid]
        if status.get("failures", 0) > account.failures + account.doubtful:
            self.violation(f"{name}: {status['failures']} failures counted, its program failed {account.failures} times")
        idle = status.get("state") in (SUCCEEDED, FAILED, SUSPENDED) and (new["spec"].get("suspend") or not _resumed(new))
        if idle:
            self._idle_since.setdefault(uid, time.monotonic())
        else:
            self._idle_since.pop(uid, None)
        self._count_figures(uid, name, (old or {}).get("status") or {}, status)

    def _count_figures(self, uid: str, name: str, old: Object, new: Object) -> None:
        """A write that says nothing but how far the training is."""
        if not old or old == new or _without_figures(old) != _without_figures(new):
            return
        now, before = time.monotonic(), self._figures_at.get(uid)
        if before is not None and now - before < PROGRESS_SECONDS and old.get("progress"):
            self.violation(f"{name}: figures alone were written twice within {now - before:.1f} s")
        self._figures_at[uid] = now

    def look(self) -> None:
        """Once a second: what lasts too long."""
        holding: Counter[str] = Counter()
        limits: dict[str, int] = {}
        unfinished: defaultdict[str, list[Worker]] = defaultdict(list)
        for one in self._sight.crowd.workers.values():
            if not one.finished:
                unfinished[one.job_uid].append(one)
        for uid, workers in unfinished.items():
            job = self.last.get(uid)
            if job is None:
                continue
            name, deleted = job["metadata"]["name"], uid not in self._sight.jobs.objects
            idle = deleted or uid in self._idle_since
            self._lasting(idle, uid, "holds", RELEASE_SECONDS, f"{name}: is {'gone' if deleted else 'at rest'} and holds pods")
            group = job["spec"].get("group")
            if group and not idle and any(not one.leaving for one in workers):
                holding[group["name"]] += 1
                limits[group["name"]] = group["maxParallel"]
        for group_name, number in holding.items():
            most = limits[group_name]
            self._lasting(
                number > most, group_name, "group", LATE_SECONDS, f"group {group_name}: more than {most} jobs run at once"
            )
        self._forget({*unfinished, *holding})

    def _lasting(self, holds: bool, who: str, what: str, seconds: float, text: str) -> None:
        if not holds:
            self._since.pop((who, what), None)
        elif time.monotonic() - self._since.setdefault((who, what), time.monotonic()) > seconds:
            self.violation(text)

    def _forget(self, present: set[str]) -> None:
        self._since = {key: since for key, since in self._since.items() if key[0] in present}


def _resumed(job: Object) -> bool:
    """True if a job that is still called suspended is on its way back: its spec changed after it was held."""
    status = job.get("status") or {}
    if status.get("state") in (SUCCEEDED, FAILED):
        return False
    hold = status.get("hold")
    return not (hold and hold["generation"] == job["metadata"]["generation"])


def _without_figures(status: Object) -> Object:
    rates = {key: value for key, value in (status.get("cost") or {}).items() if key not in SUMS}
    return {key: value for key, value in status.items() if key not in FIGURES} | {"cost": rates}
