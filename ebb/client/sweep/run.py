"""Starting a sweep and minding it. Every run is a job of its own; nothing but the jobs remembers the sweep.

    plan = Plan(name="lr-scan", request=request, points=points, max_parallel=2)
    started = await start(ebb, plan)                    # again: only what is missing
    async for seen in watch(ebb, "lr-scan"): ...        # until nothing of it goes on

What holds for the whole sweep (how many train at once, which stop early) is in each job's own spec.group, which the controller
keeps: nobody has to watch.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ebb.api.contract import REASON_SWEEP_PAUSED
from ebb.api.parts import Halving
from ebb.api.schema import encode
from ebb.client import change
from ebb.client.errors import BadRequest, Missing
from ebb.client.jobs.view import OVER, STOPPED, view
from ebb.client.jobs.watch import ignore, states
from ebb.client.platform.connection import Ebb
from ebb.client.staging.code import Code
from ebb.client.staging.delivery import find_output
from ebb.client.submission.request import Request, check, check_name, command_of
from ebb.client.submission.submit import Prepared, prepare, submit
from ebb.client.sweep.points import FLAGS, Point, job_name, words_of
from ebb.client.sweep.results import ANNOTATION_STUDY, Finals, OpenResults, SweepMetric
from ebb.client.sweep.search import ANNOTATION_SEARCH, STUDIES, Search, check_brought, environment_of, point_file
from ebb.client.sweep.view import (
    ANNOTATION_COMMAND,
    ANNOTATION_POINT,
    LABEL_SWEEP,
    SweepView,
    annotations,
    sweep_view,
)
from ebb.kube import ELASTIC_JOBS, Object

AT_ONCE = 8  # requests to the API server


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Runs that a sweep starts. `request` is the job of every point but for its name and the point in its program's words."""

    name: str
    request: Request
    points: tuple[Point, ...]
    style: str = FLAGS
    max_parallel: int | None = None
    halving: Halving | None = None
    search: Search | None = None  # where the points are yet to be chosen
    study: str = field(default_factory=lambda: secrets.token_hex(4))  # a new one has no results of an earlier sweep
    code: Code | None = None  # what packed() made of request.code, once for all

    def __post_init__(self) -> None:
        check(self.request)  # before a point is in its words: --lr 0.1 alone would look like a program
        if self.max_parallel is not None and self.max_parallel < 1:
            raise BadRequest(f"max-parallel {self.max_parallel} is too few: at least 1 run trains at once.")
        if self.search and self.halving:
            raise BadRequest("sampler learns from runs that have finished: leave --stop-worst and --asha out, or --sampler.")

    def request_of(self, point: Point) -> Request:
        """The request of one run."""
        arguments = words_of(self.request.arguments, point, self.style)
        return replace(self.request, name=job_name(self.name, point), arguments=arguments)


@dataclass(frozen=True, kw_only=True)
class Started:
    """Result of `start`: jobs that it made, and those that were there."""

    submitted: tuple[str, ...]
    there: tuple[str, ...]


def prepared(ebb: Ebb, plan: SweepPlan) -> tuple[Prepared, ...]:
    """Return what would be sent, in the order of the points. Raises BadRequest."""
    if plan.search and plan.request.image is None:
        check_brought(plan.code)
    return tuple(_marked(ebb, prepare(ebb, plan.request_of(point), plan.code), plan, point) for point in plan.points)


