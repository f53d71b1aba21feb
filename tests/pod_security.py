"""Pod Security `restricted` as a small checker of pod specs, so that unit tests need no API server.

Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/ (baseline and restricted, Linux pods, 1.35).
"""

from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
PROFILES = {"RuntimeDefault", "Localhost"}


def violations(pod: dict[str, Any]) -> list[str]:
    """What `restricted` would refuse; [] for a pod that passes."""
    found = [f"pod.{key}" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    found += [f"volume {volume['name']}" for volume in pod.get("volumes", []) if not set(volume) - {"name"} <= VOLUMES]
    outer = pod.get("securityContext") or {}
    found += [f"pod.{key}" for key in ("sysctls", "windowsOptions", "seLinuxOptions") if outer.get(key)]
    containers = [container for kind in ("containers", "initContainers") for container in pod.get(kind, [])]
    return found + [f"{container['name']}: {fault}" for container in containers for fault in _faults(container, outer)]


def _faults(container: dict[str, Any], outer: dict[str, Any]) -> list[str]:
    own = container.get("securityContext") or {}
    both = outer | own
    capabilities = own.get("capabilities") or {}
    profile = (both.get("seccompProfile") or {}).get("type")
    checks = {
        "privileged": bool(own.get("privileged")),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
        "runAsNonRoot": both.get("runAsNonRoot") is not True,
        "runAsUser": both.get("runAsUser") == 0,
        "seccompProfile": profile not in PROFILES,
        "capabilities.drop": "ALL" not in capabilities.get("drop", []),
        "capabilities.add": not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"},
        "procMount": own.get("procMount", "Default") != "Default",
        "hostPort": any(port.get("hostPort") for port in container.get("ports", [])),
    }
    return [name for name, broken in checks.items() if broken]
