"""Folders in an etcd 3.5 in which workers meet by torch's own rendezvous: made before torch makes them, taken away afterwards.

    async with http_send() as send:
        runs = Runs(send, jobs=controller.unfinished)
        await runs.create("etcd-legacy.ebb-system.svc:2379", "/torchelastic/p2p/run_digits-0b8e7a52")
        await runs.sweep()                        # run() does it every hour

torch gives a run's folder a life of two hours and lets its members renew it. On etcd 3.5 they cannot: it changes nothing about a
folder ("Not a file", 3.5.21), and the thread that asks ends (torch 2.13). Whoever joins after two hours finds nothing, and begins
a second world that writes the same checkpoints. But torch takes a folder that is there, and one made without an end stays.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ebb.controller.cautious_http import ask, cautious_session

Object = dict[str, Any]
Send = Callable[[str, str, Mapping[str, str]], Awaitable[Object]]
"""Method, address, fields -> what an etcd answers, also where it refuses. Raises RunError if it gives no such answer."""

EXISTS = 105  # an errorCode of the v2 API
EVERY_SECONDS = 3600.0  # a run that is over is a few kilobytes
TIMEOUT_SECONDS = 5.0
LONGEST_BYTES = 8 * 2**20  # some thousand runs; job files name the address, so anything may answer
RUN, MEMBER = "run_", "rank_"  # what torch calls the folder, and in it the key of a member, which lives for 10 s
OURS = re.compile(r"(.+-[0-9a-f]{8})(-r\d+)?")  # ids that the controller gives (reconciler/containers.py)
log = logging.getLogger(__name__)


class RunError(Exception):
    """The folder could not be made; the message says why and what to do."""


class Runs:
    """`jobs` are those whose workers may meet now. One that leads makes folders, and sweeps where it has made some."""

    def __init__(self, send: Send, *, jobs: Callable[[], Iterable[Object]]) -> None:
        self._send, self._jobs = send, jobs
        self._places: set[str] = set()  # addresses of the folders that runs are in

    async def create(self, endpoint: str, folder: str) -> None:
        """One that exists is as good. Raises RunError."""
        address = f"http://{endpoint}/v2/keys{folder}"
        said = await self._send("PUT", address, {"dir": "true", "prevExist": "false"})
        if said.get("errorCode") not in (None, EXISTS):
            raise RunError(f"{address}: {said.get('message')}: workers could not meet there")
        self._places.add(address.rpartition("/")[0])

    async def run(self) -> None:
        """Never returns."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            try:
                await self.sweep()
            except RunError as error:
                log.warning("runs that are over were not taken away: %s", error)

    async def sweep(self) -> None:
        """Take away the runs of jobs that are over, if no member is left in them. Raises RunError."""
        used = {f"{job['metadata']['name']}-{job['metadata']['uid'][:8]}" for job in self._jobs()}
        for place in sorted(self._places):
            said = await self._send("GET", place, {"recursive": "true"})
            for run in (said.get("node") or {}).get("nodes", ()):
                name = _name(run)
                ours = OURS.fullmatch(name.removeprefix(RUN)) if name.startswith(RUN) else None
                if ours and ours[1] not in used and not any(_name(node).startswith(MEMBER) for node in _below(run)):
                    await self._send("DELETE", f"{place}/{name}", {"recursive": "true"})
                    log.info("took away run %s: its job is over", ours[0])


def _below(node: Object) -> Iterator[Object]:
    for child in node.get("nodes", ()):
        yield child
        yield from _below(child)


def _name(node: Object) -> str:
    return str(node["key"]).rpartition("/")[2]


@asynccontextmanager
async def http_send() -> AsyncIterator[Send]:
    """The real Send."""
    async with cautious_session(TIMEOUT_SECONDS) as session:

        async def send(method: str, address: str, fields: Mapping[str, str]) -> Object:
            try:
                status, raw = await ask(session, method, address, longest_bytes=LONGEST_BYTES, fields=fields)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise RunError(f"{address}: {error or type(error).__name__}: does this etcd run?") from error
            # Where it does not look like etcd nothing of the answer is told: job files name the address.
            try:
                read = json.loads(raw)
            except ValueError as error:
                raise RunError(f"{address}: {status}: is this an etcd 3.5 with --enable-v2?") from error
            if not isinstance(read, dict):
                raise RunError(f"{address}: {status}: is this an etcd 3.5 with --enable-v2?")
            return read

        yield send
