"""The stand-in for pulumi-resource-kubernetes: Pulumi's verbs, put on what cluster.py does and objects.py decides.

A preview touches nothing, and asks the cluster only where a kind of another group may have a namespace. Every state that is
written here carries MARK; a state without it was written by the official plugin, whose bookkeeping differs, and is refused.
"""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pulumi.provider.experimental import provider as rpc

from devcluster.pulumi.stand_in import MARK
from ebb.kube import Kube, KubeconfigError, KubeError, NotFound, Object, Resource, Unreachable
from testing.pulumi.kubernetes import values
from testing.pulumi.kubernetes.changes import Change, compare, delete_first, replacing
from testing.pulumi.kubernetes.cluster import Cluster, ForeignState, NotReady, ProviderError, Say, UnknownKind
from testing.pulumi.kubernetes.objects import (
    CLUSTER_SCOPED,
    SKIP_AWAIT,
    TIMEOUT_SECONDS,
    UNKNOWN,
    Kind,
    Unsupported,
    annotation,
    checked,
    drifted,
    identity,
    imported,
    keeping,
    kind_of,
    manager,
    metadata,
    projection,
    split_identity,
    state,
    visible,
)

WAIT_SECONDS = 600.0  # as the official plugin: what is not ready by then needs a person
DELETE_UNREACHABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
OFFLINE = "Is it running (for the local cluster: python -m devcluster status), and does the kubeconfig name it?"


class Unready(Exception):
    """The object was written but did not become ready: the engine keeps it in the state, and the next update tries again."""

    def __init__(self, resource_id: str, properties: Object, inputs: Object, reason: str) -> None:
        super().__init__(reason)
        self.resource_id, self.properties, self.inputs, self.reason = resource_id, properties, inputs, reason


