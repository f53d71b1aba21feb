"""Getting into a job's workers: a program in one, a port of one. Which worker, where nobody says: the first that runs.

done = await execute(ebb, "digits", ["nvidia-smi"])
async with port(ebb, "digits", 6006) as (host, local): ...        # goes on to another worker when one is lost
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from ebb.api.contract import HOLD_SCRIPT, LABEL_JOB
from ebb.client.errors import BadRequest, Missing
from ebb.client.files.forward import forward
from ebb.client.jobs.view import held_machine, view, worker_container, worker_index
from ebb.client.jobs.watch import ignore
from ebb.client.platform.connection import Ebb, read_job
from ebb.kube import PODS, Object, Unreachable
from ebb.kube.streams import STDOUT, Program, running


@dataclass(frozen=True, kw_only=True)
class Executed:
    """A program that has ended in a worker."""

    worker: int
    exit_code: int
    stdout: str
    stderr: str


SHELL = ("sh", "-c", "command -v bash >/dev/null && exec bash || exec sh")
_ENTER = 'for d in "${TMPDIR:-/tmp}" /dev/shm; do [ -r "$d/%s" ] && exec sh "$d/%s" "$@"; done; exec "$@"'


async def as_program(ebb: Ebb, job: str, pod: Object, command: Sequence[str]) -> tuple[str, ...]:
    """The command; on a machine that is held, such that it runs in the folder and the environment of the program that failed.
    Raises Missing, KubeError."""
    if not command or held_machine(await read_job(ebb.kube, ebb.namespace, job)) != pod["metadata"].get("uid"):
        return tuple(command)
    return ("sh", "-c", _ENTER % (HOLD_SCRIPT, HOLD_SCRIPT), "sh", *command)


async def execute(ebb: Ebb, job: str, command: Sequence[str], *, worker: int | None = None, stdin: bytes = b"") -> Executed:
    """Run a program in a worker to its end. Raises Missing, BadRequest, KubeError."""
    pod = await running_worker(ebb, job, worker)
    command = await as_program(ebb, job, pod, command)
    async with program(ebb, pod, command, stdin=bool(stdin)) as started:
        feeding, reading = asyncio.create_task(_feed(started, stdin)), asyncio.create_task(_read(started))
        try:
            done, _ = await asyncio.wait({feeding, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading not in done:
                feeding.result()
            said = await reading
        finally:
            for task in (feeding, reading):
                task.cancel()
            await asyncio.gather(feeding, reading, return_exceptions=True)
    stdout, stderr = (b"".join(said.get(channel, [])).decode(errors="replace") for channel in (STDOUT, STDOUT + 1))
    return Executed(worker=worker_index(pod), exit_code=started.exit_code, stdout=stdout, stderr=stderr)


async def _feed(started: Program, stdin: bytes) -> None:
    """Beside the reading: a program may write much before it reads, and may end before it has read all."""
    if stdin:
        with suppress(Unreachable):  # the reading says so, or that the program has ended
            await started.send(stdin)
            await started.end_input()


async def _read(started: Program) -> dict[int, list[bytes]]:
    said: dict[int, list[bytes]] = {}
    async for channel, data in started:
        said.setdefault(channel, []).append(data)
    return said


@asynccontextmanager
async def program(
    ebb: Ebb, pod: Object, command: Sequence[str], *, stdin: bool = False, tty: bool = False
) -> AsyncIterator[Program]:
    """Start a program in a worker that `running_worker` found. Raises BadRequest, KubeError."""
    if not command:
        raise BadRequest("no command is given: use for example `ebb exec JOB -- nvidia-smi`, or `-- bash`.")
    name, _ = worker_container(pod)
    async with running(
        ebb.kube, ebb.namespace, pod["metadata"]["name"], command, container=name, stdin=stdin, tty=tty
    ) as started:
        yield started


@asynccontextmanager
async def port(
    ebb: Ebb, job: str, number: int, *, local: int = 0, worker: int | None = None, note: Callable[[str], None] = ignore
) -> AsyncIterator[tuple[str, int]]:
    """Listen on this machine's loopback for a port of a job's worker (0: any free port here). Each connection goes to a worker
    that runs then: of the one that is named, or of any. Raises Missing, BadRequest, KubeError."""
    for field, value, least in (("port", number, 1), ("local", local, 0)):
        if not least <= value <= 65535:
            raise BadRequest(f"{field} {value} is not a port: use {least} to 65535.")
    last = (await running_worker(ebb, job, worker))["metadata"]["name"]

    async def choose(failed: frozenset[str]) -> str:
        nonlocal last
        pod = await running_worker(ebb, job, worker, failed)
        name = str(pod["metadata"]["name"])
        if name != last and name not in failed:
            note(f"{last} is lost; from now on connections go to {name}")
            last = name
        return name

    async with forward(ebb.kube, ebb.namespace, choose, number, local=local, note=note) as where:
        yield where


async def running_worker(ebb: Ebb, job: str, worker: int | None = None, failed: frozenset[str] = frozenset()) -> Object:
    """The pod of a worker that runs, best one that has not failed. Raises Missing."""
    pods = await ebb.kube.list(PODS, ebb.namespace, labels=f"{LABEL_JOB}={job}")
    ready = sorted((pod for pod in pods if _runs(pod)), key=worker_index)
    wanted = [pod for pod in ready if worker is None or worker_index(pod) == worker]
    if wanted:
        return next((pod for pod in wanted if pod["metadata"]["name"] not in failed), wanted[0])
    state = view(await read_job(ebb.kube, ebb.namespace, job)).state
    if not ready:
        raise Missing(
            f"no worker of {job} runs: the job is {state}. `ebb status {job}` says why; `ebb wait {job} --for running` waits."
        )
    numbers = ", ".join(str(worker_index(pod)) for pod in ready)
    raise Missing(f"worker {worker} of {job} does not run: choose one of {numbers}, or leave --worker out.")


def _runs(pod: Object) -> bool:
    return "running" in (worker_container(pod)[1].get("state") or {}) and "deletionTimestamp" not in pod["metadata"]
