"""ConfigMap `ebb-platform`: all that the CLI and the controller know about the stack (ebb/api/platform.py reads it)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes import core

from infra.cloud import FLEX_START, FLEX_START_SECONDS, Cluster, Images, NodeGroup, Storage
from infra.config.model import DEFAULT_IMAGE
from workloads.names import ETCD_ENDPOINT, JOBS, LEGACY_ETCD_ENDPOINT, SYSTEM

PLATFORM, PLATFORM_SCHEMA = "ebb-platform", "1"


def platform(
    cluster: Cluster, storage: Storage, images: Images, groups: Sequence[NodeGroup], spaces: dict[str, pulumi.Resource]
) -> pulumi.Resource:
    """ConfigMap `ebb-platform`: all that the CLI and the controller know about the stack (ebb/api/platform.py reads it)."""
    facts = {
        "cloud": cluster.name,
        "region": cluster.region,
        "stack": pulumi.get_stack(),
        "trainerImage": images.trainer,
        "jobsNamespace": JOBS,
        "etcdEndpoint": ETCD_ENDPOINT,
        **({"legacyEtcdEndpoint": LEGACY_ETCD_ENDPOINT} if images.legacy_etcd else {}),
        "volumes": [volume.facts() for volume in storage.jobs],
        "nodeGroups": [_group(group, images, cluster) for group in groups],
        "dashboards": {},
    }
    return core.v1.ConfigMap(
        PLATFORM,
        metadata={"name": PLATFORM, "namespace": SYSTEM},
        data={"schema": PLATFORM_SCHEMA, "platform.json": pulumi.Output.json_dumps(facts, indent=1)},
        opts=cluster.options(depends_on=[spaces[SYSTEM]]),
    )


def _group(group: NodeGroup, images: Images, cluster: Cluster) -> Mapping[str, Any]:
    """A group's facts, with its trainer image where that is not the default: GPUs that the default's torch has no code for."""
    own = {} if group.image == DEFAULT_IMAGE else {"trainerImage": images.trainers[group.image]}
    waits = FLEX_START_SECONDS if group.capacity_type == FLEX_START else 0
    return {**group.facts(), **own, "provisionSeconds": cluster.provision_seconds + waits}
