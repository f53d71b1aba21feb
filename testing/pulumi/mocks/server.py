"""A mock plugin as a process: gRPC to the engine, which starts it with its own address and reads a port from our stdout.

One program for all packages (plugin/pulumi-resource-*); a package is a module that answers, chosen by the plugin's name. It
refuses to start anywhere but under engine.py: without EBB_PULUMI_ECHO=1, or over a backend that is not a folder under build/ of
this checkout. Every call goes into the file that EBB_PULUMI_ECHO_RECORD names, one JSON line each.
"""

import asyncio
import contextlib
import importlib
import importlib.metadata
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
from google.protobuf import empty_pb2  # type: ignore[import-untyped]
from pulumi.provider.server import ProviderServicer
from pulumi.runtime import proto
from pulumi.runtime.proto import provider_pb2_grpc

from devcluster.settings import CHECKOUT
from testing.pulumi.mocks.package import Asked, Failure, MockError, Object, Package, plain, struct

OPT_IN = "EBB_PULUMI_ECHO"
RECORD = "EBB_PULUMI_ECHO_RECORD"
PARENT_SECONDS = 1.0
MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own limit
MODULES = {
    "aws": "testing.pulumi.mocks.aws",
    "gcp": "testing.pulumi.mocks.gcp",
    "azure-native": "testing.pulumi.mocks.azure",
    "eks": "testing.pulumi.mocks.eks",
    "kubernetes": "testing.pulumi.mocks.kubernetes",
    "command": "testing.pulumi.mocks.command",
    "docker-build": "testing.pulumi.mocks.docker_build",
}


class Servicer(ProviderServicer):
    """The SDK's servicer, which runs remote components (Construct), with everything else answered by a package."""

    def __init__(self, name: str, package: Package, engine: str) -> None:
        components: Any = getattr(package, "components", None)
        super().__init__(components, [], engine)
        self._name, self._package = name, package

    async def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return proto.PluginInfo(version=version_of(self._name))

    async def GetSchema(self, request: Any, context: Any) -> Any:
        return proto.GetSchemaResponse(schema="{}")

    async def CheckConfig(self, request: Any, context: Any) -> Any:
        inputs = plain(request.news)
        self._record("CheckConfig", request.urn, inputs)
        with _refusing(context) as refusal:
            return proto.CheckResponse(inputs=struct(inputs), failures=_failures(self._package.check_config(inputs)))
        return await refusal.sent()

    async def DiffConfig(self, request: Any, context: Any) -> Any:
        """Another region holds other resources; all else changes only how they are reached."""
        old, new = plain(request.old_inputs), plain(request.news)
        moved = [key for key in ("region", "clusterIdentifier") if old.get(key) != new.get(key)]
        changes = proto.DiffResponse.DIFF_SOME if old != new else proto.DiffResponse.DIFF_NONE
        return proto.DiffResponse(changes=changes, replaces=moved)

    async def Configure(self, request: Any, context: Any) -> Any:
        self._package.configure(plain(request.args))
        # Of plain resources, secrets stay with the engine: it marks an output secret when the input of that name was. A component
        # gets everything as the program gave it.
        whole = hasattr(self._package, "components")
        return proto.ConfigureResponse(acceptSecrets=whole, acceptResources=whole, acceptOutputs=whole, supportsPreview=True)

    async def Check(self, request: Any, context: Any) -> Any:
        asked, inputs, old = _asked(request.urn), plain(request.news), plain(request.olds)
        self._record("Check", request.urn, inputs)
        with _refusing(context) as refusal:
            checked, failures = self._package.check(asked, inputs, old, request.randomSeed)
            return proto.CheckResponse(inputs=struct(checked), failures=_failures(failures))
        return await refusal.sent()

    async def Diff(self, request: Any, context: Any) -> Any:
        with _refusing(context) as refusal:
            old, outputs = plain(request.old_inputs), plain(request.olds)
            found = self._package.diff(_asked(request.urn), old, outputs, plain(request.news))
            detailed = {
                path: proto.PropertyDiff(kind=_kind(change, path in found.replaces), inputDiff=True)
                for path, change in found.changes.items()
            }
            return proto.DiffResponse(
                changes=proto.DiffResponse.DIFF_SOME if found.changes else proto.DiffResponse.DIFF_NONE,
                replaces=list(found.replaces), deleteBeforeReplace=found.delete_first, detailedDiff=detailed,
                diffs=sorted({path.split(".")[0].split("[")[0] for path in found.changes}), hasDetailedDiff=True,
            )  # fmt: skip
        return await refusal.sent()

    async def Create(self, request: Any, context: Any) -> Any:
        inputs = plain(request.properties)
        self._record("Create", request.urn, inputs, preview=request.preview)
        with _refusing(context) as refusal:
            resource_id, outputs = self._package.create(_asked(request.urn), inputs, preview=request.preview)
            if not request.preview:
                self._record("Created", request.urn, {"id": resource_id})
            return proto.CreateResponse(id="" if request.preview else resource_id, properties=struct(outputs))
        return await refusal.sent()

    async def Update(self, request: Any, context: Any) -> Any:
        inputs = plain(request.news)
        self._record("Update", request.urn, inputs, preview=request.preview)
        with _refusing(context) as refusal:
            outputs, old = plain(request.olds), plain(request.old_inputs)
            outputs = self._package.update(_asked(request.urn), outputs, old, inputs, preview=request.preview)
            return proto.UpdateResponse(properties=struct(outputs))
        return await refusal.sent()

    async def Read(self, request: Any, context: Any) -> Any:
        """A refresh finds what the state says: nobody else changes a mock."""
        if request.inputs.fields or request.properties.fields:
            return proto.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)
        asked = _asked(request.urn)
        self._record("Read", request.urn, {"id": request.id})
        await context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the mock holds nothing that this stack did not make: {asked.token} {request.id!r} cannot be read or imported here.",
        )

    async def Delete(self, request: Any, context: Any) -> Any:
        self._record("Delete", request.urn, {"id": request.id})
        return empty_pb2.Empty()

    async def Invoke(self, request: Any, context: Any) -> Any:
        arguments = plain(request.args)
        self._record("Invoke", "", arguments, token=request.tok)
        with _refusing(context) as refusal:
            answer = self._package.invoke(request.tok, arguments)
            return proto.InvokeResponse(**{"return": struct(answer)})
        return await refusal.sent()

    async def Construct(self, request: Any, context: Any) -> Any:
        self._record("Construct", "", plain(request.inputs), token=request.type, name=request.name)
        with _refusing(context) as refusal:
            return await super().Construct(request, context)
        return await refusal.sent()

    async def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def _record(self, method: str, urn: str, inputs: Object, **more: object) -> None:
        file = os.environ.get(RECORD)
        if file:
            kind = _asked(urn).token if urn else more.pop("token", "")
            line = {"time": time.time(), "package": self._name, "method": method, "urn": urn, "type": kind, **more}
            with Path(file).open("a") as record:
                record.write(json.dumps({**line, "inputs": inputs}) + "\n")


