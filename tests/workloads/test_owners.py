"""Ways to somebody else's job, secret and files, on a real API server: all are refused, and by the rule that is named here.

The ways and the people are in ways.py. Where a policy refuses a way, the way is open without the policy: the last test removes
them and tries again. Only requests are judged, so most are dry runs.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ebb.api.spec import Job
from ebb.cli.app import app
from ebb.cli.options import Session
from ebb.client.secrets.uses import object_name
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from tests.cli.world import platform_json, platform_map
from tests.testing.kubernetes.pulumi_world import ControlPlane
from tests.workloads.api import Api, await_kind
from tests.workloads.ways import (
    ADA,
    ANYBODYS,
    BOB,
    CORE,
    EVE,
    HERE,
    LEA,
    MERGE,
    OF_BOB,
    SPEC,
    SPEECH,
    THERE,
    VISION,
    WAYS,
    Object,
    Way,
    ask,
    at_work,
    job,
    new,
    on_job,
    open_ways,
    secret,
    soon,
    until,
    with_volume,
)
from workloads import manifest
from workloads.teams import documents

pytestmark = pytest.mark.e2e


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
    jobs = at_work(api)
    gateway = worker_pod(Job.of(jobs[0]), index=0, attempt=0, pod_placement=PodPlacement())
    gateway["metadata"] = {"name": "ebb-gateway-0", "namespace": VISION.namespace}
    assert api.create(gateway).status == 201
    return api


def test_every_way_to_what_is_anothers_is_refused(api: Api) -> None:
    assert len(WAYS) > 40
    soon(lambda: open_ways(api))


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
