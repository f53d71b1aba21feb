"""Figures of single jobs on the controller's page."""

from typing import Any

from ebb.api.clock import stamp
from ebb.controller.job_metrics import show_jobs
from ebb.controller.metrics import Metrics, samples

NOW = 1_800_000_000.0


def job(name: str = "digits", *, spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    written = spec if spec is not None else {"minReplicas": 2, "replicaSpecs": {"Worker": {"replicas": 4}}}
    return {"metadata": {"namespace": "elastic-job", "name": name}, "spec": written, "status": status}


def told(*jobs: dict[str, Any], name: str, now: float = NOW) -> list[tuple[dict[str, str], float]]:
    metrics = Metrics()
    show_jobs(metrics, lambda: jobs, lambda: now)
    return samples(metrics.text(), name)


def of_one(name: str, value: dict[str, Any], now: float = NOW) -> float:
    ((_, found),) = told(value, name=name, now=now)
    return found


def test_workers_beside_the_least_that_it_trains_with() -> None:
    one = job(state="Restarting", replicaStatuses={"Worker": {"active": 1}}, reclaims=3, failures=1)
    assert told(one, name="ebb_job_workers") == [({"namespace": "elastic-job", "ebb_job": "digits"}, 1)]
    assert (of_one("ebb_job_min_workers", one), of_one("ebb_job_reclaims_total", one)) == (2, 3)
    assert of_one("ebb_job_failures_total", one) == 1
    assert told(one, name="ebb_job_state") == [({"namespace": "elastic-job", "ebb_job": "digits", "state": "Restarting"}, 1)]


def test_a_job_file_without_a_least_number_needs_all_its_workers() -> None:
    assert of_one("ebb_job_min_workers", job(spec={"replicaSpecs": {"Worker": {"replicas": 4}}})) == 4
    assert of_one("ebb_job_min_workers", job(spec={})) == 0


def test_money_goes_on_between_two_statuses() -> None:
    cost = {"usdSpent": 1.5, "usdPerHour": 2.0, "usdOnDemand": 4.0, "usdOnDemandPerHour": 6.0, "at": stamp(NOW)}
    one = job(state="Running", cost=cost)
    assert (of_one("ebb_job_usd_total", one), of_one("ebb_job_usd_total", one, NOW + 1800)) == (1.5, 2.5)
    assert of_one("ebb_job_usd_on_demand_total", one, NOW + 1800) == 7.0
    assert of_one("ebb_job_usd_total", one, NOW - 60) == 1.5, "a clock that went back takes nothing away"
    assert of_one("ebb_job_usd_per_hour", one) == 2.0


def test_those_that_ended_are_no_time_series_any_more() -> None:
    jobs = [job("a", state="Succeeded"), job("b", state="Failed"), job("c", state="Suspended"), job("d")]
    assert [labels["ebb_job"] for labels, _ in told(*jobs, name="ebb_job_workers")] == ["c", "d"]
