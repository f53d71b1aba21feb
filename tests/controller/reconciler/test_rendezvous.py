"""Where workers meet: whose word counts, which etcd it is then, and what a job hears that asks for one that is not there."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.api.platform import Platform
from ebb.api.spec import Job
from ebb.api.template import worker_container
from ebb.controller.reconciler.containers import rendezvous
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from ebb.controller.reconciler.types import CreatePod, CreateRun
from tests.builders import NOW, UID, make_group, make_job, make_platform
from tests.controller.reconciler.scenes import claim, cluster_capacity, gpu_job, reasons, why
from tests.looks import again, done, look, running

Object = dict[str, Any]
STACK = make_platform(make_group())
LEGACY = replace(STACK, legacy_etcd_endpoint="etcd-legacy.ebb-system.svc:2379")
OURS, OLD = "etcd-service:2379", LEGACY.legacy_etcd_endpoint
THEIRS = "example.org/torchelastic:0.2.0"


def met(
    platform: Platform | None, *, image: str = "trainer", args: list[str] | None = None, env: str = "", **spec: Any
) -> Object:
    """Backend and endpoint, and whether there is a problem."""
    variables = [{"name": "PET_RDZV_BACKEND", "value": env}] if env else []
    job = Job.of(make_job(container={"image": image, "args": args or ["train.py"], "env": variables}, **spec))
    found = rendezvous(job, worker_container(job.worker.template["spec"]["containers"]), platform)
    return {"backend": found.backend, "endpoint": found.endpoint, **({"problem": True} if found.problem else {})}


CHOSEN: dict[str, tuple[Object, tuple[str, ...]]] = {
    "nothing said, without a stack": (met(None), ("etcd3", OURS)),
    "nothing said": (met(STACK), ("etcd3", OURS)),
    "another's image": (met(STACK, image=THEIRS), ("etcd3", OURS)),
    "nothing said, where unmodified images are served": (met(LEGACY), ("etcd3", OURS)),
    "an older build of the stack's image": (met(LEGACY, image="trainer@sha256:0"), ("etcd3", OURS)),
    "another's image, where such are served": (met(LEGACY, image=THEIRS), ("etcd", OLD)),
    "another's image that has ours": (met(LEGACY, image=THEIRS, rdzvBackend="etcd3"), ("etcd3", OURS)),
    "the older one by the spec": (met(LEGACY, rdzvBackend="etcd"), ("etcd", OLD)),
    "by an argument, before the spec": (met(LEGACY, args=["--rdzv-backend", "etcd", "x.py"], rdzvBackend="etcd3"), ("etcd", OLD)),
    "by a variable": (met(LEGACY, env="etcd-v2"), ("etcd-v2", OLD)),
    "a name without the port": (met(LEGACY, rdzvBackend="etcd", rdzvEndpoint="etcd-service"), ("etcd", OLD)),
    "one that needs no etcd": (met(STACK, args=["--rdzv_backend=c10d", "x.py"]), ("c10d", OURS)),
    "an etcd of the author's": (met(STACK, rdzvBackend="etcd", rdzvEndpoint="mine:2379"), ("etcd", "mine:2379")),
    "an etcd of the author's by an argument": (
        met(STACK, rdzvBackend="etcd", args=["--rdzv_endpoint=mine:2379", "x.py"]), ("etcd", OURS),
    ),
    "whatever it is, without a stack": (met(None, rdzvBackend="etcd"), ("etcd", OURS)),
    "the older one where there is none": (met(STACK, rdzvBackend="etcd"), ("etcd", OURS, "problem")),
    "by an argument where there is none": (met(STACK, args=["--rdzv_backend=etcd-v2"]), ("etcd-v2", OURS, "problem")),
}  # fmt: skip


CERTIFIED = {
    "the alias": ("elastic-job", "etcd-service:2379", True),
    "without the port": ("elastic-job", "etcd-service", True),
    "its whole name": ("elastic-job", "https://etcd-service.elastic-job.svc.cluster.local:2379", True),
    "the Service itself": ("elastic-job", "etcd.ebb-system.svc:2379", True),
    "the alias of a team": ("ebb-team-red", "etcd-service:2379", True),
    "the Service of a team": ("ebb-team-red", "etcd-team-red.ebb-system:2379", True),
    "the alias of another namespace": ("ebb-team-red", "etcd-service.elastic-job:2379", False),
    "another team's": ("ebb-team-red", "etcd-team-blue.ebb-system:2379", False),
    "one that the author wants in plain text": ("elastic-job", "http://etcd-service:2379", False),
    "one of the author's": ("elastic-job", "mine:2379", False),
    "a namespace that is not Ebb's": ("default", "etcd-service:2379", False),
}


@pytest.mark.parametrize(("namespace", "endpoint", "certified"), CERTIFIED.values(), ids=CERTIFIED)
def test_workers_get_the_certificate_of_their_namespaces_etcd_and_for_no_other(
    namespace: str, endpoint: str, certified: bool
) -> None:
    written = make_job(rdzvEndpoint=endpoint)
    written["metadata"]["namespace"] = namespace
    pod = worker_pod(Job.of(written), index=0, attempt=0, pod_placement=PodPlacement())
    (container,) = pod["spec"]["containers"]
    volumes = [one for one in pod["spec"]["volumes"] if one["name"] == "ebb-etcd"]
    mounts = [one for one in container["volumeMounts"] if one["name"] == "ebb-etcd"]
    told = [one["value"] for one in container["env"] if one["name"] == "EBB_ETCD_TLS"]
    items = [{"key": key, "path": key} for key in ("ca.crt", "tls.crt", "tls.key")]
    if certified:
        assert volumes == [{"name": "ebb-etcd", "secret": {"secretName": "ebb-etcd", "items": items}}]
        assert mounts == [{"name": "ebb-etcd", "mountPath": told[0], "readOnly": True}]
    else:
        assert volumes + mounts + told == []


def test_torchs_own_rendezvous_has_no_certificate() -> None:
    job = Job.of(make_job(rdzvBackend="etcd"))
    assert not rendezvous(job, worker_container(job.worker.template["spec"]["containers"]), LEGACY).certified


@pytest.mark.parametrize(("found", "wanted"), CHOSEN.values(), ids=CHOSEN)
def test_the_backend_and_its_etcd(found: Object, wanted: tuple[str, ...]) -> None:
    assert (found["backend"], found["endpoint"], *(["problem"] if "problem" in found else [])) == wanted


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("registry:5000/trainer", True), ("registry:5000/trainer:2", True), ("registry:5000/trainer:1@sha256:ab", True),
        ("trainer", False), ("registry:5000/trainer-of-mine:1", False), ("old", True), ("", False),
    ],
)  # fmt: skip
def test_the_stacks_own_images_in_any_build(image: str, own: bool) -> None:
    groups = (make_group(trainer_image="old:1"), make_group("b"))
    stack = replace(LEGACY, trainer_image="registry:5000/trainer@sha256:cd", node_groups=groups)
    assert stack.usual_backend(image) == ("etcd3" if own else "etcd")


# --- What the planner makes of it ---


def created(decided: Any) -> list[list[str]]:
    bodies = [action.body for action in decided.actions if isinstance(action, CreatePod)]
    return [[word for word in body["spec"]["containers"][0]["args"] if word.startswith("--rdzv_")][:2] for body in bodies]


def test_pods_are_told() -> None:
    assert created(look(gpu_job(rdzvBackend="etcd"), platform=LEGACY)) == [["--rdzv_backend=etcd", f"--rdzv_endpoint={OLD}"]]
    assert created(look(gpu_job(), platform=LEGACY)) == [["--rdzv_backend=etcd3", f"--rdzv_endpoint={OURS}"]]


def test_a_job_that_cannot_meet_gets_no_machine_and_says_how_it_could() -> None:
    job = gpu_job(rdzvBackend="etcd")
    decided = look(job, platform=STACK)
    reason, message = why(decided)
    assert (done(decided), decided.status.placement, reason) == ([], None, "NoLegacyRendezvous")
    assert [word for word in ("spec.rdzvBackend", "ebb:legacyRendezvous", "etcd3") if word not in message] == []
    assert "NoLegacyRendezvous" in reasons(decided)
    assert reasons(look(again(job, decided), platform=STACK)) == [], "told once"
    assert done(look(again(job, decided), platform=LEGACY)) == ["+0"], "and starts when the stack has it"


def made(decided: Any) -> list[tuple[str, str]]:
    return [(action.endpoint, action.folder) for action in decided.actions if isinstance(action, CreateRun)]


FIRST = f"/torchelastic/p2p/run_digits-{UID[:8]}"
FOLDERS: dict[str, tuple[Object, Platform | None, list[tuple[str, str]]]] = {
    "the older rendezvous": ({"rdzvBackend": "etcd"}, LEGACY, [(OLD, FIRST)]),
    "ours": ({}, LEGACY, []),
    "one that renews its keys": ({"container": {"args": ["--rdzv_backend=etcd-v2", "x.py"]}}, LEGACY, []),
    "an etcd of the author's": ({"rdzvBackend": "etcd", "rdzvEndpoint": "mine:2379"}, LEGACY, []),
    "an id of the author's": (
        {"rdzvBackend": "etcd", "container": {"args": ["--rdzv_id=mine", "x.py"]}}, LEGACY, [(OLD, "/torchelastic/p2p/run_mine")],
    ),
    "a place of the author's": (
        {"rdzvBackend": "etcd", "container": {"args": ["--rdzv_conf=timeout=9,etcd_prefix=/a/b/", "x.py"]}},
        LEGACY,
        [(OLD, FIRST.replace("/torchelastic/p2p", "/a/b"))],
    ),
    "without a stack, at its name": ({"rdzvBackend": "etcd", "rdzvEndpoint": names.LEGACY_ETCD}, None, [(OLD, FIRST)]),
    "without a stack, elsewhere": ({"rdzvBackend": "etcd"}, None, []),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "platform", "folders"), FOLDERS.values(), ids=FOLDERS)
def test_the_folder_of_a_run_is_made_before_its_workers(spec: Object, platform: Platform | None, folders: Any) -> None:
    decided = look(make_job(low=2, **spec), platform=platform)
    assert (made(decided), done(decided)) == (folders, ["+0", "+1"])
    kinds = [type(action) for action in decided.actions]
    assert not folders or kinds.index(CreateRun) < kinds.index(CreatePod)


def test_each_attempt_has_its_own_folder_and_one_that_needs_no_worker_makes_none() -> None:
    job = make_job(rdzvBackend="etcd", status={"restarts": 1, "placement": {"zone": "local-a", "since": stamp(NOW)}})
    assert made(look(job, platform=LEGACY)) == [(OLD, f"{FIRST}-r1")]
    assert made(look(job, *running(job, 2, attempt=1), platform=LEGACY)) == []


def test_one_that_runs_goes_on_when_its_etcd_is_taken_away() -> None:
    job = gpu_job(rdzvBackend="etcd", replicas=2, status={"placement": {"zone": "local-a", "gpuType": "T4", "since": stamp(NOW)}})
    decided = look(job, *running(job, 1), platform=STACK)
    assert (done(decided), why(decided)[0]) == ([], "ElasticJobRunning")


def test_one_that_cannot_meet_keeps_no_machines_from_those_behind_it() -> None:
    before = claim(least=4, refused=True)
    assert done(look(gpu_job(), platform=STACK, cluster_capacity=cluster_capacity(before))) == ["+0"]
    assert done(look(gpu_job(), platform=STACK, cluster_capacity=cluster_capacity(replace(before, refused=False)))) == []
