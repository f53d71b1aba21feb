"""A zone that runs out of machines under a job: the job goes to another one as a whole, and no sample is lost on the way. A job
that has its first workers left stays, and takes no machine from itself.

This file comes before test_platform.py, whose last tests take the platform down.
"""

import pytest

from testing import exactness
from tests.e2e.conftest import Object, Platform
from tests.e2e.test_platform import NAMESPACE, TRAINER, job, output_of, state, steps_of

pytestmark = pytest.mark.e2e
NAME = "mover"


def workers(platform: Platform) -> list[Object]:
    return list(platform.get("pods", "-n", NAMESPACE, "-l", f"job-name={NAME}")["items"])


def zones(platform: Platform) -> set[str]:
    """Where the job's pods are held to; in two zones at once it is not one job any more."""
    found = {pod["spec"]["nodeSelector"]["topology.kubernetes.io/zone"] for pod in workers(platform)}
    assert len(found) <= 1, found
    return found


def placed(platform: Platform, name: str = NAME) -> str:
    return str(job(platform, name)["status"]["placement"]["zone"])


def test_a_job_leaves_a_dry_zone_as_a_whole_and_finishes(platform: Platform) -> None:
    platform.ebb("submit", "--name", NAME, "--gpus", "2", "--gpu", "T4", "--min", "2", "--",
                 *TRAINER, "--epochs", "8", "--ledger", "--log-every", "1", "--min-step-seconds", "0.2")  # fmt: skip
    output = output_of(platform, NAME)
    platform.until("two workers train", lambda: [s for s in steps_of(output) if s["world_size"] == 2][5:])
    first, steps = placed(platform), len(steps_of(output))

    platform.box("exhaust", first)
    try:
        # One machine of two: the other worker has to leave with it.
        platform.box("reclaim", workers(platform)[0]["spec"]["nodeName"])
        second = platform.until("it is placed elsewhere", lambda: placed(platform) != first and placed(platform), seconds=60)
        platform.until("its pods are there", lambda: zones(platform) == {second})
        platform.until("it trains again", lambda: len(steps_of(output)) > steps + 5)
        platform.until("it succeeds", lambda: (zones(platform), state(platform, NAME))[1] == "Succeeded", seconds=400)
    finally:
        platform.box("restore", first)

    status = job(platform, NAME)["status"]
    assert [entry["cause"] for entry in status["history"] if entry["what"] == "placed"] == [first, second]
    assert [entry["zone"] for entry in status["dry"]] == [first]
    assert status["secondsLost"] > 0
    events = platform.get("events", "-n", NAMESPACE, "--field-selector", f"reason=Moved,involvedObject.name={NAME}")["items"]
    assert [f"from {first} (spot T4) to {second} (spot T4)" in event["message"] for event in events] == [True]
    assert exactness.check(output).samples_lost == 0
    platform.ebb("delete", NAME)
    platform.until("all spot machines leave", lambda: not platform.nodes())


def test_a_lost_first_worker_costs_its_job_no_second_one(platform: Platform) -> None:
    """There is no machine for the replacement but that of the job's own elastic worker."""
    name = "selfless"
    platform.ebb("submit", "--name", name, "--gpus", "3", "--gpu", "T4", "--min", "2", "--",
                 *TRAINER, "--epochs", "400", "--log-every", "1", "--min-step-seconds", "0.2")  # fmt: skip
    output = output_of(platform, name)

    def pods() -> dict[str, Object]:
        found = platform.get("pods", "-n", NAMESPACE, "-l", f"job-name={name}")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def uids(*indices: int) -> list[str]:
        found = pods()
        return [found[f"{name}-worker-{index}"]["metadata"]["uid"] for index in indices]

    def refused() -> str:
        """The scheduler's words on the replacement of worker 0."""
        pod = pods().get(f"{name}-worker-0", {"metadata": {"uid": lost}, "status": {}})
        words = [one.get("message", "") for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
        return "".join(words) if pod["metadata"]["uid"] != lost else ""

    platform.until("three workers train", lambda: [s for s in steps_of(output) if s["world_size"] == 3][5:])
    zone, (lost, *others), steps = placed(platform, name), uids(0, 1, 2), len(steps_of(output))
    platform.box("exhaust", zone)
    try:
        platform.box("reclaim", pods()[f"{name}-worker-0"]["spec"]["nodeName"], "--no-notice")
        said = platform.until("the scheduler has no machine for the replacement", refused)
        assert "preemption" in said.lower(), said
        platform.until("the others train on", lambda: [s for s in steps_of(output)[steps:] if s["world_size"] == 2][10:])
    finally:
        platform.box("restore", zone)
    platform.until("three train again", lambda: steps_of(output)[-1]["world_size"] == 3)
    assert uids(1, 2) == others
    assert job(platform, name)["status"]["reclaims"] >= 1  # two, where the replacement was lost with the same machine
    platform.ebb("delete", name)
    platform.until("all spot machines leave", lambda: not platform.nodes())
