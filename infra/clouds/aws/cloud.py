"""Amazon Web Services as infra.cloud.Infrastructure: calls the modules beside it, and keeps what later ones need of earlier."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pulumi
from pulumi_aws.provider import Provider as AwsProvider

from infra.clouds.aws import network
from infra.clouds.aws.builds import images
from infra.clouds.aws.control import addons, cluster
from infra.clouds.aws.data import storage
from infra.clouds.aws.iam import identity
from infra.clouds.aws.machines import drill, in_cluster, machine, nodes
from infra.clouds.aws.machines.karpenter import Karpenter
from infra.clouds.aws.settings import Settings
from infra.config import Stack
from infra.part import Part
from workloads.cluster import Cluster, Helpers, Images, NodeGroup, Storage
from workloads.logs import Destination
from workloads.monitoring import Managed

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html, read 2026-11-21
NOTICE_SECONDS = 120


class Aws:
    """See infra.cloud.Infrastructure. Every AWS resource uses one provider: its region, its tags, and no other account."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self._stack, self._settings = stack, settings
        self._name = f"ebb-{pulumi.get_stack()}"
        self._outputs: dict[str, pulumi.Input[Any] | None] = {}
        self._first_group: pulumi.Resource | None = None

    @property
    def notice_seconds(self) -> int:
        return NOTICE_SECONDS

    @cached_property
    def _provider(self) -> AwsProvider:
        account = self._settings.account_id
        return AwsProvider(
            "aws",
            region=self._settings.region,
            allowed_account_ids=[account] if account else None,
            default_tags={"tags": machine.stack_tags(pulumi.get_stack(), self._settings)},
        )

    @cached_property
    def _network(self) -> network.Network:
        return network.declare(self._name, self._stack, self._settings, self._provider)

    @cached_property
    def _control(self) -> cluster.ControlPlane:
        return cluster.declare(self._name, self._settings, self._network, self._provider)

    @cached_property
    def _machines(self) -> tuple[Part, identity.Role]:
        part = self._part("machines")
        options = ["aws.nodes.ssm"] if self._settings.nodes.ssm else []
        return part, identity.role(part, self._name, "machine", options=options)

    @cached_property
    def _karpenter(self) -> Karpenter:
        assert self._first_group is not None, "it runs on the manager machine"
        part, role = self._machines
        return Karpenter(part, self._name, self._stack, self._control, self._network, role, self._first_group)

    def cluster(self) -> Cluster:
        control, region = self._control, self._settings.region
        self._outputs |= {
            "kubeconfig": control.kubeconfig,
            "researcherKubeconfig": control.researcher_kubeconfig,
            "researcherCommand": control.researcher_command,
            "dashboards": {
                "cluster": f"https://{region}.console.aws.amazon.com/eks/clusters/{self._name}?region={region}",
                "controlPlaneLogs": f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#logsV2:log-groups",
            },
        }
        # The autoscaler, too, takes a machine that is not there by then for one that will not come.
        provision_seconds = 60 * self._settings.autoscaler.provision_minutes
        return Cluster(name=self._stack.cloud, region=region, provider=control.kubernetes, provision_seconds=provision_seconds)

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        """The group that is declared first, a manager's, is made before the others and removed after them: with it EKS creates
        the service-linked role of node groups where the account has none, and groups made at the same time may be refused."""
        if not group.is_manager and self._settings.autoscaler.kind == "karpenter":
            return self._karpenter.node_pool(group)
        part, role = self._machines
        first = [] if self._first_group is None else [self._first_group]
        made = nodes.declare(part, self._name, group, self._control, self._network, self._settings, role, after=first)
        self._first_group = self._first_group or made
        return made

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        part = self._part("add-ons")
        return addons.after_manager(part, self._name, self._control.name, self._settings, manager, self._control.kubernetes)

    def images(self, cluster: Cluster) -> Images:
        part = self._part("images")
        builder = identity.role(part, self._name, "codebuild") if self._settings.images.build == "codebuild" else None
        made = images.declare(part, self._name, self._stack, self._settings, builder)
        self._outputs |= {"images": {"controller": made.controller, **made.trainers}, "imagesCompressedMB": made.compressed_mb}
        return made

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        made = storage.declare(
            self._part("storage"),
            self._name,
            self._stack,
            self._settings,
            network=self._network,
            control=self._control,
            kubernetes_provider=cluster.provider,
            add_ons=add_ons,
        )
        self._outputs |= made.commands
        return made

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        part = self._part("helpers")
        self._outputs["drill"] = drill.declare(part, self._name, self._settings)
        return in_cluster.helpers(part, self._name, self._control, self._settings, groups)

    def monitoring(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
        return addons.insights(self._part("monitoring"), self._name, self._control.name, self._settings, needs)

    def logs(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Destination:
        return in_cluster.logs(self._part("logs"), self._name, self._control, self._settings, self._stack.logs.keep_days)

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        return {name: value for name, value in self._outputs.items() if value is not None}

    def _part(self, name: str) -> Part:
        return Part("aws", name, providers=[self._provider])
