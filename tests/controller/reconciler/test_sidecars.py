"""Volumes that a container in the worker's own pod serves, which the cloud adds: annotations, room for it, a worker's end."""

from dataclasses import replace
from typing import Any

import pytest

from ebb.api.needs import Wish, needs, with_sidecars
from ebb.api.platform import Platform, Sidecar, Team, Volume
from ebb.api.spec import Job
from ebb.controller.reconciler.candidates import complaint, pod_placement, sites
from ebb.controller.reconciler.pods import PodPlacement, worker_pod
from ebb.controller.reconciler.scheduling import start_error
from ebb.controller.reconciler.worker_state import Outcome, Worker, judge
from tests.builders import make_group, make_job, make_node, make_platform, make_pod

Object = dict[str, Any]
FUSE = Sidecar(annotations=(("cloud/fuse", "true"), ("cloud/fuse-memory", "2Gi")), cpu=0.5, memory_gib=2.0)
DATA = Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)
SHARDS = Volume(name="shards", claim="ebb-shards", mount_path="/mnt/shards", read_only=True, sidecar=FUSE)
WORDS = replace(SHARDS, name="words", claim="ebb-words", mount_path="/mnt/words")
ASKS = {"resources": {"requests": {"cpu": "2", "memory": "5Gi", "nvidia.com/gpu": "1"}}}


def annotations(job: Object, *volumes: Volume) -> Object:
    pod = worker_pod(Job.of(job), index=0, attempt=0, pod_placement=PodPlacement(volumes=volumes))
    found: Object = pod["metadata"]["annotations"]
    return found


def stack(*volumes: Volume, cpu: float = 8, memory_gib: float = 16.0) -> Platform:
    group = replace(make_group(), gpus_per_node=4, cpu=cpu, memory_gib=memory_gib, allocatable_memory_gib=memory_gib)
    return replace(make_platform(), node_groups=(group,), volumes=volumes)


def test_a_worker_asks_the_cloud_for_what_serves_its_volumes() -> None:
    assert dict(FUSE.annotations).items() <= annotations(make_job(), DATA, SHARDS, WORDS).items()
    assert not [name for name in annotations(make_job(), DATA) if name.startswith("cloud/")]


def test_a_claim_that_the_template_mounts_itself_is_served_too() -> None:
    mine = {"name": "mine", "persistentVolumeClaim": {"claimName": "ebb-shards"}}
    mounts = [{"name": "mine", "mountPath": "/mnt/shards"}]
    job = make_job(container={"volumeMounts": mounts}, pod={"volumes": [mine]})
    assert annotations(job, SHARDS)["cloud/fuse"] == "true"


def test_a_path_that_the_template_has_for_something_else_needs_nothing() -> None:
    job = make_job(container={"volumeMounts": [{"name": "own", "mountPath": "/mnt/shards"}]}, pod={"volumes": [{"name": "own"}]})
    assert "cloud/fuse" not in annotations(job, SHARDS)


def test_annotations_of_the_template_stay() -> None:
    job = make_job()
    template = job["spec"]["replicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"annotations": {"cloud/fuse-memory": "8Gi"}}
    assert annotations(job, SHARDS)["cloud/fuse-memory"] == "8Gi"


def test_a_machine_holds_fewer_workers_with_it() -> None:
    """3 of 5 GiB on 16 GiB; of 5 and 2 GiB two. One serves both buckets."""
    wish = Wish.of(Job.of(make_job(container=ASKS)))
    held = {
        count: sites(wish, stack(*volumes), None)[0].fits[0][1] for count, volumes in enumerate([(DATA,), (DATA, SHARDS, WORDS)])
    }
    assert held == {0: 3, 1: 2}


def test_a_worker_without_room_for_it_is_told_so() -> None:
    wish = Wish.of(Job.of(make_job(container=ASKS)))
    small = stack(SHARDS, memory_gib=6.0)
    assert sites(wish, small, None) == []
    assert "asks for 1 GPUs, 2.5 CPUs and 7 GiB of memory" in complaint(wish, small, [])


def test_a_worker_that_asks_for_no_memory_gets_what_is_left() -> None:
    job = Job.of(make_job(container={"resources": {"limits": {"nvidia.com/gpu": "1"}}}))
    platform = stack(SHARDS)
    (site,) = sites(Wish.of(job), platform, None)
    assert pod_placement(job, site.placed(), platform).memory_bytes == (16 / 4 - 2) * 2**30


@pytest.mark.parametrize(
    ("namespace", "expected"), [("elastic-job", (FUSE,)), ("ebb-team-vision", ()), ("ebb-team-text", (FUSE,)), ("elsewhere", ())]
)
def test_each_namespace_has_its_own(namespace: str, expected: tuple[Sidecar, ...]) -> None:
    teams = (
        Team(name="vision", namespace="ebb-team-vision", volumes=(DATA,)),
        Team(name="text", namespace="ebb-team-text", volumes=(WORDS, SHARDS)),
    )
    platform = replace(stack(DATA, SHARDS), teams=teams)
    assert platform.sidecars_in(namespace) == expected
    assert platform.seen_from(namespace).sidecars_in(namespace) == expected


def test_what_the_cloud_added_counts_in_a_pod_that_is_there() -> None:
    """As the scheduler counts: one that starts first and ends does not add up, one that stays does."""
    asks = {"requests": {"cpu": "500m", "memory": "2Gi"}}
    stays = {"name": "fuse", "restartPolicy": "Always", "resources": asks}
    ends = {"name": "launcher", "resources": asks}
    before = needs({"spec": {"containers": [ASKS], "initContainers": [ends]}})
    after = needs({"spec": {"containers": [ASKS], "initContainers": [stays, ends]}})
    assert (before.cpu, before.memory_bytes) == (2.0, 5 * 2**30)
    assert (after.cpu, after.memory_bytes) == (2.5, 7 * 2**30)
    assert after == with_sidecars(before, [FUSE])


@pytest.mark.parametrize(("code", "outcome"), [(0, Outcome.DONE), (1, Outcome.FAILED)])
def test_a_worker_ends_with_its_program_though_the_sidecar_still_runs(code: int, outcome: Outcome) -> None:
    pod = make_pod(make_job(), exit_code=code)
    pod["status"] |= {"phase": "Running", "initContainerStatuses": [{"name": "fuse", "state": {"running": {}}}]}
    assert judge(Worker.of(pod), make_node(), 0.0).outcome is outcome


def test_a_sidecar_that_cannot_start_is_named() -> None:
    pod = make_pod(make_job(), phase="Pending")
    waits = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod["status"]["initContainerStatuses"] = [{"name": "fuse", "state": {"waiting": waits}}]
    assert start_error(Worker.of(pod)) == "ImagePullBackOff: no such image"
