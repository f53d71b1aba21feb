"""The interface of a cloud to the rest of the program; the records that pass through it are in workloads/cluster.py.

    Cloud             its settings, machine types and checks, what its account has and costs; imports no SDK until it is asked
    Infrastructure    the resources of one stack on it, which Cloud.make declares

docs/new-cloud.md says how to add one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pulumi

from infra.account.records import Check, Offered, Pattern, Seen, Sheet
from infra.config.model import Stack
from infra.config.section import Problem, Section
from infra.policies.rules import Rule
from workloads.cluster import Cluster, Helpers, Images, InstanceType, NodeGroup, Storage
from workloads.logs import Destination
from workloads.monitoring import Managed


class Infrastructure(Protocol):
    """One stack on a cloud. Each method declares resources and returns at once; none speaks to a cloud by itself."""

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

    def monitoring(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
        """Declare the cloud's own collection of metrics, where Cloud.MANAGED_MONITORING names one. `needs`: the namespaces
        and the manager group."""

    def logs(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Destination:
        """Declare the place where logs are kept, of a stack that ships them: in the service that Cloud.LOG_SERVICE names, or on a
        volume. `needs`: as above."""

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        """Outputs for people, after `up`: how to connect, to mount, where to look."""


class Reclaims(Protocol):
    """Reclaims on request, for rehearsals: a machine is taken back as the cloud does by itself. A module is one."""

    def needed(self, group: str) -> Mapping[str, Any]:
        """Settings of the cloud's section without which no machine of that node group can be reclaimed."""

    def reclaim(self, stack_name: str, stack: Stack, provider_id: str) -> str:
        """Start it, and say what was started. `provider_id`: the Node's. Raises infra.commands.RequestRefused."""


class Cloud(Protocol):
    """One cloud. Its module, infra/clouds/<cloud>, has an instance as `CLOUD`; what a cloud does not have, it leaves out."""

    TYPES: Sequence[InstanceType]  # its machine types, those too of which no node group may be
    CAPACITIES: Sequence[str]  # how machines can be bought (workloads.cluster: SPOT...)
    Settings: type[Section]  # the section of the stack's file that is called like the cloud
    GroupSettings: type[Section] = Section  # the same of a node group
    DIFFERENCES: Mapping[str, str] = {}  # its column of docs/clouds.md: infra.page.ROWS -> a few words
    MANAGED_MONITORING: str = ""  # the cloud's own service for metrics, which `monitoring.managed` takes; "": there is none
    LOG_SERVICE: str = ""  # the cloud's own service for logs, which keeps those of a stack with `logs.ship`; "": a volume does
    PINS: Sequence[Pattern] = ()  # its pinned versions, for `make bump`

    def problems(self, stack: Stack) -> Iterable[Problem]:
        """Settings that do not agree on this cloud."""
        return ()

    def make(self, stack: Stack) -> Infrastructure:
        """The stack on this cloud."""

    def upstream_images(self, stack: Stack, groups: Sequence[NodeGroup]) -> Iterable[str]:
        """Images of others, as `up` names them: those that the stack's own are built from, and those of its pods; without those
        of workloads/manifests. `groups`: the manager's, then those for jobs."""
        return ()

    def preflight(self, stack_name: str, stack: Stack) -> Sequence[Check]:
        """The checks of the account, those first without which the others cannot be made. None: there is no account."""
        return ()

    def leftovers(self, stack_name: str, stack: Stack, say: Callable[[str], None]) -> Seen | None:
        """Leftovers of a destroy in the account; None if there is no account. Raises CannotLook."""
        return None

    def costs(self, stack: Stack, groups: Sequence[NodeGroup]) -> Sheet | None:
        """Costs beside the machines; None where nothing has a price. `groups`: the manager's, then those for jobs."""
        return None

    def spot_prices(self, stack: Stack, types: Sequence[InstanceType]) -> Offered | None:
        """The present ones of these types in the stack's region; None where nothing is sold as spot. Raises RequestRefused."""
        return None

    def reclaims(self) -> Reclaims | None:
        """Reclaims on request; None where the cloud has none."""
        return None

    def rules(self) -> Sequence[Rule]:
        """Rules that the resources of its stacks keep: its part of the policy pack (infra/policies)."""
        return ()

    def pages(self) -> Mapping[Path, Callable[[], str]]:
        """Files of docs/ that are made from its code, with their texts."""
        return {}
