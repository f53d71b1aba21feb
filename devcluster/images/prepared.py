"""A containerd root with all images in it, from which every machine starts: made once per set of images, shared by all machines.

    image_set = await ensure(home, images)       # imports what changed
    reference = await load(home, archive)        # an image of somebody else, for pods that name it
    clone(image_set.folder, root)                # for a new machine, in milliseconds

A machine shares the unpacked layers (links) and has its own databases: a shared bolt database would block the second containerd.
"""

import contextlib
import hashlib
import io
import json
import os
import shlex
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from devcluster.commands import run, watch
from devcluster.images.build import Image
from devcluster.settings import BoxError

CONTENT = Path("io.containerd.content.v1.content")
SNAPSHOTS = Path("io.containerd.snapshotter.v1.overlayfs")
METADATA = Path("io.containerd.metadata.v1.bolt")
DATABASES = (SNAPSHOTS / "metadata.db", METADATA / "meta.db")
USED = "prepared"  # file in a machine's root that names the folder which it links to
KEPT_VERSIONS = 3  # of an image: a running job's replacement pods need the version that it was submitted with


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """`folder` is the containerd root; `references` maps an image's name to its full reference; `older` are earlier versions that
    are still in it, and images that a user has loaded, the newest first."""

    folder: Path
    references: dict[str, str]
    older: tuple[str, ...] = ()

    @property
    def pause(self) -> str:
        return self.references["pause"]


def current(home: Path) -> ImageSet | None:
    """The set that new machines get; None before the first."""
    try:
        record = json.loads((home / "images" / "current.json").read_text())
    except FileNotFoundError:
        return None
    return ImageSet(
        folder=home / "images" / record["folder"], references=record["references"], older=tuple(record.get("older", ()))
    )


async def ensure(home: Path, images: dict[str, Image]) -> ImageSet:
    """Makes the root for this set of images, from the last one if there is one. The caller holds images.lock.
    Raises CommandError."""
    references = {name: image.reference for name, image in sorted(images.items())}
    last = current(home)
    older = older_versions(references, last) if last is not None and last.folder.exists() else ()
    return await _ensure(home, references, older, {image.reference: image.archive for image in images.values()})


async def load(home: Path, archive: Path) -> str:
    """Adds the image of a docker archive, and returns its reference. One that is there stays: new content needs a new tag. The
    caller holds images.lock. Raises BoxError and CommandError."""
    last = current(home)
    if last is None or not last.folder.exists():
        raise BoxError("there are no images yet to which one could be added; make them with: python -m devcluster images")
    reference = reference_in(archive)
    if reference not in (*last.references.values(), *last.older):
        await _ensure(home, last.references, (reference, *last.older), {reference: archive})
    return reference


def reference_in(archive: Path) -> str:
    """Raises BoxError for a file that is no docker archive with one image that has a name."""
    try:
        with tarfile.open(archive) as tar, contextlib.closing(tar.extractfile("manifest.json") or io.BytesIO()) as file:
            [manifest] = json.load(file)
            [reference] = manifest["RepoTags"]
            return str(reference)
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        raise BoxError(
            f"{archive} is no archive of one image with a name ({error}); make one with: docker save -o image.tar NAME:TAG"
        ) from error


async def _ensure(home: Path, references: dict[str, str], older: tuple[str, ...], archives: dict[str, Path]) -> ImageSet:
    folder = home / "images" / f"prepared-{hashlib.sha256(repr((references, older)).encode()).hexdigest()[:12]}"
    if not folder.exists():
        await _prepare(folder, current(home), archives, {*references.values(), *older})
    part = home / "images" / "current.part"
    part.write_text(json.dumps({"folder": folder.name, "references": references, "older": older}))
    part.replace(home / "images" / "current.json")
    _forget_unused(home, folder)
    return ImageSet(folder=folder, references=references, older=older)


