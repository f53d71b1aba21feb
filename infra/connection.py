"""A cluster that exists, by a file with its address and credentials: for clouds whose program does not make one."""

import hashlib
import os
from pathlib import Path

import yaml
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.config import ROOT, ConfigError


def file(key: str, written: str, fix: str) -> Path:
    """The kubeconfig that setting `key` names, relative to the checkout. Raises ConfigError, with `fix`, if it is not there."""
    path = ROOT / os.path.expandvars(str(Path(written).expanduser()))
    if not path.is_file():
        raise ConfigError(f"{key}: there is no file {path}: {fix}")
    return path


def provider(path: Path, context: str | None, *, take_over: bool) -> KubernetesProvider:
    """The connection. `take_over`: objects that exist already become the stack's."""
    return KubernetesProvider(
        "cluster",
        kubeconfig=str(path),
        context=context,
        cluster_identifier=_identifier(path, context),
        enable_config_map_mutable=True,  # ebb-platform is read by name, so it changes in place
        enable_patch_force=True,  # the stack's file wins over hands
        upsert_existing_objects=take_over or None,
    )


def _identifier(path: Path, context: str | None) -> str:
    """Distinguish clusters at one address, e.g. a devcluster made anew: each has its own certificate authority."""
    document = yaml.safe_load(path.read_text())
    wanted = context or document.get("current-context")
    contexts = {one["name"]: one["context"]["cluster"] for one in document.get("contexts") or ()}
    clusters = {one["name"]: one["cluster"] for one in document["clusters"]}
    cluster = clusters.get(contexts.get(wanted), document["clusters"][0]["cluster"])
    authority = str(cluster.get("certificate-authority-data") or "")
    if not authority and cluster.get("certificate-authority"):
        authority = (path.parent / cluster["certificate-authority"]).read_text()
    return hashlib.sha256(f"{cluster['server']}\n{authority}".encode()).hexdigest()[:16]
