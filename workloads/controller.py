"""The kind ElasticJob and the program that acts on it, from the files of workloads/manifests."""

from collections.abc import Sequence

import pulumi

from infra import manifests
from infra.cloud import LABEL_NODE_GROUP, Cluster, NodeGroup
from workloads.names import Resources

IMAGE = "ebb-controller"  # what the files say in place of an image


def controller(cluster: Cluster, image: pulumi.Input[str], manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    """The kind ElasticJob and the program that acts on it. `needs`: claims, etcd, ebb-platform, the manager group.

    The CRD depends on the claims for the way down: it takes all jobs along, also those that people submitted, and a claim is gone
    only when no pod holds it any more.
    """
    kind = manifests.declare(manifests.read("crd.yaml"), cluster.options(depends_on=needs))
    rights = manifests.declare(manifests.read("rbac.yaml"), cluster.options(depends_on=needs))
    policy = manifests.declare(manifests.read("policy.yaml"), cluster.options(depends_on=kind))
    program = manifests.declare(
        manifests.placed(manifests.read("controller.yaml"), {"nodeSelector": {LABEL_NODE_GROUP: manager.name}}),
        cluster.options(depends_on=[*needs, *kind, *rights]),
        images={IMAGE: image},
    )
    return [*program, *rights, *policy, *kind]
