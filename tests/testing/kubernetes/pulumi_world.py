"""A bare Kubernetes (etcd, API server, controller manager: no machines) and the real Pulumi engine, for test_pulumi_engine.py.

The program declares what objects.json lists, so that a test changes the stack by writing that file. Everything is in one
temporary folder, on free ports; tools are those of EBB_HOME.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from devcluster import tools
from devcluster.settings import CHECKOUT
from ebb.kube import NAMESPACES, Kube, KubeError, Object
from testing.ports import free_port

Answer = TypeVar("Answer")

LONGEST_SECONDS = 180.0  # of one run of the engine
PROGRAM = """
import json, pathlib
import pulumi
import pulumi_kubernetes

here = pathlib.Path(__file__).parent
settings = json.loads((here / "objects.json").read_text())
provider = pulumi_kubernetes.Provider("cluster", **settings["provider"])
made = {}
for name, one in settings["objects"].items():
    core = "" if "/" in one["apiVersion"] else "core/"
    needs = [made[other] for other in one.pop("needs", [])]
    imported = one.pop("import", None)
    options = pulumi.ResourceOptions(provider=provider, depends_on=needs, import_=imported)
    made[name] = pulumi.CustomResource(f"kubernetes:{core}{one['apiVersion']}:{one['kind']}", name, one, options)
for name, where in settings.get("gets", {}).items():
    found = pulumi_kubernetes.core.v1.ConfigMap.get(name, where, opts=pulumi.ResourceOptions(provider=provider))
    pulumi.export(name, found.data)
"""


class ControlPlane:
    """etcd, kube-apiserver and kube-controller-manager in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {name: free_port() for name in ("etcd", "peer", "api", "manager")}

    def start(self) -> None:
        self._certificates()
        self._start_etcd()
        self.start_api()
        kubernetes = tools.main_ensure("kubernetes")
        self._run(
            "manager", kubernetes / "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
            f"--service-account-private-key-file={self.folder}/sa.key", f"--root-ca-file={self.folder}/ca.crt",
            f"--secure-port={self._ports['manager']}", f"--cert-dir={self.folder}/manager",
        )  # fmt: skip

    def start_api(self) -> None:
        files, kubernetes = self.folder, tools.main_ensure("kubernetes")
        self._run(
            "api", kubernetes / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            f"--secure-port={self._ports['api']}", "--bind-address=127.0.0.1", f"--cert-dir={files}/api",
            f"--tls-cert-file={files}/server.crt", f"--tls-private-key-file={files}/server.key",
            f"--client-ca-file={files}/ca.crt",
            f"--service-account-key-file={files}/sa.key", f"--service-account-signing-key-file={files}/sa.key",
            "--service-account-issuer=https://test", "--service-cluster-ip-range=10.96.0.0/24", "--authorization-mode=RBAC",
        )  # fmt: skip
        self._await_ready()

    def stop_api(self) -> None:
        self._end("api")

    def stop(self) -> None:
        for name in ("manager", "api", "etcd"):
            self._end(name)

    def ask(self, question: Callable[[Kube], Awaitable[Answer]]) -> Answer:
        """One question to the API server."""

        async def asked() -> Answer:
            async with Kube.connect(str(self.kubeconfig)) as kube:
                return await question(kube)

        return asyncio.run(asked())

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        self._run(
            "etcd", tools.main_ensure("etcd36") / "etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
        )  # fmt: skip

    def _await_ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(KubeError):
                self.ask(lambda kube: kube.get(NAMESPACES, None, "default"))
                return
            assert time.monotonic() < deadline, (self.folder / "api.log").read_text()[-3000:]
            time.sleep(0.2)

    def _run(self, name: str, *command: str | Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, start_new_session=True)

    def _end(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _certificates(self) -> None:
        def openssl(*arguments: str) -> None:
            subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test-ca")
        openssl("genrsa", "-out", "sa.key", "2048")
        (self.folder / "names").write_text("subjectAltName=IP:127.0.0.1")
        for name, subject in (("server", "/CN=server"), ("admin", "/O=system:masters/CN=admin")):
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                    "-out", f"{name}.crt", "-extfile", "names")  # fmt: skip
        cluster = {"server": f"https://127.0.0.1:{self._ports['api']}", "certificate-authority": f"{self.folder}/ca.crt"}
        user = {"client-certificate": f"{self.folder}/admin.crt", "client-key": f"{self.folder}/admin.key"}
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}], "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip
        self.kubeconfig.write_text(json.dumps(config))


class Engine:
    """The real engine, as `pulumi` of the launcher starts it, on a program that declares what `declare` was told."""

    def __init__(self, folder: Path, kubeconfig: Path, *, program: str = PROGRAM) -> None:
        self.folder = folder
        self.provider: Object = {"kubeconfig": str(kubeconfig), "cluster_identifier": "one"}
        (folder / "state").mkdir(parents=True)
        (folder / "Pulumi.yaml").write_text("name: ebb\nruntime: python\n")
        (folder / "__main__.py").write_text(program)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "EBB_PULUMI"))}
        self.env = clean | {
            "PATH": f"{CHECKOUT}/devcluster/pulumi/bin:{Path(sys.executable).parent}:{clean['PATH']}",
            "HOME": str(folder),
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.declare({})
        self.pulumi("stack", "init", "test")

    def declare(self, objects: Mapping[str, Object], **more: object) -> None:
        (self.folder / "objects.json").write_text(json.dumps({"provider": self.provider, "objects": objects, **more}))

    def pulumi(self, *arguments: str, ok: bool = True, **env: str) -> str:
        """What it says, on both streams."""
        try:
            done = subprocess.run(self.command(*arguments), cwd=self.folder, env=self.env | env, capture_output=True, text=True,
                                  timeout=LONGEST_SECONDS, check=False)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"pulumi {' '.join(arguments)} did not end:\n{(error.stdout or b'').decode()[-5000:]}") from None
        said = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, f"pulumi {' '.join(arguments)} ended with {done.returncode}:\n{said[-5000:]}"
        return said

    def command(self, *arguments: str) -> list[str]:
        return ["pulumi", *arguments, "--non-interactive", "--color", "never"]

    def up(self, *, ok: bool = True, **env: str) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", "--stack", "test", ok=ok, **env)

    def destroy(self, *, ok: bool = True, **env: str) -> str:
        return self.pulumi("destroy", "--yes", "--skip-preview", "--stack", "test", ok=ok, **env)

    def refresh(self, *, ok: bool = True) -> str:
        return self.pulumi("refresh", "--yes", "--skip-preview", "--stack", "test", ok=ok)

    def preview(self) -> Mapping[str, str]:
        """What would be done: resource name -> operation, for those that change."""
        steps = json.loads(self.pulumi("preview", "--json", "--stack", "test").split("\nwarning:")[0])["steps"]
        return {step["urn"].rsplit("::", 1)[1]: step["op"] for step in steps if step["op"] not in ("same", "read")}

    @property
    def checkpoint(self) -> Path:
        return self.folder / "state" / ".pulumi" / "stacks" / "ebb" / "test.json"

    def resources(self) -> dict[str, Object]:
        latest: Any = json.loads(self.checkpoint.read_text())["checkpoint"]["latest"]
        return {one["urn"].rsplit("::", 1)[1]: one for one in latest.get("resources") or []}


@contextlib.contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
