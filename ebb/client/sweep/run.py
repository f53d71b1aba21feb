"""Starting a sweep and minding it. Every run is a job of its own; nothing but the jobs remembers the sweep.

    plan = Plan(name="lr-scan", request=request, points=points, max_parallel=2)
    started = await start(ebb, plan)                    # again: only what is missing
    async for seen in watch(ebb, "lr-scan", rule=Rule(fraction=0.5, after=100)):
        ...                                             # until nothing of it goes on

That at most `max_parallel` runs train at once is the jobs' own spec.group, which the controller keeps. Stopping the worst is not:
`watch` does it, as long as somebody watches.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ebb.client import change
from ebb.client.errors import BadRequest, Missing
from ebb.client.jobs.view import OVER, STOPPED, view
from ebb.client.jobs.watch import ignore, states
from ebb.client.platform.connection import Ebb
from ebb.client.staging.code import Code
from ebb.client.submission.request import Request, check, check_name, command_of
from ebb.client.submission.submit import Prepared, prepare, submit
from ebb.client.sweep.halving import HalvingRun, Rule, verdicts, with_new_rungs
from ebb.client.sweep.points import FLAGS, Point, job_name, words_of
from ebb.client.sweep.results import Finals, OpenResults, SweepMetric
from ebb.client.sweep.view import (
    ANNOTATION_COMMAND,
    ANNOTATION_POINT,
    ANNOTATION_RUNGS,
    ANNOTATION_STOPPED,
    LABEL_SWEEP,
    SweepView,
    annotations,
    sweep_view,
    value_of,
)
from ebb.kube import ELASTIC_JOBS, KubeError, NotFound, Object

AT_ONCE = 8  # requests to the API server


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Runs that a sweep starts. `request` is the job of every point but for its name and the point in its program's words."""

    name: str
    request: Request
    points: tuple[Point, ...]
    style: str = FLAGS
    max_parallel: int | None = None
    code: Code | None = None  # what packed() made of request.code, once for all

    def __post_init__(self) -> None:
        check(self.request)  # before a point is in its words: --lr 0.1 alone would look like a program
        if self.max_parallel is not None and self.max_parallel < 1:
            raise BadRequest(f"max-parallel {self.max_parallel} is too few: at least 1 run trains at once.")

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
    return tuple(_marked(prepare(ebb, plan.request_of(point), plan.code), plan, point) for point in plan.points)


async def start(ebb: Ebb, plan: SweepPlan, note: Callable[[str], None] = ignore) -> Started:
    """Submit the runs that are not there. Raises BadRequest where those that are run something else, ClientError, KubeError.

    After an error the runs that were submitted go on; the same call again submits the rest.
    """
    wanted = prepared(ebb, plan)
    found = await _jobs(ebb, plan.name)
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
    return sweep_view(name, ebb.namespace, jobs, metric=metric, finals=finals.found, notes=notes, now=_now())


async def watch(
    ebb: Ebb,
    name: str,
    *,
    metric: SweepMetric | None = None,
    rule: Rule | None = None,
    open_files: OpenResults | None = None,
    note: Callable[[str], None] = ignore,
) -> AsyncIterator[SweepView]:
    """The sweep now and after each change, until nothing of it goes on; with a rule the worst are stopped. Raises Missing.

    Runs that train have what the status says, those that have ended what their files say.
    """
    await _list_runs(ebb, name)
    mind = _Minder(ebb, rule, note) if rule else None
    finals = Finals(ebb, metric or SweepMetric(), open_files=open_files, note=note)
    async for jobs in states(ebb.kube, ELASTIC_JOBS, ebb.namespace, labels=f"{LABEL_SWEEP}={name}", on_trouble=note):
        if not jobs:
            raise Missing(f"sweep {name} was deleted.")
        await finals.read(jobs.values(), running=False)
        seen = sweep_view(name, ebb.namespace, jobs.values(), metric=metric, finals=finals.found, now=_now())
        yield seen
        if mind:
            await mind.judge(jobs.values())
        if seen.over:
            return


async def stop(ebb: Ebb, name: str, *, wait: bool = True, note: Callable[[str], None] = ignore) -> tuple[str, ...]:
    """Let all runs write a checkpoint and give their machines back; those that were stopped now. Raises Missing."""
    names = [seen.name for seen in map(view, await _list_runs(ebb, name)) if seen.state not in OVER and seen.state != STOPPED]
    if names:
        await change.stop(ebb, names, wait=wait, note=note)
    return tuple(names)


async def delete(ebb: Ebb, name: str, *, wait: bool = True, note: Callable[[str], None] = ignore) -> tuple[str, ...]:
    """Remove all runs; their output folders stay. Raises Missing."""
    names = [str(job["metadata"]["name"]) for job in await _list_runs(ebb, name)]
    return await change.delete(ebb, names, wait=wait, note=note)


