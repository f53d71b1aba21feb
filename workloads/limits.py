"""What may be made in the two namespaces, and who may speak to whom in them.

    limits(cluster, spaces)      before everything else that is made in the namespaces: see there

The quotas count objects; CPU and memory are bounded by the node groups' sizes already.

There is no LimitRange: pods of the platform and of `ebb submit` say what they need, and a default for a job file that does not
would be wrong for most.
"""

from collections.abc import Mapping

import pulumi
from pulumi_kubernetes import core
from pulumi_kubernetes.core.v1 import ResourceQuotaSpecArgsDict

from infra.cloud import Cluster
from workloads.names import JOBS, PLATFORM_PRIORITY, SYSTEM, Resources
from workloads.network import policies

# A load balancer or its node port would be made by the cluster and not by Pulumi: it costs money, opens the network, and stays
# in the cloud after `pulumi destroy`.
NOTHING_IN_THE_CLOUD: Mapping[str, str] = {"services.loadbalancers": "0", "services.nodeports": "0"}
# A loop that submits without end must not fill the API server's store. 5000 are 78 jobs of 64 workers; each has a Service.
# Written as the API server writes them back, so that a refresh finds no difference.
MANY: Mapping[str, str] = {
    "pods": "5k",
    "services": "5k",
    "configmaps": "20k",
    "secrets": "50",
    # The stack's own are a handful. A pod's template can ask for more (an `ephemeral` volume), each a disk where the cloud lets
    # the cluster make disks.
    "persistentvolumeclaims": "16",
}


def limits(cluster: Cluster, spaces: Mapping[str, pulumi.Resource]) -> Resources:
    """Quotas and network policies.

    Whatever else is made in the namespaces depends on them: until Kubernetes has counted what is there, a quota lets nothing in
    that it counts; and no pod shall run before its policy.
    """
    return [*_quotas(cluster, spaces), *policies(cluster, spaces)]


def _quotas(cluster: Cluster, spaces: Mapping[str, pulumi.Resource]) -> Resources:
    # The classes of Kubernetes' agents and of the platform: a job in one of them would push those off their machine, or other
    # people's workers off theirs.
    critical: ResourceQuotaSpecArgsDict = {
        "hard": {"pods": "0"},
        "scope_selector": {
            "match_expressions": [
                {
                    "scope_name": "PriorityClass",
                    "operator": "In",
                    "values": ["system-cluster-critical", "system-node-critical", PLATFORM_PRIORITY],
                }
            ]
        },
    }
    return [
        _quota(cluster, spaces, JOBS, "objects", {"hard": {**NOTHING_IN_THE_CLOUD, **MANY}}),
        _quota(cluster, spaces, JOBS, "critical-pods", critical),
        _quota(cluster, spaces, SYSTEM, "objects", {"hard": NOTHING_IN_THE_CLOUD}),
    ]


def _quota(
    cluster: Cluster, spaces: Mapping[str, pulumi.Resource], namespace: str, name: str, spec: ResourceQuotaSpecArgsDict
) -> pulumi.Resource:
    return core.v1.ResourceQuota(
        f"quota-{namespace}-{name}",
        metadata={"name": name, "namespace": namespace},
        spec=spec,
        opts=cluster.options(depends_on=[spaces[namespace]]),
    )
