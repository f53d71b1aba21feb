"""Logs of the platform's pods and of workers, kept when pod and machine are gone: Fluent Bit on every machine, where the cloud
does not ship them by itself.

    kept = logs(cluster, destination, Keep(days=30, gib=10), helpers, image, manager, needs)

A line keeps its time, stream, node, namespace, pod and container, and of the pod's labels which program it is, which job and
which worker. It goes where the cloud's Destination says: to the cloud's service, or to files on a volume. What is read, and what
is made of a line, is workloads/manifests/logs/fluent-bit.yaml.

Pods of the platform are in ebb-system and in the jobs' namespaces. Of kube-system, where the agents and device plugins are that
need folders of their machine, Ebb's own are read and no others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import yaml
from pulumi_kubernetes import core

from workloads import manifest
from workloads.cluster import Cluster, Helpers, NodeGroup, Resources, Volume
from workloads.helpers import PLUGIN_NAMESPACE
from workloads.platform import IMAGE
from workloads.storage import claim

FOLDER = manifest.FOLDER / "logs"
NAME: Final = "ebb-logs"  # of the DaemonSet, its account and its ConfigMap
FILES: Final = "ebb-log-files"
CONFIG: Final = "fluent-bit.yaml"
PLACE: Final = "/logs"  # where the volume is
OWN: Final = "ebb-"  # how the names of Ebb's pods in kube-system begin
ROTATE_MIB: Final = 64  # the size of one file; compressed, what is kept of it is a tenth
ROOM_GIB: Final = 1  # of the volume, beside what is kept: files that are written while the oldest wait for their end
# Of a machine's disk, while the output does not take lines; then the oldest go.
WAITING: Final = "256M"


@dataclass(frozen=True, kw_only=True)
class Destination:
    """A place where a cloud keeps logs. `output`: Fluent Bit's, in its own words; None: the cloud ships them by itself, or
    `volume` has them as files. `environment`: of Fluent Bit, which waits for it. `links`: for people, by name."""

    output: Mapping[str, Any] | None = None
    volume: Volume | None = None
    environment: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    links: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Limits of files: days, and GiB of all of them."""

    days: int
    gib: int


def files(volume: Volume) -> Destination:
    """Files on a volume that all machines mount."""
    assert volume.access_mode == "ReadWriteMany", f"{volume.name} is {volume.access_mode}: every machine writes to it"
    read = f"kubectl -n {PLUGIN_NAMESPACE} exec deployment/{FILES} -- sh -c 'zcat -f {PLACE}/*'"
    return Destination(volume=volume, links={"logs": read})


def logs(  # noqa: PLR0917 - as its neighbours
    cluster: Cluster,
    destination: Destination,
    keep: Keep,
    helpers: Helpers,
    image: pulumi.Input[str],
    manager: NodeGroup,
    needs: list[pulumi.Resource],
) -> Resources:
    """Nothing where the cloud ships by itself. `image`: the controller's. `needs`: the namespaces, the manager group."""
    volume = destination.volume
    output = file_output(keep) if volume else destination.output
    if output is None:
        return []
    plugins = [plugin.name for plugin in helpers.device_plugins]
    texts = {CONFIG: configuration(output, plugins)}
    config = core.v1.ConfigMap(
        NAME,
        metadata={"name": NAME, "namespace": PLUGIN_NAMESPACE},
        data=texts,
        opts=cluster.options(depends_on=needs),
    )
    claims = [claim(cluster, volume, PLUGIN_NAMESPACE, needs)] if volume else []
    documents = [_shipper(one, destination, texts) for one in manifest.read("shipper.yaml", FOLDER)]
    made = manifest.declare(documents, cluster.options(depends_on=[*needs, config, *claims]))
    if volume:
        tidying = manifest.placed(manifest.read("files.yaml", FOLDER), {"nodeSelector": manager.node_selector})
        tidying = [_mounting(_keeping(one, keep), volume) for one in tidying]
        made += manifest.declare(tidying, cluster.options(depends_on=[*needs, *claims]), images={IMAGE: image})
    return [config, *claims, *made]


def configuration(output: Mapping[str, Any], plugins: Iterable[str] = ()) -> str:
    """Fluent Bit's file. `plugins`: the names of the DaemonSets in kube-system that hand out devices."""
    written: dict[str, Any] = yaml.safe_load((FOLDER / CONFIG).read_text())
    (tail,) = written["pipeline"]["inputs"]
    ours = [f"/var/log/containers/{name}*_{PLUGIN_NAMESPACE}_*.log" for name in (OWN, *(f"{one}-" for one in plugins))]
    tail["path"] = ",".join([tail["path"], *ours])
    common = {"match": "*", "retry_limit": "no_limits", "storage.total_limit_size": WAITING}
    written["pipeline"]["outputs"] = [{**common, **output}]
    return str(yaml.safe_dump(written, sort_keys=False, width=1000))


def file_output(keep: Keep) -> dict[str, Any]:
    """One file of JSON lines for each machine. A machine by itself keeps no more than all may together."""
    return {
        "name": "file",
        "path": PLACE,
        "file": "${NODE_NAME}.jsonl",
        "format": "plain",
        "rotate": True,
        "rotate_max_size": f"{ROTATE_MIB}M",
        "rotate_max_files": keep.gib * 1024 // ROTATE_MIB,
        "rotate_gzip": True,
    }


def _shipper(document: manifest.Document, destination: Destination, texts: Mapping[str, str]) -> manifest.Document:
    if document["kind"] != "DaemonSet":
        return document
    (container,) = document["spec"]["template"]["spec"]["containers"]
    container["env"] += [{"name": name, "value": value} for name, value in sorted(destination.environment.items())]
    made = manifest.renewed_by(document, texts)
    return _mounting(made, destination.volume) if destination.volume else made


def _keeping(document: manifest.Document, keep: Keep) -> manifest.Document:
    (container,) = document["spec"]["template"]["spec"]["containers"]
    container["command"] += [f"--keep-days={keep.days}", f"--keep-gib={keep.gib}"]
    return document


def _mounting(document: manifest.Document, volume: Volume) -> manifest.Document:
    """The workload, whose container has the volume."""
    pod = document["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container.setdefault("volumeMounts", []).append({"name": "logs", "mountPath": PLACE})
    pod.setdefault("volumes", []).append({"name": "logs", "persistentVolumeClaim": {"claimName": volume.claim}})
    return document
