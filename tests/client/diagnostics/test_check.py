"""The doctor: from no kubeconfig to a gateway that is not ready, what it says and what to do about it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb import client
from ebb.api.clock import stamp
from ebb.api.crd import crd
from ebb.client.diagnostics.check import REVIEWS, RIGHTS
from ebb.client.diagnostics.symptoms import Finding
from ebb.client.platform.connection import WHO
from ebb.kube import Denied, Kube, KubeconfigError, NotFound, Object, Unreachable
from tests.cli.world import NS, FakeKube, elastic_job, platform_json, platform_map, session, worker_pod

MANIFESTS = Path(__file__).parents[3] / "workloads" / "manifests"
NOW = 1795262400.0
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/ebb-system/leases/ebb-controller"


class Clinic(FakeKube):
    """A cluster in order; `said` holds other answers by path, `forbidden` what may not be done."""

    def __init__(self, *objects: Object) -> None:
        super().__init__(platform_map(), *objects)
        self.said: dict[str, Any] = {}
        self.forbidden: set[str] = set()
        now = stamp(NOW)
        self.lease: Object = {"spec": {"holderIdentity": "ebb-controller-0", "renewTime": now}}
        self.put(pod_of_gateway())
        for claim in ("ebb-data", "ebb-output", "ebb-environment"):
            self.put(
                {"kind": "PersistentVolumeClaim", "metadata": {"name": claim, "namespace": NS}, "status": {"phase": "Bound"}}
            )
        self.put({"kind": "Namespace", "metadata": {"name": NS}})

    async def request(
        self, method: str, path: str, *, body: Object | None = None, query: Mapping[str, str] | None = None, **more: Any
    ) -> Object:
        found = self.said.get(path, self._usual(path, body or {}))
        if isinstance(found, Exception):
            raise found
        return found if found is not None else await super().request(method, path, body=body, query=query, **more)

    def _usual(self, path: str, body: Object) -> Any:
        if path == REVIEWS:
            asked = body["spec"]["resourceAttributes"]
            what = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            return {"status": {"allowed": f"{asked['verb']} {what}" not in self.forbidden}}
        return {
            "/version": {"gitVersion": "v1.35.3", "major": "1", "minor": "35"},
            WHO: {"status": {"userInfo": {"username": "ada"}}},
            "/api/v1": {},
            "/apis/elastic.pytorch.org/v1alpha1": {"resources": [{"name": "elasticjobs"}]},
            "/openapi/v3/apis/elastic.pytorch.org/v1alpha1": openapi(),
            LEASE_PATH: self.lease,
            f"/api/v1/namespaces/{NS}/resourcequotas": {"items": [], "metadata": {"resourceVersion": "1"}},
        }.get(path)


def openapi(**changes: Any) -> Object:
    """As the API server describes the kind; `lacks` and `has` change the fields of its spec."""
    fields = dict(crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])
    fields |= {name: {} for name in changes.get("has", ())}
    for name in changes.get("lacks", ()):
        del fields[name]
    kind = [{"group": "elastic.pytorch.org", "kind": "ElasticJob", "version": "v1alpha1"}]
    job = {"x-kubernetes-group-version-kind": kind, "properties": {"spec": {"properties": fields}}}
    listed = {"x-kubernetes-group-version-kind": [{"kind": "ElasticJobList"}], "properties": {"items": {}}}
    return {"components": {"schemas": {"list": listed, "job": job}}}


def claim_of(name: str, phase: str) -> Object:
    return {"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NS}, "status": {"phase": phase}}


def pod_of_gateway(ready: str = "True") -> Object:
    labels = {"app.kubernetes.io/name": "ebb-gateway"}
    metadata = {"name": "ebb-gateway-x", "namespace": NS, "uid": "g", "labels": labels}
    conditions = [{"type": "Ready", "status": ready}]
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "g"}]}, "status": {"conditions": conditions}}


def pending(seconds: float, message: str = "0/3 nodes are available") -> Object:
    pod = worker_pod(0, state="waiting")
    since = stamp(NOW - seconds)
    waits = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": since,
    }
    pod["status"]["conditions"] = [waits]
    return pod


def event(reason: str, message: str, about: str = "digits", *, ago: float = 60) -> Object:
    return {
        "kind": "Event", "metadata": {"name": f"{reason}-{ago}", "namespace": NS, "uid": f"{reason}-{ago}"}, "reason": reason,
        "message": message, "involvedObject": {"name": about}, "lastTimestamp": stamp(NOW - ago),
    }  # fmt: skip


def quota(hard: str, used: str) -> Object:
    return {
        "metadata": {"name": "objects"},
        "status": {"hard": {"pods": hard, "services.nodeports": "0"}, "used": {"pods": used}},
    }


async def checked(kube: FakeKube) -> dict[str, Finding]:
    @asynccontextmanager
    async def connect(kubeconfig: str | None, context: str | None) -> AsyncIterator[Kube]:
        yield kube

    return {finding.name: finding for finding in await client.check(__file__, opener=connect, clock=lambda: NOW)}


async def test_a_cluster_in_order_is_all_ok() -> None:
    found = await checked(Clinic(elastic_job()))
    assert {name: (finding.level, finding.fix) for name, finding in found.items()} == dict.fromkeys(
        ["kubeconfig", "api server", "platform", "rights", "elasticjobs", "namespace", "controller", "volumes", "etcd",
         "autoscaler", "quotas", "gateway"],
        ("ok", ""),
    )  # fmt: skip
    assert found["api server"].text == "Kubernetes v1.35.3 at https://127.0.0.1:6443, as ada"


async def test_what_a_researcher_may_not_see_is_told_and_no_problem() -> None:
    kube, no = Clinic(), Denied("forbidden", status=403)
    kube.said = {
        LEASE_PATH: no,
        f"/api/v1/namespaces/{NS}/persistentvolumeclaims": no,
        f"/api/v1/namespaces/{NS}/resourcequotas": no,
        f"/api/v1/namespaces/{NS}": no,
    }
    found = await checked(kube)
    assert [name for name, finding in found.items() if finding.level == "unseen"] == [
        "namespace",
        "controller",
        "volumes",
        "quotas",
    ]
    assert {finding.level for finding in found.values()} == {"ok", "unseen"}


V, K = "/version", "/apis/elastic.pytorch.org/v1alpha1"
OPENAPI, Q = "/openapi/v3/apis/elastic.pytorch.org/v1alpha1", f"/api/v1/namespaces/{NS}/resourcequotas"
CM = "/api/v1/namespaces/ebb-system/configmaps/ebb-platform"
ANSWERS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    # what the server says, finding, level, its words
    "down": ({V: Unreachable("no answer from x")}, "api server", "problem", "no answer from x"),
    "credentials expired": ({"/api/v1": Denied("Unauthorized", status=401)}, "api server", "problem", "does not know you"),
    "old": ({V: {"gitVersion": "v1.28", "major": "1", "minor": "28+"}}, "api server", "warning", "Kubernetes v1.28"),
    "no stack": ({CM: NotFound("x", status=404)}, "platform", "problem", "no Ebb platform at https://127.0.0.1:6443"),
    "another schema": ({CM: {"data": {"schema": "2"}}}, "platform", "problem", "schema is '2', this version of Ebb reads '1'"),
    "platform denied": ({CM: Denied("no", status=403)}, "platform", "problem", "cannot be read: no"),
    "no kind": ({K: NotFound("x", status=404)}, "elasticjobs", "problem", "does not know elastic.pytorch.org/v1alpha1"),
    "older stack": ({OPENAPI: openapi(lacks=["deadline"])}, "elasticjobs", "warning", "older than this `ebb`: its jobs have n"),
    "newer stack": ({OPENAPI: openapi(has=["colour"])}, "elasticjobs", "warning", "newer than this `ebb`: its jobs also have c"),
    "no description": ({OPENAPI: NotFound("x", status=404)}, "elasticjobs", "ok", "elastic.pytorch.org/v1alpha1 is served"),
    "no namespace": (
        {f"/api/v1/namespaces/{NS}": NotFound("x", status=404)}, "namespace", "problem", "elastic-job is not there",
    ),
    "no lease": ({LEASE_PATH: NotFound("x", status=404)}, "controller", "problem", "none has ever led"),
    "a lease of yesterday": (
        {LEASE_PATH: {"spec": {"holderIdentity": "c", "renewTime": stamp(NOW - 90)}}}, "controller", "problem",
        "none leads; the last one was heard 9",
    ),
    "a quota nearly full": (
        {Q: {"items": [quota("5k", "4900")], "metadata": {"resourceVersion": "1"}}}, "quotas", "warning", "pods: 4900 of 5k",
    ),
    "quotas with room": (
        {Q: {"items": [quota("5k", "3")], "metadata": {"resourceVersion": "1"}}}, "quotas", "ok", "1 quota, none",
    ),
    "rights cannot be asked": ({REVIEWS: NotFound("x", status=404)}, "rights", "warning", "cannot be asked for"),
}  # fmt: skip


@pytest.mark.parametrize(("said", "name", "level", "words"), ANSWERS.values(), ids=ANSWERS)
async def test_what_the_server_says(said: dict[str, Any], name: str, level: str, words: str) -> None:
    kube = Clinic()
    kube.said = said
    finding = (await checked(kube))[name]
    assert (finding.level, words in finding.text) == (level, True), finding
    assert bool(finding.fix) == (level in ("warning", "problem"))


def without_status(seconds: float) -> Object:
    job = elastic_job()
    job["metadata"]["creationTimestamp"] = stamp(NOW - seconds)
    return {**job, "status": {}}


def waiting(reason: str, message: str) -> Object:
    job = elastic_job(state="Waiting", message=message)
    job["status"]["conditions"][-1]["reason"] = reason
    return job


FULL = "1 max node group size reached"
ALARM = event("EtcdAlarm", "etcd is full (alarm NOSPACE) and refuses writes. Fix: kubectl -n x", ago=120)
OBJECTS: dict[str, tuple[tuple[Object, ...], str, str, str]] = {
    "no controller": ((without_status(90),), "controller", "problem", "no controller takes on digits, submitted 90 s ago"),
    "a job of this moment": ((without_status(5),), "controller", "ok", "leads"),
    "etcd is full": ((ALARM,), "etcd", "problem", "etcd is full (alarm NOSPACE) and refuses writes."),
    "etcd was full": ((ALARM, event("EtcdCured", "x", ago=60)), "etcd", "ok", "no alarm"),
    "an alarm of yesterday": ((event("EtcdAlarm", "x", ago=7200),), "etcd", "ok", "no alarm"),
    "a machine is on its way": ((pending(20),), "autoscaler", "ok", "1 worker waits for a machine, the longest for 20 s"),
    "no machine comes": (
        (pending(900), event("NotTriggerScaleUp", f"pod didn't trigger scale-up: {FULL}", "digits-worker-0")),
        "autoscaler", "warning", "for 900 s (1 max node group size reached); one takes up to 300 s",
    ),
    "no volume": (
        (pending(9, "pod has unbound immediate PersistentVolumeClaims"),), "volumes", "problem", "workers wait for a volume",
    ),
    "a claim is pending": (
        (claim_of("ebb-data", "Pending"),),
        "volumes", "problem", "ebb-data is Pending",
    ),
    "the namespace's quota": (
        (waiting("QuotaExceeded", "exceeded quota: objects"),), "quotas", "problem", "the namespace's quota is used up. exc",
    ),
    "a quota that is too small": (
        (waiting("QuotaTooSmall", "ResourceQuota 'gpus' allows 6"),),
        "quotas", "problem", "digits can never start: ResourceQuota 'gpus' allows 6",
    ),
    "the cloud's quota": (
        (waiting("CloudQuota", "MaxSpot"),), "quotas", "problem", "the cloud account's quota is used up. MaxSpot",
    ),
    "a gateway that is not ready": ((pod_of_gateway("False"),), "gateway", "problem", "it is not ready"),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "name", "level", "words"), OBJECTS.values(), ids=OBJECTS)
async def test_what_is_in_the_cluster(objects: tuple[Object, ...], name: str, level: str, words: str) -> None:
    kube = Clinic()
    for item in objects:
        kube.put(item)
    finding = (await checked(kube))[name]
    assert (finding.level, words in finding.text) == (level, True), finding
    assert bool(finding.fix) == (level in ("warning", "problem"))


async def test_no_gateway() -> None:
    kube = Clinic()
    kube.remove(pod_of_gateway())
    assert (await checked(kube))["gateway"].level == "problem"


async def test_each_right_is_asked_for() -> None:
    kube = Clinic()
    kube.forbidden = {"patch elasticjobs", "create pods/exec"}
    finding = (await checked(kube))["rights"]
    assert finding.level == "problem"
    assert finding.text == "in elastic-job you may not: patch elasticjobs (scale, stop, resume); create pods/exec (exec)"
    kube.forbidden = {"list nodes"}
    assert (await checked(kube))["rights"].level == "warning"


async def test_without_a_kubeconfig_nothing_else_is_asked(tmp_path: Path) -> None:
    (finding,) = await client.check(str(tmp_path / "none"))
    assert (finding.name, finding.level) == ("kubeconfig", "problem")
    assert finding.fix.startswith("Set EBB_KUBECONFIG")

    @asynccontextmanager
    async def broken(kubeconfig: str | None, context: str | None) -> AsyncIterator[Kube]:
        raise KubeconfigError("no usable kubeconfig at x: no context named 'y'. Set KUBECONFIG to one that works with kubectl.")
        yield

    (finding,) = await client.check(__file__, opener=broken)
    assert (finding.text, finding.fix) == (
        "no usable kubeconfig at x: no context named 'y'", "Set KUBECONFIG to one that works with kubectl.",
    )  # fmt: skip


def test_the_researchers_role_gives_every_right() -> None:
    roles = [item for item in yaml.safe_load_all((MANIFESTS / "researcher.yaml").read_text()) if item["kind"].endswith("Role")]
    given = {
        (role["metadata"].get("namespace", "*"), group, resource, verb, name)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
    asked = {(right.place or NS, right.group, right.resource, right.verb, right.name) for right in RIGHTS}
    assert asked <= given


async def test_a_team_is_looked_at_in_its_namespace_with_its_volumes() -> None:
    claim = {"name": "data", "claim": "ebb-data", "mountPath": "/mnt/data"}
    team = {"name": "vision", "namespace": "ebb-team-vision", "volumes": [claim]}
    clinic = Clinic()
    opener = session(clinic).connect
    clinic.put({**platform_map(), "data": {"schema": "1", "platform.json": json.dumps({**platform_json(), "teams": [team]})}})
    found = {one.name: one for one in await client.check(__file__, team="vision", opener=opener, clock=lambda: NOW)}
    assert found["rights"].text == "all that the verbs need in ebb-team-vision"
    assert "ebb-data is not there" in found["volumes"].text, "it is of another namespace"
    assert "ebb-output" not in found["volumes"].text
    found = {one.name: one for one in await client.check(__file__, team="audio", opener=opener, clock=lambda: NOW)}
    assert found["team"].text.startswith("no team named 'audio'")
