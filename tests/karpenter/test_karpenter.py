"""The promises, in order: one cluster for all, which is empty again at the end. `make prove-karpenter`."""

from typing import Any

from ebb.api import contract as names
from ebb.kube import NODE_CLAIMS, NODES, Denied, Invalid, KubeError
from tests.apiserver.place import Job
from tests.apiserver.plane import JOBS, found, gone
from tests.figures import report
from tests.karpenter.conftest import NODE_CLASSES, NODE_POOLS, SCALE_DOWN_MINUTES, Cluster, Stopwatch
from tests.karpenter.kwok import EFA

Object = dict[str, Any]
ZONE = names.LABEL_ZONE
DISRUPTED = "karpenter.sh/disrupted"
POLICY = "admissionregistration.k8s.io/v1"


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
    group = cluster.group_of(job)
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
    sold_out = cluster.group_of(first).name
    await first.delete()
    await first.until("its workers are gone", lambda: not first.pods, 60)
    for claim in await cluster.claims():  # an idle machine would do for the next one
        await cluster.made.kube.delete(NODE_CLAIMS, None, claim["metadata"]["name"])
    await first.until("no machine is left", lambda: not list(_machines(cluster)), 60)
    await _sell_out(cluster, sold_out)
    watch = Stopwatch()
    job = await cluster.submit("letters", gpus=2, min_gpus=2, gpu="T4", capacity="spot")
    await job.until("it has a zone", lambda: job.status.get("placement", {}).get("zone"), 30)
    assert cluster.group_of(job).name == sold_out, "the same zone is chosen first"
    await job.until("it has another one", lambda: cluster.group_of(job).name != sold_out, 120)
    cluster.figures["secondsFromSubmitToOtherZone"] = watch.seconds
    assert [one for one in await cluster.said("InsufficientCapacityError") if one["involvedObject"]["name"].startswith(sold_out)]
    await runs(job, 2)
    cluster.figures["secondsFromSubmitToRunning"] = watch.seconds
    assert {node["metadata"]["labels"]["ebb.dev/node-group"] for node in cluster.nodes(job)} == {cluster.group_of(job).name}


async def test_a_node_pool_at_its_limit_is_called_full_and_a_job_falls_back_onto_an_on_demand_one(cluster: Cluster) -> None:
    full = cluster.group_of(Job(cluster.made, _namespace(), "letters"))
    await _limit(cluster, full.name, len(list(_machines(cluster))))
    watch, seconds = Stopwatch(), 30
    job = await cluster.submit(
        "numbers", gpus=1, gpu="T4", capacity="spot-then-on-demand", placement={"fallbackAfterSeconds": seconds}
    )
    await job.until("it has a zone", lambda: job.status.get("placement", {}).get("zone"), 30)
    assert cluster.group_of(job).name == full.name, "the other zone is sold out"

    def words() -> str:
        return str(job.condition("Running").get("message", ""))

    limit = f"max node group size reached: NodePool {full.name} has all the Nodes that its limits allow"
    await job.until("its words name the limit", lambda: limit in words(), seconds)
    cluster.figures["secondsFromSubmitToFull"] = watch.seconds
    assert f"the node groups in {full.zone} (spot T4) have all the machines that they may" in words()
    assert job.condition("Running")["reason"] == names.WAITING_FOR_MACHINES
    said = f"node limits have been exhausted for nodepool (NodePool={full.name})"
    assert [one for one in await cluster.said("FailedScheduling") if said in one["message"]]

    await job.until("it is elsewhere", lambda: cluster.group_of(job).name != full.name, seconds + 60)
    cluster.figures["secondsFromSubmitToOnDemand"] = watch.seconds
    await runs(job, 1)
    cluster.figures["secondsFromSubmitToRunningOnDemand"] = watch.seconds
    (node,) = cluster.nodes(job)
    wanted = {
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/nodepool": "on-demand-t4-us-west-2a",
        "ebb.dev/node-group": "on-demand-t4-us-west-2a",
    }
    assert {key: node["metadata"]["labels"].get(key) for key in wanted} == wanted
    await _limit(cluster, full.name, full.max)


async def test_workers_with_efa_get_machines_that_have_it(cluster: Cluster) -> None:
    watch = Stopwatch()
    job = await cluster.submit("giants", gpus=16, min_gpus=16, gpu="A100")
    await runs(job, 2)
    cluster.figures["secondsToRunningWithEfa"] = watch.seconds
    assert job.status["placement"]["network"] == "EFA"
    for node in cluster.nodes(job):
        assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "p4d.24xlarge"
        assert node["metadata"]["labels"]["karpenter.sh/capacity-type"] == "on-demand"
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in job.pods.values()]
    assert [(one["nvidia.com/gpu"], one[EFA], one["hugepages-2Mi"]) for one in limits] == 2 * [("8", "4", "5Gi")]
    assert len({pod["spec"]["nodeName"] for pod in job.pods.values()}) == 2


async def test_nothing_is_left_after_the_last_job(cluster: Cluster) -> None:
    job = Job(cluster.made, _namespace(), "letters")
    for name in ("numbers", "giants", "letters"):
        await Job(cluster.made, _namespace(), name).delete()
    watch = Stopwatch()
    await job.until("no machine is left", lambda: not list(_machines(cluster)), 60 * SCALE_DOWN_MINUTES + 120)
    cluster.figures["secondsToZero"] = watch.seconds

    async def none_left() -> None:  # a NodeClaim goes a moment after its Node
        if await cluster.claims():
            raise KubeError("there are NodeClaims")

    await found(none_left)
    report({"karpenter": "kept", **cluster.figures})


def _machines(cluster: Cluster) -> list[Object]:
    return [one for one in cluster.made.seen.all(NODES) if "karpenter.sh/nodepool" in one["metadata"]["labels"]]


async def _limit(cluster: Cluster, group: str, nodes: int) -> None:
    """So many of the NodePool's machines may there be."""
    await cluster.made.kube.patch(NODE_POOLS, None, group, {"spec": {"limits": {"nodes": str(nodes)}}})


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
