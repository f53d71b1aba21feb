"""What the services declare, seen as the engine would see it. What an API server thinks of it, tests test_on_api_server.py."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from pulumi_kubernetes import core

from ebb.api.contract import GATEWAY_PORT
from ebb.api.platform import parse
from ebb.api.quantities import quantity
from ebb.api.spec import Job
from ebb.controller.reconciler.data_copy import copy_pod
from ebb.controller.reconciler.pods import worker_labels
from ebb.controller.record_retention import KEPT_DAYS
from ebb.gateway.__main__ import read_settings
from tests.builders import make_job
from tests.infra.declared import Declared, Registered
from tests.pod_security import violations
from tests.probes import impatient
from tests.workloads.world import Elsewhere, Object, objects, pod_template, stack
from workloads.cluster import Cluster, CopyIdentity, Helpers, Sidecar
from workloads.platform import RESEARCHERS_OWN


@pytest.fixture(scope="module")
def world() -> Declared:
    return stack()


def spec(world: Declared, kind: str, name: str) -> Any:
    return world.one(kind, name).inputs["spec"]


def pods(world: Declared) -> dict[str, Object]:
    """Workload -> its pod's spec."""
    found = [(item["metadata"]["name"], pod_template(item)) for item in objects(world) if item["kind"] != "ElasticJob"]
    return {name: template["spec"] for name, template in found if template}


def before(world: Declared, one: Registered) -> set[str]:
    return {key.split("::")[1] for key in world.before(one)}


PLUGINS = {"gpus", "fast-network"}
AGENT, RDMA = "ebb-notices", "ebb-rdma"
# Sockets of the kubelet; the root of a new file system; the network of the machine; its processes and its kernel.
UNRESTRICTED = {*PLUGINS, "prepare-storage", AGENT, RDMA}


CERTIFICATES = {"etcd-certificates", "etcd-certificates-servers", "etcd-certificates-workers"}


def test_all_pods_but_these_pass_pod_security_restricted(world: Declared) -> None:
    found = pods(world)
    assert set(found) == {
        *("ebb-controller", "ebb-gateway", "etcd", "etcd-legacy", "etcd-maintenance", "cluster-autoscaler"),
        *CERTIFICATES,
        *("prepare-digits", "prepare-storage", "dataset-tiny-imagenet-200", "dataset-birds"),
        *PLUGINS,
        AGENT,
        RDMA,
    }
    assert {name for name, pod in found.items() if violations(pod)} == UNRESTRICTED
    assert violations(found[AGENT]) == ["pod.hostNetwork"]


IN_THE_JOBS_NAMESPACE = {"dataset-birds", "ebb-gateway"}


@pytest.mark.parametrize(
    "name", sorted({"ebb-controller", "etcd", "etcd-legacy", "etcd-maintenance", "cluster-autoscaler", *IN_THE_JOBS_NAMESPACE})
)
def test_pods_of_the_platform_are_on_the_manager_machine(world: Declared, name: str) -> None:
    pod = pods(world)[name]
    assert pod["nodeSelector"] == {"ebb.dev/node-group": "manager"}
    assert pod["priorityClassName"] == ("ebb-job" if name in IN_THE_JOBS_NAMESPACE else "ebb-system")
    assert all(one["securityContext"]["readOnlyRootFilesystem"] is True for one in pod["containers"])
    assert all(one["resources"]["requests"] and one["resources"]["limits"] for one in pod["containers"])


def test_no_container_is_killed_before_it_could_answer_on_a_busy_machine(world: Declared) -> None:
    found = pods(world)
    assert {name: why for name, pod in found.items() if (why := impatient(pod))} == {}
    assert "livenessProbe" in found["cluster-autoscaler"]["containers"][0]


@pytest.mark.parametrize("name", ["ebb-controller", "ebb-gateway", "cluster-autoscaler"])
def test_what_the_other_manager_machine_can_run_leaves_a_dead_one_in_half_a_minute(world: Declared, name: str) -> None:
    held = {one["key"]: (one["effect"], one["tolerationSeconds"]) for one in pods(world)[name]["tolerations"]}
    assert held == {f"node.kubernetes.io/{state}": ("NoExecute", 30) for state in ("not-ready", "unreachable")}


def test_only_who_speaks_to_the_api_server_has_a_token(world: Declared) -> None:
    with_token = {name for name, pod in pods(world).items() if pod.get("automountServiceAccountToken") is not False}
    assert with_token == {"ebb-controller", "cluster-autoscaler", AGENT, *CERTIFICATES}


