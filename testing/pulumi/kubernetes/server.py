"""The stand-in as a plugin process: gRPC to the engine, which starts it with its own address and reads a port from our stdout.

Over the SDK's own server it adds three things: refusals as one sentence instead of a Python exception's name, objects that were
written but are not ready (the engine keeps them in the state), and an end when the engine ends, also by kill -9.
"""

import asyncio
import contextlib
import importlib.metadata
import os
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio  # type: ignore[import-untyped]
from pulumi.provider.experimental import provider as rpc
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime import proto
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2

from devcluster.pulumi.stand_in import OPT_IN
from ebb.kube import KubeError
from testing.pulumi.kubernetes import values
from testing.pulumi.kubernetes.cluster import ProviderError, Say
from testing.pulumi.kubernetes.objects import Unsupported
from testing.pulumi.kubernetes.provider import Kubernetes, Unready

PARENT_SECONDS = 1.0
MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own limit


class Servicer(ProviderServicer):
    """The SDK's servicer, with the errors and the Diff request that it leaves out."""

    def __init__(self, provider: Kubernetes, version: str, engine: str) -> None:
        super().__init__([], version, provider, engine)
        self._kubernetes = provider

    async def Diff(self, request: Any, context: Any) -> Any:
        """As the SDK's, but with the old inputs, which its request record drops."""
        old, outputs, new = (
            values.plain(PropertyValue.unmarshal_map(part)) for part in (request.old_inputs, request.olds, request.news)
        )
        token = request.urn.split("::")[-2].split("$")[-1]
        answer = await _refusing(context, self._kubernetes.diff_inputs(token, old, outputs, new))
        return proto.DiffResponse(
            replaces=answer.replaces,
            deleteBeforeReplace=answer.delete_before_replace,
            changes=proto.DiffResponse.DIFF_SOME if answer.changes else proto.DiffResponse.DIFF_NONE,
            diffs=answer.diffs,
            detailedDiff={
                path: proto.PropertyDiff(kind=proto.PropertyDiff.Kind.Value(one.kind.name), inputDiff=True)
                for path, one in answer.detailed_diff.items()
            },
            hasDetailedDiff=True,
        )

    async def DiffConfig(self, request: Any, context: Any) -> Any:
        """As the SDK's, which sends a bool where the engine reads an enumeration."""
        olds, news = (PropertyValue.unmarshal_map(part) for part in (request.old_inputs or request.olds, request.news))
        answer = await self._kubernetes.diff_config(rpc.DiffRequest(request.urn, request.id, olds, news, []))
        changes = proto.DiffResponse.DIFF_SOME if answer.changes else proto.DiffResponse.DIFF_NONE
        return proto.DiffResponse(replaces=answer.replaces, changes=changes)

    async def Check(self, request: Any, context: Any) -> Any:
        return await _refusing(context, super().Check(request, context))

    async def Create(self, request: Any, context: Any) -> Any:
        return await _refusing(context, super().Create(request, context))  # type: ignore[no-untyped-call]

    async def Update(self, request: Any, context: Any) -> Any:
        return await _refusing(context, super().Update(request, context))  # type: ignore[no-untyped-call]

    async def Read(self, request: Any, context: Any) -> Any:
        return await _refusing(context, super().Read(request, context))  # type: ignore[no-untyped-call]

    async def Delete(self, request: Any, context: Any) -> Any:
        return await _refusing(context, super().Delete(request, context))  # type: ignore[no-untyped-call]

    async def Invoke(self, request: Any, context: Any) -> Any:
        return await _refusing(context, super().Invoke(request, context))


async def _refusing(context: Any, answer: Awaitable[Any]) -> Any:
    """The answer; our errors become the RPC's, in their own words. Others are bugs and keep their traceback."""
    try:
        return await answer
    except Unready as error:
        await context.abort(grpc.StatusCode.UNKNOWN, error.reason, _details(error))
    except (ProviderError, KubeError, Unsupported) as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


def _details(error: Unready) -> tuple[tuple[str, bytes]]:
    """By which the engine learns that the object exists but is not ready."""
    failed = provider_pb2.ErrorResourceInitFailed(
        id=error.resource_id,
        properties=PropertyValue.marshal_map(values.wrapped(error.properties)),
        inputs=PropertyValue.marshal_map(values.wrapped(error.inputs)),
        reasons=[error.reason],
    )
    rich = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=error.reason)
    rich.details.add().Pack(failed)
    return (("grpc-status-details-bin", rich.SerializeToString()),)


class Messages:
    """Progress and warnings, shown by the engine beside the resource."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._sending: set[asyncio.Task[None]] = set()
        self._last: dict[str, str] = {}

    def tell(self, urn: str) -> Say:
        """A function for one resource's progress; the same words twice in a row are sent once."""

        def say(message: str) -> None:
            if self._last.get(urn) != message:
                self._last[urn] = message
                self._send(engine_pb2.INFO, urn, message, ephemeral=True)

        return say

    def warn(self, urn: str, message: str) -> None:
        self._send(engine_pb2.WARNING, urn, message, ephemeral=False)

    def _send(self, severity: Any, urn: str, message: str, *, ephemeral: bool) -> None:
        task = asyncio.create_task(
            self._log(engine_pb2.LogRequest(severity=severity, urn=urn, message=message, ephemeral=ephemeral))
        )
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _log(self, request: Any) -> None:
        with contextlib.suppress(grpc.RpcError):  # a lost progress line is no reason to fail
            await self._engine.Log(request)


@asynccontextmanager
async def _served(version: str, engine_address: str) -> AsyncIterator[tuple[Any, int]]:
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]
    async with grpc.aio.insecure_channel(engine_address, options=options) as channel:
        messages = Messages(engine_pb2_grpc.EngineStub(channel))
        provider = Kubernetes(messages.tell, messages.warn)
        server = grpc.aio.server(options=options)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(provider, version, engine_address), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield server, port
        finally:
            await server.stop(grace=None)
            await provider.close()


async def serve(version: str, engine_address: str) -> None:
    """Serve until the engine, our parent, has ended."""
    parent = os.getppid()
    async with _served(version, engine_address) as (server, port):
        print(port, flush=True)
        while os.getppid() == parent:
            if not await server.wait_for_termination(timeout=PARENT_SECONDS):
                continue


def main(arguments: list[str], version: str) -> int:
    """Run as the plugin. Without the opt-in of the launcher it refuses: nobody shall take it for the official one."""
    if os.environ.get(OPT_IN) != "1":
        print(
            "error: this is the stand-in for the Kubernetes plugin that comes with Ebb's local cluster, not the official one. "
            "Run Pulumi through its launcher (source ./env), or install the official plugin: pulumi plugin install resource "
            f"kubernetes. ({OPT_IN}=1 is how the launcher asks for the stand-in.)",
            file=sys.stderr,
        )
        return 1
    engine = next((argument for argument in arguments if not argument.startswith("-")), "")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(version, engine))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], importlib.metadata.version("pulumi-kubernetes")))
