"""The digests of the images that others publish and a stack builds on or runs: infra/images.lock.yaml, read and written.

    pinned("docker.io/library/python:3.11")      # docker.io/library/python:3.11@sha256:... where the lock has it, else as given
    python -m infra.image_lock -s dev            # `make lock-images STACK=dev`: asks the registries, writes the lock

Whoever may push to a registry can move a tag; a digest is the hash of the image. Cloud.upstream_images lists those of a stack.
The digests of workloads/manifests are in those files: people apply them without this program.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import yaml

from infra import clouds, commands, config, registries
from infra.account import costs
from infra.config import ROOT, ConfigError

LOCK = ROOT / "infra" / "images.lock.yaml"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HEAD = """\
# The digests of images that others publish: `make lock-images STACK=<name>` writes them, `pulumi up` names images by them.
# Commit it: a line that changes is another image under the same tag. One that is missing: the tag alone is named.
"""
HELP = """\
Asks the registry of each image that the stack builds on or runs for the digest of its tag, and writes infra/images.lock.yaml. Not
asked for: the stack's own images, which are named by digest as they are built, and those of workloads/manifests, which have
theirs. Where a registry does not give one, a sentence says why, and the line stays as it was. Lines of other stacks' images stay.
"""
Lock = Mapping[str, str]


def pinned(image: str, lock: Lock | None = None) -> str:
    """The image by its tag and digest, where the lock (else this checkout's) has it. Raises ConfigError."""
    digest = (_own() if lock is None else lock).get(image)
    return f"{image}@{digest}" if digest else image


@cache  # every image asks, and a program of this checkout reads it once
def _own() -> Lock:
    return read(LOCK)


def read(path: Path) -> dict[str, str]:
    """Image -> digest. Raises ConfigError."""
    try:
        found = yaml.safe_load(path.read_text()) or {}
    except FileNotFoundError:
        return {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}; restore it, or delete it and run `make lock-images`") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: found {found!r}; allowed are lines of image: sha256:...; run `make lock-images`")
    for image, digest in found.items():
        if not registries.TAGGED.fullmatch(str(image)) or not DIGEST.fullmatch(str(digest)):
            raise ConfigError(
                f"{path}: found {image!r}: {digest!r}; allowed is HOST/NAME:TAG: sha256: and 64 hexadecimal digits; "
                "remove the line and run `make lock-images`"
            )
    return found


def write(lock: Lock, path: Path) -> None:
    """Whole or not at all: a program that is killed meanwhile leaves the former."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(HEAD + "".join(f"{image}: {digest}\n" for image, digest in sorted(lock.items())))
    new.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    codes = commands.EXIT_CODES.format(good="all are in the lock by the digest of today", bad="some are not, as said")
    given = commands.parser("infra.image_lock", "Pin the images of others by digest.", f"{HELP}\n{codes}").parse_args(arguments)
    return commands.run(lambda: lock_stack(given.stack))


def lock_stack(name: str, *, path: Path = LOCK, resolve: Callable[[str], str] = registries.resolve) -> int:
    """The exit code. Raises ConfigError."""
    stack = config.read(name)
    images = clouds.named(stack.cloud).upstream_images(stack, costs.groups_of(stack))
    wanted = sorted({image.partition("@")[0] for image in images})
    before = read(path)
    after = dict(before)
    failed = {}
    for image in wanted:
        try:
            after[image] = resolve(image)
        except registries.NotResolvedError as error:
            failed[image] = str(error)
            commands.say(f"{image}\n  -> not locked: {error}" if image not in before else f"{image}\n  -> as it was: {error}")
            continue
        former = before.get(image)
        word = "new" if former is None else "same" if former == after[image] else f"moved, was {former}"
        commands.say(f"{image}\n  {after[image]}  {word}")
    if after != before:
        write(after, path)
    changed = [image for image in wanted if after.get(image) != before.get(image)]
    commands.say(
        f"{len(wanted) - len(failed)} of {len(wanted)} images have an answer, {len(changed)} lines of {path.name} changed"
    )
    commands.conclude({"stack": name, "images": len(wanted), "changed": changed, "failed": failed})
    return commands.EXIT_BAD if failed else commands.EXIT_GOOD


if __name__ == "__main__":
    sys.exit(main())
