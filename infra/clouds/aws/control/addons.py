"""The EKS add-ons of a cluster: one table, every version pinned in the stack's file, everything else here.

    first = addons.before_machines(part, "ebb-dev", cluster, settings)             # machines become ready with these
    then = addons.after_manager(part, "ebb-dev", cluster, settings, manager, kubernetes)   # these need a machine to become ready

Controllers are on the manager machine, as other machines come and go; CoreDNS may be on these, too. What runs on every machine
tolerates every taint: the CSI drivers, or no job could mount its data, and the monitoring agent with its DCGM server, or EKS
would take GPUs that nobody looks at for broken ones, and replace their machines.

EKS checks the values against the schema of the version (`aws eks describe-addon-configuration`), and refuses the add-on for one
unknown key. So only keys are used that a published schema shows, and defaults that are right already are not repeated.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, eks
from pulumi_kubernetes.apps.v1 import DaemonSetPatch
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.aws.iam import identity
from infra.clouds.aws.iam.rights import bucket_words
from infra.clouds.aws.settings import Settings
from infra.config.buckets import mounted
from infra.part import Part
from workloads.cluster import LABEL_CAPACITY, LABEL_NODE_GROUP, MANAGER, TAINT_GPU
from workloads.monitoring import Managed

ON_MANAGER = {LABEL_NODE_GROUP: MANAGER}
EVERYWHERE = [{"operator": "Exists"}]
EFS, FSX, S3 = "aws-efs-csi-driver", "aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver"
INSIGHTS = "amazon-cloudwatch-observability"


@dataclass(frozen=True, kw_only=True)
class AddOn:
    """`values`: its configuration. `role`: which rights (iam/rights.py) its service account has. `patched`: this program sets
    fields of its objects itself."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    patched: bool = False
    role: str = ""
    account: str = ""