class _Refusal:
    """An MockError on its way to the engine, in its own words. Other errors are bugs and keep their traceback."""

    def __init__(self, context: Any) -> None:
        self.context, self.error = context, MockError("")

    async def sent(self) -> Any:
        await self.context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(self.error))


@contextlib.contextmanager
def _refusing(context: Any) -> Iterator[_Refusal]:
    refusal = _Refusal(context)
    try:
        yield refusal
    except MockError as error:
        refusal.error = error


def _asked(urn: str) -> Asked:
    _, kinds, name = urn.split("::", 3)[1:]
    return Asked(urn, kinds.rpartition("$")[2], name)


def _failures(found: list[Failure]) -> list[Any]:
    return [proto.CheckFailure(property=one.path, reason=one.reason) for one in found]


def _kind(change: str, replaces: bool) -> Any:
    return proto.PropertyDiff.Kind.Value(change.upper() + ("_REPLACE" if replaces else ""))


def version_of(name: str) -> str:
    """Of the SDK, so that the engine finds the plugin that the program asks for."""
    try:
        return importlib.metadata.version(f"pulumi-{name}")
    except importlib.metadata.PackageNotFoundError:
        return "0.0.0"


async def serve(name: str, package: Package, engine: str) -> None:
    """Serve until the engine asks us to end, or, our parent, has ended by kill -9."""
    parent, ended = os.getppid(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # also where the shell has told its children to ignore SIGINT
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
    server = grpc.aio.server(options=options)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(name, package, engine), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    while os.getppid() == parent and not ended.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), PARENT_SECONDS)
    await server.stop(grace=None)


def refusal(environment: os._Environ[str] | dict[str, str]) -> str | None:
    """Why this process must not serve, if so."""
    if environment.get(OPT_IN) != "1":
        return (
            "this is a mock for tests, not the official plugin: it makes nothing. Use it through `make preview`, or install the "
            f"official plugin: pulumi plugin install. ({OPT_IN}=1 is how testing/pulumi/mocks/engine.py asks for the mock.)"
        )
    url = environment.get("PULUMI_BACKEND_URL", "")
    folder = Path(url.removeprefix("file://")).resolve() if url.startswith("file://") else None
    if folder is None or not folder.is_relative_to((CHECKOUT / "build").resolve()):
        return (
            f"the mock writes only into a state folder under {CHECKOUT / 'build'}, and PULUMI_BACKEND_URL is {url!r}: a real "
            "stack would take its answers for the cloud's. Start it through testing/pulumi/mocks/engine.py."
        )
    return None


def main(name: str, arguments: list[str]) -> int:
    """Run as the plugin of a package."""
    reason = refusal(os.environ)
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        return 1
    package: Package = importlib.import_module(MODULES[name]).package()
    engine = next((argument for argument in arguments if not argument.startswith("-")), "")
    asyncio.run(serve(name, package, engine))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
