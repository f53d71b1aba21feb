"""A worker's pod and the job's Service: what is filled in, and that what the author wrote wins. More is in test_containers.py."""

from typing import Any

import pytest

from ebb.api.platform import Taint, Volume
from ebb.api.spec import Job
from ebb.controller.reconciler.pods import PodPlacement, job_service, leave_seconds, worker_pod
from tests.builders import UID, make_job
from tests.pod_security import violations

Object = dict[str, Any]
SPOT = Taint(key="ebb.dev/capacity-type", value="spot", effect="NoSchedule")
GPU = Taint(key="nvidia.com/gpu", value="present", effect="NoSchedule")
DATA = Volume(name="data", claim="ebb-data", mount_path="/mnt/data", read_only=False)
LABELLED: Object = {"key": "ebb.dev/node-group", "operator": "Exists"}
NO_MANAGER: Object = {"key": "ebb.dev/node-group", "operator": "NotIn", "values": ["manager"]}
ENVIRONMENT = Volume(name="environment", claim="ebb-environment", mount_path="/opt/ebb/site-packages", read_only=True)


WORKERS = {"group-name": "elastic.pytorch.org", "job-name": "digits", "replica-type": "worker"}
DOMAINS = [f"d{number}.example.org" for number in range(32)]
LONG = [f"{'x' * 63}.{letter}.example.org" for letter in "abcdefghijklmnopqrstuvwxyz"[:26]]


def pod_of(
    job: Object, *, index: int = 1, attempt: int = 0, pod_placement: PodPlacement | None = None, priority_class: str = ""
) -> Object:
    return worker_pod(
        Job.of(job), index=index, attempt=attempt, pod_placement=pod_placement or PodPlacement(), priority_class=priority_class
    )


def spec_of(job: Object, **rest: Any) -> Object:
    spec: Object = pod_of(job, **rest)["spec"]
    return spec


CERTIFICATE = ("ca.crt", "tls.crt", "tls.key")


def test_the_whole_pod() -> None:
    job = make_job(container={"resources": {"requests": {"cpu": "3600m"}, "limits": {"nvidia.com/gpu": 1, "memory": "12Gi"}}})
    pod_placement = PodPlacement(
        selector={"topology.kubernetes.io/zone": "local-a"},
        taints=(GPU,),
        volumes=(DATA,),
        memory_bytes=2**34,
        grace_seconds=108,
        open_to_all=True,
    )
    assert pod_of(job, pod_placement=pod_placement) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "digits-worker-1",
            "namespace": "elastic-job",
            "labels": {
                "group-name": "elastic.pytorch.org",
                "job-name": "digits",
                "replica-type": "worker",
                "replica-index": "1",
                "ebb.dev/job": "digits",
            },
            "annotations": {
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "true",
                "ebb.dev/attempt": "0",
                # Another one means another VERSION (spec_changes.py): else every update would start all jobs again.
                "ebb.dev/spec": "1.e25a62eeff4782b0",
            },
            "ownerReferences": [
                {
                    "apiVersion": "elastic.pytorch.org/v1alpha1",
                    "kind": "ElasticJob",
                    "name": "digits",
                    "uid": UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 108,
            "hostname": "digits-worker-1",
            "subdomain": "digits-workers",
            "dnsConfig": {"searches": ["digits-workers.elastic-job.svc.cluster.local"]},
            "automountServiceAccountToken": False,
            "nodeSelector": {"topology.kubernetes.io/zone": "local-a"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [LABELLED, NO_MANAGER]}]
                    }
                }
            },
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "6144Mi"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "ebb-data"}},
                {
                    "name": "ebb-etcd",
                    "secret": {"secretName": "ebb-etcd", "items": [{"key": key, "path": key} for key in CERTIFICATE]},
                },
            ],
            "containers": [
                {
                    "name": "elasticjob-worker",
                    "image": "trainer",
                    "args": [
                        "--rdzv_backend=etcd3",
                        "--rdzv_endpoint=etcd-service:2379",
                        f"--rdzv_id=digits-{UID[:8]}",
                        "--nnodes=1:4",
                        "--nproc_per_node=1",
                        "-m",
                        "trainer",
                    ],
                    "env": [
                        {"name": "PET_RDZV_BACKEND", "value": "etcd3"},
                        {"name": "PET_RDZV_ENDPOINT", "value": "etcd-service:2379"},
                        {"name": "PET_RDZV_ID", "value": f"digits-{UID[:8]}"},
                        {"name": "PET_NNODES", "value": "1:4"},
                        {"name": "PET_NPROC_PER_NODE", "value": "1"},
                        {"name": "EBB_JOB", "value": "digits"},
                        {"name": "EBB_JOB_UID", "value": UID},
                        {"name": "EBB_NAMESPACE", "value": "elastic-job"},
                        {"name": "EBB_WORKER_INDEX", "value": "1"},
                        {"name": "EBB_OUTPUT_DIR", "value": f"/mnt/output/elastic-job/digits-{UID[:8]}"},
                        {"name": "EBB_METRICS_PORT", "value": "9400"},
                        {"name": "EBB_PLANNED_WORKERS", "value": "4"},
                        {"name": "EBB_LAUNCHER_PORT", "value": "9401"},
                        {"name": "EBB_ETCD_TLS", "value": "/etc/ebb/etcd"},
                        {"name": "NCCL_SOCKET_IFNAME", "value": "^lo,docker"},
                        {"name": "GLOO_SOCKET_IFNAME", "value": "eth0"},
                        {"name": "OMP_NUM_THREADS", "value": "3"},
                        {"name": "PET_LOCAL_ADDR", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                        {"name": "EBB_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                        {
                            "name": "EBB_CPU_REQUEST",
                            "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}},
                        },
                    ],
                    "resources": {"requests": {"cpu": "3600m"}, "limits": {"nvidia.com/gpu": 1, "memory": "12Gi"}},
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [
                        {"name": "shm", "mountPath": "/dev/shm"},
                        {"name": "data", "mountPath": "/mnt/data"},
                        {"name": "ebb-etcd", "mountPath": "/etc/ebb/etcd", "readOnly": True},
                    ],
                }
            ],
        },
    }


