"""The controller's copy of the cluster: a reflector per kind, and the job that each change is about.

    world = ClusterCache(api, queue, clock=time.time)
    observed = await world.observe(job, now, progress)

What must be there is jobs, pods, Services, machines and the platform's facts. The rest (Leases, what the autoscaler says,
PriorityClasses) is a help: on a cluster that does not give it to us the controller goes on without.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ebb.api import contract as names
from ebb.api.platform import NAME, NAMESPACE, Platform, PlatformError, parse
from ebb.api.spec import Job, SpecError
from ebb.api.status import Progress, Status
from ebb.controller import trimming
from ebb.controller.autoscaler_status import NAMESPACES, NOMINATED, REFUSED, REPORT, TRIGGERED, Words, by_group, read_report
from ebb.controller.claims import Claims, Effect
from ebb.controller.karpenter import SOURCE, UNSCHEDULABLE, Karpenter
from ebb.controller.kueue import KueueCopies
from ebb.controller.machines import Machines, Reader
from ebb.controller.reconciler.capacity import GroupState, Supply
from ebb.controller.reconciler.failure_policy import faulty_machines
from ebb.controller.reconciler.pods import owner_of, worker_name
from ebb.controller.reconciler.types import Observed
from ebb.controller.reconciler.worker_state import aged
from ebb.controller.sweeps import Sweeps
from ebb.controller.usage.machine_time import FINISHED
from ebb.controller.workqueue import WorkQueue
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, EVENTS, NODE_CLAIMS, PODS, PRIORITY_CLASSES, SERVICES, WORKLOADS, Resource
from ebb.kube.reflector import Habits, Key, Reflector, key_of

Object = dict[str, Any]

COPIES = "copies"  # beside the plurals of Kubernetes' kinds
JOBS_NAMESPACE = "elastic-job"  # where there is no stack: manifests/namespaces.yaml
OPTIONAL_SECONDS = 5.0  # how long the start waits for what is a help
# Changes of claims come in bursts, and each may make every waiting job be looked at. Those that wait behind others are told
# soon, the rest, for which it is seldom news, later.
SOON_SECONDS, LATER_SECONDS = 0.2, 5.0
# News of a pod on its way up changes figures and little else; 64 workers that start together have some hundred of them.
STARTING_SECONDS = 0.4
log = logging.getLogger(__name__)


class ClusterCache:
    """See the module's docstring. The queue is given the keys of jobs that are to be looked at; `clock` is wall time."""

    def __init__(self, api: Reader, queue: WorkQueue[Key], clock: Callable[[], float], silent_after: float | None = None) -> None:
        self._api, self._queue, self._changed, self._clock = api, queue, queue.add, clock
        self._children, self._words = Children(), Words()
        self._reports: dict[str, dict[str, GroupState]] = {}  # namespace -> the autoscaler's report there
        self._karpenter = Karpenter(clock)
        self._looks_again: asyncio.TimerHandle | None = None  # at the groups, when a stockout is old enough
        self._groups: dict[str, GroupState] = {}
        self._priorities: dict[str, int] = {}
        self._platform: Platform | None = None
        self._platform_problem = ""
        self._wakes: set[Effect] = set()  # due already
        self._own: Key | None = None  # whose change is no news
        self.moved: Callable[[str], None] = lambda machine: None  # told of machines on which something changed
        self.spent: Mapping[str, float] | None = None  # namespace -> USD of its jobs in this month; None: not known yet
        self.claims, self._sweeps = Claims(clock), Sweeps()
        # Jobs that were deleted, as last seen, and when, until somebody takes them.
        self.departed: dict[Key, list[tuple[Object, float]]] = {}
        self.machines = Machines(api, self._machine_changed, silent_after)
        self.jobs = Reflector(api, ELASTIC_JOBS, on_change=self._job_changed, habits=Habits(trim=trimming.trim_job))
        self.pods = self._reflect_children(api, PODS, trimming.trim_pod)
        self.services = self._reflect_children(api, SERVICES, trimming.trim_service)
        self.kueue = KueueCopies(api, changed=self._enqueue_queued)
        self.workloads = self._reflect_children(api, WORKLOADS, trimming.trim_workload, optional=True)
        facts = Reflector(api, CONFIG_MAPS, NAMESPACE, fields=f"metadata.name={NAME}", on_change=self._platform_changed)
        self.required = (self.jobs, self.pods, self.services, self.machines.nodes, facts)
        self.optional = (self.machines.leases, *self._reflect_supply(api), self._reflect_priorities(api))
        self.optional += (self.workloads, *self.kueue.reflectors)
        self.reflectors = (*self.required, *self.optional)

    async def synced(self) -> None:
        """Wait until every kind was listed once: a decision on half a picture would create what exists."""
        for reflector in self.required:
            await reflector.synced.wait()
        try:
            async with asyncio.timeout(OPTIONAL_SECONDS):
                for reflector in self.optional:
                    await reflector.tried.wait()
        except TimeoutError:
            log.warning("some of what the API server is asked for is late; going on without")
        self._words.keep(self._children.uids())

    async def observe(self, job: Job, now: float, progress: Progress | None) -> Observed:
        """The world around one job. Asks the API server only about nodes that the copy never had. Raises KubeError."""
        key = job.namespace, job.name
        pods = self._children.pods(job.uid)
        held = {pod["spec"].get("nodeName", "") for pod in pods} | {member.node for member in job.status.members}
        own = {pod["metadata"]["name"] for pod in pods}
        names_wanted = {worker_name(job.name, index) for index in range(job.max_replicas)}
        nodes, gone = await self.machines.find(held - {""})
        return Observed(
            pods=pods,
            services=self._children.services(job.uid),
            copies=self._children.copies(job.uid),
            taken=frozenset(name for name in names_wanted - own if (job.namespace, name) in self.pods.objects),
            nodes=nodes,
            gone=gone,
            silent=self.machines.look.silent & held,
            unready=self.machines.unready(held),
            shunned=frozenset(
                filter(
                    self.machines.may_be_named,
                    self.machines.shunned
                    | aged(self.machines.nodes.objects.values(), self._platform, now)
                    | faulty_machines(job.status),
                )
            ),
            doubt=self.machines.look.doubt,
            platform=self._platform,
            platform_problem=self._platform_problem,
            cluster_capacity=self.claims.cluster_capacity(but=key),
            share=self.claims.share(key),
            supply=Supply(words=self._words.latest, groups=self._groups),
            priorities=self._priorities,
            kueue=self.kueue.of(job, self._children.workload(job.uid), self.workloads),
            progress=progress,
            siblings=self._sweeps.siblings(job),
            spent=None if self.spent is None else self.spent.get(job.namespace, 0.0),
        )

    def decided(self, key: Key, status: Status) -> None:
        """Let the others know of a decision before it is written."""
        self._wake(self.claims.decided(key, status))
        self._enqueue(self._sweeps.put(replace(self.claims.job(key), status=status)))

    def wrote(self, value: Object, *, matters: bool) -> None:
        """Take in a status that was just written. Where it `matters`, what it says is acted upon in another look."""
        self._own = None if matters else key_of(value)
        self.jobs.observe(value)
        self._own = None

    @property
    def platform(self) -> Platform | None:
        """The stack's facts; None: there is none, or it cannot be understood now."""
        return self._platform

    def forget_departed(self, before: float) -> None:
        """Those that were deleted before that time are somebody else's to record."""
        for key, entries in list(self.departed.items()):
            self.departed[key] = [entry for entry in entries if entry[1] >= before]
            if not self.departed[key]:
                del self.departed[key]

    def charged(self, machine: str) -> list[Object]:
        """The workers on a machine whose job is there to be charged for them."""
        found = []
        for pod in self._children.pods_on(machine):
            owner = owner_of(pod)
            job = self.jobs.objects.get((pod["metadata"]["namespace"], owner["name"])) if owner else None
            if owner and job and job["metadata"]["uid"] == owner["uid"]:
                found.append(pod)
        return found

    def namespaces(self) -> set[str]:
        """The stack's for jobs and for teams, and those of the jobs that there are."""
        own = self._platform.jobs_namespace if self._platform else JOBS_NAMESPACE
        teams = {team.namespace for team in self._platform.teams} if self._platform else set[str]()
        return {own} | teams | {namespace for namespace, _ in self.jobs.objects}

    def left_behind(self) -> dict[str, list[Object]]:
        """Pods, Services and Workloads that are not told to leave, of jobs that are not there, by the UID of the job."""
        return self._children.left_behind({job["metadata"]["uid"] for job in self.jobs.objects.values()})

    def training(self) -> list[Key]:
        """The jobs whose workers may train."""
        states = (names.RUNNING, names.RESTARTING)
        return [key for key, job in self.jobs.objects.items() if (job.get("status") or {}).get("state") in states]

    def addresses(self, key: Key) -> list[str]:
        """Of the running workers of a job, worker 0 first."""
        return [pod["status"]["podIP"] for pod in self.running(key)]

    def holds_machines(self, key: Key) -> bool:
        """Return whether the machine of a worker that fails is to be held."""
        job = self.jobs.objects.get(key)
        return bool(job and job["spec"].get("holdOnFailureSeconds"))

    def running(self, key: Key) -> list[Object]:
        """The pods of the running workers of a job, worker 0 first."""
        job = self.jobs.objects.get(key)
        pods = self._children.pods(job["metadata"]["uid"]) if job else ()
        there = [pod for pod in pods if pod["status"].get("phase") == "Running" and pod["status"].get("podIP")]
        return sorted(there, key=lambda pod: int(pod["metadata"]["labels"][names.LABEL_INDEX]))

    def _reflect_children(
        self, api: Reader, resource: Resource, trim: Callable[[Object], Object], *, optional: bool = False
    ) -> Reflector:
        def changed(old: Object | None, new: Object | None) -> None:
            keys = {self._children.drop(resource.plural, old) if old else None}
            keys.add(self._children.put(resource.plural, new) if new else None)
            for machine in _where_it_counts(old, new):
                self.moved(machine)
            if old and not new:
                self._words.forget(old["metadata"].get("uid", ""))
            for key in filter(None, keys):
                if new and _starts(new):
                    self._queue.add_within(STARTING_SECONDS, key)
                else:
                    self._changed(key)

        habits = Habits(trim=trim, optional=optional)
        return Reflector(api, resource, labels=names.SELECTOR_ALL, on_change=changed, habits=habits)

    def _reflect_supply(self, api: Reader) -> Iterator[Reflector]:
        habits = Habits(trim=trimming.trim_event, optional=True, forgetful=True)
        for reason in (REFUSED, TRIGGERED):
            fields = f"reason={reason},involvedObject.kind=Pod"
            yield Reflector(api, EVENTS, fields=fields, on_change=self._event_seen, habits=habits)
        for namespace in NAMESPACES:
            fields, habits = f"metadata.name={REPORT}", Habits(optional=True)
            yield Reflector(api, CONFIG_MAPS, namespace, fields=fields, on_change=self._report_changed, habits=habits)
        habits = Habits(trim=trimming.trim_event, optional=True, forgetful=True)
        yield Reflector(api, EVENTS, fields=f"source={SOURCE}", on_change=self._karpenter_said, habits=habits)
        yield Reflector(api, NODE_CLAIMS, on_change=self._node_claim_changed, habits=Habits(optional=True))

    def _reflect_priorities(self, api: Reader) -> Reflector:
        def changed(old: Object | None, new: Object | None) -> None:
            for value, present in ((old, False), (new, True)):
                # A job that names none gets the class that is everybody's default, as its pods do.
                for name in (value["metadata"]["name"], *([""] if value.get("globalDefault") else [])) if value else ():
                    self._priorities.pop(name, None)
                    if present and value:
                        self._priorities[name] = int(value.get("value", 0))
            self.claims.rank(self._priorities)
            self._wake(Effect.FREED)

        return Reflector(api, PRIORITY_CLASSES, on_change=changed, habits=Habits(optional=True))

    def _enqueue_queued(self) -> None:
        self._enqueue(key for key, job in self.jobs.objects.items() if names.LABEL_QUEUE in (job["metadata"].get("labels") or {}))

    def _job_changed(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        key = key_of(value)
        if new is None:
            self.departed.setdefault(key, []).append((value, self._clock()))
        effect = self.claims.put(key, new)
        self._enqueue(self._compare(key, new))
        if old is None or new is None:
            for pod in self._children.pods(value["metadata"]["uid"]):
                self.moved(pod["spec"].get("nodeName", ""))
        if key != self._own:
            self._changed(key)
        self._wake(effect)

    def _compare(self, key: Key, new: Object | None) -> list[Key]:
        """The other runs of the job's sweep that have to look again."""
        try:
            return self._sweeps.put(self.claims.job(key)) if new else self._sweeps.drop(key)
        except SpecError:
            return self._sweeps.drop(key)

    def _machine_changed(self, node: str) -> None:
        self.moved(node)
        self._enqueue(self._children.on_node(node))

    def _event_seen(self, _: Object | None, event: Object | None) -> None:
        uid = self._words.hear(event) if event else None
        if uid is None:
            return
        key = self._children.job_of(uid)
        if key is not None:
            self._changed(key)
        elif self.pods.synced.is_set():
            self._words.forget(uid)  # somebody else's pod

    def _report_changed(self, old: Object | None, new: Object | None) -> None:
        value = new or old
        assert value is not None
        report = read_report((new.get("data") or {}).get("status") or "") if new else {}
        self._reports[value["metadata"]["namespace"]] = report
        self._match_groups()

    def _karpenter_said(self, _: Object | None, event: Object | None) -> None:
        if event is None:
            return
        if event.get("reason") in (NOMINATED, UNSCHEDULABLE):
            self._event_seen(None, event)
        self._karpenter.hear(event)
        self._match_groups()

    def _node_claim_changed(self, old: Object | None, new: Object | None) -> None:
        self._karpenter.claim(old, new)
        self._match_groups()

    def _platform_changed(self, old: Object | None, new: Object | None) -> None:
        self._platform, self._platform_problem = None, ""
        if new is not None:
            try:
                self._platform = parse(new.get("data") or {})
            except PlatformError as error:
                log.error("%s", error)
                self._platform_problem = str(error)
        self._match_groups()
        for _, machine in list(self.machines.nodes.objects):
            self.moved(machine)
        self._enqueue(self.jobs.objects)

    def _match_groups(self) -> None:
        known = [group.name for group in self._platform.node_groups] if self._platform else []
        groups = {name: state for report in self._reports.values() for name, state in by_group(report, known).items()}
        groups |= {name: state for name, state in self._karpenter.states().items() if name in known}
        if self._looks_again is not None:
            self._looks_again.cancel()
        if (at := self._karpenter.changes_at) is not None:
            self._looks_again = asyncio.get_running_loop().call_later(at - self._clock(), self._match_groups)
        if groups != self._groups:
            self._groups = groups
            self._wake(Effect.FREED)

    def _wake(self, effect: Effect) -> None:
        """Have the jobs looked at for which this may be what they wait for; what comes in a burst is one look."""
        if effect is not Effect.NONE:
            self._wake_after(SOON_SECONDS, effect if effect in (Effect.SHRANK, Effect.CAME) else Effect.MOVED_ON)
        if effect is Effect.FREED:
            self._wake_after(LATER_SECONDS, Effect.FREED)

    def _wake_after(self, seconds: float, effect: Effect) -> None:
        def wake() -> None:
            self._wakes.discard(effect)
            self._enqueue(self.claims.waiting(effect, self._platform))

        if effect not in self._wakes:
            self._wakes.add(effect)
            asyncio.get_running_loop().call_later(seconds, wake)

    def _enqueue(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self._changed(key)


def _where_it_counts(old: Object | None, new: Object | None) -> set[str]:
    """The machines that stand differently after this change of a pod. Of some six that a pod sees in its life two do that."""
    there = [value for value in (old, new) if value and "spec" in value]
    if len(there) == 2 and there[0]["spec"] == there[1]["spec"] and _finished(there[0]) == _finished(there[1]):
        return set()
    return {value["spec"].get("nodeName", "") for value in there} - {""}


def _finished(pod: Object) -> bool:
    return pod["status"].get("phase") in FINISHED


def _starts(new: Object) -> bool:
    """Return whether this is news of a pod that was made, found a machine or began to run, and so of no loss."""
    if new["kind"] != PODS.kind or "deletionTimestamp" in new["metadata"]:
        return False
    status = new["status"]
    if status.get("phase", "Pending") not in ("Pending", "Running") or status.get("reason"):
        return False
    if any(item["type"] == names.CONDITION_DISRUPTION for item in status["conditions"]):
        return False
    return not any("terminated" in (item.get("state") or {}) for item in status.get("containerStatuses", ()))


def _part(plural: str, value: Object) -> str:
    """The kind of a job's child. Labels of a job's template are on its workers, and so prove nothing; the index is ours."""
    labels = value["metadata"].get("labels") or {}
    copies = plural == PODS.plural and names.LABEL_COPY in labels and names.LABEL_INDEX not in labels
    return COPIES if copies else plural


class Children:
    """Pods and Services by their job, and workers by their machine.

    They belong to a job by the UID of their owner, never by labels or names: a job that was created again under the same name
    must not adopt the pods of its predecessor."""

    def __init__(self) -> None:
        self._owned: dict[str, dict[tuple[str, str], Object]] = {}  # owner's UID -> (plural, name) -> object
        self._by_node: dict[str, dict[str, Object]] = {}  # node -> pod's UID -> pod
        self._by_uid: dict[str, Key] = {}  # pod's UID -> job

    def put(self, plural: str, value: Object) -> Key | None:
        """Take in an object; returns its job, None if it has none."""
        owner = owner_of(value)
        if owner is None:
            return None
        plural = _part(plural, value)
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
        plural = _part(plural, value)
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

    def copies(self, uid: str) -> tuple[Object, ...]:
        """The pods that copy the data of the job with this UID. They are no workers, and nobody pays for their machine."""
        return tuple(value for (plural, _), value in self._owned.get(uid, {}).items() if plural == COPIES)

    def services(self, uid: str) -> tuple[Object, ...]:
        """Of the job with this UID."""
        return tuple(value for (plural, _), value in self._owned.get(uid, {}).items() if plural == SERVICES.plural)

    def left_behind(self, jobs: Collection[str]) -> dict[str, list[Object]]:
        """The objects that are not told to leave and that others own than the jobs with these UIDs."""
        left = {
            uid: [value for value in self._owned[uid].values() if "deletionTimestamp" not in value["metadata"]]
            for uid in self._owned.keys() - jobs
        }
        return {uid: values for uid, values in left.items() if values}

    def workload(self, uid: str) -> Object | None:
        """By which Kueue knows the job with this UID; of several the one that is to stay."""
        found = [value for (plural, _), value in self._owned.get(uid, {}).items() if plural == WORKLOADS.plural]
        return min(found, key=lambda value: ("deletionTimestamp" in value["metadata"], value["metadata"]["name"]), default=None)

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
