"""What the images of a stack are built from: files of the checkout and build arguments, with one name for both, the tag.

    recipe = Recipe(repository="trainer", name="default", folder="trainer", arguments={"EFA": "1"})
    recipe.tag                     # default.1a2b3c4d5e6f: equal sources have equal tags, on every machine
    archive(ROOT, recipe.sources)  # the same files as a zip, equal to the last byte; tarball(...): as a tar.gz
    recipes(stack, base)           # what a stack builds: the controller, and its trainers

Junk that git ignores is left out; trainer/ and workloads/Dockerfile.dockerignore leave out the same for `docker build`.
"""

import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.config import ROOT, Stack, Trainer
from infra.config.model import DEFAULT_IMAGE

EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip cannot hold earlier times
CACHE = "cache"
CONTROLLER, TRAINER = "controller", "trainer"  # the two repositories
TORCH_INDEX = "https://download.pytorch.org/whl/cu{}"  # https://pytorch.org/get-started/locally/, read 2026-11-21


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One image. `name` tells the images of a repository apart; `folder` has the Dockerfile and all that it copies."""

    repository: str
    name: str
    folder: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    root: Path = ROOT

    @property
    def tag(self) -> str:
        """Changes when a file, its right to be executed, its name or an argument does, and only then."""
        digest = hashlib.sha256(repr(sorted(self.arguments.items())).encode())
        for path in files(self.root, self.folder):
            digest.update(f"|{path.relative_to(self.root).as_posix()}|{path.stat().st_mode & 0o111 != 0}|".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return f"{self.name}.{digest.hexdigest()[:12]}"

    @property
    def cache_tag(self) -> str:
        """The last image built under this name, whose layers the next build takes."""
        return f"{self.name}.{CACHE}"

    @property
    def dockerfile(self) -> str:
        return f"{self.folder}/Dockerfile"


def recipes(stack: Stack, base: str, more: Mapping[str, Mapping[str, str]] | None = None) -> list[Recipe]:
    """What the stack builds: the controller, the default trainer, and those that it names. `base`: the image that all begin
    with; `more`: further build arguments of a trainer, by its name."""
    made = [Recipe(repository=CONTROLLER, name=CONTROLLER, folder="workloads", arguments={"BASE": base})]
    for name in dict.fromkeys((DEFAULT_IMAGE, *stack.trainers)):
        arguments = {"BASE": base, **_torch(stack.trainer(name)), **(more or {}).get(name, {})}
        made.append(Recipe(repository=TRAINER, name=name, folder="trainer", arguments=arguments))
    return made


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


def files(root: Path, folder: str) -> list[Path]:
    """What belongs into an image, in an order that is the same everywhere."""
    found = [path for path in (root / folder).rglob("*") if path.is_file() and not _is_junk(path.relative_to(root))]
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def _is_junk(path: Path) -> bool:
    return path.suffix == ".pyc" or any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def archive(root: Path, folder: str) -> bytes:
    """The folder as a zip without times and owners, so that equal files make equal bytes."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as made:
        for path in files(root, folder):
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), date_time=EPOCH)
            entry.create_system = 3  # Unix, wherever it is made: the mode below counts
            entry.external_attr = (0o100755 if path.stat().st_mode & 0o111 else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, path.read_bytes())
    return written.getvalue()


def tarball(root: Path, folder: str) -> bytes:
    """The same as a tar.gz, for builders that take that."""
    written = io.BytesIO()
    with gzip.GzipFile(fileobj=written, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as made:
        for path in files(root, folder):
            entry, content = tarfile.TarInfo(path.relative_to(root).as_posix()), path.read_bytes()
            entry.mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def name_of(content: bytes) -> str:
    """A short name that no other content has."""
    return hashlib.sha256(content).hexdigest()[:12]