def test_the_whole_service() -> None:
    assert job_service(Job.of(make_job())) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "digits-workers",
            "namespace": "elastic-job",
            "labels": {**WORKERS, "ebb.dev/job": "digits"},
            "ownerReferences": pod_of(make_job())["metadata"]["ownerReferences"],
        },
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": WORKERS},
    }


def test_every_worker_is_the_services() -> None:
    labels = [pod_of(make_job(), index=index)["metadata"]["labels"] for index in (0, 3)]
    assert all(WORKERS.items() <= found.items() for found in labels)


OURS = "digits-workers.elastic-job.svc.cluster.local"
HOSTS: dict[str, tuple[Object, Object]] = {
    "silent": ({}, {"hostname": "digits-worker-1", "subdomain": "digits-workers", "searches": [OURS]}),
    "its own host name": ({"hostname": "mine"}, {"hostname": "mine", "subdomain": "digits-workers", "searches": [OURS]}),
    "its own subdomain": ({"subdomain": "mine"}, {"hostname": "digits-worker-1", "subdomain": "mine", "searches": [OURS]}),
    "its own domains": ({"dnsConfig": {"searches": ["a.b"]}}, {"searches": ["a.b", OURS]}),
    "ours among them": ({"dnsConfig": {"searches": [OURS, "a.b"]}}, {"searches": [OURS, "a.b"]}),
    "31 of 32 domains": ({"dnsConfig": {"searches": DOMAINS[:31]}}, {"searches": [*DOMAINS[:31], OURS]}),
    "as many as Kubernetes takes": ({"dnsConfig": {"searches": DOMAINS}}, {"searches": DOMAINS}),
    "as long as Kubernetes takes": ({"dnsConfig": {"searches": LONG}}, {"searches": LONG}),
}


@pytest.mark.parametrize(("pod", "expected"), HOSTS.values(), ids=HOSTS)
def test_bare_names_of_workers_resolve(pod: Object, expected: Object) -> None:
    spec = spec_of(make_job(pod=pod))
    found = {"hostname": spec["hostname"], "subdomain": spec["subdomain"], "searches": spec["dnsConfig"]["searches"]}
    assert found == {**found, **expected}