# Two pods, as by default, that go apart where there is a second machine: jobs ask for names while the manager's is replaced. The
# schema has both; a list stands in place of the add-on's own, and objects are merged with its own
# (https://github.com/aws/containers-roadmap/issues/2167 and 295, read 2026-11-23).
_DNS: Mapping[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "podAffinityTerm": {
                        "labelSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
                        "topologyKey": "kubernetes.io/hostname",
                    },
                }
            ]
        },
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 50,
                    "preference": {
                        "matchExpressions": [{"key": LABEL_NODE_GROUP, "operator": "In", "values": [MANAGER]}],
                    },
                }
            ]
        },
    },
    "tolerations": [
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
        *({"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (TAINT_GPU, LABEL_CAPACITY)),
        # By default a pod stays bound to a machine that has died for five minutes.
        *(
            {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
            for state in ("not-ready", "unreachable")
        ),
    ],
}

# With their defaults the file systems' drivers on each machine ask for little or no CPU, are probed every 2 s and killed after 5
# late answers: busy machines restart EFS's 345 times a day, and each restart fails mounts
# (https://github.com/mitodl/ol-infrastructure/pull/5164).
_REQUESTS = {"requests": {"cpu": "50m", "memory": "128Mi"}}
_PATIENCE = {"initialDelaySeconds": 10, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 5}

# The network plugin takes its rights from the agent, so the agent is first. Both are in the host's network, and so reach the
# machine's metadata, which pods do not. All three tolerate every taint by themselves.
FIRST = (
    AddOn(name="eks-pod-identity-agent"),
    AddOn(name="vpc-cni", values={"enableNetworkPolicy": "true"}, role="vpc-cni", account="aws-node"),
    AddOn(name="kube-proxy"),
)
THEN = (
    AddOn(name="coredns", values=_DNS),
    # Etcd's is the only EBS volume, so the driver is on the manager machine alone, and jobs' machines have one pod less to start
    # (charts/aws-ebs-csi-driver/values.schema.json, https://github.com/kubernetes-sigs/aws-ebs-csi-driver at 2026-08-19).
    AddOn(
        name="aws-ebs-csi-driver",
        values={"controller": {"nodeSelector": ON_MANAGER}, "node": {"nodeSelector": ON_MANAGER}},
        role="ebs-csi",
        account="ebs-csi-controller-sa",
    ),
    # Its schema is in the discussion of that pull request, for v3.4.1-eksbuild.1.
    AddOn(
        name=EFS,
        values={
            "controller": {"nodeSelector": ON_MANAGER},
            "node": {
                "resources": _REQUESTS,
                "livenessProbe": {"httpGet": {"path": "/healthz", "port": "healthz"}, **_PATIENCE},
            },
        },
    ),
    # No schema of it is published. By default its node pods tolerate every taint, and its controller none of ours: it is on the
    # manager machine. See _patch() for the rest.
    AddOn(name=FSX, patched=True),
    # Nor of this one. Its node pods tolerate every taint by default, and take Pod Identity's credentials
    # (charts/aws-mountpoint-s3-csi-driver/values.yaml, https://github.com/awslabs/mountpoint-s3-csi-driver at v2.7.0).
    AddOn(name=S3, role="s3-csi", account="s3-csi-driver-sa"),
    # Nor of this one. It tolerates no taint: it is on the manager machine, or on an on-demand one without GPUs.
    AddOn(name="metrics-server"),
    # The agent tolerates all by itself, its DCGM server nothing (charts/configuration.schema.json,
    # https://github.com/aws/eks-node-monitoring-agent at 2026-08-18).
    AddOn(name="eks-node-monitoring-agent", values={"dcgmAgent": {"tolerations": EVERYWHERE}}),
)

# https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/install-CloudWatch-Observability-EKS-addon.html has such values.
# Its programs tolerate every taint (charts/amazon-cloudwatch-observability/values.yaml,
# https://github.com/aws-observability/helm-charts at 00bd626; both read 2026-11-26).
_INSIGHTS: Mapping[str, Any] = {
    "agent": {
        "config": {
            "logs": {
                "metrics_collected": {
                    "kubernetes": {"enhanced_container_insights": True, "accelerated_compute_metrics": True},
                }
            }
        }
    },
    "containerLogs": {"enabled": False},
}


def used(settings: Settings) -> list[AddOn]:
    """The add-ons of a stack: a file system's driver only where there is such a file system."""
    absent = {EFS: settings.storage.efs is None, FSX: settings.storage.fsx is None, S3: not mounted(settings.storage.buckets)}
    return [one for one in (*FIRST, *THEN) if not absent.get(one.name)]


def before_machines(part: Part, name: str, cluster: pulumi.Input[str], settings: Settings) -> list[eks.Addon]:
    """They are ready at once, as there is no machine for them, and go when no machine needs them any more."""
    made: list[eks.Addon] = []
    for one in FIRST:
        made.append(_add_on(part, name, cluster, settings, one, needs=made[:1]))
    return made


def after_manager(  # noqa: PLR0917 - all of them say the same five
    part: Part,
    name: str,
    cluster: pulumi.Input[str],
    settings: Settings,
    manager: pulumi.Resource,
    kubernetes: KubernetesProvider,
) -> Sequence[pulumi.Resource]:
    """They are ready when they run on the manager machine, and go before it."""
    made: list[pulumi.Resource] = []
    for one in (one for one in used(settings) if one in THEN):
        made.append(_add_on(part, name, cluster, settings, one, needs=[manager]))
        if one.patched:
            made.append(_patch(part, name, made[-1], kubernetes))
    return made


def insights(part: Part, name: str, cluster: pulumi.Input[str], settings: Settings, needs: Sequence[pulumi.Resource]) -> Managed:
    """Container Insights with GPU metrics, for `monitoring.managed`: what machines, pods and GPUs do. It reads no page of
    Prometheus, so figures of trainings are not in it; logs it would ship as well. `needs`: the manager group, where it becomes
    ready."""
    # The agent would make the group by itself, keep everything for ever, and leave it behind.
    figures = cloudwatch.LogGroup(
        f"{name}-insights",
        name=f"/aws/containerinsights/{name}/performance",
        retention_in_days=settings.cluster.log_retention_days,
        opts=part.child(),
    )
    add_on = AddOn(name=INSIGHTS, values=_INSIGHTS, role="insights", account="cloudwatch-agent")
    _add_on(part, name, cluster, settings, add_on, needs=[figures, *needs])
    region = settings.region
    console = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    return Managed(links={"Container Insights": f"{console}#container-insights:infrastructure"})


def _add_on(  # noqa: PLR0917 - all of them say the same five
    part: Part, name: str, cluster: pulumi.Input[str], settings: Settings, one: AddOn, needs: Iterable[pulumi.Resource]
) -> eks.Addon:
    role = identity.role(part, name, one.role, **_words(one, settings)) if one.role else None
    return eks.Addon(
        f"{name}-{one.name}",
        cluster_name=cluster,
        addon_name=one.name,
        addon_version=settings.cluster.add_ons[one.name],
        configuration_values=json.dumps(one.values, sort_keys=True) if one.values else None,
        pod_identity_associations=[{"role_arn": role.arn, "service_account": one.account}] if role else None,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="PRESERVE" if one.patched else "OVERWRITE",
        preserve=False,  # or its pods would stay when it goes, and hold network interfaces of machines
        opts=part.child(depends_on=list(needs)),
    )


def _words(one: AddOn, settings: Settings) -> dict[str, Any]:
    """The resources of its role, where they are the stack's to name."""
    if one.name != S3:
        return {}
    return bucket_words(mounted(settings.storage.buckets))


def _patch(part: Part, name: str, driver: pulumi.Resource, kubernetes: KubernetesProvider) -> DaemonSetPatch:
    """FSx's driver with EFS's patience. No value of its chart changes the probe, which stands in the template, in v1.9.0 as in
    the newest, chart 1.17.0 (charts/aws-fsx-csi-driver/templates/node-daemonset.yaml of
    https://github.com/kubernetes-sigs/aws-fsx-csi-driver, read 2026-11-25).

    EKS sets the fields by server-side apply, and so they can be taken over; it leaves them alone when it updates the add-on with
    PRESERVE (https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-field-management.html and UpdateAddon, read then).
    """
    container = {"name": "fsx-plugin", "resources": _REQUESTS, "livenessProbe": _PATIENCE}
    metadata: Any = {"name": "fsx-csi-node", "namespace": "kube-system", "annotations": {"pulumi.com/patchForce": "true"}}
    spec: Any = {"template": {"spec": {"containers": [container]}}}
    patch: DaemonSetPatch = DaemonSetPatch(
        f"{name}-{FSX}",
        metadata=metadata,
        spec=spec,
        opts=part.child(provider=kubernetes, depends_on=[driver]),
    )
    return patch
