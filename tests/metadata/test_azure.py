"""Azure, as its documentation describes scheduled events."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ebb.metadata.azure import Azure
from ebb.metadata.service import Garbled, MetadataRefused, Unanswered
from tests.metadata.clouds import AzureMetadata, Reply, serve


@pytest.fixture
def cloud() -> Iterator[AzureMetadata]:
    with serve(AzureMetadata()) as cloud:
        yield cloud


def azure(cloud: AzureMetadata, first_seconds: float = 5.0) -> Azure:
    return Azure({}, address=cloud.address, timeout_seconds=0.5, first_seconds=first_seconds)


def test_no_events_and_the_name_is_asked_for_once(cloud: AzureMetadata) -> None:
    source = azure(cloud)
    assert [source.look() for _ in range(3)] == [None] * 3
    assert len([asked for asked in cloud.asked if "/compute/name" in asked]) == 1


def test_a_reclaim_and_its_approval_once_the_workers_have_left(cloud: AzureMetadata) -> None:
    cloud.events = [cloud.event("Preempt", 30)]
    source = azure(cloud)
    said = source.look()
    assert said is not None
    assert (said.reclaim, said.key) == (True, "Preempt-1")
    assert said.seconds_left == pytest.approx(30, abs=3)
    assert "takes this machine back" in said.text
    assert cloud.approved == []  # seeing it approves nothing
    assert source.left() == "told Azure that its event Preempt-1 may begin"
    assert cloud.approved == ["Preempt-1"]


def test_the_first_answer_may_take_long_and_only_the_first(cloud: AzureMetadata) -> None:
    cloud.first_delay_seconds = 1.0
    source = azure(cloud)
    started = time.monotonic()
    assert source.look() is None
    assert time.monotonic() - started > 0.9
    cloud.first_delay_seconds = 3.0
    with pytest.raises(Unanswered, match=r"in 0\.5 s"):
        source.look()


def test_after_a_first_request_that_failed_the_next_is_given_as_long(cloud: AzureMetadata) -> None:
    source = azure(cloud)
    cloud.next_replies = [Reply(503)]
    with pytest.raises(MetadataRefused):
        source.look()
    cloud.first_delay_seconds = 1.0
    assert source.look() is None


@pytest.mark.parametrize(
    ("kind", "counts"),
    [("Preempt", True), ("Terminate", True), ("Redeploy", True), ("Reboot", True), ("Freeze", False), ("Dream", False)],
)
def test_what_ends_the_processes_counts(cloud: AzureMetadata, kind: str, counts: bool) -> None:
    cloud.events = [cloud.event(kind, 900)]
    assert (azure(cloud).look() is not None) == counts


def test_an_event_that_has_begun_has_no_time_left_and_is_not_approved(cloud: AzureMetadata) -> None:
    cloud.events = [cloud.event("Reboot", 0, EventStatus="Started", NotBefore="")]
    source = azure(cloud)
    said = source.look()
    assert said is not None
    assert (said.reclaim, said.seconds_left) == (True, None)
    assert source.left() is None
    assert cloud.approved == []


def test_the_events_of_other_machines_are_theirs(cloud: AzureMetadata) -> None:
    cloud.events = [cloud.event("Preempt", 30, Resources=["spot_1", "spot_10"])]
    source = azure(cloud)
    assert source.look() is None
    assert source.left() is None


def test_an_event_for_several_machines_is_not_approved_for_the_others(cloud: AzureMetadata) -> None:
    cloud.events = [cloud.event("Preempt", 30, Resources=["spot_1", "SPOT_0"])]
    source = azure(cloud)
    assert source.look() is not None
    assert source.left() is None
    assert cloud.approved == []


def test_the_earliest_event_counts(cloud: AzureMetadata) -> None:
    cloud.events = [cloud.event("Redeploy", 7 * 86400), cloud.event("Preempt", 30), cloud.event("Reboot", 900)]
    said = azure(cloud).look()
    assert said is not None
    assert said.key == "Preempt-1"


def test_a_withdrawn_event_is_gone(cloud: AzureMetadata) -> None:
    cloud.events = [cloud.event("Redeploy", 900)]
    source = azure(cloud)
    assert source.look() is not None
    cloud.events = []
    assert source.look() is None
    assert source.left() is None


def test_without_a_name_an_event_is_ours_after_some_tries_and_is_not_approved(cloud: AzureMetadata) -> None:
    cloud.name = None
    cloud.events = [cloud.event("Preempt", 30, Resources=["spot_1"])]
    source = azure(cloud)
    for _ in range(2):
        with pytest.raises(MetadataRefused, match="answered 404"):
            source.look()
    assert source.look() is not None
    assert source.left() is None
    cloud.name = "spot_0"
    assert source.look() is None


@pytest.mark.parametrize("status", [400, 404, 410, 429, 500, 503])
def test_an_error_passes(cloud: AzureMetadata, status: int) -> None:
    source = azure(cloud)
    source.look()
    cloud.next_replies = [Reply(status)]
    with pytest.raises(MetadataRefused, match=f"answered {status}"):
        source.look()
    assert source.look() is None


@pytest.mark.parametrize("document", [b"{", b"[]", b'{"Events": null}', b'{"Events": {}}'])
def test_garbage_is_no_reclaim(cloud: AzureMetadata, document: bytes) -> None:
    cloud.events = document
    with pytest.raises(Garbled):
        azure(cloud).look()


@pytest.mark.parametrize(
    "event",
    [{}, "Preempt", {"EventType": "Preempt"}, {"EventType": "Preempt", "Resources": "spot_0"}, {"EventType": ["Preempt"]}],
)
def test_events_of_another_shape_are_passed_over(cloud: AzureMetadata, event: Any) -> None:
    cloud.events = [event, cloud.event("Preempt", 30)]
    said = azure(cloud).look()
    assert said is not None
    assert said.key == "Preempt-1"


def test_a_reclaim_without_a_readable_time_still_is_one(cloud: AzureMetadata) -> None:
    cloud.events = [cloud.event("Preempt", 30, NotBefore="soon")]
    said = azure(cloud).look()
    assert said is not None
    assert (said.reclaim, said.seconds_left) == (True, None)
