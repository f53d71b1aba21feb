"""People of two teams and their ways to what is another's: requests, and the words in which each is refused.

Ada and Bob are researchers of team vision, Lea leads it, Rita reads, Eve is of team speech.

at_work(api)                              # a job each of Ada and Bob, with a worker, code and a secret
open_ways(api)                            # {} when all of WAYS are refused by the rule that each names
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ebb.api.spec import Job
from ebb.client.secrets.uses import object_name
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from tests.builders import make_job
from tests.workloads.api import Answer, Api
from workloads.teams import Team

Object = dict[str, Any]
ADA, BOB, LEA, RITA, EVE = (f"{name}@lab.example" for name in ("ada", "bob", "lea", "rita", "eve"))
VISION = Team(
    name="vision", gpus=8, researchers=(("User", ADA), ("User", BOB)), leads=(("User", LEA),), readers=(("User", RITA),)
)
SPEECH = Team(name="speech", researchers=(("User", EVE),))
THERE, CORE = f"/apis/elastic.pytorch.org/v1alpha1/namespaces/{VISION.namespace}/elasticjobs", "/api/v1/namespaces"
HERE = f"{CORE}/{VISION.namespace}"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
ANYBODYS = object_name("wandb")  # a secret that a lead has set for the team
OF_ADA, OF_BOB = object_name("hf-token", ADA), object_name("hf-token", BOB)


def job(name: str, owner: str | None, *, pod: Object | None = None, container: Object | None = None, **template: Any) -> Object:
    """An ElasticJob as people write it."""
    found = make_job(name, pod=pod, container=container)
    annotations = {} if owner is None else {"annotations": {"ebb.dev/owner": owner}}
    found["metadata"] = {"name": name, "namespace": VISION.namespace, **annotations}
    found["spec"]["replicaSpecs"]["Worker"]["template"] |= template
    found.pop("status", None)
    return {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", **found}


def secret(name: str, label: str) -> Object:
    metadata = {"name": name, "namespace": VISION.namespace, "labels": {"ebb.dev/secret": label}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"value": "hf_x"}}


def config_map(name: str, owner: str | None) -> Object:
    annotations = {"annotations": {"ebb.dev/owner": owner}} if owner else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": VISION.namespace, **annotations}}


def with_volume(**volume: Any) -> Object:
    return job("b", BOB, pod={"volumes": [{"name": "v", **volume}]})


@dataclass(frozen=True)
class Way:
    """A request of Bob's. `words` of its refusal; `rule`: the policy that refuses it, "" for a right that he does not have."""

    method: str
    path: str
    body: Object | None
    words: str
    rule: str
    kind: str = "application/json"
    user: str = BOB


def on_job(body: Object, words: str = "the job belongs to ada@lab.example", **more: Any) -> Way:
    return Way("PATCH", f"{THERE}/a", body, words, "ebb-owners", kind=more.pop("kind", MERGE), **more)


def new(body: Object, words: str, rule: str = "ebb-owners") -> Way:
    return Way("POST", THERE, body, words, rule)


def into(how: str, method: str = "POST", **more: Any) -> Way:
    return Way(method, f"{HERE}/pods/a-worker-0/{how}", None, more.pop("words", "the job of pod a-worker-0 belongs to ada"),
               more.pop("rule", "ebb-owned-pods"), **more)  # fmt: skip


def no_right(method: str, path: str, body: Object | None = None, **more: Any) -> Way:
    return Way(method, path, body, "cannot", "", **more)


