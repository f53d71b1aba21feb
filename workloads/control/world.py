"""The controller's copy of the cluster: five reflectors, and which job each change is about.

    world = World(api, changed=queue.add)
    observed = await world.observe(job, now, progress)

Pods and Services belong to a job by the UID of their owner, never by labels or names: a job that was created again under the same
name must not adopt the pods of its predecessor.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from workloads import contract as names
from workloads.job.spec import Job, SpecError
from workloads.job.status import Progress
from workloads.kube import CONFIG_MAPS, ELASTIC_JOBS, NODES, PODS, SERVICES, NotFound, Resource
from workloads.kube.reflector import Key, Reflector, Source, key_of
from workloads.plan.market import Market, survey
from workloads.plan.pods import worker_name
from workloads.plan.values import Observed
from workloads.platform import NAME, NAMESPACE, Platform, PlatformError, parse

Object = dict[str, Any]
log = logging.getLogger(__name__)


class Reader(Source, Protocol):
    """What the world needs of an API client."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...


class World:
    """See the module's docstring. `changed` is called with the key of a job that is to be looked at."""

    def __init__(self, api: Reader, changed: Callable[[Key], None]) -> None:
        self._api, self._changed = api, changed
        self._children: dict[str, dict[tuple[str, str], Object]] = {}  # owner's UID -> (plural, name) -> object
        self._platform: Platform | None = None
        self._platform_problem = ""
        self.jobs = Reflector(api, ELASTIC_JOBS, on_change=self._job_changed)
        self.pods = Reflector(api, PODS, labels=names.SELECTOR_ALL, on_change=self._child_changed(PODS))
        self.services = Reflector(api, SERVICES, labels=names.SELECTOR_ALL, on_change=self._child_changed(SERVICES))
        self.nodes = Reflector(api, NODES, on_change=self._node_changed)
        self.facts = Reflector(api, CONFIG_MAPS, NAMESPACE, fields=f"metadata.name={NAME}", on_change=self._platform_changed)
        self.reflectors = (self.jobs, self.pods, self.services, self.nodes, self.facts)

    async def synced(self) -> None:
        """Wait until every kind was listed once: a decision on half a picture would create what exists."""
        for reflector in self.reflectors:
            await reflector.synced.wait()

    async def observe(self, job: Job, now: float, progress: Progress | None) -> Observed:
        """The world around one job. Asks the API server only about nodes that the copy does not have. Raises KubeError."""
        children = self._children.get(job.uid, {})
        pods = tuple(value for (plural, _), value in children.items() if plural == PODS.plural)
        held = {pod["spec"].get("nodeName", "") for pod in pods} | {member.node for member in job.status.members}
        nodes, gone = {}, set()
        for name in held - {""}:
            node = self.nodes.objects.get(("", name)) or await self._ask(name)
            if node:
                nodes[name] = node
            else:
                gone.add(name)
        return Observed(
            pods=pods,
            services=tuple(value for (plural, _), value in children.items() if plural == SERVICES.plural),
            taken=frozenset(self._taken(job)),
            nodes=nodes,
            gone=frozenset(gone),
            platform=self._platform,
            platform_problem=self._platform_problem,
            # Only a choice of zone needs it, and it costs a look at every job.
            market=Market() if job.status.placement else survey(self._jobs(), {}, now, but=(job.namespace, job.name)),
            progress=progress,
        )

    def targets(self) -> dict[Key, list[str]]:
        """Addresses of the running workers of each job, worker 0 first."""
        found: dict[Key, list[str]] = {}
        for _, pod in sorted(self.pods.objects.items()):
            status, owner = pod.get("status") or {}, owner_of(pod)
            if owner and status.get("phase") == "Running" and status.get("podIP"):
                found.setdefault((pod["metadata"]["namespace"], owner["name"]), []).append(status["podIP"])
        return found

    async def _ask(self, name: str) -> Object | None:
        """A pod may be on a node that the nodes' watch has not told of yet: only the API server knows that one is gone."""
        try:
            return await self._api.get(NODES, None, name)
        except NotFound:
            return None

    def _taken(self, job: Job) -> Iterator[str]:
        for index in range(job.worker.replicas):
            name = worker_name(job.name, index)
            pod = self.pods.objects.get((job.namespace, name))
            if pod is not None and (owner_of(pod) or {}).get("uid") != job.uid:
                yield name

    def _jobs(self) -> Iterator[Job]:
        for value in self.jobs.objects.values():
            try:
                yield Job.of(value)
            except SpecError:
                continue

    def _job_changed(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        self._changed(key_of(value))

    def _child_changed(self, resource: Resource) -> Callable[[Object | None, Object | None], None]:
        def changed(old: Object | None, new: Object | None) -> None:
            for value, present in ((old, False), (new, True)):
                owner = owner_of(value) if value else None
                if value is None or owner is None:
                    continue
                children = self._children.setdefault(owner["uid"], {})
                if present:
                    children[resource.plural, value["metadata"]["name"]] = value
                else:
                    children.pop((resource.plural, value["metadata"]["name"]), None)
                if not children:
                    del self._children[owner["uid"]]
                self._changed((value["metadata"]["namespace"], owner["name"]))

        return changed

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        if old and new and _health(old) == _health(new):
            return  # heartbeats
        name = value["metadata"]["name"]
        for pod in self.pods.objects.values():
            owner = owner_of(pod)
            if owner and pod["spec"].get("nodeName") == name:
                self._changed((pod["metadata"]["namespace"], owner["name"]))

    def _platform_changed(self, old: Object | None, new: Object | None) -> None:
        self._platform, self._platform_problem = None, ""
        if new is not None:
            try:
                self._platform = parse(new.get("data") or {})
            except PlatformError as error:
                log.error("%s", error)
                self._platform_problem = str(error)
        for key in self.jobs.objects:
            self._changed(key)


def owner_of(value: Object) -> Object | None:
    """The reference to the ElasticJob that controls an object, if one does."""
    references = value["metadata"].get("ownerReferences") or ()
    return next((item for item in references if item.get("controller") and item.get("kind") == names.KIND), None)


def _health(node: Object) -> tuple[object, ...]:
    """The part of a node that says whether its workers are in trouble."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    judged = {item["type"]: (item.get("status"), item.get("message", "")) for item in conditions if item["type"] in _JUDGED}
    ready, notice = judged.get("Ready", ("", ""))[0], judged.get(names.CONDITION_RECLAIM)
    return ready, notice, [item.get("key") for item in (node.get("spec") or {}).get("taints") or ()]


_JUDGED = ("Ready", names.CONDITION_RECLAIM)
