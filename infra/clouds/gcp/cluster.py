"""The control plane: a regional GKE cluster without machines of its own, who may do what in it, and the machines' identity.

    control = cluster.declare(part, "ebb-dev", settings, network)
    control.ready                                  # everything that machines wait for, and that goes after them

GKE brings what other clouds are given by workloads: cluster-autoscaler, NVIDIA's drivers and device plugin, DNS, metrics.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import container, logging, projects, serviceaccount
from pulumi_gcp.container._inputs import (
    ClusterMaintenancePolicyMaintenanceExclusionArgsDict,
    ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgsDict,
    ClusterMonitoringConfigArgsDict,
)
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.gcp.network import Network
from infra.clouds.gcp.settings import Cluster, Exclusion, Settings
from infra.config.buckets import mounted
from infra.part import Part
from workloads.cluster import JOBS, SYSTEM, TEAMS
from workloads.helpers import PLUGIN_NAMESPACE
from workloads.logs import OWN, Destination

# The least that GKE asks for machines' accounts
# (https://docs.cloud.google.com/kubernetes-engine/security/configure-node-service-accounts, a stored copy, read 2026-11-22).
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
ADMINISTRATOR, RESEARCHER = "roles/container.admin", "roles/container.clusterViewer"
ACCOUNT_ID = 30
SCOPES = {"nodes": "NO_MINOR_OR_NODE_UPGRADES", "minor": "NO_MINOR_UPGRADES", "all": "NO_UPGRADES"}
KINDS = {"group": "Group", "user": "User", "serviceAccount": "User"}  # an identity in IAM's words -> in Kubernetes'
SCOPE = "https://www.googleapis.com/auth/cloud-platform"  # rights are the account's roles; scopes are older, and limit no further


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Wishes of the stack's `monitoring`. `managed`: Managed Service for Prometheus collects."""

    managed: bool


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """Facts of the cluster for machines, storage and workloads. `name` is known once the cluster is there."""

    name: pulumi.Output[str]
    version: pulumi.Output[str]  # such as 1.35.0-gke.1171000
    account: pulumi.Output[str]  # the machines' service account, by its address
    ready: Sequence[pulumi.Resource]
    kubernetes: KubernetesProvider
    kubeconfig: pulumi.Output[str]
    researchers: tuple[tuple[str, str], ...]


def declare(
    part: Part, name: str, settings: Settings, network: Network, *, figures: Figures | None = None, ships_logs: bool = False
) -> ControlPlane:
    """The cluster `name`. `figures`: None: what GKE collects by default. `ships_logs`: of pods, said and not by default."""
    account = serviceaccount.Account(
        "machines", account_id=account_id(name, "machine"), display_name=f"Machines of {name}", opts=part.child()
    )
    rights = [_member(part, "machines", settings.project, NODE_ROLE, pulumi.Output.concat("serviceAccount:", account.email))]
    for role, people in ((ADMINISTRATOR, settings.cluster.administrators), (RESEARCHER, settings.cluster.researchers)):
        rights += [_member(part, f"{role.rpartition('.')[2]}-{one}", settings.project, role, one) for one in people]
    made = _cluster(part, name, settings, network, account.email, rights, figures, ships_logs)
    told = kubeconfig(name, made.endpoint, made.master_auth.cluster_ca_certificate)
    provider = KubernetesProvider(
        "cluster",
        kubeconfig=told,
        cluster_identifier=name,  # so another kubeconfig replaces nothing
        enable_config_map_mutable=True,  # ebb-platform is read by name, so it changes in place
        enable_patch_force=True,  # the stack's file wins over hands
        opts=part.child(depends_on=[made]),
    )
    subjects = tuple((KINDS[one.partition(":")[0]], one.partition(":")[2]) for one in settings.cluster.researchers)
    return ControlPlane(
        name=made.name, version=made.master_version, account=account.email, ready=[network.part, made, *rights],
        kubernetes=provider, kubeconfig=told, researchers=subjects,
    )  # fmt: skip


