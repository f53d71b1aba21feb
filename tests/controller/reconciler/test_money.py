"""What a job costs and when that is enough: sums, rates, budget and deadline."""

import random
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.costs import dollars, group_of, sums
from ebb.api.schema import encode
from ebb.api.spec import Job
from ebb.api.status import Cost, Progress
from ebb.controller.reconciler.money import Rates, rates
from ebb.controller.reconciler.types import JobView, Observed, Plan
from tests.builders import NOW, make_group, make_job, make_node, make_platform, make_pod
from tests.looks import again, ended, look, running

Object = dict[str, Any]

SPOT = make_group()  # 1.00 USD on demand, 0.30 as spot; one GPU, 4 CPUs, 8 GiB
BIG = make_group("on-demand-t4x4-local-a", gpus_per_node=4, capacity_type="on-demand", on_demand_usd_per_hour=4.0, cpu=16.0)
STACK = make_platform(SPOT, BIG)
ONE_GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
JOB = make_job(container=ONE_GPU)


def machine(name: str = "n0", group: str = SPOT.name, **labels: str) -> Object:
    node = make_node(name)
    node["metadata"]["labels"] = {names.LABEL_NODE_GROUP: group, **labels}
    return node


def seen(job: Object, *pods: Object, nodes: tuple[Object, ...], **observed: Any) -> Rates:
    known = {node["metadata"]["name"]: node for node in nodes}
    return rates(JobView.of(Job.of(job), Observed(pods=pods, nodes=known, **observed), NOW))


ON_TWO = (make_pod(JOB, node="n0"), make_pod(JOB, 1, node="n1"))
TWO = (machine("n0"), machine("n1"))
RATES: dict[str, tuple[Rates, Rates]] = {
    # machines, USD per hour, the same on demand
    "nothing": (seen(JOB, nodes=(), platform=STACK), Rates()),
    "two-spot-machines": (seen(JOB, *ON_TWO, nodes=TWO, platform=STACK), Rates(2, 0.6, 2)),
    "no-stack": (seen(JOB, *ON_TWO, nodes=TWO), Rates(2, 0, 0)),
    "two-on-one-machine-without-a-stack": (seen(JOB, *running(JOB, 2), nodes=(machine(),)), Rates(1, 0, 0)),
    "its-share-of-a-big-one": (seen(JOB, make_pod(JOB), nodes=(machine(group=BIG.name),), platform=STACK), Rates(0.25, 1, 1)),
    "never-more-than-the-machine": (
        seen(make_job(), *running(make_job(), 3), nodes=(machine(),), platform=STACK),
        Rates(1, 0.3, 1),
    ),
    "waits-for-a-machine": (seen(JOB, make_pod(JOB, phase="Pending", node=""), nodes=(), platform=STACK), Rates()),
    "starts": (seen(JOB, make_pod(JOB, phase="Pending"), nodes=(machine(),), platform=STACK), Rates(1, 0.3, 1)),
    "on-its-way-out": (seen(JOB, make_pod(JOB, deleted=NOW - 9), nodes=(machine(),), platform=STACK), Rates(1, 0.3, 1)),
    "finished": (seen(JOB, ended(0), ended(1, 1), nodes=(machine(),), platform=STACK), Rates()),
    "machine-gone": (seen(JOB, *ON_TWO, nodes=TWO[:1], gone=frozenset({"n1"}), platform=STACK), Rates(1, 0.3, 1)),
    "machine-not-seen-yet": (seen(JOB, make_pod(JOB), nodes=(), platform=STACK), Rates(1, 0, 0)),
    "machine-of-no-group": (seen(JOB, make_pod(JOB), nodes=(make_node(),), platform=STACK), Rates(1, 0, 0)),
}


