"""Preflight on Google Cloud, by a project that is as the test says."""

import json
from typing import Any

import pytest

from infra import commands
from infra.account import preflight as neutral
from infra.account.costs import groups_of
from infra.account.preflight import checks, run
from infra.account.records import FAIL, WARN, Finding
from infra.clouds.gcp import pools, preflight
from infra.clouds.gcp.calls import DENIED, NoAccess, Refused
from infra.clouds.gcp.preflight import Look
from tests.infra.gcp import stacks
from tests.infra.gcp.fake_calls import FakeCalls

ENABLED = (
    *("serviceusage", "cloudresourcemanager", "compute", "container", "iam", "file", "cloudquotas"),
    *("artifactregistry", "containerfilesystem", "cloudbuild", "storage"),
)
HERE = "198.51.100.7"


def quota(**limits: int) -> list[dict[str, Any]]:
    """As Compute Engine lists them: limits are numbers with a fraction."""
    return [{"metric": metric, "limit": float(limit), "usage": 0.0} for metric, limit in limits.items()]


def filestore(gib: int) -> dict[str, Any]:
    """As Cloud Quotas has it: the region's own limit beside the usual one."""
    usual = {"details": {"value": "1024"}, "applicableLocations": ["europe-west1", "us-central1"]}
    own = {"dimensions": {"region": "us-central1"}, "details": {"value": str(gib)}, "applicableLocations": ["us-central1"]}
    return {"quotaId": "EnterpriseStorageGibPerRegion", "dimensionsInfos": [usual, own]}


def region(**limits: int) -> dict[str, Any]:
    """The region's quotas, with some of them changed."""
    kept = [one for one in answers()["regions/us-central1"]["quotas"] if one["metric"] not in limits]
    return {"regions/us-central1": {"quotas": [*kept, *quota(**limits)]}}


def everywhere(**limits: int) -> dict[str, Any]:
    kept = [one for one in answers()["compute/v1/projects/my-project-123"]["quotas"] if one["metric"] not in limits]
    return {"compute/v1/projects/my-project-123": {"quotas": [*kept, *quota(**limits)]}}


def answers(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """A project in which the stack can come up."""
    found: dict[str, Any] = {
        "v3/projects/my-project-123": {"state": "ACTIVE", "displayName": "Mine"},
        "my-project-123/services": {"services": [{"config": {"name": f"{one}.googleapis.com"}} for one in ENABLED]},
        "regions/us-central1": {
            "quotas": quota(
                PREEMPTIBLE_NVIDIA_T4_GPUS=192,
                NVIDIA_T4_GPUS=2,
                PREEMPTIBLE_NVIDIA_A100_GPUS=192,
                CPUS=780,
                A2_CPUS=2304,
                PREEMPTIBLE_CPUS=0,
                SSD_TOTAL_GB=43660,
                HDB_TOTAL_GB=0,
            )
        },
        "compute/v1/projects/my-project-123": {"quotas": quota(GPUS_ALL_REGIONS=386, CPUS_ALL_REGIONS=3084)},
        "file.googleapis.com/quotaInfos": {"quotaInfos": [filestore(1024)]},
        "serverConfig": {"channels": [{"channel": "REGULAR", "validVersions": ["1.34.1-gke.1", "1.35.2-gke.1", "1.36.0-gke.9"]}]},
    }
    for zone in ("us-central1-a", "us-central1-b", "us-central1-c"):
        found[f"zones/{zone}"] = {"status": "UP"}
        found[f"{zone}/machineTypes/n1-standard-4"] = {"guestCpus": 4}
        found[f"{zone}/acceleratorTypes/nvidia-tesla-t4"] = {}
        found[f"{zone}/machineTypes/a2-highgpu-8g"] = {"guestCpus": 96}
        found[f"{zone}/acceleratorTypes/nvidia-tesla-a100"] = {}
    found["us-central1-a/machineTypes/e2-standard-4"] = {"guestCpus": 4}
    return found | (changes or {})


def look(changes: dict[str, Any] | None = None, settings: dict[str, Any] | None = None, **here: Any) -> list[Finding]:
    stack = stacks.stack(settings)
    gone = [key for key, value in (changes or {}).items() if value is None]
    table = {key: value for key, value in answers(changes).items() if key not in gone}
    made = Look(
        stack_name="gcp", stack=stack, calls=FakeCalls(table),
        which=here.get("which", lambda name: f"/usr/bin/{name}"), address=here.get("address", lambda: HERE),
    )  # fmt: skip
    return run(checks(preflight.CHECKS, made), lambda line: None)


def bad(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.level, one.text) for one in found if one.level in (FAIL, WARN)]