def _cluster(  # noqa: PLR0917 - one of each thing that exists before the cluster
    part: Part,
    name: str,
    settings: Settings,
    network: Network,
    account: pulumi.Output[str],
    needs: Sequence[pulumi.Resource],
    figures: Figures | None,
    ships_logs: bool,
) -> container.Cluster:
    wanted = settings.cluster
    return container.Cluster(
        name,
        name=name,  # fixed: the researchers' command has it
        location=settings.region,
        # No node_locations: to change them would move the machines of every node pool. Each pool names its own zone.
        remove_default_node_pool=True,
        initial_node_count=1,  # of the pool that is removed
        node_config={"service_account": account, "disk_size_gb": 20, "disk_type": "pd-standard"},  # of the same
        network=network.network,
        subnetwork=network.subnet,
        networking_mode="VPC_NATIVE",
        ip_allocation_policy={
            "cluster_secondary_range_name": network.pods_range,
            "services_secondary_range_name": network.services_range,
        },
        datapath_provider="ADVANCED_DATAPATH",  # Dataplane V2: it enforces network policies
        private_cluster_config={"enable_private_nodes": True, "enable_private_endpoint": wanted.endpoint == "private"},
        master_authorized_networks_config={
            "cidr_blocks": [{"cidr_block": cidr, "display_name": f"authorized {cidr}"} for cidr in wanted.authorized_cidrs],
            "gcp_public_cidrs_access_enabled": False,  # or every machine that anybody rents from Google could try
        },
        control_plane_endpoints_config={"dns_endpoint_config": {"allow_external_traffic": False}},
        release_channel={"channel": wanted.channel},
        min_master_version=wanted.min_version,
        maintenance_policy={
            "daily_maintenance_window": {"start_time": wanted.maintenance_start},
            "maintenance_exclusions": [_exclusion(one) for one in wanted.maintenance_exclusions] or None,
        },
        # Idle machines go sooner: GPUs are paid by the second (.../concepts/cluster-autoscaler#autoscaling_profiles). Not enabled
        # are machines beside those of the node groups.
        cluster_autoscaling={"enabled": False, "autoscaling_profile": "OPTIMIZE_UTILIZATION"},
        workload_identity_config={"workload_pool": f"{settings.project}.svc.id.goog"},
        authenticator_groups_config={"security_group": wanted.security_group} if wanted.security_group else None,
        addons_config={
            "gce_persistent_disk_csi_driver_config": {"enabled": True},  # etcd's disk
            "http_load_balancing": {"disabled": True},  # nothing here is served to the world
            "dns_cache_config": {"enabled": False},  # it answers at a link-local address, which jobs may not reach
            "lustre_csi_driver_config": {"enabled": settings.storage.lustre is not None},
            "gcs_fuse_csi_driver_config": {"enabled": bool(mounted(settings.storage.buckets))},
        },
        monitoring_config=_monitoring(figures) if figures else None,
        logging_config={"enable_components": ["SYSTEM_COMPONENTS", "WORKLOADS"]} if ships_logs else None,
        deletion_protection=wanted.deletion_protection,
        # GKE upgrades by its channel, and says nothing of the first pool, which is gone.
        opts=part.child(depends_on=[network.part, *needs], ignore_changes=["nodeConfig", "initialNodeCount"]),
    )


def _monitoring(figures: Figures) -> ClusterMonitoringConfigArgsDict:
    """With DCGM (a component that the SDK names, pulumi_gcp 10.2) GKE runs an exporter on each machine with GPUs, which a
    Prometheus of the stack reads, too. That its pods carry the label by which that looks for them is not proven."""
    return {
        "enable_components": ["SYSTEM_COMPONENTS", "DCGM"],
        "managed_prometheus": {"enabled": figures.managed},
    }


def _exclusion(wanted: Exclusion) -> ClusterMaintenancePolicyMaintenanceExclusionArgsDict:
    options: ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgsDict = {"scope": SCOPES[wanted.scope]}
    if wanted.end is None:
        options["end_time_behavior"] = "UNTIL_END_OF_SUPPORT"
    made: ClusterMaintenancePolicyMaintenanceExclusionArgsDict = {
        "exclusion_name": wanted.name,
        "start_time": wanted.start,
        "exclusion_options": options,
    }
    return made if wanted.end is None else {**made, "end_time": wanted.end}


