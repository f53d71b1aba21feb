"""Results of runs: their own files once they have ended, any metric, and one winner for the table and the report."""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ebb.api.platform import parse
from ebb.client import BadRequest, Ebb, NoPlatform
from ebb.client.jobs.view import view
from ebb.client.logs.sources import job_folder
from ebb.client.report import SweepReport, make
from ebb.client.report.page import sweep_page
from ebb.client.sweep import SweepMetric, metric_of, show, watch
from ebb.client.sweep.results import TAIL_BYTES, FinalFigures, best_of, score_of
from ebb.client.sweep.view import ANNOTATION_POINT, LABEL_SWEEP
from ebb.kube import Object
from tests.cli.world import FakeKube, elastic_job, platform_json
from tests.client.report.volume import Volume
from tests.reached import ebb_of, reached

NS = "elastic-job"
LOSS, ACCURACY = SweepMetric(), SweepMetric(name="val_acc", more_is_better=True)


def ebb(*jobs: Object) -> Ebb:
    platform = parse({"schema": "1", "platform.json": json.dumps(platform_json())})
    return Ebb(kube=FakeKube(*jobs), platform=platform, namespace=NS)


def run(number: int, *, state: str = "Succeeded", **progress: Any) -> Object:
    job = elastic_job(f"scan-{number}", state=state, progress={"step": 44, "totalSteps": 47, **progress})
    job["metadata"]["uid"] = f"{number:08}-uid"
    job["metadata"]["labels"] = {LABEL_SWEEP: "scan"}
    job["metadata"]["annotations"] = {ANNOTATION_POINT: json.dumps({"lr": str(number)})}
    return job


