"""AWS, as its user guide describes it."""

from collections.abc import Iterator

import pytest

from ebb.api.clock import find
from ebb.metadata.aws import Aws
from ebb.metadata.service import Garbled, MetadataError, MetadataRefused, Unanswered
from tests.metadata.clouds import AwsMetadata, Reply, serve

ACTION = "GET /latest/meta-data/spot/instance-action"
SCHEDULED = "GET /latest/meta-data/events/maintenance/scheduled"
REBALANCE = "GET /latest/meta-data/events/recommendations/rebalance"
TOKEN = "PUT /latest/api/token"


@pytest.fixture
def cloud() -> Iterator[AwsMetadata]:
    with serve(AwsMetadata()) as cloud:
        yield cloud


def aws(cloud: AwsMetadata) -> Aws:
    return Aws({"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.address}, timeout_seconds=0.5)


def test_nothing_planned_is_404_and_one_token_serves_many_looks(cloud: AwsMetadata) -> None:
    source = aws(cloud)
    assert [source.look() for _ in range(3)] == [None] * 3
    assert cloud.asked == [TOKEN, *[ACTION, SCHEDULED, REBALANCE] * 3]


@pytest.mark.parametrize("action", ["terminate", "stop"])
def test_a_reclaim(cloud: AwsMetadata, action: str) -> None:
    source = aws(cloud)
    when = cloud.stamp(118)
    cloud.action = {"action": action, "time": when}
    said = source.look()
    assert said is not None
    assert (said.reclaim, said.key) == (True, f"{action} {when}")
    assert said.text == f"AWS takes this machine back ({action} at {when})"
    assert said.seconds_left == pytest.approx(118, abs=3)
    assert source.left() is None


def test_a_reclaim_comes_before_a_risk(cloud: AwsMetadata) -> None:
    cloud.action = {"action": "terminate", "time": cloud.stamp(60)}
    cloud.rebalance = {"noticeTime": cloud.stamp(-5)}
    said = aws(cloud).look()
    assert said is not None
    assert said.reclaim


def test_hibernation_begins_at_once(cloud: AwsMetadata) -> None:
    cloud.action = {"action": "hibernate", "time": cloud.stamp(100)}
    said = aws(cloud).look()
    assert said is not None
    assert (said.reclaim, said.seconds_left, find(said.text)) == (True, None, None)


@pytest.mark.parametrize("code", ["system-reboot", "instance-retirement", "instance-stop", "system-maintenance"])
def test_a_scheduled_event_is_a_reclaim_at_its_time(cloud: AwsMetadata, code: str) -> None:
    cloud.scheduled = [cloud.event("instance-reboot", 90000), cloud.event(code, 86400)]
    said = aws(cloud).look()
    assert said is not None
    assert (said.reclaim, said.imminent, said.key) == (True, False, f"instance-event-{code}")
    assert said.seconds_left == pytest.approx(86400, abs=3)
    cloud.scheduled = [cloud.event(code, 60)]
    said = aws(cloud).look()
    assert said is not None
    assert said.imminent


def test_a_risk_comes_before_an_event_that_is_far_and_after_one_that_is_near(cloud: AwsMetadata) -> None:
    cloud.rebalance = {"noticeTime": cloud.stamp(-5)}
    found = []
    for seconds in (86400, 60):
        cloud.scheduled = [cloud.event("system-reboot", seconds)]
        said = aws(cloud).look()
        assert said is not None
        found.append(said.reclaim)
    assert found == [False, True]


@pytest.mark.parametrize("over", [{"State": "completed"}, {"State": "canceled"}])
def test_an_event_that_is_over_stays_in_the_list_and_counts_no_more(cloud: AwsMetadata, over: dict[str, str]) -> None:
    cloud.scheduled = [cloud.event("system-reboot", 60, **over)]
    assert aws(cloud).look() is None


def test_a_service_without_the_list_of_events_has_none(cloud: AwsMetadata) -> None:
    cloud.scheduled = None
    assert aws(cloud).look() is None


def test_events_in_garbage_cost_the_look_and_no_reclaim(cloud: AwsMetadata) -> None:
    cloud.scheduled = b'{"no": "list"}'
    with pytest.raises(Garbled, match="without a list of events"):
        aws(cloud).look()
    cloud.action = {"action": "terminate", "time": cloud.stamp(60)}
    assert aws(cloud).look() is not None


def test_a_rebalance_recommendation_is_a_risk_only(cloud: AwsMetadata) -> None:
    cloud.rebalance = {"noticeTime": "2020-10-27T08:22:00Z"}
    source = aws(cloud)
    said = source.look()
    assert said is not None
    assert (said.reclaim, said.key, said.seconds_left) == (False, "rebalance 2020-10-27T08:22:00Z", None)
    assert source.look() == said


@pytest.mark.parametrize("time", ["", "soon", None], ids=["empty", "a-word", "missing"])
def test_a_reclaim_without_a_readable_time_still_is_one(cloud: AwsMetadata, time: str | None) -> None:
    cloud.action = {"action": "terminate"} if time is None else {"action": "terminate", "time": time}
    said = aws(cloud).look()
    assert said is not None
    assert (said.reclaim, said.seconds_left) == (True, None)


def test_an_action_that_is_new_to_this_program_is_a_reclaim(cloud: AwsMetadata) -> None:
    cloud.action = {"action": "dissolve", "time": cloud.stamp(90)}
    said = aws(cloud).look()
    assert said is not None
    assert said.reclaim


def test_a_reclaim_that_could_not_be_carried_out_stays_announced_and_counts_no_more(cloud: AwsMetadata) -> None:
    cloud.action = {"action": "terminate", "time": cloud.stamp(-3600)}
    assert aws(cloud).look() is None
    cloud.action = {"action": "terminate", "time": cloud.stamp(-20)}  # late, but perhaps about to happen
    assert aws(cloud).look() is not None


def test_an_expired_token_is_renewed_within_the_look(cloud: AwsMetadata) -> None:
    source = aws(cloud)
    source.look()
    cloud.expire_token()
    cloud.action = {"action": "terminate", "time": cloud.stamp(60)}
    assert source.look() is not None
    assert cloud.asked[4:] == [ACTION, TOKEN, ACTION]


def test_a_service_that_refuses_fresh_tokens_is_an_error_and_no_loop(cloud: AwsMetadata) -> None:
    source = aws(cloud)
    source.look()
    cloud.next_replies = [Reply(401), Reply(200, b"t"), Reply(401)]
    with pytest.raises(MetadataRefused, match="answered 401"):
        source.look()
    assert source.look() is None


@pytest.mark.parametrize("status", [503, 429, 500])
def test_throttled_is_an_error_that_passes(cloud: AwsMetadata, status: int) -> None:
    source = aws(cloud)
    source.look()
    cloud.next_replies = [Reply(status)]
    with pytest.raises(MetadataRefused, match=f"answered {status}"):
        source.look()
    assert source.look() is None
    assert len(cloud.tokens) == 1


def test_a_hop_limit_of_one_is_explained(cloud: AwsMetadata) -> None:
    cloud.hop_limit_too_small = True
    with pytest.raises(Unanswered, match="raise the instance's metadata hop limit to 2"):
        aws(cloud).look()


def test_a_service_that_is_switched_off_is_said(cloud: AwsMetadata) -> None:
    cloud.next_replies = [Reply(403)]
    with pytest.raises(MetadataError, match="instance metadata is switched off"):
        aws(cloud).look()


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"time": "x"}', b"<html>"], ids=["cut-off", "list", "no-action", "html"])
def test_garbage_is_no_reclaim(cloud: AwsMetadata, body: bytes) -> None:
    cloud.action = body
    with pytest.raises(Garbled):
        aws(cloud).look()


def test_a_risk_in_garbage_is_a_risk(cloud: AwsMetadata) -> None:
    cloud.rebalance = b"[]"
    said = aws(cloud).look()
    assert said is not None
    assert not said.reclaim
