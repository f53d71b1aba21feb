"""Karpenter in the place of cluster-autoscaler and of managed node groups for jobs: its controller, a NodePool for each group.

    karpenter = Karpenter(part, "ebb-dev", stack, control, network, machine_role, manager)
    machines = karpenter.node_pool(group)          # from now on pods that wait get machines of the group

It starts EC2 machines itself. So what a managed node group and its launch template say stands in a NodePool and an EC2NodeClass
of the group's name: the same labels, taints, disks, tags and boot settings, in the group's one zone. Its own machine is the
manager's, which is a managed node group as ever. Both have the same role, so it may join the cluster: EKS makes the access entry
with the manager's group.

The controller comes as the project's own Helm charts: they have its image by digest, its kinds and its rights in Kubernetes, and
change with its version. It runs in kube-system, as documented: our own namespaces wait for the node groups.

On the way down a NodePool takes its machines along, and its EC2NodeClass stays until the last is gone; then the controller goes.
What is said of Karpenter here is from https://github.com/aws/karpenter-provider-aws at v1.14.1, read 2026-11-23, and from
https://github.com/kubernetes-sigs/karpenter at v1.14.0.
"""

import json
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, ec2, sqs
from pulumi_kubernetes.apiextensions import CustomResource

from infra.clouds.aws.catalog import HUGE_PAGES_MIB, KERNEL_SHARE_OF_REST
from infra.clouds.aws.control import pod_identity
from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.iam import identity
from infra.clouds.aws.machines import in_cluster, machine
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import GroupSettings, Settings
from infra.config import Stack
from infra.part import Part
from workloads.cluster import CAPACITY_BLOCK, LABEL_NODE_GROUP, MANAGER, ON_DEMAND, SPOT, NodeGroup

KARPENTER, NAMESPACE = "karpenter", "kube-system"
CHARTS = "oci://public.ecr.aws/karpenter"
ZONE, INSTANCE_TYPE, BOUGHT = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "karpenter.sh/capacity-type"
# What Karpenter calls a way of buying; its own label has that word, ours the stack's.
CAPACITY = {SPOT: "spot", ON_DEMAND: "on-demand", CAPACITY_BLOCK: "reserved"}
# What its controller wants to hear of (website/.../cloudformation.yaml has a rule for each).
EVENTS = {
    "source": ["aws.ec2", "aws.health"],
    "detail-type": [
        "AWS Health Event",
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
        "EC2 Capacity Reservation Instance Interruption Warning",
    ],
}
KEPT_SECONDS = 300  # in the queue: an interruption that old is over
# Jobs have left their machines by then: namespaces go before machines do.
_TIMEOUTS = pulumi.CustomTimeouts(delete="30m")


