"""Sources of each pod's lines, the volume or the API server; printing what there is now.

A line may be in two places: in the pod's log, which the API server gives as long as the pod is there and the kubelet has not
rotated it away, and on the output volume, where the launcher writes it. Each pod is taken from one of them as a whole: from the
volume if it has a file there, else from the API server (an image without our launcher, a stack whose gateway is not there).
So no line can come twice, whichever order and stamps the two have it in.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

from ebb.api.clock import unix
from ebb.api.contract import ENV_OUTPUT_DIR, LABEL_INDEX, LABEL_JOB, OUTPUT_ROOT, WORKER_CONTAINER
from ebb.client.errors import ClientError, Missing
from ebb.client.jobs.view import worker_container, worker_index, worker_spec
from ebb.client.logs.lines import ALL, Choice, Line
from ebb.client.logs.pod import lines_now
from ebb.client.logs.replay import Replay, merge
from ebb.client.logs.volume import UNREADABLE, LogFiles, Reading, Shelf
from ebb.kube import ELASTIC_JOBS, PODS, Kube, KubeError, Object

OPEN_SECONDS = 10.0  # for the volume to answer; then what the API server has is worth more than to wait on


class Sink(Protocol):
    """Receiver of lines and notes."""

    def line(self, worker: int, line: Line) -> None:
        """One line of one worker's."""

    def note(self, text: str) -> None:
        """Take a note about the job."""


async def print_logs(
    kube: Kube, namespace: str, job: str, sink: Sink, *, choice: Choice = ALL, files: LogFiles | None = None
) -> None:
    """Print what the workers have written. Raises Missing if there is nothing that could be read."""
    found = await kube.get(ELASTIC_JOBS, namespace, job) if files else None
    shelf = await open_shelf(found, files, sink) if found else None
    pods = [pod for pod in await kube.list(PODS, namespace, labels=_selector(job, choice.worker)) if started(pod)]
    sources = Sources(kube, namespace, shelf, choice)
    sources.add(pods)
    if sources.empty:
        which = "no worker" if choice.worker is None else f"no worker {choice.worker}"
        raise Missing(
            f"{job} has {which} whose log can be read: it has not started yet, or left together with its machine. "
            f"`ebb status {job}` says which; -f waits for those that come."
        )
    await sources.show(sink)


async def open_shelf(job: Object, files: LogFiles | None, sink: Sink) -> Shelf | None:
    """Return what is on the volume; None, and a note, where it cannot be read."""
    if files is None:
        return None
    shelf = Shelf(files, job_folder(job))
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await shelf.look()
    except (ClientError, KubeError, TimeoutError) as error:
        sink.note(f"{UNREADABLE}: {error or 'the gateway does not answer'}")
        return None
    return shelf


def job_folder(job: Object) -> str:
    """The job's own folder on the output volume: what its author has set, or what the controller gives its workers."""
    meta, container = job["metadata"], _template_container(job)
    said = {item["name"]: item.get("value") for item in container.get("env") or []}
    return str(said.get(ENV_OUTPUT_DIR) or f"{OUTPUT_ROOT}/{meta['namespace']}/{meta['name']}-{meta['uid'][:8]}").rstrip("/")


class Sources:
    """The source of each pod's lines, and the position in it."""

    def __init__(self, kube: Kube, namespace: str, shelf: Shelf | None, choice: Choice) -> None:
        self._kube, self._namespace, self._shelf, self._choice = kube, namespace, shelf, choice
        self.readings: dict[str, Reading] = {}  # by pod uid, like all here
        self.replays: dict[str, Replay] = {}
        self._pods: dict[str, Object] = {}
        self._alive: set[str] = set()

    @property
    def empty(self) -> bool:
        return not (self.readings or self.replays)

    def add(self, pods: list[Object]) -> None:
        """All pods that have a file, and those of `pods` that have none. With `lost` only those that are not in `pods`."""
        alive = {uid_of(pod): pod for pod in pods}
        self._alive = set(alive)
        for uid, worker in (self._shelf.workers if self._shelf else {}).items():
            if self._choice.worker in (None, worker) and not (self._choice.lost and uid in alive):
                self.read_file(uid)
        for uid, pod in alive.items():
            if uid not in self.readings and not self._choice.lost:
                self._pods[uid], self.replays[uid] = pod, Replay()

    def read_file(self, uid: str) -> Reading:
        assert self._shelf is not None
        self.readings[uid] = self._shelf.reading(uid, self._choice.since)
        return self.readings[uid]

    async def show(self, sink: Sink) -> None:
        """Print what there is now, merged."""
        if self.replays and self._choice.rank is not None:
            workers = ", ".join(str(worker_index(pod)) for pod in self._pods.values())
            sink.note(f"worker {workers}: its lines come from the API server, which does not know ranks; they are left out")
        by_worker: dict[int, list[str]] = {}
        for uid in (*self.readings, *self.replays):
            by_worker.setdefault(self._worker(uid), []).append(uid)
        streams = [(worker, self._lines(uids)) for worker, uids in sorted(by_worker.items())]
        async for worker, line in merge(streams):
            if self._choice.wants(line):
                sink.line(worker, line)

    def _worker(self, uid: str) -> int:
        return worker_index(self._pods[uid]) if uid in self._pods or self._shelf is None else self._shelf.workers[uid]

    async def _lines(self, uids: list[str]) -> AsyncIterator[list[Line]]:
        """Those of the pods that one worker has had, in the order in which they started."""
        if self._choice.tail is not None:
            yield await self._last(uids, self._choice.tail)
            return
        for uid in uids:
            if uid in self.replays:
                yield await lines_now(self._kube, self._namespace, self._pods[uid], self.replays[uid])
                continue
            async for lines in self.readings[uid].now():
                yield lines

    async def _last(self, uids: list[str], count: int) -> list[Line]:
        found: list[Line] = []
        for uid in reversed(uids):
            wanted = count - len(found)
            if uid in self.replays:
                older = await lines_now(self._kube, self._namespace, self._pods[uid], self.replays[uid], wanted)
            else:  # whoever lives is read to its end, as it is followed from there
                older = await self.readings[uid].last(wanted) if wanted or uid in self._alive else []
            found = older + found
        return found


def _template_container(job: Object) -> Object:
    containers = ((worker_spec(job).get("template") or {}).get("spec") or {}).get("containers") or [{}]
    return next((one for one in containers if one.get("name") == WORKER_CONTAINER), containers[0])


def _selector(job: str, worker: int | None) -> str:
    return f"{LABEL_JOB}={job}" + ("" if worker is None else f",{LABEL_INDEX}={worker}")


def started(pod: Object) -> bool:
    state = worker_container(pod)[1].get("state") or {}
    return "running" in state or "terminated" in state


def started_at(pod: Object) -> float:
    """Seconds of the epoch; 0 if its machine has not said."""
    state = worker_container(pod)[1].get("state") or {}
    return unix((state.get("running") or {}).get("startedAt")) or 0.0


def uid_of(pod: Object) -> str:
    return str(pod["metadata"]["uid"])
