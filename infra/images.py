"""The images of a stack: the sources and arguments of each, a tag that follows them, and the resources that build it.

    recipe = Recipe(repository=TRAINER, name="default", dockerfile="trainer/Dockerfile", sources=("ebb", "trainer"))
    recipe.tag                      # default.1a2b3c4d5e6f: equal sources have equal tags, on every machine
    archive(ROOT, recipe.sources)   # the same files as a zip, equal to the last byte; tarball(...): as a tar.gz
    recipes(stack, base)            # all that a stack builds: the controller, and its trainers
    bases(wanted)                   # the images of others that they are built from
    by_docker(part, recipe, url)    # built by the Docker of the machine that runs `up`
    by_program(part, recipe, ...)   # built by a program that asks a cloud's build service and waits

A build runs only when the tag is new; pods name images by digest. A cloud adds its registry and its build service. Junk that git
ignores is left out; trainer/ and workloads/Dockerfile.dockerignore leave out the same for `docker build`.
"""

import gzip
import hashlib
import io
import shlex
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pulumi
import pulumi_command as command
import pulumi_docker_build as docker_build

from infra.config import ROOT, Stack, Trainer
from infra.image_lock import pinned
from infra.part import Part
from workloads import cluster, manifest
from workloads.cluster import DEFAULT_IMAGE

EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip cannot hold earlier times
CACHE = "cache"
MB = 1_000_000
CONTROLLER, TRAINER = "controller", "trainer"  # the two repositories
PACKAGE = ("pyproject.toml", "LICENSE", "ebb", "hydra_plugins")  # what pip installs in both images
CONTROLLER_SOURCES = (*PACKAGE, "workloads/Dockerfile", "workloads/requirements.txt")
TRAINER_SOURCES = (*PACKAGE, "trainer")
BASES = ("BASE", "GIB")  # the build arguments that the Dockerfiles have in FROM
Registry = docker_build.RegistryArgsDict
TORCH_INDEX = "https://download.pytorch.org/whl/cu{}"  # https://pytorch.org/get-started/locally/, read 2026-11-21


@dataclass(frozen=True, kw_only=True)
class BuiltImages(cluster.Images):
    """`compressed_mb`: image -> what a machine fetches of it, in MB; empty where the builder does not report it."""

    compressed_mb: Mapping[str, pulumi.Output[float]] = field(default_factory=dict)


class Named(Protocol):
    """The images of a stack that builds none, as its file names them."""

    @property
    def controller(self) -> str | None: ...

    @property
    def trainers(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One image. `name` distinguishes the images of a repository; `sources`: files and folders of the checkout, its Dockerfile
    among them, that the build may read."""

    repository: str
    name: str
    dockerfile: str
    sources: tuple[str, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)
    root: Path = ROOT

    @property
    def tag(self) -> str:
        """Changes when a file, its right to be executed, its name or an argument does, and only then."""
        digest = hashlib.sha256(repr(sorted(self.arguments.items())).encode())
        for path in files(self.root, self.sources):
            digest.update(f"|{path.relative_to(self.root).as_posix()}|{path.stat().st_mode & 0o111 != 0}|".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return f"{self.name}.{digest.hexdigest()[:12]}"

    @property
    def cache_tag(self) -> str:
        """The last image built under this name, whose layers the next build takes."""
        return f"{self.name}.{CACHE}"


def recipes(stack: Stack, base: str, more: Mapping[str, Mapping[str, str]] | None = None) -> list[Recipe]:
    """All images that the stack builds: the controller, the default trainer, and those that it names. `base`: the image that all
    begin with; `more`: further build arguments of a trainer, by its name. Images in them are pinned here, by the lock."""
    controller = Recipe(
        repository=CONTROLLER,
        name=CONTROLLER,
        dockerfile="workloads/Dockerfile",
        sources=CONTROLLER_SOURCES,
        arguments=_pinned({"BASE": base}),
    )
    made = [controller]
    for name in dict.fromkeys((DEFAULT_IMAGE, *stack.trainers)):
        arguments = _pinned({"BASE": base, **_torch(stack.trainer(name)), **(more or {}).get(name, {})})
        made.append(
            Recipe(repository=TRAINER, name=name, dockerfile="trainer/Dockerfile", sources=TRAINER_SOURCES, arguments=arguments)
        )
    return made


def _pinned(arguments: Mapping[str, str]) -> dict[str, str]:
    return {key: pinned(value) if key in BASES else value for key, value in arguments.items()}


def bases(wanted: Sequence[Recipe]) -> set[str]:
    """The images of others that recipes build on."""
    return {recipe.arguments[key] for recipe in wanted for key in BASES if key in recipe.arguments}


def _torch(trainer: Trainer) -> dict[str, str]:
    """Build arguments for another torch than that of trainer/requirements.txt. PyPI has the builds of one CUDA only."""
    usual = Trainer()
    if trainer == usual:
        return {}
    if trainer.cuda == usual.cuda:
        return {"TORCH": trainer.torch, "TORCHVISION": trainer.torchvision}
    cuda = "".join(trainer.cuda.split(".")[:2])
    return {
        "TORCH": f"{trainer.torch}+cu{cuda}",
        "TORCHVISION": f"{trainer.torchvision}+cu{cuda}",
        "TORCH_INDEX": TORCH_INDEX.format(cuda),
    }


def files(root: Path, sources: Sequence[str]) -> list[Path]:
    """The files that belong into an image, in an order that is the same everywhere. Raises FileNotFoundError."""
    found: set[Path] = set()
    for source in sources:
        path = root / source
        if not path.exists():
            raise FileNotFoundError(f"{path} goes into an image, and is missing: check it out again")
        found |= {path} if path.is_file() else {one for one in path.rglob("*") if one.is_file()}
    return sorted(
        (path for path in found if not _is_junk(path.relative_to(root))), key=lambda path: path.relative_to(root).as_posix()
    )


def _is_junk(path: Path) -> bool:
    return path.suffix == ".pyc" or any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def archive(root: Path, sources: Sequence[str]) -> bytes:
    """The sources as a zip without times and owners, so that equal files make equal bytes."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as made:
        for path in files(root, sources):
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), date_time=EPOCH)
            entry.create_system = 3  # Unix, wherever it is made: the mode below counts
            entry.external_attr = (0o100755 if path.stat().st_mode & 0o111 else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, path.read_bytes())
    return written.getvalue()


