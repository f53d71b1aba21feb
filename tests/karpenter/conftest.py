"""The cluster of the proof: an API server, a scheduler, Karpenter, Ebb's controller, and the stack as its program declares it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
import yaml

from benchmarks.controller.processes import Process as Program
from devcluster import tools
from ebb.api.platform import Platform, parse
from ebb.client.submission.fit import find_fit
from ebb.client.submission.manifest import manifest
from ebb.client.submission.request import Request
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, EVENTS, NODE_CLAIMS, NODES, Resource
from infra import groups, program
from infra.clouds.aws.cloud import Aws
from infra.clouds.aws.machines import karpenter, machine
from infra.config import Stack
from testing.ports import free_port
from tests.apiserver.controller import Process
from tests.apiserver.place import Job
from tests.apiserver.plane import JOBS, SYSTEM, Made, ended, found, plane
from tests.apiserver.proxy import proxy
from tests.infra.aws import stacks
from tests.infra.aws.case import ANSWERS
from tests.infra.declared import Declared, declared
from tests.karpenter.kwok import KARPENTER, KINDS, Kubelets, instance_types, node_class, node_pool, overlay
from workloads.cluster import NodeGroup

Object = dict[str, Any]
NODE_POOLS = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
NODE_CLASSES = Resource("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", "KWOKNodeClass", namespaced=False)
SCALE_DOWN_MINUTES = 1
FAST = {"instanceTypes": ["p4d.24xlarge"], "capacity": "on-demand", "zones": ["us-west-2b"], "max": 2, "aws": {"efa": True}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All in the session's loop, and none without being asked for."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.proof)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


class Cluster:
    """See the module's docstring. `figures`: what the proof says at its end."""

    def __init__(self, made: Made, stack: Stack, platform: Platform, log: Path) -> None:
        self.made, self.stack, self.platform, self.log = made, stack, platform, log
        self.figures: Object = {}
        self.groups = job_groups(stack)

    async def submit(self, name: str, *, placement: Object | None = None, **words: Any) -> Job:
        """As `ebb submit` writes it, and `placement` as a job file may."""
        request = Request(name=name, arguments=("train.py",), **words)
        body = manifest(request, find_fit(request, self.platform), self.platform, JOBS)
        body["spec"]["placement"].update(placement or {})
        await self.made.kube.create(ELASTIC_JOBS, JOBS, body)
        return Job(self.made, cast(Any, _Namespace), name)

    def group_of(self, job: Job) -> NodeGroup:
        """The group of the place that the job is in."""
        place = job.status["placement"]
        wanted = place["zone"], place["capacityType"], place["gpuType"]
        return next(one for one in self.groups if (one.zone, one.capacity_type, one.instance.gpu_type) == wanted)

    def nodes(self, job: Job) -> list[Object]:
        """Those that its workers are on."""
        found = (self.made.seen.get(NODES, "", pod["spec"].get("nodeName", "")) for pod in job.pods.values())
        return [one for one in found if one]

    async def claims(self) -> list[Object]:
        return await self.made.kube.list(NODE_CLAIMS)

    async def said(self, reason: str) -> list[Object]:
        """Karpenter's events."""
        told = await self.made.kube.list(EVENTS, fields=f"source=karpenter,reason={reason}")
        return [one for one in told if one.get("reason") == reason]


class _Namespace:
    namespace = JOBS


def job_groups(stack: Stack) -> list[NodeGroup]:
    return groups.job_groups(stack, Aws(stack, stack.settings))


@pytest.fixture(scope="session")
def settings() -> Stack:
    own = stacks.small(autoscaler={"kind": "karpenter", "scaleDownMinutes": SCALE_DOWN_MINUTES})
    own["nodeGroups"][1]["min"] = 0
    own["nodeGroups"].append(FAST)
    return stacks.stack(own)


@pytest.fixture(scope="session")
def program_says(settings: Stack) -> Declared:
    return declared(lambda: program.declare(settings, Aws(settings, settings.settings)), answers=ANSWERS)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(settings: Stack, program_says: Declared, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("karpenter")
    tool, kubernetes = await tools.ensure(KARPENTER), await tools.ensure("kubernetes")
    async with AsyncExitStack() as opened:
        made = await opened.enter_async_context(plane(folder))
        for kind in KINDS:
            await made.apply(yaml.safe_load((tool / Path(kind).name).read_text()))
        for resource in (NODE_POOLS, NODE_CLASSES, NODE_CLAIMS):
            await found(lambda: made.kube.list(resource))  # noqa: B023 - awaited here
        await _volumes(made, program_says)
        platform = next(one.inputs for one in program_says.all("ConfigMap") if one.name == "ebb-platform")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ebb-platform"}, "data": platform["data"]}
        await made.kube.apply(CONFIG_MAPS, SYSTEM, body, manager="tests")
        one = Cluster(made, settings, parse(platform["data"]), folder / "karpenter.log")
        for group in one.groups:
            await made.apply(node_class(group.name))
            if machine.efa_interfaces(group):
                await made.apply(overlay(group))
            await made.apply(node_pool(group, settings.settings))
        (folder / "types.json").write_text(json.dumps(instance_types(one.groups)))
        for name, command, env in (
            ("scheduler", _scheduler(kubernetes, made), {}),
            ("karpenter", [tool / "karpenter-kwok"], _environment(folder, made, settings)),
        ):
            process = await Program.start(name, command, folder, env=env)
            opened.push_async_callback(process.stop)
        line = await opened.enter_async_context(proxy(made.processes.server, made.processes.trust()))
        controller = Process(folder, "ebb-controller-0", line.url, await made.token())
        await controller.start()
        opened.push_async_callback(controller.stop)
        opened.push_async_callback(ended, asyncio.create_task(Kubelets(made).run()))
        yield one


def _scheduler(kubernetes: Path, made: Made) -> list[str | Path]:
    return [
        kubernetes / "kube-scheduler", f"--kubeconfig={made.processes.kubeconfig}", "--leader-elect=false",
        f"--secure-port={free_port()}", f"--cert-dir={made.processes.folder}/scheduler",
    ]  # fmt: skip


def _environment(folder: Path, made: Made, stack: Stack) -> dict[str, str]:
    """As the chart makes it of the values that the stack gives it."""
    given = karpenter.values("ebb-dev", stack.settings, has_efa=True)["settings"]
    gates = ",".join(f"{name[0].upper()}{name[1:]}={str(on).lower()}" for name, on in given["featureGates"].items())
    return {
        "KUBECONFIG": str(made.processes.kubeconfig),
        "INSTANCE_TYPES_FILE_PATH": str(folder / "types.json"),
        "PREFERENCE_POLICY": given["preferencePolicy"],
        "FEATURE_GATES": gates,
        "SYSTEM_NAMESPACE": karpenter.NAMESPACE,
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": str(free_port()),
        "HEALTH_PROBE_PORT": str(free_port()),
    }


async def _volumes(made: Made, program_says: Declared) -> None:
    """The stack's own, bound: nobody else does that here, and the scheduler and Karpenter wait for it."""
    volumes = {one.inputs["metadata"]["name"]: one.inputs for one in program_says.all("PersistentVolume")}
    for claim in (one.inputs for one in program_says.all("PersistentVolumeClaim")):
        if claim["metadata"].get("namespace") == JOBS:
            notes = {"pv.kubernetes.io/bind-completed": "yes"}
            await made.apply({**volumes[claim["spec"]["volumeName"]], "apiVersion": "v1", "kind": "PersistentVolume"})
            bound = {**claim["metadata"], "annotations": notes}
            await made.apply({**claim, "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": bound})


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 1)
