"""Where the platform is: which kubeconfig to take, what ConfigMap `ebb-platform` says, one job by its name.

Order: the one that is given, $EBB_KUBECONFIG, $KUBECONFIG, the box `ebb` of this checkout if it is there, ~/.kube/config.
The only reader of the environment.
"""

import os
from pathlib import Path

from workloads import platform
from workloads.client.errors import Missing, NoPlatform
from workloads.kube import CONFIG_MAPS, ELASTIC_JOBS, ConfigError, Kube, NotFound, Object
from workloads.platform import Platform


def find_kubeconfig(given: str | None = None) -> str | None:
    """The path, or paths, of a kubeconfig that is there; None in a pod: its service account. Raises NoPlatform, ConfigError."""
    found = given or _kubeconfig()
    if found and not any(Path(path).expanduser().is_file() for path in found.split(os.pathsep)):
        raise NoPlatform(
            f"kubeconfig {found!r} is not a file. Set EBB_KUBECONFIG (or --kubeconfig) to the stack's kubeconfig, "
            "or run `make up` for a platform on this machine."
        )
    return found


async def read_platform(kube: Kube) -> Platform:
    """ConfigMap `ebb-platform`. Raises NoPlatform if the cluster has none."""
    try:
        found = await kube.get(CONFIG_MAPS, platform.NAMESPACE, platform.NAME)
    except NotFound as error:
        raise NoPlatform(
            f"no Ebb platform at {kube.server}: {platform.WHERE} is not there. Run `pulumi up` on the stack, "
            "or set EBB_KUBECONFIG to the cluster that has one."
        ) from error
    return platform.parse(found.get("data") or {})


async def read_job(kube: Kube, namespace: str, name: str) -> Object:
    """One ElasticJob. Raises Missing with the names that there are."""
    try:
        return await kube.get(ELASTIC_JOBS, namespace, name)
    except NotFound as error:
        names = sorted(job["metadata"]["name"] for job in await kube.list(ELASTIC_JOBS, namespace))
        known = f"There are: {', '.join(names[:10])}{' and more' if len(names) > 10 else ''}." if names else "There are none."
        raise Missing(f"no job named {name!r} in {namespace}. {known}") from error


def _kubeconfig() -> str | None:
    """The kubeconfig that the environment names, or that of this checkout's box; None leaves it to the client's default."""
    named = os.environ.get("EBB_KUBECONFIG") or os.environ.get("KUBECONFIG")
    if named or "KUBERNETES_SERVICE_HOST" in os.environ:  # in a pod: its service account
        return named
    home = Path(os.environ.get("EBB_HOME") or Path(__file__).parents[2] / ".ebb")
    box = home / "boxes" / "ebb" / "kubeconfig"
    if box.is_file():
        return str(box)
    default = Path("~/.kube/config").expanduser()
    if not default.is_file():
        raise ConfigError(
            f"no kubeconfig: EBB_KUBECONFIG and KUBECONFIG are not set, and neither {box} nor {default} is there. "
            "Set EBB_KUBECONFIG to the stack's kubeconfig, or run `make up` for a platform on this machine."
        )
    return str(default)
