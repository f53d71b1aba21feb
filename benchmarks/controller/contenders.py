"""The controllers that are compared, each as its own users would run it, and the same training job in the words of each.

ours      `python -m ebb.controller`, as shipped
tuned     Kubeflow's training-operator v1.9.3 with TUNED: what one would set for many or large jobs
shipped   the same without flags
jobset    JobSet v0.12.0 with the same limits of requests as `tuned`; it has no flag for its number of threads

Kubeflow's operator and JobSet are built as ordinary Go dependencies (kubeflow/go.mod, jobset/go.mod); their CRDs come out of the
same modules. In a cluster, both check every job in a webhook. Here the API server never calls one, which spares the operator a
call for each job, and JobSet two for each job and two for each pod; what JobSet's would fill in stands in its job already.

A JobSet makes batch/v1 Jobs, whose pods are made by the Job controller in kube-controller-manager. So the API calls of that one
count, as a part of the path, while memory and processor time of the controller are those of JobSet's own process alone.
"""

import base64
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.controller.plane import HOME, Plane
from benchmarks.controller.processes import BenchmarkError, Process, eventually
from devcluster import tools
from devcluster.commands import run
from ebb.api.platform import NAMESPACE
from ebb.kube import ELASTIC_JOBS, NAMESPACES, Conflict, Kube, NotFound, Object, Resource
from testing.ports import free_port

