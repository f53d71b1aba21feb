"""What the program declares, by Pulumi's mocks: the objects, their order, and that labels and selectors agree."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi.runtime import rpc

from ebb.api.platform import parse
from infra import config, program
from infra.clouds.local import Local
from tests.infra.declared import Registered
from tests.infra.declared import declared as declared_by
from tests.infra.stacks import JOB
from tests.infra.stacks import settings as local_settings
from tests.pod_security import violations
from workloads.cluster import JOBS

FACTS = {
    "schema": "1", "storageClass": "ebb-shared", "environmentVolume": "ebb-environment",
    "image.controller": "ebb/controller:1", "image.trainer": "ebb/trainer:1", "image.etcd": "ebb/etcd:1",
}  # fmt: skip
ROOT = Path(__file__).parent.parent.parent
# The engine's marks of an encrypted value.
SIGNATURE, SECRET = rpc._special_sig_key, rpc._special_secret_sig
CONFIG_MAP, VOLUME = "kubernetes:core/v1:ConfigMap", "kubernetes:core/v1:PersistentVolume"


Graph = dict[str, Registered]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return declared(tmp_path_factory.mktemp("program"), jobs=[JOB])


def declared(folder: Path, encrypted: Collection[str] = (), **changes: Any) -> Graph:
    """All resources of the local stack by name, with changes to its settings."""
    kubeconfig = folder / "kubeconfig"
    cluster = {"server": "https://x", "certificate-authority-data": "eA=="}
    kubeconfig.write_text(yaml.safe_dump({"clusters": [{"name": "x", "cluster": cluster}]}))
    values = local_settings() | {"local": {"kubeconfig": str(kubeconfig)}} | changes
    stack = config.parse(values, ROOT, encrypted=encrypted)
    world = declared_by(
        lambda: program.declare(stack, Local(stack, stack.settings)),
        stack="local",
        answers={CONFIG_MAP: _box, VOLUME: _environment},
    )
    return {one.name: one for one in world.resources}


def _box(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """What the box says of itself, which the program reads."""
    return {"data": FACTS} if name == "box" else {}


def _environment(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """The volume that the box has made."""
    spec = {"capacity": {"storage": "20Gi"}, "hostPath": {"path": "/box/environment", "type": "Directory"}}
    return {"spec": spec} if name.startswith("box-") else {}


def before(graph: Graph, name: str) -> set[str]:
    """Everything that must be there before the resource, and goes after it on the way down."""
    found: set[str] = set()
    todo = [name]
    while todo:
        needs = {key.rpartition("::")[2] for key in graph[todo.pop()].dependencies}
        for other in needs & set(graph) - found:  # what is only read (the box's facts) needs nothing
            found.add(other)
            todo.append(other)
    return found


CONTROLLER, GATEWAY = "deployment-ebb-controller", "deployment-ebb-gateway"
CRD = "custom-resource-definition-elasticjobs.elastic.pytorch.org"


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        pytest.param("job-one", {CONTROLLER, CRD, "etcd", "prepare-digits"}, id="jobs go while the controller runs"),
        pytest.param("job-one", {f"node-group-spot-t4-local-{zone}" for zone in "abc"}, id="jobs go before their machines"),
        pytest.param(CONTROLLER, {"node-group-manager", CRD, "ebb-platform"}, id="controller"),
        pytest.param(CRD, {"claim-ebb-data", "claim-ebb-output", "claim-ebb-environment"}, id="all jobs go before the claims"),
        pytest.param("prepare-digits", {"node-group-manager", "claim-ebb-data"}, id="data"),
        pytest.param("etcd", {"node-group-manager", "namespace-ebb-system"}, id="etcd"),
        pytest.param("namespace-elastic-job", {f"node-group-spot-t4-local-{zone}" for zone in "abc"}, id="pods end first"),
        pytest.param("claim-ebb-data", {"namespace-elastic-job"}, id="claims"),
    ],
)
def test_order(graph: Graph, later: str, earlier: set[str]) -> None:
    assert earlier <= before(graph, later)


def test_everything_in_the_cluster_goes_through_its_provider(graph: Graph) -> None:
    plain = {name for name, one in graph.items() if one.type.startswith("kubernetes:") and not one.provider}
    assert plain == set()


def node_groups(graph: Graph) -> dict[str, Any]:
    return {one.inputs["metadata"]["name"]: one.inputs["spec"] for one in graph.values() if one.kind == "NodeGroup"}


def platform(graph: Graph) -> dict[str, Any]:
    data = graph["ebb-platform"].inputs["data"]
    assert data["schema"] == "1"
    parsed: dict[str, Any] = json.loads(data["platform.json"])
    return parsed


def test_node_groups_and_platform_agree(graph: Graph) -> None:
    objects = node_groups(graph)
    told = {group["name"]: group for group in platform(graph)["nodeGroups"]}
    assert set(objects) == set(told) == {"manager", "spot-t4-local-a", "spot-t4-local-b", "spot-t4-local-c"}
    assert {group["provisionSeconds"] for group in told.values()} == {33}  # 3 s of Pulumi.local.yaml, and 30 s at the slowest
    for name, spec in objects.items():
        for key in ("zone", "instanceType", "gpuType", "cpu", "memoryGiB", "capacityType", "min", "max", "labels", "taints"):
            assert spec[key] == told[name][key], (name, key)
        assert spec["gpus"] == told[name]["gpusPerNode"]


def test_a_spot_group_is_labelled_and_tainted(graph: Graph) -> None:
    spec = node_groups(graph)["spot-t4-local-b"]
    assert spec["labels"] == {"ebb.dev/node-group": "spot-t4-local-b", "ebb.dev/capacity-type": "spot", "ebb.dev/gpu-type": "T4"}
    assert spec["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "ebb.dev/capacity-type", "value": "spot", "effect": "NoSchedule"},
    ]
    assert (spec["pricePerHour"], spec["noticeSeconds"], spec["gpus"]) == (0.2104, 30, 1)
    assert node_groups(graph)["manager"]["taints"] == []


def workloads(graph: Graph) -> dict[str, dict[str, Any]]:
    found = {
        name: one.inputs["spec"] for name, one in graph.items() if one.kind in ("Deployment", "StatefulSet", "Job", "CronJob")
    }
    return {name: spec.get("jobTemplate", {"spec": spec})["spec"] for name, spec in found.items()}


CERTIFICATES = ("etcd-certificates", "job-etcd-certificates-servers", "job-etcd-certificates-workers")


def test_platform_pods_land_on_the_manager_machine(graph: Graph) -> None:
    manager = node_groups(graph)["manager"]["labels"]
    etcd = {"etcd", "etcd-maintenance", *CERTIFICATES}
    assert set(workloads(graph)) == {CONTROLLER, GATEWAY, *etcd, "prepare-storage", "prepare-digits"}
    for name, spec in workloads(graph).items():
        selector = spec["template"]["spec"]["nodeSelector"]
        assert selector.items() <= manager.items(), name
        of_jobs = name == GATEWAY or name.startswith("prepare-")  # in the jobs' namespace, where the platform's class is refused
        assert spec["template"]["spec"]["priorityClassName"] == ("ebb-job" if of_jobs else "ebb-system")


def test_labels_match_selectors(graph: Graph) -> None:
    for name, spec in workloads(graph).items():
        if "selector" in spec:
            assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items(), name
    etcd = workloads(graph)["etcd"]["template"]["metadata"]["labels"]
    services_of = [one for one in graph.values() if one.kind == "Service" and "selector" in one.inputs["spec"]]
    assert [one.inputs["spec"]["selector"].items() <= etcd.items() for one in services_of] == [True]


def test_every_pod_passes_restricted_and_has_a_read_only_root(graph: Graph) -> None:
    """But for the one that makes folders in the root of a new file system, which is root's alone."""
    pods = {name: spec["template"]["spec"] for name, spec in workloads(graph).items()}
    assert {name for name, pod in pods.items() if violations(pod)} == {"prepare-storage"}
    containers = {name: container for name, pod in pods.items() for container in pod["containers"]}
    assert {name for name, one in containers.items() if one["securityContext"]["readOnlyRootFilesystem"] is not True} == set()


