"""What changes while somebody looks: a collection of objects as a stream of states that outlives lost connections.

    async for jobs in states(kube, ELASTIC_JOBS, namespace, on_trouble=print):
        ...                                         # {uid: object}, first as it is, then after every change

It caches nothing for others and never gives up on an API server that answers no more: the user's Ctrl-C does. The controller's
reflector is made for thousands of objects and other promises, hence not used here.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from ebb.api.contract import LABEL_JOB
from ebb.kube import ELASTIC_JOBS, PODS, Denied, Gone, Invalid, Kube, KubeError, NotFound, Object, Resource

RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 5.0)  # a restarting API server is back in 5 to 20 s
PATIENCE = 6
"""How many refusals in a row are taken for those of an API server that just started: rights and kinds load after it listens."""


def ignore(_: str) -> None:
    """For callers that tell nobody."""


async def states(
    kube: Kube,
    resource: Resource,
    namespace: str,
    *,
    labels: str | None = None,
    name: str | None = None,
    on_trouble: Callable[[str], None] = ignore,
) -> AsyncGenerator[dict[str, Object], None]:
    """Yield {uid: object} now and after each change, for ever. Raises KubeError if the first answer is one, or refusals last."""
    fields = f"metadata.name={name}" if name else None
    seen, failures = False, 0
    while True:
        try:
            items, version = await kube.list_with_version(resource, namespace, labels=labels, fields=fields)
            current = {item["metadata"]["uid"]: item for item in items}
            seen, failures = True, 0
            yield dict(current)
            async for kind, item in kube.watch(resource, namespace, version=version, labels=labels, fields=fields):
                if kind == "BOOKMARK":
                    continue
                if kind == "DELETED":
                    current.pop(item["metadata"]["uid"], None)
                else:
                    current[item["metadata"]["uid"]] = item
                yield dict(current)
        except Gone:
            continue
        except KubeError as error:
            failures += 1
            if not seen or (isinstance(error, Denied | NotFound | Invalid) and failures > PATIENCE):
                raise
            if failures == 2:  # one break is every load balancer's habit
                on_trouble(f"{error}; trying again")
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1])


class Board:
    """The newest state of one job and its pods, kept current while the block runs.

    async with Board(kube, namespace, "digits") as board:      # both are read when the block begins
        while not over(board.job):
            await board.change(timeout_seconds=1)
    """

    def __init__(self, kube: Kube, namespace: str, job: str, on_trouble: Callable[[str], None] = ignore) -> None:
        self.kube, self.namespace, self.name = kube, namespace, job
        self.job: Object | None = None
        self._labels = f"{LABEL_JOB}={job}"
        self._pods: dict[str, Object] = {}
        self.trouble = ""  # why this may be old; "" while the API server answers
        self._on_trouble = on_trouble
        self._bell = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def pods(self) -> list[Object]:
        """The job's own pods by name; not those of an earlier job of that name that are still going."""
        uid = self.job["metadata"]["uid"] if self.job else None
        return self.pods_of(uid)

    def pods_of(self, uid: str | None) -> list[Object]:
        """Those of the job with that uid, which may be deleted already; None: all that carry the name."""
        own = (pod for pod in self._pods.values() if uid in (None, _owner(pod)))
        return sorted(own, key=lambda pod: str(pod["metadata"]["name"]))

    async def change(self, timeout_seconds: float | None = None) -> None:
        """Return at the next change or after the time-out. Raises KubeError if the watching has ended in one."""
        waiting = asyncio.ensure_future(self._bell.wait())
        try:
            await asyncio.wait({waiting, *self._tasks}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        for task in self._tasks:
            if task.done():
                task.result()

    async def refresh_pods(self) -> None:
        """Read the pods now; if that fails, what the board knows stands."""
        with suppress(KubeError):
            pods = await self.kube.list(PODS, self.namespace, labels=self._labels)
            self._pods = {pod["metadata"]["uid"]: pod for pod in pods}

    async def __aenter__(self) -> "Board":
        loads = [asyncio.Event(), asyncio.Event()]
        self._tasks = [asyncio.create_task(self._follow_job(loads[0])), asyncio.create_task(self._follow_pods(loads[1]))]
        try:
            while not all(load.is_set() for load in loads):
                await self.change()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow_job(self, loaded: asyncio.Event) -> None:
        async for jobs in states(self.kube, ELASTIC_JOBS, self.namespace, name=self.name, on_trouble=self._trouble):
            self.job = next(iter(jobs.values()), None)
            loaded.set()
            self._ring()

    async def _follow_pods(self, loaded: asyncio.Event) -> None:
        async for pods in states(self.kube, PODS, self.namespace, labels=self._labels):
            self._pods = pods
            loaded.set()
            self._ring()

    def _trouble(self, text: str) -> None:
        self.trouble = text
        self._on_trouble(text)

    def _ring(self) -> None:
        """Wake everybody who waits now; who comes later waits for the next change."""
        self.trouble = ""
        self._bell.set()
        self._bell = asyncio.Event()


def _owner(pod: Object) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)
