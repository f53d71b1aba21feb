"""Asks before it leads: does the API server's kind ElasticJob have all that this controller writes into a status?

    served = ServedKind(lambda: api.request("GET", SCHEMA_PATH))
    await served.until_known()                 # served.problem says meanwhile what is missing, and what to do

A controller that is newer than the kind would have each status with a new word refused, and each new field dropped without one:
it would forget what it has done, and do it again. So it waits, and does not become ready, which stops the rollout that brought
it: an older controller that leads goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from ebb.api import contract as names
from ebb.api.schema import schema_of
from ebb.api.status import Status
from ebb.kube import Denied, KubeError, NotFound

Object = Mapping[str, Any]

SCHEMA_PATH = f"/openapi/v3/apis/{names.API_VERSION}"  # of a kind's fields; every account may read it
AGAIN_SECONDS = 5.0
SHOWN = 5  # of what is missing; more is not read
log = logging.getLogger(__name__)


class ServedKind:
    """`ask` reads SCHEMA_PATH and raises KubeError."""

    def __init__(self, ask: Callable[[], Awaitable[Object]]) -> None:
        self._ask = ask
        self.problem = ""

    async def until_known(self) -> None:
        """Return when the server has all of it, or does not say what it has."""
        while self.problem_of(await self._read()):  # noqa: ASYNC110 - the kind is on another machine
            await asyncio.sleep(AGAIN_SECONDS)

    async def _read(self) -> Object:
        """The server's description of the kind; {} where it gives none."""
        while True:
            try:
                return await self._ask()
            except (Denied, NotFound) as error:
                # The kind may not be there at all: its watch says so, and waits for it.
                log.info("%s cannot be read: %s; going on without", SCHEMA_PATH, error)
                return {}
            except (KubeError, TimeoutError) as error:
                log.warning("%s: %s; trying again", SCHEMA_PATH, error or "no answer")
                await asyncio.sleep(AGAIN_SECONDS)

    def problem_of(self, described: Object) -> str:
        """Judge an OpenAPI document; said once for each state that is seen."""
        missing = lacking(described)
        before, self.problem = self.problem, _sentence(missing) if missing else ""
        if self.problem and self.problem != before:
            log.error("%s", self.problem)
        elif before and not self.problem:
            log.info("the kind %s has all that this controller writes now", names.KIND)
        return self.problem


def lacking(described: Object) -> list[str]:
    """The fields and words of a status that the served kind does not have; [] also where the document has no such kind."""
    schemas = ((described.get("components") or {}).get("schemas") or {}).values()
    served = next((item for item in schemas if _is_job(item)), None)
    if served is None:
        return []
    theirs = (served.get("properties") or {}).get("status") or {}
    return list(_missing(schema_of(Status, ""), theirs, "status"))


def _is_job(schema: Object) -> bool:
    wanted = {"group": names.GROUP, "version": names.VERSION, "kind": names.KIND}
    return wanted in (schema.get("x-kubernetes-group-version-kind") or ())


def _missing(ours: Object, theirs: Object, path: str) -> Iterator[str]:
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    words = theirs.get("enum")
    if words is not None:
        yield from (f"{path}: {word}" for word in ours.get("enum", ()) if word not in words)
    if "items" in ours:
        yield from _missing(ours["items"], theirs.get("items") or {}, f"{path}[]")
    known = theirs.get("properties") or {}
    for name, schema in (ours.get("properties") or {}).items():
        if name in known:
            yield from _missing(schema, known[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}"


def _sentence(missing: list[str]) -> str:
    shown = ", ".join(missing[:SHOWN]) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    return (
        f"the cluster's kind {names.KIND} is older than this controller and lacks {shown}. Apply this version's first: `pulumi "
        "up`, or `kubectl apply -f workloads/manifests/crd.yaml`. Until then this controller does not lead"
    )
