"""The one place that speaks to a Kubernetes API server: raw JSON objects in, raw JSON objects out.

    async with Kube.connect() as kube:                       # in a pod: its service account; elsewhere: a kubeconfig
        pods = await kube.list(PODS, "elastic-job", labels="job-name=digits")

Used by the controller, the CLI, the devcluster and its Pulumi provider. client.py is the connection, errors.py what it
raises, kinds.py where objects live in the API, credentials.py how one gets in. It holds no cache and retries nothing: that is the
reflector's work and the caller's. streams.py runs programs in pods and connects to their ports.
"""

from ebb.kube.client import APPLY, MERGE, STRATEGIC, Kube
from ebb.kube.errors import BY_STATUS, Conflict, Denied, Gone, Invalid, KubeconfigError, KubeError, NotFound, Unreachable
from ebb.kube.kinds import (
    CLAIMS,
    CONFIG_MAPS,
    ELASTIC_JOBS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NETWORK_POLICIES,
    NODE_CLAIMS,
    NODE_GROUPS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    SECRETS,
    SERVICES,
    VOLUMES,
    WORKLOAD_PRIORITIES,
    WORKLOADS,
    Object,
    Objects,
    Resource,
)

__all__ = [
    "APPLY",
    "BY_STATUS",
    "CLAIMS",
    "CONFIG_MAPS",
    "ELASTIC_JOBS",
    "EVENTS",
    "LEASES",
    "MERGE",
    "NAMESPACES",
    "NETWORK_POLICIES",
    "NODES",
    "NODE_CLAIMS",
    "NODE_GROUPS",
    "PODS",
    "PRIORITY_CLASSES",
    "RESOURCE_FLAVORS",
    "SECRETS",
    "SERVICES",
    "STRATEGIC",
    "VOLUMES",
    "WORKLOADS",
    "WORKLOAD_PRIORITIES",
    "Conflict",
    "Denied",
    "Gone",
    "Invalid",
    "Kube",
    "KubeError",
    "KubeconfigError",
    "NotFound",
    "Object",
    "Objects",
    "Resource",
    "Unreachable",
]
