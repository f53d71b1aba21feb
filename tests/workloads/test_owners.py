"""Ways to somebody else's job, secret and files, on a real API server: all are refused, and by the rule that is named here.

Ada and Bob are researchers of team vision, Lea leads it, Rita reads, Eve is of team speech. Where a policy refuses a way, the way
is open without the policy: the last test removes them and tries again. Only requests are judged, so most are dry runs.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ebb.api.spec import Job
from ebb.cli.app import app
from ebb.cli.options import Session
from ebb.client.secrets.uses import object_name
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from tests.builders import make_job
from tests.cli.world import platform_json, platform_map
from tests.testing.kubernetes.pulumi_world import ControlPlane
from tests.workloads.api import Answer, Api, await_kind
from workloads import manifest
from workloads.teams import Team, documents

pytestmark = pytest.mark.e2e

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


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    plane = ControlPlane(tmp_path_factory.mktemp("server"))
    try:
        plane.start()
        yield laid_out(Api(plane))
    finally:
        plane.stop()


def laid_out(api: Api) -> Api:
    """Two teams; a job each of Ada and Bob, with a worker, and a gateway. Nothing runs."""
    rules = ("namespaces.yaml", "priorities.yaml", "crd.yaml", "rbac.yaml", "researcher.yaml")
    written = [one for file in rules for one in manifest.read(file)]
    made = [*written, *documents(VISION), *documents(SPEECH), *manifest.read("policy.yaml"), *manifest.read("owners.yaml")]
    for item in [one for one in made if one["metadata"].get("namespace") not in ("kube-system",)]:
        answer = api.apply(item, dry_run=False)
        assert answer.status in (200, 201), f"{item['kind']} {item['metadata']['name']}: {answer.words}"
        if item["kind"] == "CustomResourceDefinition":
            await_kind(api)
    api.until("account", f"{HERE}/serviceaccounts/default")
    for name, owner in (("a", ADA), ("b", BOB)):
        found = until(api, 201, "POST", THERE, job(name, owner), user=owner)
        pod = worker_pod(Job.of(found.body), index=0, attempt=0, pod_placement=PodPlacement())
        assert api.create(pod).status == 201
        assert api.ask("POST", f"{HERE}/configmaps", config_map(f"{name}-code", owner), user=owner).status == 201
        kept = secret(object_name("hf-token", owner), "hf-token")
        assert api.ask("POST", f"{HERE}/secrets", kept, user=owner).status == 201
    gateway = worker_pod(Job.of(found.body), index=0, attempt=0, pod_placement=PodPlacement())
    gateway["metadata"] = {"name": "ebb-gateway-0", "namespace": VISION.namespace}
    assert api.create(gateway).status == 201
    return api


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


def test_every_way_to_what_is_anothers_is_refused(api: Api) -> None:
    def open_ways() -> Object:
        answers = {name: ask(api, way) for name, way in WAYS.items()}
        return {
            name: answer.words
            for name, answer in answers.items()
            if answer.status != 403 or WAYS[name].words not in answer.words or WAYS[name].rule not in answer.words
        }

    assert len(WAYS) > 40
    soon(open_ways)


OWN: Mapping[str, Way] = {
    "stop his job": on_job({"spec": {"suspend": True}}),
    "change its program": on_job({"spec": SPEC}),
    "a job with his secret": new(job("b2", BOB, container={"env": [
        {"name": "X", "valueFrom": {"secretKeyRef": {"name": OF_BOB, "key": "value"}}}]}), ""),
    "a job with the team's": new(with_volume(secret={"secretName": ANYBODYS}), ""),
    "a job with the team's volumes": new(with_volume(persistentVolumeClaim={"claimName": "ebb-data"}), ""),
    "replace his secret": Way("PUT", f"{HERE}/secrets/{OF_BOB}", secret(OF_BOB, "hf-token"), "", ""),
    "another secret": Way("POST", f"{HERE}/secrets", secret(object_name("c", BOB), "c"), "", ""),
    "change his ConfigMap": Way("PATCH", f"{HERE}/configmaps/b-code", {"data": {"x": "y"}}, "", "", kind=MERGE),
    "delete it": Way("DELETE", f"{THERE}/b", None, "", ""),
}  # fmt: skip
OF_A_LEAD: Mapping[str, Way] = {
    "stop a job": WAYS["stop it"],
    "delete a job": WAYS["delete it"],
    "scale a job": WAYS["scale it as kubectl does"],
    "replace a secret": WAYS["replace her secret"],
    "set one of the team": Way("POST", f"{HERE}/secrets", secret(ANYBODYS, "wandb"), "", ""),
    "delete a ConfigMap": WAYS["delete her ConfigMap"],
}
# No kubelet has these pods: who may get in is told that there is no machine.
INTO = {"a command": "exec?command=ls", "a port": "portforward?ports=6006"}


def test_owners_and_leads_do_what_others_may_not(api: Api) -> None:
    def refused() -> Object:
        of_bob = {
            name: ask(api, replace(way, path=way.path.replace(f"{THERE}/a", f"{THERE}/b"), body=renamed(way.body)))
            for name, way in OWN.items()
        }
        of_lea = {f"lead: {name}": ask(api, way, LEA) for name, way in OF_A_LEAD.items()}
        answers = of_bob | of_lea
        return {name: answer.words for name, answer in answers.items() if answer.status not in (200, 201)}

    def kept_out() -> Object:
        places = [("a-worker-0", ADA), ("b-worker-0", BOB), ("a-worker-0", LEA), ("ebb-gateway-0", BOB)]
        asked = {
            (pod, user, name): api.ask("POST", f"{HERE}/pods/{pod}/{how}", user=user)
            for pod, user in places
            for name, how in INTO.items()
        }
        return {str(key): answer.words for key, answer in asked.items() if "does not have a host" not in answer.words}

    soon(refused)
    soon(kept_out)


def renamed(body: Object | None) -> Object | None:
    """Two jobs of one name cannot be: those of the table that are made are called otherwise."""
    if body and body.get("kind") == "ElasticJob" and body["metadata"]["name"] == "b":
        return {**body, "metadata": {**body["metadata"], "name": "b3"}}
    return body


def test_a_lead_gives_a_job_no_secret_but_its_owners_and_takes_nobodys_name(api: Api) -> None:
    for way in (new(job("l", ADA), "who makes it"), on_job({"metadata": {"annotations": {"ebb.dev/owner": LEA}}}, "stays so")):
        answer = ask(api, way, LEA)
        assert answer.status == 403
        assert way.words in answer.words


def test_ebb_writes_what_the_policies_ask_for(api: Api, tmp_path: Path) -> None:
    """A researcher of the one team needs to name none; another's job is refused to them in the API server's words."""
    facts = {**platform_json(), "teams": [VISION.facts([]), SPEECH.facts([])]}
    there: Object = {**platform_map(), "data": {"schema": "1", "platform.json": json.dumps(facts)}}
    assert api.apply(there, dry_run=False).status in (200, 201)
    (tmp_path / "train.py").write_text("print(1)")
    for name in (ADA, BOB):
        api.person(name, "lab")

    def ebb(name: str, *words: str, given: str = "", code: int = 0) -> str:
        done = CliRunner().invoke(app, list(words), obj=Session(kubeconfig=str(api.kubeconfig(name))), input=given)
        assert done.exit_code == code, (words, done.output, done.stderr)
        return done.output + done.stderr

    code = ("--code", str(tmp_path))
    ebb(ADA, "secret", "set", "wandb", given="x")
    ebb(ADA, "submit", "--name", "mine", "--gpu", "T4", "--gpus", "2", "--min", "1", *code, "--secret", "wandb", "--", "train.py")
    made = api.ask("GET", f"{THERE}/mine").body
    assert made["metadata"]["annotations"]["ebb.dev/owner"] == ADA
    assert object_name("wandb", ADA) in json.dumps(made["spec"])
    assert "mine" in ebb(BOB, "list"), "the team sees it"
    for words in (("delete", "mine"), ("stop", "mine"), ("scale", "mine", "1")):
        assert f"the job belongs to {ADA}, and you are {BOB}" in ebb(BOB, *words, code=1)
    assert "no secret named 'wandb'" in ebb(BOB, "submit", "--gpu", "T4", *code, "--secret", "wandb", "--", "train.py", code=4)
    ebb(ADA, "stop", "--no-wait", "mine")
    ebb(ADA, "delete", "--no-wait", "mine")
    ebb(ADA, "secret", "rm", "wandb")


def test_a_team_s_namespace_goes_with_all_that_is_in_it(api: Api) -> None:
    """Kubernetes' own programs delete what policies keep from people."""
    path = f"{CORE}/{SPEECH.namespace}"
    theirs = {**job("e", EVE), "metadata": {"name": "e", "annotations": {"ebb.dev/owner": EVE}}}
    assert until(api, 201, "POST", THERE.replace("vision", "speech"), theirs, user=EVE).status == 201
    assert (
        api.ask("POST", f"{path}/configmaps", {"metadata": {"name": "x", "annotations": {"ebb.dev/owner": EVE}}}, user=EVE).status
        == 201
    )
    assert api.ask("DELETE", path).status == 200
    deadline = time.monotonic() + 60
    while (answer := api.ask("GET", path)).status != 404:
        assert time.monotonic() < deadline, answer.words
        time.sleep(0.1)


def test_without_the_policies_the_ways_are_open(api: Api) -> None:
    """The last one: it takes them away."""
    for policy in {way.rule for way in WAYS.values()} - {""}:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{policy}"
        assert api.ask("DELETE", path).status == 200

    def closed() -> Object:
        answers = {name: ask(api, replace(way, body=renamed(way.body))) for name, way in WAYS.items() if way.rule}
        return {
            name: answer.words
            for name, answer in answers.items()
            if answer.status not in (200, 201) and "does not have a host" not in answer.words
        }

    soon(closed)
