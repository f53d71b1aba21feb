"""The runs of a multirun as jobs: submitted, waited for, told of. Hydra leaves modules alone whose names begin with _: only who
launches pays for importing Ebb.

    for outcome in train(settings, ["train.py"], name="train-1f0c", overrides=[["lr=0.1"], ["lr=0.01"]]): ...
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ebb import client
from ebb.api.parts import Halving
from ebb.client import sweep as sweeps
from ebb.client.errors import BadRequest
from ebb.client.jobs.view import FINISHED
from ebb.client.platform.connection import find_user
from ebb.client.staging.code import packed
from ebb.client.submission.jobfile import generated_name, request_of
from ebb.client.sweep.points import Point, job_name

from .settings import LauncherSettings

log = logging.getLogger("hydra_plugins.ebb_launcher")

_RUN_FOLDER = "hydra.run.dir=${oc.env:EBB_OUTPUT_DIR}/hydra"  # the root of a pod's file system cannot be written
_OF_JOBS = (
    "gpus",
    "min",
    "max",
    "gpu",
    "zone",
    "capacity",
    "env",
    "image",
    "shm",
    "data",
    "code",
    "priority",
    "max_cost",
    "secret",
    "registry_secret",
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a run: `failure` is "" where it finished, or was stopped early by the sweep's rule."""

    job: str
    metric: float | None
    failure: str


def train(told: LauncherSettings, words: Sequence[str], multirun: str, overrides: Sequence[Sequence[str]]) -> list[Outcome]:
    """Submit all, wait for all; `multirun` is another word for each. Raises ClientError and KubeError for what cannot be sent."""
    points = tuple(Point(values=tuple(map(_pair, each))) for each in overrides)
    plan = _plan(told, words, multirun, points)
    seen = asyncio.run(_train(told, plan))
    runs = {run.job: run for run in seen.runs}
    return [_outcome(name, runs.get(name)) for name in (job_name(plan.name, point) for point in points)]


def _plan(told: LauncherSettings, words: Sequence[str], multirun: str, points: tuple[Point, ...]) -> sweeps.SweepPlan:
    file = {key.replace("_", "-"): getattr(told, key) for key in _OF_JOBS}
    name = told.name or generated_name(words, multirun)
    once = {job_name(name, point): point for point in points}  # some sweepers ask for a point twice: one job is both
    request = request_of(file, {"name": name}, [*words, _RUN_FOLDER], suffix="")
    return sweeps.SweepPlan(
        name=request.name,
        request=replace(request, user=find_user()),
        points=tuple(once.values()),
        style=sweeps.HYDRA,
        max_parallel=told.max_parallel,
        halving=_rule(told),
        code=packed(Path(request.code), log.info) if request.code else None,
    )


def _rule(told: LauncherSettings) -> Halving | None:
    """The rule by which the platform stops or pauses runs; it knows their loss and rate alone. Raises BadRequest."""
    if told.stop_worst is None and told.asha is None:
        return None
    if told.after is None or (told.stop_worst is not None and told.asha is not None):
        raise BadRequest("hydra.launcher.after needs one of hydra.launcher.stop_worst and hydra.launcher.asha: give exactly two.")
    metric = told.metric if told.metric in sweeps.METRICS else "loss"
    if told.asha is not None:
        return sweeps.asha(told.asha, after=told.after, metric=metric)
    return sweeps.stop_worst(told.stop_worst or 0.0, after=told.after, metric=metric)


async def _train(told: LauncherSettings, plan: sweeps.SweepPlan) -> sweeps.SweepView:
    async with client.connect(told.kubeconfig, told.context, namespace=told.namespace, platform=told.platform) as ebb:
        started = await sweeps.start(ebb, plan, log.info)
        log.info(
            "sweep %s: %d runs are submitted, %d were there. Look: ebb sweep show %s",
            *(plan.name, len(started.submitted), len(started.there), plan.name),
        )
        try:
            return await _until_over(ebb, plan, sweeps.SweepMetric(name=told.metric))
        except asyncio.CancelledError:
            log.warning(
                "stopped waiting; the runs go on. Look: ebb sweep show %s, end: ebb sweep delete %s", plan.name, plan.name
            )
            raise


async def _until_over(ebb: client.Ebb, plan: sweeps.SweepPlan, metric: sweeps.SweepMetric) -> sweeps.SweepView:
    """Of all runs of the sweep, those of an earlier batch of Hydra's sweeper included."""
    said = ""
    async for seen in sweeps.watch(ebb, plan.name, metric=metric, note=log.warning):
        states = [run.state for run in seen.runs]
        line = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        if line != said:
            log.info("sweep %s: %s", plan.name, line)
            said = line
    return seen


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value


def _outcome(name: str, run: sweeps.RunView | None) -> Outcome:
    if run is None:
        return Outcome(job=name, metric=None, failure=f"{name} was deleted before it was over")
    if run.state == FINISHED or (run.stopped_because and run.metric is not None):  # early: what it had is its result
        return Outcome(job=name, metric=run.metric, failure="")
    why = run.stopped_because or run.detail
    said = f"{name} is {run.state}" + (f": {why}" if why else "") + f". Look: ebb logs {name}"
    return Outcome(job=name, metric=None, failure=said)
