"""The control plane: an EKS cluster, its log, its first add-ons, and who may do what in it. No machines.

    control = cluster.declare("ebb-dev", settings, network, provider)
    control.ready                                  # everything that machines wait for, and that goes after them

pulumi_eks.Cluster is a component in a plugin of its own. It is told to make the cluster and nothing else: roles, add-ons and
access entries are ours, so that each is in the preview, has a pinned version and goes in the right order. The component wants the
AWS CLI (1.24 or 2.7 at least) on PATH, and waits until the public endpoint answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_eks as eks
from pulumi_aws import cloudwatch
from pulumi_aws.provider import Provider as AwsProvider
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.aws.control import access, addons
from infra.clouds.aws.iam import identity
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import Cluster, Settings
from infra.part import Part

# EKS refuses, ever after, subnets in zones that the cluster was not created with
# (https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html, read 2026-11-21). Machines may be in any. So the control
# plane has the first two zones of the stack, as EKS asks for two, and a zone that is added behind them changes nothing here.
ZONES = 2


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """Facts of the cluster for machines, storage and workloads. `name` is known once the cluster is there.

    `security_group_id`: EKS's own group, which nodes carry. The researchers' two are None in a stack that names no researchers.
    """

    eks: eks.Cluster
    name: pulumi.Output[str]
    arn: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]
    kubernetes: KubernetesProvider
    kubeconfig: pulumi.Output[str]
    researcher_kubeconfig: pulumi.Output[str] | None
    researcher_command: pulumi.Output[str] | None


def declare(name: str, settings: Settings, network: Network, provider: AwsProvider) -> ControlPlane:
    """The cluster `name`, in the private subnets of the network."""
    part = Part("aws", "control-plane", providers=[provider])
    component = _cluster(part, name, settings, network)
    made = component.eks_cluster
    cluster, endpoint, authority = made.name, made.endpoint, made.certificate_authority.data
    entries = access.administrators(part, name, cluster, settings.cluster.administrators)
    add_ons = addons.before_machines(part, name, cluster, settings)
    told = access.kubeconfig(name, settings.region, endpoint, authority)
    kubeconfig, command = None, None
    if settings.cluster.researchers:
        role, entry = access.researchers(part, name, cluster, made.arn, settings.cluster.researchers)
        entries.append(entry)
        kubeconfig = access.kubeconfig(name, settings.region, endpoint, authority, role.arn)
        command = access.command(name, settings.region, role.arn)
    return ControlPlane(
        eks=component,
        name=cluster,
        arn=made.arn,
        endpoint=endpoint,
        certificate_authority=authority,
        security_group_id=made.vpc_config.cluster_security_group_id,
        ready=[network.part, component, *add_ons, *entries],
        kubernetes=_provider(part, name, told, [component, *entries]),
        kubeconfig=told,
        researcher_kubeconfig=kubeconfig,
        researcher_command=command,
    )


def _cluster(part: Part, name: str, settings: Settings, network: Network) -> eks.Cluster:
    wanted = settings.cluster
    role = identity.role(part, name, "cluster")
    public = wanted.endpoint == "public"
    return eks.Cluster(
        name,
        name=name,  # fixed: tags, the log group and the researchers' command have it
        version=wanted.kubernetes_version,
        upgrade_policy={"support_type": "STANDARD"},  # or EKS would go on for another year, at extra cost
        vpc_id=network.vpc_id,
        private_subnet_ids=list(network.private.values())[:ZONES],
        endpoint_private_access=True,  # machines reach it without the NAT gateway
        endpoint_public_access=public,
        public_access_cidrs=list(wanted.public_access_cidrs) if public else None,
        authentication_mode=eks.AuthenticationMode.API,
        service_role=role,
        create_oidc_provider=False,  # pods have rights by Pod Identity
        skip_default_node_group=True,
        skip_default_security_groups=True,
        bootstrap_self_managed_addons=False,
        use_default_vpc_cni=True,  # that is: leave the network plugin alone
        kube_proxy_addon_options={"enabled": False},
        coredns_addon_options={"enabled": False},
        enabled_cluster_log_types=list(wanted.logs),
        encryption_config_key_arn=wanted.encryption_key_arn,
        opts=part.child(
            depends_on=[*role.policies, *_log(part, name, wanted)],
            # A stack may forbid default providers, so the component's own plugin has an explicit one. The SDK then sends no other
            # one along; what the component makes takes the AWS provider of the part (pulumi 3.250, runtime/resource.py
            # convert_providers, and the engine's source_eval.go).
            provider=eks.Provider("eks", opts=part.child()),
        ),
    )


def _log(part: Part, name: str, wanted: Cluster) -> list[pulumi.Resource]:
    """EKS would make the group by itself, keep everything for ever, and leave it behind."""
    if not wanted.logs:
        return []
    group = cloudwatch.LogGroup(
        f"{name}-control-plane",
        name=f"/aws/eks/{name}/cluster",
        retention_in_days=wanted.log_retention_days,
        opts=part.child(),
    )
    return [group]


def _provider(part: Part, name: str, kubeconfig: pulumi.Output[str], needs: Sequence[pulumi.Resource]) -> KubernetesProvider:
    return KubernetesProvider(
        "cluster",
        kubeconfig=kubeconfig,
        cluster_identifier=name,  # so another kubeconfig replaces nothing
        enable_config_map_mutable=True,  # ebb-platform is read by name, so it changes in place
        enable_patch_force=True,  # the stack's file wins over hands
        opts=part.child(depends_on=needs),
    )
