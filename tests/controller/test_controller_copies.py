"""The controller and the bucket of a job: a pod copies it first, which is no worker to anything that counts workers."""

from dataclasses import replace

from ebb.api.platform import Copies, Volume
from ebb.kube import ELASTIC_JOBS, NODES, PODS
from tests.builders import make_job, make_node, make_platform
from tests.fake_time import run
from tests.world import started

VOLUME = Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)
PLATFORM = replace(make_platform(volumes=(VOLUME,)), copies=Copies(image="ebb/controller:1", selector={}))
JOB = make_job(data={"url": "s3://imagenet/train", "path": "/mnt/data/imagenet"})


def test_a_bucket_is_copied_before_the_workers_exist() -> None:
    async def story() -> None:
        async with started() as world:
            world.controller.cluster._platform = PLATFORM
            world.api.put(ELASTIC_JOBS, JOB)
            await world.settle()
            assert world.pods() == ["digits-copy"]
            world.api.put(NODES, make_node("manager"))
            world.api.pod_runs("digits-copy", "manager")
            await world.settle(60)
            assert (world.state(), world.pods()) == ("Waiting", ["digits-copy"])
            assert (
                world.controller.cluster.charged(  # nobody pays for the platform's machine
                    "manager"
                )
                == []
            )
            world.api.pod_ends("digits-copy", 0)
            await world.settle()
            if "digits-copy" in world.pods():
                world.api.pod_ends("digits-copy", 0)  # its kubelet confirms the deletion
            await world.settle()
            assert [name for name in world.pods() if "worker" not in name] == []
            assert "digits-worker-0" in world.pods()
            assert world.status().get("reclaims", 0) == world.status().get("failures", 0) == 0
            assert world.events()[:2] == ["ElasticJobCreated", "DataCopied"]

    run(story())


def test_a_pod_that_vanishes_is_made_again() -> None:
    async def story() -> None:
        async with started() as world:
            world.controller.cluster._platform = PLATFORM
            world.api.put(ELASTIC_JOBS, JOB)
            await world.settle()
            first = world.pod("digits-copy")["metadata"]["uid"]
            world.api.remove(PODS, "digits-copy")
            await world.settle()
            assert world.pod("digits-copy")["metadata"]["uid"] != first

    run(story())


def test_the_controller_starts_anew_while_a_copy_runs() -> None:
    async def story() -> None:
        async with started() as world:
            world.controller.cluster._platform = PLATFORM
            world.api.put(ELASTIC_JOBS, JOB)
            await world.settle()
            first = world.pod("digits-copy")["metadata"]["uid"]
            await world.kill()
            world.start()
            world.controller.cluster._platform = PLATFORM
            await world.settle(60)
            assert (world.pods(), world.pod("digits-copy")["metadata"]["uid"]) == (["digits-copy"], first)

    run(story())
