"""The images of the devcluster, built without a Docker daemon (buildah, debootstrap) and named by the hash of what is in them.

    images = await ensure(home, programs)      # {"controller": Image(reference, archive), ...}

An image is built only when its archive `<EBB_HOME>/images/<name>-<tag>.tar` is missing. How machines get them: prepared.py.
controller and trainer come from the same Dockerfiles that `docker build` uses, with other build arguments.
"""

import hashlib
import shutil
import tempfile
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from devcluster.commands import CommandError, locked, run, say, watch
from devcluster.images.base import base_key, make_base_archive
from devcluster.settings import CACHE, CHECKOUT, BoxError

PACKAGE = ("pyproject.toml", "LICENSE", "ebb", "hydra_plugins")  # what the wheel `ebb-train` is built from
LEGACY_ETCD = "etcd-legacy"  # the image, and what its program is called among the others
BUILDING = "building"  # folder for work, empty when no build runs
BUSYBOX = Path("/bin/busybox")
PAUSE = 'FROM scratch\nCOPY busybox /bin/busybox\nENTRYPOINT ["/bin/busybox", "sleep", "2147483647"]\n'
PROGRAM = """
FROM scratch
COPY {name} /usr/local/bin/{name}
ENV PATH=/usr/local/bin
USER 1000:1000
ENTRYPOINT ["/usr/local/bin/{name}"]
"""
BASE = 'FROM scratch\nADD base.tar /\nENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1\nCMD ["python3"]\n'


class ImageError(BoxError):
    """An image could not be built."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """`archive` is a docker archive that holds the image under `reference`."""

    name: str
    tag: str
    archive: Path

    @property
    def reference(self) -> str:
        return f"localhost/ebb/{self.name}:{self.tag}"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The parts of an image: a Dockerfile, the files that it may copy (target in the context -> source), build arguments."""

    name: str
    dockerfile: str
    sources: dict[str, Path]
    arguments: dict[str, str]

    @property
    def tag(self) -> str:
        digest = hashlib.sha256(repr((self.dockerfile, sorted(self.arguments.items()))).encode())
        for target, source in sorted(self.sources.items()):
            for path in [source] if source.is_file() else sorted(path for path in source.rglob("*") if is_content(path)):
                digest.update(f"{target}|{path.relative_to(source)}|{path.stat().st_mode & 0o111}|".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()[:12]


def is_content(path: Path) -> bool:
    """Files that belong into an image, of those in a source folder."""
    return path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"


def recipes(programs: dict[str, Path], base: str) -> list[Recipe]:
    """All images but the base; the older etcd's only with its program. Those of the repository may copy what is named here, by
    its path in the repository."""
    found = [Recipe(name="pause", dockerfile=PAUSE, sources={"busybox": BUSYBOX}, arguments={})]
    for name in ("coredns", "etcd"):
        found.append(Recipe(name=name, dockerfile=PROGRAM.format(name=name), sources={name: programs[name]}, arguments={}))
    if LEGACY_ETCD in programs:
        older = {"etcd": programs[LEGACY_ETCD]}
        found.append(Recipe(name=LEGACY_ETCD, dockerfile=PROGRAM.format(name="etcd"), sources=older, arguments={}))
    arguments = {"BASE": base, "ENVIRONMENT": "volume"}
    for name, dockerfile, sources in (
        ("controller", "workloads/Dockerfile", (*PACKAGE, "workloads/requirements.txt")),
        ("trainer", "trainer/Dockerfile", (*PACKAGE, "trainer")),
    ):
        paths = {source: CHECKOUT / source for source in sources}
        found.append(Recipe(name=name, dockerfile=(CHECKOUT / dockerfile).read_text(), sources=paths, arguments=arguments))
    return found


async def ensure(home: Path, programs: dict[str, Path]) -> dict[str, Image]:
    """Builds what is missing; seconds when only code changed, nothing when nothing did. One run at a time: the caller holds
    lock(home). Raises ImageError."""
    folder = home / "images"
    # What a killed build left.
    shutil.rmtree(folder / BUILDING, ignore_errors=True)
    (folder / BUILDING).mkdir(parents=True)
    try:
        base = await _ensure_base(folder)
        images = {recipe.name: await _ensure(folder, recipe) for recipe in recipes(programs, base.reference)}
    except CommandError as error:
        raise ImageError(str(error)) from error
    await _forget_old(folder, [base, *images.values()])
    return images


def lock(home: Path) -> AbstractAsyncContextManager[None]:
    """Held until new archives have been used: the next run of newer code removes them."""
    return locked(home / "images" / "lock", "the build of the images")


def image_of(folder: Path, name: str, tag: str) -> Image:
    return Image(name=name, tag=tag, archive=folder / f"{name}-{tag}.tar")


async def _ensure_base(folder: Path) -> Image:
    image = image_of(folder, "base", base_key(BASE))
    if image.archive.exists() and await _in_storage(folder, image):
        return image
    if image.archive.exists():
        await _buildah(folder, "loading image base", "pull", f"docker-archive:{image.archive}")
        return image
    with tempfile.TemporaryDirectory(prefix="base-", dir=folder / BUILDING) as work:
        await base_archive(Path(work) / "base.tar", folder / "debootstrap.log")
        (Path(work) / "Dockerfile").write_text(BASE)
        await _build(folder, image, Path(work), {})
    return image


async def base_archive(archive: Path, log: Path, cache: Path = CACHE) -> None:
    """Makes `archive`, the Debian root of the base image; downloaded once for all checkouts, so that a second one needs no
    mirror."""
    kept = cache / f"base-root-{base_key(BASE)}.tar"
    if kept.exists():
        say(f"taking Debian for the base image from {kept}")
        shutil.copyfile(kept, archive)
        return
    await make_base_archive(archive, log)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".base-", dir=cache) as work:  # a half copy never has the name
        shutil.copyfile(archive, Path(work) / kept.name).replace(kept)


