"""What the week sees, judges and counts, without a cluster: its watches' listeners get the events by hand."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.week import bill, judge, ledger
from benchmarks.week.cloud import Sight
from benchmarks.week.diary import Diary
from benchmarks.week.groups import USD_PER_HOUR
from benchmarks.week.ledger import Ledger, percentile
from benchmarks.week.model import FAILED, RUNNING, SUCCEEDED
from benchmarks.week.presence import LEASE, LISTS_SECONDS, Presence
from benchmarks.week.seen import Crowd, Pulse, Watched, worker
from tests.benchmarks.weeks import make_job, make_pod
from workloads.clock import stamp
from workloads.kube import PODS

Object = dict[str, Any]


class Scene:
    """The watches' listeners without a cluster."""

    def __init__(self) -> None:
        self.crowd = Crowd()
        kube: Any = None
        watched = Watched(kube, PODS, changed=lambda: None)
        jobs = Watched(kube, PODS, changed=lambda: None)
        self.sight = Sight(pods=watched, nodes=watched, jobs=jobs, crowd=self.crowd, pulse=Pulse())
        self.steady, self.acts_since = True, 0.0
        self.ledger = Ledger(self.crowd, steady=lambda: self.steady)
        self.judge = judge.Judge(self.sight, self.ledger, acts_since=lambda: self.acts_since)
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
    def step(number: int, rate: float = 6.0) -> Object:
        job = make_job(RUNNING)
        job["status"]["progress"] = {"step": number}
        job["status"]["cost"] = {"usdSpent": number * 0.1, "usdPerHour": rate}
        return job

    for number, wait in ((1, 0), (2, 30), (3, 30)):
        late(wait)
        scene.job(step(number + 1), step(number))
    late(10)
    scene.job(step(4, rate=3.0), step(4))  # a machine less is news
    assert scene.judge.violations == []
    scene.job(step(5), step(4))
    assert "figures alone were written twice within 10.0 s" in scene.judge.violations[0]


def test_workers_that_are_sent_to_a_silent_machine_again_and_again_are_a_violation(scene: Scene) -> None:
    scene.job(make_job(RUNNING))
    scene.pod(make_pod(0))
    scene.ledger.doomed("spot-week-a-1", "silent")
    for number in range(judge.SENT_MOST + 1):
        assert scene.judge.violations == []
        for node in ("", "spot-week-a-1"):
            scene.pod(make_pod(1, uid=f"again-{number}", node=node))
        scene.pod(make_pod(1, uid=f"again-{number}"), gone=True)
    assert scene.judge.violations == ["one: worker 1 was sent to spot-week-a-1 more than 3 times after it fell silent"]
    assert scene.judge.sent_to_silent == 4


@pytest.mark.parametrize(("acted_before", "wrong"), [(20, True), (-20, False)], ids=["knows", "has just come"])
def test_a_worker_that_is_made_when_a_machine_is_known_to_be_silent_must_not_go_there(
    scene: Scene, late: Callable[[float], None], acted_before: float, wrong: bool
) -> None:
    scene.pod(make_pod(0, node=""))
    scene.ledger.doomed("spot-week-a-1", "silent")
    scene.acts_since = time.monotonic() - acted_before
    late(judge.KNOWN_SECONDS + 1)
    scene.pod(make_pod(0))
    assert scene.judge.violations == []
    scene.pod(make_pod(1, node=""))
    scene.pod(make_pod(1))
    words = "one: pod one-worker-1 was made 31 s after spot-week-a-1 fell silent, and was sent there"
    assert scene.judge.violations == ([words] if wrong else [])


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


def test_a_replacement_by_the_next_controller_is_counted_and_not_measured(scene: Scene) -> None:
    scene.pod(make_pod(0))
    scene.ledger.doomed("spot-week-a-1", "gone")
    scene.ledger.unwatched()
    scene.pod(make_pod(0, uid="p2", node=""))
    assert (scene.ledger.seconds("gone"), scene.ledger.sure("u1")) == ([], 1)


@pytest.mark.parametrize("elsewhere", ["another zone", "all anew", "a minute later"])
def test_a_replacement_that_may_have_other_reasons_proves_no_count(
    scene: Scene, late: Callable[[float], None], elsewhere: str
) -> None:
    scene.pod(make_pod(0))
    scene.pod(make_pod(1, node="spot-week-a-2"))
    scene.ledger.doomed("spot-week-a-1", "gone")
    if elsewhere == "all anew":
        scene.pod(make_pod(1, node="spot-week-a-2"), gone=True)
    late(60 if elsewhere == "a minute later" else 1)
    scene.pod(make_pod(0, uid="p2", node="", zone="week-b" if elsewhere == "another zone" else "week-a"))
    assert (len(scene.ledger.seconds("gone")), scene.ledger.sure("u1")) == (1, 0)


