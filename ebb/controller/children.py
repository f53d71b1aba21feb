"""Which pods and Services belong to which job, and which pods are on which machine.

    children = Children(); keys = children.put(PODS.plural, pod); children.drop(PODS.plural, pod)
    children.pods(job.uid); children.on_node("n0")          # the jobs that have a worker there

They belong to a job by the UID of their owner, never by labels or names: a job that was created again under the same name must
not adopt the pods of its predecessor.
"""

from collections.abc import Collection
from typing import Any

from ebb.controller.reconciler.pods import owner_of
from ebb.kube import PODS, SERVICES

Object = dict[str, Any]
Key = tuple[str, str]


class Children:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._owned: dict[str, dict[tuple[str, str], Object]] = {}  # owner's UID -> (plural, name) -> object
        self._by_node: dict[str, dict[str, Object]] = {}  # node -> pod's UID -> pod
        self._by_uid: dict[str, Key] = {}  # pod's UID -> job

    def put(self, plural: str, value: Object) -> Key | None:
        """Take in an object; returns its job, None if it has none."""
        owner = owner_of(value)
        if owner is None:
            return None
        self._owned.setdefault(owner["uid"], {})[plural, value["metadata"]["name"]] = value
        key = value["metadata"]["namespace"], owner["name"]
        if plural == PODS.plural:
            uid, node = value["metadata"]["uid"], value["spec"].get("nodeName")
            self._by_uid[uid] = key
            if node:
                self._by_node.setdefault(node, {})[uid] = value
        return key

    def drop(self, plural: str, value: Object) -> Key | None:
        """The object is gone; returns the job that it belonged to."""
        owner = owner_of(value)
        if owner is None:
            return None
        owned = self._owned.get(owner["uid"], {})
        owned.pop((plural, value["metadata"]["name"]), None)
        if not owned:
            self._owned.pop(owner["uid"], None)
        if plural == PODS.plural:
            uid, node = value["metadata"]["uid"], value["spec"].get("nodeName", "")
            self._by_uid.pop(uid, None)
            there = self._by_node.get(node, {})
            there.pop(uid, None)
            if not there:
                self._by_node.pop(node, None)
        return value["metadata"]["namespace"], owner["name"]

    def pods(self, uid: str) -> tuple[Object, ...]:
        """Of the job with this UID."""
        return tuple(value for (plural, _), value in self._owned.get(uid, {}).items() if plural == PODS.plural)

    def services(self, uid: str) -> tuple[Object, ...]:
        """Of the job with this UID."""
        return tuple(value for (plural, _), value in self._owned.get(uid, {}).items() if plural == SERVICES.plural)

    def on_node(self, node: str) -> Collection[Key]:
        """The jobs that have workers on this machine."""
        return {self._by_uid[uid] for uid in self._by_node.get(node, {})}

    def pods_on(self, node: str) -> Collection[Object]:
        """The workers on this machine, of whatever job."""
        return self._by_node.get(node, {}).values()

    def job_of(self, uid: str) -> Key | None:
        """The job that the pod with this UID belongs to."""
        return self._by_uid.get(uid)

    def uids(self) -> Collection[str]:
        """Of all pods."""
        return self._by_uid.keys()
