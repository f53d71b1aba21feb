"""Runs the gateway: `python -m ebb.gateway --volume data=/mnt/data --read-only sets=/mnt/sets`.

It listens on the loopback: whoever reaches it may delete all volumes, and no option lets a pod's network in. With --metrics-port
the room on the volumes, and nothing else, is told to the pod's network.
Exit codes: 0 told to stop (SIGTERM, SIGINT), 1 it cannot serve, 2 its command line is wrong.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from ebb.api import json_logs as logs
from ebb.api.contract import GATEWAY_METRICS_PORT, GATEWAY_PORT
from ebb.gateway.app import make_app, metrics_app
from ebb.gateway.volumes import MountedVolume, Volumes

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - Prometheus comes from outside the pod
SHUTDOWN_SECONDS = 2.0  # whoever is cut off goes on where it was: nothing is worth waiting for
SHARED = 0o002  # of what is written the group may change all, as the volumes' folders say
log = logging.getLogger("ebb.gateway")


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """The command line."""

    port: int
    metrics_port: int | None  # None: no page of metrics
    volumes: tuple[MountedVolume, ...]


def read_settings(arguments: Sequence[str]) -> GatewaySettings:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(prog="python -m ebb.gateway", description="Files of the jobs' volumes over HTTP.")
    parser.add_argument("--port", default=str(GATEWAY_PORT), help="of the loopback; 0: any free one (default: %(default)s)")
    parser.add_argument("--metrics-port", default="", help="of the pod, for Prometheus; 0: any free one (default: none)")
    parser.add_argument("--volume", action="append", default=[], metavar="NAME=PATH", help="may be repeated")
    parser.add_argument("--read-only", action="append", default=[], metavar="NAME=PATH", help="a volume that nobody changes")
    given = parser.parse_args(arguments)
    for option, value, example in (
        ("--port", given.port, GATEWAY_PORT),
        ("--metrics-port", given.metrics_port or "0", GATEWAY_METRICS_PORT),
    ):
        if not value.isdecimal() or int(value) > 65535:
            parser.error(f"{option} {value!r} is not a port: use 0 to 65535, for example {example}")
    volumes = []
    for text, read_only in [(one, False) for one in given.volume] + [(one, True) for one in given.read_only]:
        name, _, path = text.partition("=")
        if not name or not path.startswith("/"):
            parser.error(f"volume {text!r} is not NAME=PATH: use for example data=/mnt/data")
        volumes.append(MountedVolume(name=name, path=Path(path), read_only=read_only))
    if not volumes:
        parser.error("no volume: give --volume NAME=PATH")
    metrics_port = int(given.metrics_port) if given.metrics_port else None
    return GatewaySettings(port=int(given.port), metrics_port=metrics_port, volumes=tuple(volumes))


@asynccontextmanager
async def listening(settings: GatewaySettings) -> AsyncIterator[int]:
    """Answer on a port of the loopback while the block runs. Raises OSError if it cannot listen."""
    async with _serving(make_app(Volumes(settings.volumes)), LOOPBACK, settings.port) as port:
        yield port


@asynccontextmanager
async def telling(settings: GatewaySettings) -> AsyncIterator[int | None]:
    """Answer Prometheus on a port of the pod while the block runs, if asked to. Raises OSError if it cannot listen."""
    if settings.metrics_port is None:
        yield None
        return
    async with _serving(metrics_app(Volumes(settings.volumes)), EVERYWHERE, settings.metrics_port) as port:
        yield port


@asynccontextmanager
async def _serving(app: web.Application, host: str, port: int) -> AsyncIterator[int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def serve(settings: GatewaySettings) -> None:
    """Until SIGTERM or SIGINT. Raises OSError if it cannot listen."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    async with listening(settings) as port, telling(settings):
        log.info("serving %s on %s:%d", ", ".join(str(one.path) for one in settings.volumes), LOOPBACK, port)
        await told.wait()
        log.info("told to stop")


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    settings = read_settings(arguments)
    logs.set_up(logs.default_format(), logging.INFO)
    os.umask(SHARED)
    try:
        asyncio.run(serve(settings))
    except OSError as error:
        ports = f"{LOOPBACK}:{settings.port}" + (f" and *:{settings.metrics_port}" if settings.metrics_port else "")
        log.error("cannot serve on %s: %s; choose another --port or --metrics-port", ports, error.strerror)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
