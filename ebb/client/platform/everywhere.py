"""The same question to all platforms that a person knows, at once: one that does not answer is a line, not the end.

for answer in await everywhere(list_jobs):
    print(answer.platform, answer.trouble or len(answer.value))
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ebb.api.platform import PlatformError
from ebb.client.errors import ClientError, NoPlatform
from ebb.client.platform import platforms
from ebb.client.platform.ebb import Ebb, Opener, connect
from ebb.kube import Kube, KubeError

T = TypeVar("T")

PATIENCE_SECONDS = 20.0  # a login by a browser or a slow plugin; a platform that is down shall not hold up the others for longer


@dataclass(frozen=True, kw_only=True)
class Answer(Generic[T]):
    """Of one platform. `trouble` says why there is no value; cloud and region are "" then."""

    platform: str
    current: bool
    cloud: str = ""
    region: str = ""
    value: T | None = None
    trouble: str = ""


async def everywhere(
    question: Callable[[Ebb], Awaitable[T]],
    *,
    namespace: str | None = None,
    opener: Opener = Kube.connect,
    patience_seconds: float = PATIENCE_SECONDS,
) -> tuple[Answer[T], ...]:
    """All answers, by name. Raises NoPlatform where no platform is known, or none answers."""
    known = platforms.known()
    if not known:
        raise NoPlatform("no platform is known by a name yet: add one with `ebb platform add NAME --kubeconfig FILE`.")

    async def ask(one: platforms.Known) -> Answer[T]:
        try:
            async with asyncio.timeout(patience_seconds), connect(platform=one.name, namespace=namespace, opener=opener) as ebb:
                value, found = await question(ebb), ebb.platform
        except (ClientError, KubeError, PlatformError) as error:
            return Answer(platform=one.name, current=one.current, trouble=str(error))
        except TimeoutError:
            return Answer(platform=one.name, current=one.current, trouble=f"no answer within {patience_seconds:g} s")
        return Answer(platform=one.name, current=one.current, cloud=found.cloud, region=found.region, value=value)

    return tuple(await asyncio.gather(*map(ask, known)))