async def start(ebb: Ebb, plan: SweepPlan, note: Callable[[str], None] = ignore) -> Started:
    """Submit the runs that are not there. Raises BadRequest where those that are run something else, ClientError, KubeError.

    After an error the runs that were submitted go on; the same call again submits the rest.
    """
    found = await _jobs(ebb, plan.name)
    studies = [annotations(job).get(ANNOTATION_STUDY, "") for job in found]
    if study := next(filter(None, studies), ""):
        plan = replace(plan, study=study.rpartition("/")[0].rpartition("-")[2])  # its runs learn of one another
    wanted = prepared(ebb, plan)
    there = {job["metadata"]["name"]: job for job in found if not job["metadata"].get("deletionTimestamp")}  # those leave
    for item in wanted:
        _check_same(plan.name, item.body, there.get(item.body["metadata"]["name"]))
    missing = [item for item in wanted if item.body["metadata"]["name"] not in there]
    done = 0
    while done < len(missing):
        several = missing[done : done + AT_ONCE] if done else missing[:1]  # the first one brings large code for all
        await _all(submit(ebb, item.body, code=item.code, note=note) for item in several)
        done += len(several)
        if done > 1 and done < len(missing):
            note(f"{done} of {len(missing)} runs are submitted")
    await _limit(ebb, plan, there.values())
    names = [item.body["metadata"]["name"] for item in wanted]
    return Started(
        submitted=tuple(item.body["metadata"]["name"] for item in missing),
        there=tuple(name for name in names if name in there),
    )


async def show(ebb: Ebb, name: str, *, metric: SweepMetric | None = None, open_files: OpenResults | None = None) -> SweepView:
    """A sweep as it is now; runs that have ended by their own files. Raises Missing."""
    jobs, notes = await _list_runs(ebb, name), list[str]()
    finals = Finals(ebb, metric or SweepMetric(), open_files=open_files, note=notes.append)
    await finals.read(jobs)
    return sweep_view(
        name, ebb.namespace, jobs, metric=metric, finals=finals.found, points=finals.points, notes=notes, now=_now()
    )


async def watch(
    ebb: Ebb,
    name: str,
    *,
    metric: SweepMetric | None = None,
    open_files: OpenResults | None = None,
    note: Callable[[str], None] = ignore,
) -> AsyncIterator[SweepView]:
    """The sweep now and after each change, until nothing of it goes on. Raises Missing.

    Runs that train have what the status says, those that have ended what their files say.
    """
    await _list_runs(ebb, name)
    finals = Finals(ebb, metric or SweepMetric(), open_files=open_files, note=note)
    async for jobs in states(ebb.kube, ELASTIC_JOBS, ebb.namespace, labels=f"{LABEL_SWEEP}={name}", on_trouble=note):
        if not jobs:
            raise Missing(f"sweep {name} was deleted.")
        await finals.read(jobs.values(), running=False)
        seen = sweep_view(
            name, ebb.namespace, jobs.values(), metric=metric, finals=finals.found, points=finals.points, now=_now()
        )
        yield seen
        if seen.over:
            return


async def stop(ebb: Ebb, name: str, *, wait: bool = True, note: Callable[[str], None] = ignore) -> tuple[str, ...]:
    """Let all runs write a checkpoint and give their machines back; those that were stopped now. Raises Missing."""
    jobs = await _list_runs(ebb, name)
    names = [seen.name for seen, job in zip(map(view, jobs), jobs, strict=True) if _may_train(seen.state, job)]
    if names:
        await change.stop(ebb, names, wait=wait, note=note)
    return tuple(names)


async def delete(ebb: Ebb, name: str, *, wait: bool = True, note: Callable[[str], None] = ignore) -> tuple[str, ...]:
    """Remove all runs; their output folders stay. Raises Missing."""
    names = [str(job["metadata"]["name"]) for job in await _list_runs(ebb, name)]
    return await change.delete(ebb, names, wait=wait, note=note)


