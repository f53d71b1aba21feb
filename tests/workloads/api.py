"""A real API server with the stack's rules in it, and requests to it as various people. For test_on_api_server.py.

with laid_out(folder, world) as api: ...
api.ask("GET", "/api/v1/nodes")                              # as the cluster's administrator
ada = api.person("ada", "ebb:researchers")                   # by a certificate of hers, as a cloud's identity would be
api.ask("POST", path, body, user="system:serviceaccount:a:b")
"""

import contextlib
import http.client
import json
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.infra.declared import Declared
from tests.testing.kubernetes.pulumi_world import ControlPlane
from tests.workloads.world import Object, objects

# What must be there before the rest can be judged; in this order.
FIRST = ("Namespace", "PriorityClass", "CustomResourceDefinition", "ResourceQuota", "ServiceAccount", "NetworkPolicy")
RULES = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap")


@dataclass(frozen=True)
class Answer:
    status: int
    body: Object
    warnings: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        return f"{self.status} {self.body.get('message', self.body)}"


class Api:
    """Requests to the server with one certificate."""

    def __init__(self, plane: ControlPlane, certificate: str = "admin") -> None:
        self.plane = plane
        context = ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))
        context.load_cert_chain(plane.folder / f"{certificate}.crt", plane.folder / f"{certificate}.key")
        self._context = context
        self._host = json.loads(plane.kubeconfig.read_text())["clusters"][0]["cluster"]["server"].removeprefix("https://")
        self._kinds: dict[str, dict[str, Object]] = {}

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        user: str = "",
        groups: Sequence[str] = (),
    ) -> Answer:
        connection = http.client.HTTPSConnection(self._host, context=self._context, timeout=60)
        connection.putrequest(method, path)
        data = b"" if body is None else json.dumps(body).encode()
        headers = [("Content-Type", kind), ("Content-Length", str(len(data))), ("Accept", "application/json")]
        headers += [("Impersonate-User", user)] if user else []
        for name, value in [*headers, *(("Impersonate-Group", group) for group in groups)]:
            connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        raw = answer.read()
        warnings = [line.split('"')[1] for line in answer.headers.get_all("Warning") or []]
        connection.close()
        with contextlib.suppress(ValueError):
            parsed = json.loads(raw)
            return Answer(answer.status, parsed if isinstance(parsed, dict) else {}, warnings)
        return Answer(answer.status, {"message": raw.decode(errors="replace")[:300]}, warnings)

    def apply(self, item: Object, *, dry_run: bool, manager: str = "test") -> Answer:
        """As the Pulumi program does, with unknown fields refused."""
        query = f"fieldManager={manager}&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return self.ask("PATCH", f"{self.path(item)}?{query}", item, kind="application/apply-patch+yaml")

    def create(self, item: Object, *, dry_run: bool = False) -> Answer:
        path = self.path(item).rpartition("/")[0]
        return self.ask("POST", path + ("?dryRun=All&fieldValidation=Strict" if dry_run else ""), item)

    def path(self, item: Object) -> str:
        version, kind, meta = item["apiVersion"], item["kind"], item["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._kinds.get(version, {}):
            found: list[Object] = self.ask("GET", root).body["resources"]
            self._kinds[version] = {one["kind"]: one for one in found if "/" not in one["name"]}
        known = self._kinds[version][kind]
        scope = f"/namespaces/{meta['namespace']}" if known["namespaced"] else ""
        return f"{root}{scope}/{known['name']}/{meta['name']}"

    def person(self, name: str, group: str) -> "Api":
        """Somebody with a certificate of the cluster's authority."""
        folder = self.plane.folder

        def openssl(*arguments: str) -> None:
            subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

        subject = f"/O={group}/CN={name}"
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt"
        )
        return Api(self.plane, name)

    def kubeconfig(self, name: str) -> Path:
        """For a person of that name."""
        config: Any = json.loads(self.plane.kubeconfig.read_text())
        folder = self.plane.folder
        config["users"][0]["user"] = {"client-certificate": f"{folder}/{name}.crt", "client-key": f"{folder}/{name}.key"}
        path = folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def until(self, what: str, path: str, seconds: float = 60, **wanted: Any) -> None:
        """Wait until the object at a path has these values in its status."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.ask("GET", path)
            status = found.body.get("status", {})
            if found.status == 200 and all(status.get(key) == value for key, value in wanted.items()):
                return
            assert time.monotonic() < deadline, f"{what}: {found.words}"
            time.sleep(0.1)


class Plane(ControlPlane):
    """One that lets privileged pods in where Pod Security does, as every cloud's does: device plugins may be some."""

    def _run(self, name: str, *command: str | Path) -> None:
        super()._run(name, *command, *(("--allow-privileged=true",) if name == "api" else ()))


@contextlib.contextmanager
def laid_out(folder: Path, world: Declared) -> Iterator[Api]:
    """A server that has what comes before pods: namespaces, kinds, limits, rules."""
    plane = Plane(folder)
    with contextlib.ExitStack() as at_last:
        at_last.callback(plane.stop)
        plane.start()
        api = Api(plane)
        for kind in (*FIRST, *RULES):
            for item in objects(world):
                if item["kind"] == kind:
                    made = api.apply(item, dry_run=False)
                    assert made.status in (200, 201), f"{kind} {item['metadata']['name']}: {made.words}"
            if kind == "CustomResourceDefinition":
                await_kind(api)
        for item in objects(world):
            if item["kind"] == "ResourceQuota":
                api.until("quota", api.path(item), hard=item["spec"]["hard"])
        for namespace in ("elastic-job", "ebb-system"):
            api.until("account", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        yield api


def await_kind(api: Api) -> None:
    """The kind ElasticJob; discovery tells of it a little later than the API serves it."""
    deadline = time.monotonic() + 60
    while api.ask("GET", "/apis/elastic.pytorch.org/v1alpha1").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
