"""Google Cloud, as its documentation describes it."""

import threading
import time
from collections.abc import Iterator

import pytest

from ebb.metadata.gcp import Gcp
from ebb.metadata.service import Garbled, MetadataRefused, Unanswered
from tests.metadata.clouds import GcpMetadata, Reply, serve


@pytest.fixture
def cloud() -> Iterator[GcpMetadata]:
    with serve(GcpMetadata()) as cloud:
        yield cloud


def gcp(cloud: GcpMetadata, wait_seconds: int = 1) -> Gcp:
    host = cloud.address.removeprefix("http://")
    return Gcp({"GCE_METADATA_HOST": host}, timeout_seconds=0.5, wait_seconds=wait_seconds)


def test_both_keys_are_asked_for_and_the_second_look_waits_for_a_change(cloud: GcpMetadata) -> None:
    source = gcp(cloud)
    assert source.look() is None
    started = time.monotonic()
    assert source.look() is None
    assert time.monotonic() - started > 0.9
    assert [asked.partition("?")[0].rpartition("/")[2] for asked in cloud.asked] == ["preempted", "maintenance-event"] * 2
    assert "wait_for_change=true&timeout_sec=1&last_etag=" in cloud.asked[2]


def test_a_reclaim_ends_the_wait(cloud: GcpMetadata) -> None:
    source = gcp(cloud, wait_seconds=30)
    source.look()
    threading.Timer(0.2, cloud.change, kwargs={"preempted": "TRUE"}).start()
    started = time.monotonic()
    said = source.look()
    assert time.monotonic() - started < 10
    assert said is not None
    assert (said.reclaim, said.seconds_left, said.text) == (True, 30, "Google Cloud takes this machine back")
    assert source.left() is None


def test_a_reclaim_before_the_first_look_is_seen(cloud: GcpMetadata) -> None:
    cloud.preempted = "TRUE"
    said = gcp(cloud).look()
    assert said is not None
    assert said.reclaim


@pytest.mark.parametrize(
    ("value", "reclaim", "seconds"),
    [
        pytest.param("TERMINATE_ON_HOST_MAINTENANCE", True, 60, id="stopped"),
        pytest.param("MIGRATE_ON_HOST_MAINTENANCE", False, None, id="moved"),
    ],
)
def test_maintenance(cloud: GcpMetadata, value: str, reclaim: bool, seconds: float | None) -> None:
    cloud.maintenance = value
    said = gcp(cloud).look()
    assert said is not None
    assert (said.reclaim, said.seconds_left, said.key) == (reclaim, seconds, value)


def test_a_maintenance_that_is_new_to_this_program_is_nothing(cloud: GcpMetadata) -> None:
    cloud.maintenance = "DREAM_ON_HOST_MAINTENANCE"
    assert gcp(cloud).look() is None


def test_an_answer_of_something_else_is_not_believed(cloud: GcpMetadata) -> None:
    cloud.flavor, cloud.preempted = "", "TRUE"
    with pytest.raises(Garbled, match="not Google's metadata server"):
        gcp(cloud).look()


@pytest.mark.parametrize("value", ["", "MAYBE", "<html>"])
def test_garbage_is_no_reclaim(cloud: GcpMetadata, value: str) -> None:
    cloud.preempted = value
    with pytest.raises(Garbled, match="TRUE or FALSE is documented"):
        gcp(cloud).look()


@pytest.mark.parametrize("status", [503, 429, 404])
def test_after_an_error_the_value_is_asked_for_without_a_wait(cloud: GcpMetadata, status: int) -> None:
    source = gcp(cloud, wait_seconds=30)
    source.look()
    cloud.next_replies = [Reply(status)]
    with pytest.raises(MetadataRefused, match=f"answered {status}"):
        source.look()
    cloud.preempted = "TRUE"
    said = source.look()
    assert said is not None
    assert "wait_for_change" not in cloud.asked[-1]


def test_a_server_that_waits_longer_than_asked_is_given_up(cloud: GcpMetadata) -> None:
    source = gcp(cloud, wait_seconds=0)
    source.look()
    cloud.next_replies = [GcpMetadata.HANG]
    with pytest.raises(Unanswered):
        source.look()
    assert source.look() is None


def test_without_an_etag_it_asks_without_waiting(cloud: GcpMetadata) -> None:
    cloud.gives_etag = False
    source = gcp(cloud)
    assert [source.look() for _ in range(2)] == [None, None]
    assert not [asked for asked in cloud.asked if "wait" in asked]
