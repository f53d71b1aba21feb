"""The objects that `up` puts into the cluster: cluster DNS, the NodeGroup kind, and the facts that the Pulumi program reads.

Everything else is the Pulumi program's, or the devcluster's cloud's (storage class, volumes, nodes).
"""

from pathlib import Path
from typing import Any

import yaml

from devcluster.commands import run
from devcluster.images.prepared import ImageSet
from devcluster.settings import CHECKOUT, REGION, ZONES, Box

MANIFESTS = CHECKOUT / "devcluster" / "manifests"
STORAGE_CLASS = "ebb-shared"
TOLD = ("controller", "trainer", "etcd", "etcd-legacy")  # images that the Pulumi program asks for; the last only if it was built
ENVIRONMENT_VOLUME = "ebb-environment"


async def apply(box: Box, kubectl: Path, images: ImageSet) -> None:
    """Server-side apply in one call; changes nothing where nothing changed. Raises CommandError."""
    documents = [*coredns(box, images.references["coredns"]), *_read("nodegroup-crd.yaml"), facts(box, images)]
    apply_as_owner = ["apply", "--server-side", "--force-conflicts", "--field-manager=ebb-box", "--filename=-"]
    # A proxy of the office does not know the devcluster.
    direct = {"NO_PROXY": str(box.network), "no_proxy": str(box.network)}
    await run(kubectl, f"--kubeconfig={box.kubeconfig}", *apply_as_owner, stdin=yaml.safe_dump_all(documents), env=direct)


def facts(box: Box, images: ImageSet) -> dict[str, Any]:
    """The ConfigMap kube-system/ebb-box; schema 1."""
    data = {
        "schema": "1",
        "name": box.name,
        "region": REGION,
        "zones": ",".join(ZONES),
        "storageClass": STORAGE_CLASS,
        "environmentVolume": ENVIRONMENT_VOLUME,
    }
    data |= {f"image.{name}": images.references[name] for name in TOLD if name in images.references}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ebb-box", "namespace": "kube-system"}, "data": data}


def coredns(box: Box, image: str) -> list[dict[str, Any]]:
    documents = _read("coredns.yaml")
    by_kind = {document["kind"]: document for document in documents}
    by_kind["Service"]["spec"]["clusterIP"] = str(box.dns_address)
    by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return documents


def _read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))