@pytest.mark.parametrize(("found", "expected"), RATES.values(), ids=RATES.keys())
def test_what_the_machines_cost_now(found: Rates, expected: Rates) -> None:
    wanted = (expected.machines, expected.usd_per_hour, expected.usd_on_demand_per_hour)
    assert (found.machines, found.usd_per_hour, found.usd_on_demand_per_hour) == pytest.approx(wanted)


def test_a_machine_without_our_label_is_told_by_its_kind_zone_and_purchase() -> None:
    node = make_node()
    kind = {"node.kubernetes.io/instance-type": "box.t4", names.LABEL_ZONE: "local-a"}
    node["metadata"]["labels"] = {**kind, names.LABEL_CAPACITY: "on-demand"}
    assert group_of(node, STACK) == BIG
    node["metadata"]["labels"] = {**kind, names.LABEL_CAPACITY: "spot", names.LABEL_NODE_GROUP: "removed-from-the-stack"}
    assert group_of(node, STACK) == SPOT


def cost(at: float = NOW, **values: float) -> Cost:
    return Cost(**{"usd_per_hour": 3.6, "usd_on_demand_per_hour": 7.2, "machines": 2.0, **values}, at=stamp(at, digits=3))


SUMS: dict[str, tuple[Cost, tuple[float, float, float]]] = {
    # USD, USD on demand, machine seconds
    "an-hour": (sums(cost(), NOW + 3600), (3.6, 7.2, 7200)),
    "no-time": (sums(cost(usd_spent=1.0), NOW), (1.0, 0, 0)),
    "a-clock-that-went-back": (sums(cost(usd_spent=1.0, machine_seconds=9.0), NOW - 500), (1.0, 0, 9)),
    "no-machines": (sums(cost(usd_per_hour=0.0, usd_on_demand_per_hour=0.0, machines=0.0), NOW + 60), (0, 0, 0)),
    "never-counted": (sums(Cost(), NOW), (0, 0, 0)),
}


@pytest.mark.parametrize(("found", "expected"), SUMS.values(), ids=SUMS.keys())
def test_sums_grow_by_the_rates_and_never_shrink(found: Cost, expected: tuple[float, float, float]) -> None:
    assert (found.usd_spent, found.usd_on_demand, found.machine_seconds) == expected


def test_many_small_sums_are_one_large_one() -> None:
    rng, now, summed = random.Random(1), NOW, cost()
    for _ in range(2000):
        now += rng.random() * 3
        summed = sums(summed, now)
    assert summed.usd_spent == pytest.approx(sums(cost(), now).usd_spent, abs=1e-5)
    assert summed.machine_seconds == pytest.approx(2 * (now - NOW), abs=0.5)


def test_a_life_in_money() -> None:
    """Placed at 0 s, one of two lost at 600 s, suspended at 1200 s, gone at 1230 s."""
    job = JOB
    story: list[tuple[float, tuple[Object, ...], bool]] = [
        (0, ON_TWO, False),
        (600, ON_TWO[:1], False),
        (1200, ON_TWO[:1], True),
        (1230, (), True),
        (9999, (), True),
    ]
    costs = []
    for after, pods, suspend in story:
        job = {**job, "spec": {**job["spec"], "suspend": suspend}}
        decided = look(job, *pods, now=NOW + after, nodes=TWO, platform=STACK)
        job = again(job, decided)
        found = decided.status.cost
        assert found is not None
        costs.append((found.machines, found.usd_per_hour, round(found.usd_spent, 6), found.machine_seconds))
    assert costs == [(2, 0.6, 0, 0), (1, 0.3, 0.1, 1200), (1, 0.3, 0.15, 1800), (0, 0, 0.1525, 1830), (0, 0, 0.1525, 1830)]


def test_a_job_that_never_held_a_machine_has_no_cost() -> None:
    assert look(JOB, platform=STACK).status.cost is None


# --- Budget and deadline ---


