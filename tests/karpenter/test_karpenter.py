"""The promises, in order: one cluster for all, which is empty again at the end. `make prove-karpenter`."""

import json
import os
from pathlib import Path
from typing import Any

from ebb.api import contract as names
from ebb.kube import NODE_CLAIMS, NODES, Denied, Invalid, KubeError
from tests.apiserver.place import Job
from tests.apiserver.plane import JOBS, found, gone
from tests.karpenter.conftest import NODE_CLASSES, NODE_POOLS, SCALE_DOWN_MINUTES, Cluster, Stopwatch

Object = dict[str, Any]
ZONE = names.LABEL_ZONE
DISRUPTED = "karpenter.sh/disrupted"
POLICY = "admissionregistration.k8s.io/v1"


def group_of(cluster: Cluster, job: Job) -> str:
    """The spot group of the zone that the job is in."""
    zone = job.status["placement"]["zone"]
    return next(one.name for one in cluster.groups if one.zone == zone and one.capacity_type == "spot")


async def runs(job: Job, count: int, seconds: float = 120) -> None:
    await job.runs(count, seconds)


async def test_karpenter_takes_the_stacks_node_pools(cluster: Cluster) -> None:
    async def ready() -> None:
        pools = await cluster.made.kube.list(NODE_POOLS)
        states = {
            one["metadata"]["name"]: {each["type"]: each["status"] for each in one.get("status", {}).get("conditions") or ()}
            for one in pools
        }
        if {name: state.get("Ready") for name, state in states.items()} != {one.name: "True" for one in cluster.groups}:
            raise KubeError(f"{states}: {cluster.log.read_text()[-2000:]}")

    await found(ready, 60)


async def test_a_job_gets_machines_of_one_group(cluster: Cluster) -> None:
    watch = Stopwatch()
    job = await cluster.submit("digits", gpus=2, min_gpus=2, gpu="T4")
    await job.until("there are Nodes", lambda: len(cluster.nodes(job)) == 2, 120)
    cluster.figures["secondsToNodes"] = watch.seconds
    await runs(job, 2)
    cluster.figures["secondsToRunning"] = watch.seconds
    group = next(one for one in cluster.groups if one.name == group_of(cluster, job))
    for node in cluster.nodes(job):
        wanted = {
            **group.labels,
            "k8s.amazonaws.com/accelerator": "nvidia-tesla-t4",
            "karpenter.sh/nodepool": group.name,
            "karpenter.sh/capacity-type": "spot",
            "node.kubernetes.io/instance-type": group.instance.name,
            ZONE: group.zone,
        }
        labels = node["metadata"]["labels"]
        assert {key: labels.get(key) for key in wanted} == wanted
        taints = [{key: one[key] for key in ("key", "value", "effect")} for one in node["spec"]["taints"]]
        assert sorted(taints, key=str) == sorted(group.taints, key=str)
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    assert {claim["metadata"]["labels"]["karpenter.sh/nodepool"] for claim in await cluster.claims()} == {group.name}


async def test_a_machine_that_karpenter_takes_away_is_left_and_replaced(cluster: Cluster) -> None:
    """Its interruption controller deletes the NodeClaim of a machine that EC2 announces (pkg/controllers/interruption of
    karpenter-provider-aws); the rest is the core's, which runs here."""
    job, watch = Job(cluster.made, _namespace(), "digits"), Stopwatch()
    old, node = job.pod_uid(1), job.pods[1]["spec"]["nodeName"]
    claim = next(one for one in await cluster.claims() if one["status"].get("nodeName") == node)
    await cluster.made.kube.delete(NODE_CLAIMS, None, claim["metadata"]["name"])

    def marked() -> bool:
        found = cluster.made.seen.get(NODES, "", node) or {"spec": {"taints": [{"key": DISRUPTED}]}}
        return any(one["key"] == DISRUPTED for one in found["spec"].get("taints") or ())

    await job.until("its Node is marked", marked, 60)
    await job.until("the worker left", lambda: job.pod_uid(1) != old, 60)
    cluster.figures["secondsFromNoticeToLeave"] = watch.seconds
    await job.is_replaced(1, old, 60)
    cluster.figures["secondsFromNoticeToReplaced"] = watch.seconds
    assert job.status.get("reclaims", 0) >= 1, job.status
    await job.until("the machine is gone", lambda: cluster.made.seen.get(NODES, "", node) is None, 60)


