"""What happened, in plain words: history and events merged, repeated things counted, reclaims with what they cost."""

from typing import Any

import pytest

from ebb.client.jobs.reclaims import Reclaim, losses, starts
from ebb.client.timeline.timeline import Entry, of_event, of_reclaim, timeline, who
from tests.cli.world import elastic_job, worker_pod

Object = dict[str, Any]
DAY = "2026-11-21T"
LOST = {"at": f"{DAY}12:01:07.5Z", "what": "reclaimed", "worker": 1, "node": "m1", "cause": "ReclaimNotice"}
PLACED = {"at": f"{DAY}12:00:11.123Z", "what": "placed", "cause": "zone-a"}
MOVED = {"at": f"{DAY}12:01:30Z", "what": "placed", "cause": "zone-b"}


def event(reason: str, message: str = "", *, at: str, pod: int | None = None, count: int = 1, **more: Any) -> Object:
    """Of worker `pod`, or of the job."""
    about = {"kind": "ElasticJob", "name": "digits", "uid": "uid-digits"}
    if pod is not None:
        about = {"kind": "Pod", "name": f"digits-worker-{pod}", "uid": "p"}
    kind = more.pop("type", "Normal")
    return {
        "kind": "Event", "reason": reason, "message": message, "type": kind, "count": count,
        "firstTimestamp": f"{DAY}{at}Z", "lastTimestamp": f"{DAY}{at}Z", "involvedObject": about | more.pop("about", {}), **more,
    }  # fmt: skip


def read_timeline(
    *events: Object, history: tuple[Object, ...] = (), reclaims: tuple[Reclaim, ...] = ()
) -> list[tuple[str, str, int]]:
    found = timeline(elastic_job(history=list(history)), events, reclaims)
    return [(entry.at[11:19], entry.text, entry.count) for entry in found]


def test_a_worker_that_starts_is_four_lines() -> None:
    lines = read_timeline(
        event("ElasticJobCreated", "The controller took the job on: 2 workers wanted.", at="12:00:01"),
        event("FailedScheduling", "0/3 nodes are available: 3 node(s) had untolerated taint.", at="12:00:02", pod=0, count=7),
        event("FailedScheduling", "0/3 nodes are available: 3 node(s) had untolerated taint.", at="12:00:02", pod=1, count=6),
        event("TriggeredScaleUp", "pod triggered scale-up: [{g 0->2 (max: 4)}]", at="12:00:04", pod=0),
        event("TriggeredScaleUp", "pod triggered scale-up: [{g 0->2 (max: 4)}]", at="12:00:04", pod=1),
        event("Scheduled", "Successfully assigned elastic-job/digits-worker-0 to m0", at="12:00:40", pod=0),
        event("Pulling", 'Pulling image "x"', at="12:00:41", pod=0),
        event("Pulled", 'Successfully pulled image "x" in 9s', at="12:00:50", pod=0),
        event("Created", "Created container", at="12:00:50", pod=0),
        event("Started", "Started container", at="12:00:51", pod=0),
    )
    assert lines == [
        ("12:00:01", "The controller took the job on: 2 workers wanted", 1),
        ("12:00:02", "workers 0 and 1 wait for a machine", 7),
        ("12:00:04", "workers 0 and 1 get a new machine, which is booting", 1),
        ("12:00:40", "worker 0 goes to machine m0", 1),
        ("12:00:41", "worker 0 fetches the image", 1),
        ("12:00:51", "worker 0 starts", 1),
    ]


def test_the_same_again_is_counted_and_later_again_a_new_line() -> None:
    lines = read_timeline(
        event("BackOff", at="12:00:00", pod=0, count=2), event("BackOff", at="12:00:20", pod=0),
        event("BackOff", at="12:02:00", pod=0),
    )  # fmt: skip
    text = "worker 0 fails to start and is tried again"
    assert lines == [("12:00:00", text, 3), ("12:02:00", text, 1)]


def test_what_the_controller_wrote_twice_is_told_once() -> None:
    held = {"at": f"{DAY}12:03:00.2Z", "what": "held", "cause": "BudgetSpent"}
    lines = read_timeline(
        event("Placed", "Workers go to zone zone-a.", at="12:00:11"),
        event("WorkerReclaimed", "Worker 1 on m1 is lost: x. It will be replaced.", at="12:01:07", type="Warning"),
        event("BudgetSpent", "The job has cost 5 USD. Raise spec.budget.maxUSD above 5 to go on.", at="12:03:00"),
        event("WorkerReclaimed", "Worker 0 on m0 is lost: older than the history.", at="11:59:00", type="Warning"),
        history=(PLACED, LOST, held),
    )
    assert lines == [
        ("11:59:00", "Worker 0 on m0 is lost: older than the history", 1),
        ("12:00:11", "goes to zone-a", 1),
        ("12:01:07", "worker 1 on m1 was lost: the cloud takes its machine back", 1),
        ("12:03:00", "The job has cost 5 USD. Raise spec.budget.maxUSD above 5 to go on", 1),
    ]