def spent(usd: float, maximum: float = 10.0, *, grace: int = 30, generation: int = 1, **spec: Any) -> Plan:
    """A job on one machine of 3.60 USD an hour, which is 0.1 cents a second."""
    stack = make_platform(make_group(on_demand_usd_per_hour=3.6, capacity_type="on-demand"))
    status = {"cost": encode(cost(usd_spent=usd)), "placement": {"zone": "local-a", "gpuType": "T4", "capacityType": "on-demand"}}
    job = make_job(container=ONE_GPU, replicas=1, budget={"maxUSD": maximum}, status=status, **spec)
    job["metadata"]["generation"] = generation
    return look(job, make_pod(job, grace=grace), nodes=(machine(),), platform=stack)


STOPS: dict[str, tuple[Plan, str]] = {
    "far-from-it": (spent(5.0), ""),
    "just-enough-left-to-stop": (spent(9.9649), ""),  # 30 s of grace and 5 s for the rest are 3.5 cents
    "not-enough-left": (spent(9.965), "BudgetSpent"),
    "longer-grace-stops-earlier": (spent(9.8, grace=240), "BudgetSpent"),
    "more-than-all": (spent(11.0), "BudgetSpent"),
    "deadline-ahead": (look(make_job(deadline=stamp(NOW + 1))), ""),
    "deadline-now": (look(make_job(deadline=stamp(NOW))), "DeadlinePassed"),
    "deadline-before-it-began": (look(make_job(deadline="2020-01-01T00:00:00Z")), "DeadlinePassed"),
    "deadline-of-an-ended-job": (
        look(make_job(deadline=stamp(NOW), status={"conditions": [{"type": "Failed", "status": "True"}]})),
        "",
    ),
    "finished-in-time": (look(make_job(deadline=stamp(NOW)), ended(0)), ""),
}


@pytest.mark.parametrize(("decided", "reason"), STOPS.values(), ids=STOPS.keys())
def test_when_a_job_is_held(decided: Plan, reason: str) -> None:
    assert (decided.status.hold.reason if decided.status.hold else "") == reason


def test_a_budget_is_looked_at_again_when_it_will_be_spent() -> None:
    decided = spent(9.0)
    assert decided.wake_at == pytest.approx(NOW + 965, abs=0.1)  # 1000 s are left, 35 of them to stop
    assert look(make_job(deadline=stamp(NOW + 50))).wake_at == NOW + 50


def test_once_in_the_life_of_a_budget_people_are_told_that_it_is_nearly_spent() -> None:
    """Of each that the author gives it: a larger one is another."""
    stack = make_platform(make_group(on_demand_usd_per_hour=3.6, capacity_type="on-demand"))
    job, now = make_job(container=ONE_GPU, replicas=1), NOW
    pod, told = make_pod(job), []
    for generation, maximum in ((1, 10.0), (2, 11.0)):
        job["metadata"]["generation"], job["spec"]["budget"] = generation, {"maxUSD": maximum}
        while not (decided := look(job, pod, now=now, nodes=(machine(),), platform=stack)).status.hold:
            cost = decided.status.cost
            told += [round(cost.usd_spent, 2) for event in decided.events if cost and event.reason == "BudgetNearlySpent"]
            job, now = again(job, decided), decided.wake_at or 0
            assert look(job, pod, now=now - 0.5, nodes=(machine(),), platform=stack).events == ()
        job = again(job, decided)
    assert told == [9.0, 9.97], "the larger one at once: 90 % of it were spent before the job was stopped for the first"


def test_what_is_left_is_told_with_figures_and_what_to_do() -> None:
    (event,) = [event for event in spent(9.0).events if event.reason == "BudgetNearlySpent"]
    assert (event.warning, event.message) == (
        True,
        "The job has cost 9.00 USD of the 10.00 USD in spec.budget.maxUSD, and goes on at 3.60 USD per hour: it is stopped, with "
        "a checkpoint, before the rest is spent. Raise spec.budget.maxUSD to let it train longer.",
    )