OPERATOR = tools.Tool(
    name="kubeflow",
    module="github.com/kubeflow/training-operator",
    packages=("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
    programs=("training-operator",),
    modules=Path(__file__).parent,
)
JOBSET = tools.Tool(
    name="jobset",
    module="sigs.k8s.io/jobset",
    packages=("sigs.k8s.io/jobset",),
    programs=("jobset",),
    modules=Path(__file__).parent,
)
LIMITS = ("--kube-api-qps=500", "--kube-api-burst=1000")
TUNED = (*LIMITS, "--controller-threads=10")
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
SECRETS = Resource("", "v1", "secrets", "Secret")
WEBHOOK_NAME = "validator.training-operator.kubeflow.org"  # these two and the folder are constants in the operator
SECRET_NAME = "training-operator-webhook-cert"  # noqa: S105 - a name
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")  # noqa: S108
READY_SECONDS = 90.0


@dataclass(frozen=True, kw_only=True)
class Contender:
    """`prefix` starts its figures' names in the last line; `resource` is the kind of its jobs."""

    name: str
    title: str
    prefix: str
    resource: Resource
    flags: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.resource is ELASTIC_JOBS

    def job(self, name: str, *, workers: int, pod: Object, waiting: bool = False) -> Object:
        """One job of which lost workers are replaced; `pod` is the pod template, with one container. Ours and the operator's are
        elastic, and may lose half of their workers. One that is `waiting` is of a sweep of which one job may run at a time; the
        others have no such thing, and there it is suspended."""
        low = max(1, workers // 2)
        if self.is_ours:
            worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": named(pod, "elasticjob-worker")}
            size = {"minReplicas": low, "maxReplicas": workers}
            sweep = {"group": {"name": "sweep", "maxParallel": 1}} if waiting else {}
            spec = {"rdzvEndpoint": "etcd-service:2379", **size, **sweep, "replicaSpecs": {"Worker": worker}}
        elif self.resource is PYTORCH_JOBS:
            worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": named(pod, "pytorch")}
            policy = {"rdzvBackend": "c10d", "minReplicas": low, "maxReplicas": workers}
            suspended = {"runPolicy": {"suspend": True}} if waiting else {}
            spec = {"elasticPolicy": policy, **suspended, "pytorchReplicaSpecs": {"Worker": worker}}
        else:
            spec = {**_job_set(workers, named(pod, "pytorch")), "suspend": waiting}
        kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        return {**kind, "metadata": {"name": name}, "spec": spec}


_KUBEFLOW = "Kubeflow training-operator v1.9.3"
CONTENDERS = (
    Contender(name="ours", title="ElasticJob controller", prefix="", resource=ELASTIC_JOBS),
    Contender(name="tuned", title=f"{_KUBEFLOW}, tuned", prefix="kubeflow_tuned_", resource=PYTORCH_JOBS, flags=TUNED),
    Contender(name="shipped", title=f"{_KUBEFLOW}, as shipped", prefix="kubeflow_", resource=PYTORCH_JOBS),
    Contender(name="jobset", title="JobSet v0.12.0", prefix="jobset_", resource=JOB_SETS, flags=LIMITS),
)


def _job_set(workers: int, pod: Object) -> Object:
    """The spec of a JobSet with one Indexed Job of all workers, as in JobSet's own PyTorch example. Where the example fails the
    Job with the first lost worker (`backoffLimit: 0`), this one has it replaced, and does not count disruptions, as Kubernetes'
    documentation advises."""
    # The Job controller waits 10 s before it creates a failed pod again, then 20 s, 40 s ... 10 minutes. Under a limit for the
    # whole Job, each lost worker doubles that for all, ignored or not (kubernetes/kubernetes#130881): from the seventh on it is
    # 10 minutes. Under a limit by index, each index has a wait of its own.
    disruption = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    job = {
        "completionMode": "Indexed",
        "parallelism": workers,
        "completions": workers,
        "backoffLimitPerIndex": 100,
        "podFailurePolicy": {"rules": [disruption]},
        "template": {**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}},  # the only one beside such a policy
    }
    return {
        "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}],
        # What its webhook would fill in.
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        "successPolicy": {"operator": "All"},
    }


@asynccontextmanager
async def installed(plane: Plane, contenders: tuple[Contender, ...], checkout: Path) -> AsyncIterator[None]:
    """Whatever they need on the cluster is there. `checkout` is where our controller comes from."""
    kinds = {contender.resource for contender in contenders}
    async with AsyncExitStack() as opened:
        if ELASTIC_JOBS in kinds:
            await _apply_crds(plane, [checkout / "workloads" / "manifests" / "crd.yaml"])
            with suppress(Conflict):
                await plane.kube.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
        if PYTORCH_JOBS in kinds:
            _forget_certificates()  # of a run that was killed
            opened.callback(_forget_certificates)
            await _install_operator(plane)
        if JOB_SETS in kinds:
            await _apply_crds(plane, await module_crds(JOBSET, "config/components/crd/bases"))
        yield


@asynccontextmanager
async def running(contender: Contender, plane: Plane, checkout: Path) -> AsyncIterator[Process]:
    """A new process of the contender, which may not be ready yet."""
    kubeconfig = await plane.account(contender.name)
    if contender.is_ours:
        args: list[str | Path] = [
            sys.executable, "-m", "ebb.controller", "--kubeconfig", kubeconfig, "--namespace", NAMESPACE,
            "--listen", f"127.0.0.1:{free_port()}", *contender.flags,
        ]  # fmt: skip
        process = await Process.start(contender.name, args, plane.folder, cwd=checkout)
    elif contender.resource is PYTORCH_JOBS:
        operator = await tools.ensure(OPERATOR) / "training-operator"
        ports = {f: free_port() for f in ("metrics-bind-address", "health-probe-bind-address", "webhook-server-port")}
        listen = [f"--{flag}={port if flag.endswith('port') else f'127.0.0.1:{port}'}" for flag, port in ports.items()]
        args = [operator, f"--kubeconfig={kubeconfig}", *listen, *contender.flags]
        # Its webhook reads the certificates below TMPDIR, its readiness waits for them below /tmp.
        env = {"MY_POD_NAMESPACE": HOME, "TMPDIR": "/tmp"}  # noqa: S108
        process = await Process.start(contender.name, args, plane.folder, env=env)
    else:
        args = [await tools.ensure(JOBSET) / "jobset", f"--kubeconfig={kubeconfig}", f"--config={_jobset_config(plane)}"]
        process = await Process.start(contender.name, [*args, *contender.flags], plane.folder)
    try:
        if contender.resource is PYTORCH_JOBS:
            await _mount_certificates(plane, process)
        yield process
    finally:
        await process.stop()


def named(pod: Object, container: str) -> Object:
    """The same pod with its one container named as the controller expects it."""
    (only,) = pod["spec"]["containers"]
    return {**pod, "spec": {**pod["spec"], "containers": [{**only, "name": container}]}}


async def _apply_crds(plane: Plane, files: list[Path]) -> None:
    """Create the kinds, and wait until the server serves them."""
    for file in files:
        crd = yaml.safe_load(file.read_text())
        with suppress(Conflict):
            await plane.kube.create(CRDS, None, crd)
        await served(plane.kube, crd)


async def served(kube: Kube, crd: Object) -> None:
    """Until the server answers for the kind: that it is Established comes a moment before."""
    names, versions = crd["spec"]["names"], [item["name"] for item in crd["spec"]["versions"] if item["served"]]
    kinds = [Resource(crd["spec"]["group"], version, names["plural"], names["kind"]) for version in versions]

    async def answers() -> bool:
        try:
            for kind in kinds:
                await kube.list_page(kind, limit=1)
        except NotFound:
            return False
        return True

    await eventually(answers, READY_SECONDS, lambda: f"the API server does not serve {crd['metadata']['name']}")


async def _install_operator(plane: Plane) -> None:
    """All its kinds, as it watches each of them, an empty Secret to keep its certificates in, and the webhook configuration."""
    await _apply_crds(plane, await module_crds(OPERATOR, "manifests/base/crds"))
    with suppress(Conflict):
        await plane.kube.create(SECRETS, HOME, {"metadata": {"name": SECRET_NAME}})
    rule = {"apiGroups": ["nobody.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}
    webhook = {
        "name": "validator.pytorchjob.training-operator.kubeflow.org",
        "clientConfig": {"service": {"name": "training-operator", "namespace": HOME, "path": "/validate"}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule],
    }
    with suppress(Conflict):
        await plane.kube.create(WEBHOOKS, None, {"metadata": {"name": WEBHOOK_NAME}, "webhooks": [webhook]})


async def module_crds(tool: tools.Tool, folder: str) -> list[Path]:
    """The files of a tool's CRDs, in Go's copy of its module: downloaded here, as nothing else has done so on a fresh machine.
    (`go list` names no folder for a module that is not there yet.) Raises BenchmarkError, CommandError."""
    told = json.loads(await run("go", "mod", "download", "-C", tool.folder, "-json", tool.module))
    path = Path(told["Dir"]) / folder
    found = sorted(path.glob("*_*.yaml"))
    if not found:
        raise BenchmarkError(f"{path} has no CRDs of {tool.name}: remove it, and Go downloads the module again")
    return found


def _jobset_config(plane: Plane) -> Path:
    """JobSet's configuration file. It serves the webhooks that nobody calls with the API server's certificate, as its own
    certificates would need the configurations of those webhooks; and it elects no leader, as there is one of it."""
    certificates, file = plane.folder / "jobset-certificates", plane.folder / "jobset.json"
    certificates.mkdir(exist_ok=True)
    for ending in ("crt", "key"):
        shutil.copy(plane.folder / f"server.{ending}", certificates / f"tls.{ending}")
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": "127.0.0.1", "port": free_port(), "certDir": str(certificates)},
        "metrics": {"bindAddress": f"127.0.0.1:{free_port()}", "certDir": str(certificates)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
    }
    file.write_text(json.dumps(config))
    return file


async def _mount_certificates(plane: Plane, process: Process) -> None:
    """Do what a kubelet does with the Secret that the operator fills: write it into the folder where the operator looks."""
    data: dict[str, str] = {}

    async def made() -> bool:
        process.check()
        data.update((await plane.kube.get(SECRETS, HOME, SECRET_NAME)).get("data") or {})
        return "tls.crt" in data

    await eventually(made, READY_SECONDS, lambda: f"the operator made no certificates; the end of its log:\n{process.last_words}")
    CERTIFICATES.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, value in data.items():
        (CERTIFICATES / name).write_bytes(base64.b64decode(value))


def _forget_certificates() -> None:
    for path in CERTIFICATES.glob("*"):
        path.unlink()
    with suppress(OSError):
        CERTIFICATES.rmdir()
        CERTIFICATES.parent.rmdir()