def older_versions(references: dict[str, str], last: ImageSet) -> tuple[str, ...]:
    """Of the images in the last set, those to keep beside the new ones: KEPT_VERSIONS of each name in all."""
    there = [*(last.references[name] for name in sorted(last.references)), *last.older]
    kept: list[str] = []
    for reference in there:
        name = reference.rpartition(":")[0]
        versions = sum(other.rpartition(":")[0] == name for other in kept)
        if reference not in references.values() and versions < KEPT_VERSIONS - 1:
            kept.append(reference)
    return tuple(kept)


def clone(prepared: Path, root: Path) -> None:
    """Fills a machine's empty containerd root."""
    for folder in (CONTENT / "blobs" / "sha256", CONTENT / "ingest", SNAPSHOTS / "snapshots", METADATA):
        (root / folder).mkdir(parents=True)
    for blob in (prepared / CONTENT / "blobs" / "sha256").iterdir():
        os.link(blob, root / CONTENT / "blobs" / "sha256" / blob.name)
    # Links to the layers, not copies: the kernel follows them, and containerd only ever reads a committed layer.
    for layer in (prepared / SNAPSHOTS / "snapshots").iterdir():
        (root / SNAPSHOTS / "snapshots" / layer.name).symlink_to(layer)
    for database in DATABASES:
        shutil.copy(prepared / database, root / database)
    (root / USED).write_text(prepared.name)


async def _prepare(folder: Path, last: ImageSet | None, archives: dict[str, Path], wanted: set[str]) -> None:
    """From the last set and these archives, by reference: a root with what is wanted."""
    partial = folder.with_name(f".{folder.name}-partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    there: set[str] = set()
    if last is not None and last.folder.exists():
        await _copy(last.folder, partial)
        there = {*last.references.values(), *last.older}
    script = _script(partial, [archives[name] for name in sorted(archives.keys() - there)], sorted(there - wanted))
    await watch("preparing images for machines", ["bash", "-c", script], log=folder.with_name("prepare.log"))
    partial.rename(folder)


async def _copy(source: Path, target: Path) -> None:
    """Layers and blobs by hard links, databases for real."""
    await run("cp", "--archive", "--link", *(source / part for part in (CONTENT, SNAPSHOTS, METADATA)), target)
    for database in DATABASES:
        (target / database).unlink()
        shutil.copy(source / database, target / database)


def _script(root: Path, archives: list[Path], unwanted: list[str]) -> str:
    """A containerd of its own for a moment; it runs in namespaces of its own, so /run is private and a kill leaves nothing."""
    ctr = "ctr --namespace k8s.io images"
    steps = [f"{ctr} import {shlex.quote(str(archive))}" for archive in archives]
    steps += [f"{ctr} rm --sync {shlex.quote(reference)}" for reference in unwanted]
    disabled = '["io.containerd.internal.v1.opt", "io.containerd.grpc.v1.cri"]'
    config = f'version = 2\nroot = "{root}"\nstate = "/run/containerd"\ndisabled_plugins = {disabled}\n'
    return "\n".join([
        "set -eu",
        "mount -t tmpfs tmpfs /run; mkdir -p /run/containerd",
        f"printf %s {shlex.quote(config)} > /run/containerd.toml",
        "containerd --config /run/containerd.toml & containerd=$!",
        'until [ -S /run/containerd/containerd.sock ]; do sleep 0.02; kill -0 "$containerd"; done',
        *steps,
        'kill "$containerd"; wait "$containerd" || true',
    ])  # fmt: skip


def _forget_unused(home: Path, keep: Path) -> None:
    """Old sets go when no machine of any devcluster links to them."""
    used = {file.read_text() for file in home.glob(f"boxes/*/machines/*/containerd/{USED}")}
    for folder in (home / "images").glob("prepared-*"):
        if folder.is_dir() and folder != keep and folder.name not in used:
            shutil.rmtree(folder)
    for partial in (home / "images").glob(".prepared-*-partial"):
        shutil.rmtree(partial)
