"""The shape that all pods of the platform share: on the manager machine, as nobody, within Pod Security `restricted`.

What a pod runs, and with which volumes, says the service it belongs to.
"""

from collections.abc import Sequence

from pulumi_kubernetes.core.v1 import (
    ContainerArgsDict,
    PodSpecArgsDict,
    SecurityContextArgsDict,
    VolumeArgsDict,
    VolumeMountArgsDict,
)

from workloads.cluster import NOBODY, PLATFORM_PRIORITY, NodeGroup, Volume


def pod(
    container: ContainerArgsDict,
    volumes: Sequence[VolumeArgsDict],
    manager: NodeGroup,
    *,
    restart_policy: str,
    priority: str = PLATFORM_PRIORITY,
) -> PodSpecArgsDict:
    """The spec of a pod of the platform: on the manager machine, as nobody, without a token for the API server."""
    return {
        "containers": [container],
        "volumes": list(volumes),
        "node_selector": manager.node_selector,
        "priority_class_name": priority,
        "automount_service_account_token": False,
        "enable_service_links": False,
        "security_context": {
            "run_as_non_root": True,
            "run_as_user": NOBODY,
            "run_as_group": NOBODY,
            "fs_group": NOBODY,
            "seccomp_profile": {"type": "RuntimeDefault"},
        },
        "restart_policy": restart_policy,
        "termination_grace_period_seconds": 10,
    }


def container_security() -> SecurityContextArgsDict:
    """Settings that Pod Security `restricted` asks of a container, and a root file system that nobody can write."""
    return {
        "allow_privilege_escalation": False,
        "read_only_root_filesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def mount(volume: Volume) -> VolumeMountArgsDict:
    """The place where a container sees one of the jobs' volumes."""
    return {"name": volume.name, "mount_path": volume.mount_path, "read_only": volume.read_only}


def claimed(volume: Volume) -> VolumeArgsDict:
    """One of the jobs' volumes, through its claim."""
    return {"name": volume.name, "persistent_volume_claim": {"claim_name": volume.claim, "read_only": volume.read_only}}
