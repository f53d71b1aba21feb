"""What the stack declares on Google Cloud: network, cluster, node pools, storage, images, and who may do what."""

import json
from typing import Any

import pytest

from infra.clouds.gcp.cluster import account_id
from tests.infra.declared import Declared, Registered
from tests.infra.gcp import stacks
from tests.infra.gcp.stacks import facts, outputs, usual, world

SPOT, ON_DEMAND = "spot-t4-us-central1-a", "on-demand-t4-us-central1-a"
EXISTING = {"name": "theirs", "subnet": "sub", "podsRange": "pods-of-theirs", "servicesRange": "services-of-theirs"}


def pool(made: Declared, name: str) -> dict[str, Any]:
    return made.one("NodePool", name).inputs


# ---------------------------------------------------------------------------------------------------------------- network


def test_machines_reach_out_by_nat_and_google_without_it() -> None:
    subnet, nat = usual().one("Subnetwork").inputs, usual().one("RouterNat").inputs
    assert subnet["privateIpGoogleAccess"] is True
    assert [one["rangeName"] for one in subnet["secondaryIpRanges"]] == ["pods", "services"]
    assert nat["natIpAllocateOption"] == "AUTO_ONLY"
    assert (nat["enableDynamicPortAllocation"], nat["enableEndpointIndependentMapping"]) == (True, False)


def test_in_an_existing_network_nothing_is_made() -> None:
    made = world({"gcp.network": EXISTING})
    made_there = {one.type.partition(":")[2].partition("/")[2] for one in made.resources if one.type.startswith("gcp:compute/")}
    assert made_there == {
        "disk:Disk",
        "resourcePolicy:ResourcePolicy",
        "diskResourcePolicyAttachment:DiskResourcePolicyAttachment",
    }
    cluster = made.one("Cluster").inputs
    assert cluster["network"] == "projects/my-project-123/global/networks/theirs"
    assert cluster["subnetwork"] == "projects/my-project-123/regions/us-central1/subnetworks/sub"
    assert cluster["ipAllocationPolicy"] == {
        "clusterSecondaryRangeName": "pods-of-theirs", "servicesSecondaryRangeName": "services-of-theirs"
    }  # fmt: skip
    assert "nfsExportOptions" not in made.one("gcp:filestore/instance:Instance").inputs["fileShares"]


# ---------------------------------------------------------------------------------------------------------------- cluster


def test_the_cluster_is_private_and_only_named_ranges_reach_it() -> None:
    cluster = usual().one("Cluster").inputs
    assert cluster["privateClusterConfig"] == {"enablePrivateNodes": True, "enablePrivateEndpoint": False}
    allowed = cluster["masterAuthorizedNetworksConfig"]
    assert [one["cidrBlock"] for one in allowed["cidrBlocks"]] == ["198.51.100.0/24"]
    assert allowed["gcpPublicCidrsAccessEnabled"] is False
    assert cluster["controlPlaneEndpointsConfig"] == {"dnsEndpointConfig": {"allowExternalTraffic": False}}
    assert (cluster["datapathProvider"], cluster["networkingMode"]) == ("ADVANCED_DATAPATH", "VPC_NATIVE")
    assert cluster["workloadIdentityConfig"] == {"workloadPool": "my-project-123.svc.id.goog"}
    assert cluster["releaseChannel"] == {"channel": "REGULAR"}


def test_the_clusters_zones_are_left_alone() -> None:
    """To change them would make and remove machines in every node pool."""
    assert "nodeLocations" not in usual().one("Cluster").inputs


def test_a_kubeconfig_holds_no_secret() -> None:
    config = json.loads(outputs()["kubeconfig"])
    assert config["clusters"][0]["cluster"] == {"server": "https://192.0.2.10", "certificate-authority-data": "Q0E="}
    assert set(config["users"][0]["user"]) == {"exec"}
    assert config["users"][0]["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"


def test_researchers_may_find_the_cluster_and_are_bound_by_their_own_names() -> None:
    roles = {(one.inputs["role"], one.inputs["member"]) for one in usual().all("IAMMember")}
    assert ("roles/container.clusterViewer", "group:research@example.org") in roles
    assert ("roles/container.admin", "group:platform@example.org") in roles
    bound = [one.inputs["subjects"] for one in usual().resources if one.kind in ("RoleBinding", "ClusterRoleBinding")]
    researchers = [one for one in bound if one[0]["kind"] != "ServiceAccount"]
    assert len(researchers) == 3
    assert all(
        one == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "research@example.org"}] for one in researchers
    )
    command = "gcloud container clusters get-credentials ebb-gcp --region us-central1 --project my-project-123"
    assert outputs()["researcherCommand"] == command


