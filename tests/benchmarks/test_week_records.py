"""The week's records, without a cluster: what was lost, what it cost, when a controller acted, and what was seen of whom."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.week import bill, ledger
from benchmarks.week.event_log import EventLog
from benchmarks.week.groups import USD_PER_HOUR
from benchmarks.week.ledger import percentile
from benchmarks.week.model import RUNNING
from benchmarks.week.presence import LEASE, LISTS_SECONDS, Presence
from ebb.api.clock import stamp
from tests.benchmarks.weeks import Scene, make_job, make_pod

Object = dict[str, Any]


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
    billed = bill.Bill(outages=lambda: [])
    first, second = make_pod(0, node="on-demand-week-a-1"), make_pod(1, node="on-demand-week-b-7")
    billed.pod(None, make_pod(0, node=""))
    late(1000)
    billed.pod(None, first)
    billed.pod(None, second)
    late(3600)
    billed.pod(first, make_pod(0, node="on-demand-week-a-1", phase="Failed"))
    late(3600)
    billed.node({"metadata": {"name": "on-demand-week-b-7"}}, None)
    late(3600)
    assert billed.usd("u1") == pytest.approx(3 * USD_PER_HOUR / 2, rel=0.001)
    assert billed.objection("u1", 3 * USD_PER_HOUR / 2) == ""
    assert "by our clock it is 18" in billed.objection("u1", 2 * USD_PER_HOUR / 2)


@pytest.mark.parametrize(
    ("away", "usd", "right"),
    [(False, 6.6, True), (False, 8.5, False), (True, 6.6, True), (True, 12, True), (True, 13, False), (True, 6, False)],
)
def test_what_ends_while_no_controller_acts_costs_until_one_may_act_again(
    late: Callable[[float], None], away: bool, usd: float, right: bool
) -> None:
    """A worker of 6 USD an hour for an hour; then perhaps no controller for another, and after 6 minutes of that its end."""
    outages: list[tuple[float, float]] = []
    billed = bill.Bill(outages=lambda: outages if away else [])
    first = make_pod(0, node="on-demand-week-a-1")
    billed.pod(None, first)
    late(3600)
    outages.append((time.monotonic(), float("inf")))
    late(360)
    billed.pod(first, make_pod(0, node="on-demand-week-a-1", phase="Succeeded"))
    late(3240)
    outages[:] = [(since, time.monotonic()) for since, _ in outages]
    late(3600)
    assert (billed.objection("u1", usd) == "") == right


def test_what_begins_while_no_controller_acts_may_cost_nothing_until_one_acts_again(late: Callable[[float], None]) -> None:
    now = time.monotonic()
    billed = bill.Bill(outages=lambda: [(now + 100, now + 3700)])
    late(200)
    billed.pod(None, make_pod(0, node="on-demand-week-a-1"))
    late(3500 + 1800)
    assert [billed.objection("u1", usd) == "" for usd in (2, 3, 8, 11)] == [False, True, True, False]


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


def test_the_event_log_has_a_job_and_the_machines_that_it_had() -> None:
    event_log, first = EventLog(), make_pod(0)
    event_log.pod(None, first)
    event_log.pod(first, first)
    event_log.pod(None, {**make_pod(1, uid="other", node="spot-week-b-1"), "metadata": make_pod(1, uid="other")["metadata"]})
    event_log.doomed("spot-week-a-1", "gone")
    event_log.doomed("spot-week-c-1", "gone")
    event_log.job(None, make_job(RUNNING))
    event_log.note("", "the controller is killed")
    told = [line.partition("  ")[2].split("  ")[-1] for line in event_log.of("one").splitlines()]
    assert [text.split()[0] for text in told] == ["pod", "pod", "machine", "job:", "the"]
    assert event_log.of("machine spot-week-c-1").count("\n") == 1


def test_percentiles() -> None:
    values = [float(number) for number in range(1, 101)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99), percentile([], 0.5)) == (51, 100, 7, None)
