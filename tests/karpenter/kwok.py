"""Karpenter with its kwok provider, and the part of a machine that others see: kubelets without machines.

    folder = await tools.ensure(KARPENTER)       # .../karpenter-kwok, and the kinds that it brings
    instance_types(groups)                       # what its provider sells: the catalog's machines, in the groups' zones

Its provider makes a Node for every NodeClaim, unless the NodeClaim's KWOKNodeClass is gone: then it says that there is no
capacity, by the same error as EC2's (kwok/cloudprovider/cloudprovider.go of sigs.k8s.io/karpenter at go.mod's version, the first
release after the commit that karpenter-provider-aws v1.14.1 is built on).
"""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from devcluster.tools import Tool
from ebb.api import contract as names
from ebb.api.clock import stamp
from ebb.kube import LEASES, NODES, PODS, STRATEGIC, Conflict, Kube, NotFound
from infra.clouds.aws.machines import karpenter, machine
from tests.apiserver.kubelets import terminated
from tests.apiserver.plane import Made, gone
from workloads.cluster import NodeGroup

Object = dict[str, Any]
KINDS = (
    *(f"pkg/apis/crds/karpenter.sh_{name}.yaml" for name in ("nodeclaims", "nodeoverlays", "nodepools")),
    "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
)
KARPENTER = Tool(
    name="karpenter-kwok",
    module="sigs.k8s.io/karpenter",
    packages=("sigs.k8s.io/karpenter/kwok",),
    programs=("karpenter-kwok",),
    scripts=KINDS,
    modules=Path(__file__).parent,
)
CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass"}
EFA = "vpc.amazonaws.com/efa"
LABEL_KWOK = "kwok.x-k8s.io/node"
# What the provider keeps of every machine (newInstanceType() in kwok/cloudprovider/helpers.go).
KEPT_CPU, KEPT_MIB = 0.1, 10
NOT_READY = "node.kubernetes.io/not-ready"
LOOKS_SECONDS, BEATS_SECONDS, LEASE_SECONDS = 0.3, 5.0, 40


def instance_types(groups: Iterable[NodeGroup]) -> list[Object]:
    """The file that the provider reads: each type of the catalog once, with what pods get of it by ebb-platform."""
    offers: dict[str, list[Object]] = {}
    types = {}
    for group in groups:
        kind = karpenter.CAPACITY[group.capacity_type]
        for one in machine.types(group):
            types[one.name] = one
            where = {karpenter.ZONE: group.zone, karpenter.BOUGHT: kind}
            required = [{"key": key, "operator": "In", "values": [value]} for key, value in where.items()]
            price = one.usd_per_hour * ((1 - one.spot_discount) if kind == "spot" else 1)
            offers.setdefault(one.name, []).append({"Price": price, "Available": True, "Requirements": required})
    return [
        {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "offerings": offers[name],
            "resources": {
                "cpu": str(one.cpu + KEPT_CPU),
                "memory": f"{one.allocatable_mib(None) + KEPT_MIB}Mi",
                "pods": str(one.max_pods),
                "ephemeral-storage": "100Gi",
                "nvidia.com/gpu": str(one.gpus),
                **({EFA: str(one.efa)} if one.efa else {}),
            },
        }
        for name, one in types.items()
    ]


def node_pool(group: NodeGroup, settings: Any) -> Object:
    """The stack's own, but for the kind of its class."""
    spec = karpenter.node_pool(group, settings)
    spec["template"]["spec"]["nodeClassRef"] = {**CLASS, "name": group.name}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": group.name}, "spec": spec}


def overlay(group: NodeGroup) -> Object:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": group.name},
        "spec": karpenter.overlay(group),
    }


def node_class(name: str) -> Object:
    return {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": CLASS["kind"], "metadata": {"name": name}, "spec": {}}


class Kubelets:
    """Of every Node that Karpenter makes: it becomes ready, its Lease is renewed, its pods run, and leave when told to."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self._beaten: dict[str, float] = {}

    @property
    def _kube(self) -> Kube:
        return self._made.kube

    async def run(self) -> None:
        """Never returns."""
        while True:
            for node in list(self._made.seen.all(NODES)):
                if node["metadata"]["labels"].get(LABEL_KWOK):
                    with suppress(Conflict, NotFound):  # Karpenter was quicker: at the next look
                        await self._node(node)
            for pod in list(self._made.seen.all(PODS)):
                if pod["spec"].get("nodeName"):
                    with suppress(Conflict, NotFound):
                        await self._pod(pod)
            await asyncio.sleep(LOOKS_SECONDS)

    async def _node(self, node: Object) -> None:
        name, now = node["metadata"]["name"], time.time()
        if now - self._beaten.get(name, 0) > BEATS_SECONDS:
            self._beaten[name] = now
            spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": stamp(now, digits=6)}
            lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": name}, "spec": spec}
            await self._kube.apply(LEASES, "kube-node-lease", lease, manager="kubelet")
        if not any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ()):
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": stamp(now)}
            await self._kube.patch(NODES, None, name, {"status": {"conditions": [ready]}}, subresource="status", kind=STRATEGIC)
        taints = node["spec"].get("taints") or []
        left = [one for one in taints if one["key"] != NOT_READY]
        if left != taints:  # what the node lifecycle controller does
            version = node["metadata"]["resourceVersion"]
            await self._kube.patch(NODES, None, name, {"metadata": {"resourceVersion": version}, "spec": {"taints": left}})

    async def _pod(self, pod: Object) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        if "deletionTimestamp" in metadata:
            if phase == "Running":
                await self._status(pod, "Failed", terminated(names.EXIT_RECLAIMED))
            await gone(self._kube.delete(PODS, metadata["namespace"], metadata["name"], grace_seconds=0, uid=metadata["uid"]))
        elif phase == "Pending":
            await self._status(pod, "Running", {"running": {"startedAt": stamp(time.time())}}, podIP="127.9.9.9")

    async def _status(self, pod: Object, phase: str, state: Object, **more: object) -> None:
        statuses = [
            {
                "name": one["name"], "image": one["image"], "imageID": "", "restartCount": 0,
                "ready": phase == "Running", "state": state,
            }
            for one in pod["spec"]["containers"]
        ]  # fmt: skip
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": phase, "containerStatuses": statuses, **more}}
        where = pod["metadata"]["namespace"], pod["metadata"]["name"]
        await self._kube.patch(PODS, *where, body, subresource="status", kind=STRATEGIC)