def test_a_second_manager_machine_counts() -> None:
    there = {"us-central1-b/machineTypes/e2-standard-4": {"guestCpus": 4}}
    assert bad(look(there, {"manager.count": 2})) == [
        (WARN, "CPUS: 780, the node groups have up to 784: jobs would wait for machines"),
        (WARN, "CPUS_ALL_REGIONS: 3084, the node groups have up to 3088: jobs would wait for machines"),
        (WARN, "SSD_TOTAL_GB: 43660, the node groups have up to 43710: jobs would wait for machines"),
    ]


def test_a_project_that_has_everything() -> None:
    assert bad(look()) == []


@pytest.mark.parametrize(
    ("changes", "level", "said"),
    [
        pytest.param({"v3/projects/my-project-123": None}, FAIL, "project my-project-123 is not there", id="no project"),
        pytest.param({"zones/us-central1-b": {"status": "DOWN"}}, FAIL, "zone us-central1-b is not there, or not up", id="zone"),
        pytest.param(
            {"us-central1-c/machineTypes/n1-standard-4": None}, FAIL,
            "spot-t4-us-central1-c: us-central1-c has no n1-standard-4", id="machine type",
        ),
        pytest.param(
            {"us-central1-b/acceleratorTypes/nvidia-tesla-t4": None}, FAIL,
            "spot-t4-us-central1-b: us-central1-b has no nvidia-tesla-t4", id="GPU",
        ),
        pytest.param(
            {"us-central1-a/machineTypes/e2-standard-4": {"guestCpus": 3}}, WARN,
            "e2-standard-4 has 3 vCPU, the catalog says 4", id="the catalog is wrong",
        ),
        pytest.param(
            everywhere(GPUS_ALL_REGIONS=0), FAIL,
            "GPUS_ALL_REGIONS: 0, the stack needs at least 1", id="a new project has no GPUs",
        ),
        pytest.param(
            region(PREEMPTIBLE_NVIDIA_T4_GPUS=8), WARN,
            "PREEMPTIBLE_NVIDIA_T4_GPUS: 8, the node groups have up to 192", id="less than at full scale",
        ),
        pytest.param(region(SSD_TOTAL_GB=250), FAIL, "SSD_TOTAL_GB: 250, the stack needs at least 260", id="disks, a trial"),
        pytest.param(region(SSD_TOTAL_GB=500), WARN, "SSD_TOTAL_GB: 500, the node groups have up to 43660", id="disks"),
        pytest.param(region(CPUS=4), FAIL, "CPUS: 4, the stack needs at least 8", id="vCPUs"),
        pytest.param(
            region(PREEMPTIBLE_CPUS=50), WARN, "PREEMPTIBLE_CPUS: 50, the node groups have up to 3072", id="vCPUs of spot"
        ),
        pytest.param(everywhere(CPUS_ALL_REGIONS=12), WARN, "CPUS_ALL_REGIONS: 12, the node groups have up to 3084", id="all"),
        pytest.param(
            {"file.googleapis.com/quotaInfos": {"quotaInfos": [filestore(0)]}}, FAIL,
            "EnterpriseStorageGibPerRegion: 0, the stack needs at least 1024", id="Filestore",
        ),
        pytest.param(
            {"file.googleapis.com/quotaInfos": {"quotaInfos": []}}, WARN,
            "EnterpriseStorageGibPerRegion: not among the quotas of us-central1", id="a quota that has another name by now",
        ),
        pytest.param(
            {"serverConfig": {"channels": [{"channel": "REGULAR", "validVersions": ["1.34.1-gke.1", "1.36.0-gke.1"]}]}}, FAIL,
            "channel REGULAR has no 1.35 here; it has 1.34, 1.36", id="the channel has dropped the version",
        ),
        pytest.param(
            {"serverConfig": {"channels": [{"channel": "REGULAR", "validVersions": ["1.35.0-gke.1000000"]}]}}, FAIL,
            "channel REGULAR has 1.35.0-gke.1000000, and nodes.shutdownGraceSeconds: 120 needs 1.35.0-gke.1171000",
            id="too old a patch",
        ),
        pytest.param(
            {"clusters/ebb-gcp": {"resourceLabels": {}}}, FAIL,
            "there is a cluster ebb-gcp that this stack has not made", id="name",
        ),
        pytest.param({"serverConfig": Refused(DENIED, "no right")}, WARN, "not checked: no right", id="no right to look"),
    ],
)  # fmt: skip
def test_what_stands_in_the_way_is_said(changes: dict[str, Any], level: str, said: str) -> None:
    found = bad(look(changes))
    assert [(one, text.startswith(said)) for one, text in found] == [(level, True)], found