class _Minder:
    """Writes down what runs have at the rungs, on the jobs themselves, and stops the worst.

    What the API server does not take now is tried again at the next state.
    """

    def __init__(self, ebb: Ebb, rule: Rule, note: Callable[[str], None]) -> None:
        self._ebb, self._rule, self._note = ebb, rule, note
        self._rungs: dict[str, dict[int, float]] = {}  # by uid: what was seen, written down or not
        self._written: dict[str, dict[int, float]] = {}  # by uid: a watch may show a job as it was before our change
        self._stopped: set[str] = set()
        self._in_trouble: set[str] = set()  # runs of which was said that a change failed

    async def judge(self, jobs: Iterable[Object]) -> None:
        jobs = list(jobs)
        runs = [await self._noted(job) for job in jobs]
        for verdict in verdicts(runs, self._rule):
            stopped = {ANNOTATION_STOPPED: verdict.because}
            if verdict.name not in self._stopped and await self._patched(verdict.name, stopped, {"suspend": True}):
                self._stopped.add(verdict.name)
                self._note(f"{verdict.name} is stopped: {verdict.because}. Continue it: ebb resume {verdict.name}")

    async def _noted(self, job: Object) -> HalvingRun:
        """The run, with its new rungs written down."""
        seen, told, uid = view(job), annotations(job), job["metadata"]["uid"]
        written = _rungs(told.get(ANNOTATION_RUNGS, "")) | self._written.get(uid, {})
        # Whoever resumed a run that was stopped as one of the worst wants it to go on.
        goes_on = seen.state not in OVER and seen.state != STOPPED and ANNOTATION_STOPPED not in told
        run = HalvingRun(
            name=seen.name,
            step=seen.step,
            value=value_of(seen, self._rule.metric),
            goes_on=goes_on,
            rungs=written | self._rungs.get(uid, {}),
        )
        rungs = with_new_rungs(run, self._rule)
        self._rungs[uid] = rungs
        if rungs != written:
            text = json.dumps({str(rung): rungs[rung] for rung in sorted(rungs)})
            if await self._patched(seen.name, {ANNOTATION_RUNGS: text}):
                self._written[uid] = rungs
        return replace(run, rungs=rungs)

    async def _patched(self, name: str, annotations: Mapping[str, str], spec: Object | None = None) -> bool:
        """Return whether the API server took it; a job that is gone did not, which is no trouble."""
        body = {"metadata": {"annotations": dict(annotations)}, **({"spec": spec} if spec else {})}
        try:
            await self._ebb.kube.patch(ELASTIC_JOBS, self._ebb.namespace, name, body)
        except NotFound:
            return False
        except KubeError as error:
            if name not in self._in_trouble:  # once, and not at every state
                self._in_trouble.add(name)
                self._note(f"{name} cannot be {'stopped' if spec else 'marked'}: {error}; trying again")
            return False
        self._in_trouble.discard(name)
        return True


def _marked(item: Prepared, plan: SweepPlan, point: Point) -> Prepared:
    """As one of the sweep."""
    assert item.request is not None
    metadata, spec = dict(item.body["metadata"]), dict(item.body["spec"])
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL_SWEEP: plan.name}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        ANNOTATION_POINT: json.dumps(dict(point.values)),
        ANNOTATION_COMMAND: command_of(item.request),
    }
    if plan.max_parallel is not None:
        spec["group"] = _group(plan)
    return replace(item, body={**item.body, "metadata": metadata, "spec": spec})


def _group(plan: SweepPlan) -> Object:
    return {"name": plan.name, "maxParallel": plan.max_parallel}


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


async def _all(requests: Iterable[Coroutine[Any, Any, object]]) -> None:
    """All of them, whatever becomes of each; then the first error is raised."""
    for answer in await asyncio.gather(*requests, return_exceptions=True):
        if isinstance(answer, BaseException):
            raise answer


async def _limit(ebb: Ebb, plan: SweepPlan, there: Iterable[Object]) -> None:
    """A new --max-parallel holds for the runs that were there too."""
    group = None if plan.max_parallel is None else _group(plan)
    for job in there:
        if view(job).state not in OVER and job["spec"].get("group") != group:
            await ebb.kube.patch(ELASTIC_JOBS, ebb.namespace, job["metadata"]["name"], {"spec": {"group": group}})


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


def _rungs(text: str) -> dict[int, float]:
    """Return what an annotation says; {} for one that somebody spoiled."""
    try:
        return {int(rung): float(value) for rung, value in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _now() -> float:
    return datetime.now(UTC).timestamp()