class Kubernetes(rpc.Provider):
    """`tell(urn)` gives a function that shows progress of one resource, `warn(urn, message)` writes a lasting warning."""

    def __init__(self, tell: Callable[[str], Say], warn: Callable[[str, str], None]) -> None:
        self._tell, self._warn = tell, warn
        self._config: Object = {}
        self._open = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._cluster: Cluster | None = None

    async def check_config(self, request: rpc.CheckRequest) -> rpc.CheckResponse:
        config = values.plain(request.new_inputs)
        unserved = [key for key in ("renderYamlToDirectory", "cluster") if config.get(key)]
        failures = [
            rpc.CheckFailure(key, f"the stand-in has no {key}: leave it out, or install the official plugin.") for key in unserved
        ]
        return rpc.CheckResponse(request.new_inputs, failures)

    async def diff_config(self, request: rpc.DiffRequest) -> rpc.DiffResponse:
        """Another cluster holds other objects: everything on it is to be made anew. All else changes the connection only."""
        old, new = values.plain(request.old_state), values.plain(request.new_inputs)
        moved = old.get("clusterIdentifier") != new.get("clusterIdentifier")
        return rpc.DiffResponse(changes=old != new, replaces=["clusterIdentifier"] if moved else [])

    async def configure(self, request: rpc.ConfigureRequest) -> rpc.ConfigureResponse:
        variables = {key.rpartition(":")[2]: value for key, value in request.variables.items()}
        self._config = {**variables, **values.plain(request.args)}
        # Secrets stay with the engine: it marks an output secret when the input of that name was.
        return rpc.ConfigureResponse(supports_preview=True)

    async def check(self, request: rpc.CheckRequest) -> rpc.CheckResponse:
        inputs, old = values.plain(request.new_inputs), values.plain(request.old_inputs)
        try:
            kind = kind_of(request.type)
        except Unsupported as error:
            return rpc.CheckResponse(request.new_inputs, [rpc.CheckFailure("", str(error))])
        namespace = await self._default_namespace(kind)
        result = checked(kind, inputs, old, urn_name=request.name, seed=request.random_seed, namespace=namespace)
        return rpc.CheckResponse(values.wrapped(result))

    async def diff_inputs(self, token: str, old: Object, outputs: Object, new: Object) -> rpc.DiffResponse:
        """Compare old and new inputs. Fields that ignore_changes names are equal in both: the engine has seen to it."""
        _refuse_foreign(outputs)
        changes = compare(old, new)
        replaces = replacing(kind_of(token), changes, old, new)
        return rpc.DiffResponse(
            changes=bool(changes),
            replaces=replaces,
            delete_before_replace=bool(replaces) and delete_first(old, new),
            diffs=sorted({path.split(".")[0].split("[")[0] for path in changes}),
            detailed_diff={path: rpc.PropertyDiff(_diff_kind(how, path in replaces), True) for path, how in changes.items()},
        )

    async def create(self, request: rpc.CreateRequest) -> rpc.CreateResponse:
        inputs = values.plain(request.properties)
        if request.preview:
            return rpc.CreateResponse(properties=values.wrapped(inputs))
        say, namespace = self._tell(request.urn), metadata(inputs).get("namespace")
        async with self._connected() as cluster:
            resource = await cluster.resource(kind_of(request.type), say, patient=True)
            take_over = self._wants("upsertExistingObjects")
            live = await cluster.create(resource, namespace, inputs, say, manager=manager(request.urn), take_over=take_over)
            live = await self._ready(cluster, resource, live, inputs, say=say, timeout_seconds=request.timeout)
        return rpc.CreateResponse(identity(live), values.wrapped(state(inputs, live)))

    async def update(self, request: rpc.UpdateRequest) -> rpc.UpdateResponse:
        inputs, old = values.plain(request.news), values.plain(request.olds)
        _refuse_foreign(old)
        if request.preview:
            return rpc.UpdateResponse(values.wrapped({**old, **inputs, "metadata": {**metadata(old), **metadata(inputs)}}))
        say, (namespace, name) = self._tell(request.urn), split_identity(request.resource_id)
        async with self._connected() as cluster:
            resource = await cluster.resource(kind_of(request.type), say, patient=True)
            if request.ignore_changes:
                with contextlib.suppress(NotFound):
                    there = await cluster.kube.get(resource, namespace, name)
                    inputs = keeping(inputs, there, request.ignore_changes)
            live = await cluster.write(resource, namespace, inputs, manager=manager(request.urn))
            live = await self._ready(cluster, resource, live, inputs, say=say, timeout_seconds=request.timeout)
        return rpc.UpdateResponse(values.wrapped(state(inputs, live)))

    async def read(self, request: rpc.ReadRequest) -> rpc.ReadResponse:
        """Refresh (the state's inputs come with the request) or import and get (they do not). An empty id: it is gone."""
        old_inputs, old = values.plain(request.inputs), values.plain(request.properties)
        if old_inputs:
            _refuse_foreign(old)
        namespace, name = split_identity(request.resource_id)
        async with self._connected() as cluster:
            try:
                resource = await cluster.resource(kind_of(request.type), self._tell(request.urn), patient=False)
                live = await cluster.kube.get(resource, namespace or self._namespace_of(resource), name)
            except (NotFound, UnknownKind):
                return rpc.ReadResponse()
        if not old_inputs or MARK not in old:
            inputs = imported(live)
            return rpc.ReadResponse(identity(live), values.wrapped(state(inputs, live)), values.wrapped(inputs))
        applied, now = old[MARK]["applied"], projection(live, old_inputs)
        kept = {**visible(live), MARK: old[MARK] | {"applied": now}}
        return rpc.ReadResponse(identity(live), values.wrapped(kept), values.wrapped(drifted(old_inputs, applied, now)))

    async def delete(self, request: rpc.DeleteRequest) -> None:
        old = values.plain(request.properties)
        _refuse_foreign(old)
        say, (namespace, name) = self._tell(request.urn), split_identity(request.resource_id)
        try:
            async with self._connected() as cluster:
                resource = await cluster.resource(kind_of(request.type), say, patient=False)
                live = await cluster.kube.get(resource, namespace, name)
                if metadata(live)["uid"] != metadata(old).get("uid"):
                    return  # of the same name, but not the one that this stack made: that one is gone
                seconds = _seconds(request.timeout, old)
                await cluster.delete(resource, live, say, seconds=seconds)
        except (NotFound, UnknownKind):
            return  # gone, or its kind is, which takes all objects of it along
        except (Unreachable, KubeconfigError) as error:
            if not self._may_forget():
                raise ProviderError(
                    f"{error} If the cluster is gone for good, its objects are too: run the command again with "
                    f"{DELETE_UNREACHABLE}=true, and the stack forgets them."
                ) from error
            self._warn(
                request.urn, f"{kind_of(request.type)} {request.resource_id}: the cluster is unreachable; forgotten, not deleted"
            )

    async def invoke(self, request: rpc.InvokeRequest) -> rpc.InvokeResponse:
        raise ProviderError(f"the stand-in has no function {request.tok}: install the official plugin (docs/pulumi-stand-in.md).")

    async def cancel(self) -> None:
        """The user pressed Ctrl-C: waiting ends, what was written stays in the state."""
        if self._cluster is not None:
            self._cluster.cancelled.set()

    async def close(self) -> None:
        await self._open.aclose()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Cluster]:
        """The connection, opened once; adds to a lost API server what to do about it."""
        async with self._opening:
            if self._cluster is None:
                self._cluster = Cluster(await self._open.enter_async_context(_connect(self._config)))
        try:
            yield self._cluster
        except Unreachable as error:
            raise Unreachable(str(error) if OFFLINE in str(error) else f"{error}. {OFFLINE}") from error

    async def _ready(
        self, cluster: Cluster, resource: Resource, live: Object, inputs: Object, *, say: Say, timeout_seconds: float
    ) -> Object:
        if annotation(inputs, SKIP_AWAIT).lower() == "true":
            return live
        try:
            return await cluster.until_ready(resource, live, say, seconds=_seconds(timeout_seconds, inputs))
        except NotReady as error:
            raise Unready(identity(error.live), state(inputs, error.live), inputs, str(error)) from error
        except KubeError as error:
            raise Unready(
                identity(live), state(inputs, live), inputs, f"lost sight of {identity(live)}: {error}. {OFFLINE}"
            ) from error

    async def _default_namespace(self, kind: Kind) -> str | None:
        default = self._config.get("namespace") or "default"
        if default == UNKNOWN or (kind.own and kind.name in CLUSTER_SCOPED):
            return None
        if kind.own:
            return str(default)
        with contextlib.suppress(KubeError, ProviderError):  # its CRD may come with this very update: then `create` finds out
            async with self._connected() as cluster:
                resource = await cluster.resource(kind, lambda _: None, patient=False)
                return str(default) if resource.namespaced else None
        return None

    def _namespace_of(self, resource: Resource) -> str | None:
        return str(self._config.get("namespace") or "default") if resource.namespaced else None

    def _may_forget(self) -> bool:
        return os.environ.get(DELETE_UNREACHABLE, "").lower() == "true" or self._wants("deleteUnreachable")

    def _wants(self, key: str) -> bool:
        """A switch of the provider; the SDK sends it as text."""
        return str(self._config.get(key, "")).lower() == "true"


