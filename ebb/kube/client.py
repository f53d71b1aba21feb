"""The connection to an API server: see the package's docstring."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp
import orjson

from ebb.kube import sockets
from ebb.kube.credentials import SERVICE_ACCOUNT, Credentials, ServiceAccount
from ebb.kube.errors import BY_STATUS, KubeconfigError, KubeError, Unreachable
from ebb.kube.kinds import PODS, Object, Objects, Resource

REQUEST_SECONDS = 60.0  # no single answer of an API server takes longer; the server's own limit is 60 s
CONNECT_SECONDS = 10.0
LONGEST_RETRY_SECONDS = 60.0  # that a server may ask for: no outage is to outlast its cause by more
UNAUTHORIZED = 401
SHOWN_BYTES = 60  # of an answer that makes no sense

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Kube:
    """A connection to one API server. Make it by `connect`; methods raise the errors drawn above, and only those."""

    def __init__(self, session: aiohttp.ClientSession, entry: Credentials) -> None:
        self._session, self._credentials = session, entry
        self.server = entry.host

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> AsyncIterator["Kube"]:
        """Open a connection; nothing is sent yet. Raises ConfigError."""
        entry = await load(kubeconfig, context)
        try:
            trust = entry.tls()
        except OSError as error:  # ssl.SSLError is one
            raise KubeconfigError(f"the certificates for {entry.host} cannot be used: {error}") from error
        connector = aiohttp.TCPConnector(limit=100, ssl=trust)
        # 2 MiB: an object may be as large as etcd's request limit of 1.5 MiB, and a watch sends it as one line.
        async with aiohttp.ClientSession(connector=connector, read_bufsize=2**21, trust_env=False) as session:
            yield cls(session, entry)

    async def get(self, resource: Resource, namespace: str | None, name: str, subresource: str | None = None) -> Object:
        """Read one object."""
        return await self.request("GET", resource.path(namespace, name, subresource))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> Objects:
        """Read all objects that match the selectors; apiVersion and kind are filled in, as lists leave them out."""
        return (await self.list_with_version(resource, namespace, labels=labels, fields=fields))[0]

    async def list_with_version(
        self, resource: Resource, namespace: str | None = None, *, labels: str | None = None, fields: str | None = None
    ) -> tuple[Objects, str]:
        """As `list`, with the resource version to start a watch from."""
        items, version, _ = await self.list_page(resource, namespace, labels=labels, fields=fields)
        return items, version

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = 0,
        token: str = "",
    ) -> tuple[Objects, str, str]:
        """At most `limit` of them (0: all), the resource version of the whole list, and the token of the next page ("": this is
        the last). Gone: the list is too old to go on with."""
        query = {key: value for key, value in (("limit", str(limit or "")), ("continue", token)) if value}
        answer = await self.request("GET", resource.path(namespace), query=query | _selectors(labels, fields))
        items = [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in answer.get("items") or []]
        return items, answer["metadata"]["resourceVersion"], answer["metadata"].get("continue") or ""

    async def create(self, resource: Resource, namespace: str | None, body: Object, *, dry_run: bool = False) -> Object:
        """Create an object. Conflict (AlreadyExists) if the name is taken."""
        return await self.request("POST", resource.path(namespace), body=body, query={"dryRun": "All"} if dry_run else {})

    async def replace(
        self, resource: Resource, namespace: str | None, name: str, body: Object, subresource: str | None = None
    ) -> Object:
        """Write a whole object; Conflict if metadata.resourceVersion is given and no longer the newest."""
        return await self.request("PUT", resource.path(namespace, name, subresource), body=body)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Object,
        *,
        subresource: str | None = None,
        kind: str = MERGE,
    ) -> Object:
        """Patch an object by a JSON merge patch (or STRATEGIC)."""
        return await self.request("PATCH", resource.path(namespace, name, subresource), body=body, content_type=kind)

    async def apply(
        self, resource: Resource, namespace: str | None, body: Object, *, manager: str, force: bool = True, dry_run: bool = False
    ) -> Object:
        """Server-side apply: create or change only the fields in `body`, as field manager `manager`."""
        query = {"fieldManager": manager, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
        path = resource.path(namespace, body["metadata"]["name"])
        return await self.request("PATCH", path, body=body, content_type=APPLY, query=query)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        grace_seconds: int | None = None,
        uid: str | None = None,
        propagation: str = "Background",
    ) -> None:
        """Ask for deletion; NotFound if it is gone, Conflict if the object of that name has another uid."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        await self.request("DELETE", resource.path(namespace, name), body=body)

    async def evict(self, namespace: str, name: str, grace_seconds: int | None = None) -> None:
        """Evict a pod as a drain does: respects PodDisruptionBudgets (429 as KubeError) and marks it DisruptionTarget."""
        options = {} if grace_seconds is None else {"deleteOptions": {"gracePeriodSeconds": grace_seconds}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}, **options}
        await self.request("POST", PODS.path(namespace, name, "eviction"), body=body)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        version: str,
        labels: str | None = None,
        fields: str | None = None,
        server_seconds: int = 300,
        read_seconds: float = 70,
    ) -> AsyncIterator[tuple[str, Object]]:
        """Yield (ADDED | MODIFIED | DELETED | BOOKMARK, object) after `version` until the server ends the watch.

        Raises Gone when `version` is too old, Unreachable when nothing (not even a bookmark, sent about every minute) came for
        `read_seconds`: a connection that died silently must not look like a quiet cluster.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(server_seconds),
        }
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=read_seconds)
        async with self._open("GET", resource.path(namespace), query | _selectors(labels, fields), limits=limits) as answer:
            async for line in _lines(answer):
                event = self._object(line)
                if event["type"] == "ERROR":
                    raise _refusal(event["object"], int(event["object"].get("code", 500)))
                yield event["type"], {"apiVersion": resource.api_version, "kind": resource.kind, **event["object"]}

    async def logs(
        self,
        namespace: str,
        pod: str,
        *,
        container: str | None = None,
        follow: bool = False,
        timestamps: bool = False,
        since_time: str | None = None,
        tail_lines: int | None = None,
        previous: bool = False,
    ) -> AsyncIterator[str]:
        """Yield the lines of a pod's log; with `follow` until the container ends or the connection breaks (Unreachable)."""
        asked = {
            "container": container,
            "sinceTime": since_time,
            "tailLines": None if tail_lines is None else str(tail_lines),
            "follow": "true" if follow else None,
            "timestamps": "true" if timestamps else None,
            "previous": "true" if previous else None,
        }
        query = {key: value for key, value in asked.items() if value is not None}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=None if follow else REQUEST_SECONDS)
        async with self._open("GET", PODS.path(namespace, pod, "log"), query, limits=limits) as answer:
            async for line in _lines(answer):
                yield line.decode(errors="replace")

    @asynccontextmanager
    async def socket(
        self, path: str, query: Mapping[str, str], protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A websocket into a pod: streams.py speaks on it."""
        async with await sockets.connect(self._session, self._credentials, path, query, protocols, ask=self.request) as socket:
            yield socket

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the JSON object of the answer."""
        limits = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._open(method, path, query or {}, body=body, content_type=content_type, limits=limits) as answer:
            return self._object(await answer.read())

    def _object(self, raw: bytes) -> Object:
        """An answer, or an event of a watch. Unreachable: it is a login page, half of what the server sent, or the like."""
        try:
            parsed = orjson.loads(raw)
        except orjson.JSONDecodeError:
            parsed = None
        if not isinstance(parsed, dict):
            start = raw[:SHOWN_BYTES].decode(errors="replace")
            raise Unreachable(
                f"{self.server} does not answer as a Kubernetes API server does, but with {start!r}: "
                "check the address, and whether a proxy or a login page is in between"
            )
        return parsed

    @asynccontextmanager
    async def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        *,
        limits: aiohttp.ClientTimeout,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One exchange; every way in which it can fail becomes one of our errors, also while the caller reads the answer.

        A token that the server does not know any more is replaced, if there is a newer one, and the request sent once more: the
        server did nothing for the first.
        """
        headers = {"Content-Type": content_type, "Accept": "application/json, */*"}
        data = None if body is None else orjson.dumps(body)
        try:
            for attempt in (1, 2):
                token = await self._credentials.token()
                if token:
                    headers["Authorization"] = token
                async with self._session.request(
                    method,
                    self.server + path,
                    params=query,
                    headers=headers,
                    timeout=limits,
                    proxy=self._credentials.proxy,
                    data=data,
                    server_hostname=self._credentials.tls_server_name,
                ) as answer:
                    if answer.status == UNAUTHORIZED and attempt == 1 and await self._credentials.renew(token):
                        continue
                    if answer.status >= 400:
                        status, after = _status_of(await answer.text(errors="replace")), answer.headers.get("Retry-After", "")
                        raise _refusal(status, answer.status, after)
                    yield answer
                    return
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            detail = str(error) or type(error).__name__
            raise Unreachable(f"no answer from the Kubernetes API server at {self.server}: {detail}") from error


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    return {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Lines of any length: the reader's own line iterator refuses those longer than its buffer."""
    rest = b""
    async for chunk in answer.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
    if rest:
        yield rest


def _status_of(text: str) -> Object:
    try:
        parsed = orjson.loads(text)
    except ValueError:
        parsed = None
    return parsed if isinstance(parsed, dict) else {"message": text.strip()[:300]}


def _refusal(status: Object, code: int, retry_after: str = "") -> KubeError:
    """`retry_after`: the header, which an event inside a watch has none of: there the status says the same."""
    message = status.get("message") or f"the API server answered {code}"
    told = (status.get("details") or {}).get("retryAfterSeconds") or 0
    seconds = float(retry_after) if retry_after.isdecimal() else float(told)
    return BY_STATUS.get(code, KubeError)(
        message, status=code, reason=status.get("reason") or "", retry_seconds=min(seconds, LONGEST_RETRY_SECONDS)
    )


async def load(kubeconfig: str | None, context: str | None) -> Credentials:
    """The named kubeconfig, else a pod's service account, else $KUBECONFIG or ~/.kube/config. Raises ConfigError."""
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists():
        return ServiceAccount()
    from ebb.kube import kubeconfig as files  # noqa: PLC0415 - a pod needs none of it

    return await files.load(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config", context)
