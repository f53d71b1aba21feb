"""The claims of the jobs and the Job that makes their folders: what is asked for, as whom it runs, when it runs again."""

from typing import Any

import pulumi
import pytest
from pulumi_kubernetes import core
from pulumi_kubernetes.provider import Provider as KubernetesProvider

from tests.infra.declared import Declared, declared
from workloads import storage as service
from workloads.cluster import JOBS, ON_DEMAND, SYSTEM, Cluster, InstanceType, NodeGroup, Storage, Volume

MANAGER = NodeGroup(
    name="manager",
    zone="a",
    instance=InstanceType(name="small", cpu=2, memory_gib=8, usd_per_hour=0.1, spot_discount=0.6),
    capacity_type=ON_DEMAND,
    min=1,
    max=1,
    notice_seconds=0,
)
# https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline, capabilities that a container may add.
BASELINE_CAPABILITIES = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}


def volume(name: str, **changes: Any) -> Volume:
    fields: dict[str, Any] = {
        "name": name,
        "claim": f"ebb-{name}",
        "mount_path": f"/mnt/{name}",
        "size_gib": 1,
        "access_mode": "ReadWriteMany",
        "storage_class": pulumi.Output.from_input(""),
    }
    return Volume(**fields | changes)


def wanted(*more: Volume, file_system: str = "fs-1") -> Storage:
    root = volume(
        "efs", claim="efs-claim", volume_name=pulumi.Output.from_input("pv"), annotations={"ebb.dev/volume": file_system}
    )
    return Storage(jobs=(volume("data"), volume("output"), *more), root=root, etcd=volume("etcd"))


def a_cluster() -> Cluster:
    return Cluster(name="test", region="r", provider=KubernetesProvider("cluster", kubeconfig="{}"))


def declare(*more: dict[str, Any], file_system: str = "fs-1") -> Declared:
    """`more`: arguments of further volumes."""

    def all_of_it() -> None:
        cluster, storage = a_cluster(), wanted(*(volume(**one) for one in more), file_system=file_system)
        space = core.v1.Namespace("space", metadata={"name": JOBS}, opts=cluster.options())
        claims = service.claims(cluster, storage, {JOBS: space, SYSTEM: space})
        service.prepare(cluster, storage, "ebb/controller:1", MANAGER, claims)

    return declared(all_of_it)


def prepare(seen: Declared) -> dict[str, Any]:
    template: dict[str, Any] = seen.one("Job").inputs["spec"]["template"]
    return template


def test_the_root_has_a_claim_beside_those_that_workers_mount() -> None:
    claims = declare().named("PersistentVolumeClaim")
    assert sorted(claims) == ["claim-ebb-data", "claim-ebb-output", "claim-efs-claim"]
    root = claims["claim-efs-claim"].inputs
    assert root["metadata"] == {"name": "efs-claim", "namespace": "elastic-job", "annotations": {"ebb.dev/volume": "fs-1"}}
    assert root["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "pv",
    }
    assert "annotations" not in claims["claim-ebb-data"].inputs["metadata"]


def test_the_folders_of_data_and_output_are_made_in_the_root() -> None:
    (container,) = prepare(declare())["spec"]["containers"]
    command = ["install", "--directory", "--owner=1000", "--group=1000", "--mode=0775", "--", "/mnt/efs/data", "/mnt/efs/output"]
    jobs = "/mnt/efs/output/elastic-job"  # a job of another user that made it would close it to all others
    assert container["command"] == [*command, jobs]
    assert container["volumeMounts"] == [{"name": "efs", "mountPath": "/mnt/efs", "readOnly": False}]


def test_a_file_system_of_its_own_is_prepared_too_and_a_read_only_one_is_not() -> None:
    pod = prepare(declare({"name": "fsx"}, {"name": "environment", "read_only": True}))["spec"]
    assert pod["containers"][0]["command"][-4:-1] == ["/mnt/efs/data", "/mnt/efs/output", "/mnt/fsx"]
    assert [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"]] == ["efs-claim", "ebb-fsx"]


def test_it_is_root_with_three_capabilities_that_baseline_allows() -> None:
    pod = prepare(declare())["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"] == {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]}
    assert set(security["capabilities"]["add"]) <= BASELINE_CAPABILITIES
    assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
    assert (pod["automountServiceAccountToken"], pod.get("hostNetwork"), security.get("privileged")) == (False, None, None)


@pytest.mark.parametrize("claim", ["claim-ebb-data", "claim-ebb-output", "claim-efs-claim"])
def test_it_comes_after_the_claims(claim: str) -> None:
    seen = declare()
    assert seen.one("PersistentVolumeClaim", claim).key in seen.before(seen.one("Job"))


def test_it_has_one_name_and_runs_again_only_on_another_file_system() -> None:
    first, same, other = (declare(file_system=one).one("Job").inputs for one in ("fs-1", "fs-1", "fs-2"))
    assert first == same
    assert first["metadata"] == other["metadata"]
    assert first["metadata"]["name"] == "prepare-storage"
    changed = [one["spec"]["template"]["metadata"]["annotations"]["claim.ebb.dev/efs-claim"] for one in (first, other)]
    assert changed == ['{"ebb.dev/volume": "fs-1"}', '{"ebb.dev/volume": "fs-2"}']
