"""Comparison of `ebb cost` with a devcluster's own record of its machines: jobs + idle = machines, within 1 %."""

import json
import time
from dataclasses import dataclass

import pytest

from devcluster.cloud.charges import read_charges
from devcluster.settings import Box
from ebb.api.clock import unix
from ebb.api.contract import MANAGER_GROUP
from tests.e2e.conftest import BOX, Platform
from tests.e2e.test_platform import NAMESPACE, TRAINER, job, state
from tests.figures import report

pytestmark = pytest.mark.proof  # make prove-money; tests/apiserver/test_money.py and test_usage.py have the parts
WITHIN = 0.01
SECONDS = 120.0  # with machines: an error of half a second in each machine's life is less than half of that


@dataclass(frozen=True)
class Sums:
    """Hours and dollars since the beginning, of the machines that are for jobs."""

    at: float
    hours: float
    usd: float

    def since(self, other: "Sums") -> tuple[float, float]:
        return self.hours - other.hours, self.usd - other.usd


def told(platform: Platform) -> tuple[Sums, Sums]:
    """By `ebb cost`: the jobs' own bills and what the usage record calls idle; and the sum of that record."""
    said = json.loads(platform.ebb("cost", "--since", "all", "-o", "json"))
    at, idle, unseen, own = unix(said["until"]) or 0.0, said["idle"], said["unseen"], said["platform"]
    rest = idle["boot_hours"] + idle["idle_hours"] + idle["scale_down_hours"] - unseen["hours"]
    parts = Sums(at, said["jobs"]["hours"] + rest, said["jobs"]["usd"] + idle["usd"] - unseen["usd"])
    return parts, Sums(at, said["machines"]["hours"] - own["hours"], said["machines"]["usd"] - own["usd"])


def billed(at: float) -> Sums:
    """By the box: from the moment that a machine was ready until it was gone."""
    charges = [one for one in read_charges(Box.load(BOX).folder / "machines.jsonl") if one.group != MANAGER_GROUP]
    lives = [(one, min(one.gone_at or at, at) - min(one.booted_at, at)) for one in charges if one.booted_at is not None]
    return Sums(at, sum(life for _, life in lives) / 3600, sum(life * one.price_per_hour for one, life in lives) / 3600)


def submit(platform: Platform, name: str, gpus: int) -> None:
    platform.ebb("submit", "--name", name, "--gpus", str(gpus), "--gpu", "T4", "--", *TRAINER, "--epochs", "1000",
                 "--min-step-seconds", "0.2")  # fmt: skip


def written_since(platform: Platform, moment: float) -> None:
    """A controller has written its usage record since."""

    def until() -> float:
        text = platform.get("configmap", "ebb-machines", "-n", "ebb-system")["data"]["machines.json"]
        return unix(json.loads(text)["until"]) or 0.0

    platform.until("the usage record is written", lambda: until() > moment)


def figures(truth: tuple[float, float], parts: tuple[float, float], whole: tuple[float, float]) -> None:
    """Each sum in hours and dollars: of the devcluster's own record, of the jobs' and what idled, and of the whole books."""
    off = [abs(found - wanted) / wanted for found, wanted in zip((*parts, *whole), (*truth, *truth), strict=True)]
    report({
        "machine_hours": round(truth[0], 4), "usd": round(truth[1], 4), "jobs_and_idle_usd": round(parts[1], 4),
        "books_usd": round(whole[1], 4), "worst_difference": round(max(off), 5), "allowed": WITHIN,
    })  # fmt: skip


def test_jobs_and_what_idled_are_the_boxs_machines(platform: Platform) -> None:
    """Through a reclaim, a controller that is started anew, and a job that is deleted while it runs."""
    platform.until("no machine is left of the tests before", lambda: not platform.nodes())
    platform.until("there is a usage record", lambda: "ebb-machines" in platform.kubectl("get", "configmaps", "-n", "ebb-system"))
    before, machines_before = told(platform)
    submit(platform, "dear", 2)
    submit(platform, "cheap", 1)
    platform.until("both run", lambda: {state(platform, "dear"), state(platform, "cheap")} == {"Running"})
    began = time.monotonic()
    platform.kubectl("delete", "pods", "-n", "ebb-system", "-l", "app.kubernetes.io/name=ebb-controller")
    written_since(platform, time.time())
    pod = platform.get("pod", "dear-worker-1", "-n", NAMESPACE)
    platform.box("reclaim", pod["spec"]["nodeName"], "--no-notice")
    # Two, where the replacement still finds the machine's Node and is lost with it
    platform.until("the reclaim is counted", lambda: job(platform, "dear")["status"].get("reclaims", 0) >= 1)
    platform.until("its worker is back", lambda: job(platform, "dear")["status"].get("ready") == "2/2")
    platform.until("time has passed", lambda: time.monotonic() - began > SECONDS, seconds=2 * SECONDS)
    platform.ebb("delete", "dear", "cheap")
    platform.until("all spot machines leave", lambda: not platform.nodes())
    written_since(platform, time.time())
    after, machines_after = told(platform)
    truth = billed(after.at).since(billed(before.at))
    figures(truth, after.since(before), machines_after.since(machines_before))
    assert truth[0] > 3 * SECONDS / 3600
    assert after.since(before) == pytest.approx(truth, rel=WITHIN)
    assert machines_after.since(machines_before) == pytest.approx(truth, rel=WITHIN)
    listed = platform.ebb("cost")
    assert "dear" in listed
    assert "assumed" in listed
    assert max(map(len, listed.splitlines())) <= 80
