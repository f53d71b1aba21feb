"""Opens websockets over an API server: the way into pods. What is said on them, streams.py knows.

    socket = await connect(session, entry, path, query, protocols, ask=kube.request)

A token that the server does not know any more is replaced, if there is a newer one, and the handshake tried once more, as for
requests. A socket that is open stays open when its token ends: the server asks for one only at the beginning.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp

from ebb.kube.credentials import Credentials
from ebb.kube.errors import BY_STATUS, KubeError, Unreachable

HANDSHAKE_SECONDS = 30.0  # the API server itself dials the pod's machine, and gives up after that
# Load balancers before API servers forget connections that are silent for 4 minutes (Azure) or 350 s (AWS). An answer may take
# half of this: a pod whose volume is slow reads neither data nor pings meanwhile.
HEARTBEAT_SECONDS = 120.0
CLOSE_SECONDS = 2.0  # that the other side may take to say goodbye
LARGEST_BYTES = 2**25  # of one message; kubelets send 32 KiB
UNAUTHORIZED = 401

Ask = Callable[..., Awaitable[Any]]
Query = Mapping[str, str]


async def connect(
    session: aiohttp.ClientSession, entry: Credentials, path: str, query: Query, protocols: Sequence[str], *, ask: Ask
) -> aiohttp.ClientWebSocketResponse:
    """Raises KubeError for a refusal, in the server's words where `ask` (Kube.request) can get them; Unreachable."""
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            token = await entry.token()
            try:
                return await _handshake(session, entry, path, query, protocols, token=token)
            except aiohttp.WSServerHandshakeError as error:
                if error.status != UNAUTHORIZED or not await entry.renew(token):
                    raise
                return await _handshake(session, entry, path, query, protocols, token=await entry.token())
    except aiohttp.WSServerHandshakeError as error:
        raise await _refusal(error.status, path, query, ask) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        detail = str(error) or type(error).__name__
        raise Unreachable(f"no stream from the Kubernetes API server at {entry.host}: {detail}") from error


async def _handshake(
    session: aiohttp.ClientSession, entry: Credentials, path: str, query: Query, protocols: Sequence[str], *, token: str
) -> aiohttp.ClientWebSocketResponse:
    return await session.ws_connect(
        entry.host + path,
        params=query,
        protocols=protocols,
        headers={"Authorization": token} if token else {},
        proxy=entry.proxy,
        server_hostname=entry.tls_server_name,
        timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
        heartbeat=HEARTBEAT_SECONDS,
        max_msg_size=LARGEST_BYTES,
    )


async def _refusal(status: int, path: str, query: Query, ask: Ask) -> KubeError:
    """aiohttp drops the words of a refused handshake. Asked without one, the server judges name and rights in the same way, and
    runs nothing: it says then that an upgrade is missing."""
    if 200 <= status < 300:
        return KubeError(f"the API server answered {status} in place of a stream: is a proxy before it that knows no websockets?")
    try:
        await ask("GET", path, query=query)
    except KubeError as error:
        if error.status == status:
            return error
    if status >= 500:
        return Unreachable(f"the API server cannot reach the pod ({status}): its machine may be gone, or it has not started yet")
    return BY_STATUS.get(status, KubeError)(f"the API server refused the stream with {status}", status=status)