class Karpenter:
    """The controller of a cluster. See the module's docstring."""

    def __init__(  # noqa: PLR0917 - one of each thing that exists before machines
        self,
        part: Part,
        name: str,
        stack: Stack,
        control: ControlPlane,
        network: Network,
        role: identity.Role,
        manager: pulumi.Resource,
    ) -> None:
        self._part, self._name, self._settings, self._control, self._network = part, name, stack.settings, control, network
        # One of its own making would need rights to make any, and stay behind if the controller goes first.
        self._profile = identity.instance_profile(part, name, "machine", role)
        has_efa = any(isinstance(line.settings, GroupSettings) and line.settings.efa for line in stack.node_groups)
        self._controller = self._install(self._queue(), has_efa, manager)

    def node_pool(self, group: NodeGroup) -> pulumi.Resource:
        """Machines of a group from zero to its max."""
        made = self._object(
            "EC2NodeClass",
            "karpenter.k8s.aws/v1",
            group.name,
            node_class(
                group,
                self._settings,
                stack=self._name.removeprefix("ebb-"),
                subnet=self._network.private[group.zone],
                security_group=self._control.security_group_id,
                profile=self._profile.name,
                placement=self._placement(group),
            ),
            needs=[self._controller],
        )
        if machine.efa_interfaces(group):
            made = self._object("NodeOverlay", "karpenter.sh/v1alpha1", group.name, overlay(group), needs=[made])
        return self._object("NodePool", "karpenter.sh/v1", group.name, node_pool(group, self._settings), needs=[made])

    def _object(
        self, kind: str, version: str, name: str, spec: dict[str, Any], *, needs: list[pulumi.Resource]
    ) -> pulumi.Resource:
        return CustomResource(
            f"{kind.lower()}-{name}",
            api_version=version,
            kind=kind,
            metadata={"name": name},
            spec=spec,
            opts=self._part.child(depends_on=needs, provider=self._control.kubernetes, custom_timeouts=_TIMEOUTS),
        )

    def _placement(self, group: NodeGroup) -> pulumi.Output[str] | None:
        if not machine.own_settings(group).placement_group:
            return None
        return ec2.PlacementGroup(group.name, strategy="cluster", opts=self._part.child()).name

    def _queue(self) -> list[pulumi.Resource]:
        """The queue in which EC2's warnings arrive. Its name is fixed: the rights have it."""
        name = f"{self._name}-{KARPENTER}"
        queue = sqs.Queue(
            KARPENTER, name=name, message_retention_seconds=KEPT_SECONDS, sqs_managed_sse_enabled=True, opts=self._part.child()
        )
        policy = sqs.QueuePolicy(KARPENTER, queue_url=queue.url, policy=queue.arn.apply(_queue_policy), opts=self._part.child())
        rule = cloudwatch.EventRule(KARPENTER, event_pattern=json.dumps(EVENTS), opts=self._part.child())
        target = cloudwatch.EventTarget(KARPENTER, rule=rule.name, arn=queue.arn, opts=self._part.child(depends_on=[policy]))
        return [queue, policy, rule, target]

    def _install(self, queue: list[pulumi.Resource], has_efa: bool, manager: pulumi.Resource) -> pulumi.Resource:
        """The kinds have a chart of their own, as Helm never changes those that a chart merely brings along."""
        role = identity.role(self._part, self._name, KARPENTER)
        link = pod_identity.associate(self._part, self._control, NAMESPACE, KARPENTER, role)
        kinds = self._release("karpenter-crd", {}, [manager, *self._control.ready])
        return self._release(KARPENTER, values(self._name, self._settings, has_efa=has_efa), [kinds, link, self._profile, *queue])

    def _release(self, chart: str, given: dict[str, Any], needs: list[pulumi.Resource]) -> pulumi.Resource:
        return pulumi.CustomResource(  # its class is in a module that imports all of Kubernetes, half a minute on a busy machine
            "kubernetes:helm.sh/v3:Release",
            chart,
            {
                "name": chart,
                "chart": f"{CHARTS}/{chart}",
                "version": self._settings.autoscaler.release,
                "namespace": NAMESPACE,
                "skipCrds": True,
                "values": given,
                "timeout": 600,
                "compat": "true",  # as its class says, always
            },
            self._part.child(depends_on=needs, provider=self._control.kubernetes),
        )