def test_workers_on_a_machine_that_was_to_be_given_back_may_count_as_lost(scene: Scene, late: Callable[[float], None]) -> None:
    machine: Object = {"metadata": {"name": "spot-week-a-1"}, "spec": {"taints": [{"key": "nvidia.com/gpu"}]}}
    marked = {**machine, "spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}}
    scene.pod(make_pod(0))
    scene.pod(make_pod(1, node="spot-week-a-2"))
    scene.ledger.node(None, machine)
    assert scene.ledger.accounts["u1"].lost == set()
    scene.ledger.node(machine, marked)
    scene.pod(make_pod(2))
    scene.ledger.node(marked, machine)
    scene.pod(make_pod(3))
    late(ledger.MARKED_SECONDS + 1)
    scene.pod(make_pod(4))
    assert scene.ledger.accounts["u1"].lost == {"p0", "p2", "p3"}


def test_a_pod_that_the_scheduler_pushed_off_may_count_as_lost(scene: Scene) -> None:
    scene.pod(make_pod(0))
    assert scene.ledger.accounts["u1"].lost == set()
    scene.pod(make_pod(0, disrupted=True))
    assert scene.ledger.accounts["u1"].lost == {"p0"}


def test_the_bill_runs_from_the_placement_until_the_end_or_the_machines_end(late: Callable[[float], None]) -> None:
    books = bill.Bill(outages=lambda: [])
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


@pytest.mark.parametrize(
    ("away", "usd", "right"),
    [(False, 6.6, True), (False, 8.5, False), (True, 6.6, True), (True, 12, True), (True, 13, False), (True, 6, False)],
)
def test_what_ends_while_no_controller_acts_costs_until_one_may_act_again(
    late: Callable[[float], None], away: bool, usd: float, right: bool
) -> None:
    """A worker of 6 USD an hour for an hour; then perhaps no controller for another, and after 6 minutes of that its end."""
    outages: list[tuple[float, float]] = []
    books = bill.Bill(outages=lambda: outages if away else [])
    first = make_pod(0, node="on-demand-week-a-1")
    books.pod(None, first)
    late(3600)
    outages.append((time.monotonic(), float("inf")))
    late(360)
    books.pod(first, make_pod(0, node="on-demand-week-a-1", phase="Succeeded"))
    late(3240)
    outages[:] = [(since, time.monotonic()) for since, _ in outages]
    late(3600)
    assert (books.objection("u1", usd) == "") == right


def test_what_begins_while_no_controller_acts_may_cost_nothing_until_one_acts_again(late: Callable[[float], None]) -> None:
    now = time.monotonic()
    books = bill.Bill(outages=lambda: [(now + 100, now + 3700)])
    late(200)
    books.pod(None, make_pod(0, node="on-demand-week-a-1"))
    late(3500 + 1800)
    assert [books.objection("u1", usd) == "" for usd in (2, 3, 8, 11)] == [False, True, True, False]


def test_an_outage_ends_when_the_new_controller_has_renewed_the_lease_and_seen_everything(late: Callable[[float], None]) -> None:
    def lease(holder: str, renewed: float) -> Object:
        return {"metadata": {"name": LEASE}, "spec": {"holderIdentity": holder, "renewTime": stamp(renewed, digits=6)}}

    one = Presence()
    one.started("ebb-controller-1")
    for other in (lease("ebb-controller-1", time.time() - 5), lease("ebb-controller-2", time.time() + 5)):
        one.lease(None, other)
        late(LISTS_SECONDS + 1)
        assert not one.steady
    one.lease(None, lease("ebb-controller-1", time.time() + 1))
    assert not one.steady
    late(LISTS_SECONDS + 1)
    assert one.steady
    one.left()
    assert not one.steady
    (since, until), (again, never) = one.outages()
    assert until - since == pytest.approx(3 * LISTS_SECONDS + 2, abs=1)
    assert again - until == pytest.approx(1, abs=1)
    assert never > time.monotonic() + 1e9


def test_one_that_gives_up_was_away_since_it_renewed_the_lease(late: Callable[[float], None]) -> None:
    one = Presence()
    one.started("ebb-controller-1")
    spec = {"holderIdentity": "ebb-controller-1", "renewTime": stamp(time.time() + 1, digits=6)}
    one.lease(None, {"metadata": {"name": LEASE}, "spec": spec})
    renewed = time.monotonic()
    late(30)
    assert one.steady
    one.left(long_ago=True)
    assert one.outages()[-1][0] == pytest.approx(renewed, abs=1)


def test_the_diary_tells_of_a_job_and_of_the_machines_that_it_had() -> None:
    diary, first = Diary(), make_pod(0)
    diary.pod(None, first)
    diary.pod(first, first)
    diary.pod(None, {**make_pod(1, uid="other", node="spot-week-b-1"), "metadata": make_pod(1, uid="other")["metadata"]})
    diary.doomed("spot-week-a-1", "gone")
    diary.doomed("spot-week-c-1", "gone")
    diary.job(None, make_job(RUNNING))
    diary.note("", "the controller is killed")
    told = [line.partition("  ")[2].split("  ")[-1] for line in diary.of("one").splitlines()]
    assert [text.split()[0] for text in told] == ["pod", "pod", "machine", "job:", "the"]
    assert diary.of("machine spot-week-c-1").count("\n") == 1


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
