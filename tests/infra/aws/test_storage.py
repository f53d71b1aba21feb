"""Storage on AWS: what is made for EFS, for FSx and for both, what Kubernetes mounts, and what goes before what."""

import json
import re
from types import SimpleNamespace
from typing import Any, cast

import pulumi
import pytest
from pulumi_kubernetes import core
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from infra.clouds.aws.control.cluster import ControlPlane
from infra.clouds.aws.data import storage
from infra.clouds.aws.network import Network
from infra.clouds.aws.settings import Settings
from infra.config import Stack
from infra.part import Part
from tests.infra.declared import Declared, declared

NAME = "ebb-dev"
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")
EFS: dict[str, Any] = {"efs": {}}
FSX: dict[str, Any] = {"fsx": {"zone": "us-west-2b", "bucket": "s3://lab/imagenet"}}
BOTH = EFS | FSX
BUCKETLESS: dict[str, Any] = {"fsx": {"zone": "us-west-2b", "deployment": "SCRATCH_2"}, "data": "delete"}
ANSWERS = {"aws:efs/mountTarget:MountTarget": lambda name, inputs: {"dnsName": "fs-1.efs.us-west-2.amazonaws.com"}}


def settings(**section: Any) -> Settings:
    given = {"region": "us-west-2", "cluster": {"publicAccessCidrs": ["192.0.2.0/24"]}, "storage": section}
    return Settings.model_validate(given)


def declare(zones: tuple[str, ...] = ZONES, teams: tuple[str, ...] = (), **section: Any) -> Declared:
    """All that storage declares in an existing network, after two add-ons. What was returned is flattened, for its outputs."""

    def all_of_it() -> dict[str, Any]:
        part = Part("aws", "storage")
        subnets = {zone: pulumi.Output.from_input(f"subnet-{zone}") for zone in zones}
        network = Network(vpc_id=pulumi.Output.from_input("vpc-1"), private=subnets, public={}, part=Part("aws", "network"))
        control = SimpleNamespace(security_group_id=pulumi.Output.from_input("sg-cluster"), name="ebb-dev", ready=[])
        sizes = SimpleNamespace(data_gib=200, output_gib=50)
        stack = SimpleNamespace(manager=SimpleNamespace(zone="us-west-2a"), storage=sizes, teams=teams)
        provider = KubernetesProvider("cluster", kubeconfig="{}")
        driver = core.v1.ConfigMap("driver", opts=pulumi.ResourceOptions(provider=provider))
        made = storage.declare(
            part,
            NAME,
            cast(Stack, stack),
            settings(**section),
            network=network,
            control=cast(ControlPlane, control),
            kubernetes_provider=provider,
            add_ons=[driver],
        )
        volumes = {one.name: {"facts": one.facts(), "binds": one.volume_name, "asks": one.size_gib, "class": one.storage_class,
                              "annotations": dict(one.annotations), "preload": list(one.preload)}
                   for one in (*made.jobs, made.root, made.etcd)}  # fmt: skip
        copies = {team: dict(one.buckets) for team, one in {"": made.copies, **made.team_copies}.items() if one}
        return {"jobs": [one.name for one in made.jobs], "volumes": volumes, "commands": dict(made.commands), "copies": copies}

    return declared(all_of_it, answers=ANSWERS)


def volumes(seen: Declared) -> dict[str, Any]:
    return {one.inputs["metadata"]["name"]: one.inputs["spec"] for one in seen.all("PersistentVolume")}


def mounts(seen: Declared) -> dict[str, tuple[str, str]]:
    """Volume -> handle, and the mount name of Lustre."""
    found = {name: spec["csi"] for name, spec in volumes(seen).items()}
    return {name: (csi["volumeHandle"], csi.get("volumeAttributes", {}).get("mountname", "")) for name, csi in found.items()}


# --- EFS ---------------------------------------------------------------------------------------------------------------------


def test_efs_is_encrypted_elastic_and_kept_by_default() -> None:
    made = declare(**EFS).one("FileSystem")
    assert made.inputs == {"encrypted": True, "throughputMode": "elastic", "tags": {"Name": NAME}}
    assert (made.retain_on_delete, made.protect) == (True, False)


