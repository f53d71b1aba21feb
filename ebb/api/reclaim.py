"""The marks of a reclaim on a Node: a condition, whose message has the deadline, and a taint that keeps new pods off. Pure.

    mark = notice("SpotReclaim", "the cloud takes it back", until)      # or NOTHING, or calm("AtRisk", "It may be taken back.")
    await kube.patch(NODES, None, name, patch_taints(node, add=[TAINT]))
    await kube.patch(NODES, None, name, patch_condition(mark, now), subresource="status", kind=STRATEGIC)

Two write them: the agent of a spot machine (ebb/notices), and on a devcluster its cloud. The controller reads them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebb.api import contract as names
from ebb.api.clock import stamp

TAINT: Mapping[str, str] = {"key": names.TAINT_RECLAIM, "value": "notice", "effect": "NoSchedule"}


@dataclass(frozen=True, kw_only=True)
class Mark:
    """The condition to be. `noticed`: the machine goes, and has the taint too."""

    noticed: bool
    reason: str  # one word, in CamelCase
    message: str


def notice(reason: str, text: str, until: float | None) -> Mark:
    """The mark of a machine that goes at `until` (unix seconds), or, with None, nobody says when.

    Readers take the first time in the message for the deadline: `text` must have none in RFC 3339 where `until` is None.
    """
    message = f"{text}." if until is None else f"This machine goes at {stamp(until)}: {text}."
    return Mark(noticed=True, reason=reason, message=message)


def calm(reason: str, message: str) -> Mark:
    """The mark of a machine that stays, for now."""
    return Mark(noticed=False, reason=reason, message=message)


NOTHING = calm("NoNotice", "Nothing is announced.")


def patch_taints(
    node: Mapping[str, Any], *, add: Sequence[Mapping[str, str]] = (), remove: Collection[str] = (names.TAINT_RECLAIM,)
) -> dict[str, Any]:
    """The merge patch of a Node, as the API server has it, that takes the taints with these keys off and puts others on.

    It has the resource version, so that a taint that somebody adds at the same moment is not lost: lists are replaced as a whole.
    The API server answers 409 where the Node has changed since: read it again.
    """
    kept = [taint for taint in node["spec"].get("taints") or [] if taint["key"] not in remove]
    return {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": [*kept, *add]}}


def patch_condition(mark: Mark, now: float) -> dict[str, Any]:
    """The strategic merge patch of a Node's status; other conditions stay."""
    said = {
        "type": names.CONDITION_RECLAIM,
        "status": "True" if mark.noticed else "False",
        "reason": mark.reason,
        "message": mark.message,
        "lastHeartbeatTime": stamp(now),
        "lastTransitionTime": stamp(now),
    }
    return {"status": {"conditions": [said]}}


def is_marked(node: Mapping[str, Any], mark: Mark) -> bool:
    """True if the Node's condition says that already. A Node without one says NOTHING."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    found = next((one for one in conditions if one["type"] == names.CONDITION_RECLAIM), None)
    if found is None:
        return mark == NOTHING
    return mark == Mark(noticed=found["status"] == "True", reason=found.get("reason", ""), message=found.get("message", ""))


def is_tainted(node: Mapping[str, Any]) -> bool:
    """True if the Node has the taint of a reclaim."""
    return any(taint["key"] == names.TAINT_RECLAIM for taint in node["spec"].get("taints") or ())