def values(name: str, settings: Settings, *, has_efa: bool) -> dict[str, Any]:
    """Values that differ from the chart's own. `has_efa`: a group has EFA, and so huge pages."""
    return {
        "replicas": 1,  # it is on the manager machine, and two must not share one
        "serviceAccount": {"name": KARPENTER},
        "nodeSelector": {LABEL_NODE_GROUP: MANAGER},
        "dnsPolicy": "Default",  # it must not wait for CoreDNS, nor be without it: only AWS's names are asked for
        "controller": {
            "env": [{"name": "AWS_REGION", "value": settings.region}],  # pods do not reach the metadata address
            "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        },
        "settings": {
            "clusterName": name,
            "interruptionQueue": f"{name}-{KARPENTER}",
            "isolatedVPC": in_cluster.cut_off(settings),
            # Its guess of what kernel and hypervisor keep, before it has seen such a machine. With the default, 7.5 %, no machine
            # would do for a worker that asks for all the memory that ebb-platform promises.
            "vmMemoryOverheadPercent": KERNEL_SHARE_OF_REST,
            # CoreDNS would rather not have both pods on one machine: no reason to start one with GPUs, nor to keep it.
            "preferencePolicy": "Ignore",
            "featureGates": {"nodeRepair": settings.nodes.repair, "nodeOverlay": has_efa},
        },
    }


def node_class(
    group: NodeGroup,
    settings: Settings,
    *,
    stack: str,
    subnet: pulumi.Input[str],
    security_group: pulumi.Input[str],
    profile: pulumi.Input[str],
    placement: pulumi.Input[str] | None = None,
) -> dict[str, Any]:
    """The way in which a machine of the group is started, as nodes.py has it in a launch template."""
    disk, boot = machine.disk(group, settings), machine.boot_settings(group, settings)
    reservation = machine.own_settings(group).capacity_reservation_id
    interfaces = [
        {"networkCardIndex": card, "deviceIndex": device, "interfaceType": kind} for card, device, kind in _interfaces(group)
    ]
    release = settings.nodes.releases[machine.types(group)[0].ami_type]
    return {
        # Karpenter takes the variant with NVIDIA's driver for machines with GPUs, and the control plane's minor version.
        "amiSelectorTerms": [{"alias": f"al2023@v{release.rpartition('-')[2]}"}],
        "instanceProfile": profile,
        "subnetSelectorTerms": [{"id": subnet}],
        "securityGroupSelectorTerms": [{"id": security_group}],
        "associatePublicIPAddress": False,
        "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "rootVolume": True,
                "ebs": {
                    "volumeType": "gp3",
                    "volumeSize": f"{disk.gib}Gi",
                    "throughput": disk.throughput_mib,
                    "iops": disk.iops,
                    "encrypted": True,
                    "deleteOnTermination": True,
                },
            }
        ],
        "tags": machine.machine_tags(stack, group, settings),
        **({"instanceStorePolicy": "RAID0"} if disk.local_gib else {}),
        **({"networkInterfaces": interfaces} if interfaces else {}),
        **({"userData": boot} if boot else {}),
        **({"placementGroupSelector": {"name": placement}} if placement else {}),
        **({"capacityReservationSelectorTerms": [{"id": reservation}]} if reservation else {}),
    }


def node_pool(group: NodeGroup, settings: Settings) -> dict[str, Any]:
    """The machines that the group may have, their number, and when they go."""
    return {
        "weight": in_cluster.PRIORITIES[group.capacity_type],
        "limits": {"nodes": str(group.max)},
        "template": {
            "metadata": {"labels": machine.labels(group)},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": group.name},
                "requirements": [
                    {"key": key, "operator": "In", "values": found}
                    for key, found in {
                        ZONE: [group.zone],
                        INSTANCE_TYPE: [one.name for one in machine.types(group)],
                        BOUGHT: [CAPACITY[group.capacity_type]],
                    }.items()
                ],
                "taints": group.taints,
                "expireAfter": "Never",  # by default after 30 days, job or no job
            },
        },
        # Pods of jobs carry karpenter.sh/do-not-disrupt, so a machine with one stays. WhenEmpty would also keep one on which only
        # a pod of CoreDNS is left.
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": f"{settings.autoscaler.scale_down_minutes}m",
            "budgets": [{"nodes": "100%"}],  # by default a tenth at a time
        },
    }


def overlay(group: NodeGroup) -> dict[str, Any]:
    """Huge pages that a machine with EFA has, and no instance type speaks of: else no pod that asks for them gets one."""
    return {
        "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": [group.name]}],
        "capacity": {"hugepages-2Mi": f"{HUGE_PAGES_MIB}Mi"},
    }


def _interfaces(group: NodeGroup) -> list[tuple[int, int, str]]:
    """Card, device and kind. Karpenter knows no interface that is both: one for IP alone is before the first for EFA alone."""
    found: list[tuple[int, int, str]] = []
    for one in machine.interfaces(group):
        both = one.kind == "efa"
        found += (
            [(one.card, one.device, "interface"), (one.card, one.device + 1, "efa-only")]
            if both
            else [(one.card, one.device, one.kind)]
        )
    return found


def _queue_policy(arn: str) -> str:
    """EventBridge may write into it; nobody may without TLS."""
    statements = [
        {
            "Effect": "Allow",
            "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
            "Action": "sqs:SendMessage",
            "Resource": arn,
        },
        {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    ]
    return json.dumps({"Version": identity.VERSION, "Statement": statements})