def test_a_budget_that_is_spent_at_once_is_told_as_that() -> None:
    assert [event.reason for event in spent(9.99).events if "Budget" in event.reason] == []
    assert spent(9.99).status.hold


def test_a_budget_is_never_exceeded() -> None:
    """Looked at only when it asks for that, with all of its grace used up: the last cent is not spent."""
    stack = make_platform(make_group(on_demand_usd_per_hour=3.6, capacity_type="on-demand"))
    job = make_job(container=ONE_GPU, replicas=2, budget={"maxUSD": 1.0})
    pods = (make_pod(job, grace=120), make_pod(job, 1, grace=60, node="n1"))
    now = NOW
    for _ in range(10):
        decided = look(job, *pods, now=now, nodes=TWO, platform=stack)
        job = again(job, decided)
        if decided.status.hold:
            break
        assert decided.wake_at is not None
        now = decided.wake_at
    gone = look(job, now=now + 120, nodes=TWO, platform=stack).status.cost
    assert gone is not None
    assert 0.98 < gone.usd_spent <= 1.0


def test_a_held_job_says_why_with_figures_and_what_to_do() -> None:
    hold = spent(9.97, 10.0).status.hold
    assert hold is not None
    assert (hold.generation, hold.message) == (
        1,
        "The job has cost 9.97 USD of the 10.00 USD in spec.budget.maxUSD, at 3.60 USD per hour: its workers are stopped with a "
        "checkpoint. Raise spec.budget.maxUSD above 10.00 to go on.",
    )
    hold = look(make_job(deadline="2027-01-01T00:00:00Z")).status.hold
    assert hold is not None
    assert hold.message == (
        "spec.deadline 2027-01-01T00:00:00Z is over: the workers are stopped with a checkpoint. A later one lets it go on."
    )


def test_a_budget_without_prices_is_said_once() -> None:
    job = make_job(replicas=1, budget={"maxUSD": 1})
    first = look(job, make_pod(job))
    second = look(again(job, first), make_pod(job), now=NOW + 9)
    assert [event.reason for event in first.events if event.warning] == ["NoPrice"]
    assert second.events == ()


@pytest.mark.parametrize(("amount", "text"), [(0.0, "0.00"), (12.345, "12.35"), (0.5, "0.50"), (0.0123, "0.012")])
def test_small_amounts_are_still_amounts(amount: float, text: str) -> None:
    assert dollars(amount) == text


def useful(*readings: tuple[float, float | None, int]) -> list[float]:
    """(seconds since NOW, useful seconds if the trainer says some, workers on machines) -> useful machine time after each."""
    job, found = again(JOB, look(JOB, *ON_TWO, nodes=TWO, platform=STACK)), []
    for at, seconds, workers in readings:
        progress = Progress(step=int(at), useful_seconds=seconds, at=stamp(NOW + at))
        seen = look(job, *ON_TWO[:workers], now=NOW + at, nodes=TWO[:workers], platform=STACK, progress=progress)
        job = again(job, seen)
        assert seen.status.cost is not None
        found.append(seen.status.cost.useful_machine_seconds)
    return found


def test_machine_time_in_steps_that_count() -> None:
    assert useful((100, 80, 2), (200, 170, 2)) == [160, 340]
    assert useful((100, 80, 2), (200, 60, 2)) == [160, 120]  # twenty seconds of steps are done again
    assert useful((100, 80, 2), (200, 170, 1), (300, 270, 1)) == [160, 340, 440]  # the second machine was there until the second


def test_time_before_the_trainer_says_some_counts_too() -> None:
    """With ebb.log() the first step's time is known when the second is logged."""
    assert useful((50, None, 2), (100, 80, 2), (200, 170, 2)) == [0, 160, 340]
    assert useful((50, 0.0, 2), (100, 80, 2)) == [0, 160]


def test_no_more_machine_time_counts_than_was_paid() -> None:
    assert useful((100, 500, 2)) == [200]
