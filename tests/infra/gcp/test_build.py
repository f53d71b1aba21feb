"""Builds with Cloud Build: started once, joined, waited for, cancelled; and what is sent."""

import json
from typing import Any

import pytest

from infra import builds
from infra.builds import BuildError, Clock
from infra.clouds.gcp import build
from infra.clouds.gcp.build import Request
from infra.clouds.gcp.calls import Refused
from tests.infra.gcp.fake_calls import FakeCalls

DIGEST = "sha256:" + "b" * 64
TAG = "packages/trainer/tags/default.1"
THERE = {"version": f"projects/p/locations/r/repositories/ebb-gcp/packages/trainer/versions/{DIGEST}"}
ABSENT = Refused(404, "no tag")
REQUEST = Request(
    project="p", region="r", source="bucket/trainer-1.tar.gz", url="r-docker.pkg.dev/p/ebb-gcp/trainer", account="b@p.iam",
    tag="default.1", cache="default.cache", dockerfile="trainer/Dockerfile", arguments=("BASE=python:3.11",),
)  # fmt: skip
STARTED = {"metadata": {"build": {"id": "7"}}}


def clock() -> Clock:
    passed = iter(range(0, 10_000, 5))
    return Clock(now=lambda: float(next(passed)), sleep=lambda seconds: None)


def built(answers: dict[str, Any]) -> tuple[dict[str, Any], list[str], FakeCalls]:
    said: list[str] = []
    calls = FakeCalls(answers)
    return build.build(calls, REQUEST, said.append, clock()), said, calls


def test_what_the_registry_has_is_not_built() -> None:
    found, said, calls = built({TAG: THERE})
    assert found == {"digest": DIGEST}
    assert said == ["image trainer:default.1 is in the registry already"]
    assert [method for method, _ in calls.seen] == ["GET"]


def test_a_build_is_started_and_waited_for() -> None:
    running: list[dict[str, Any]] = [{"status": "QUEUED"}, *[{"status": "WORKING"}] * 8, {"status": "SUCCESS"}]
    one: dict[str, Any] = {"builds": []}
    found, said, calls = built({TAG: [ABSENT, THERE], "locations/r/builds": [one, STARTED], "builds/7": running})
    assert found == {"digest": DIGEST}
    assert said[0] == "image trainer:default.1: started build 7"
    assert any(line.startswith("image trainer:default.1: working, ") for line in said)
    [body] = calls.sent
    assert body["source"] == {"storageSource": {"bucket": "bucket", "object": "trainer-1.tar.gz"}}
    assert body["serviceAccount"] == "projects/p/serviceAccounts/b@p.iam"
    assert body["images"] == [f"{REQUEST.url}:default.1", f"{REQUEST.url}:default.cache"]
    assert "ARGUMENTS=--build-arg BASE=python:3.11" in body["steps"][0]["env"]


def test_a_build_of_the_same_image_is_joined() -> None:
    under_way = {"builds": [{"id": "5", "images": ["other:1"]}, {"id": "6", "images": [f"{REQUEST.url}:default.1"]}]}
    _, said, calls = built({TAG: [ABSENT, THERE], "locations/r/builds": under_way, "builds/6": {"status": "SUCCESS"}})
    assert said[0] == "image trainer:default.1: joining build 6"
    assert calls.sent == []


def test_a_failed_build_says_why_and_where_its_log_is() -> None:
    failed = {"status": "FAILURE", "failureInfo": {"detail": "step 0 ended with 1"}, "logUrl": "https://console/7"}
    with pytest.raises(BuildError, match=r"failure: step 0 ended with 1\nits log: https://console/7"):
        built({TAG: ABSENT, "locations/r/builds": [{"builds": []}, STARTED], "builds/7": failed})


NOT_YET = Refused(403, f"caller may not act as service account projects/p/serviceAccounts/{REQUEST.account}")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([NOT_YET], id="an account that nobody may act as yet"),
        pytest.param([Refused(404, f"service account {REQUEST.account} does not exist")], id="an account that is not known yet"),
    ],
)
def test_a_builder_that_is_too_new_is_tried_again(first: list[Any]) -> None:
    answers = {TAG: [ABSENT, THERE], "locations/r/builds": [{"builds": []}, *first, STARTED], "builds/7": {"status": "SUCCESS"}}
    found, said, calls = built(answers)
    assert found == {"digest": DIGEST}
    assert said[0].startswith("image trainer:default.1: the builder's rights do not count yet, trying again in 20 s (")
    assert len(calls.sent) == 2


def test_a_build_that_could_not_read_its_sources_yet_is_tried_again() -> None:
    failed = {"status": "FAILURE", "failureInfo": {"type": "FETCH_SOURCE_FAILED", "detail": "storage.objects.get denied"}}
    again = {"metadata": {"build": {"id": "8"}}}
    answers = {TAG: [ABSENT, THERE], "locations/r/builds": [{"builds": []}, STARTED, again], "builds/7": failed,
               "builds/8": {"status": "SUCCESS"}}  # fmt: skip
    assert built(answers)[0] == {"digest": DIGEST}


@pytest.mark.parametrize(
    ("refused", "tries"),
    [
        pytest.param(NOT_YET, 5, id="rights that never come"),
        pytest.param(Refused(403, "the caller does not have permission"), 1, id="a caller without rights"),
    ],
)
def test_it_is_not_tried_for_ever(refused: Refused, tries: int) -> None:
    passed = iter(range(0, 10_000, 100))
    calls = FakeCalls({TAG: ABSENT, "locations/r/builds": [{"builds": []}, refused]})
    with pytest.raises(Refused):
        build.build(calls, REQUEST, lambda words: None, Clock(now=lambda: float(next(passed)), sleep=lambda seconds: None))
    assert len(calls.sent) == tries


def test_an_interruption_cancels_what_this_run_has_started() -> None:
    class Interrupted(FakeCalls):
        def get(self, address: str, **query: str) -> dict[str, Any]:
            if address.endswith("builds/7"):
                raise KeyboardInterrupt
            return super().get(address, **query)

    calls = Interrupted({TAG: ABSENT, "locations/r/builds": [{"builds": []}, STARTED], "builds/7:cancel": {}})
    with pytest.raises(KeyboardInterrupt):
        build.build(calls, REQUEST, lambda words: None, clock())
    assert calls.seen[-1] == ("POST", f"{REQUEST.builds}/7:cancel")


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--project", "p", "--region", "r", "--source", "b/n", "--url", REQUEST.url, "--account", "a"]
    words += ["--tag", "default.1", "--cache", "c", "--dockerfile", "d", "--argument", "A=1"]
    assert build.main(words, FakeCalls({TAG: THERE})) == builds.EXIT_DONE
    assert json.loads(capsys.readouterr().out) == {"digest": DIGEST}
    assert build.main(words, FakeCalls({TAG: Refused(403, "no right")})) == builds.EXIT_FAILED
