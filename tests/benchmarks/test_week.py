"""The week's own parts, whose mistakes would hide those of the controller; and (e2e) a short week, for real."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.week import acts, bill, judge, model
from benchmarks.week.acts import Fail, Finish, Train
from benchmarks.week.cloud import Sight
from benchmarks.week.fates import Fate, manifest
from benchmarks.week.groups import USD_PER_HOUR
from benchmarks.week.kinds import KINDS, MOST, draw
from benchmarks.week.ledger import Ledger, percentile
from benchmarks.week.model import DELETED, FAILED, HELD, RUNNING, SUCCEEDED, SUSPENDED, UNTOUCHED, WAITING, End
from benchmarks.week.seen import Crowd, Pulse, Watched, worker
from local.settings import CHECKOUT
from workloads.job.spec import parse_spec
from workloads.kube import PODS

Object = dict[str, Any]
NOW = 1_800_000_000.0


def make_fate(*lived: acts.Act, **more: Any) -> Fate:
    return Fate(**{"name": "one", "kind": "steady", "low": 1, "replicas": 2, "high": 4, "acts": lived, **more})


# --- What is predicted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fate", "end"),
    [
        (make_fate(Train(5), Finish()), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_fate(Train(5), Finish(), ttl=3), End(state=SUCCEEDED, reason="ElasticJobSucceeded", gone=True)),
        (
            make_fate(Fail(1), Fail(137), Finish(), backoff_limit=2),
            End(state=SUCCEEDED, reason="ElasticJobSucceeded", failures=2),
        ),
        (make_fate(Fail(1), Fail(1), backoff_limit=1), End(state=FAILED, reason="ElasticJobFailed", failures=2)),
        (make_fate(Fail(1, workers=3), backoff_limit=0), End(state=FAILED, reason="ElasticJobFailed", failures=1)),
        (make_fate(Fail(1), policy="Never"), End(state=FAILED, reason="ElasticJobFailed", failures=1)),
        (make_fate(Fail(143), Fail(2), policy="ExitCode"), End(state=FAILED, reason="ElasticJobFailed", failures=2)),
        (make_fate(Fail(138), Finish(), backoff_limit=0), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_fate(acts.Leave(), Finish(), backoff_limit=0), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_fate(Train(5), acts.Suspend()), End(state=SUSPENDED, reason="ElasticJobSuspended")),
        (make_fate(acts.Suspend(), acts.Resume(), Finish()), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_fate(Train(5), acts.Delete()), End(state=DELETED, gone=True)),
        (make_fate(acts.Overrun()), End(state=FAILED, reason="DeadlineExceeded")),
        (make_fate(acts.Spend()), End(state=HELD, reason="BudgetSpent")),
        (make_fate(acts.Spend(), acts.Allow(), Finish()), End(state=SUCCEEDED, reason="ElasticJobSucceeded")),
        (make_fate(acts.Outlive()), End(state=HELD, reason="DeadlinePassed")),
        (make_fate(acts.Hang()), End(state=HELD, reason="NoProgress")),
        (make_fate(acts.Rest(5), kind="misfit"), End(state=WAITING, reason="NoZoneFits")),
        (make_fate(acts.Rest(5), spec={"managedBy": "somebody"}), End(state=UNTOUCHED)),
    ],
    ids=lambda value: " ".join(type(act).__name__ for act in value.acts) if isinstance(value, Fate) else value.state,
)
def test_the_end_follows_from_the_acts(fate: Fate, end: End) -> None:
    assert model.predict(fate, patient=True) == end


def test_containers_that_cannot_start_are_given_up_only_in_a_run_that_is_long_enough() -> None:
    fate = make_fate(acts.Stick())
    assert model.predict(fate, patient=True) == End(state=HELD, reason="CannotStart")
    assert model.predict(fate, patient=False) == End(state=WAITING)


def make_job(state: str, *, failures: int = 0, reason: str = "", hold: str = "", uid: str = "u1", **spec: Any) -> Object:
    kind = state if state in (SUCCEEDED, FAILED, SUSPENDED) else RUNNING
    status: Object = {"state": state, "failures": failures, "conditions": [{"type": kind, "status": "True", "reason": reason}]}
    if hold:
        status["hold"] = {"reason": hold, "generation": 1}
    return {"metadata": {"name": "one", "uid": uid, "generation": 1}, "spec": {"maxReplicas": 2, **spec}, "status": status}


@pytest.mark.parametrize(
    ("end", "job", "deleted", "words"),
    [
        (End(state=SUCCEEDED), make_job(SUCCEEDED), False, ""),
        (End(state=SUCCEEDED), make_job(RUNNING), False, "predicted Succeeded, found Running"),
        (
            End(state=FAILED, reason="DeadlineExceeded"),
            make_job(FAILED, reason="ElasticJobFailed"),
            False,
            "found Failed (Elastic",
        ),
        (End(state=SUCCEEDED), make_job(SUCCEEDED, failures=1), False, "failed at 0 moments, status.failures is 1"),
        (End(state=SUCCEEDED, failures=2), make_job(SUCCEEDED, failures=1), False, "failed at 2 moments"),
        (End(state=HELD, reason="BudgetSpent"), make_job(SUSPENDED, hold="BudgetSpent"), False, ""),
        (End(state=HELD, reason="BudgetSpent"), make_job(SUSPENDED, hold="NoProgress"), False, "found Held (NoProgress)"),
        (End(state=HELD, reason="BudgetSpent"), make_job(SUSPENDED), False, "found Suspended"),
        (End(state=DELETED, gone=True), make_job(RUNNING), True, ""),
        (End(state=DELETED, gone=True), make_job(RUNNING), False, "is still there"),
        (End(state=SUCCEEDED), make_job(SUCCEEDED), True, "is gone"),
        (End(state=DELETED, gone=True), make_job(FAILED), True, "deleted while it had work to do"),
        (End(state=UNTOUCHED), make_job(WAITING), False, "predicted Untouched"),
    ],
)
def test_a_job_that_came_to_something_else_is_told(end: End, job: Object, deleted: bool, words: str) -> None:
    found = model.differences(make_fate(), end, job, deleted=deleted)
    assert any(words in text for text in found) if words else found == []


# --- Which jobs are drawn -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "seconds"), [(25, 180.0), (300, 3600.0)])
def test_fates_are_the_same_for_a_seed_and_have_the_time_to_end(jobs: int, seconds: float) -> None:
    fates = draw(jobs=jobs, seconds=seconds, dice=random.Random(4))
    assert fates == draw(jobs=jobs, seconds=seconds, dice=random.Random(4))
    assert fates != draw(jobs=jobs, seconds=seconds, dice=random.Random(5))
    assert len({fate.name for fate in fates}) == jobs
    assert all(fate.arrives + fate.need <= seconds for fate in fates)


def test_a_long_week_has_every_kind_of_life() -> None:
    kinds = Counter(fate.kind for seed in range(3) for fate in draw(jobs=300, seconds=3600, dice=random.Random(seed)))
    assert set(kinds) == set(KINDS)


@pytest.mark.parametrize("seed", range(3))
def test_every_fate_is_a_valid_job(seed: int) -> None:
    for fate in draw(jobs=300, seconds=3600, dice=random.Random(seed)):
        spec = parse_spec(manifest(fate, namespace="elastic-job", now=NOW)["spec"])
        assert spec.max_replicas is not None
        assert spec.max_replicas <= MOST or fate.kind == "misfit"
        assert len(f"{fate.name}-worker-{spec.max_replicas}") <= 63
        assert all(fate.low <= act.to <= fate.high for act in fate.acts if isinstance(act, acts.Scale))


# --- What is seen, and judged ---------------------------------------------------------------------------------------------------


def make_pod(
    index: int = 0, *, uid: str = "", node: str = "spot-week-a-1", zone: str = "week-a", phase: str = "Running", job: str = "u1",
    attempt: int = 0, disrupted: bool = False,
) -> Object:  # fmt: skip
    return {
        "metadata": {
            "name": f"one-worker-{index}", "uid": uid or f"p{index}", "labels": {"replica-index": str(index)},
            "annotations": {"ebb.dev/attempt": str(attempt)},
            "ownerReferences": [{"kind": "ElasticJob", "name": "one", "uid": job}],
        },
        "spec": {"nodeName": node, "nodeSelector": {"topology.kubernetes.io/zone": zone}},
        "status": {
            "phase": phase,
            "conditions": [{"type": "DisruptionTarget", "status": "True"}] if disrupted else [],
            "containerStatuses": [{"state": {"running": {}} if phase == "Running" else {}}],
        },
    }  # fmt: skip


class Scene:
    """The watches' listeners without a cluster."""

    def __init__(self) -> None:
        self.crowd = Crowd()
        kube: Any = None
        watched = Watched(kube, PODS, changed=lambda: None)
        jobs = Watched(kube, PODS, changed=lambda: None)
        self.sight = Sight(pods=watched, nodes=watched, jobs=jobs, crowd=self.crowd, pulse=Pulse())
        self.steady = True
        self.ledger = Ledger(self.crowd, steady=lambda: self.steady)
        self.judge = judge.Judge(self.sight, self.ledger)
        self._pods: dict[str, Object] = {}

    def pod(self, pod: Object, *, gone: bool = False) -> None:
        uid = pod["metadata"]["uid"]
        old, new = self._pods.pop(uid, None), None if gone else pod
        if new:
            self._pods[uid] = new
        for listener in (self.crowd.note, self.ledger.pod, self.judge.pod):
            listener(old, new)

    def job(self, job: Object, old: Object | None = None) -> None:
        self.sight.jobs.objects[job["metadata"]["uid"]] = job
        self.judge.job(old, job)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock."""
    real, passed = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: real() + passed[0])

    def wait(seconds: float) -> None:
        passed[0] += seconds

    return wait


def test_more_pods_than_max_replicas_is_a_violation(scene: Scene) -> None:
    scene.job(make_job(RUNNING))
    scene.pod(make_pod(0))
    scene.pod(make_pod(1))
    assert scene.judge.violations == []
    scene.pod(make_pod(2))
    assert scene.judge.violations == ["one: 3 pods at once, maxReplicas is 2"]


def test_two_zones_at_once_is_a_violation(scene: Scene) -> None:
    scene.job(make_job(RUNNING))
    scene.pod(make_pod(0))
    scene.pod(make_pod(1, zone="week-b"))
    assert scene.judge.violations == ["one: pods in week-a and week-b at once"]


def test_a_failure_that_never_was_is_a_violation_and_one_that_was_is_none(scene: Scene) -> None:
    scene.ledger.accounts["u1"].failures = 1
    scene.job(make_job(RUNNING, failures=1))
    assert scene.judge.violations == []
    scene.job(make_job(RUNNING, failures=2))
    assert "2 failures counted, its program failed 1 times" in scene.judge.violations[0]


def test_an_ended_job_that_comes_back_is_a_violation(scene: Scene) -> None:
    ended = make_job(SUCCEEDED)
    scene.job(ended)
    scene.job(make_job(RUNNING), ended)
    assert scene.judge.violations == ["one: came back from Succeeded to Running"]


def test_pods_of_a_job_at_rest_are_violations_when_they_stay_or_come(scene: Scene, late: Callable[[float], None]) -> None:
    scene.pod(make_pod(0))
    scene.job(make_job(FAILED))
    scene.judge.look()
    late(judge.RELEASE_SECONDS - 1)
    scene.judge.look()
    assert scene.judge.violations == []
    late(2)
    scene.judge.look()
    assert scene.judge.violations == ["one: is at rest and holds pods"]
    scene.pod(make_pod(1))
    assert scene.judge.violations[1:] == ["one: pod one-worker-1 was created for a job that is Failed"]


def test_a_group_that_runs_more_than_it_may_is_a_violation_when_it_lasts(scene: Scene, late: Callable[[float], None]) -> None:
    group = {"name": "sweep", "maxParallel": 1}
    for uid in ("u1", "u2"):
        scene.job(make_job(RUNNING, uid=uid, group=group))
        scene.pod(make_pod(0, uid=f"p-{uid}", job=uid))
    scene.judge.look()
    assert scene.judge.violations == []
    late(judge.LATE_SECONDS + 1)
    scene.judge.look()
    assert scene.judge.violations == ["group sweep: more than 1 jobs run at once"]


def test_figures_alone_may_be_written_every_half_minute(scene: Scene, late: Callable[[float], None]) -> None:
    def step(number: int) -> Object:
        job = make_job(RUNNING)
        job["status"]["progress"] = {"step": number}
        return job

    for number, wait in ((1, 0), (2, 30), (3, 30)):
        late(wait)
        scene.job(step(number + 1), step(number))
    assert scene.judge.violations == []
    late(10)
    scene.job(step(5), step(4))
    assert "figures alone were written twice within 10.0 s" in scene.judge.violations[0]


def test_losses_are_known_before_and_measured_until_the_replacement(scene: Scene, late: Callable[[float], None]) -> None:
    scene.pod(make_pod(0))
    scene.pod(make_pod(1, node="spot-week-a-2"))
    scene.ledger.doomed("spot-week-a-1", "gone")
    assert (scene.ledger.accounts["u1"].lost, scene.ledger.sure("u1")) == ({"p0"}, 0)
    late(1.5)
    scene.pod(make_pod(0, uid="p2", node=""))
    assert scene.ledger.sure("u1") == 1
    assert scene.ledger.seconds("gone", "notice") == [pytest.approx(1.5, abs=0.1)]
    assert scene.ledger.seconds("silent") == []


@pytest.mark.parametrize("disturbance", ["scaled", "controller away", "started again"])
def test_a_disturbed_replacement_is_not_measured(scene: Scene, disturbance: str) -> None:
    scene.pod(make_pod(0))
    scene.ledger.doomed("spot-week-a-1", "notice")
    if disturbance == "scaled":
        scene.ledger.disturbed("u1")
    scene.steady = disturbance != "controller away"
    scene.pod(make_pod(0, uid="p2", node="", attempt=int(disturbance == "started again")))
    assert (scene.ledger.seconds("gone", "notice"), scene.ledger.sure("u1")) == ([], 0)


def test_a_pod_that_the_scheduler_pushed_off_may_count_as_lost(scene: Scene) -> None:
    scene.pod(make_pod(0))
    assert scene.ledger.accounts["u1"].lost == set()
    scene.pod(make_pod(0, disrupted=True))
    assert scene.ledger.accounts["u1"].lost == {"p0"}


def test_the_bill_runs_from_the_placement_until_the_end_or_the_machines_end(late: Callable[[float], None]) -> None:
    books = bill.Bill(away=lambda since, until: 0.0)
    first, second = make_pod(0, node="on-demand-week-a-1"), make_pod(1, node="on-demand-week-b-7")
    books.pod(None, make_pod(0, node=""))
    late(1000)
    books.pod(None, first)
    books.pod(None, second)
    late(3600)
    books.pod(first, make_pod(0, node="on-demand-week-a-1", phase="Failed"))
    late(3600)
    books.node({"metadata": {"name": "on-demand-week-b-7"}}, None)
    late(3600)
    assert books.usd("u1") == pytest.approx(3 * USD_PER_HOUR / 2, rel=0.001)
    assert books.objection("u1", 3 * USD_PER_HOUR / 2) == ""
    assert "by our clock it is 18" in books.objection("u1", 2 * USD_PER_HOUR / 2)


def test_pods_of_nobody_are_not_workers() -> None:
    pod = make_pod()
    pod["metadata"]["ownerReferences"] = []
    assert worker(pod) is None


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99), percentile([], 0.5)) == (51, 100, 7, None)


async def test_a_pulse_wakes_those_whose_condition_holds() -> None:
    pulse, seen = Pulse(), set[int]()
    waits = asyncio.create_task(pulse.until(lambda: 1 in seen, 5))
    await asyncio.sleep(0)
    pulse.beat()
    seen.add(1)
    pulse.beat()
    assert await waits
    assert not await pulse.until(lambda: 2 in seen, 0.01)


# --- For real -------------------------------------------------------------------------------------------------------------------


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.week", *arguments]
    return subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.e2e
def test_a_short_week_ends_as_predicted() -> None:
    """About three minutes."""
    week = started("--jobs", "25", "--minutes", "3")
    said, _ = week.communicate(timeout=600)
    assert week.returncode == 0, said[-6000:]
    figures = json.loads(said.splitlines()[-1])
    assert (figures["model_agrees"], figures["violations"], figures["jobs"]) == (True, [], 25)
    assert figures["reclaims"] > 0
    assert figures["controller_kills"] > 0
    assert figures["workers_lost"] > 0


@pytest.mark.e2e
def test_an_interrupted_week_leaves_nothing() -> None:
    week = started("--jobs", "10", "--minutes", "3")
    assert week.stdout is not None
    for line in week.stdout:
        if "0 s  jobs:" in line:
            break
    programs = children(week)
    assert len(programs) >= 6  # etcd, API server, controller manager, scheduler, kwok, controller
    week.send_signal(signal.SIGINT)
    week.communicate(timeout=60)
    assert week.returncode == 130
    assert [pid for pid in programs if Path(f"/proc/{pid}").exists()] == []