# --- The agents of spot machines ------------------------------------------------------------------------------------------------


def test_an_agent_runs_on_every_spot_machine_and_on_no_other(world: Declared) -> None:
    made = world.one("DaemonSet", f"daemon-set-{AGENT}").inputs
    pod = pods(world)[AGENT]
    assert made["metadata"]["namespace"] == "kube-system"
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "ebb.dev/capacity-type", "operator": "In", "values": ["spot"]}]}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    (container,) = pod["containers"]
    assert (container["image"], container["command"]) == (
        "example.org/controller@sha256:3",
        ["tini", "--", "python3", "-m", "ebb.notices"],
    )


def test_it_is_the_only_pod_in_the_network_of_its_machine_beside_privileged_plugins(world: Declared) -> None:
    assert {name for name, pod in pods(world).items() if pod.get("hostNetwork")} == {AGENT, "fast-network"}


def test_its_policy_is_there_before_its_rights_and_these_before_it(world: Declared) -> None:
    policy = {f"validating-admission-policy-{AGENT}", f"validating-admission-policy-binding-{AGENT}"}
    assert before(world, world.one("ClusterRoleBinding", f"cluster-role-binding-{AGENT}")) >= policy
    rights = {f"service-account-{AGENT}", f"cluster-role-{AGENT}", f"cluster-role-binding-{AGENT}"}
    assert before(world, world.one("DaemonSet", f"daemon-set-{AGENT}")) >= policy | rights


def test_a_cloud_that_marks_nodes_itself_has_no_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Elsewhere, "helpers", lambda *_: Helpers(notices=False))
    assert not [item for item in objects(stack()) if item["metadata"]["name"] == AGENT]


# --- Autoscaler -----------------------------------------------------------------------------------------------------------------


def test_the_autoscaler_starts_with_what_the_cloud_says(world: Declared) -> None:
    deployment = spec(world, "Deployment", "cluster-autoscaler")
    (container,) = pods(world)["cluster-autoscaler"]["containers"]
    assert container["args"] == [
        *("--namespace=ebb-system", "--address=:8085"),
        *("--cloud-provider=elsewhere", "--expander=priority,least-waste"),
    ]
    assert container["env"] == [{"name": "REGION", "value": "north"}]
    assert pods(world)["cluster-autoscaler"]["serviceAccountName"] == "cluster-autoscaler"
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


def test_the_autoscaler_reads_its_priorities_in_its_own_namespace(world: Declared) -> None:
    config = world.one("ConfigMap", "cluster-autoscaler-priority-expander").inputs
    assert config["metadata"] == {"name": "cluster-autoscaler-priority-expander", "namespace": "ebb-system"}
    assert yaml.safe_load(config["data"]["priorities"]) == {10: ["on-demand"], 50: ["spot-.*"]}


def test_the_autoscaler_has_its_rights_before_it_starts_and_until_it_ends(world: Declared) -> None:
    there = before(world, world.one("Deployment", "cluster-autoscaler"))
    assert there >= {
        *("cluster-role-cluster-autoscaler", "cluster-role-binding-cluster-autoscaler", "role-cluster-autoscaler"),
        *("role-binding-cluster-autoscaler", "service-account-cluster-autoscaler", "cluster-autoscaler-priority-expander"),
    }


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_no_role_has_a_wildcard(world: Declared, kind: str) -> None:
    rules = [rule for role in world.all(kind) for rule in role.inputs["rules"]]
    assert rules
    assert not [rule for rule in rules if "*" in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]]


# --- Device plugins -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "label", "values"),
    [("gpus", "ebb.dev/gpu-type", ["T4", "V100"]), ("fast-network", "ebb.dev/node-group", ["old-north-b"])],
)
def test_a_device_plugin_runs_on_its_machines_whatever_their_taints(
    world: Declared, name: str, label: str, values: list[str]
) -> None:
    pod = pods(world)[name]
    assert world.one("DaemonSet", name).inputs["metadata"]["namespace"] == "kube-system"
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": label, "operator": "In", "values": values}]}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["priorityClassName"] == "system-node-critical"


def test_a_device_plugin_sees_of_the_machine_only_the_kubelets_sockets(world: Declared) -> None:
    pod = pods(world)["gpus"]
    assert [volume["hostPath"] for volume in pod["volumes"]] == [{"path": "/var/lib/kubelet/device-plugins", "type": "Directory"}]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["hostNetwork"] is False


