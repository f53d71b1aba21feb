"""What researchers may do in the cluster: the rules of workloads/manifests/researcher.yaml.

They are for the group `ebb:researchers`. Who is in it says the cloud: an access entry, a group of the directory, a certificate's
organisation. A stack that puts nobody into it has rules without a subject, which do nothing.
"""

from collections.abc import Sequence

import pulumi

from infra import manifests
from infra.cloud import Cluster
from infra.services.names import Resources


def access(cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Resources:
    """The roles and their bindings. `needs`: the namespaces."""
    return manifests.declare(manifests.read("researcher.yaml"), cluster.options(depends_on=needs))