def test_other_words_about_names_are_kept() -> None:
    config = {"options": [{"name": "ndots", "value": "2"}], "nameservers": ["10.0.0.1"]}
    assert spec_of(make_job(pod={"dnsConfig": config}))["dnsConfig"] == {**config, "searches": [OURS]}


GRACE: dict[str, tuple[Object, PodPlacement, int]] = {
    "nothing known": ({}, PodPlacement(), 30),
    "the machine's": ({}, PodPlacement(grace_seconds=108), 108),
    "the author's": ({"terminationGracePeriodSeconds": 7}, PodPlacement(grace_seconds=108), 7),
    "the author's 0": ({"terminationGracePeriodSeconds": 0}, PodPlacement(grace_seconds=108), 0),
    "nothing behind the key": ({"terminationGracePeriodSeconds": None}, PodPlacement(grace_seconds=108), 108),
}


@pytest.mark.parametrize(("pod", "pod_placement", "seconds"), GRACE.values(), ids=GRACE)
def test_time_to_leave(pod: Object, pod_placement: PodPlacement, seconds: int) -> None:
    assert spec_of(make_job(pod=pod), pod_placement=pod_placement)["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(("notice", "seconds"), [(120, 108), (105, 94), (60, 54), (30, 25), (15, 10), (6, 1), (3, 1), (0, 30)])
def test_a_notice_less_a_margin(notice: int, seconds: int) -> None:
    assert leave_seconds(notice) == seconds


MINE = {"priorityClassName": "mine", "priority": 10, "preemptionPolicy": "PreemptLowerPriority"}
RANKS: dict[str, tuple[Object, str | None, str, Object]] = {
    # template, the job's class, the planner's -> what the pod says
    "nothing said": ({}, None, "", {}),
    "the job's": ({}, "high", "", {"priorityClassName": "high"}),
    "the template's before the job's": (MINE, "high", "", MINE),
    "the planner's before the job's": ({}, "high", "elastic", {"priorityClassName": "elastic"}),
    "the planner's before the template's": (MINE, "high", "elastic", {"priorityClassName": "elastic"}),
}


@pytest.mark.parametrize(("pod", "own", "planned", "expected"), RANKS.values(), ids=RANKS)
def test_priority(pod: Object, own: str | None, planned: str, expected: Object) -> None:
    job = make_job(pod=pod, low=1, priorityClassName=own)
    spec = spec_of(job, priority_class=planned)
    assert {key: spec[key] for key in MINE if key in spec} == expected


MARKS: dict[str, tuple[Object, tuple[str, str]]] = {
    "no autoscaler removes its machine": ({}, ("false", "true")),
    "unless the author lets it": (
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "karpenter.sh/do-not-disrupt": "5m"},
        ("true", "5m"),
    ),
}


@pytest.mark.parametrize(("annotations", "expected"), MARKS.values(), ids=MARKS)
def test_marks_for_autoscalers(annotations: Object, expected: tuple[str, str]) -> None:
    job = make_job()
    job["spec"]["replicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": annotations}
    found = pod_of(job)["metadata"]["annotations"]
    assert (found["cluster-autoscaler.kubernetes.io/safe-to-evict"], found["karpenter.sh/do-not-disrupt"]) == expected


