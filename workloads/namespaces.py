"""The platform's and the jobs' namespace, with their Pod Security levels, and who goes before whom: files of workloads/manifests.

What may be made in a namespace is in limits.py, who may speak to it in network.py, and who may do what in access.py.
"""

from collections.abc import Sequence

import pulumi

from infra import manifests
from infra.cloud import Cluster


def namespaces(cluster: Cluster, machines: Sequence[pulumi.Resource]) -> dict[str, pulumi.Resource]:
    """The platform's and the jobs' namespace, by name.

    They depend on the machines for the way down: a namespace is gone when its last pod has ended, and for that a pod needs its
    machine.
    """
    return _by_name("namespaces.yaml", cluster.options(depends_on=machines))


def priorities(cluster: Cluster) -> dict[str, pulumi.Resource]:
    """The platform's pods go before jobs, and what jobs cannot do without goes before their elastic rest."""
    return _by_name("priorities.yaml", cluster.options())


def _by_name(file: str, options: pulumi.ResourceOptions) -> dict[str, pulumi.Resource]:
    documents = manifests.read(file)
    names = [document["metadata"]["name"] for document in documents]
    return dict(zip(names, manifests.declare(documents, options), strict=True))