def _connect(config: Object) -> contextlib.AbstractAsyncContextManager[Kube]:
    """A connection by the provider's `kubeconfig` (a path or the contents) and `context`; without, by the user's own."""
    kubeconfig, context = config.get("kubeconfig") or None, config.get("context") or None
    if kubeconfig and "\n" in kubeconfig.strip():
        return _connect_by_contents(kubeconfig, context)
    return Kube.connect(kubeconfig and str(Path(kubeconfig).expanduser()), context)


@asynccontextmanager
async def _connect_by_contents(contents: str, context: str | None) -> AsyncIterator[Kube]:
    with tempfile.NamedTemporaryFile("w", prefix="ebb-kubeconfig-") as file:  # mode 0600
        file.write(contents)
        file.flush()
        async with Kube.connect(file.name, context) as kube:
            yield kube


def _refuse_foreign(outputs: Object) -> None:
    if outputs and MARK not in outputs:
        raise ForeignState(
            "this stack was made with the official Kubernetes plugin, and the stand-in keeps another state: put that plugin back "
            "(pulumi plugin install resource kubernetes), or move the stack as docs/pulumi-stand-in.md says."
        )


def _seconds(timeout_seconds: float, inputs: Object) -> float:
    """Seconds to wait: custom_timeouts of the resource, its annotation, or the default."""
    noted = annotation(inputs, TIMEOUT_SECONDS)
    return timeout_seconds or (float(noted) if noted.isdigit() else WAIT_SECONDS)


def _diff_kind(change: Change, replace: bool) -> rpc.PropertyDiffKind:
    return rpc.PropertyDiffKind[change.upper() + ("_REPLACE" if replace else "")]
