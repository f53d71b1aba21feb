"""Kueue's controller, and what an administrator gives it: machines by flavor, queues, and who lends to whom.

    folder = await tools.ensure(KUEUE)                  # .../kueue, and its kinds
    command = manager(folder, tool, made)               # as of Kueue's release, without its webhooks
    await made.apply(flavor("spot", "spot")); await made.apply(cluster_queue("vision", 4, cohort="all"))

Its webhooks are not installed: they default and check what people write, and conversions between its two versions are not needed
where all speak v1beta2.
"""

import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

from devcluster.tools import Tool
from ebb.api import contract as names
from testing.ports import free_port
from tests.apiserver.plane import Made

Object = dict[str, Any]
API = "kueue.x-k8s.io/v1beta2"
KINDS = tuple(
    f"config/components/crd/bases/kueue.x-k8s.io_{name}.yaml"
    for name in (
        "admissionchecks", "clusterqueues", "cohorts", "localqueues", "multikueueclusters", "multikueueconfigs",
        "provisioningrequestconfigs", "resourceflavors", "topologies", "workloadpriorityclasses", "workloads",
    )
)  # fmt: skip
KUEUE = Tool(
    name="kueue",
    module="sigs.k8s.io/kueue",
    packages=("sigs.k8s.io/kueue/cmd/kueue",),
    programs=("kueue",),
    scripts=KINDS,
    modules=Path(__file__).parent,
)
NAMESPACE = "kueue-system"
CERTIFICATES = "/etc/kueue/metrics/certs"  # the controller has no option for it
FRAMEWORK = f"{names.KIND}.{names.VERSION}.{names.GROUP}"  # owners of pods that Kueue leaves to somebody else


def manager(folder: Path, tool: Path, made: Made) -> list[str | Path]:
    """The command of the controller. In a mount namespace of its own, as its certificates must be below /etc."""
    files = folder / "kueue"
    files.mkdir()
    _certificate(files)
    (files / "config.yaml").write_text(yaml.safe_dump(_configuration(files)))
    words = [
        str(tool / "kueue"),
        f"--config={files}/config.yaml",
        f"--kubeconfig={made.processes.kubeconfig}",
        "--zap-log-level=3",
    ]
    steps = (
        "mount -t tmpfs none /etc",
        f"mkdir -p {CERTIFICATES}",
        f"cp {files}/tls.* {CERTIFICATES}",
        f"exec {shlex.join(words)}",
    )
    return ["unshare", "--mount", "sh", "-c", " && ".join(steps)]


def _configuration(files: Path) -> Object:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": free_port(), "host": "127.0.0.1", "certDir": str(files)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "featureGates": {"VisibilityOnDemand": False},  # it would serve an API of its own, with more certificates
        "waitForPodsReady": {"timeout": "10m", "blockAdmission": False},
        "integrations": {"frameworks": ["batch/job"], "externalFrameworks": [FRAMEWORK]},
    }


def _certificate(files: Path) -> None:
    name = ("-subj", "/CN=kueue", "-keyout", "tls.key", "-out", "tls.crt")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *name], cwd=files, check=True, capture_output=True
    )


def flavor(name: str, **labels: str) -> Object:
    """Machines that have these labels."""
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": labels}}


def cluster_queue(name: str, gpus: int, *, flavor: str, cohort: str = "", borrow: int | None = None) -> Object:
    """A quota of GPUs, of which others of the cohort may borrow what is not used, and which takes it back by preemption."""
    limit = {} if borrow is None else {"borrowingLimit": borrow}
    quota = {"name": flavor, "resources": [{"name": names.GPU_RESOURCE, "nominalQuota": gpus, **limit}]}
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [names.GPU_RESOURCE], "flavors": [quota]}],
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        **({"cohortName": cohort} if cohort else {}),
    }
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def local_queue(namespace: str, name: str, cluster_queue: str) -> Object:
    """The name by which jobs of a namespace reach a ClusterQueue."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": cluster_queue}}


def priority(name: str, value: int) -> Object:
    return {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