async def _ensure(folder: Path, recipe: Recipe) -> Image:
    image = image_of(folder, recipe.name, recipe.tag)
    if image.archive.exists():
        return image
    # The context holds exactly what the tag was computed from.
    with tempfile.TemporaryDirectory(prefix=f"{recipe.name}-", dir=folder / BUILDING) as work:
        for target, source in recipe.sources.items():
            if source.is_file():
                (Path(work) / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, Path(work) / target)
            else:
                shutil.copytree(source, Path(work) / target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        (Path(work) / "Dockerfile").write_text(recipe.dockerfile)
        await _build(folder, image, Path(work), recipe.arguments)
    return image


async def _build(folder: Path, image: Image, context: Path, arguments: dict[str, str]) -> None:
    settings = context.with_name(context.name + ".pip")
    volumes = []
    if "\nRUN " in (context / "Dockerfile").read_text():
        # pip in the build reaches the network as pip on the host does: same settings, same certificate authorities.
        settings.write_text(await _pip_settings())
        volumes = [f"--volume={settings}:/etc/pip.conf:ro", "--volume=/etc/ssl/certs:/etc/ssl/certs:ro"]
    try:
        options = ["--isolation=chroot", "--layers", "--pull-never", f"--tag={image.reference}", *volumes]
        options += [f"--build-arg={key}={value}" for key, value in arguments.items()]
        await _buildah(folder, f"building image {image.name}", "bud", *options, str(context))
    finally:
        settings.unlink(missing_ok=True)
    part = folder / BUILDING / image.archive.name
    await _buildah(folder, f"saving image {image.name}", "push", image.reference, f"docker-archive:{part}:{image.reference}")
    part.replace(image.archive)


async def _buildah(folder: Path, what: str, *args: str) -> None:
    await watch(what, [*_buildah_command(folder), *args], log=folder / "buildah.log")


async def _in_storage(folder: Path, image: Image) -> bool:
    listed = await run("unshare", "--mount", *_buildah_command(folder), "images", "--format", "{{.Name}}:{{.Tag}}")
    return image.reference in listed.split()


def _buildah_command(folder: Path) -> list[str]:
    # Its store is below EBB_HOME too: `rm -rf .ebb` is a clean machine.
    return ["buildah", f"--root={folder / 'storage'}", f"--runroot={folder / 'storage-run'}", "--storage-driver=overlay"]


async def _pip_settings() -> str:
    """The host's pip configuration, from files and environment, as one file; without what names folders of the host."""
    settings = {}
    for line in (await run("python3", "-m", "pip", "config", "list")).splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name not in ("find-links", "cert", "cache-dir", "target", "user"):
            settings[name] = value.strip("'\"")
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())


async def _forget_old(folder: Path, current: list[Image]) -> None:
    keep = {image.archive: image for image in current}
    for archive in folder.glob("*.tar"):
        if archive not in keep:
            say(f"image {archive.stem}: replaced, its archive is removed")
            archive.unlink()
            name, _, tag = archive.stem.rpartition("-")
            with suppress(CommandError):  # somebody has emptied the store
                await run(
                    "unshare", "--mount", *_buildah_command(folder), "rmi", "--force", image_of(folder, name, tag).reference
                )
