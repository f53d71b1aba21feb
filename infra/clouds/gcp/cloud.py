"""Google Cloud as infra.cloud.Infrastructure: calls the modules beside it, and keeps what later ones need of earlier."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import pulumi
from pulumi_gcp.provider import Provider as GcpProvider

from infra.clouds.gcp import apis, cluster, images, network, pools, prometheus, storage
from infra.clouds.gcp.cluster import logs as gcp_logs
from infra.clouds.gcp.settings import Settings
from infra.config import Stack
from infra.part import Part
from workloads.cluster import Cluster, Helpers, Images, NodeGroup, RdmaMachines, Storage
from workloads.logs import Destination
from workloads.monitoring import Managed

# A machine with GPUs boots in two to three minutes and installs its driver in one or two; GKE gives a zone up after ten
# (https://docs.cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler). Jobs go elsewhere before.
PROVISION_SECONDS = 480


class Gcp:
    """See infra.cloud.Infrastructure. Every resource uses one provider: its project, its region, its labels."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self._stack, self._settings = stack, settings
        self._name = f"ebb-{pulumi.get_stack()}"
        self._outputs: dict[str, pulumi.Input[Any] | None] = {}

    @property
    def notice_seconds(self) -> int:
        return pools.notice_seconds(self._settings)

    @property
    def _labels(self) -> dict[str, str]:
        """Labels of everything in a stack, so that it can be found and billed."""
        return {"ebb-project": "ebb", "ebb-stack": pulumi.get_stack(), **self._settings.labels}

    @cached_property
    def _provider(self) -> GcpProvider:
        settings = self._settings
        return GcpProvider("gcp", project=settings.project, region=settings.region, default_labels=self._labels)

    @cached_property
    def _apis(self) -> Part:
        made = Part("gcp", "apis", providers=[self._provider])
        apis.declare(made, self._settings, logs=self._stack.logs.ship)
        return made

    @cached_property
    def _network(self) -> network.Network:
        return network.declare(self._part("network"), self._name, self._settings)

    @cached_property
    def _control(self) -> cluster.ControlPlane:
        wanted = self._stack.monitoring
        figures = cluster.Figures(managed=wanted.managed) if wanted.is_on else None
        part, ships = self._part("control-plane"), self._stack.logs.ship
        return cluster.declare(part, self._name, self._settings, self._network, figures=figures, ships_logs=ships)

    @cached_property
    def _machines(self) -> Part:
        return self._part("machines")

    def cluster(self) -> Cluster:
        control, region, project = self._control, self._settings.region, self._settings.project
        console = f"https://console.cloud.google.com/kubernetes/clusters/details/{region}/{self._name}"
        self._outputs |= {
            "kubeconfig": control.kubeconfig,
            "researcherCommand": cluster.command(self._name, self._settings.cluster, region, project),
            "dashboards": {"cluster": f"{console}/details?project={project}", "logs": f"{console}/logs?project={project}"},
        }
        return Cluster(
            name=self._stack.cloud,
            region=region,
            provider=control.kubernetes,
            provision_seconds=PROVISION_SECONDS,
            researchers=control.researchers,
        )

    @cached_property
    def _network_rights(self) -> list[pulumi.Resource]:
        return network.allow_gke(self._machines, self._settings)

    def node_group(self, cluster: Cluster, group: NodeGroup) -> pulumi.Resource:
        rights = self._network_rights if group.network else []
        return pools.declare(self._machines, group, self._control, self._settings, self._labels, rights)

    def add_ons(self, cluster: Cluster, manager: pulumi.Resource) -> Sequence[pulumi.Resource]:
        return []  # GKE runs DNS and the storage drivers, and puts them on the first machine there is

    def images(self, cluster: Cluster) -> Images:
        made = images.declare(self._part("images"), self._name, self._stack, self._settings, self._control.account)
        self._outputs["images"] = {"controller": made.controller, **made.trainers}
        return made

    def storage(self, cluster: Cluster, add_ons: Sequence[pulumi.Resource]) -> Storage:
        made = storage.declare(
            self._part("storage"),
            self._name,
            self._stack,
            self._settings,
            network=self._network,
            kubernetes_provider=cluster.provider,
            add_ons=add_ons,
        )
        self._outputs |= made.commands
        return made

    def helpers(self, cluster: Cluster, groups: Sequence[NodeGroup]) -> Helpers:
        # GKE scales by itself, and its device plugin advertises GPUs.
        fast = [group.name for group in groups if group.network]
        return Helpers(rdma=RdmaMachines(groups=fast) if fast else None)

    def monitoring(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Managed:
        return prometheus.declare(cluster, self._settings.project, self._stack.teams, needs)

    def logs(self, cluster: Cluster, needs: Sequence[pulumi.Resource]) -> Destination:
        return gcp_logs(self._part("logs"), self._name, self._settings, self._stack.logs.keep_days)

    def outputs(self, cluster: Cluster) -> Mapping[str, pulumi.Input[Any]]:
        return {name: value for name, value in self._outputs.items() if value is not None}

    def _part(self, name: str) -> Part:
        return Part("gcp", name, providers=[self._provider], depends_on=[self._apis])
