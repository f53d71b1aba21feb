"""A controller that is newer than the cluster's kind: what it misses, what it says, and that it waits."""

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ebb.api.crd import crd
from ebb.controller.metrics import Health, Metrics
from ebb.controller.served_kind import AGAIN_SECONDS, ServedKind, lacking
from ebb.kube import Denied, KubeError, NotFound
from tests.builders import NOW
from tests.controller.test_takeover import One
from tests.fake_kube import FakeKube
from tests.fake_time import run

Object = dict[str, Any]
KIND = {"group": "elastic.pytorch.org", "version": "v1alpha1", "kind": "ElasticJob"}


def described(edit: Callable[[Object], Any] = lambda status: None) -> Object:
    """The OpenAPI document of a kind whose status was edited so."""
    schema = copy.deepcopy(crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    edit(schema["properties"]["status"]["properties"])
    job = {**schema, "x-kubernetes-group-version-kind": [KIND]}
    return {"components": {"schemas": {"io.k8s.ObjectMeta": {"type": "object"}, "org.pytorch.elastic.ElasticJob": job}}}


OLDER: dict[str, tuple[Callable[[Object], Any], list[str]]] = {
    "a word": (
        lambda status: status["history"]["items"]["properties"]["what"]["enum"].remove("left"),
        ["status.history[].what: left"],
    ),
    "a state": (lambda status: status["state"]["enum"].remove("Restarting"), ["status.state: Restarting"]),
    "a field": (lambda status: status.pop("recorded"), ["status.recorded"]),
    "a nested field": (lambda status: status["cost"]["properties"].pop("machines"), ["status.cost.machines"]),
    "a field of many": (lambda status: status["members"]["items"]["properties"].pop("settled"), ["status.members[].settled"]),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "missing"), OLDER.values(), ids=OLDER)
def test_what_an_older_kind_lacks_is_named(edit: Callable[[Object], Any], missing: list[str]) -> None:
    assert lacking(described(edit)) == missing


def test_the_kind_of_this_version_and_a_newer_one_have_all() -> None:
    assert lacking(described()) == []
    assert lacking(described(lambda status: status.update(colour={"type": "string"}))) == []
    assert lacking(described(lambda status: status["state"]["enum"].append("Dreaming"))) == []


@pytest.mark.parametrize("document", [{}, {"components": {"schemas": {"other": {}}}}])
def test_where_nobody_is_told_it_goes_on(document: Object) -> None:
    assert lacking(document) == []


def test_it_does_not_lead_until_the_kind_was_applied(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        one = One(FakeKube(lambda: NOW), "new")
        one.described = described(lambda status: status.pop("recorded"))
        health = Health(Metrics(), one.election, lambda: NOW, refuses=lambda: one.served.problem)
        try:
            await one.settle(60)
            assert not one.election.leads
            assert "lacks status.recorded. Apply this version's first: `pulumi up`, or `kubectl apply -f" in health.not_ready()
            assert health.sick() == "", "starting it again would change nothing"
            one.described = described()
            await one.settle(AGAIN_SECONDS + 1)
            assert one.election.leads
            assert health.not_ready() == ""
        finally:
            await one.kill()

    caplog.set_level(logging.ERROR, "ebb.controller.served_kind")
    run(story())
    assert len([record for record in caplog.records if "does not lead" in record.message]) == 1, "said once"


@pytest.mark.parametrize("refusal", [Denied("forbidden", status=403), NotFound("none", status=404)])
def test_a_server_that_does_not_describe_its_kinds_is_no_reason_to_wait(refusal: KubeError) -> None:
    async def ask() -> Object:
        raise refusal

    run(ServedKind(ask).until_known())


def test_a_server_that_is_away_is_asked_again() -> None:
    answers: list[Object | KubeError] = [
        KubeError("later", status=503),
        described(lambda status: status.pop("recorded")),
        described(),
    ]

    async def ask() -> Object:
        answer = answers.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer

    run(ServedKind(ask).until_known())
    assert answers == []
