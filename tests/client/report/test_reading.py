"""The sources of a report's figures: the job's folder, its status, its record; what is said when one is missing."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ebb.api.clock import stamp
from ebb.api.platform import parse
from ebb.api.spec import Job
from ebb.client import Ebb, Missing, NoPlatform
from ebb.client.files.transfer import gateway
from ebb.client.report import GONE, RunReport, SweepReport, make
from ebb.client.report.reading import Reading, read_lines
from ebb.client.sweep.view import ANNOTATION_COMMAND, ANNOTATION_POINT, LABEL_SWEEP
from ebb.controller.reconciler.containers import output_dir
from ebb.controller.reconciler.records import DELETED, record
from ebb.elastic.runtime.metrics import Progress
from ebb.elastic.runtime.report import sentence
from ebb.kube import Object, Unreachable
from tests.cli.world import NS, FakeKube, platform_json, worker_pod
from tests.client.report import story
from tests.client.report.volume import Volume
from tests.reached import ebb_of, reached

LINES = story.text(story.metric_lines())


def closed(_: Ebb) -> AbstractAsyncContextManager[Volume]:
    @asynccontextmanager
    async def opening() -> AsyncIterator[Volume]:
        raise NoPlatform("the platform's gateway does not run in elastic-job")
        yield

    return opening()


def ebb(*objects: Object) -> Ebb:
    platform = parse({"schema": "1", "platform.json": json.dumps(platform_json())})
    return Ebb(kube=FakeKube(*objects), platform=platform, namespace=NS)


def folder(job: Object) -> str:
    """As the controller gives it to the workers."""
    return output_dir(Job.of(job))


async def reported(
    place: Ebb, open_files: Callable[[Ebb], AbstractAsyncContextManager[Volume]], name: str = "digits"
) -> RunReport:
    found = await make(place, name, open_files=open_files)
    assert isinstance(found, RunReport)
    return found


async def test_the_metric_lines_of_the_jobs_folder() -> None:
    job = story.job()
    found = await reported(ebb(job), Volume({f"{folder(job)}/metrics.jsonl": LINES}).open)
    assert (found.source, found.notes) == ("metrics.jsonl of the job's folder", ())
    assert found.lines == LINES.count(b"\n")
    assert found.points[-1].step == json.loads(LINES.splitlines()[-1])["step"]
    assert found.goodput == pytest.approx(317.6 / 346.0, abs=0.01)


async def test_pieces_end_anywhere_and_the_last_line_may_be_on_its_way() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in LINES[:5000]:
            yield bytes([byte])

    found = await read_lines(pieces())
    assert (found.lines, found.unreadable) == (LINES[:5000].count(b"\n"), 0)


@pytest.mark.parametrize(
    "open_files", [Volume({f"{folder(story.job())}/metrics.jsonl": LINES}).open, closed], ids=["folder", "none"]
)
async def test_a_run_whose_log_is_empty_has_the_same_figures(
    open_files: Callable[[Ebb], AbstractAsyncContextManager[Volume]],
) -> None:
    """The sentences of rank 0 are in the metrics too, and no figure is taken back out of its words."""
    lines = [Progress(**line) for line in story.metric_lines()]
    full = [f"{stamp(line.time, digits=6)} {sentence(line)}" for line in lines]
    reports = []
    for log in ([], full):
        pod, place = worker_pod(0, state="terminated"), ebb(story.job())
        place.kube.put(pod)  # type: ignore[attr-defined]
        place.kube.write(pod, *log)  # type: ignore[attr-defined]
        reports.append(await reported(place, open_files))
    assert reports[0] == reports[1]


async def test_without_a_gateway_there_is_the_status() -> None:
    found = await reported(ebb(story.job()), closed)
    assert found.source == "the job's status"
    assert "gateway does not run" in found.notes[0]
    assert "no curves" in found.notes[1]
    assert (found.points, found.times.useful) == ((), None)
    assert [event.what for event in found.events] == ["placed", "reclaimed", "placed", "ended"]
    assert found.money[-1].usd_spent == 0.0185


async def test_a_program_that_writes_no_lines() -> None:
    found = await reported(ebb(story.job()), Volume({}).open)
    said = "The job has written no metrics.jsonl: no step was reported so far, by Ebb's loop, ebb.log() or --progress-regex."
    assert found.notes[0] == said


async def test_a_file_that_breaks_off_is_not_half_a_report() -> None:
    job = story.job()
    volume = Volume({f"{folder(job)}/metrics.jsonl": LINES}, fails=Unreachable("the gateway does not answer"))
    found = await reported(ebb(job), volume.open)
    assert found.points == ()
    assert found.notes[0] == "The job's folder could not be read: the gateway does not answer."


async def test_a_deleted_job_by_its_record() -> None:
    job = story.job()
    read = Job.of(job)
    kept = record(read, read.status, story.BEGIN + 182)
    found = await reported(ebb(kept), Volume({f"{folder(job)}/metrics.jsonl": LINES}).open)
    assert (found.job.state, found.job.reclaims, found.job.usd_spent) == ("finished", 1, 0.0185)
    assert found.lines == LINES.count(b"\n")
    assert found.times.total == 182.0
    assert found.notes == (GONE,)


async def test_what_was_deleted_while_it_ran_ends_there() -> None:
    job = story.job(state="Running", completionTime=None)
    read = Job.of(job)
    found = await reported(ebb(record(read, read.status, story.BEGIN + 182, DELETED)), closed)
    assert (found.job.state, found.times.total) == ("stopped", 182.0)


async def test_the_newest_record_of_a_name_counts() -> None:
    records = []
    for number, end in enumerate((50.0, 182.0)):
        read = Job.of(story.job(end=end))
        kept = record(replace(read, uid=f"{number}2345678-x"), read.status, story.BEGIN + end)
        records.append(kept)
    found = await reported(ebb(*records), closed)
    assert found.times.total == 182.0


async def test_no_job_and_no_record_is_missing() -> None:
    with pytest.raises(Missing, match="no job named 'other' in elastic-job"):
        await make(ebb(story.job()), "other", open_files=closed)


async def test_a_sweep_reads_all_runs_through_one_gateway() -> None:
    jobs = []
    for rate in ("0.1", "0.01"):
        job = story.job(f"scan-{rate.replace('.', '')}")
        job["metadata"]["uid"] = f"{rate}-abcdefgh"
        job["metadata"]["labels"] = {LABEL_SWEEP: "scan"}
        job["metadata"]["annotations"] = {
            ANNOTATION_POINT: json.dumps({"lr": rate}),
            ANNOTATION_COMMAND: f"ebb submit --lr {rate}",
        }
        jobs.append(job)
    worse = story.text({**line, "loss": line["loss"] + 1} for line in story.metric_lines())
    volume = Volume({f"{folder(jobs[0])}/metrics.jsonl": worse, f"{folder(jobs[1])}/metrics.jsonl": LINES})
    found = await make(ebb(*jobs), "scan", open_files=volume.open)
    assert isinstance(found, SweepReport)
    assert [(run.settings, run.command) for run in found.runs] == [
        ("lr=0.01", "ebb submit --lr 0.01"),
        ("lr=0.1", "ebb submit --lr 0.1"),
    ]
    assert (found.best, volume.opened, found.notes) == ("scan-001", 1, ())
    assert [round(run.last_loss or 0) for run in found.runs] == [0, 1]
    record_of = json.loads(json.dumps(asdict(found), allow_nan=False))  # what `-o json` prints
    assert list(record_of) == ["name", "namespace", "best", "runs", "metric", "mode"]
    assert list(record_of["runs"][0]) == ["job", "settings", "command", "report", "last_loss", "value", "step"]


async def test_a_real_gateway_over_real_streams(tmp_path: Path) -> None:
    """Its volumes are folders of the test, so the job says where its own is."""
    job = story.job()
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "EBB_OUTPUT_DIR", "value": f"{tmp_path}/output/digits"}]
    async with reached(tmp_path) as kube:
        reading = Reading(ebb_of(kube), gateway)
        async with reading.opened():
            assert (await reading.of(job)).notes[0].startswith("The job has written no metrics.jsonl")
        (tmp_path / "output" / "digits").mkdir()
        (tmp_path / "output" / "digits" / "metrics.jsonl").write_bytes(LINES + b'{"time": 1')
        async with reading.opened():
            found = await reading.of(job)
    assert (found.source, found.notes) == ("metrics.jsonl of the job's folder", ())
    assert (found.training.lines, found.training.unreadable) == (LINES.count(b"\n"), 0)