@pytest.mark.parametrize(
    ("data", "kept", "protected"), [("keep", True, False), ("protect", False, True), ("delete", False, False)]
)
def test_what_destroy_does_to_the_file_systems(data: str, kept: bool, protected: bool) -> None:
    seen = declare(**BOTH, data=data)
    efs, fsx = seen.one("FileSystem"), seen.one("LustreFileSystem")
    assert (efs.retain_on_delete, efs.protect) == (kept, protected)
    assert (fsx.retain_on_delete, fsx.protect) == (False, protected)
    others = [one.key for one in seen.resources if one not in (efs, fsx) and (one.retain_on_delete or one.protect)]
    assert others == [], "what is kept beside it would hold the network"


def test_every_zone_has_a_mount_target_in_its_private_subnet() -> None:
    targets = declare(**EFS).all("MountTarget")
    assert {one.name: one.inputs["subnetId"] for one in targets} == {f"{NAME}-{zone}": f"subnet-{zone}" for zone in ZONES}


def test_a_zone_more_changes_nothing_that_is_there() -> None:
    fewer, more = declare(ZONES[:2], **BOTH), declare(ZONES, **BOTH)
    before = {one.key: one.inputs for one in fewer.resources}
    after = {one.key: one.inputs for one in more.resources}
    assert {key: after.get(key) for key in before} == before
    assert [key.rpartition("::")[2] for key in after.keys() - before.keys()] == [f"{NAME}-{ZONES[2]}"]


def test_access_points_are_the_images_users() -> None:
    points = declare(**EFS).named("AccessPoint")
    assert sorted(points) == [f"{NAME}-data", f"{NAME}-output"]
    assert points[f"{NAME}-data"].inputs["posixUser"] == {"uid": 1000, "gid": 1000}
    assert points[f"{NAME}-data"].inputs["rootDirectory"] == {
        "path": "/data",
        "creationInfo": {"ownerUid": 1000, "ownerGid": 1000, "permissions": "0775"},
    }


def test_an_existing_file_system_is_used_and_not_made() -> None:
    seen = declare(efs={"fileSystemId": "fs-0123456789abcdef0"})
    assert seen.all("FileSystem") == []
    users = [*seen.all("MountTarget"), *seen.all("AccessPoint")]
    assert {one.inputs["fileSystemId"] for one in users} == {"fs-0123456789abcdef0"}
    assert mounts(seen)["ebb-dev-efs"][0] == "fs-0123456789abcdef0"


# --- FSx ---------------------------------------------------------------------------------------------------------------------


def test_fsx_is_in_one_zone_and_linked_to_its_bucket() -> None:
    seen = declare(**FSX)
    made, linked = seen.one("LustreFileSystem"), seen.one("DataRepositoryAssociation")
    assert made.inputs["subnetIds"] == "subnet-us-west-2b"
    assert (made.inputs["deploymentType"], made.inputs["perUnitStorageThroughput"], made.inputs["storageCapacity"]) == (
        "PERSISTENT_2", 250, 1200,
    )  # fmt: skip
    assert (made.inputs["fileSystemTypeVersion"], made.inputs["dataCompressionType"]) == ("2.15", "LZ4")
    events = {"events": ["NEW", "CHANGED", "DELETED"]}
    assert linked.inputs == {
        "fileSystemId": f"LustreFileSystem-{NAME}-fsx",
        "fileSystemPath": "/",
        "dataRepositoryPath": "s3://lab/imagenet",
        "batchImportMetaDataOnCreate": True,
        "deleteDataInFilesystem": False,
        "s3": {"autoImportPolicy": events, "autoExportPolicy": events},
        "tags": {"Name": NAME},
    }


@pytest.mark.parametrize(("size", "hours"), [(1200, 3), (2400, 6), (4800, 12), (24000, 24)])
def test_the_import_of_a_full_bucket_has_time(size: int, hours: int) -> None:
    """The provider gives up after 10 minutes. Four million objects took an hour."""
    wanted = {**FSX, "fsx": {**FSX["fsx"], "sizeGiB": size}}
    assert declare(**wanted).one("DataRepositoryAssociation").create_timeout == f"{hours}h"


