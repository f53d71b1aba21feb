"""`ebb check storage`: the job that it sends, the figures that it reads, and what it says beside a job's need."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ebb.api.contract import STORAGE_LINE
from ebb.cli.app import app
from ebb.client.diagnostics.storage import StorageFigure, StorageNeed, StorageReading, judge, rate_text
from ebb.client.logs import follow
from tests.cli.test_check_network import Cluster
from tests.cli.world import FakeKube, elastic_job, session


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "RECHECK_SECONDS", 0.01)


def said(kind: str, **facts: Any) -> str:
    return f"2026-11-26T12:01:00.000000000Z {STORAGE_LINE} {json.dumps({'kind': kind, **facts})}"


def figure(operation: str, rate: float, per_second: float) -> str:
    rates = {"bytes_per_second": rate, "per_second": per_second, "least_bytes_per_second": rate / 2.5}
    return said("figure", operation=operation, bytes=int(8 * rate), operations=int(8 * per_second), **rates)


LOG = [
    "2026-11-26T12:00:59.000000000Z [launcher 12:00:59] meeting the other machines of the job",
    said("start", path="/mnt/data", machines=2, sample_bytes=110_000),
    figure("write", 300e6, 35.8),
    figure("small-write", 22e6, 200.0),
    figure("read", 1.2e9, 143.0),
    figure("small-read", 132e6, 1200.0),
    figure("random-read", 8.2e6, 2000.0),
    said("end"),
]


def invoke(*words: str, kube: FakeKube) -> Result:
    return CliRunner().invoke(app, ["check", "storage", *words], obj=session(kube), env={"COLUMNS": "80", "EBB_USER": "ada"})


def test_the_figures_stand_beside_the_need_and_the_job_is_gone() -> None:
    cluster = Cluster(LOG)
    result = invoke("--gpus", "16", "--gpu", "A100", "--samples", "1000", kube=cluster)
    assert (result.exit_code, result.exception) == (0, None), result.output
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "/mnt/data from 2 machines at once",
        "ACCESS      TOGETHER PER SECOND SLOWEST MACHINE",
        "write       300 MB/s 36         120 MB/s",
        "small-write 22 MB/s  200        8.8 MB/s",
        "read        1.2 GB/s 143        480 MB/s",
        "small-read  132 MB/s 1,200      52.8 MB/s",
        "random-read 8.2 MB/s 2,000      3.28 MB/s",
        "",
        "ok       storage      the job reads 1,000 samples/s, 110 MB/s: it gives 1,200",
        "                      files/s, and 1.2 GB/s of large ones",
    ]
    (job,) = cluster.jobs
    worker = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert worker["args"] == ["-m", "ebb.elastic.storagecheck", "/mnt/data", "--sample-bytes", "110000"]
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["ttlSecondsAfterFinished"]) == (1800, 600)
    assert len([path for method, path in cluster.sent if method == "DELETE"]) == 1
    assert "small-read (4 of 5 figures are measured)" in result.stderr


def test_a_volume_that_is_too_slow_fails_and_json_has_all_of_it() -> None:
    result = invoke(
        "--gpus", "8", "--gpu", "A100", "--samples", "5000", "--sample-bytes", "150000", "-o", "json", kube=Cluster(LOG)
    )
    found = json.loads(result.stdout)["storage"]
    assert result.exit_code == 1
    assert (found["machines"], found["needed_bytes_per_second"], found["finding"]["level"]) == (2, 750e6, "problem")
    assert [one["operation"] for one in found["figures"]] == ["write", "small-write", "read", "small-read", "random-read"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gpus", "0"], "gpus 0 is too few: use --gpus 1 or more"),
        (["--volume", "nothing"], "volume 'nothing' is none that jobs may write to: use data, output."),
        (["--samples", "0"], "samples 0 is too few: use --samples with a number above 0."),
        (["--samples", "5", "--job", "digits"], "--job and --samples both say what is needed: give one of them."),
        (["--sample-bytes", "0"], "sample-bytes 0 is too few: use --sample-bytes 1 or more."),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_sent(words: list[str], says: str) -> None:
    cluster = Cluster([])
    result = invoke(*words, kube=cluster)
    assert (result.exit_code, cluster.jobs) == (2, [])
    assert says in result.stderr


def test_the_need_may_be_that_of_a_job() -> None:
    cluster = Cluster(LOG)
    cluster.put(elastic_job("digits", progress={"samplesPerSecond": 2000.0}))
    result = invoke("--job", "digits", "--gpu", "A100", kube=cluster)
    assert "digits reads 2,000 samples/s, 220 MB/s" in " ".join(result.stdout.split())
    assert result.exit_code == 1


def figures(files: float, large: float) -> tuple[StorageFigure, ...]:
    rates = {"small-read": (files * 110e3, files), "read": (large, large / 8e6)}
    return tuple(
        StorageFigure(operation=name, bytes=1, operations=1, bytes_per_second=rate, per_second=times, least_bytes_per_second=rate)
        for name, (rate, times) in rates.items()
    )


@pytest.mark.parametrize(
    ("files", "large", "level", "fix"),
    [
        (1000.0, 1e6, "ok", ""),
        (999.0, 110e6, "problem", "Pack the data into shards once"),
        (999.0, 109e6, "problem", "Ask the platform's owner for a faster volume"),
    ],
)
def test_files_are_enough_or_shards_are_or_nothing_is(files: float, large: float, level: str, fix: str) -> None:
    found = judge(figures(files, large), StorageNeed(samples_per_second=1000.0, sample_bytes=110_000))
    assert (found.level, found.fix.startswith(fix), bool(found.fix)) == (level, True, bool(fix)), found


def test_without_a_need_nothing_is_judged() -> None:
    found = judge(figures(1.0, 1.0), None)
    assert (found.level, "--job or --samples says what a job needs" in found.text) == ("ok", True)


def test_a_reading_begins_anew_with_its_job() -> None:
    reading = StorageReading()
    assert [reading.feed(line) for line in (*LOG[:4], *LOG[1:])] == [False, *[True] * 10]
    assert (reading.done, reading.is_complete) == (5, True)


def test_rates_are_short() -> None:
    assert [rate_text(rate) for rate in (12, 999, 1e3, 12.34e6, 999.4e6, 999.9e6, 1.5e9)] == [
        *("12 B/s", "999 B/s", "1 kB/s", "12.3 MB/s", "999 MB/s", "1000 MB/s", "1.5 GB/s"),
    ]