def test_images_are_those_of_the_box(graph: Graph) -> None:
    images = {name: spec["template"]["spec"]["containers"][0]["image"] for name, spec in workloads(graph).items()}
    assert images == {
        **dict.fromkeys((CONTROLLER, GATEWAY, "prepare-storage", "etcd-maintenance", *CERTIFICATES), "ebb/controller:1"),
        "etcd": "ebb/etcd:1",
        "prepare-digits": "ebb/trainer:1",
    }
    assert platform(graph)["trainerImage"] == "ebb/trainer:1"
    assert platform(graph)["launcherImage"] == "ebb/controller:1"


def test_claims_exist_for_all_that_the_platform_tells(graph: Graph) -> None:
    claims = {one.inputs["metadata"]["name"]: one.inputs for one in graph.values() if one.kind == "PersistentVolumeClaim"}
    told = {volume["claim"]: volume for volume in platform(graph)["volumes"]}
    assert set(claims) == {*told, "efs-claim", "etcd-data"}
    assert {volume["mountPath"] for volume in told.values()} == {"/mnt/data", "/mnt/output", "/opt/ebb/site-packages"}
    assert claims["ebb-environment"]["spec"]["volumeName"] == "ebb-environment"
    assert {claims[name]["metadata"]["namespace"] for name in told} == {JOBS}


