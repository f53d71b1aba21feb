"""Builds one image with a quick task of the container registry, and waits for it: what `pulumi up` runs for a changed image.

    python -m infra.clouds.azure.acr --subscription 0123... --group ebb-dev --registry ebbdev1a2b3c4d \\
        --repository trainer --tag default.1a2b3c4d5e6f \\
        --dockerfile trainer/Dockerfile --source ebb --source trainer --argument BASE=...

The sources are packed and sent to the registry's own store. stdout is {"digest": "sha256:...", "compressed_mb": 123.4}. The rest
is the frame's: infra/builds.py.
"""

import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra import builds, images
from infra.builds import MB, BuildError, Clock
from infra.clouds.azure.rest import ENDPOINT, Arm, Refused, answered, cli_token
from infra.config import ROOT

# Of the task API (https://learn.microsoft.com/rest/api/containerregistry/tasks/registries/schedule-run).
VERSION = "2019-06-01-preview"
BUILD_SECONDS = 3600
RUNNING = ("Queued", "Started", "Running")


@dataclass(frozen=True, kw_only=True)
class Request:
    """One image. `content`: the packed sources; `arguments`: KEY=VALUE."""

    group: str
    registry: str
    repository: str
    tag: str
    dockerfile: str
    content: bytes
    arguments: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"/resourceGroups/{self.group}/providers/Microsoft.ContainerRegistry/registries/{self.registry}"


@dataclass(frozen=True, kw_only=True)
class World:
    """Services that a build touches. `send` puts a blob at an address, `read` gets the text at one, `stored` looks up a tag."""

    arm: Arm
    stored: Callable[[Request], dict[str, Any] | None]
    send: Callable[[str, bytes], None]
    read: Callable[[str], str]
    clock: Clock = field(default_factory=Clock)


class Task(builds.Service):
    """See infra.builds.Service."""

    noun = "run"

    def __init__(self, world: World, request: Request) -> None:
        self._world, self._request = world, request
        self.repository, self.tag = request.repository, request.tag

    def stored(self) -> dict[str, Any] | None:
        return self._world.stored(self._request)

    def start(self, say: Callable[[str], None], clock: Clock) -> str:
        place = self._world.arm.post(f"{self._request.path}/listBuildSourceUploadUrl", VERSION)
        self._world.send(place["uploadUrl"], self._request.content)
        pairs = [one.partition("=") for one in self._request.arguments]
        run = self._world.arm.post(
            f"{self._request.path}/scheduleRun",
            VERSION,
            {
                "type": "DockerBuildRequest",
                "isArchiveEnabled": False,
                "sourceLocation": place["relativePath"],
                "dockerFilePath": self._request.dockerfile,
                "imageNames": [f"{self._request.repository}:{self._request.tag}"],
                "isPushEnabled": True,
                "noCache": False,
                "arguments": [{"name": name, "value": value, "isSecret": False} for name, _, value in pairs],
                "platform": {"os": "Linux", "architecture": "amd64"},
                "agentConfiguration": {"cpu": 2},
                "timeout": BUILD_SECONDS,
            },
        )
        return str(run["properties"]["runId"])

    def phase(self, number: str) -> str | None:
        status = str(self._world.arm.get(f"{self._request.path}/runs/{number}", VERSION)["properties"]["status"])
        if status == "Succeeded":
            return None
        if status not in RUNNING:
            lines = [f"{self.title}: run {number} ended: {status.lower()}", *self.log(number, builds.TAIL_LINES)]
            raise BuildError("\n  | ".join(lines))
        return status.lower()

    def stop(self, number: str) -> None:
        self._world.arm.post(f"{self._request.path}/runs/{number}/cancel", VERSION)

    def log(self, number: str, count: int) -> list[str]:
        try:
            text = self._world.read(self._world.arm.post(f"{self._request.path}/runs/{number}/listLogSasUrl", VERSION)["logLink"])
        except (Refused, KeyError):
            return []
        return builds.tail(text.splitlines(), count)


def build(world: World, request: Request, say: Callable[[str], None]) -> dict[str, Any]:
    """The image's digest and compressed size. Raises BuildError, Refused."""
    return builds.build(Task(world, request), say, world.clock)


def stored(request: Request, *, registry: str, token: Callable[[str], str] = cli_token) -> dict[str, Any] | None:
    """The image that the registry has under the tag. It takes Entra's token for one of its own
    (https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md at 048a81e318f1). `registry`: its address."""
    service = urllib.parse.urlsplit(registry).netloc
    form = {"grant_type": "access_token", "service": service, "access_token": token(ENDPOINT)}
    refresh = _posted(f"{registry}/oauth2/exchange", form)["refresh_token"]
    scope = f"repository:{request.repository}:metadata_read"
    form = {"grant_type": "refresh_token", "service": service, "scope": scope, "refresh_token": refresh}
    headers = {"Authorization": f"Bearer {_posted(f'{registry}/oauth2/token', form)['access_token']}"}
    base = f"{registry}/acr/v1/{request.repository}"
    try:
        tag = answered(urllib.request.Request(f"{base}/_tags/{request.tag}", headers=headers))  # noqa: S310 - the registry's
        digest = tag["tag"]["digest"]
        image = answered(urllib.request.Request(f"{base}/_manifests/{digest}", headers=headers))  # noqa: S310 - the same
    except Refused as error:
        if error.absent:
            return None
        raise
    return {"digest": digest, "compressed_mb": round(image["manifest"]["imageSize"] / MB, 1)}


def _posted(url: str, form: dict[str, str]) -> dict[str, Any]:
    return answered(urllib.request.Request(url, urllib.parse.urlencode(form).encode(), method="POST"))  # noqa: S310 - the registry's


def send(url: str, content: bytes) -> None:
    """To an address that the registry gives out for the occasion."""
    headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/gzip"}
    answered(urllib.request.Request(url, content, headers, method="PUT"))  # noqa: S310 - the registry's


def read(url: str) -> str:
    """The log so far. Raises Refused."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - the registry's
            return str(answer.read().decode(errors="replace"))
    except OSError as error:
        raise Refused("NoLog", str(error)) from error


def main(arguments: Sequence[str] | None = None, world: World | None = None) -> int:
    parser = builds.parser(
        __spec__.name,
        "Build one image in the container registry.",
        "digest and compressed_mb",
        subscription="of the registry",
        group="the resource group of the registry",
        registry="the registry's name",
        repository="what the image is called in it",
    )
    parser.add_argument(
        "--source", required=True, action="append", metavar="PATH", help="a file or folder of the checkout; may be repeated"
    )
    given = parser.parse_args(arguments)
    request = Request(
        group=given.group, registry=given.registry, repository=given.repository, tag=given.tag,
        dockerfile=given.dockerfile, content=images.tarball(ROOT, given.source), arguments=tuple(given.argument),
    )  # fmt: skip
    address = f"https://{given.registry}.azurecr.io"
    real = World(arm=Arm(given.subscription), stored=lambda one: stored(one, registry=address), send=send, read=read)
    return builds.main(lambda say: build(world or real, request, say))


if __name__ == "__main__":
    sys.exit(main())
