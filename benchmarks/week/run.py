"""One whole run: starts everything, plays all scenarios, waits until nothing changes any more, compares, and sums up.

figures = await run(settings)         # raises BenchmarkError, BoxError, KubeError when it cannot be played at all
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.controller.plane import Plane
from benchmarks.week import model
from benchmarks.week.bill import Bill
from benchmarks.week.cloud import GONE, NOTICE, SILENT, Cloud, Sight
from benchmarks.week.controller import SYSTEM, Controller
from benchmarks.week.event_log import EventLog
from benchmarks.week.exits import Exits
from benchmarks.week.groups import platform_facts
from benchmarks.week.judge import Judge
from benchmarks.week.kinds import draw
from benchmarks.week.kubelets import start_kubelets
from benchmarks.week.ledger import Ledger, percentile
from benchmarks.week.play import Play, Stage
from benchmarks.week.scenarios import STALL_SECONDS
from benchmarks.week.seen import ChangeSignal, Crowd, Watched
from benchmarks.week.workers import SimulatedWorkers
from devcluster.commands import say
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, LEASES, NODES, PODS, SERVICES

NAMESPACE = "elastic-job"
SAY_SECONDS = 10.0
REST_SECONDS = 200.0  # after the last act: silent machines are found out, pods of dead ones are collected, idle ones given back
EXPLAINED = 4  # of what is not as predicted
KILL_EVERY_SECONDS = 240.0
PATIENT_SECONDS = 1.5 * STALL_SECONDS
Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WeekSettings:
    """The command line. `only`: kinds of scenarios, none for all; `checkout`: whose controller runs."""

    jobs: int
    minutes: float
    seed: int
    only: tuple[str, ...]
    checkout: Path
    folder: Path

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def patient(self) -> bool:
        """True if the run is long enough for containers that cannot start to be given up."""
        return self.seconds >= PATIENT_SECONDS


async def run(settings: WeekSettings) -> Figures:
    """The figures of the last line."""
    began = time.monotonic()
    async with AsyncExitStack() as keep:
        plane = await keep.enter_async_context(Plane.started(settings.folder))
        controller = await Controller.installed(plane, keep, settings.checkout)
        await plane.kube.create(CONFIG_MAPS, SYSTEM, platform_facts(NAMESPACE))
        await start_kubelets(plane, keep, random.Random())  # noqa: S311 - spreads addresses of runs on one machine
        await controller.start()
        week = Week(settings, plane, controller)
        await week.live()
        await week.count_services()
        week.explain()
        return week.figures() | {"wall_seconds": round(time.monotonic() - began, 1)}


class Week:
    """All parts of a run, joined."""

    def __init__(self, settings: WeekSettings, plane: Plane, controller: Controller) -> None:
        self._settings, self._plane, self._controller = settings, plane, controller
        changes, crowd = ChangeSignal(), Crowd()
        pods, nodes, jobs = (Watched(plane.kube, kind, changed=changes.notify) for kind in (PODS, NODES, ELASTIC_JOBS))
        self._sight = Sight(pods=pods, nodes=nodes, jobs=jobs, crowd=crowd, changes=changes)
        self._leases = Watched(plane.kube, LEASES, SYSTEM, changed=changes.notify)
        self._ledger = Ledger(crowd, steady=lambda: controller.presence.steady)
        self._judge, self._event_log = Judge(self._sight, self._ledger, acts_since=lambda: controller.presence.since), EventLog()
        self._bill = Bill(controller.presence.outages)
        pods.listeners += [crowd.note, self._event_log.pod, self._ledger.pod, self._judge.pod, self._bill.pod]
        nodes.listeners += [self._event_log.node, self._ledger.node, self._bill.node]
        jobs.listeners += [self._event_log.job, self._judge.job]
        self._leases.listeners += [controller.presence.lease, self._event_log.lease]
        self._simulated = SimulatedWorkers(plane.kube, self._sight, NAMESPACE)
        self._exits = Exits(plane.kube, self._sight, NAMESPACE, random.Random(settings.seed + 3))  # noqa: S311
        self._stage = Stage(
            kube=plane.kube, sight=self._sight, simulated=self._simulated, ledger=self._ledger, judge=self._judge,
            namespace=NAMESPACE,
            patient=settings.patient, patience_seconds=min(400.0, max(100.0, settings.seconds)),
        )  # fmt: skip
        rng = random.Random(settings.seed + 1)  # noqa: S311 - to be drawn again the same
        self._cloud = Cloud(plane.kube, self._sight, rng, protected=self._protected, doomed=self._doomed)
        controller.tell = self._controller_changed
        scenarios = draw(jobs=settings.jobs, seconds=settings.seconds, rng=random.Random(settings.seed), only=settings.only)  # noqa: S311
        self._plays = [Play(scenario, self._stage) for scenario in scenarios]
        self._ends = {scenario.name: model.predict(scenario, patient=settings.patient) for scenario in scenarios}

    async def live(self) -> None:
        """From the first job to the last machine given back."""
        sight, rng = self._sight, random.Random(self._settings.seed + 2)  # noqa: S311
        async with asyncio.TaskGroup() as tasks:
            watches = (sight.pods, sight.nodes, sight.jobs, self._leases)
            lasting = [tasks.create_task(one.run()) for one in watches]
            for one in watches:
                await one.listed.wait()
            begun = time.monotonic()
            misfortunes = tasks.create_task(
                self._controller.misfortunes(rng, min(KILL_EVERY_SECONDS, self._settings.seconds / 3))
            )
            lasting += [tasks.create_task(one.run()) for one in (self._simulated, self._cloud, self._exits)]
            lasting += [tasks.create_task(self._look()), tasks.create_task(self._report(begun)), misfortunes]
            await asyncio.gather(*(tasks.create_task(play.run(begun)) for play in self._plays))
            say("all is done to all jobs; waiting for what is left of them to go")
            self._cloud.kind = True
            await sight.changes.until(lambda: not self.wrong(), REST_SECONDS)
            for text in self.wrong():
                self._judge.violation(text)
            for task in lasting:
                task.cancel()

    def explain(self) -> None:
        """Print what was seen of all that is not as predicted: nobody else may have watched the run."""
        names = [text.removeprefix("machine ") for text in self._judge.violations]
        subjects = [text.split()[0].rstrip(":") for text in names]
        for subject in list(dict.fromkeys(subjects))[:EXPLAINED]:
            about = subject if any(play.scenario.name == subject for play in self._plays) else f"machine {subject}"
            print(f"--- {about}", self._event_log.of(about), sep="\n", flush=True)
        for text in self._judge.violations:
            print(f"VIOLATION {text}", flush=True)

    def _controller_changed(self, text: str) -> None:
        self._event_log.note("", text)
        self._ledger.unwatched()

    def _doomed(self, machine: str, how: str) -> None:
        self._event_log.doomed(machine, how)
        self._ledger.doomed(machine, how)

    def wrong(self) -> list[str]:
        """The differences between the cluster and the prediction."""
        return [text for play in self._plays for text in self._wrong_with(play)] + list(self._left())

    def _wrong_with(self, play: Play) -> Iterator[str]:
        scenario, end = play.scenario, self._ends[play.scenario.name]
        job, account = self._judge.last.get(play.uid), self._ledger.accounts[play.uid]
        deleted = play.uid not in self._sight.jobs.objects
        yield from model.differences(scenario, end, job, deleted=deleted, doubtful=account.doubtful)
        if account.failures != end.failures:
            yield f"{scenario.name}: {end.failures} failures of its program were planned, {account.failures} happened"
        reclaims, sure = ((job or {}).get("status") or {}).get("reclaims", 0), self._ledger.sure(play.uid)
        if not sure <= reclaims <= len(account.lost):
            yield f"{scenario.name}: {reclaims} reclaims counted, at least {sure} and at most {len(account.lost)} happened"
        usd = (((job or {}).get("status") or {}).get("cost") or {}).get("usdSpent", 0.0)
        objection = self._bill.objection(play.uid, usd) if end.state in model.AT_REST else ""
        if objection:
            yield f"{scenario.name}: {objection}"
        pods = self._sight.crowd.of(play.uid)
        stay = [one for one in pods if not one.finished] if not end.gone else pods
        if stay and end.state != model.WAITING:
            yield f"{scenario.name}: {end.state} by now, and {len(stay)} pods are left, such as {stay[0].name}"
        if end.state == model.WAITING and end.reason and pods:
            yield f"{scenario.name}: no zone fits it, and it has {len(pods)} pods"

    def _left(self) -> Iterator[str]:
        """Machines that nobody needs any more."""
        for name in self._cloud.machines:
            if all(one.finished for one in self._sight.crowd.on(name)):
                yield f"machine {name} was not given back"

    async def count_services(self) -> None:
        """Check that the services of jobs that are gone are gone as well."""
        for service in await self._plane.kube.list(SERVICES, NAMESPACE):
            owners = {owner["uid"] for owner in service["metadata"].get("ownerReferences") or ()}
            if not owners & set(self._sight.jobs.objects):
                self._judge.violation(f"Service {service['metadata']['name']} is left of a job that is gone")

    def _protected(self, machine: str) -> bool:
        return any(one.job_uid in self._stage.protected for one in self._sight.crowd.on(machine))

    async def _look(self) -> None:
        while True:
            self._judge.look()
            await self._controller.check()
            await asyncio.sleep(1)

    async def _report(self, begun: float) -> None:
        while True:
            states = Counter(model.observed(job).state for job in self._sight.jobs.objects.values())
            told = " ".join(f"{number} {state}" for state, number in sorted(states.items())) or "none"
            over, exhausted = sum(play.over for play in self._plays), " ".join(sorted(self._cloud.exhausted))
            say(
                f"{time.monotonic() - begun:5.0f} s  jobs: {told}; {over} of {len(self._plays)} done  "
                f"machines: {len(self._cloud.machines)}, {len(self._cloud.silent)} silent  exhausted: {exhausted or '-'}  "
                f"reclaims: {sum(self._cloud.reclaims.values())}  controller kills: {self._controller.kills}  "
                f"violations: {len(self._judge.violations)}"
            )
            await asyncio.sleep(SAY_SECONDS)

    def figures(self) -> Figures:
        """All but the time that it took."""
        ends = Counter(end.state for end in self._ends.values())
        quick, silent = self._ledger.seconds(NOTICE, GONE), self._ledger.seconds(SILENT)
        done = self._stage.done
        return {
            "seed": self._settings.seed,
            "jobs": len(self._plays),
            "ends": dict(sorted(ends.items())),
            "machines_booted": self._cloud.booted,
            "reclaims": sum(self._cloud.reclaims.values()),
            "reclaims_by_kind": self._cloud.reclaims,
            "workers_lost": len(self._ledger.losses),
            "sent_to_silent_machines": self._judge.sent_to_silent,
            "restarts": done["failures"],
            "scales": done["scales"],
            "suspends": done["suspends"],
            "deletes": done["deletes"],
            "undecided_failures": sum(account.doubtful for account in self._ledger.accounts.values()),
            "controller_kills": self._controller.kills,
            "controller_gave_up": self._controller.gave_up,
            "replacements_measured": len(quick),
            "replace_p50_seconds": rounded(percentile(quick, 0.5)),
            "replace_p99_seconds": rounded(percentile(quick, 0.99)),
            "gone_replace_p99_seconds": rounded(percentile(self._ledger.seconds(GONE), 0.99)),
            "silent_replacements_measured": len(silent),
            "silent_replace_p50_seconds": rounded(percentile(silent, 0.5)),
            "silent_replace_p99_seconds": rounded(percentile(silent, 0.99)),
            "controller_rss_mb": round(self._controller.rss_mb, 1),
            "violations": self._judge.violations,
            "model_agrees": not self._judge.violations,
        }


def rounded(seconds: float | None) -> float | None:
    """To hundredths."""
    return None if seconds is None else round(seconds, 2)
