"""Events and reports of cluster-autoscaler, read into the planner's words: about pods and about node groups. Pure.

    words = Words(); uid = words.hear(event)              # event: NotTriggerScaleUp, TriggeredScaleUp or Karpenter's about a pod
    states = by_group(read_report(config_map["data"]["status"]), {"spot-t4-local-a"})

The report is that of cluster-autoscaler 1.30 and later (clusterstate/api/types.go), and of the devcluster. It calls groups by
the cloud's own names, in which ours is a part: `eks-<name>-<uuid>` on EKS, the end of a URL on GCE.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import yaml

from ebb.api.clock import unix
from ebb.controller.reconciler.capacity import GroupState, Word

Object = Mapping[str, Any]

REFUSED, TRIGGERED = "NotTriggerScaleUp", "TriggeredScaleUp"
NOMINATED = "Nominated"  # Karpenter's word for the latter; of the former it says FailedScheduling, as the scheduler does
REPORT = "cluster-autoscaler-status"  # the ConfigMap's name is built into the autoscaler
NAMESPACES = ("kube-system", "ebb-system")  # of clouds that bring an autoscaler, and of those that do not
BACKOFF = "Backoff"
MOST_WORDS = 10_000  # before it is known which pods are ours
# libyaml where PyYAML has it: 20 times as fast, and the autoscaler writes a report every 10 s.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
log = logging.getLogger(__name__)


class Words:
    """The newest word about each pod, by UID."""

    def __init__(self) -> None:
        self.latest: dict[str, Word] = {}

    def hear(self, event: Object) -> str | None:
        """The UID of the pod, if this is news about it."""
        uid = (event.get("involvedObject") or {}).get("uid")
        if not uid:
            return None
        word, old = _word(event), self.latest.get(uid)
        if old is not None and (word.at < old.at or word == old):
            return None
        self.latest[uid] = word
        if len(self.latest) > MOST_WORDS:
            del self.latest[next(iter(self.latest))]
        return str(uid)

    def forget(self, uid: str) -> None:
        """The pod is gone, or never was ours."""
        self.latest.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all others."""
        self.latest = {uid: word for uid, word in self.latest.items() if uid in uids}


def _word(event: Object) -> Word:
    triggered = event.get("reason") in (TRIGGERED, NOMINATED)
    return Word(triggered=triggered, message=event.get("message") or "", at=happened_at(event))


def happened_at(event: Object) -> float:
    """The time at which it happened last, as unix seconds; 0: it does not say."""
    series = event.get("series") or {}
    times = (event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime"), event.get("firstTimestamp"))
    return max((unix(time) or 0.0 for time in times if time), default=0.0)


def read_report(text: str) -> dict[str, GroupState]:
    """State by the cloud's name of the group. What cannot be understood is left out: a report is a help, not a condition."""
    try:
        report = yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe one
    except yaml.YAMLError as error:
        log.warning("ConfigMap %s is not YAML: %s", REPORT, str(error).partition("\n")[0])
        return {}
    groups = report.get("nodeGroups") if isinstance(report, dict) else None
    found = [item for item in groups or () if isinstance(item, dict)] if isinstance(groups, list) else []
    return {str(item.get("name", "")): _state(item) for item in found}


def _state(item: Object) -> GroupState:
    scale_up = item.get("scaleUp")
    if not isinstance(scale_up, dict) or scale_up.get("status") != BACKOFF:
        return GroupState()
    info = scale_up.get("backoffInfo")
    words = info if isinstance(info, dict) else {}
    return GroupState(backing_off=True, message=str(words.get("errorMessage") or words.get("errorCode") or ""))


def by_group(report: Mapping[str, GroupState], names: Iterable[str]) -> dict[str, GroupState]:
    """State by our name of the group. The longest of our names that fits is meant: `spot-t4-a-large` is not `spot-t4-a`."""
    longest_first = sorted(names, key=len, reverse=True)
    found: dict[str, GroupState] = {}
    for cloud_name, state in report.items():
        words = f"-{cloud_name.rstrip('/').rpartition('/')[2]}-"
        name = next((name for name in longest_first if f"-{name}-" in words), None)
        if name is not None and not (name in found and found[name].backing_off):
            found[name] = state
    return found