def _member(part: Part, logical: str, project: str, role: str, member: pulumi.Input[str]) -> pulumi.Resource:
    return projects.IAMMember(logical, project=project, role=role, member=member, opts=part.child())


def account_id(name: str, what: str) -> str:
    """Of a service account: at most 30 characters. A stack with a long name has some of them exchanged for its hash."""
    whole = f"{name}-{what}"
    if len(whole) <= ACCOUNT_ID:
        return whole
    short = hashlib.sha256(name.encode()).hexdigest()[:5]
    return f"{name[: ACCOUNT_ID - len(what) - len(short) - 2].rstrip('-')}-{short}-{what}"


def kubeconfig(name: str, endpoint: pulumi.Input[str], certificate_authority: pulumi.Input[str]) -> pulumi.Output[str]:
    """As JSON, which is YAML too. It holds no secret: Google's plugin asks gcloud for a token of the hour. The keys are those of
    what `gcloud container clusters get-credentials` writes, as people quote it; but nobody is asked anything."""
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "gke-gcloud-auth-plugin",
        "installHint": "gcloud components install gke-gcloud-auth-plugin",
        "provideClusterInfo": True,
        "interactiveMode": "Never",
    }
    server = {"server": pulumi.Output.concat("https://", endpoint), "certificate-authority-data": certificate_authority}
    return pulumi.Output.json_dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": server}],
            "users": [{"name": name, "user": {"exec": plugin}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


def command(name: str, wanted: Cluster, region: str, project: str) -> str | None:
    """The command that a researcher types once: it writes such a kubeconfig into their own."""
    words = f"gcloud container clusters get-credentials {name} --region {region} --project {project}"
    return f"{words}{' --internal-ip' if wanted.endpoint == 'private' else ''}" if wanted.researchers else None


def logs(part: Part, name: str, settings: Settings, keep_days: int) -> Destination:
    """A log bucket that forgets, for Ebb's pods. GKE ships what pods print by itself, with their labels, by default to the
    project's bucket _Default; the exclusion takes these lines out of it, for each bucket is paid
    (https://docs.cloud.google.com/logging/docs/routing/overview, as remembered). A sink may write to its own project's."""
    project, region = settings.project, settings.region
    bucket = logging.ProjectBucketConfig(
        "logs",
        project=project,
        location=region,
        bucket_id=name,
        description=f"Pods of {name}",
        retention_days=keep_days,
        opts=part.child(),
    )
    sink = logging.ProjectSink(
        "logs",
        name=name,
        project=project,
        destination=pulumi.Output.concat("logging.googleapis.com/", bucket.id),
        filter=chosen(name, region),
        unique_writer_identity=True,
        opts=part.child(),
    )
    logging.ProjectExclusion(
        "logs",
        name=name,
        project=project,
        description=f"They are in the log bucket {name}",
        filter=chosen(name, region),
        opts=part.child(depends_on=[sink]),  # or lines between the two would be nowhere
    )
    view = f"storageScope=storage,projects%2F{project}%2Flocations%2F{region}%2Fbuckets%2F{name}%2Fviews%2F_AllLogs"
    return Destination(links={"logs": f"https://console.cloud.google.com/logs/query;{view}?project={project}"})


def chosen(name: str, region: str) -> str:
    """Lines of the cluster's pods that are Ebb's, in the words of Cloud Logging."""
    return "\n".join((
        'resource.type="k8s_container"',
        f'resource.labels.cluster_name="{name}"',
        f'resource.labels.location="{region}"',
        f'(resource.labels.namespace_name=~"^({SYSTEM}|{JOBS}|{TEAMS}.*)$" OR '
        f'(resource.labels.namespace_name="{PLUGIN_NAMESPACE}" AND resource.labels.pod_name=~"^{OWN}"))',
    ))  # fmt: skip
