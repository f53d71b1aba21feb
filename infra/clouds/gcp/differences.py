"""Particulars of Google Cloud, for docs/clouds.md (infra/page.py)."""

from infra.clouds.gcp.checks import OLDEST_FLEX, OLDEST_PREEMPTIBLE
from infra.clouds.gcp.settings import Nodes, Storage

_GRACE, _FILE = Nodes().shutdown_grace_seconds, Storage().filestore
DIFFERENCES = {
    "cluster": "GKE, regional, VPC-native, Dataplane V2, release channel",
    "network": "one subnet for all zones with ranges for pods and services, Cloud NAT",
    "node group": "node pool in one zone",
    "autoscaler": "GKE's own cluster-autoscaler",
    "GPU driver": "installed by GKE, with its device plugin",
    "spot": "spot, or preemptible, for 24 hours; location policy ANY",
    "notice": f"{_GRACE - 15} s for pods of {_GRACE} (15 of 30 before 1.35.0-gke.1171000, and for preemptible)",
    "maximum machine age": f"flex-start {OLDEST_FLEX} h, preemptible {OLDEST_PREEMPTIBLE} h",
    "data and output": f"Filestore {_FILE.tier}, {_FILE.size_gib} GiB, NFS without a driver",
    "fast file system": "Managed Lustre",
    "etcd's disk": "zonal persistent disk, nightly snapshots",
    "images": "Artifact Registry; Cloud Build or local Docker",
    "who reaches the API": "authorized ranges, or the network alone",
    "identities": "Google groups and users, bound by name; IAM role clusterViewer",
    "what a destroy keeps": "Filestore and its network",
    "source of the mocks": "ForceNew of terraform-provider-google",
}