def test_the_digits_job_stays_when_it_has_finished(graph: Graph) -> None:
    assert "ttlSecondsAfterFinished" not in workloads(graph)["prepare-digits"]


def test_pod_security_of_the_namespaces(graph: Graph) -> None:
    levels = {
        one.inputs["metadata"]["name"]: one.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for one in graph.values()
        if one.kind == "Namespace"
    }
    assert levels == {"ebb-system": "restricted", "elastic-job": "baseline"}


def test_etcd_is_reached_by_its_old_name(graph: Graph) -> None:
    alias = graph["service-etcd-service"].inputs
    assert alias["metadata"] == {"name": "etcd-service", "namespace": "elastic-job"}
    assert alias["spec"]["externalName"] == "etcd.ebb-system.svc.cluster.local"
    assert platform(graph)["etcdEndpoint"] == "etcd-service:2379"
    assert "legacyEtcdEndpoint" not in platform(graph)


def test_the_older_etcd_is_there_if_the_stack_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FACTS, "image.etcd-legacy", "ebb/etcd-legacy:1")
    there = declared(tmp_path, legacyRendezvous=True, jobs=[JOB])
    pod = workloads(there)["etcd-legacy"]["template"]["spec"]
    assert [one["image"] for one in pod["containers"]] == ["ebb/etcd-legacy:1"]
    newer = workloads(there)["etcd"]["template"]["spec"]
    assert (pod["volumes"], pod["nodeSelector"]) == (newer["volumes"][:1], newer["nodeSelector"])
    service = there["service-etcd-legacy"].inputs["metadata"]
    assert platform(there)["legacyEtcdEndpoint"] == f"{service['name']}.{service['namespace']}.svc:2379"
    assert "etcd" in before(there, "etcd-legacy")
    assert "etcd-legacy" in before(there, "job-one")


def test_a_box_without_the_older_etcd_says_how_it_gets_it(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError, match="python -m devcluster up --legacy-etcd"):
        declared(tmp_path, legacyRendezvous=True)


def test_a_webhook_is_a_secret_that_the_controller_mounts(tmp_path: Path, graph: Graph) -> None:
    there = declared(tmp_path, encrypted=["webhook"], webhook="https://example.org/hook")
    secret = there["ebb-notifications"].inputs
    assert secret["metadata"] == {"name": "ebb-notifications", "namespace": "ebb-system"}
    assert secret["stringData"] == {SIGNATURE: SECRET, "value": {"webhook": "https://example.org/hook"}}
    (volume,) = workloads(there)[CONTROLLER]["template"]["spec"]["volumes"]
    assert volume["secret"] == {"secretName": secret["metadata"]["name"], "optional": True}
    assert "ebb-notifications" not in graph


def test_a_missing_kubeconfig_is_said(tmp_path: Path) -> None:
    stack = config.parse(local_settings() | {"local": {"kubeconfig": str(tmp_path / "none")}}, ROOT)
    with pytest.raises(config.ConfigError, match="python -m devcluster up"):
        Local(stack, stack.settings).cluster()


def test_the_platform_may_be_on_each_of_two_manager_machines(tmp_path: Path) -> None:
    found = declared(tmp_path, manager={"zone": "local-b", "instanceType": "ebb.cpu", "count": 2})
    made = {name: one for name, one in node_groups(found).items() if name.startswith("manager")}
    assert {name: one["zone"] for name, one in made.items()} == {"manager": "local-b", "manager-2": "local-a"}
    for name, spec in workloads(found).items():
        selector = spec["template"]["spec"]["nodeSelector"]
        assert all(selector.items() <= one["labels"].items() for one in made.values()), name
        assert {"node-group-manager", "node-group-manager-2"} <= before(found, name), name
    # What jobs and people know of is one group, whose name is the label of the nodes of both.
    told = [group["name"] for group in platform(found)["nodeGroups"]]
    assert [name for name in told if name.startswith("manager")] == ["manager"]


