"""Kinds of Kubernetes objects and where they live in the API. Names only; client.py speaks to the server."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as its JSON says it."""
Objects = list[Object]


@dataclass(frozen=True)
class Resource:
    """The place of a kind in the API: `Resource("apps", "v1", "deployments", "Deployment")`; group "" is the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection (all namespaces if none is given), of one object, or of its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + scope + "".join(f"/{part}" for part in (self.plural, name, subresource) if part)


PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
ELASTIC_JOBS = Resource("elastic.pytorch.org", "v1alpha1", "elasticjobs", "ElasticJob")
NODE_CLAIMS = Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", namespaced=False)
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
RESOURCE_FLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
WORKLOAD_PRIORITIES = Resource("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False)
NODE_GROUPS = Resource("box.ebb.dev", "v1alpha1", "nodegroups", "NodeGroup", namespaced=False)