def test_a_privileged_plugin_is_only_what_its_record_says(world: Declared) -> None:
    pod = pods(world)["fast-network"]
    assert pod["containers"][0]["securityContext"] == {"privileged": True, "runAsUser": 0}
    assert (pod["hostNetwork"], pod["containers"][0]["env"]) == (True, [{"name": "LEVEL", "value": "1"}])


def test_a_plugin_reads_the_file_of_its_record_and_is_made_anew_when_that_changes(world: Declared) -> None:
    pod, config = pods(world)["fast-network"], world.one("ConfigMap", "fast-network").inputs
    mounts = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert (mounts["config"], mounts["devices"]) == ("/etc/network", "/dev")
    assert config["data"] == {"config.json": '{"interfaces": 4}'}
    [named] = [one["configMap"]["name"] for one in pod["volumes"] if one["name"] == "config"]
    assert named == config["metadata"]["name"] == "fast-network-3deba290"
    assert world.one("ConfigMap", "fast-network").key in world.before(world.one("DaemonSet", "fast-network"))


# --- Machines with RDMA ---------------------------------------------------------------------------------------------------------


def test_machines_with_rdma_get_drivers_and_a_limit_that_lets_workers_lock_memory(world: Declared) -> None:
    pod = pods(world)[RDMA]
    (container,) = pod["containers"]
    assert container["command"] == ["python3", "-m", "ebb.rdma", "--modules", "ib_umad", "rdma_ucm"]
    assert (container["image"], pod["hostPID"], pod["tolerations"]) == (
        "example.org/controller@sha256:3", True, [{"operator": "Exists"}]
    )  # fmt: skip
    assert [one["hostPath"] for one in pod["volumes"]] == [{"path": "/", "type": "Directory"}]
    assert [(one["mountPath"], one["readOnly"]) for one in container["volumeMounts"]] == [("/host", True)]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": "ebb.dev/node-group", "operator": "In", "values": ["old-north-b"]}]}


def test_what_workers_claim_is_a_template_that_the_facts_name(world: Declared) -> None:
    template = world.one("ResourceClaimTemplate").inputs
    data = world.one("ConfigMap", "ebb-platform").inputs["data"]
    told = {group.name: group for group in parse(data).node_groups}["old-north-b"]
    assert told.network is not None
    assert template["metadata"] == {"name": told.network.claim, "namespace": "elastic-job"}
    assert template["spec"]["spec"]["devices"]["requests"] == [
        {"name": "interfaces", "exactly": {"deviceClassName": "fast.example.org", "allocationMode": "ExactCount", "count": 4}}
    ]
    assert told.labels["example.org/driver"] == "on"


# --- Limits ---------------------------------------------------------------------------------------------------------------------

LIMITS = {"quota-elastic-job-objects", "quota-elastic-job-critical-pods", "network-policy-jobs", "network-policy-gateway"}


def test_nothing_in_the_namespaces_can_make_a_load_balancer(world: Declared) -> None:
    for namespace in ("elastic-job", "ebb-system"):
        hard = spec(world, "ResourceQuota", f"quota-{namespace}-objects")["hard"]
        assert (hard["services.loadbalancers"], hard["services.nodeports"]) == ("0", "0")


def test_ten_thousand_workers_have_room_twice(world: Declared) -> None:
    """Of jobs of one worker too, which have a Service each; and a year's records of many jobs beside people's own settings."""
    hard = spec(world, "ResourceQuota", "quota-elastic-job-objects")["hard"]
    assert quantity(hard["pods"]) >= 20_000
    assert quantity(hard["services"]) >= 20_000
    assert quantity(hard["configmaps"]) >= KEPT_DAYS * 100


@pytest.mark.parametrize("namespace", ["ebb-system", "elastic-job"])
def test_what_is_made_in_a_namespace_comes_after_its_limits(world: Declared, namespace: str) -> None:
    """A quota that has counted nothing yet refuses what it counts, and no pod shall run before its policy."""
    limits = {one.name for kind in ("ResourceQuota", "NetworkPolicy") for one in world.all(kind)}
    counted = ("Deployment", "StatefulSet", "Job", "CronJob", "Service", "PersistentVolumeClaim", "ElasticJob")
    made = [one for kind in counted for one in world.all(kind) if one.inputs["metadata"]["namespace"] == namespace]
    own = {one.name for one in world.resources if one.name in limits and one.inputs["metadata"]["namespace"] == namespace}
    assert len(own) == {"ebb-system": 3, "elastic-job": 4}[namespace]
    assert {one.name: sorted(own - before(world, one)) for one in made if own - before(world, one)} == {}


