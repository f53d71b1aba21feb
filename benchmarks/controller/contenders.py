"""The three controllers that are compared, each as its own users would run it, and the same training job in the words of each.

ours      `python -m ebb.controller`, as shipped
tuned     Kubeflow's training-operator v1.9.3 with TUNED: what one would set for many or large jobs
shipped   the same without flags

The operator is built as an ordinary Go dependency (kubeflow/go.mod); its CRDs come out of the same module. In a cluster it also
checks every job in a webhook; here the webhook configuration that it waits for matches nothing, which spares it that work.
"""

import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.controller.plane import HOME, Plane
from benchmarks.controller.processes import BenchmarkError, Process, eventually, free_port
from devcluster import tools
from devcluster.commands import run
from ebb.api.platform import NAMESPACE
from ebb.kube import ELASTIC_JOBS, NAMESPACES, Conflict, Kube, NotFound, Object, Resource

OPERATOR = tools.Tool(
    name="kubeflow",
    module="github.com/kubeflow/training-operator",
    packages=("github.com/kubeflow/training-operator/cmd/training-operator.v1",),
    programs=("training-operator",),
    modules=Path(__file__).parent,
)
TUNED = ("--kube-api-qps=500", "--kube-api-burst=1000", "--controller-threads=10")
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
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
        """One elastic job that may lose half of its workers; `pod` is the pod template, with one container. One that is `waiting`
        is of a sweep of which one job may run at a time; the operator has no such thing, and there it is suspended."""
        low = max(1, workers // 2)
        if self.is_ours:
            worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": named(pod, "elasticjob-worker")}
            size = {"minReplicas": low, "maxReplicas": workers}
            sweep = {"group": {"name": "sweep", "maxParallel": 1}} if waiting else {}
            spec = {"rdzvEndpoint": "etcd-service:2379", **size, **sweep, "replicaSpecs": {"Worker": worker}}
        else:
            worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": named(pod, "pytorch")}
            policy = {"rdzvBackend": "c10d", "minReplicas": low, "maxReplicas": workers}
            suspended = {"runPolicy": {"suspend": True}} if waiting else {}
            spec = {"elasticPolicy": policy, **suspended, "pytorchReplicaSpecs": {"Worker": worker}}
        kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        return {**kind, "metadata": {"name": name}, "spec": spec}


_KUBEFLOW = "Kubeflow training-operator v1.9.3"
CONTENDERS = (
    Contender(name="ours", title="ElasticJob controller", prefix="", resource=ELASTIC_JOBS),
    Contender(name="tuned", title=f"{_KUBEFLOW}, tuned", prefix="kubeflow_tuned_", resource=PYTORCH_JOBS, flags=TUNED),
    Contender(name="shipped", title=f"{_KUBEFLOW}, as shipped", prefix="kubeflow_", resource=PYTORCH_JOBS),
)


@asynccontextmanager
async def installed(plane: Plane, contenders: tuple[Contender, ...], checkout: Path) -> AsyncIterator[None]:
    """Whatever they need on the cluster is there. `checkout` is where our controller comes from."""
    async with AsyncExitStack() as opened:
        if any(contender.is_ours for contender in contenders):
            await _apply_crds(plane, [checkout / "workloads" / "manifests" / "crd.yaml"])
            with suppress(Conflict):
                await plane.kube.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}})
        if not all(contender.is_ours for contender in contenders):
            _forget_certificates()  # of a run that was killed
            opened.callback(_forget_certificates)
            await _install_operator(plane)
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
    else:
        operator = await tools.ensure(OPERATOR) / "training-operator"
        ports = {f: free_port() for f in ("metrics-bind-address", "health-probe-bind-address", "webhook-server-port")}
        listen = [f"--{flag}={port if flag.endswith('port') else f'127.0.0.1:{port}'}" for flag, port in ports.items()]
        args = [operator, f"--kubeconfig={kubeconfig}", *listen, *contender.flags]
        # Its webhook reads the certificates below TMPDIR, its readiness waits for them below /tmp.
        env = {"MY_POD_NAMESPACE": HOME, "TMPDIR": "/tmp"}  # noqa: S108
        process = await Process.start(contender.name, args, plane.folder, env=env)
    try:
        if not contender.is_ours:
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
    await _apply_crds(plane, await operator_crds())
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


async def operator_crds() -> list[Path]:
    """The files of its kinds, in Go's copy of the module: downloaded here, as nothing else has done so on a fresh machine. (`go
    list` names no folder for a module that is not there yet.) Raises BenchmarkError, CommandError."""
    told = json.loads(await run("go", "mod", "download", "-C", OPERATOR.folder, "-json", OPERATOR.module))
    folder = Path(told["Dir"]) / "manifests" / "base" / "crds"
    found = sorted(folder.glob("kubeflow.org_*.yaml"))
    if not found:
        raise BenchmarkError(f"{folder} has no kinds of the operator: remove it, and Go downloads the module again")
    return found


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