def lines(*rows: Mapping[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def line(step: int, **facts: Any) -> dict[str, Any]:
    return {"time": 1_800_000_000.0 + step, "step": step, "useful_seconds": float(step), "world_size": 1, **facts}


def volume(jobs: list[Object], **files: list[bytes]) -> Volume:
    """`metrics`, `result`, `validations`: of each job in their order."""
    names = {"metrics": "metrics.jsonl", "result": "result.json", "validations": "validations.jsonl"}
    found: dict[str, bytes] = {}
    for key, contents in files.items():
        found |= {f"{job_folder(job)}/{names[key]}": content for job, content in zip(jobs, contents, strict=True)}
    return Volume(found)


async def both(place: Ebb, files: Volume, metric: SweepMetric) -> tuple[str, list[float | None], SweepReport]:
    """The winner and the values of the table, after the report was held to be of one mind with it."""
    seen = await show(place, "scan", metric=metric, open_files=files.open)
    report = await make(place, "scan", metric=metric, open_files=files.open)
    assert isinstance(report, SweepReport)
    assert report.best == seen.best
    assert [each.value for each in report.runs] == [each.metric for each in seen.runs]
    assert [each.step for each in report.runs] == [each.step for each in seen.runs]
    return seen.best, [each.metric for each in seen.runs], report


async def test_a_run_that_has_ended_counts_as_its_last_line_says() -> None:
    """The platform saw the first as the better one, three steps before the end; the mean of a point would say so too."""
    jobs = [run(1, loss=0.2), run(2, loss=0.3)]
    first = lines(line(10, loss=0.1), line(44, loss=0.2), line(47, loss=0.5))
    second = lines(line(10, loss=9.0), line(44, loss=0.3), line(47, loss=0.4))
    place, files = ebb(*jobs), volume(jobs, metrics=[first, second])
    best, values, report = await both(place, files, LOSS)
    assert (best, values, [each.step for each in report.runs]) == ("scan-2", [0.5, 0.4], [47, 47])
    seen = await show(place, "scan", open_files=files.open)
    assert {each.source for each in seen.runs} == {"metrics.jsonl"}


async def test_a_run_that_chose_its_point_says_it_in_its_file() -> None:
    """One that has not begun has none yet, and is not asked."""
    jobs = [run(1, loss=0.2), run(2, loss=0.3), run(3, state="Waiting")]
    jobs[2]["status"].pop("progress")
    for number, job in enumerate(jobs, 1):
        job["metadata"]["annotations"] = {"ebb.dev/sweep-study": f"/mnt/output/.ebb/sweeps/{number:03}.json"}
    files = volume(jobs, metrics=[lines(line(47, loss=0.2)), lines(line(47, loss=0.1)), b""])
    files.files["/mnt/output/.ebb/sweeps/001.json"] = b'{"number": 1, "point": {"lr": "0.5"}, "finished": true, "value": 0.2}'
    files.files["/mnt/output/.ebb/sweeps/002.json"] = b'{"number": 2, "point": {"lr": "0.25"}}'
    files.files["/mnt/output/.ebb/sweeps/003.json"] = b'{"number": 3, "point": {"lr": "9"}}'
    best, _, report = await both(ebb(*jobs), files, LOSS)
    assert best == "scan-2"
    assert {each.job: each.settings for each in report.runs} == {"scan-1": "lr=0.5", "scan-2": "lr=0.25", "scan-3": "scan-3"}


async def test_a_run_that_trains_counts_as_its_status_says() -> None:
    jobs = [run(1, state="Running", loss=0.2), run(2, loss=0.3)]
    files = volume(jobs, metrics=[lines(line(46, loss=9.0)), lines(line(47, loss=0.1))])
    best, values, report = await both(ebb(*jobs), files, LOSS)
    assert (best, values, [each.step for each in report.runs]) == ("scan-2", [0.2, 0.1], [44, 47])


@pytest.mark.parametrize("state", ["Failed", "Suspended"])
async def test_a_run_that_failed_or_was_stopped_has_its_files_too(state: str) -> None:
    jobs = [run(1, state=state, loss=0.2), run(2, loss=0.15)]
    best, values, _ = await both(ebb(*jobs), volume(jobs, metrics=[lines(line(45, loss=0.1)), lines(line(47, loss=0.15))]), LOSS)
    assert (best, values) == ("scan-1", [0.1, 0.15])


async def test_more_samples_a_second_are_better() -> None:
    jobs = [run(1, samplesPerSecond=9.0), run(2, samplesPerSecond=8.0)]
    rates = [lines(line(47, samples_per_second=5.0)), lines(line(47, samples_per_second=6.0))]
    assert (await both(ebb(*jobs), volume(jobs, metrics=rates), metric_of("samples_per_second")))[:2] == ("scan-2", [5.0, 6.0])


PLACES: dict[str, dict[str, list[bytes]]] = {
    "the result": {"result": [b'{\n "val_acc": 0.8,\n "step": 47\n}\n', b'{"val_acc": 0.9}\n']},
    "the last validation that has it": {
        "validations": [
            lines({"step": 20, "val_acc": 0.95}, {"step": 47, "val_acc": 0.8}, {"step": 47, "top5": 1}),
            lines({"step": 20, "val_acc": 0.1}, {"step": 47, "val_acc": 0.9}),
        ]
    },
    "the figures of the last line": {
        "metrics": [
            lines(line(46, figures={"val_acc": 1.0}), line(47, figures={"val_acc": 0.8})),
            lines(line(47, figures={"val_acc": 0.9})),
        ]
    },
    "the result before the others": {
        "result": [b'{"val_acc": 0.8}', b'{"val_acc": 0.9}'],
        "validations": [lines({"val_acc": 1.0}), lines({"val_acc": 0.0})],
    },
}  # fmt: skip


@pytest.mark.parametrize("files", PLACES.values(), ids=PLACES)
async def test_any_metric_that_the_program_writes(files: dict[str, list[bytes]]) -> None:
    jobs = [run(1, loss=0.1), run(2, loss=0.2)]
    best, values, report = await both(ebb(*jobs), volume(jobs, **files), ACCURACY)
    assert (best, values) == ("scan-2", [0.8, 0.9])
    assert "Best val_acc" in sweep_page(report, made="2026-11-21T12:00:00Z")
    least = SweepMetric(name="val_acc")
    assert (await both(ebb(*jobs), volume(jobs, **files), least))[0] == "scan-1"


async def test_a_run_that_trains_has_a_metric_of_its_own_in_its_files_alone() -> None:
    jobs = [run(1, state="Running", loss=0.1), run(2)]
    files = volume(jobs, validations=[lines({"step": 20, "val_acc": 0.7}), lines({"step": 47, "val_acc": 0.6})])
    assert (await both(ebb(*jobs), files, ACCURACY))[:2] == ("scan-1", [0.7, 0.6])


async def test_what_is_no_number_is_no_winner_and_the_status_does_not_stand_in() -> None:
    """A run that diverged after the platform had last looked."""
    jobs = [run(1, loss=0.1), run(2, loss=0.2), run(3)]
    files = volume(jobs, metrics=[lines(line(47, loss=float("nan"))), lines(line(47, loss=0.3)), b""])
    assert (await both(ebb(*jobs), files, LOSS))[:2] == ("scan-2", [None, 0.3, None])


async def test_a_cut_or_foreign_line_is_passed_over() -> None:
    jobs = [run(1)]
    content = lines(line(47, loss=0.3)) + b"[1]\n" + b'{"step": 48, "lo'
    assert (await both(ebb(*jobs), volume(jobs, metrics=[content]), LOSS))[1] == [0.3]


async def test_of_a_long_file_the_end_is_read() -> None:
    jobs = [run(1)]
    files = volume(jobs, metrics=[lines(*(line(step, loss=1 / step) for step in range(1, 5001)))])
    seen = await show(ebb(*jobs), "scan", open_files=files.open)
    assert (seen.runs[0].metric, seen.runs[0].step) == (1 / 5000, 5000)
    assert files.bytes_read <= TAIL_BYTES < len(files.files[f"{job_folder(jobs[0])}/metrics.jsonl"])


async def test_the_end_of_a_file_through_a_real_gateway(tmp_path: Path) -> None:
    """Its volumes are folders of the test, so the job says where its own is."""
    job, folder = run(1, loss=9.0), tmp_path / "output" / "scan-1"
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "EBB_OUTPUT_DIR", "value": str(folder)}]
    async with reached(tmp_path, job) as kube:
        assert (await show(ebb_of(kube), "scan")).runs[0].source == "status"
        folder.mkdir()
        (folder / "metrics.jsonl").write_bytes(lines(*(line(step, loss=1 / step) for step in range(1, 5001))))
        (folder / "result.json").write_text('{\n "val_acc": 0.75\n}\n')
        place = ebb_of(kube)
        assert [(each.metric, each.step) for each in (await show(place, "scan")).runs] == [(1 / 5000, 5000)]
        assert (await show(place, "scan", metric=ACCURACY)).runs[0].metric == 0.75


