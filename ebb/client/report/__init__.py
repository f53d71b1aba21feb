"""The report of a job or a sweep: one HTML page that needs nothing else. What `ebb report` does.

    found = await make(ebb, "digits")                               # RunReport or SweepReport: plain records
    Path("digits.html").write_text(page(found, made=stamp(now)))

reading.py                  metric lines through the gateway, if they can be had
lines.py                    a million of them, reduced to some hundred points
data.py                     a job's record, and a sweep's
charts.py                   which plots, and what they say
chart.py                    one plot as HTML
page.py                     the page, with page.css and page.js
"""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ebb.api.clock import unix
from ebb.api.contract import LABEL_EBB_JOB, LABEL_RECORD
from ebb.client.errors import Missing
from ebb.client.files.transfer import gateway
from ebb.client.jobs.goodput import paid_machine_seconds
from ebb.client.jobs.view import gpus_per_worker, view
from ebb.client.platform.connection import Ebb, read_job
from ebb.client.report.data import RunOfSweep, RunReport, SweepReport, run_report, sweep_report
from ebb.client.report.lines import Training
from ebb.client.report.page import run_page, sweep_page
from ebb.client.report.reading import OpenFiles, Reading, ReportFiles
from ebb.client.sweep.results import Finals, SweepMetric
from ebb.client.sweep.view import LABEL_SWEEP, sweep_view
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Denied, NotFound, Object

__all__ = ["OpenFiles", "ReportFiles", "RunReport", "SweepReport", "make", "page", "report_of"]


GONE = "The job was deleted: what it cost is from the platform's record of it, which has no history."


async def make(
    ebb: Ebb, name: str, *, metric: SweepMetric | None = None, open_files: OpenFiles = gateway
) -> RunReport | SweepReport:
    """Of the job of that name, of a sweep, or of a deleted job of which the platform keeps a record. Raises Missing.

    `metric`: by which the runs of a sweep are compared.
    """
    now = datetime.now(UTC).timestamp()
    jobs = await ebb.kube.list(ELASTIC_JOBS, ebb.namespace, labels=f"{LABEL_SWEEP}={name}")
    async with Reading(ebb, open_files).opened() as reading:
        if jobs:
            return await _sweep(ebb, name, jobs, reading, metric or SweepMetric(), now=now)
        try:
            return await _run(await read_job(ebb.kube, ebb.namespace, name), reading, now)
        except Missing:
            if (job := await _recorded(ebb, name)) is None:
                raise
            return await _run(job, reading, now, GONE)


def page(found: RunReport | SweepReport, *, made: str) -> str:
    """HTML. `made`: when, RFC 3339."""
    return run_page(found, made=made) if isinstance(found, RunReport) else sweep_page(found, made=made)


async def _run(job: Object, reading: Reading, now: float, *notes: str) -> RunReport:
    read = await reading.of(job)
    return report_of(job, read.training, now=now, source=read.source, notes=(*notes, *read.notes))


def report_of(job: Object, training: Training, *, now: float, source: str, notes: Sequence[str] = ()) -> RunReport:
    """The report of a job and its metric lines so far. Pure."""
    status = job.get("status") or {}
    end = unix(status.get("completionTime")) or now
    return run_report(
        view(job, now),
        training,
        now=now,
        source=source,
        ranks_per_worker=int(job["spec"].get("nprocPerNode") or gpus_per_worker(job) or 1),
        paid_seconds=paid_machine_seconds(status.get("cost") or {}, end),
        notes=notes,
    )


async def _sweep(
    ebb: Ebb, name: str, jobs: Sequence[Object], reading: Reading, metric: SweepMetric, *, now: float
) -> SweepReport:
    reports = await asyncio.gather(*(_run(job, reading, now) for job in jobs))
    by_name = {found.job.name: found for found in reports}
    finals = Finals(ebb, metric, open_files=reading.again)
    await finals.read(jobs)
    losses = {run.job: run.metric for run in sweep_view(name, ebb.namespace, jobs, finals=finals.found).runs}
    seen = sweep_view(name, ebb.namespace, jobs, metric=metric, finals=finals.found, points=finals.points, now=now)
    runs = [
        RunOfSweep(
            job=run.job,
            settings=" ".join(f"{key}={value}" for key, value in run.point.items()) or run.job,
            command=run.command,
            report=by_name[run.job],
            last_loss=losses[run.job],
            value=run.metric,
            step=run.step,
        )
        for run in seen.runs
    ]
    return sweep_report(name, ebb.namespace, runs, metric)


async def _recorded(ebb: Ebb, name: str) -> Object | None:
    """A job that is gone, as far as its record goes: the newest of that name."""
    try:
        maps = await ebb.kube.list(CONFIG_MAPS, ebb.namespace, labels=f"{LABEL_RECORD}=true,{LABEL_EBB_JOB}={name[:63]}")
    except (Denied, NotFound):
        return None
    told = [json.loads(each["data"]["record.json"]) for each in maps]
    newest = max((each for each in told if each["job"] == name), key=lambda each: str(each["ended"]), default=None)
    return None if newest is None else _revived(newest)


def _revived(told: dict[str, Any]) -> Object:
    """As the job was when it ended; its history is gone with it."""
    final = told["state"] if told["state"] in ("Succeeded", "Failed") else "Suspended"
    return {
        "metadata": {
            "name": told["job"],
            "namespace": told["namespace"],
            "uid": told["uid"],
            "creationTimestamp": told["created"],
        },
        "spec": {
            "minReplicas": told["minReplicas"],
            "maxReplicas": told["maxReplicas"],
            "replicaSpecs": {"Worker": {"replicas": told["workers"]}},
        },
        "status": {
            "conditions": [{"type": final, "status": "True", "reason": told["reason"], "message": told["message"]}],
            "startTime": told["started"] or None,
            "completionTime": told["ended"],
            "placement": {"zone": told["zone"], "capacityType": told["capacityType"], "gpuType": told["gpuType"]},
            "progress": {"step": told["lastStep"], "totalSteps": told["totalSteps"]},
            "cost": {key: told[key] for key in ("usdSpent", "usdOnDemand", "machineSeconds")},
            "reclaims": told["reclaims"],
            "failures": told["failures"],
        },
    }