def test_a_scratch_file_system_names_no_throughput_and_without_a_bucket_there_is_no_link() -> None:
    seen = declare(**BUCKETLESS)
    assert "perUnitStorageThroughput" not in seen.one("LustreFileSystem").inputs
    assert seen.all("DataRepositoryAssociation") == []
    assert "exportFsxBeforeDestroy" not in seen.returned["commands"]


# --- Who may reach them ------------------------------------------------------------------------------------------------------


def rules(seen: Declared, kind: str) -> set[tuple[str, str, int, int]]:
    """(security group, source or target, ports) of all rules of a kind."""
    return {
        (
            one.inputs["securityGroupId"],
            one.inputs.get("referencedSecurityGroupId") or one.inputs.get("cidrIpv4") or one.inputs["cidrIpv6"],
            one.inputs["fromPort"],
            one.inputs["toPort"],
        )
        for one in seen.all(kind)
    }


def test_efs_lets_in_nfs_from_the_machines_and_the_listed_clients_and_nothing_out() -> None:
    seen = declare(**EFS, clients=["10.8.0.0/16", "sg-0123456789abcdef0"])
    own = f"SecurityGroup-{NAME}-efs"
    sources = ("sg-cluster", "10.8.0.0/16", "sg-0123456789abcdef0")
    assert rules(seen, "SecurityGroupIngressRule") == {(own, source, 2049, 2049) for source in sources}
    assert seen.all("SecurityGroupEgressRule") == []
    assert {tuple(one.inputs["securityGroups"]) for one in seen.all("MountTarget")} == {(own,)}


def test_lustre_talks_both_ways_with_its_servers_the_machines_and_the_clients() -> None:
    seen = declare(**FSX, clients=["10.8.0.0/16"])
    own, ports = f"SecurityGroup-{NAME}-fsx", ((988, 988), (1018, 1023))
    both_ways = {(own, other, *pair) for other in (own, "sg-cluster", "10.8.0.0/16") for pair in ports}
    assert rules(seen, "SecurityGroupEgressRule") == both_ways
    assert rules(seen, "SecurityGroupIngressRule") == both_ways | {("sg-cluster", own, *pair) for pair in ports}


def test_a_client_more_changes_no_other_rule() -> None:
    fewer, more = declare(**BOTH, clients=["10.8.0.0/16"]), declare(**BOTH, clients=["10.7.0.0/16", "10.8.0.0/16"])
    before = {one.key: one.inputs for one in fewer.resources}
    assert {one.key: one.inputs for one in more.resources if one.key in before} == before


# --- What Kubernetes sees ----------------------------------------------------------------------------------------------------

MOUNTED = EFS | {"buckets": [{"name": "imagenet", "url": "s3://our-data"}]}
SECTIONS = [pytest.param(EFS, id="efs"), pytest.param(FSX, id="fsx"), pytest.param(BOTH, id="both")]


def test_on_efs_data_and_output_are_access_points_beside_the_root() -> None:
    assert mounts(declare(**EFS)) == {
        "ebb-dev-data": (f"FileSystem-{NAME}-efs::AccessPoint-{NAME}-data", ""),
        "ebb-dev-output": (f"FileSystem-{NAME}-efs::AccessPoint-{NAME}-output", ""),
        "ebb-dev-efs": (f"FileSystem-{NAME}-efs", ""),
        "ebb-dev-etcd": (f"Volume-{NAME}-etcd", ""),
    }