SPEC: Object = {
    "replicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "elasticjob-worker", "image": "mine"}]}}}}
}
REFERENCE = {"valueFrom": {"secretKeyRef": {"name": OF_ADA, "key": "value"}}}
NOT_HIS = f"Secret {OF_ADA} in the template is not of {BOB}"
TYPE = "a volume of this type is refused"
WAYS: Mapping[str, Way] = {
    # Her job.
    "delete it": Way("DELETE", f"{THERE}/a", None, "the job belongs to ada", "ebb-owners"),
    "delete all jobs": Way("DELETE", THERE, None, "the job belongs to ada", "ebb-owners"),
    "stop it": on_job({"spec": {"suspend": True}}),
    "let it have fewer workers": on_job({"spec": {"replicaSpecs": {"Worker": {"replicas": 1}}}}),
    "let it run another program": on_job({"spec": SPEC}),
    "take it over": on_job({"metadata": {"annotations": {"ebb.dev/owner": BOB}}}, "stays so"),
    "let it belong to nobody": on_job({"metadata": {"annotations": {"ebb.dev/owner": None}}}, "stays so"),
    "apply another file over it": on_job({**job("a", BOB), "spec": {"suspend": True}}, "stays so", kind=APPLY),
    "scale it as kubectl does": no_right("PATCH", f"{THERE}/a/scale", {"spec": {"replicas": 1}}, kind=MERGE),
    "write its status": no_right("PATCH", f"{THERE}/a/status", {"status": {"state": "Failed"}}, kind=MERGE),
    # Its pods.
    "run a command in it": into("exec?command=ls"),
    "run a command in it, by WebSocket": into("exec?command=ls", "GET"),
    "forward a port to it": into("portforward?ports=6006"),
    "attach to it": into("attach", words="cannot", rule=""),
    "delete its pod": no_right("DELETE", f"{HERE}/pods/a-worker-0"),
    "say that its pod is his": no_right(
        "PATCH", f"{HERE}/pods/a-worker-0", {"metadata": {"annotations": {"ebb.dev/owner": BOB}}}, kind=MERGE
    ),
    "add a container to its pod": no_right("PATCH", f"{HERE}/pods/a-worker-0/ephemeralcontainers", {"spec": {}}, kind=MERGE),
    # Her secret.
    "read it": no_right("GET", f"{HERE}/secrets/{OF_ADA}"),
    "read it by a patch": no_right("PATCH", f"{HERE}/secrets/{OF_ADA}", {}, kind=MERGE),
    "delete her secret": Way("DELETE", f"{HERE}/secrets/{OF_ADA}", None, "none of `ebb secret`", "ebb-secrets"),
    "replace her secret": Way("PUT", f"{HERE}/secrets/{OF_ADA}", secret(OF_ADA, "hf-token"), "none of `ebb", "ebb-secrets"),
    "set a secret of hers": Way("POST", f"{HERE}/secrets", secret(object_name("b", ADA), "b"), "none of `ebb", "ebb-secrets"),
    "a job with it as a variable": new(job("b", BOB, container={"env": [{"name": "X", **REFERENCE}]}), NOT_HIS),
    "a job with it as variables": new(job("b", BOB, container={"envFrom": [{"secretRef": {"name": OF_ADA}}]}), NOT_HIS),
    "a job with it as a file": new(with_volume(secret={"secretName": OF_ADA}), NOT_HIS),
    "a job with it among other files": new(
        with_volume(projected={"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": OF_ADA}}]}), NOT_HIS
    ),
    "a job that logs in to a registry with it": new(job("b", BOB, pod={"imagePullSecrets": [{"name": OF_ADA}]}), NOT_HIS),
    "a job whose first container has it": new(
        job("b", BOB, pod={"initContainers": [{"name": "i", "image": "i", "env": [{"name": "X", **REFERENCE}]}]}), NOT_HIS
    ),
    "a job that says it is hers": new(job("b", ADA, container={"env": [{"name": "X", **REFERENCE}]}), "who makes it"),
    "a job that says nothing": new(job("b", None), "ebb.dev/owner of the job is missing"),
    "give it to a job of his that is there": Way(
        "PATCH", f"{THERE}/b", {"spec": {"replicaSpecs": {"Worker": {"template": {"spec": {
            "imagePullSecrets": [{"name": OF_ADA}]}}}}}}, NOT_HIS, "ebb-owners", kind=MERGE,
    ),
    # Her code, and other teams' files.
    "change her ConfigMap": Way(
        "PATCH", f"{HERE}/configmaps/a-code", {"data": {"x": "y"}}, "is not yours", "ebb-owned-configmaps", kind=MERGE
    ),
    "delete her ConfigMap": Way("DELETE", f"{HERE}/configmaps/a-code", None, "is not yours", "ebb-owned-configmaps"),
    "make her ConfigMap": Way("POST", f"{HERE}/configmaps", config_map("c", ADA), "is not yours", "ebb-owned-configmaps"),
    "a job with the whole file system": new(with_volume(nfs={"server": "10.0.0.2", "path": "/"}), TYPE),
    "a job with a driver's volume": new(with_volume(csi={"driver": "file.csi.azure.com"}), TYPE),
    "a job with a folder of its choice": new(
        with_volume(ephemeral={"volumeClaimTemplate": {"metadata": {"annotations": {"box.ebb.dev/folder": "shared"}}}}), TYPE
    ),
    "a job with the machine's files": new(with_volume(hostPath={"path": "/"}), TYPE),
    "a job that passes for the gateway": new(
        job("b", BOB, metadata={"labels": {"app.kubernetes.io/name": "ebb-gateway"}}), "would take its pods for the gateway"
    ),
    "a job as another account": new(job("b", BOB, pod={"serviceAccountName": "x"}), "serviceAccountName x", "ebb-elasticjobs"),
    "a pod by hand": no_right("POST", f"{HERE}/pods", {}),
    "the gateway of another team": no_right("POST", f"{HERE}/pods/ebb-gateway-0/portforward?ports=8080", user=EVE),
    "the jobs of another team": no_right("GET", THERE, user=EVE),
    "a job in another team": no_right("POST", THERE, job("e", EVE), user=EVE),
    "a claim of her volume": no_right("POST", f"{CORE}/{SPEECH.namespace}/persistentvolumeclaims", {}, user=EVE),
    # More rights.
    "make himself a lead": no_right("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{VISION.namespace}/rolebindings", {}),
    "a token of an account": no_right("POST", f"{HERE}/serviceaccounts/default/token", {}),
    "look by the reader's right into a pod": into("exec?command=ls", words="cannot", rule="", user=RITA),
    "submit by the reader's right": Way("POST", THERE, job("r", RITA), "cannot", "", user=RITA),
}  # fmt: skip


