"""Particulars of Azure, for docs/clouds.md (infra/page.py)."""

from infra.clouds.azure import names
from infra.clouds.azure.settings import KUBERNETES, Autoscaler

DIFFERENCES = {
    "cluster": f"AKS {', '.join(KUBERNETES)}, Azure CNI overlay with Cilium, no local accounts",
    "network": "one subnet for all zones, one NAT gateway; pods in an overlay",
    "node group": f"agent pool in one zone, one VM size, a name of {names.POOL_LENGTH} characters",
    "spot": "Spot pools, eviction policy Delete; AKS's own taint is declared too",
    "notice": "30 s (Scheduled Events), on which AKS drains, as best it can",
    "maximum machine age": "none",
    "autoscaler": f"AKS's own, spot first; it gives a machine {Autoscaler().provision_minutes} minutes to come",
    "GPU driver": "installed by AKS; device plugin by the stack",
    "data and output": "Azure Files over NFS, premium, paid by size; a blob container to read from",
    "etcd's disk": "zonal Premium SSD, without snapshots",
    "images": "ACR; its quick tasks or local Docker",
    "who reaches the API": "authorized ranges, or the network alone",
    "identities": "Entra groups, by object id; tokens by kubelogin",
    "what a destroy keeps": "the share, in a resource group of its own",
    "source of the mocks": "the SDK's classes and enumerations, forceNewMap of pulumi-azure-native, specifications of the API",
}