def test_jobs_reach_no_link_local_address(world: Declared) -> None:
    policy = spec(world, "NetworkPolicy", "network-policy-jobs")
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    blocks = [peer["ipBlock"] for rule in policy["egress"] for peer in rule["to"] if "ipBlock" in peer]
    assert blocks == [{"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}]


def test_only_jobs_and_the_platform_reach_a_job(world: Declared) -> None:
    (rule,) = spec(world, "NetworkPolicy", "network-policy-jobs")["ingress"]
    assert names_of(rule["from"]) == {"elastic-job", "ebb-system"}


def test_the_platform_is_closed_but_for_etcd(world: Declared) -> None:
    (own,) = spec(world, "NetworkPolicy", "network-policy-platform")["ingress"]
    assert names_of(own["from"]) == {"ebb-system"}
    etcd = spec(world, "NetworkPolicy", "network-policy-etcd")
    (rule,) = etcd["ingress"]
    assert names_of(rule["from"]) == {"elastic-job"}
    assert rule["ports"] == [{"protocol": "TCP", "port": 2379}]
    for name in ("etcd", "etcd-legacy"):
        labels = spec(world, "StatefulSet", name)["template"]["metadata"]["labels"]
        assert etcd["podSelector"]["matchLabels"].items() <= labels.items()


def test_nobody_reaches_the_gateway_and_it_reaches_nobody(world: Declared) -> None:
    """Policies add up: the one of the jobs must leave it out. A job with its label is shut off, too."""
    own, jobs = (spec(world, "NetworkPolicy", f"network-policy-{name}") for name in ("gateway", "jobs"))
    assert (own["policyTypes"], own["ingress"], own["egress"]) == (["Ingress", "Egress"], [], [])
    labels = spec(world, "Deployment", "deployment-ebb-gateway")["template"]["metadata"]["labels"]
    assert own["podSelector"]["matchLabels"] == labels == {"app.kubernetes.io/name": "ebb-gateway"}
    left_out = {"key": "app.kubernetes.io/name", "operator": "NotIn", "values": ["ebb-gateway"]}
    assert jobs["podSelector"] == {"matchExpressions": [left_out]}


def names_of(peers: list[Object]) -> set[str]:
    return {peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in peers}


# --- The gateway ----------------------------------------------------------------------------------------------------------------


def test_the_gateway_has_the_volumes_of_the_jobs_where_workers_see_them(world: Declared) -> None:
    pod = pods(world)["ebb-gateway"]
    (container,) = pod["containers"]
    settings = read_settings(container["args"])
    assert settings.port == GATEWAY_PORT, "the client and the probe ask there"
    facts = parse(world.one("ConfigMap", "ebb-platform").inputs["data"])
    assert [(one.name, str(one.path), one.read_only) for one in settings.volumes] == [
        (one.name, one.mount_path, one.read_only) for one in facts.volumes
    ]
    assert {one["name"]: one["mountPath"] for one in container["volumeMounts"]} == {
        one.name: one.mount_path for one in facts.volumes
    }
    assert {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"]} == {
        one.name: one.claim for one in facts.volumes
    }
    assert container["image"] == "example.org/controller@sha256:3"


def test_copies_of_buckets_run_beside_the_gateway_from_its_image(world: Declared) -> None:
    copies = parse(world.one("ConfigMap", "ebb-platform").inputs["data"]).copies
    gateway = pods(world)["ebb-gateway"]
    assert copies is not None
    assert (copies.image, copies.selector) == (gateway["containers"][0]["image"], gateway["nodeSelector"])


def test_copies_have_the_clouds_identity_and_a_way_to_it_that_workers_have_not(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Elsewhere.storage

    def with_buckets(self: Elsewhere, cluster: Cluster, add_ons: Any) -> Any:
        made = usual(self, cluster, add_ons)
        right = core.v1.ConfigMap("right", opts=cluster.options())
        identity = CopyIdentity(
            buckets={"words": "s3://our-data/words"},
            annotations={"who": "reader"},
            environment={"AWS_REGION": "north"},
            addresses=[("169.254.170.23/32", 80)],
            ready=[right],
        )
        return replace(made, copies=identity)

    monkeypatch.setattr(Elsewhere, "storage", with_buckets)
    found = stack()
    account = found.one("ServiceAccount", "ebb-copy")
    metadata = {"name": "ebb-copy", "namespace": "elastic-job", "annotations": {"who": "reader"}}
    assert (account.inputs["metadata"], account.inputs["automountServiceAccountToken"]) == (metadata, False)
    facts = found.one("ConfigMap", "ebb-platform")
    platform = parse(facts.inputs["data"])
    assert platform.copies is not None
    assert (platform.copies.account, platform.copies.environment) == ("ebb-copy", {"AWS_REGION": "north"})
    assert platform.buckets == {"words": "s3://our-data/words"}
    names = {key.split("::")[1] for key in found.before(facts)}
    assert {"ebb-copy", "right", "network-policy-copies"} <= names, "a pod that came before would have no credentials"
    policy = spec(found, "NetworkPolicy", "network-policy-copies")
    job = Job.of(make_job(data={"url": "s3://our-data/words", "path": "/mnt/data/words"}))
    assert job.spec.data is not None
    pod = copy_pod(job, job.spec.data, platform.volumes[0], platform.copies)
    assert selects(policy["podSelector"], pod["metadata"]["labels"])
    assert not selects(policy["podSelector"], {"ebb.dev/copy": "of a template", **worker_labels("digits", 0)})
    ports = [{"protocol": "TCP", "port": 80}]
    assert policy["egress"] == [{"to": [{"ipBlock": {"cidr": "169.254.170.23/32"}}], "ports": ports}]


def selects(selector: Object, labels: dict[str, str]) -> bool:
    wanted = {"Exists": True, "DoesNotExist": False}
    return all((one["key"] in labels) is wanted[one["operator"]] for one in selector["matchExpressions"])


def test_without_buckets_copies_have_no_identity(world: Declared) -> None:
    assert "ebb-copy" not in world.named("ServiceAccount")
    assert "network-policy-copies" not in world.named("NetworkPolicy")


def test_a_read_only_volume_is_so_in_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Elsewhere.storage

    def last_read_only(*given: Any) -> Any:
        made = usual(*given)
        return replace(made, jobs=(*made.jobs[:-1], replace(made.jobs[-1], read_only=True)))

    monkeypatch.setattr(Elsewhere, "storage", last_read_only)
    pod = pods(stack())["ebb-gateway"]
    (container,) = pod["containers"]
    assert container["args"][-1] == "--read-only=fsx=/mnt/fsx"
    assert [one["name"] for one in container["volumeMounts"] if one.get("readOnly")] == ["fsx"]
    assert [one["name"] for one in pod["volumes"] if one["persistentVolumeClaim"].get("readOnly")] == ["fsx"]


def test_what_a_sidecar_serves_is_in_workers_alone_and_they_have_a_way_to_its_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The platform's pods have no such way, and no room for it."""
    usual = Elsewhere.storage
    sidecar = Sidecar(annotations={"cloud/fuse": "true"}, cpu=0.25, memory_gib=1.0, addresses=[("169.254.169.254/32", 80)])

    def last_with_sidecar(*given: Any) -> Any:
        made = usual(*given)
        return replace(made, jobs=(*made.jobs[:-1], replace(made.jobs[-1], read_only=True, sidecar=sidecar)))

    monkeypatch.setattr(Elsewhere, "storage", last_with_sidecar)
    found = stack()
    mounting = {name for name, pod in pods(found).items() if "ebb-fsx" in str(pod.get("volumes"))}
    assert mounting == set()
    assert "claim-ebb-fsx" in found.named("PersistentVolumeClaim")
    facts = found.one("ConfigMap", "ebb-platform")
    (told,) = parse(facts.inputs["data"]).sidecars_in("elastic-job")
    assert (told.annotations, told.cpu, told.memory_gib) == ((("cloud/fuse", "true"),), 0.25, 1.0)
    assert "network-policy-sidecars" in before(found, facts), "a worker that came before could not mount"
    policy = spec(found, "NetworkPolicy", "network-policy-sidecars")
    assert selects(policy["podSelector"], worker_labels("digits", 0))
    assert not selects(policy["podSelector"], {"app.kubernetes.io/name": "ebb-gateway"})
    ports = [{"protocol": "TCP", "port": 80}]
    assert policy["egress"] == [{"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}], "ports": ports}]


def test_without_sidecars_workers_have_no_such_way(world: Declared) -> None:
    assert "network-policy-sidecars" not in world.named("NetworkPolicy")


def test_the_policy_on_secrets_is_changed_before_a_program_writes_any(world: Declared) -> None:
    """In an upgrade the older version's would refuse what this version's program writes."""
    policy = {"validating-admission-policy-ebb-secrets", "validating-admission-policy-binding-ebb-secrets"}
    assert before(world, world.one("Job", "job-etcd-certificates-workers")) >= policy


def test_the_gateway_goes_before_the_claims_and_comes_after_their_folders(world: Declared) -> None:
    there = before(world, world.one("Deployment", "deployment-ebb-gateway"))
    assert there >= {"claim-ebb-data", "claim-ebb-output", "claim-ebb-fsx", "prepare-storage", "network-policy-gateway"}


# --- Facts, data sets, jobs -----------------------------------------------------------------------------------------------------


def test_the_cli_understands_the_facts(world: Declared) -> None:
    """What the program writes, as `ebb` and the controller read it; only groups with an image of their own tell it."""
    facts = parse(world.one("ConfigMap", "ebb-platform").inputs["data"])
    assert facts.trainer_image == "example.org/trainer@sha256:1"
    assert [volume.mount_path for volume in facts.volumes] == ["/mnt/data", "/mnt/output", "/mnt/fsx"]
    assert {group.name: group.trainer_image for group in facts.node_groups} == {
        "manager": "",
        "spot-t4-north-a": "",
        "spot-t4-north-b": "",
        "old-north-b": "example.org/trainer@sha256:2",
    }


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param(
            "tiny-imagenet-200",
            ["--url", "https://example.org/t.zip", "--kind", "tiny-imagenet", "--md5", "90528d7ca1a48142e341f4ef8d21d0de"],
            id="md5",
        ),
        pytest.param(
            "birds", ["--url", "https://example.org/birds.tar", "--kind", "image-folder", "--sha256", "ab" * 32], id="sha256"
        ),
    ],
)
def test_a_data_set_is_fetched_onto_the_data_volume_alone(world: Declared, name: str, arguments: list[str]) -> None:
    pod = pods(world)[f"dataset-{name}"]
    (container,) = pod["containers"]
    assert container["command"] == ["tini", "--", "python3", "-m", "trainer.datasets", f"/mnt/data/{name}", *arguments]
    assert container["image"] == "example.org/trainer@sha256:1"
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == ["ebb-data"]


def test_preparations_stay_and_never_run_twice_at_once(world: Declared) -> None:
    for one in world.all("Job"):
        if one.name != "prepare-storage":
            assert "ttlSecondsAfterFinished" not in one.inputs["spec"], one.name
            assert one.inputs["spec"]["podReplacementPolicy"] == "Failed", one.name


def test_data_sets_need_the_folders(world: Declared) -> None:
    assert "prepare-storage" in before(world, world.one("Job", "dataset-birds"))


def test_a_stack_without_data_sets_has_no_such_job() -> None:
    assert set(stack(digits=False, datasets=[]).named("Job")) == {
        "prepare-storage",
        "job-etcd-certificates-servers",
        "job-etcd-certificates-workers",
    }


def test_jobs_start_when_all_is_there(world: Declared) -> None:
    there = before(world, world.one("ElasticJob", "job-tiny-imagenet"))
    assert there >= {
        *("dataset-tiny-imagenet-200", "dataset-birds", "prepare-digits", "prepare-storage"),
        *(
            "deployment-ebb-controller",
            "cluster-autoscaler",
            "gpus",
            "fast-network",
            "etcd",
            "etcd-legacy",
            "role-ebb-researcher",
        ),
        *LIMITS,
    }


def test_jobs_get_the_stacks_images(world: Declared) -> None:
    def image(name: str) -> str:
        template = spec(world, "ElasticJob", name)["replicaSpecs"]["Worker"]["template"]
        return str(template["spec"]["containers"][0]["image"])

    assert image("job-tiny-imagenet") == "example.org/trainer@sha256:1"
    assert image("job-imagenet-fsx") == "example.org/trainer@sha256:2"


def test_size_and_suspension_of_a_job_are_its_researchers(world: Declared) -> None:
    for one in world.all("ElasticJob"):
        assert one.ignore_changes == RESEARCHERS_OWN


def test_all_jobs_go_before_the_claims(world: Declared) -> None:
    crd = world.one("CustomResourceDefinition")
    assert before(world, crd) >= {"claim-ebb-data", "claim-ebb-output", "claim-ebb-fsx", "claim-efs-claim"}
    assert crd.name in before(world, world.one("Deployment", "deployment-ebb-controller"))
