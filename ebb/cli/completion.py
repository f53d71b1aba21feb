"""Completion of job names: asked of the cluster, in at most a second, and never a word when that fails.

A shell calls `ebb` for each press of the tab key and shows whatever it prints: so no note, no warning, no traceback.
"""

import asyncio
import logging
from typing import Any

import typer

LIMIT_SECONDS = 1.0


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the jobs that begin so, those that were named already left out."""
    logging.disable()  # a kubeconfig's plugin that fails is logged elsewhere
    given = _options(ctx)
    named = {name for value in ctx.params.values() if isinstance(value, list | tuple) for name in value}
    try:
        found = asyncio.run(_names(given))
    except BaseException:
        return []
    finally:
        logging.disable(logging.NOTSET)
    return [name for name in found if name.startswith(incomplete) and name not in named]


async def _names(given: dict[str, Any]) -> list[str]:
    from ebb.client.platform.ebb import connect  # noqa: PLC0415 - half of the second; nothing else of this file's users needs it
    from ebb.kube import ELASTIC_JOBS  # noqa: PLC0415

    async with asyncio.timeout(LIMIT_SECONDS), connect(**given) as ebb:
        return sorted(job["metadata"]["name"] for job in await ebb.kube.list(ELASTIC_JOBS, ebb.namespace))


def _options(ctx: typer.Context) -> dict[str, Any]:
    """What stands on the line so far, before the verb or after it."""
    found: dict[str, Any] = {"platform": ctx.meta["platform"]} if "platform" in ctx.meta else {}
    level: Any = ctx
    while level is not None:
        for name in ("kubeconfig", "context", "namespace"):
            if level.params.get(name) and name not in found:
                found[name] = level.params[name]
        level = level.parent
    return found