def test_a_new_project_hears_of_its_apis_once() -> None:
    """Not of zones that are not there, of names that are free, of ten things that were not checked."""
    there = [{"config": {"name": f"{one}.googleapis.com"}} for one in ("serviceusage", "cloudresourcemanager", "storage")]
    [(level, text)] = bad(look({"my-project-123/services": {"services": there}}))
    assert level == WARN, "`up` enables them"
    assert text.startswith("not enabled: compute.googleapis.com, container.googleapis.com, iam.googleapis.com")


@pytest.mark.parametrize("name", ["serviceusage", "cloudresourcemanager"])
def test_up_cannot_enable_what_enables(name: str) -> None:
    rest = [{"config": {"name": f"{one}.googleapis.com"}} for one in ENABLED if one != name]
    [(level, text)] = bad(look({"my-project-123/services": {"services": rest}}))
    assert (level, text.startswith(f"not enabled: {name}.googleapis.com")) == (FAIL, True)


def test_an_older_patch_will_do_where_no_spot_machine_holds_up_its_shutdown() -> None:
    old = {"serverConfig": {"channels": [{"channel": "REGULAR", "validVersions": ["1.35.0-gke.1000000"]}]}}
    assert bad(look(old, {"gcp.nodes": {"shutdownGraceSeconds": 30}})) == []


def test_the_stacks_own_cluster_is_no_clash() -> None:
    assert bad(look({"clusters/ebb-gcp": {"resourceLabels": {"ebb-stack": "gcp"}}})) == []


def test_this_machine_must_reach_the_cluster_and_have_the_programs() -> None:
    assert bad(look(address=lambda: "203.0.113.1")) == [
        (FAIL, "this machine (203.0.113.1) is not in gcp.cluster.authorizedCidrs (198.51.100.0/24)")
    ]
    [(level, said)] = bad(look(which=lambda name: None if name == "gke-gcloud-auth-plugin" else "/x"))
    assert (level, said.startswith("gke-gcloud-auth-plugin is not on PATH")) == (FAIL, True)


EXISTING = {"gcp.network": {"name": "theirs", "subnet": "sub", "podsRange": "pods", "servicesRange": "services"}}
SUBNET = {"network": ".../networks/theirs", "privateIpGoogleAccess": True,
          "secondaryIpRanges": [{"rangeName": "pods"}, {"rangeName": "services"}]}  # fmt: skip
ROUTERS = {"items": [{"network": ".../networks/theirs", "nats": [{}]}]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({}, ["network theirs has no subnet sub in us-central1"], id="no subnet"),
        pytest.param({"subnetworks/sub": SUBNET, "us-central1/routers": ROUTERS}, [], id="all is there"),
        pytest.param(
            {"subnetworks/sub": SUBNET | {"secondaryIpRanges": []}, "us-central1/routers": ROUTERS},
            ["subnet sub has no range pods, services; it has none"], id="no ranges",
        ),
        pytest.param(
            {"subnetworks/sub": SUBNET | {"privateIpGoogleAccess": False}, "us-central1/routers": {}},
            ["subnet sub: machines without public addresses cannot reach Google's registry",
             "network theirs has no Cloud NAT in us-central1: data sets and public images come over it"], id="no way out",
        ),
    ],
)  # fmt: skip
def test_an_existing_network_has_what_machines_need(changes: dict[str, Any], said: list[str]) -> None:
    assert [text for _, text in bad(look(changes, EXISTING))] == said


def test_the_whole_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(preflight, "Account", lambda: FakeCalls(answers()))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(neutral, "public_address", lambda url: "203.0.113.1")
    assert neutral.main(["-s", "gcp"]) == commands.EXIT_BAD
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[1/11] project"
    assert json.loads(said[-1])["failed"] == [
        "this machine (203.0.113.1) is not in gcp.cluster.authorizedCidrs (198.51.100.0/24)"
    ]


def test_without_credentials_nothing_is_looked_at() -> None:
    with pytest.raises(NoAccess):
        look({"v3/projects/my-project-123": NoAccess(401, "log in")})


def test_every_gpu_has_googles_name_of_it() -> None:
    for name in ("T4", "L4", "A100", "H100"):
        line = {"gpu": name, "max": 1, "zones": ["us-central1-a"], "name": "one"}
        _, group = groups_of(stacks.stack({"nodeGroups": [line]}))
        assert pools.instance(group).accelerator.startswith("nvidia-")
