"""File systems and disks as Kubernetes sees them: volumes that are there before any claim, each for one claim.

    volumes = Volumes(part, "ebb-dev", kubernetes_provider, needs=[*file_system.ready, *add_ons])
    volumes.shared("data", Nfs(server=address, path="/ebb/data"), claim="ebb-data", mount_path="/mnt/data", size_gib=100)

Nothing is provisioned by a driver: so drivers need no rights in the account, and no file system can outlive the stack unseen.
A volume names its claim and has no class, so that no other claim can take it. The kubelet takes two volumes of one CSI handle for
one: every such volume has a handle of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pulumi
from pulumi_kubernetes.core.v1 import (
    CSIPersistentVolumeSourceArgsDict,
    NodeSelectorTermArgsDict,
    PersistentVolume,
    PersistentVolumeSpecArgsDict,
)
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.part import Part
from workloads.cluster import JOBS, SYSTEM, TEAMS, Volume, team_folder

ZONE_LABEL = "topology.kubernetes.io/zone"
SHOWN = "ebb.dev/volume"  # annotation of a claim: what it is in the account
# A claim of a static volume cannot be resized, so what it asks for must never change: it is always 1, and `kubectl get pvc` shows
# the capacity of the volume.
ASKED_GIB = 1


@dataclass(frozen=True, kw_only=True)
class Csi:
    """A volume that a CSI driver mounts."""

    driver: str
    handle: pulumi.Output[str]
    attributes: Mapping[str, pulumi.Input[str]] | None = None
    mount_options: tuple[str, ...] = ()
    fs_type: str | None = None  # of a disk

    @property
    def label(self) -> pulumi.Output[str]:
        return self.handle

    @property
    def spec(self) -> PersistentVolumeSpecArgsDict:
        csi: CSIPersistentVolumeSourceArgsDict = {"driver": self.driver, "volume_handle": self.handle}
        if self.attributes:
            csi["volume_attributes"] = dict(self.attributes)
        if self.fs_type:
            csi["fs_type"] = self.fs_type
        return {"csi": csi}


@dataclass(frozen=True, kw_only=True)
class Nfs:
    """A volume that the kubelet mounts by itself, without a driver."""

    server: pulumi.Output[str]
    path: pulumi.Input[str]
    mount_options: tuple[str, ...] = ()

    @property
    def label(self) -> pulumi.Output[str]:
        return pulumi.Output.concat(self.server, ":", self.path)

    @property
    def spec(self) -> PersistentVolumeSpecArgsDict:
        return {"nfs": {"server": self.server, "path": self.path}}


Source = Csi | Nfs


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The one claim that a volume is for."""

    namespace: str
    name: str
    mount_path: str
    access_mode: str


class Volumes:
    """Makes volumes and says what their claims shall ask for. `needs`: what mounts need, and so goes after them."""

    def __init__(self, part: Part, name: str, provider: KubernetesProvider, needs: Sequence[pulumi.Resource]) -> None:
        self._part, self._name, self._provider, self._needs = part, name, provider, list(needs)

    def shared(
        self, name: str, source: Source, *, claim: str, mount_path: str, size_gib: int, zone: str = "", team: str = ""
    ) -> Volume:
        """One that every machine may mount, for a claim of the jobs, or of a team's. `size_gib` is for people to read. `zone`:
        where it is, if in one alone: machines elsewhere pay for what they read, and read it late."""
        namespace, called = (f"{TEAMS}{team}", f"team-{team}-{name}") if team else (JOBS, name)
        wanted = Claim(namespace=namespace, name=claim, mount_path=mount_path, access_mode="ReadWriteMany")
        return replace(self._volume(called, source, wanted, _spec(source, wanted, size_gib)), name=name, zone=zone)

    def of_teams(
        self, teams: Iterable[str], folder: Callable[[str], Source], sizes: Mapping[str, int], zone: str = ""
    ) -> dict[str, tuple[Volume, ...]]:
        """Data and output of each team, in its folder of the file system. `folder`: such a path, without '/' before it, as a
        source; `sizes`: "data" and "output", in GiB."""
        return {
            team: tuple(
                self.shared(
                    what,
                    folder(team_folder(team, what)),
                    claim=f"ebb-{what}",
                    mount_path=f"/mnt/{what}",
                    size_gib=size,
                    zone=zone,
                    team=team,
                )
                for what, size in sizes.items()
            )
            for team in teams
        }

    def disk(self, name: str, source: Source, *, claim: str, mount_path: str, zone: str, size_gib: int) -> Volume:
        """One that a machine of its zone may mount, for a claim of the platform."""
        wanted = Claim(namespace=SYSTEM, name=claim, mount_path=mount_path, access_mode="ReadWriteOnce")
        in_zone: NodeSelectorTermArgsDict = {"match_expressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}
        spec = _spec(source, wanted, size_gib)
        return self._volume(name, source, wanted, {**spec, "node_affinity": {"required": {"node_selector_terms": [in_zone]}}})

    def _volume(self, name: str, source: Source, claim: Claim, spec: PersistentVolumeSpecArgsDict) -> Volume:
        made = PersistentVolume(
            f"volume-{name}",
            metadata={"name": f"{self._name}-{name}"},
            spec=spec,
            opts=self._part.child(provider=self._provider, depends_on=self._needs),
        )
        return Volume(
            name=name,
            claim=claim.name,
            mount_path=claim.mount_path,
            size_gib=ASKED_GIB,
            access_mode=claim.access_mode,
            storage_class=pulumi.Output.from_input(""),
            volume_name=made.metadata.apply(lambda metadata: str(metadata.name)),
            annotations={SHOWN: source.label},
        )


def _spec(source: Source, claim: Claim, size_gib: int) -> PersistentVolumeSpecArgsDict:
    spec: PersistentVolumeSpecArgsDict = {
        "capacity": {"storage": f"{size_gib}Gi"},
        "access_modes": [claim.access_mode],
        "persistent_volume_reclaim_policy": "Retain",
        "storage_class_name": "",
        "claim_ref": {"api_version": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace, "name": claim.name},
        **source.spec,
    }
    if source.mount_options:
        spec["mount_options"] = list(source.mount_options)
    return spec