SILENT = {"seccompProfile": {"type": "RuntimeDefault"}}, {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SECURITY: dict[str, tuple[Object, Object, Object, Object]] = {
    # the template's pod and container -> the pod's and the container's
    "silent": ({}, {}, *SILENT),
    "nothing behind the key": ({"securityContext": None}, {"securityContext": None}, *SILENT),
    "only added to": (
        {"securityContext": {"fsGroup": 1000}},
        {"securityContext": {"runAsUser": 1000}},
        {"fsGroup": 1000, **SILENT[0]},
        {"runAsUser": 1000, **SILENT[1]},
    ),
    "the author's": (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        {"securityContext": {"allowPrivilegeEscalation": True, "capabilities": {"add": ["SYS_PTRACE"]}}},
        {"seccompProfile": {"type": "Unconfined"}},
        {"allowPrivilegeEscalation": True, "capabilities": {"add": ["SYS_PTRACE"]}},
    ),
    "privileged may not be told otherwise": ({}, {"securityContext": {"privileged": True}}, SILENT[0], {"privileged": True}),
}


@pytest.mark.parametrize(("pod", "container", "of_pod", "of_container"), SECURITY.values(), ids=SECURITY)
def test_security_where_the_template_is_silent(pod: Object, container: Object, of_pod: Object, of_container: Object) -> None:
    spec = spec_of(make_job(pod=pod, container=container))
    assert (spec["securityContext"], spec["containers"][0]["securityContext"]) == (of_pod, of_container)


@pytest.mark.parametrize("said", [True, False])
def test_a_token_is_mounted_only_where_asked_for(said: bool) -> None:
    assert spec_of(make_job(pod={"automountServiceAccountToken": said}))["automountServiceAccountToken"] is said


def test_a_toleration_that_is_there_is_enough() -> None:
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    spec = pod_of(make_job(pod={"tolerations": tolerations}), pod_placement=PodPlacement(taints=(GPU, SPOT)))["spec"]
    assert [item["key"] for item in spec["tolerations"]] == ["nvidia.com/gpu", "ebb.dev/capacity-type"]


def test_labels_and_annotations_of_the_template_are_kept_but_ours_win() -> None:
    job = make_job()
    template = job["spec"]["replicaSpecs"]["Worker"]["template"]
    template["metadata"] = {"labels": {"team": "vision", "job-name": "x"}, "annotations": {"note": "a"}}
    metadata = pod_of(job)["metadata"]
    assert (metadata["labels"]["team"], metadata["labels"]["job-name"], metadata["annotations"]["note"]) == (
        "vision",
        "digits",
        "a",
    )


@pytest.mark.parametrize("owner", ["ada", ""])
def test_a_pod_is_its_jobs_owners_whatever_the_template_says(owner: str) -> None:
    job = make_job()
    job["metadata"]["annotations"] = {"ebb.dev/owner": owner} if owner else {}
    job["spec"]["replicaSpecs"]["Worker"]["template"]["metadata"] = {"annotations": {"ebb.dev/owner": "bob"}}
    assert pod_of(job)["metadata"]["annotations"].get("ebb.dev/owner", "") == owner


def test_a_template_that_says_it_is_not_root_passes_pod_security_restricted() -> None:
    job = make_job(pod={"securityContext": {"runAsNonRoot": True}})
    assert violations(pod_of(job, pod_placement=PodPlacement(taints=(GPU, SPOT), volumes=(DATA, ENVIRONMENT)))["spec"]) == []


def test_making_a_pod_does_not_change_the_job() -> None:
    job = Job.of(make_job(pod={"nodeSelector": {"a": "b"}}))
    first = worker_pod(job, index=0, attempt=0, pod_placement=PodPlacement(selector={"c": "d"}, taints=(GPU,), volumes=(DATA,)))
    assert (
        worker_pod(job, index=0, attempt=0, pod_placement=PodPlacement(selector={"c": "d"}, taints=(GPU,), volumes=(DATA,)))
        == first
    )
    assert job.worker.template["spec"]["nodeSelector"] == {"a": "b"}


def test_new_workers_stay_off_machines_that_are_given_up() -> None:
    term = spec_of(make_job(), pod_placement=PodPlacement(shunned=("n1", "n2")))["affinity"]["nodeAffinity"]
    assert term["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {
            "matchFields": [
                {"key": "metadata.name", "operator": "NotIn", "values": ["n1"]},
                {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]},
            ],
        }
    ]


def test_a_worker_that_nothing_has_to_be_said_of_has_no_affinity() -> None:
    assert "affinity" not in spec_of(make_job())


def test_no_term_of_an_own_affinity_lets_a_worker_onto_the_platforms_machine() -> None:
    own: Object = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    fields: Object = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [own, fields]}}
    spec = spec_of(
        make_job(pod={"affinity": {"nodeAffinity": required, "podAffinity": {"x": 1}}}),
        pod_placement=PodPlacement(open_to_all=True),
    )
    affinity = spec["affinity"]
    assert affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [*own["matchExpressions"], LABELLED, NO_MANAGER]},
        {**fields, "matchExpressions": [LABELLED, NO_MANAGER]},
    ]
    assert affinity["podAffinity"] == {"x": 1}
