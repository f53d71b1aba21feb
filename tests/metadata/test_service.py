"""A request ends in time whatever answers, asks nobody but the service, and reads times as the service means them."""

import socket
import time
from collections.abc import Iterator

import pytest

from ebb.metadata.service import Garbled, Metadata, Unanswered, parse_time
from testing.ports import free_port
from tests.metadata.clouds import AwsMetadata, Fake, Reply, serve


@pytest.fixture
def cloud() -> Iterator[AwsMetadata]:
    with serve(AwsMetadata()) as cloud:
        yield cloud


@pytest.mark.parametrize("misbehaviour", [Fake.HANG, Fake.DRIP], ids=["never-answers", "a-byte-now-and-then"])
def test_the_limit_is_for_the_whole_request(cloud: AwsMetadata, misbehaviour: Reply) -> None:
    cloud.next_replies = [misbehaviour]
    started = time.monotonic()
    with pytest.raises(Unanswered, match=r"gave no whole answer in 0\.3 s"):
        Metadata(cloud.address, timeout_seconds=0.3).ask("GET", "/latest/x", {})
    assert 0.25 < time.monotonic() - started < 5


def test_an_address_that_swallows_packets_costs_the_limit() -> None:
    with socket.socket() as full:  # one waiting connection fills the queue: the next one's first packet is not answered
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), pytest.raises(Unanswered, match="no whole answer"):
            Metadata(f"http://127.0.0.1:{port}", timeout_seconds=0.2).ask("GET", "/", {})


def test_nobody_there_is_said() -> None:
    with pytest.raises(Unanswered, match="Connection refused"):
        Metadata(f"http://127.0.0.1:{free_port()}", timeout_seconds=1).ask("GET", "/", {})


def test_proxies_are_not_used(cloud: AwsMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert Metadata(cloud.address, timeout_seconds=5).ask("GET", "/latest/x", {}).status == 401


def test_redirects_are_not_followed(cloud: AwsMetadata) -> None:
    cloud.next_replies = [Reply(302, b"", {"Location": "http://127.0.0.1:1/"})]
    assert Metadata(cloud.address, timeout_seconds=5).ask("GET", "/latest/x", {}).status == 302
    assert cloud.asked == ["GET /latest/x"]


def test_an_endless_answer_is_cut_off(cloud: AwsMetadata) -> None:
    cloud.next_replies = [Reply(200, bytes(3 << 20))]
    with pytest.raises(Unanswered, match="without an end"):
        Metadata(cloud.address, timeout_seconds=10).ask("GET", "/latest/x", {})


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b"<html>"], ids=["cut-off", "empty", "not-text", "html"])
def test_what_is_not_json_is_said(cloud: AwsMetadata, body: bytes) -> None:
    cloud.next_replies = [Reply(200, body)]
    with pytest.raises(Garbled, match="not JSON"):
        Metadata(cloud.address, timeout_seconds=5).ask("GET", "/latest/x", {}).json()


def test_a_pause_that_the_service_asks_for_is_kept(cloud: AwsMetadata) -> None:
    cloud.next_replies = [Reply(429, b"", {"Retry-After": "7"}), Reply(503, b"", {"Retry-After": "soon"})]
    service = Metadata(cloud.address, timeout_seconds=5)
    assert [service.ask("GET", "/", {}).refused().retry_seconds for _ in range(2)] == [7, None]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("2017-09-18T08:22:00Z", 1505722920, id="aws"),
        pytest.param("2017-09-18T10:22:00+02:00", 1505722920, id="offset"),
        pytest.param("2017-09-18T08:22:00", 1505722920, id="no-zone-is-utc"),
        pytest.param("2017-09-18T08:22:00.500Z", 1505722920.5, id="parts-of-a-second"),
        pytest.param("Mon, 18 Sep 2017 08:22:00 GMT", 1505722920, id="azure"),
        pytest.param("Mon, 18 Sep 2017 08:22:00 -0000", 1505722920, id="rfc-without-zone-is-utc"),
        pytest.param("Mon, 18 Sep 2017 01:22:00 -0700", 1505722920, id="rfc-offset"),
        pytest.param("", None, id="empty"),
        pytest.param("soon", None, id="a-word"),
        pytest.param("Mon, 99 Sep 2017 08:22:00 GMT", None, id="no-such-day"),
        pytest.param("yyyy-mm-ddThh:mm:ssZ", None, id="a-form"),
    ],
)
def test_times(text: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_time(text) == seconds
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


@pytest.mark.parametrize("wrong", [0.0, 7200.0, -86400.0], ids=["right", "two-hours-behind", "a-day-ahead"])
def test_the_time_left_does_not_depend_on_this_machines_clock(cloud: AwsMetadata, wrong: float) -> None:
    cloud.clock_ahead_seconds = wrong
    answer = Metadata(cloud.address, timeout_seconds=5).ask("GET", "/latest/x", {})
    assert answer.seconds_until(cloud.stamp(120)) == pytest.approx(120, abs=3)
    assert answer.seconds_until("soon") is None
