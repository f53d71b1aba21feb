"""What researchers may do in the cluster: the rules of workloads/manifests/researcher.yaml.

They are for the group `ebb:researchers`. Who is in it says the cloud: an access entry, a certificate's organisation; a cloud that
cannot put people into it names its own groups and people instead (Cluster.researchers). A stack that names nobody has rules
without a subject, which do nothing.
"""

from collections.abc import Sequence

import pulumi

from infra import manifests
from infra.cloud import Cluster
from workloads.names import Resources


def access(cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Resources:
    """The roles and their bindings. `needs`: the namespaces."""
    documents = [_bound(document, cluster.researchers) for document in manifests.read("researcher.yaml")]
    return manifests.declare(documents, cluster.options(depends_on=needs))


def _bound(document: manifests.Document, researchers: Sequence[tuple[str, str]]) -> manifests.Document:
    """A binding with the cloud's researchers in place of the file's group."""
    if "subjects" not in document:
        return document
    api = document["subjects"][0]["apiGroup"]
    return {**document, "subjects": [{"apiGroup": api, "kind": kind, "name": name} for kind, name in researchers]}
