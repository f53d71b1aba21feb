"""Machines that the cloud keeps only for so long: workers leave them one after the other, and no new one goes there."""

import pytest

from tests.workloads.builders import NOW, make_group, make_job, make_node, make_platform
from tests.workloads.looks import done, look, running
from workloads.clock import stamp
from workloads.plan.ages import aged, leave_at
from workloads.plan.values import CreatePod, Object, Plan

DAY = 86_400
PLATFORM = make_platform(make_group("t4", max_age_seconds=DAY))
JOB = make_job(replicas=4, high=4)


def node_of(age: float, name: str = "n0", group: str = "t4") -> Object:
    """A machine of that age, in seconds."""
    node = make_node(name)
    node["metadata"] |= {"creationTimestamp": stamp(NOW - age), "labels": {"ebb.dev/node-group": group}}
    return node


def seen(age: float, *pods: Object) -> Plan:
    return look(JOB, *pods, nodes=(node_of(age),), platform=PLATFORM)


def test_workers_leave_one_after_the_other_the_first_worker_last() -> None:
    times = [leave_at(node_of(0), PLATFORM, index=index, workers=4) for index in range(4)]
    shares = [round((time - NOW) / DAY, 2) for time in times if time is not None]
    assert shares == [0.95, 0.9, 0.85, 0.8]


@pytest.mark.parametrize(
    ("node", "platform"),
    [
        (node_of(0, group="other"), PLATFORM),
        (node_of(0), make_platform(make_group("t4"))),
        (node_of(0), None),
        (make_node(), PLATFORM),
    ],
    ids=["of-no-known-group", "without-a-limit", "without-a-stack", "of-unknown-age"],
)
def test_no_other_machine_is_too_old(node: Object, platform: object) -> None:
    assert leave_at(node, platform, index=0, workers=1) is None  # type: ignore[arg-type]
    assert not aged([node], platform, NOW + 10 * DAY)  # type: ignore[arg-type]


def test_a_worker_leaves_with_its_own_grace_and_the_others_stay() -> None:
    found = seen(0.82 * DAY, *running(JOB, 4))
    assert done(found) == ["-3"]
    assert (found.status.reclaims, found.status.failures) == (1, 0)
    assert "MachineAge" in {entry.cause for entry in found.status.history}


def test_before_that_nothing_happens_but_it_is_looked_at_in_time() -> None:
    found = seen(0.7 * DAY, *running(JOB, 4))
    assert done(found) == []
    assert found.wake_at is not None
    assert found.wake_at == pytest.approx(NOW + 0.1 * DAY, abs=1) or found.wake_at < NOW + 0.1 * DAY


def test_no_new_worker_goes_to_a_machine_that_it_would_soon_leave() -> None:
    assert aged([node_of(0.69 * DAY, "young"), node_of(0.71 * DAY, "old")], PLATFORM, NOW) == {"old"}
    found = look(JOB, *running(JOB, 3), platform=PLATFORM, shunned=frozenset({"old"}))
    [pod] = [action.body for action in found.actions if isinstance(action, CreatePod)]
    assert "old" in str(pod["spec"]["affinity"])
