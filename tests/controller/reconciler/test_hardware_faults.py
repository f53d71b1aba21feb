"""Machines whose GPU fails a job: nothing is spent for them, unless the program does that to every machine that it gets."""

from typing import Any

import pytest

from ebb.api.clock import stamp
from tests.builders import NOW, make_job, make_node, make_pod
from tests.looks import JOB, again, done, ended, look


def after(*seconds_ago: float, cause: str = "HardwareFault", **status: Any) -> dict[str, Any]:
    """A job whose machines m0, m1, ... failed it so long ago."""
    history = [
        {"at": stamp(NOW - ago), "what": "reclaimed", "worker": 1, "node": f"m{number}", "cause": cause}
        for number, ago in enumerate(seconds_ago)
    ]
    return make_job(status={"history": history, "reclaims": len(history), **status})


@pytest.mark.parametrize(
    ("job", "failures", "action"),
    [
        pytest.param(JOB, 0, ["-1"], id="the-first"),
        pytest.param(after(60, 30), 0, ["-1"], id="the-third-within-an-hour"),
        pytest.param(after(90, 60, 30), 1, [], id="the-fourth-within-an-hour"),
        pytest.param(after(3700, 60, 30), 0, ["-1"], id="the-fourth-within-more"),
        pytest.param(after(6000, 4000, 2000), 1, [], id="each-within-an-hour-of-the-next"),
        pytest.param(after(9000, 4000, 2000), 0, ["-1"], id="one-of-them-earlier"),
        pytest.param(after(90, 60, 30, cause="ReclaimNotice"), 0, ["-1"], id="after-reclaims"),
    ],
)
def test_what_is_spent(job: dict[str, Any], failures: int, action: list[str]) -> None:
    decided = look(job, make_pod(JOB), ended(79, 1))
    assert decided.status.failures == failures
    assert done(decided) == action
    entry = decided.status.history[-1]
    assert (entry.what, entry.node) == ("failed" if failures else "reclaimed", "n0")
    if failures:
        assert entry.cause == (
            "the launcher left with exit code 79 (after 3 other machines, each soon after the last: the program or its image is "
            "at fault)"
        )


CHECK = (
    "[launcher 12:00:00] GPU 0 (NVIDIA H100 80GB HBM3) of this machine failed a test: CUDA unknown error. This machine does not "
    "join the job"
)


@pytest.mark.parametrize("minutes", [1, 25, 55], ids="{}-minutes-until-a-machine-comes".format)
def test_a_job_whose_every_machine_fails_its_check_ends(minutes: int) -> None:
    """No worker of it ever trained. It bought machines for ever, where they came slowly."""
    job, warnings = make_job(replicas=1, low=1, high=1, backoffLimit=1), list[str]()
    for number in range(20):
        node, now = f"m{number}", NOW + number * minutes * 60
        attempt = job.get("status", {}).get("restarts", 0)
        pod = make_pod(
            job, phase="Failed", exit_code=79, message=CHECK, node=node, attempt=attempt, uid=f"uid-{number}", finished=now - 1
        )
        decided = look(job, pod, now=now, nodes=(make_node(node),))
        warnings += [event.message for event in decided.events if event.warning]
        job = again(job, decided)
        if decided.status.ended:
            break
    assert number == 4
    assert [entry.node for entry in decided.status.history[:5]] == ["m0", "m1", "m2", "m3", "m4"]
    assert decided.status.reclaims == 3
    assert warnings[0].startswith(
        "Worker 0 left m0: GPU 0 (NVIDIA H100 80GB HBM3) of this machine failed a test: CUDA unknown error. This machine does "
        "not join the job. It will be replaced on another machine, and nothing is spent."
    )
    assert "GPU 0 (NVIDIA H100 80GB HBM3) of this machine failed a test" in warnings[-1]
    assert "(after 3 other machines, each soon after the last: the program or its image is at fault)" in warnings[-1]


def test_a_job_that_has_no_other_machine_says_which_it_stays_off() -> None:
    """In a cluster that cannot grow: the scheduler only says that no machine fits."""
    message = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    job = after(90, 30)
    decided = look(job, make_pod(job, phase="Pending", node="", conditions=(condition,)))
    running = decided.status.condition("Running")
    assert running is not None
    assert running.message.endswith("node affinity/selector). The job stays off m0, m1, which failed it.")


def test_a_loss_is_counted_once() -> None:
    first = look(JOB, make_pod(JOB), ended(79, 1))
    assert [event.reason for event in first.events if event.warning] == ["HardwareFault"]
    second = look(again(JOB, first), make_pod(JOB), ended(79, 1))
    assert second.status.reclaims == first.status.reclaims == 1
    assert [event.reason for event in second.events if event.warning] == []