async def test_a_stockout_moves_a_job_to_the_other_zone(cluster: Cluster) -> None:
    first = Job(cluster.made, _namespace(), "digits")
    sold_out = group_of(cluster, first)
    await first.delete()
    await first.until("its workers are gone", lambda: not first.pods, 60)
    for claim in await cluster.claims():  # an idle machine would do for the next one
        await cluster.made.kube.delete(NODE_CLAIMS, None, claim["metadata"]["name"])
    await first.until("no machine is left", lambda: not list(_machines(cluster)), 60)
    await _sell_out(cluster, sold_out)
    watch = Stopwatch()
    job = await cluster.submit("letters", gpus=2, min_gpus=2, gpu="T4", capacity="spot")
    await job.until("it has a zone", lambda: job.status.get("placement", {}).get("zone"), 30)
    assert group_of(cluster, job) == sold_out, "the same zone is chosen first"
    await job.until("it has another one", lambda: group_of(cluster, job) != sold_out, 120)
    cluster.figures["secondsFromSubmitToOtherZone"] = watch.seconds
    assert [one for one in await cluster.said("InsufficientCapacityError") if one["involvedObject"]["name"].startswith(sold_out)]
    await runs(job, 2)
    cluster.figures["secondsFromSubmitToRunning"] = watch.seconds
    assert {node["metadata"]["labels"]["ebb.dev/node-group"] for node in cluster.nodes(job)} == {group_of(cluster, job)}


async def test_nothing_is_left_after_the_last_job(cluster: Cluster) -> None:
    job = Job(cluster.made, _namespace(), "letters")
    await job.delete()
    watch = Stopwatch()
    await job.until("no machine is left", lambda: not list(_machines(cluster)), 60 * SCALE_DOWN_MINUTES + 120)
    cluster.figures["secondsToZero"] = watch.seconds

    async def none_left() -> None:  # a NodeClaim goes a moment after its Node
        if await cluster.claims():
            raise KubeError("there are NodeClaims")

    await found(none_left)
    if path := os.environ.get("EBB_FIGURES"):
        Path(path).write_text(json.dumps({"karpenter": "kept", **cluster.figures}) + "\n")


def _machines(cluster: Cluster) -> list[Object]:
    return [one for one in cluster.made.seen.all(NODES) if "karpenter.sh/nodepool" in one["metadata"]["labels"]]


def _namespace() -> Any:
    class Namespace:
        namespace = JOBS

    return Namespace


async def _sell_out(cluster: Cluster, group: str) -> None:
    """Take the group's class away, for which the provider says that there is no capacity. Karpenter would notice, and ask for
    no machine of the NodePool: so it may not write that it is not ready."""
    match = {"resourceRules": [{
        "apiGroups": ["karpenter.sh"], "apiVersions": ["*"], "resources": ["nodepools/status"], "operations": ["UPDATE"],
        "resourceNames": [group],
    }]}  # fmt: skip
    spec: Object = {"matchConstraints": match, "validations": [{"expression": "false", "message": "it stays ready"}]}
    await cluster.made.apply(
        {"apiVersion": POLICY, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "stays-ready"}, "spec": spec}
    )
    bound = {"policyName": "stays-ready", "validationActions": ["Deny"]}
    await cluster.made.apply(
        {"apiVersion": POLICY, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "stays-ready"}, "spec": bound}
    )

    async def is_refused() -> None:
        try:
            await cluster.made.kube.patch(NODE_POOLS, None, group, {"status": {"nodes": 99}}, subresource="status")
        except (Denied, Invalid):
            return
        raise KubeError("not yet")

    await found(is_refused, 60)
    await gone(cluster.made.kube.delete(NODE_CLASSES, None, group))