def _marked(ebb: Ebb, item: Prepared, plan: SweepPlan, point: Point) -> Prepared:
    """As one of the sweep."""
    assert item.request is not None
    metadata, spec = dict(item.body["metadata"]), dict(item.body["spec"])
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL_SWEEP: plan.name}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        ANNOTATION_POINT: json.dumps(dict(point.values)),
        ANNOTATION_COMMAND: command_of(item.request),
    }
    if group := _group(plan):
        spec["group"] = group
    if plan.search and point.number is not None:
        del metadata["annotations"][ANNOTATION_POINT]
        study = _study(ebb, plan)
        metadata["annotations"] |= {
            ANNOTATION_SEARCH: json.dumps(plan.search.record),
            ANNOTATION_STUDY: point_file(study, point.number),
        }
        container = spec["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        told = environment_of(plan.search, study, point.number)
        container["env"] = [*container["env"], *({"name": key, "value": value} for key, value in told.items())]
    return replace(item, body={**item.body, "metadata": metadata, "spec": spec})


def _study(ebb: Ebb, plan: SweepPlan) -> str:
    """The folder in which runs find what the others came to. Raises BadRequest where there is no volume for it."""
    if output := find_output(ebb.platform):
        return f"{output}/{STUDIES}/{ebb.namespace}/{plan.name}-{plan.study}"
    raise BadRequest("sampler needs an output volume, where runs find what the others came to; this platform has none.")


def _group(plan: SweepPlan) -> Object | None:
    """spec.group of its jobs; None: the controller has nothing to keep."""
    found = {"maxParallel": plan.max_parallel, "halving": encode(plan.halving) if plan.halving else None}
    rules = {key: value for key, value in found.items() if value is not None}
    return {"name": plan.name, **rules} if rules else None


def _check_same(sweep: str, body: Object, there: Object | None) -> None:
    """Raises BadRequest unless the job that is there is what would be sent."""
    if there is None:
        return
    found, wanted = annotations(there).get(ANNOTATION_COMMAND, ""), annotations(body)[ANNOTATION_COMMAND]
    if found != wanted:
        raise BadRequest(
            f"name {sweep!r} is a sweep of another command: its run {body['metadata']['name']} is `{found}`, and would be "
            f"`{wanted}`. Choose another --name, or remove it with `ebb sweep delete {sweep}`."
        )
    if annotations(there).get(ANNOTATION_SEARCH) != annotations(body).get(ANNOTATION_SEARCH):
        raise BadRequest(
            f"name {sweep!r} is a sweep with another sampler, seed, metric or other values: choose another --name, or remove it "
            f"with `ebb sweep delete {sweep}`."
        )


async def _all(requests: Iterable[Coroutine[Any, Any, object]]) -> None:
    """All of them, whatever becomes of each; then the first error is raised."""
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer


async def _limit(ebb: Ebb, plan: SweepPlan, there: Iterable[Object]) -> None:
    """A new --max-parallel or rule holds for the runs that were there too. One that was compared already keeps its rule, or what
    stopped at it, or was resumed in spite of it, would have to be judged anew."""
    for job in there:
        before, group = job["spec"].get("group"), _group(plan)
        if (job.get("status") or {}).get("sweep"):
            group = {"name": plan.name, "maxParallel": plan.max_parallel, "halving": (before or {}).get("halving")}
            group = {key: value for key, value in group.items() if value is not None}
        if view(job).state not in OVER and before != group:
            cleared = dict.fromkeys(before or {}) | group if group else None  # a merge leaves what is not named
            await ebb.kube.patch(ELASTIC_JOBS, ebb.namespace, job["metadata"]["name"], {"spec": {"group": cleared}})


def _may_train(state: str, job: Object) -> bool:
    """Return whether a run trains, or may without anybody's doing: one that is paused is promoted when others have stopped."""
    paused = ((job.get("status") or {}).get("hold") or {}).get("reason") == REASON_SWEEP_PAUSED
    return state not in OVER and (state != STOPPED or (paused and not job["spec"].get("suspend")))


async def _jobs(ebb: Ebb, name: str) -> list[Object]:
    return await ebb.kube.list(ELASTIC_JOBS, ebb.namespace, labels=f"{LABEL_SWEEP}={name}")


async def _list_runs(ebb: Ebb, name: str) -> list[Object]:
    check_name(name)
    if found := await _jobs(ebb, name):
        return found
    labels = [job["metadata"].get("labels") or {} for job in await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)]
    names = sorted({item[LABEL_SWEEP] for item in labels if LABEL_SWEEP in item})
    known = f"There are: {', '.join(names[:10])}{' and more' if len(names) > 10 else ''}." if names else "There are none."
    raise Missing(f"no sweep named {name!r} in {ebb.namespace}. {known}")


def _now() -> float:
    return datetime.now(UTC).timestamp()