def tarball(root: Path, sources: Sequence[str]) -> bytes:
    """The same as a tar.gz, for builders that take that."""
    written = io.BytesIO()
    with gzip.GzipFile(fileobj=written, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as made:
        for path in files(root, sources):
            entry, content = tarfile.TarInfo(path.relative_to(root).as_posix()), path.read_bytes()
            entry.mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def packed(recipe: Recipe, pack: Callable[[Path, Sequence[str]], bytes], suffix: str) -> Path:
    """The sources of a recipe in one file, whose name changes with its content: a build never reads what another `up` writes."""
    content = pack(recipe.root, recipe.sources)
    name = hashlib.sha256(content).hexdigest()[:12]
    path = ROOT / "build" / "image-sources" / f"{recipe.repository}-{name}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    for former in set(path.parent.glob(f"{recipe.repository}-*{suffix}")) - {path}:
        former.unlink(missing_ok=True)
    path.write_bytes(content)
    return path


# ---------------------------------------------------------------------------------------------------------------- resources


def existing(stack: Stack, named: Named) -> BuiltImages:
    """Images that somebody else has built; the settings' checks have seen that all are named."""
    trainers = {name: pulumi.Output.from_input(reference) for name, reference in named.trainers.items()}
    return of_stack(stack, {CONTROLLER: pulumi.Output.from_input(named.controller or ""), **trainers})


def of_stack(
    stack: Stack,
    references: Mapping[str, pulumi.Output[str]],
    compressed_mb: Mapping[str, pulumi.Output[float]] | None = None,
) -> BuiltImages:
    """The record of images, by the names of their recipes; etcd's are the public ones of workloads/manifests."""
    legacy = manifest.pinned("ebb-etcd-legacy", manifest.LEGACY) if stack.legacy_rendezvous else None
    return BuiltImages(
        controller=references[CONTROLLER],
        trainers={name: reference for name, reference in references.items() if name != CONTROLLER},
        etcd=pulumi.Output.from_input(manifest.pinned("ebb-etcd")),
        legacy_etcd=pulumi.Output.from_input(legacy) if legacy else None,
        compressed_mb=compressed_mb or {},
    )


def by_docker(
    part: Part,
    recipe: Recipe,
    url: pulumi.Output[str],
    *,
    registries: Sequence[Registry] | None = None,
    depends_on: Sequence[pulumi.Resource] = (),
) -> docker_build.Image:
    """An image built by the Docker of the machine that runs `up`. `url`: the image in the registry, without a tag."""
    cache = pulumi.Output.concat(url, ":", recipe.cache_tag)
    return docker_build.Image(
        f"image-{recipe.name}",
        context={"location": "."},  # relative to Pulumi.yaml: an absolute path would differ on another machine
        dockerfile={"location": recipe.dockerfile},
        build_args=dict(recipe.arguments),
        build_on_preview=False,
        platforms=[docker_build.Platform.LINUX_AMD64],
        push=True,
        tags=[pulumi.Output.concat(url, ":", recipe.tag), cache],
        cache_from=[{"registry": {"ref": cache}}],
        cache_to=[{"inline": {}}],
        registries=list(registries) if registries else None,
        # The registry takes its images along, and by then the password in the state, or Docker's login, has long expired.
        opts=part.child(depends_on=depends_on, retain_on_delete=True),
    )


def by_program(  # noqa: PLR0917 - called once by each cloud, with what its program is told
    part: Part,
    recipe: Recipe,
    module: str,
    words: Sequence[str],
    made: pulumi.Output[str],
    depends_on: Sequence[pulumi.Resource],
) -> pulumi.Output[Any]:
    """The answer of a build program, with the image's digest. `words`: arguments known now; `made`: those of resources.

    It is `exec`ed, so that what ends the resource ends the program; without `dir` it runs beside Pulumi.yaml.
    """
    arguments = [word for key, value in recipe.arguments.items() for word in ("--argument", f"{key}={value}")]
    known = [python(), "-m", module, "--tag", recipe.tag, "--dockerfile", recipe.dockerfile, *arguments, *words]
    ran = command.local.Command(
        f"image-{recipe.name}",
        create=pulumi.Output.concat(f"exec {shlex.join(known)} ", made),
        triggers=[recipe.tag],
        add_previous_output_in_env=False,
        logging=command.local.Logging.STDERR,
        opts=part.child(depends_on=depends_on),
    )
    return pulumi.Output.json_loads(ran.stdout)


def python() -> str:
    """This Python, by a path that is the same in every checkout that has one: it is an input, and a new one is an update."""
    here = Path(sys.executable)
    return str(here.relative_to(ROOT)) if here.is_relative_to(ROOT) else str(here)
