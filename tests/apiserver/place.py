"""A namespace of one test, with machines, and jobs as a test speaks of them.

job = await place.submit(replicas=3, low=1)
await job.runs(3)
await job.ends(1, code=1)                       # the program of worker 1
await job.until("it failed", lambda: job.state == "Failed")
"""

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from ebb.api import contract as names
from ebb.kube import ELASTIC_JOBS, EVENTS, PODS, SERVICES, KubeError
from tests.apiserver.kubelets import Machine
from tests.apiserver.machines import Machines
from tests.apiserver.plane import Made, gone
from tests.builders import make_job

Object = dict[str, Any]
Answer = TypeVar("Answer")
IMAGE = "example.org/trainer:1"


def article(name: str, namespace: str, **changes: Any) -> Object:
    """A job file; `changes` as tests.builders.make_job has them."""
    container = {"image": IMAGE, **changes.pop("container", {})}
    job = make_job(name, container=container, **changes)
    job["metadata"] = {"name": name, "namespace": namespace, **changes.get("metadata", {})}
    job["spec"].pop("metadata", None)
    return job


class Job:
    """One job, as it is now."""

    def __init__(self, made: Made, machines: Machines, name: str) -> None:
        self.made, self.machines, self.name, self.namespace = made, machines, name, machines.namespace
        self._nudges = itertools.count(1)

    @property
    def value(self) -> Object | None:
        return self.made.seen.get(ELASTIC_JOBS, self.namespace, self.name)

    @property
    def status(self) -> Object:
        return (self.value or {}).get("status") or {}

    @property
    def state(self) -> str:
        return str(self.status.get("state"))

    @property
    def uid(self) -> str:
        assert self.value is not None, f"job {self.name} is gone"
        return str(self.value["metadata"]["uid"])

    @property
    def pods(self) -> dict[int, Object]:
        """By index, those on their way out included."""
        return {
            int(pod["metadata"]["labels"][names.LABEL_INDEX]): pod
            for pod in self.made.seen.all(PODS, self.namespace)
            if pod["metadata"]["labels"].get(names.LABEL_JOB) == self.name
        }

    @property
    def services(self) -> list[Object]:
        return [
            one
            for one in self.made.seen.all(SERVICES, self.namespace)
            if one["metadata"]["labels"].get(names.LABEL_JOB) == self.name
        ]

    @property
    def events(self) -> list[tuple[str, str]]:
        """(reason, message) of all that was told about it."""
        told = (one for one in self.made.seen.all(EVENTS, self.namespace) if one["involvedObject"]["name"] == self.name)
        about = sorted(told, key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [(one["reason"], one["message"]) for one in about]

    @property
    def reasons(self) -> set[str]:
        return {reason for reason, _ in self.events}

    def pod_uid(self, index: int) -> str:
        """ "" if there is none."""
        pod = self.pods.get(index)
        return str(pod["metadata"]["uid"]) if pod else ""

    def running(self) -> set[int]:
        """Workers whose pod runs and is not told to leave."""
        return {
            index
            for index, pod in self.pods.items()
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    def condition(self, kind: str) -> Object:
        return next((one for one in self.status.get("conditions") or () if one["type"] == kind), {})

    def is_true(self, kind: str) -> bool:
        return bool(self.condition(kind).get("status") == "True")

    def worker(self, index: int) -> str:
        return f"{self.name}-worker-{index}"

    def machine(self, index: int) -> Machine:
        return self.machines.of(self.worker(index))

    # --- What people do ---

    async def patch(self, **spec: Any) -> None:
        await self.made.kube.patch(ELASTIC_JOBS, self.namespace, self.name, {"spec": spec})

    async def scale(self, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        await self.made.kube.patch(ELASTIC_JOBS, self.namespace, self.name, body, subresource="scale")

    async def delete(self) -> None:
        await gone(self.made.kube.delete(ELASTIC_JOBS, self.namespace, self.name))

    async def delete_pod(self, index: int) -> None:
        await self.made.kube.delete(PODS, self.namespace, self.worker(index))

    # --- What its machines do ---

    async def ends(self, *indices: int, code: int, **more: Any) -> None:
        """The programs of these workers end."""
        for index in indices:
            await self.machines.ends(self.worker(index), code, **more)

    # --- Waiting ---

    async def until(self, what: str, check: Callable[[], Answer | None], seconds: float = 15) -> Answer:
        return await self.made.seen.until(f"{self.name}: {what}", check, seconds, self._told)

    async def runs(self, count: int, seconds: float = 20) -> None:
        """All `count` workers run, and the status says so."""
        ready = f"{count}/{count}"
        await self.until(f"{ready} run", lambda: self.state == names.RUNNING and self.status.get("ready") == ready, seconds)

    async def is_replaced(self, index: int, old: str, seconds: float = 15) -> None:
        """Another pod runs in the place of the one with that UID."""
        await self.until(f"worker {index} is replaced", lambda: index in self.running() and self.pod_uid(index) != old, seconds)

    async def looked(self) -> None:
        """The controller has decided about the job as it is now: what it has not done by then, it does not do."""
        for _ in range(2):  # what only the status knows is written in one round and acted upon in the next
            await self.patch(schedulingPolicy={"minAvailable": next(self._nudges)})  # a field without meaning
            generation = (await self.made.kube.get(ELASTIC_JOBS, self.namespace, self.name))["metadata"]["generation"]
            await self.until("it is looked at", lambda: self.status.get("observedGeneration", 0) >= generation)  # noqa: B023

    def _told(self) -> str:
        pods = {index: (pod["status"].get("phase"), "deletionTimestamp" in pod["metadata"]) for index, pod in self.pods.items()}
        told = [f"{reason}: {message}" for reason, message in self.events[-12:]]
        kept = {key: value for key, value in self.status.items() if key not in ("conditions", "members", "selector")}
        said = {one["type"]: (one["status"], one["reason"], one["message"]) for one in self.status.get("conditions") or ()}
        return f"status {kept}; conditions {said}; pods {pods}; told {told}"


class Place:
    """See the module's docstring."""

    def __init__(self, made: Made, machines: Machines) -> None:
        self.made, self.machines, self.namespace = made, machines, machines.namespace

    def job(self, name: str = "digits") -> Job:
        return Job(self.made, self.machines, name)

    async def submit(self, name: str = "digits", **changes: Any) -> Job:
        """Create a job; see `article`."""
        await self.made.kube.create(ELASTIC_JOBS, self.namespace, article(name, self.namespace, **changes))
        job = self.job(name)
        await job.until("the job is there", lambda: job.value is not None)
        return job

    async def refusal(self, name: str = "digits", **changes: Any) -> str:
        """Why the API server does not take such a job."""
        try:
            await self.made.kube.create(ELASTIC_JOBS, self.namespace, article(name, self.namespace, **changes), dry_run=True)
        except KubeError as error:
            return str(error)
        return ""

    async def clear(self) -> None:
        """Remove all jobs and pods: what later tests count must not include them."""
        self.machines.boots = False
        for one in list(self.made.seen.all(ELASTIC_JOBS, self.namespace)):
            await gone(self.made.kube.delete(ELASTIC_JOBS, self.namespace, one["metadata"]["name"]))
        for pod in list(self.made.seen.all(PODS, self.namespace)):
            await gone(self.made.kube.delete(PODS, self.namespace, pod["metadata"]["name"], grace_seconds=0))
