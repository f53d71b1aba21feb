"""How many workers there are: the first minReplicas, then the rest; and what an automatic job wants."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.contract import LABEL_INDEX
from ebb.api.schema import encode
from ebb.api.status import Dry
from ebb.controller.reconciler.capacity import Supply
from ebb.controller.reconciler.types import CreatePod, Plan
from tests.builders import NOW, make_group, make_platform, make_pod
from tests.controller.reconciler.scenes import AT_MAX, BACKOFF, claim, cluster_capacity, dry, pending, placed_job, said, scheduled
from tests.looks import again, done, look

Object = dict[str, Any]
ONE = make_platform(make_group("t4-local-a", max=8))
JOB = placed_job(low=2, replicas=4, high=5)
CLASSES = {"": 1000, "ebb-job": 1000, "ebb-replacement": 1000, "ebb-elastic": 100}


def leaving(pod: Object) -> Object:
    asked = {"deletionTimestamp": stamp(NOW + 30), "deletionGracePeriodSeconds": 30}
    return {**pod, "metadata": {**pod["metadata"], **asked}}


CREATED: dict[str, tuple[Plan, list[str]]] = {
    "first-the-base": (look(JOB, platform=ONE), ["+0", "+1"]),
    "nothing-more-while-the-base-waits": (look(JOB, *scheduled(JOB, 0), *pending(JOB, 1), platform=ONE), []),
    "then-the-rest-in-one-batch": (look(JOB, *scheduled(JOB, 0, 1), platform=ONE), ["+2", "+3"]),
    "when-they-have-machines-though-they-do-not-run-yet": (
        look(JOB, *(make_pod(JOB, index, phase="Pending") for index in range(2)), platform=ONE),
        ["+2", "+3"],
    ),
    "all-losses-at-once-while-enough-are-left": (look(JOB, *scheduled(JOB, 1, 3), platform=ONE), ["+0", "+2"]),
    "the-base-first-when-too-few-are-left": (look(JOB, *scheduled(JOB, 3), platform=ONE), ["+0", "+1"]),
    "all-at-once-where-the-rest-makes-room-for-others": (
        look(JOB, platform=ONE, priorities=CLASSES), ["+0", "+1", "+2", "+3"],
    ),
    "not-for-a-job-whose-own-class-is-as-low": (
        look(placed_job(low=2, replicas=4, high=5, priorityClassName="ebb-elastic"), platform=ONE, priorities=CLASSES),
        ["+0", "+1"],
    ),
    "all-at-once-without-a-stack": (look(JOB), ["+0", "+1", "+2", "+3"]),
    "never-more-than-max-with-those-on-their-way-out": (
        look(placed_job(low=2, replicas=5, high=5), *scheduled(JOB, 0, 1), *map(leaving, scheduled(JOB, 6, 7)), platform=ONE),
        ["+2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("decided", "actions"), CREATED.values(), ids=CREATED.keys())
def test_who_is_created(decided: Plan, actions: list[str]) -> None:
    assert done(decided) == actions


def classes(job: Object, *pods: Object, priorities: dict[str, int]) -> dict[str, str | None]:
    """Of the pods that are created, by index."""
    decided = look(job, *pods, platform=ONE, priorities=priorities)
    bodies = [action.body for action in decided.actions if isinstance(action, CreatePod)]
    return {body["metadata"]["labels"][LABEL_INDEX]: body["spec"].get("priorityClassName") for body in bodies}


def elastic(pod: Object) -> Object:
    return {**pod, "spec": {**pod["spec"], "priorityClassName": "ebb-elastic"}}


def test_elastic_workers_have_the_class_that_makes_room() -> None:
    assert classes(JOB, *scheduled(JOB, 0), make_pod(JOB, 3), priorities=CLASSES) == {"1": None, "2": "ebb-elastic"}
    assert classes(JOB, *scheduled(JOB, 0), make_pod(JOB, 3), priorities={}) == {"1": None, "2": None}


def test_a_lost_first_worker_pushes_off_none_of_its_own_job() -> None:
    """The scheduler would take the machine of an elastic one, and the job would lose two for one."""
    left = [make_pod(JOB, 1), elastic(make_pod(JOB, 2)), elastic(make_pod(JOB, 3))]
    assert classes(JOB, *left, priorities=CLASSES) == {"0": "ebb-replacement"}
    without = {name: value for name, value in CLASSES.items() if name != "ebb-replacement"}
    assert classes(JOB, *left, priorities=without) == {"0": "ebb-elastic"}, "a cluster with older manifests"


def test_a_lost_first_worker_makes_room_where_none_of_its_own_could_go() -> None:
    waiting = elastic(pending(JOB, 2)[0])
    assert classes(JOB, make_pod(JOB, 1), waiting, priorities=CLASSES) == {"0": None, "3": "ebb-elastic"}


@pytest.mark.parametrize(("value", "found"), [(5000, "ebb-replacement"), (500, "ebb-elastic")])
def test_a_replacement_is_never_safer_than_its_job(value: int, found: str) -> None:
    job = placed_job(low=2, replicas=4, high=5, priorityClassName="own")
    left = [make_pod(job, 1), elastic(make_pod(job, 2)), elastic(make_pod(job, 3))]
    assert classes(job, *left, priorities={**CLASSES, "own": value}) == {"0": found}


def planned(decided: Plan) -> list[str]:
    bodies = [action.body for action in decided.actions if isinstance(action, CreatePod)]
    variables = [{one["name"]: one.get("value") for one in body["spec"]["containers"][0]["env"]} for body in bodies]
    return [found["EBB_PLANNED_WORKERS"] for found in variables]


PLANNED: dict[str, tuple[Plan, list[str]]] = {
    "all-that-are-made-now": (look(JOB, platform=ONE, priorities=CLASSES), ["4"] * 4),
    "the-base-alone-where-the-rest-comes-later": (look(JOB, platform=ONE), ["2"] * 2),
    "and-those-that-are-there": (look(JOB, *scheduled(JOB, 0, 1), platform=ONE), ["4"] * 2),
    "a-replacement": (look(JOB, *scheduled(JOB, 0, 1, 3), platform=ONE), ["4"]),
    "without-elastic-ones-that-get-no-machine": (look(JOB, *scheduled(JOB, 0, 1), *pending(JOB, 3), platform=ONE), ["3"]),
    "with-a-first-one-that-gets-none": (
        look(JOB, *scheduled(JOB, 0), *pending(JOB, 1), platform=ONE, priorities=CLASSES), ["4"] * 2,
    ),
    "without-those-on-their-way-out": (look(JOB, *scheduled(JOB, 0, 1), *map(leaving, scheduled(JOB, 3)), platform=ONE), ["3"]),
    "not-one-whose-name-is-taken": (look(JOB, platform=ONE, priorities=CLASSES, taken=frozenset({"digits-worker-3"})), ["3"] * 3),
}  # fmt: skip


@pytest.mark.parametrize(("decided", "values"), PLANNED.values(), ids=PLANNED.keys())
def test_how_many_a_new_worker_should_wait_for(decided: Plan, values: list[str]) -> None:
    assert planned(decided) == values


# --- Automatic ---


def automatic(
    *pods: Object, target: int | None = 2, age: float = 100, others: Any = (), low: int = 2, high: int = 6, **rest: Any
) -> Plan:
    """A look at an automatic job whose target was set so many seconds ago."""
    status: Object = {} if target is None else {"target": target, "targetTime": stamp(NOW - age)}
    status |= rest.pop("status", {})
    job = placed_job(low=low, replicas=low + 1, high=high, scaling="automatic", status=status)
    return look(job, *pods, **{"platform": ONE, "cluster_capacity": cluster_capacity(*others), **rest})


def up(count: int) -> list[Object]:
    return scheduled(JOB, *range(count))


HUNGRY: Object = {"hungry_since": NOW - 10, "placed": 0}
STARVING: Object = {"hungry_since": NOW - 400, "placed": 0}
TARGETS: dict[str, tuple[Plan, int]] = {
    "starts-at-replicas": (automatic(target=None), 3),
    "starts-with-what-there-is-room-for": (automatic(target=None, others=[claim("x", "local-a", least=6, placed=6)]), 2),
    "grows-to-max": (automatic(*up(2)), 6),
    "once-a-minute": (automatic(*up(2), age=59), 2),
    "when-all-run": (automatic(*up(1), *pending(JOB, 1)), 2),
    "as-far-as-there-is-room": (automatic(*up(2), others=[claim("x", "local-a", least=3, placed=3)]), 5),
    "beside-what-others-have": (automatic(*up(2), others=[claim("x", "local-a", least=1, placed=5)]), 3),
    "beside-the-least-of-those-that-wait": (automatic(*up(2), others=[claim("x", "local-a", least=5, **HUNGRY)]), 3),
    "not-for-what-is-elsewhere": (automatic(*up(2), others=[claim("x", "local-b", least=5, placed=5)]), 6),
    "not-where-it-was-dry": (automatic(*up(2), status={"dry": [encode(dry("local-a", at=NOW - 20))]}), 2),
    "shrinks-at-once-for-one-that-waits": (
        automatic(*up(6), target=6, age=1, others=[claim("x", "local-a", least=4, **HUNGRY)]),
        4,
    ),
    "never-below-min": (automatic(*up(6), target=6, others=[claim("x", "local-a", least=8, **HUNGRY)]), 2),
    "the-one-behind-gives-first": (
        automatic(*up(3), target=3, others=[
            claim("x", "local-a", least=2, **HUNGRY), claim("y", "local-a", least=2, placed=5, automatic=True, created=NOW)]),
        4,
    ),
    "and-then-the-one-before": (
        automatic(*up(3), target=3, others=[
            claim("x", "local-a", least=2, **HUNGRY), claim("y", "local-a", least=2, placed=5, automatic=True)]),
        2,
    ),
    "for-one-that-starves-though-there-should-be-room": (
        automatic(*up(4), target=4, others=[claim("x", "local-a", least=1, **STARVING)]),
        3,
    ),
    "not-twice-in-a-minute": (automatic(*up(4), target=4, age=59, others=[claim("x", "local-a", least=1, **STARVING)]), 4),
    "machines-that-do-not-come": (automatic(*up(3), *pending(JOB, 3, 4), target=5, age=400, now=NOW + 310), 3),
    "machines-that-may-come": (automatic(*up(3), *pending(JOB, 3, 4), target=5, age=400, now=NOW + 309), 5),
    "without-a-stack": (automatic(*up(2), platform=None), 6),
}  # fmt: skip


@pytest.mark.parametrize(("decided", "target"), TARGETS.values(), ids=TARGETS.keys())
def test_what_an_automatic_job_wants(decided: Plan, target: int) -> None:
    assert decided.status.target == target


def test_growth_is_written_told_and_done_in_the_next_round() -> None:
    first = automatic(*up(2))
    assert (done(first), first.status.target_time) == ([], stamp(NOW))
    assert [event.message for event in first.events if event.reason == "Scaled"] == [
        "The job grows from 2 to 6 workers: there is room in local-a (spot T4)."
    ]
    job = again(placed_job(low=2, replicas=3, high=6, scaling="automatic"), first)
    assert done(look(job, *up(2), platform=ONE)) == ["+2", "+3", "+4", "+5"]


def test_the_last_workers_go_first() -> None:
    first = automatic(*up(6), target=6, others=[claim("x", "local-a", least=4, **HUNGRY)])
    job = again(placed_job(low=2, replicas=3, high=6, scaling="automatic"), first)
    assert done(look(job, *up(6), platform=ONE)) == ["-4", "-5"]


def test_machines_that_did_not_come_are_remembered() -> None:
    decided = automatic(*up(3), *pending(JOB, 3, 4), target=5, age=400, now=NOW + 310, supply=said(AT_MAX, 3))
    (entry,) = decided.status.dry
    assert (entry.zone, entry.message) == ("local-a", AT_MAX)


def test_a_job_that_is_not_automatic_any_more_has_no_target() -> None:
    job = placed_job(low=2, replicas=3, high=6, status={"target": 6, "targetTime": stamp(NOW)})
    decided = look(job, *up(3), platform=ONE)
    assert (decided.status.target, decided.status.target_time, done(decided)) == (None, None, [])


def test_two_ways_to_see_that_no_machines_come_are_one_entry() -> None:
    job = placed_job(low=2, replicas=3, high=6, scaling="automatic", status={"target": 4, "targetTime": stamp(NOW - 400)})
    pods, words = pending(job, 0, 1, 2, 3), Supply(words={**said(AT_MAX, 0).words, **said(BACKOFF, 1).words})
    seen: list[tuple[Dry, ...]] = []
    for after in (310, 321, 332):
        decided = look(job, *pods, platform=ONE, supply=words, now=NOW + after)
        job, seen = again(job, decided), [*seen, decided.status.dry]
    assert seen[0] == seen[1] == seen[2]
    assert [entry.message for entry in seen[0]] == [BACKOFF]