def at_work(api: Api) -> list[Object]:
    """A job each of Ada and Bob, with a worker, code and a secret; returns the jobs. Nothing runs."""
    made = []
    api.until("account", f"{HERE}/serviceaccounts/default")
    for name, owner in (("a", ADA), ("b", BOB)):
        found = until(api, 201, "POST", THERE, job(name, owner), user=owner)
        pod = worker_pod(Job.of(found.body), index=0, attempt=0, pod_placement=PodPlacement())
        assert api.create(pod).status == 201
        assert api.ask("POST", f"{HERE}/configmaps", config_map(f"{name}-code", owner), user=owner).status == 201
        kept = secret(object_name("hf-token", owner), "hf-token")
        assert api.ask("POST", f"{HERE}/secrets", kept, user=owner).status == 201
        made.append(found.body)
    return made


def until(api: Api, status: int, *request: Any, user: str, **more: Any) -> Answer:
    """Rights that were just given reach the authorizer within a moment."""
    answer = api.ask(*request, user=user, **more)
    for _ in range(300):
        if answer.status == status:
            return answer
        time.sleep(0.1)
        answer = api.ask(*request, user=user, **more)
    raise AssertionError(answer.words)


def ask(api: Api, way: Way, user: str = "") -> Answer:
    """As a dry run, but what goes to a pod."""
    query = "" if "/pods/" in way.path or way.method == "GET" else "?dryRun=All"
    query += "&force=true&fieldManager=bob" if way.kind == APPLY else ""
    return api.ask(way.method, way.path + query, way.body, kind=way.kind, user=user or way.user)


def soon(check: Callable[[], Object]) -> None:
    """Wait until nothing is wrong: the API server takes a policy up, or drops it, within a second or two."""
    deadline = time.monotonic() + 30
    while (wrong := check()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert wrong == {}


def open_ways(api: Api) -> Object:
    """The answers to those that are not refused as they should be."""
    answers = {name: ask(api, way) for name, way in WAYS.items()}
    return {
        name: answer.words
        for name, answer in answers.items()
        if answer.status != 403 or WAYS[name].words not in answer.words or WAYS[name].rule not in answer.words
    }
