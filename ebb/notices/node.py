"""The Node of this machine on the API server: read it, and write the marks that differ.

    node = OwnNode.in_cluster("ip-10-0-1-7.internal", os.environ)
    node.write(mark)            # again and again, if need be; raises NodeError

A request may change two things of one Node and nothing else: RBAC cannot say so, workloads/manifests/notices.yaml can.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from ebb.api import reclaim
from ebb.api.reclaim import Mark

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_TIMEOUT_SECONDS = 5.0  # of each wait: a fifth of the shortest notice
_ATTEMPTS = 5  # kubelets and controllers write the Node too; five lost races in a row are something else


class NodeError(Exception):
    """The API server did not answer, or refused; the message says what and why."""


class OwnNode:
    """One Node. A connection per request: they are rare, and one that died silently must cost no time."""

    def __init__(self, name: str, host: str, port: int, account: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = f"/api/v1/nodes/{name}", clock
        self._host, self._port, self._account = host, port, account

    @classmethod
    def in_cluster(cls, name: str, environment: Mapping[str, str], account: Path) -> Self:
        """The Node of that name, by the pod's service account. Raises NodeError."""
        try:
            return cls(name, environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"]), account)
        except KeyError as error:
            raise NodeError(f"{error.args[0]} is not set; the kubelet sets it in every pod: run this in one") from None

    def write(self, mark: Mark) -> None:
        """Write the condition and the taint, whichever differs. Raises NodeError."""
        node = self._ask("GET", self._path)
        # the condition first: it has the deadline, and the controller acts on whatever it sees first
        if not reclaim.is_marked(node, mark):
            self._ask("PATCH", f"{self._path}/status", reclaim.patch_condition(mark, self._clock()), _STRATEGIC)
        for attempt in range(1, _ATTEMPTS + 1):
            if reclaim.is_tainted(node) == mark.noticed:
                return
            taints = [reclaim.TAINT] if mark.noticed else []
            try:
                self._ask("PATCH", self._path, reclaim.patch_taints(node, add=taints), _MERGE)
                return
            except _Conflict:
                if attempt == _ATTEMPTS:
                    raise
                node = self._ask("GET", self._path)

    def _ask(self, method: str, path: str, body: object = None, kind: str = "") -> dict[str, Any]:
        question = f"{method} https://{self._host}:{self._port}{path}"
        try:
            trust = ssl.create_default_context(cafile=self._account / "ca.crt")
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=trust)
            # read each time: the kubelet replaces the token before it expires
            headers = {"Authorization": f"Bearer {(self._account / 'token').read_text().strip()}", "Content-Type": kind}
            try:
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            said = json.loads(content)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NodeError(f"{question} failed: {type(error).__name__} {error}") from None
        if answer.status == http.HTTPStatus.CONFLICT:
            raise _Conflict(f"{question} answered 409: the Node changes all the time")
        if answer.status != http.HTTPStatus.OK or not isinstance(said, dict):
            raise NodeError(f"{question} answered {answer.status}: {said.get('message') if isinstance(said, dict) else said}")
        return said


class _Conflict(NodeError):
    """Somebody else wrote first."""