def closed(_: Ebb) -> AbstractAsyncContextManager[Volume]:
    @asynccontextmanager
    async def opening() -> Any:
        raise NoPlatform("the platform's gateway does not run in elastic-job.")
        yield

    return opening()


async def test_without_files_the_status_counts_and_that_is_said() -> None:
    jobs = [run(1, loss=0.2), run(2, loss=0.1)]
    seen = await show(ebb(*jobs), "scan", open_files=closed)
    assert (seen.best, [each.source for each in seen.runs]) == ("scan-2", ["status", "status"])
    (note,) = seen.notes
    assert note.startswith("the runs' files cannot be read, so the values are the last that the platform saw: the platform's")


async def test_a_sweep_that_trains_opens_nothing() -> None:
    files = Volume({})
    await show(ebb(run(1, state="Running", loss=0.2)), "scan", open_files=files.open)
    assert files.opened == 0


async def test_a_watch_reads_each_run_once_and_ends_with_the_winner() -> None:
    jobs = [run(1, loss=0.2), run(2, state="Running", loss=0.1)]
    files = volume(jobs, metrics=[lines(line(47, loss=0.3)), lines(line(47, loss=0.4))])
    place = ebb(*jobs)
    assert isinstance(place.kube, FakeKube)
    found = []
    async for seen in watch(place, "scan", open_files=files.open):
        found.append((seen.best, [each.metric for each in seen.runs], files.opened))
        if len(found) == 1:
            place.kube.put(run(2, state="Running", loss=0.05))
        elif len(found) == 2:
            place.kube.put(run(2, loss=0.05))
    assert found == [("scan-2", [0.3, 0.1], 1), ("scan-2", [0.3, 0.05], 1), ("scan-1", [0.3, 0.4], 2)]


async def test_a_run_that_was_resumed_is_read_again() -> None:
    files = volume([run(1)], metrics=[lines(line(20, loss=0.5))])
    place = ebb(run(1, state="Suspended"), run(2, state="Running"))
    assert isinstance(place.kube, FakeKube)
    values = []
    async for seen in watch(place, "scan", open_files=files.open):
        values.append(seen.runs[0].metric)
        if len(values) == 1:
            place.kube.put(run(1, state="Running", loss=0.4))
        elif len(values) == 2:
            files.files[f"{job_folder(run(1))}/metrics.jsonl"] += lines(line(47, loss=0.1))
            place.kube.put(run(1))
        elif len(values) == 3:
            place.kube.put(run(2))
    assert values == [0.5, 0.4, 0.1, 0.1]


def test_the_first_of_several_equals_is_the_best() -> None:
    assert best_of({"a": None, "b": 1.0, "c": 1.0}, LOSS) == "b"
    assert best_of({"a": None}, LOSS) == ""


def test_a_truth_is_no_number() -> None:
    assert FinalFigures(result={"val_acc": True}).find("val_acc") == (None, "")
    assert score_of(view(run(1, loss=0.5)), FinalFigures(line={"loss": True}), LOSS) == (0.5, "status")


MODES = {("loss", None): "min", ("samples_per_second", None): "max", ("loss", "max"): "max", ("val_acc", "max"): "max"}


@pytest.mark.parametrize(("asked", "mode"), MODES.items(), ids=map(str, MODES))
def test_which_value_is_the_best(asked: tuple[str, str | None], mode: str) -> None:
    assert metric_of(*asked).mode == mode


REFUSED = {
    ("val_acc", None): "with --mode max or --mode min",
    ("loss", "best"): "mode 'best' is unknown",
    ("", "min"): "metric is",
}


@pytest.mark.parametrize(("asked", "sentence"), REFUSED.items(), ids=map(str, REFUSED))
def test_what_nobody_can_rank_by(asked: tuple[str, str | None], sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        metric_of(*asked)