def test_a_person_is_a_user_and_needs_no_group() -> None:
    made = world({"gcp.cluster.researchers": ["user:a@example.org"], "gcp.cluster.securityGroup": None})
    assert "authenticatorGroupsConfig" not in made.one("Cluster").inputs
    assert made.one("RoleBinding", "role-binding-ebb-researcher").inputs["subjects"][0]["kind"] == "User"


def test_machines_have_an_identity_of_their_own_with_one_role() -> None:
    account = "serviceAccount:ebb-gcp-machine@my-project-123.iam.gserviceaccount.com"
    rights = [one.inputs["role"] for one in usual().resources if one.inputs.get("member") == account]
    assert sorted(rights) == ["roles/artifactregistry.reader", "roles/container.defaultNodeServiceAccount"]
    for one in usual().all("NodePool"):
        assert one.inputs["nodeConfig"]["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
        assert one.inputs["nodeConfig"]["serviceAccount"] in account


def test_a_long_stack_has_accounts_with_names_that_google_takes() -> None:
    assert account_id("ebb-gcp", "machine") == "ebb-gcp-machine"
    long = [account_id(f"ebb-{'a' * 23}{end}", "machine") for end in "xy"]
    assert [len(one) for one in long] == [30, 30]
    assert long[0] != long[1]


# ------------------------------------------------------------------------------------------------------------ node pools


def test_a_group_is_a_pool_in_one_zone_from_zero() -> None:
    zones = {one.name: one.inputs["nodeLocations"] for one in usual().all("NodePool")}
    assert zones == {
        "manager": ["us-central1-a"],
        **{f"spot-t4-us-central1-{letter}": [f"us-central1-{letter}"] for letter in "abc"},
        ON_DEMAND: ["us-central1-a"],
    }
    found = pool(usual(), SPOT)
    assert found["autoscaling"] == {"minNodeCount": 0, "maxNodeCount": 8, "locationPolicy": "ANY"}
    assert (found["initialNodeCount"], "nodeCount" in found) == (0, False)
    assert (pool(usual(), "manager")["nodeCount"], "autoscaling" in pool(usual(), "manager")) == (1, False)


def test_a_pool_carries_what_the_facts_tell() -> None:
    told = facts()
    for name, entry in told.items():
        node = pool(usual(), name)["nodeConfig"]
        assert node["labels"] == entry["labels"]
        effects = {"NO_SCHEDULE": "NoSchedule"}
        assert [{**taint, "effect": effects[taint["effect"]]} for taint in node["taints"]] == entry["taints"]
        assert node["guestAccelerators"][0]["count"] == entry["gpusPerNode"]
        assert pool(usual(), name)["autoscaling"]["maxNodeCount"] == entry["max"]


def test_only_spot_machines_are_spot_and_hold_up_their_shutdown() -> None:
    spot, always = pool(usual(), SPOT)["nodeConfig"], pool(usual(), ON_DEMAND)["nodeConfig"]
    assert spot["spot"] is True
    assert spot["kubeletConfig"] == {"shutdownGracePeriodSeconds": 120, "shutdownGracePeriodCriticalPodsSeconds": 15}
    assert ("spot" in always, "kubeletConfig" in always) == (False, False)
    assert {name: entry["noticeSeconds"] for name, entry in facts().items() if name in (SPOT, ON_DEMAND)} == {
        SPOT: 105,
        ON_DEMAND: 0,
    }


def test_an_older_cluster_leaves_pods_fifteen_seconds() -> None:
    changes = {"gcp.cluster.minVersion": "1.34", "gcp.nodes.shutdownGraceSeconds": 30}
    assert facts(changes)[SPOT]["noticeSeconds"] == 15
    assert "kubeletConfig" not in pool(world(changes), SPOT)["nodeConfig"]


@pytest.mark.parametrize(
    ("gpu", "image", "driver"),
    [("T4", "default", "LATEST"), ("L4", "default", "LATEST"), ("H100", "default", "LATEST"), ("V100", "old", "DEFAULT")],
)
def test_drivers_are_installed_that_know_the_gpu(gpu: str, image: str, driver: str) -> None:
    line = {"gpu": gpu, "max": 1, "zones": ["us-central1-a"], "name": "one", "image": image}
    made = world({"nodeGroups": [line], "trainers": {"old": {"cuda": "12.6"}}})
    accelerator = pool(made, "one-us-central1-a")["nodeConfig"]["guestAccelerators"]
    assert accelerator[0]["gpuDriverInstallationConfig"] == {"gpuDriverVersion": driver}


def test_flex_start_machines_are_kept_as_long_as_the_facts_say() -> None:
    line = {"gpu": "H100", "capacity": "flex-start", "maxAgeHours": 48, "max": 2, "zones": ["us-central1-a"]}
    made, name = world({"nodeGroups": [line]}), "flex-start-h100-us-central1-a"
    node = pool(made, name)["nodeConfig"]
    assert (node["flexStart"], node["maxRunDuration"]) == (True, "172800s")
    assert node["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert node["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 2}
    assert pool(made, name)["management"]["autoRepair"] is False
    told = facts({"nodeGroups": [line]})[name]
    assert (told["maxAgeSeconds"], told["capacityType"], [one["key"] for one in told["taints"]]) == (
        172800, "flex-start", ["nvidia.com/gpu"]
    )  # fmt: skip


def test_preemptible_machines_are_left_before_a_day() -> None:
    line = {"gpu": "T4", "maxAgeHours": 23.5, "max": 2, "zones": ["us-central1-a"], "gcp": {"preemptible": True}}
    node = pool(world({"nodeGroups": [line]}), SPOT)["nodeConfig"]
    assert (node["preemptible"], "spot" in node, node["labels"]["ebb.dev/capacity-type"]) == (True, False, "spot")
    assert facts({"nodeGroups": [line]})[SPOT]["maxAgeSeconds"] == 84600
    assert "maxAgeSeconds" not in facts()[SPOT]


def test_machines_are_placed_together_where_the_stack_says_so() -> None:
    line = {"gpu": "A100", "max": 2, "zones": ["us-central1-a"], "gcp": {"compactPlacement": True}}
    assert pool(world({"nodeGroups": [line]}), "spot-a100-us-central1-a")["placementPolicy"] == {"type": "COMPACT"}
    assert "placementPolicy" not in pool(usual(), SPOT)


def test_a_changed_min_is_not_another_pool() -> None:
    assert {one.ignore_changes for one in usual().all("NodePool")} == {("initialNodeCount",)}


# --------------------------------------------------------------------------------------------------------------- storage


def volumes(made: Declared) -> dict[str, Any]:
    return {one.name: one.inputs["spec"] for one in made.all("PersistentVolume")}


def test_data_and_output_are_folders_of_the_share_that_the_platform_prepares() -> None:
    found = volumes(usual())
    assert {name: spec.get("nfs") for name, spec in found.items()} == {
        "volume-data": {"server": "10.0.0.2", "path": "/ebb/data"},
        "volume-output": {"server": "10.0.0.2", "path": "/ebb/output"},
        "volume-efs": {"server": "10.0.0.2", "path": "/ebb"},
        "volume-etcd": None,
    }
    prepare = usual().one("Job", "prepare-storage").inputs["spec"]["template"]["spec"]["containers"][0]
    assert prepare["command"][-2:] == ["/mnt/efs/data", "/mnt/efs/output"]
    assert "--owner=1000" in prepare["command"]


def test_only_the_subnet_and_the_clients_may_mount() -> None:
    made = world({"gcp.storage.clients": ["10.20.0.0/16"]})
    [rule] = made.one("gcp:filestore/instance:Instance").inputs["fileShares"]["nfsExportOptions"]
    assert rule == {"ipRanges": ["10.64.0.0/20", "10.20.0.0/16"], "accessMode": "READ_WRITE", "squashMode": "NO_ROOT_SQUASH"}


def test_a_researcher_is_told_how_to_mount() -> None:
    assert outputs()["mountData"].endswith(" 10.0.0.2:/ebb/data /mnt/data")
    assert outputs()["mountOutput"].startswith("sudo mkdir -p /mnt/output && sudo mount -t nfs ")


@pytest.mark.parametrize(
    ("data", "kept", "protected"), [("keep", True, False), ("protect", False, True), ("delete", False, False)]
)
def test_what_destroy_does_to_the_data(data: str, kept: bool, protected: bool) -> None:
    """The network stays with a file system that stays on it."""
    made = world({"gcp.storage.data": data})
    file, network = made.one("gcp:filestore/instance:Instance"), made.one("Network", "ebb-gcp")
    assert (file.retain_on_delete, file.protect, network.retain_on_delete) == (kept, protected, kept)
    others: list[Registered] = [one for one in made.resources if one not in (file, network)]
    assert not [one.key for one in others if one.retain_on_delete or one.protect]


def test_an_existing_file_system_is_mounted_and_no_other_made() -> None:
    made = world({"gcp.network": EXISTING, "gcp.storage.filestore": {"address": "10.9.0.2", "share": "old"}})
    assert not made.all("gcp:filestore/instance:Instance")
    assert volumes(made)["volume-data"]["nfs"] == {"server": "10.9.0.2", "path": "/old/data"}


def test_etcd_has_a_disk_in_the_managers_zone_with_snapshots() -> None:
    spec, disk = volumes(usual())["volume-etcd"], usual().one("Disk").inputs
    assert spec["csi"]["volumeHandle"] == "projects/my-project-123/zones/us-central1-a/disks/ebb-gcp-etcd"
    term = spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert (term["values"], disk["zone"]) == (["us-central1-a"], "us-central1-a")
    assert usual().one("DiskResourcePolicyAttachment").inputs["disk"] == "ebb-gcp-etcd"


def test_lustre_is_a_third_volume_in_its_zone() -> None:
    made = world({"gcp.storage.lustre": {"zone": "us-central1-b"}})
    csi = volumes(made)["volume-lustre"]["csi"]
    assert csi["volumeAttributes"] == {"ip": "10.1.0.2", "filesystem": "ebb"}
    assert csi["volumeHandle"] == "my-project-123/us-central1-b/ebb-gcp-lustre"
    assert made.one("Cluster").inputs["addonsConfig"]["lustreCsiDriverConfig"] == {"enabled": True}
    told = json.loads(made.one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])
    assert {"name": "lustre", "zone": "us-central1-b"}.items() <= told["volumes"][2].items()
    assert outputs({"gcp.storage.lustre": {"zone": "us-central1-b"}})["mountLustre"].endswith("10.1.0.2@tcp:/ebb /mnt/lustre")


