"""One image from a cloud's build service: the frame of the programs that `pulumi up` runs for each image that has changed.

    build(service, say, clock)       # {"digest": "sha256:...", ...}; service: a cloud's, see Service

Progress goes to stderr; stdout is one JSON object. Doing it twice is harmless: a tag that the registry has is not built again,
and a build of the tag under way is joined, where the service lists builds. Ctrl-C and SIGTERM stop a build that this run has
started; after a kill it goes on. Exit codes: 0, 1 failed, 130 interrupted.
"""

import argparse
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, Protocol

from infra.commands import RequestRefused

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
POLL_SECONDS, SAY_SECONDS = 5.0, 15.0
TAIL_LINES, WIDTH, MB = 40, 120, 1_000_000
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x1f]")


class BuildError(Exception):
    """The image was not built; the text ends with the build's last lines. `kind`: the service's word for the failure."""

    def __init__(self, words: str, kind: str = "") -> None:
        super().__init__(words)
        self.kind = kind


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Time, and how to let it pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Service(Protocol):
    """A cloud's build service, for one image. Each method may raise Refused, which is the cloud's RequestRefused."""

    repository: str  # where the tag shall be, as messages have it
    tag: str
    noun: str = "build"
    stopped: str = "cancelled"

    @property
    def title(self) -> str:
        """The image in messages."""
        return f"image {self.repository}:{self.tag}"

    def stored(self) -> dict[str, Any] | None:
        """The image that the registry has under the tag: its digest, and compressed_mb where that is known."""

    def running(self) -> str | None:
        """The number of a build of the tag that has not ended."""
        return None

    def start(self, say: Callable[[str], None], clock: Clock) -> str:
        """The number of a new build. Raises BuildError."""

    def phase(self, number: str) -> str | None:
        """A word for what the build does; None if it has succeeded. Raises BuildError if it has failed."""

    def log(self, number: str, count: int) -> list[str]:
        """Its last lines. None while there is no log: progress is a courtesy, the build's own status decides."""
        return []

    def stop(self, number: str) -> None:
        """End a build."""

    def settling(self, error: BuildError | RequestRefused, waited: float) -> float:
        """Seconds until it is worth trying again, though it has failed; 0: it is not."""
        return 0.0


def build(service: Service, say: Callable[[str], None], clock: Clock) -> dict[str, Any]:
    """The image's digest, and its compressed size where that is known. Raises BuildError, Refused."""
    found = service.stored()
    if found is not None:
        say(f"{service.title} is in the registry already")
        return found
    began, running = clock.now(), service.running()
    while True:
        try:
            number = _build_once(service, running, say, clock)
            break
        except (BuildError, RequestRefused) as error:
            pause = service.settling(error, clock.now() - began)
            if not pause:
                raise
            say(f"{service.title}: the builder's rights do not count yet, trying again in {pause:.0f} s ({error})")
            clock.sleep(pause)
            running = None
    found = service.stored()
    if found is None:
        gone = f"{service.repository} has no tag {service.tag}: was it deleted just now?"
        raise BuildError(f"{service.noun} {number} succeeded, but {gone}")
    size = f"{found['compressed_mb']} MB compressed, " if "compressed_mb" in found else ""
    say(f"{service.title}: {size}{found['digest']}")
    return found


def _build_once(service: Service, running: str | None, say: Callable[[str], None], clock: Clock) -> str:
    """The number of a build that has succeeded: that under way, or a new one."""
    number = running or service.start(say, clock)
    say(f"{service.title}: {'joining' if running else 'started'} {service.noun} {number}")
    try:
        _await(service, number, say, clock)
    except KeyboardInterrupt:
        if not running:
            service.stop(number)
            say(f"interrupted: {service.noun} {number} is {service.stopped}")
        raise
    return number


def _await(service: Service, number: str, say: Callable[[str], None], clock: Clock) -> None:
    began = said = clock.now()
    while (phase := service.phase(number)) is not None:
        if clock.now() - said >= SAY_SECONDS:
            said = clock.now()
            last = "".join(service.log(number, 1))
            say(f"{service.title}: {phase}, {said - began:.0f} s  {last}"[:WIDTH].rstrip())
        clock.sleep(POLL_SECONDS)


def tail(lines: Sequence[str], count: int) -> list[str]:
    """The last lines that are not empty, without control characters."""
    clean = (_CONTROL.sub("", line).strip() for line in lines)
    return [line for line in clean if line][-count:]


def parser(module: str, what: str, gives: str, **own: str) -> argparse.ArgumentParser:
    """The arguments that by_program of infra/images.py gives, and the cloud's `own`, with their help."""
    made = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=f"{what} `pulumi up` runs this; by hand it repeats a failed build.",
        epilog=f"stdout is one JSON object with {gives}; a tag that the registry has already is not built again.",
    )
    for name, words in own.items():
        made.add_argument(f"--{name}", required=True, help=words)
    made.add_argument("--tag", required=True, help="of the image: name.hash of its sources")
    made.add_argument("--dockerfile", required=True, help="its path in the sources")
    made.add_argument("--argument", action="append", default=[], metavar="KEY=VALUE", help="a build argument; may be repeated")
    return made


def main(run: Callable[[Callable[[str], None]], dict[str, Any]]) -> int:
    """The exit code of a program that builds by `run`, which is told how to say progress."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        found = run(lambda words: print(words, file=sys.stderr, flush=True))
    except (BuildError, RequestRefused) as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    print(json.dumps(found))
    return EXIT_DONE


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