def test_the_controllers_replicas_go_apart_where_they_can(graph: Graph) -> None:
    """A wish and no demand: with one manager machine both replicas are there."""
    spec = workloads(graph)[CONTROLLER]["template"]
    apart = spec["spec"]["affinity"]["podAntiAffinity"]
    assert set(apart) == {"preferredDuringSchedulingIgnoredDuringExecution"}
    [wish] = apart["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert wish["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= spec["metadata"]["labels"].items()


TEAMS = {
    "vision": {
        "gpus": 16, "borrow": 8, "usdPerMonth": 4000, "priority": "elastic", "researchers": ["group:vision"],
        "leads": ["user:ada@lab.example"], "readers": ["user:rita"],
    },
    "speech": {"researchers": ["group:speech"]},
}  # fmt: skip


@pytest.fixture(scope="module")
def teamed(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return declared(tmp_path_factory.mktemp("teams"), jobs=[JOB], teams=TEAMS)


def inside(graph: Graph, namespace: str) -> dict[str, set[str]]:
    """Kind -> names of all objects in a namespace."""
    found: dict[str, set[str]] = {}
    for one in graph.values():
        metadata = one.inputs.get("metadata") or {}
        if metadata.get("namespace") == namespace:
            found.setdefault(one.kind, set()).add(metadata["name"])
    return found


def test_a_stack_without_teams_has_nothing_of_them(graph: Graph, teamed: Graph) -> None:
    assert {name for name in graph if "team" in name or "owne" in name} == set()
    assert "teams" not in platform(graph)
    told = {
        "ebb-platform",
        "prepare-storage",
        "etcd-maintenance",
        "cluster",
        "role-etcd-certificates",
        *CERTIFICATES,
    }  # which know of them or of their etcds, or of the folder
    assert {name for name in graph if graph[name].inputs != teamed[name].inputs} == told


def test_a_team_has_all_that_jobs_have(teamed: Graph) -> None:
    usual, there = inside(teamed, JOBS), inside(teamed, "ebb-team-vision")
    assert there["PersistentVolumeClaim"] == usual["PersistentVolumeClaim"] - {"efs-claim"}
    for kind in ("Deployment", "Service", "NetworkPolicy"):
        assert there[kind] == usual[kind]
    assert there["ResourceQuota"] == usual["ResourceQuota"] | {"team"}
    assert there["Role"] == {"ebb-reader", "ebb-researcher", "ebb-lead", "ebb-controller-records", "etcd-certificates"}
    assert inside(teamed, "ebb-team-speech")["ResourceQuota"] == usual["ResourceQuota"], "without a limit"
    labels = teamed["namespace-ebb-team-vision"].inputs["metadata"]["labels"]
    assert labels == {**teamed["namespace-elastic-job"].inputs["metadata"]["labels"], "ebb.dev/team": "vision"}
    quota = teamed["resource-quota-ebb-team-vision-team"].inputs["spec"]["hard"]
    assert quota == {"requests.nvidia.com/gpu": "24"}, "and 8 that other teams may lend it"


def test_a_team_s_volumes_are_folders_of_its_own_and_its_gateway_has_them(teamed: Graph) -> None:
    folder = teamed["claim-ebb-team-vision-ebb-data"].inputs["metadata"]["annotations"]
    assert folder == {"box.ebb.dev/folder": "shared/teams/vision/data"}
    command = teamed["prepare-storage"].inputs["spec"]["template"]["spec"]["containers"][0]["command"]
    assert {"/mnt/efs/teams/vision/data", "/mnt/efs/teams/speech/output/ebb-team-speech"} <= set(command)
    assert {"claim-ebb-team-vision-ebb-data", "prepare-storage"} <= before(teamed, "deployment-ebb-team-vision-ebb-gateway")
    assert {"namespace-ebb-team-vision", "resource-quota-ebb-team-vision-team"} <= before(
        teamed, "claim-ebb-team-vision-ebb-data"
    )
    assert {"claim-ebb-team-vision-ebb-data"} <= before(teamed, CRD), "all jobs go before the claims"


def test_a_team_that_leaves_a_stack_takes_its_jobs_along(teamed: Graph) -> None:
    """Its claims do not wait for pods that nothing ends, and etcd is there for the last checkpoints."""
    assert "etcd-team-vision" in before(teamed, "namespace-ebb-team-vision")
    for claim in ("ebb-data", "ebb-output", "ebb-environment"):
        assert teamed[f"claim-ebb-team-vision-{claim}"].deleted_with.endswith("::namespace-ebb-team-vision")
        assert teamed[f"claim-{claim}"].deleted_with == "", "the whole stack goes in the order of its dependencies"


def test_nobody_is_let_into_a_team_before_the_policies_are_there(teamed: Graph) -> None:
    policies = {f"validating-admission-policy-binding-{name}" for name in ("ebb-owners", "ebb-owned-pods", "ebb-secrets")}
    for role in ("reader", "researcher", "lead"):
        assert policies <= before(teamed, f"role-binding-ebb-team-vision-ebb-{role}")


def test_who_is_in_a_team_has_the_rights_of_their_role(teamed: Graph) -> None:
    def subjects(name: str) -> list[tuple[str, str]]:
        return [(one["kind"], one["name"]) for one in teamed[f"role-binding-ebb-team-vision-{name}"].inputs["subjects"]]

    assert subjects("ebb-researcher") == [("Group", "vision")]
    assert subjects("ebb-lead") == [("User", "ada@lab.example")]
    assert subjects("ebb-reader") == [("User", "rita")]
    assert len(subjects("ebb-team-vision")) == 3, "all read the platform's facts"
    reader = teamed["role-ebb-team-vision-ebb-reader"].inputs["rules"]
    assert {verb for rule in reader for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {"pods/exec", "pods/portforward", "secrets"} & {one for rule in reader for one in rule["resources"]} == set()


def test_jobs_of_a_team_reach_their_own_and_the_teams_etcd_alone(graph: Graph, teamed: Graph) -> None:
    def who(name: str) -> list[str]:
        rules = teamed[f"network-policy-{name}"].inputs["spec"]["ingress"]
        peers = [peer["namespaceSelector"]["matchLabels"] for rule in rules for peer in rule["from"]]
        return [one["kubernetes.io/metadata.name"] for one in peers]

    def guarded(name: str) -> set[str]:
        """The etcds that the policy is of."""
        wanted = teamed[f"network-policy-{name}"].inputs["spec"]["podSelector"]["matchLabels"].items()
        found = {one: teamed[one].inputs["spec"]["template"]["metadata"]["labels"] for one in ("etcd", *theirs)}
        return {one for one, labels in found.items() if wanted <= labels.items()}

    theirs = ("etcd-team-vision", "etcd-team-speech")
    assert who("ebb-team-vision-jobs") == ["ebb-team-vision", "ebb-system"]
    assert (who("etcd"), guarded("etcd")) == ([JOBS], {"etcd"})
    assert graph["network-policy-etcd"].inputs == teamed["network-policy-etcd"].inputs
    for team in ("vision", "speech"):
        assert (who(f"etcd-team-{team}"), guarded(f"etcd-team-{team}")) == ([f"ebb-team-{team}"], {f"etcd-team-{team}"})
        name = teamed[f"service-ebb-team-{team}-etcd-service"].inputs["spec"]["externalName"]
        assert name == f"etcd-team-{team}.ebb-system.svc.cluster.local"
    assert who("etcd-legacy") == ["ebb-team-vision", "ebb-team-speech"], "torch's own rendezvous is one for all"
    assert guarded("etcd-legacy") == set()


def test_the_platform_says_which_teams_there_are(teamed: Graph) -> None:
    found = parse(teamed["ebb-platform"].inputs["data"])
    vision, speech = found.teams
    assert (vision.name, vision.namespace, vision.gpus, vision.usd_per_month) == ("vision", "ebb-team-vision", 16, 4000)
    assert (vision.priority, speech.priority, speech.gpus, speech.usd_per_month) == ("elastic", "", None, None)
    assert {volume.claim for volume in vision.volumes} == {"ebb-data", "ebb-output", "ebb-environment"}
    seen = found.seen_from("ebb-team-vision")
    assert (seen.jobs_namespace, seen.volumes) == ("ebb-team-vision", vision.volumes)
    assert found.seen_from("elsewhere") == found
