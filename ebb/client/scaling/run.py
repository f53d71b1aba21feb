"""Measuring how a program scales: a job for each number of GPUs, one after the other, through what `ebb submit` uses.

    plan = ScalingPlan(name="scaling-resnet50", sizes=(4, 8, 16), preset=PRESETS["resnet50"], data="imagenet")
    for prepared in prepare_sizes(ebb, plan).values(): ...                   # nothing is sent; BadRequest where a size cannot be
    async for report in measure(ebb, plan, say=..., note=print): ...

Nothing but the jobs remembers the measurement: each has its size in its name, and the command that started it. So the same plan
goes on where another process stopped, and a job that has finished is not run again.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ebb.client import report as reports
from ebb.client.errors import BadRequest, ClientError
from ebb.client.jobs.view import DELETING, FAILED_STATE, FINISHED, STOPPED, JobView, view
from ebb.client.jobs.watch import ignore, wait
from ebb.client.platform.connection import Ebb
from ebb.client.report.data import RunReport
from ebb.client.scaling.figures import ScalingReport, scaling_report
from ebb.client.scaling.presets import GPUS, PRESETS, Preset
from ebb.client.staging.code import packed
from ebb.client.submission.program import with_code
from ebb.client.submission.request import Request, check_name, command_of, launcher_arguments
from ebb.client.submission.submit import Prepared, prepare, submit
from ebb.client.sweep.view import ANNOTATION_COMMAND, annotations
from ebb.kube import ELASTIC_JOBS, Object

LABEL_SCALING = "ebb.dev/scaling"
MOST_GPUS = 1024

Say = Callable[[int, JobView], None]


@dataclass(frozen=True, kw_only=True)
class ScalingPlan:
    """Sizes, and the program: a preset, or `program`, in which {gpus} stands for the size. The rest is as in a Request."""

    name: str
    sizes: tuple[int, ...]
    preset: Preset | None = None
    program: tuple[str, ...] = ()
    data: str | None = None
    gpu: str | None = None
    zone: str | None = None
    capacity: str | None = None
    image: str | None = None
    user: str = ""
    folder: Path = field(default_factory=Path)  # in which an own program is looked for

    def __post_init__(self) -> None:
        check_name(self.name)
        if not self.sizes:
            raise BadRequest("gpus is empty: name the sizes to measure, as in --gpus 4,8,16.")
        for gpus in self.sizes:
            if not 1 <= gpus <= MOST_GPUS:
                raise BadRequest(f"gpus {gpus} is not from 1 to {MOST_GPUS}: name sizes such as 4,8,16.")
        if len(set(self.sizes)) < len(self.sizes):
            twice = next(gpus for gpus in self.sizes if self.sizes.count(gpus) > 1)
            raise BadRequest(f"gpus {twice} is named twice: each size is measured once.")
        if self.preset is not None and self.program:
            raise BadRequest(f"preset {self.preset.name!r} and a program are given: leave one of them out.")
        if self.preset is None and not self.program:
            raise BadRequest(f"preset is missing: use {' or '.join(PRESETS)}, or name a program, as in -- python train.py.")
        if self.preset is not None and self.data is None:
            raise BadRequest(
                f"data is missing: {self.preset.name} needs a folder of the data volume with {self.preset.data}; name it, as in "
                "--data imagenet."
            )

    @property
    def title(self) -> str:
        """The program in a few words."""
        return self.preset.title if self.preset else " ".join(self.program)

    def job_name(self, gpus: int) -> str:
        return f"{self.name}-{gpus}"

    def request_of(self, gpus: int) -> Request:
        """The request of one size, which is trained on that many GPUs or not at all."""
        words = tuple(word.replace(GPUS, str(gpus)) for word in self.program)
        request = Request(
            name=self.job_name(gpus),
            arguments=self.preset.arguments(gpus) if self.preset else launcher_arguments(words),
            gpus=gpus,
            min_gpus=gpus,
            max_gpus=gpus,
            gpu=self.gpu,
            zone=self.zone,
            capacity=self.capacity,
            image=self.image,
            data=self.data,
            user=self.user,
        )
        return with_code(request, [self.folder])


def prepare_sizes(ebb: Ebb, plan: ScalingPlan, note: Callable[[str], None] = ignore) -> dict[int, Prepared]:
    """Return what would be sent, the smallest size first. Raises BadRequest where one of them cannot be."""
    requests = {gpus: plan.request_of(gpus) for gpus in sorted(plan.sizes)}
    folder = next(iter(requests.values())).code
    code = packed(Path(folder), note) if folder else None
    return {gpus: _marked(prepare(ebb, request, code), plan) for gpus, request in requests.items()}


async def measure(
    ebb: Ebb,
    plan: ScalingPlan,
    *,
    say: Say = lambda _, __: None,
    note: Callable[[str], None] = ignore,
    open_files: reports.OpenFiles | None = None,
) -> AsyncIterator[ScalingReport]:
    """The figures so far, then again after each size that is run. `say`: what becomes of the job that runs.

    Jobs that are there are taken as they are. Raises BadRequest before anything is sent where one of them is of another command,
    or was stopped or failed; ClientError where one fails meanwhile; Missing where it is deleted; KubeError.
    """
    wanted = prepare_sizes(ebb, plan, note)
    there = await _jobs(ebb)
    for gpus, item in wanted.items():
        _check_usable(gpus, item, there.get(plan.job_name(gpus)))
    found: dict[int, RunReport] = {}
    names = {gpus: plan.job_name(gpus) for gpus in wanted}
    for gpus, job in ((gpus, there.get(name)) for gpus, name in names.items()):
        if job is not None and view(job).state == FINISHED:
            found[gpus] = await _report(ebb, names[gpus], open_files)
    yield scaling_report(plan.name, ebb.namespace, plan.title, names, found)
    for gpus, item in wanted.items():
        if gpus in found:
            continue
        if names[gpus] not in there:
            await submit(ebb, item.body, code=item.code, note=note)
        ended = await wait(ebb, names[gpus], say=partial(say, gpus), note=note)
        if ended.state == FAILED_STATE:
            raise ClientError(f"{_failed(ended.name, ended.detail)} Larger sizes were not started.")
        found[gpus] = await _report(ebb, names[gpus], open_files)
        yield scaling_report(plan.name, ebb.namespace, plan.title, names, found)


def _marked(item: Prepared, plan: ScalingPlan) -> Prepared:
    """As one of the measurement."""
    assert item.request is not None
    metadata = dict(item.body["metadata"])
    metadata["labels"] = {**(metadata.get("labels") or {}), LABEL_SCALING: plan.name}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION_COMMAND: command_of(item.request)}
    return replace(item, body={**item.body, "metadata": metadata})


def _check_usable(gpus: int, item: Prepared, job: Object | None) -> None:
    """Raises BadRequest unless the job is not there, or is what would be sent and on its way or finished."""
    if job is None:
        return
    name, wanted = job["metadata"]["name"], item.body["metadata"]["annotations"][ANNOTATION_COMMAND]
    found, state = annotations(job).get(ANNOTATION_COMMAND, ""), view(job).state
    if found != wanted:
        other = f"`{found}`" if found else "another job"
        raise BadRequest(
            f"name: {name} is there and is {other}, and for {gpus} GPUs would be `{wanted}`. Choose another --name, or remove it "
            f"with `ebb delete {name}`."
        )
    if state == FAILED_STATE:
        raise BadRequest(_failed(name, view(job).detail))
    if state == STOPPED:
        raise BadRequest(f"{name} was stopped: continue it with `ebb resume {name}`, or remove it with `ebb delete {name}`.")
    if state == DELETING:
        raise BadRequest(f"{name} is being deleted: run the same command again when it is gone.")


def _failed(name: str, detail: str) -> str:
    reason = f" ({detail.rstrip('.')})" if detail else ""
    return f"{name} failed{reason}: see `ebb logs {name}`; after `ebb delete {name}` the same command runs it again."


async def _report(ebb: Ebb, name: str, open_files: reports.OpenFiles | None) -> RunReport:
    made = await (reports.make(ebb, name, open_files=open_files) if open_files else reports.make(ebb, name))
    assert isinstance(made, RunReport)  # no sweep has a job's name that is one of its own jobs
    return made


async def _jobs(ebb: Ebb) -> Mapping[str, Object]:
    return {job["metadata"]["name"]: job for job in await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)}
