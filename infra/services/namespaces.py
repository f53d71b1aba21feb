"""The platform's and the jobs' namespace, with their Pod Security levels, and who goes before whom.

What may be made in a namespace is in limits.py, who may speak to it in network.py, and who may do what in access.py.
"""

from collections.abc import Sequence

import pulumi
from pulumi_kubernetes import core, scheduling

from infra.cloud import Cluster
from infra.services.names import JOB_PRIORITY, JOBS, PLATFORM_PRIORITY, SYSTEM


def namespaces(cluster: Cluster, machines: Sequence[pulumi.Resource]) -> dict[str, pulumi.Resource]:
    """The platform's and the jobs' namespace.

    They depend on the machines for the way down: a namespace is gone when its last pod has ended, and for that a pod needs its
    machine.
    """
    levels = {SYSTEM: "restricted", JOBS: "baseline"}
    return {
        name: core.v1.Namespace(
            f"namespace-{name}",
            metadata={"name": name, "labels": _pod_security(level)},
            opts=cluster.options(depends_on=machines),
        )
        for name, level in levels.items()
    }


def _pod_security(enforced: str) -> dict[str, str]:
    prefix = "pod-security.kubernetes.io"
    return {f"{prefix}/enforce": enforced, f"{prefix}/warn": "restricted", f"{prefix}/audit": "restricted"}


def priorities(cluster: Cluster) -> dict[str, pulumi.Resource]:
    """The platform's pods go before jobs; jobs have one class, which is what pods get that name none."""
    ours = scheduling.v1.PriorityClass(
        f"priority-{PLATFORM_PRIORITY}",
        metadata={"name": PLATFORM_PRIORITY},
        value=1_000_000,
        description="etcd, the controller and data preparation: jobs cannot run without them.",
        opts=cluster.options(),
    )
    jobs = scheduling.v1.PriorityClass(
        f"priority-{JOB_PRIORITY}",
        metadata={"name": JOB_PRIORITY},
        value=1000,
        global_default=True,
        description="Elastic jobs.",
        opts=cluster.options(),
    )
    return {PLATFORM_PRIORITY: ours, JOB_PRIORITY: jobs}