def test_others_events_and_those_of_an_earlier_job_are_not_told() -> None:
    lines = read_timeline(
        event("Started", at="12:00:30", about={"kind": "Pod", "name": "digits-2-worker-0"}),
        event("Started", at="12:00:30", about={"kind": "Pod", "name": "digits-worker-x"}),
        event("ElasticJobCreated", at="12:00:30", about={"uid": "uid-of-an-earlier-one"}),
        event("Started", at="11:00:00", pod=0),
        event("Started", at="12:00:30", pod=0, about={"fieldPath": "spec.initContainers{ebb}"}),
    )
    assert lines == []


def test_events_of_newer_clients_have_their_times_elsewhere() -> None:
    new = event("FailedScheduling", at="12:00:00", pod=0) | {
        "firstTimestamp": None, "lastTimestamp": None, "count": None, "eventTime": f"{DAY}12:00:05.123456Z",
        "series": {"count": 9, "lastObservedTime": f"{DAY}12:05:00.5Z"},
    }  # fmt: skip
    (entry,) = timeline(elastic_job(), [new])
    assert entry == Entry(
        at=f"{DAY}12:00:05.123456Z", last=f"{DAY}12:05:00.5Z", text="worker 0 waits for a machine", count=9, workers=(0,),
        reason="FailedScheduling", warning=False,
    )  # fmt: skip


UNKNOWN = {
    "a message": (event("FailedMount", "MountVolume.SetUp failed.", at="12:00:00", pod=0), "{who}: MountVolume.SetUp failed"),
    "only a reason": (event("Odd", "", at="12:00:00", pod=0), "{who}: Odd"),
    "no room": (
        event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached", at="12:00:00", pod=0),
        "{who} {gets|get} no machine now: 1 max node group size reached",
    ),
    "about the job": (event("GroupFull", "2 of 2 jobs of the group run.", at="12:00:00"), "2 of 2 jobs of the group run"),
}


@pytest.mark.parametrize(("given", "text"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_shown_as_it_is(given: Object, text: str) -> None:
    assert of_event(given, given["involvedObject"]["kind"] == "Pod") == text


@pytest.mark.parametrize(
    ("workers", "text"), [((1,), "worker 1"), ((0, 2), "workers 0 and 2"), ((0, 1, 2), "workers 0 to 2"),
                          ((0, 2, 5), "workers 0, 2 and 5")]
)  # fmt: skip
def test_whom_it_is_about(workers: tuple[int, ...], text: str) -> None:
    assert who(workers) == text


# --- What reclaims cost ---------------------------------------------------------------------------------------------------------


def pod(index: int, started: str, node: str = "n") -> Object:
    made = worker_pod(index, node=node)
    made["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = f"{DAY}{started}Z"
    return made


def test_a_reclaim_is_over_when_the_next_pod_of_that_worker_runs() -> None:
    (loss,) = losses(elastic_job(history=[PLACED, LOST, MOVED]), [pod(0, "12:00:20"), pod(1, "12:01:48", "n7")], {"n7": "zone-b"})
    assert (loss.zone, loss.back_zone, loss.seconds) == ("zone-a", "zone-b", 40.5)
    assert of_reclaim(loss) == "worker 1 reclaimed in zone-a, back in zone-b after 40 s: the cloud takes its machine back"


def test_the_zone_of_who_is_back_and_gone_again_is_that_of_the_job_then() -> None:
    again = {**LOST, "at": f"{DAY}12:10:00Z"}
    job = elastic_job(history=[PLACED, LOST, MOVED, again])
    seen = starts([event("Started", at="12:01:48", pod=1), event("Started", at="12:09:00", pod=0)], "digits")
    first, second = losses(job, [pod(0, "12:00:20")], {}, seen)
    assert (first.back_zone, first.seconds) == ("zone-b", 40.5)
    assert (second.zone, second.back, second.seconds) == ("zone-b", "", None)
    assert of_reclaim(second) == "worker 1 reclaimed in zone-b: the cloud takes its machine back"


def test_a_start_after_the_next_loss_is_not_this_ones() -> None:
    again = {**LOST, "at": f"{DAY}12:10:00Z"}
    first, second = losses(elastic_job(history=[PLACED, LOST, again]), [pod(1, "12:12:00")], {})
    assert (first.seconds, second.seconds) == (None, 120.0)
    assert of_reclaim(second).startswith("worker 1 reclaimed in zone-a, back after 2 min 0 s:")


def test_who_was_deleted_was_not_reclaimed() -> None:
    (loss,) = losses(elastic_job(history=[{**LOST, "cause": "PodDeleted"}]), [pod(1, "13:02:00")], {})
    assert of_reclaim(loss) == "worker 1 lost, back after 1 h 0 min: somebody deleted it"
