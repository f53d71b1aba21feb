"""The log of each job, in order: shown where its end was not the predicted one, so that one run is enough to find out why.

log = EventLog(); jobs.listeners.append(log.job); pods.listeners.append(log.pod); nodes.listeners.append(log.node)
log.note("", "the controller is killed"); print(log.of("steady-024")); print(log.of("machine spot-week-a-1"))
"""

import time
from collections import defaultdict
from typing import Any

from benchmarks.week.seen import worker

Object = dict[str, Any]

COST = ("usdSpent", "usdPerHour", "at")
SHORT = ("state", "ready", "replicas", "restarts", "failures", "reclaims", "target", "recorded")
MOST_LINES = 400  # the newest


class EventLog:
    """Listeners of the watches."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lines: list[tuple[str, str]] = []  # (job, machine or "", line)
        self._said: dict[str, str] = {}  # UID -> the last line about it
        self._machines: defaultdict[str, set[str]] = defaultdict(set)  # of each job, those that it ever had

    def note(self, about: str, text: str) -> None:
        """`about`: the name of a job or a machine, "" for all."""
        clock = time.strftime("%H:%M:%S", time.gmtime()) + f".{int(time.time() * 10 % 10)}"
        self._lines.append((about, f"{time.monotonic() - self._began:7.1f} {clock}  {text}"))

    def of(self, about: str) -> str:
        """All about one job and the machines that it ever had, or about one machine; and what is about all."""
        wanted = {"", about, *self._machines.get(about, ())}
        return "\n".join([line for about, line in self._lines if about in wanted][-MOST_LINES:])

    def pod(self, old: Object | None, new: Object | None) -> None:
        """A listener of pods."""
        one = worker(new or old or {})
        if one is None:
            return
        self._machines[one.job].add(f"machine {one.node}")
        state = "gone" if new is None else "running" if one.running else (new.get("status") or {}).get("phase", "Pending")
        parts = [state, f"on {one.node}" if one.node else f"for {one.zone or 'any zone'}", f"attempt {one.attempt}"]
        if new is not None and one.leaving:
            parts.append(f"leaving within {new['metadata'].get('deletionGracePeriodSeconds')} s")
        if one.disrupted:
            parts.append("disrupted")
        self._changed(one.job, one.uid, f"pod {one.index} ({one.uid[:4]}) {', '.join(parts)}")

    def job(self, old: Object | None, new: Object | None) -> None:
        """A listener of jobs."""
        value = new or old
        assert value is not None
        status = value.get("status") or {}
        cost, placement, hold = status.get("cost") or {}, status.get("placement") or {}, status.get("hold") or {}
        parts = [f"{key} {status[key]}" for key in SHORT if key in status]
        parts += [" ".join(map(str, placement.values()))] if placement else []
        parts += [f"held {hold.get('reason')}"] if hold else []
        parts += [f"cost {' '.join(str(cost[key]) for key in COST if key in cost)}"] if cost else []
        parts += [f"{one['type']} {one.get('reason')}" for one in status.get("conditions") or () if one["status"] == "True"]
        what = "job is gone" if new is None else "job"
        self._changed(value["metadata"]["name"], value["metadata"]["uid"], f"{what}: {', '.join(parts)}")

    def node(self, old: Object | None, new: Object | None) -> None:
        """A listener of machines."""
        value = new or old
        assert value is not None
        conditions = {one["type"]: one["status"] for one in (value.get("status") or {}).get("conditions") or ()}
        taints = [one["key"] for one in (value.get("spec") or {}).get("taints") or ()]
        words = "is gone" if new is None else f"ready {conditions.get('Ready')} taints {' '.join(taints)}"
        name = f"machine {value['metadata']['name']}"
        self._changed(name, value["metadata"]["uid"], f"{name} {words}")

    def lease(self, old: Object | None, new: Object | None) -> None:
        """A listener of the controllers' Leases."""
        value = new or old
        assert value is not None
        metadata, spec = value["metadata"], value["spec"]
        words = f"held by {spec.get('holderIdentity') or 'nobody'} since {spec.get('acquireTime')}" if new else "gone"
        self._changed("", metadata["uid"], f"Lease {metadata['name']} is {words}")

    def doomed(self, machine: str, how: str) -> None:
        """A machine goes from now on."""
        self.note(f"machine {machine}", f"machine {machine} goes: {how}")

    def _changed(self, about: str, uid: str, text: str) -> None:
        if self._said.get(uid) != text:
            self._said[uid] = text
            self.note(about, text)
