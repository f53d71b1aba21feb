"""Runs the controller: `python -m ebb.controller`, in a pod by its service account, elsewhere by a kubeconfig.

    python -m ebb.controller --kubeconfig ~/.kube/config --listen 127.0.0.1:8080

It watches from the beginning, and acts while it holds the Lease, until it is told to stop or loses it. Exit codes: 0 told to stop
(SIGTERM, SIGINT), 1 leadership lost or an error: whoever started it starts it again. /metrics, /healthz (start it again?) and
/readyz (does it act, or could it?) are served from the beginning.
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from ebb.api import json_logs as logs
from ebb.api.contract import LAUNCHER_PORT
from ebb.api.platform import NAMESPACE
from ebb.api.usage import JOB_DAYS as LEAST_DAYS
from ebb.controller.controller import Controller
from ebb.controller.election import Election, LeadershipLost
from ebb.controller.etcd.alarm import EtcdAlarms, http_ask
from ebb.controller.etcd.legacy import http_send
from ebb.controller.job_metrics import show_jobs
from ebb.controller.metrics import HELP, JOBS, LEADS, Health, Metrics, by_state, show_process
from ebb.controller.node_heartbeats import LEAST_SECONDS, RENEWAL_SECONDS
from ebb.controller.record_retention import KEPT_DAYS
from ebb.controller.scraper import http_fetch
from ebb.controller.served_kind import SCHEMA_PATH, ServedKind
from ebb.controller.webhook import Webhook
from ebb.kube import Kube, KubeconfigError

LEASE = "ebb-controller"
log = logging.getLogger("workloads")


@dataclass(frozen=True, kw_only=True)
class ControllerSettings:
    """The command line and the environment."""

    kubeconfig: str | None
    namespace: str
    host: str
    port: int
    silent_after: float | None
    webhook: Path | None  # the file with the address that notifications go to
    record_days: float
    etcd: str  # "": its alarms are not watched
    identity: str
    log_format: str
    verbose: bool


def read_settings(arguments: Sequence[str]) -> ControllerSettings:
    """The only reader of argv and the environment."""
    parser = argparse.ArgumentParser(prog="python -m ebb.controller", description="The ElasticJob controller of Ebb.")
    parser.add_argument("--kubeconfig", help="default: the pod's service account, else $KUBECONFIG or ~/.kube/config")
    parser.add_argument("--namespace", default=NAMESPACE, help="where the Lease is (default: %(default)s)")
    parser.add_argument("--listen", default=":8080", metavar="HOST:PORT", help="for /metrics and probes (default: %(default)s)")
    parser.add_argument(
        "--etcd", default="", metavar="http://HOST:PORT", help="watch this etcd's alarms, by its metrics address (default: none)"
    )
    parser.add_argument(
        "--webhook-file",
        type=Path,
        metavar="FILE",
        help="send notifications to the address in this file (default: none)",
    )
    parser.add_argument(
        "--silent-after",
        type=float,
        default=None,
        metavar="SECONDS",
        help=f"without a sign of life from a machine, before its workers are replaced (default: {LEAST_SECONDS:g})",
    )
    parser.add_argument(
        "--keep-records",
        type=float,
        default=KEPT_DAYS,
        metavar="DAYS",
        help="how long the record of what an ended job cost is kept (default: %(default)s)",
    )
    parser.add_argument("--log-format", choices=logs.FORMATS, default=None, help="default: text on a terminal, else json")
    parser.add_argument("--verbose", action="store_true", help="log every retry")
    given = parser.parse_args(arguments)
    host, _, port = given.listen.rpartition(":")
    if not port.isdecimal():
        parser.error(f"--listen {given.listen!r} is not HOST:PORT: use for example 127.0.0.1:8080")
    if given.etcd and not given.etcd.startswith(("http://", "https://")):
        parser.error(f"--etcd {given.etcd!r} is not an address: use for example http://etcd:2381")
    if given.silent_after is not None and not given.silent_after > RENEWAL_SECONDS:
        parser.error(
            f"--silent-after {given.silent_after:g} is too short: kubelets renew every {RENEWAL_SECONDS:g} s, so use more than "
            f"that, for example {LEAST_SECONDS:g}"
        )
    if not given.keep_records >= LEAST_DAYS:
        parser.error(
            f"--keep-records {given.keep_records:g} is too short: the machine usage record has single jobs for {LEAST_DAYS} "
            f"days, so use that or more, for example {KEPT_DAYS}"
        )
    # A container that is started again in its pod takes its own lease over at once; elsewhere two processes must differ.
    identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    return ControllerSettings(
        kubeconfig=given.kubeconfig,
        namespace=given.namespace,
        host=host or "0.0.0.0",  # noqa: S104 - probes and Prometheus come from outside the pod
        port=int(port),
        silent_after=given.silent_after,
        webhook=given.webhook_file,
        record_days=given.keep_records,
        etcd=given.etcd.rstrip("/"),
        identity=identity,
        log_format=given.log_format or logs.default_format(),
        verbose=given.verbose,
    )


async def run(settings: ControllerSettings) -> None:
    """Lead, and act while leading. Raises LeadershipLost, ConfigError."""
    async with (
        Kube.connect(settings.kubeconfig) as api,
        http_fetch() as fetch,
        http_fetch(LAUNCHER_PORT) as fetch_launcher,
        http_send() as send,
        Webhook.open(settings.webhook) as webhook,
        AsyncExitStack() as opened,
    ):
        election = Election(api, settings.namespace, LEASE, identity=settings.identity, clock=time.time)
        metrics = Metrics()
        controller = Controller(
            api,
            fence=election.check,
            fetch=fetch,
            fetch_launcher=fetch_launcher,
            send=send,
            clock=time.time,
            metrics=metrics,
            receiver=webhook,
            silent_after=settings.silent_after,
            record_days=settings.record_days,
        )
        metrics.gauge(LEADS, "1 on the controller that acts.", lambda: {"": float(election.leads)})
        metrics.gauge(JOBS, HELP[JOBS], lambda: by_state(controller.cluster.jobs.objects.values()) if election.leads else {})
        show_jobs(metrics, lambda: controller.cluster.jobs.objects.values() if election.leads else (), time.time)
        show_process(metrics)
        alarm = None
        if settings.etcd:
            ask = await opened.enter_async_context(http_ask())
            cluster = controller.cluster
            alarm = EtcdAlarms(
                settings.etcd,
                ask,
                teams=lambda: [team.name for team in cluster.platform.teams] if cluster.platform else [],
                jobs=controller.unfinished,
                emit_events=controller.emit_events,
            )
            alarm.show(metrics)
        served = ServedKind(lambda: api.request("GET", SCHEMA_PATH))
        health = Health(metrics, election, time.monotonic, refuses=lambda: served.problem)
        async with _serve(settings, metrics, health):
            try:
                await lead(election, controller, alarm, served)
            finally:
                await election.release()


async def lead(election: Election, controller: Controller, alarm: EtcdAlarms | None, served: ServedKind) -> None:
    """Watch, and act once the lead is won: who began to watch then would have to list everything first. Raises LeadershipLost."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.watch())
            await served.until_known()
            await election.acquire()
            tasks.create_task(election.hold())
            tasks.create_task(controller.act())
            if alarm is not None:
                tasks.create_task(alarm.run())
    except* LeadershipLost as lost:
        raise LeadershipLost(str(lost.exceptions[0])) from lost


@asynccontextmanager
async def _serve(settings: ControllerSettings, metrics: Metrics, health: Health) -> AsyncIterator[None]:
    async def figures(_: web.Request) -> web.Response:
        return web.Response(text=metrics.text())

    async def healthz(_: web.Request) -> web.Response:
        return _verdict(health.sick())

    async def readyz(_: web.Request) -> web.Response:
        return _verdict(health.not_ready())

    app = web.Application()
    app.add_routes([web.get("/metrics", figures), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
        yield
    finally:
        await runner.cleanup()


def _verdict(complaint: str) -> web.Response:
    return web.Response(status=503, text=f"{complaint}\n") if complaint else web.Response(text="ok\n")


async def _until_told(settings: ControllerSettings) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    work = asyncio.create_task(run(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        log.info("told to stop")
        return 0
    except (LeadershipLost, KubeconfigError) as error:
        log.error("%s", error)
    except OSError as error:
        log.error("cannot serve /metrics on %s:%d: %s; choose another --listen", settings.host, settings.port, error.strerror)
    return 1


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    settings = read_settings(arguments)
    logs.set_up(settings.log_format, logging.DEBUG if settings.verbose else logging.INFO)
    return asyncio.run(_until_told(settings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
