"""Figures of single jobs on the controller's page, for dashboards and alerts.

    show_jobs(metrics, lambda: cluster.jobs.objects.values() if election.leads else (), time.time)

They are read from the status that people see, so a new leader goes on where the old one was: sums do not begin anew. Jobs that
ended are left out, as each job is a time series for as long as it is told. The label is `ebb_job`, since `job` is Prometheus' own
word for what it scrapes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ebb.api import contract as names
from ebb.api.clock import unix
from ebb.controller.metrics import Metrics

Object = Mapping[str, Any]
Jobs = Callable[[], Iterable[Object]]
HOUR = 3600.0
JOB_STATE: Final = "ebb_job_state"
JOB_WORKERS: Final = "ebb_job_workers"
JOB_MIN_WORKERS: Final = "ebb_job_min_workers"
JOB_RECLAIMS: Final = "ebb_job_reclaims_total"
JOB_FAILURES: Final = "ebb_job_failures_total"
JOB_USD: Final = "ebb_job_usd_total"
JOB_USD_ON_DEMAND: Final = "ebb_job_usd_on_demand_total"
JOB_USD_PER_HOUR: Final = "ebb_job_usd_per_hour"


def show_jobs(metrics: Metrics, jobs: Jobs, clock: Callable[[], float]) -> None:
    """Add the figures. `jobs`: all that this controller acts on. `clock` is wall time."""

    def of_each(read: Callable[[Object, Object], float]) -> Callable[[], Mapping[str, float]]:
        return lambda: {_labels(job): read(job["spec"], job.get("status") or {}) for job in _unended(jobs())}

    def states() -> Mapping[str, float]:
        return {f'{_labels(job)},state="{_state(job)}"': 1.0 for job in _unended(jobs())}

    metrics.gauge(JOB_STATE, "1 for the state that the job is in.", states)
    metrics.gauge(JOB_WORKERS, "Workers that run.", of_each(lambda _, status: float(_workers(status))))
    metrics.gauge(JOB_MIN_WORKERS, "Workers without which the job does not train.", of_each(lambda spec, _: float(_least(spec))))
    metrics.gauge(
        JOB_RECLAIMS, "Workers lost to reclaims.", of_each(lambda _, status: float(status.get("reclaims", 0))), kind="counter"
    )
    metrics.gauge(
        JOB_FAILURES,
        "Failures of the program that were counted.",
        of_each(lambda _, status: float(status.get("failures", 0))),
        kind="counter",
    )
    for name, meaning, field in (
        (JOB_USD, "US dollars that the machines cost so far.", "usdSpent"),
        (JOB_USD_ON_DEMAND, "US dollars that they would have cost on-demand.", "usdOnDemand"),
    ):
        metrics.gauge(name, meaning, of_each(lambda _, status, field=field: _sum(status, field, clock())), kind="counter")  # type: ignore[misc]
    metrics.gauge(JOB_USD_PER_HOUR, "US dollars per hour that they cost now.", of_each(lambda _, status: _rate(status)))


def _unended(jobs: Iterable[Object]) -> list[Object]:
    return [job for job in jobs if _state(job) not in (names.SUCCEEDED, names.FAILED)]


def _state(job: Object) -> str:
    return str((job.get("status") or {}).get("state") or names.WAITING)


def _labels(job: Object) -> str:
    """Names of Kubernetes need no escape."""
    return f'namespace="{job["metadata"]["namespace"]}",ebb_job="{job["metadata"]["name"]}"'


def _workers(status: Object) -> int:
    return int(((status.get("replicaStatuses") or {}).get("Worker") or {}).get("active", 0))


def _least(spec: Object) -> int:
    """0 for a job file that cannot be understood: nothing is asked of it."""
    replicas = ((spec.get("replicaSpecs") or {}).get("Worker") or {}).get("replicas", 0)
    return int(spec.get("minReplicas") or replicas or 0)


def _rate(status: Object) -> float:
    return float((status.get("cost") or {}).get("usdPerHour", 0.0))


def _sum(status: Object, field: str, now: float) -> float:
    """Until now: what the status has, and its rate since then."""
    cost = status.get("cost") or {}
    rate = float(cost.get({"usdSpent": "usdPerHour", "usdOnDemand": "usdOnDemandPerHour"}[field], 0.0))
    return round(float(cost.get(field, 0.0)) + rate * max(0.0, now - (unix(cost.get("at")) or now)) / HOUR, 6)
