"""The interface of a cloud to the rest of the program; the records that pass through it are in workloads/cluster.py."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pulumi

from workloads.cluster import Cluster, Helpers, Images, NodeGroup, Storage


class Cloud(Protocol):
    """One cloud. Each method declares resources and returns at once; none speaks to a cloud by itself."""

    @property
    def notice_seconds(self) -> int:
        """Seconds between the cloud's warning and the reclaim of a spot machine."""

    def cluster(self) -> Cluster:
        """The cluster with its network, or the connection to one that exists."""

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        """Machines for the cluster. What is returned exists once machines can boot; deleting it removes them all."""

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        """Declare what pods need of the cloud beside machines (DNS, storage drivers), running on the manager machine."""

    def images(self, cluster: Cluster) -> Images:
        """The references of the images."""

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        """The volumes that claims ask for."""

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        """Programs that must run in the cluster for this cloud. `groups`: those for jobs."""

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        """Outputs for people, after `up`: how to connect, to mount, where to look."""
