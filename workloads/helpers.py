"""What a cloud needs to have run in the cluster beside what Ebb runs everywhere: nothing, where it brings all that itself."""

from collections.abc import Sequence

import pulumi

from infra.cloud import Cluster, Helpers, NodeGroup
from workloads.autoscaler import autoscaler
from workloads.devices import device_plugin
from workloads.names import Resources


def helpers(cluster: Cluster, record: Helpers, manager: NodeGroup, needs: Sequence[pulumi.Resource]) -> Resources:
    """`needs`: the namespaces, the manager group, the priorities. Jobs depend on all of it."""
    scaling = autoscaler(cluster, record.autoscaler, manager, needs) if record.autoscaler else []
    return [*scaling, *(device_plugin(cluster, plugin, needs) for plugin in record.device_plugins)]
