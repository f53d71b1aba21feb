"""What the stack declares on Google Cloud: network, cluster, images, and who may do what.

Node pools: test_pools.py; file systems and disks: test_storage.py."""

import json

import pytest

from infra.clouds.gcp.cluster import account_id
from tests.infra.gcp import stacks
from tests.infra.gcp.stacks import EXISTING, outputs, usual, world

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


def test_idle_machines_go_soon_and_upgrades_wait_where_the_stack_says_so() -> None:
    usual_cluster = usual().one("Cluster").inputs
    assert usual_cluster["clusterAutoscaling"] == {"enabled": False, "autoscalingProfile": "OPTIMIZE_UTILIZATION"}
    assert "maintenanceExclusions" not in usual_cluster["maintenancePolicy"]
    start, end = "2026-12-20T00:00:00Z", "2027-01-04T00:00:00Z"
    exclusions = [{"name": "paper", "start": start}, {"name": "holidays", "start": start, "end": end, "scope": "all"}]
    made = world({"gcp.cluster.maintenanceExclusions": exclusions}).one("Cluster").inputs["maintenancePolicy"]
    assert made["maintenanceExclusions"] == [
        {
            "exclusionName": "paper",
            "startTime": start,
            "exclusionOptions": {"scope": "NO_MINOR_OR_NODE_UPGRADES", "endTimeBehavior": "UNTIL_END_OF_SUPPORT"},
        },
        {"exclusionName": "holidays", "startTime": start, "endTime": end, "exclusionOptions": {"scope": "NO_UPGRADES"}},
    ]


def test_the_stack_asks_for_a_minor_version_of_which_patches_come_and_go() -> None:
    assert usual().one("Cluster").inputs["minMasterVersion"] == "1.35"


# ---------------------------------------------------------------------------------------------------------------- images


def test_images_are_built_in_the_project_and_named_by_digest() -> None:
    builds = {one.name: one.inputs for one in usual().all("Command")}
    assert set(builds) == {"image-controller", "image-default"}
    assert " --source " in builds["image-default"]["create"]
    assert builds["image-default"]["triggers"][0].startswith("default.")
    deployment = usual().one("Deployment", "deployment-ebb-controller").inputs["spec"]
    assert (
        deployment["template"]["spec"]["containers"][0]["image"]
        == f"us-central1-docker.pkg.dev/my-project-123/ebb-gcp/controller@sha256:{'a' * 64}"
    )


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
        pytest.param(
            ("NodePool", "spot-t4-us-central1-a"), ("RouterNat", "ebb-gcp"), id="machines go while they can still report"
        ),
        pytest.param(("NodePool", "spot-t4-us-central1-a"), ("IAMMember", "machines"), id="machines go before their rights"),
        pytest.param(
            ("PersistentVolume", "volume-data"), ("gcp:filestore/instance:Instance", "ebb-gcp"), id="volumes, file system"
        ),
        pytest.param(("Deployment", "deployment-ebb-controller"), ("NodePool", "manager"), id="the controller, its machine"),
    ],
)
def test_what_goes_before_what(later: tuple[str, str], earlier: tuple[str, str]) -> None:
    made = usual()
    assert made.one(*earlier).key in made.before(made.one(*later))


def test_services_are_enabled_before_anything_uses_them_and_stay_so() -> None:
    services = usual().all("Service")
    services = [one for one in services if one.type.startswith("gcp:")]
    assert {"compute.googleapis.com", "container.googleapis.com", "file.googleapis.com"} <= {
        one.inputs["service"] for one in services
    }
    assert {one.inputs["disableOnDestroy"] for one in services} == {False}
    enabled = {one.key for one in services}
    for kind, name in (("Network", "ebb-gcp"), ("Account", "machines"), ("gcp:filestore/instance:Instance", "ebb-gcp"),
                       ("gcp:artifactregistry/repository:Repository", "ebb-gcp")):  # fmt: skip
        assert enabled <= usual().before(usual().one(kind, name)), kind


def test_a_further_zone_changes_nothing_that_is_there() -> None:
    more = world({"zones": [*stacks.stack().zones, "us-central1-f"]})
    before, after = (
        {one.key: one.inputs for one in made.resources if one.type.startswith("gcp:") and one.kind != "BucketObject"}  # a file
        for made in (usual(), more)
    )
    assert {key: after[key] for key in before} == before
    assert {key.rpartition("::")[2] for key in set(after) - set(before)} == {"spot-t4-us-central1-f", "spot-a100-us-central1-f"}