# ---------------------------------------------------------------------------------------------------------------- images


def test_images_are_built_in_the_project_and_named_by_digest() -> None:
    builds = {one.name: one.inputs for one in usual().all("Command")}
    assert set(builds) == {"image-controller", "image-default"}
    assert " --source " in builds["image-default"]["create"]
    assert builds["image-default"]["triggers"][0].startswith("default.")
    controller = usual().one("Deployment").inputs["spec"]["template"]["spec"]["containers"][0]["image"]
    assert controller == f"us-central1-docker.pkg.dev/my-project-123/ebb-gcp/controller@sha256:{'a' * 64}"


def test_images_by_this_machines_docker_or_by_name() -> None:
    made = world({"gcp.images": {"build": "docker"}})
    assert {one.name for one in made.all("docker-build:index:Image")} == {"image-controller", "image-default"}
    assert not made.all("Command")
    named = world({"gcp.images": {"build": "none", "controller": "c:1", "trainers": {"default": "t:1"}}})
    assert not named.all("gcp:artifactregistry/repository:Repository")
    assert json.loads(named.one("ConfigMap", "ebb-platform").inputs["data"]["platform.json"])["trainerImage"] == "t:1"


# ----------------------------------------------------------------------------------------------------------------- order


def test_everything_has_the_stacks_provider_and_labels() -> None:
    cloud = [one for one in usual().resources if one.type.startswith("gcp:")]
    assert {one.provider for one in cloud} == {"pulumi:providers:gcp::gcp"}
    assert json.loads(usual().one("gcp", "gcp").inputs["defaultLabels"]) == {"ebb-project": "ebb", "ebb-stack": "gcp"}
    for one in usual().all("NodePool"):
        assert {"ebb-stack": "gcp", "ebb-node-group": one.name}.items() <= one.inputs["nodeConfig"]["resourceLabels"].items()


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        pytest.param(("NodePool", SPOT), ("RouterNat", "ebb-gcp"), id="machines go while they can still report"),
        pytest.param(("NodePool", SPOT), ("IAMMember", "machines"), id="machines go before their rights"),
        pytest.param(
            ("PersistentVolume", "volume-data"), ("gcp:filestore/instance:Instance", "ebb-gcp"), id="volumes, file system"
        ),
        pytest.param(("Deployment", "deployment-ebb-controller"), ("NodePool", "manager"), id="the controller, its machine"),
    ],
)
def test_what_goes_before_what(later: tuple[str, str], earlier: tuple[str, str]) -> None:
    made = usual()
    assert made.one(*earlier).key in made.before(made.one(*later))


def test_a_further_zone_changes_nothing_that_is_there() -> None:
    more = world({"zones": [*stacks.stack().zones, "us-central1-f"]})
    before, after = (
        {one.key: one.inputs for one in made.resources if one.type.startswith("gcp:") and one.kind != "BucketObject"}  # a file
        for made in (usual(), more)
    )
    assert {key: after[key] for key in before} == before
    assert {key.rpartition("::")[2] for key in set(after) - set(before)} == {"spot-t4-us-central1-f"}