def test_a_team_has_folders_of_its_own() -> None:
    """On EFS by access points: no path leads out of one."""
    seen = declare(teams=("vision",), **EFS)
    points = {one.name: one.inputs["rootDirectory"]["path"] for one in seen.all("AccessPoint")}
    assert points[f"{NAME}-teams-vision-data"] == "/teams/vision/data"
    assert mounts(seen)["ebb-dev-team-vision-output"] == (f"FileSystem-{NAME}-efs::AccessPoint-{NAME}-teams-vision-output", "")
    reference = volumes(seen)["ebb-dev-team-vision-data"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("ebb-team-vision", "ebb-data")
    on_lustre = mounts(declare(teams=("vision",), **FSX))["ebb-dev-team-vision-data"]
    assert on_lustre == (f"LustreFileSystem-{NAME}-fsx/teams/vision/data", "abcdefgh/teams/vision/data")


@pytest.mark.parametrize(("section", "linked"), [pytest.param(FSX, "data", id="fsx"), pytest.param(BOTH, "fsx", id="both")])
def test_the_folders_to_load_are_those_of_the_volume_that_shows_the_bucket(section: dict[str, Any], linked: str) -> None:
    seen = declare(**{**section, "fsx": {**section["fsx"], "preload": ["ILSVRC/train"]}})
    found = {name: one["preload"] for name, one in seen.returned["volumes"].items() if one["preload"]}
    assert found == {linked: ["ILSVRC/train"]}
    assert not any(one["preload"] for one in declare(**section).returned["volumes"].values())


def test_on_fsx_alone_they_are_folders_of_the_root() -> None:
    lustre = f"LustreFileSystem-{NAME}-fsx"
    seen = declare(**FSX)
    assert mounts(seen) == {
        "ebb-dev-data": (f"{lustre}/data", "abcdefgh/data"),
        "ebb-dev-output": (f"{lustre}/output", "abcdefgh/output"),
        "ebb-dev-efs": (lustre, "abcdefgh"),
        "ebb-dev-etcd": (f"Volume-{NAME}-etcd", ""),
    }
    assert volumes(seen)["ebb-dev-data"]["mountOptions"] == ["flock"]
    assert {seen.returned["volumes"][name]["facts"]["zone"] for name in ("data", "output")} == {"us-west-2b"}


def test_with_both_efs_has_data_and_output_and_fsx_is_a_third_volume() -> None:
    seen = declare(**BOTH)
    assert seen.returned["jobs"] == ["data", "output", "fsx"]
    assert mounts(seen)["ebb-dev-fsx"] == (f"LustreFileSystem-{NAME}-fsx", "abcdefgh")
    assert "::" in mounts(seen)["ebb-dev-data"][0]
    facts = {"name": "fsx", "claim": "ebb-fsx", "mountPath": "/mnt/fsx", "readOnly": False, "zone": "us-west-2b"}
    assert seen.returned["volumes"]["fsx"]["facts"] == facts


BUCKETS = [{"name": "imagenet", "url": "s3://our-data/imagenet/train"}, {"name": "whole", "url": "s3://our-data"}]


def test_a_bucket_is_a_read_only_volume_of_its_own_that_every_job_has() -> None:
    seen = declare(**EFS, buckets=BUCKETS)
    assert seen.returned["jobs"] == ["data", "output", "imagenet", "whole"]
    facts = {"name": "imagenet", "claim": "ebb-imagenet", "mountPath": "/mnt/imagenet", "readOnly": True}
    assert seen.returned["volumes"]["imagenet"]["facts"] == facts
    folder, whole = (volumes(seen)[f"ebb-dev-{name}"] for name in ("imagenet", "whole"))
    assert folder["csi"]["driver"] == "s3.csi.aws.com"
    assert folder["csi"]["volumeAttributes"] == whole["csi"]["volumeAttributes"] == {"bucketName": "our-data"}
    assert folder["csi"]["volumeHandle"] != whole["csi"]["volumeHandle"], "the kubelet takes equal ones for one volume"
    assert folder["mountOptions"] == ["read-only", "allow-other", "prefix imagenet/train/"]
    assert whole["mountOptions"] == ["read-only", "allow-other"]


def test_a_bucket_that_is_copied_is_no_volume() -> None:
    seen = declare(**EFS, buckets=[{"name": "words", "url": "s3://our-data/words", "mode": "copy"}])
    assert seen.returned["jobs"] == ["data", "output"]
    link = seen.one("PodIdentityAssociation", "ebb-copy").inputs
    assert (link["namespace"], link["serviceAccount"]) == ("elastic-job", "ebb-copy")
    assert not declare(**EFS).all("PodIdentityAssociation")


def test_a_team_reads_its_buckets_as_itself() -> None:
    theirs = {"name": "scans", "url": "s3://scans/a", "mode": "copy", "teams": ["vision"]}
    seen = declare(**EFS, teams=("vision",), buckets=[{"name": "words", "url": "s3://our-data/words", "mode": "copy"}, theirs])
    links = {name: seen.one("PodIdentityAssociation", name).inputs for name in ("ebb-copy", "ebb-copy-vision")}
    assert {name: (one["namespace"], one["serviceAccount"]) for name, one in links.items()} == {
        "ebb-copy": ("elastic-job", "ebb-copy"),
        "ebb-copy-vision": ("ebb-team-vision", "ebb-copy"),
    }
    for suffix, place, reads in (("", "elastic-job", "our-data/words"), ("-vision", "ebb-team-vision", "scans/a")):
        role = seen.one("aws:iam/role:Role", f"{NAME}-s3-copy{suffix}").inputs
        (trusted,) = json.loads(role["assumeRolePolicy"])["Statement"]
        assert trusted["Condition"]["StringEquals"]["aws:RequestTag/kubernetes-namespace"] == place
        policy = seen.one("aws:iam/rolePolicy:RolePolicy", f"{NAME}-s3-copy{suffix}").inputs["policy"]
        assert json.loads(policy)["Statement"][1]["Resource"] == [f"arn:aws:s3:::{reads}/*"]
    assert seen.returned["copies"] == {"": {"words": "s3://our-data/words"}, "vision": {"scans": "s3://scans/a"}}
    assert declare(**EFS, teams=("vision",), buckets=[theirs]).returned["copies"] == {"vision": {"scans": "s3://scans/a"}}


@pytest.mark.parametrize("section", SECTIONS)
def test_jobs_find_the_same_claims_and_paths_on_every_file_system(section: dict[str, Any]) -> None:
    made = declare(**section).returned["volumes"]
    places = {name: (one["facts"]["claim"], one["facts"]["mountPath"]) for name, one in made.items() if name != "fsx"}
    assert places == {
        "data": ("ebb-data", "/mnt/data"),
        "output": ("ebb-output", "/mnt/output"),
        "efs": ("efs-claim", "/mnt/efs"),
        "etcd": ("etcd-data", "/var/lib/etcd"),
    }


@pytest.mark.parametrize("section", [*SECTIONS, pytest.param(MOUNTED, id="bucket")])
def test_every_volume_is_static_keeps_its_data_and_is_for_one_claim(section: dict[str, Any]) -> None:
    seen = declare(**section)
    made = seen.returned["volumes"]
    for name, one in made.items():
        spec = volumes(seen)[one["binds"]]
        assert (spec["storageClassName"], one["class"], spec["persistentVolumeReclaimPolicy"]) == ("", "", "Retain")
        namespace = "ebb-system" if name == "etcd" else "elastic-job"
        claim = one["facts"]["claim"]
        assert spec["claimRef"] == {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim}
        assert one["annotations"] == {"ebb.dev/volume": spec["csi"]["volumeHandle"]}
    assert len({spec["csi"]["volumeHandle"] for spec in volumes(seen).values()}) == len(made)


def test_sizes_change_no_claim() -> None:
    one, other = declare(**EFS, etcdGiB=10), declare(**EFS, etcdGiB=20)
    assert one.returned["volumes"] == other.returned["volumes"]
    assert volumes(other)["ebb-dev-etcd"]["capacity"] == {"storage": "20Gi"}
    assert {made["asks"] for made in one.returned["volumes"].values()} == {1}


# --- etcd's disk -------------------------------------------------------------------------------------------------------------


def test_etcds_disk_is_encrypted_and_where_the_manager_is() -> None:
    seen = declare(**EFS, etcdGiB=12)
    disk = seen.one("Volume")
    assert disk.inputs == {
        "availabilityZone": "us-west-2a",
        "type": "gp3",
        "size": 12,
        "encrypted": True,
        "tags": {"Name": "ebb-dev-etcd", "ebb.dev/volume": "etcd", "ebb.dev/backup": NAME},
    }
    spec = volumes(seen)["ebb-dev-etcd"]
    assert (spec["accessModes"], spec["csi"]["fsType"]) == (["ReadWriteOnce"], "ext4")
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-west-2a"]}]}


def test_every_night_a_snapshot_of_this_stacks_disk_alone() -> None:
    seen = declare(**EFS)
    details = seen.one("LifecyclePolicy").inputs["policyDetails"]
    tags = seen.one("Volume").inputs["tags"]
    assert details["targetTags"] == {"ebb.dev/backup": NAME}, (
        "a policy takes disks with any of its tags, those of other stacks too"
    )
    assert details["targetTags"].items() <= tags.items()
    (schedule,) = details["schedules"]
    assert schedule["createRule"] == {"interval": 24, "intervalUnit": "HOURS", "times": "03:17"}
    assert (schedule["retainRule"], schedule["copyTags"]) == ({"count": 7}, True)
    assert re.fullmatch(r"[0-9A-Za-z _-]+", seen.one("LifecyclePolicy").inputs["description"])  # botocore: PolicyDescription


# --- Order and commands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", SECTIONS)
def test_volumes_go_before_what_mounts_need_and_that_before_the_file_systems(section: dict[str, Any]) -> None:
    seen = declare(**section)
    needed = [one.key for kind in ("MountTarget", "AccessPoint", "LustreFileSystem", "DataRepositoryAssociation", "ConfigMap")
              for one in seen.all(kind)]  # fmt: skip
    for volume in seen.all("PersistentVolume"):
        assert set(needed) <= seen.before(volume), volume.name
    for kind in ("MountTarget", "AccessPoint"):
        for one in seen.all(kind):
            assert seen.one("FileSystem").key in seen.before(one)


def test_rules_are_there_before_a_file_system_tries_its_ports_and_go_after_its_mounts() -> None:
    seen = declare(**BOTH)
    every = {one.key for kind in ("SecurityGroupIngressRule", "SecurityGroupEgressRule") for one in seen.all(kind)}
    lustre = {key for key in every if "fsx" in key}
    assert lustre <= seen.before(seen.one("LustreFileSystem"))
    assert every - lustre <= seen.before(seen.all("MountTarget")[0])


def test_commands_to_mount_efs() -> None:
    assert declare(**EFS).returned["commands"] == {
        "mountData": "sudo mkdir -p /mnt/data && sudo mount -t efs -o tls,accesspoint=AccessPoint-ebb-dev-data "
        "FileSystem-ebb-dev-efs:/ /mnt/data",
        "mountOutput": "sudo mkdir -p /mnt/output && sudo mount -t efs -o tls,accesspoint=AccessPoint-ebb-dev-output "
        "FileSystem-ebb-dev-efs:/ /mnt/output",
        "mountAllByNfs": "sudo mkdir -p /mnt/efs && sudo mount -t nfs4 -o nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,"
        "retrans=2,noresvport fs-1.efs.us-west-2.amazonaws.com:/ /mnt/efs",
    }


def test_commands_to_mount_lustre_and_to_export_it() -> None:
    server = "fs-ebb-dev-fsx.fsx.us-west-2.amazonaws.com@tcp:/abcdefgh"
    lustre = "sudo mount -t lustre -o relatime,flock"
    export = (
        "aws fsx create-data-repository-task --type EXPORT_TO_REPOSITORY --report Enabled=false "
        "--file-system-id LustreFileSystem-ebb-dev-fsx"
    )
    assert declare(**FSX).returned["commands"] == {
        "mountData": f"sudo mkdir -p /mnt/data && {lustre} {server}/data /mnt/data",
        "mountOutput": f"sudo mkdir -p /mnt/output && {lustre} {server}/output /mnt/output",
        "exportFsxBeforeDestroy": export,
    }
    both = declare(**BOTH).returned["commands"]
    assert both["mountFsx"] == f"sudo mkdir -p /mnt/fsx && {lustre} {server} /mnt/fsx"
    assert both["mountData"].startswith("sudo mkdir -p /mnt/data && sudo mount -t efs ")
