"""Builds one image with a quick task of the container registry, and waits for it: what `pulumi up` runs for a changed image.

    python -m infra.clouds.azure.acr --subscription 0123... --group ebb-dev --registry ebbdev1a2b3c4d \\
        --repository trainer --tag default.1a2b3c4d5e6f \\
        --dockerfile trainer/Dockerfile --source ebb --source trainer --argument BASE=...

Progress goes to stderr; stdout is one JSON object, {"digest": "sha256:...", "compressed_mb": 123.4}. The sources are
packed and sent to the registry's own store. Doing it twice is harmless: a tag that the registry has is not built again. Ctrl-C
and SIGTERM cancel a build that this run has started. Exit codes: 0, 1 failed, 130 interrupted.
"""

import argparse
import json
import re
import signal
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from infra import images
from infra.clouds.azure.rest import ENDPOINT, Arm, Refused, answered, cli_token
from infra.config import ROOT

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
VERSION = (
    "2019-06-01-preview"  # of the task API (https://learn.microsoft.com/rest/api/containerregistry/tasks/registries/schedule-run)
)
BUILD_SECONDS, POLL_SECONDS, SAY_SECONDS = 3600, 5.0, 15.0
TAIL_LINES, WIDTH, MB = 40, 120, 1_000_000
RUNNING = ("Queued", "Started", "Running")
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x1f]")


class BuildError(Exception):
    """The image was not built; the text ends with the build's last lines."""


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

    @property
    def title(self) -> str:
        return f"image {self.repository}:{self.tag}"


@dataclass(frozen=True, kw_only=True)
class World:
    """Services that a build touches. `send` puts a blob at an address, `read` gets the text at one, `stored` looks up a tag."""

    arm: Arm
    stored: Callable[[Request], dict[str, Any] | None]
    send: Callable[[str, bytes], None]
    read: Callable[[str], str]
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def build(world: World, request: Request, say: Callable[[str], None]) -> dict[str, Any]:
    """The image's digest and compressed size. Raises BuildError, Refused."""
    found = world.stored(request)
    if found is not None:
        say(f"{request.title} is in the registry already")
        return found
    number = _started(world, request)
    say(f"{request.title}: started run {number}")
    try:
        _await(world, number, request, say)
    except KeyboardInterrupt:
        world.arm.post(f"{request.path}/runs/{number}/cancel", VERSION)
        say(f"interrupted: run {number} is cancelled")
        raise
    found = world.stored(request)
    if found is None:
        raise BuildError(f"run {number} succeeded, but {request.repository} has no tag {request.tag}: was it deleted just now?")
    say(f"{request.title}: {found['compressed_mb']} MB compressed, {found['digest']}")
    return found


def _started(world: World, request: Request) -> str:
    place = world.arm.post(f"{request.path}/listBuildSourceUploadUrl", VERSION)
    world.send(place["uploadUrl"], request.content)
    pairs = [one.partition("=") for one in request.arguments]
    run = world.arm.post(
        f"{request.path}/scheduleRun",
        VERSION,
        {
            "type": "DockerBuildRequest",
            "isArchiveEnabled": False,
            "sourceLocation": place["relativePath"],
            "dockerFilePath": request.dockerfile,
            "imageNames": [f"{request.repository}:{request.tag}"],
            "isPushEnabled": True,
            "noCache": False,
            "arguments": [{"name": name, "value": value, "isSecret": False} for name, _, value in pairs],
            "platform": {"os": "Linux", "architecture": "amd64"},
            "agentConfiguration": {"cpu": 2},
            "timeout": BUILD_SECONDS,
        },
    )
    return str(run["properties"]["runId"])


def _await(world: World, number: str, request: Request, say: Callable[[str], None]) -> None:
    began, said = world.now(), world.now()
    while True:
        status = world.arm.get(f"{request.path}/runs/{number}", VERSION)["properties"]["status"]
        if status == "Succeeded":
            return
        if status not in RUNNING:
            lines = [f"{request.title}: run {number} ended: {status.lower()}", *_log(world, number, request, TAIL_LINES)]
            raise BuildError("\n  | ".join(lines))
        if world.now() - said >= SAY_SECONDS:
            said = world.now()
            last = "".join(_log(world, number, request, 1))
            say(f"{request.title}: {status.lower()}, {said - began:.0f} s  {last}"[:WIDTH].rstrip())
        world.sleep(POLL_SECONDS)


def _log(world: World, number: str, request: Request, count: int) -> list[str]:
    """The last lines that are not empty. None while there is no log: progress is a courtesy, the run's own status decides."""
    try:
        text = world.read(world.arm.post(f"{request.path}/runs/{number}/listLogSasUrl", VERSION)["logLink"])
    except (Refused, KeyError):
        return []
    lines = [_CONTROL.sub("", line).strip() for line in text.splitlines()]
    return [line for line in lines if line][-count:]


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
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    request = Request(
        group=given.group, registry=given.registry, repository=given.repository, tag=given.tag,
        dockerfile=given.dockerfile, content=images.tarball(ROOT, given.source), arguments=tuple(given.argument),
    )  # fmt: skip
    address = f"https://{given.registry}.azurecr.io"
    real = World(arm=Arm(given.subscription), stored=lambda one: stored(one, registry=address), send=send, read=read)
    try:
        found = build(world or real, request, lambda words: print(words, file=sys.stderr, flush=True))
    except (BuildError, Refused) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    print(json.dumps(found))
    return EXIT_DONE


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infra.clouds.azure.acr",
        description="Build one image in the container registry. `pulumi up` runs this; by hand it repeats a failed build.",
        epilog="stdout is one JSON object with digest and compressed_mb; a tag that the registry has already is not built again.",
    )
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--group", required=True, help="the resource group of the registry")
    parser.add_argument("--registry", required=True, help="the registry's name")
    parser.add_argument("--repository", required=True, help="what the image is called in it")
    parser.add_argument("--tag", required=True, help="of the image: name.hash of its sources")
    parser.add_argument("--dockerfile", required=True, help="its path in the checkout")
    parser.add_argument(
        "--source", required=True, action="append", metavar="PATH", help="a file or folder of the checkout; may be repeated"
    )
    parser.add_argument("--argument", action="append", default=[], metavar="KEY=VALUE", help="a build argument; may be repeated")
    return parser


if __name__ == "__main__":
    sys.exit(main())
