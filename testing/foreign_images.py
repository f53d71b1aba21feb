"""An image that is not ours, as a user's registry would have it: Debian 13 by debootstrap, with Debian's own Python and torch.

    archive = await build(DEBIAN, folder)   # a docker archive, for `python -m devcluster load`; needs root and some minutes
    DEBIAN.reference                        # what `ebb submit --image` names

Nothing of Ebb is in it, no pip and no shell, and an entrypoint that fails: what a pod needs beside Python and torch has to come
with it.
"""

import hashlib
import json
import platform
import shutil
import tarfile
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path

from devcluster.commands import run, watch

_PATH = "/usr/local/bin:/usr/bin:/bin"
_WITHOUT = (
    *(f"usr/bin/{name}" for name in ("sh", "dash", "bash", "rbash", "busybox", "pip*")),
    *("usr/lib/python3/dist-packages/pip", "usr/lib/python3*/ensurepip"),
    *("dev/*", "proc/*", "sys/*", "var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "debootstrap"),
)


@dataclass(frozen=True, kw_only=True)
class ForeignImage:
    """`user` is the one that the image names."""

    name: str
    suite: str
    packages: tuple[str, ...]
    without: tuple[str, ...]
    user: str

    @property
    def reference(self) -> str:
        return f"localhost/lab/{self.name}:{hashlib.sha256(repr(astuple(self)).encode()).hexdigest()[:12]}"


DEBIAN = ForeignImage(
    name="debian13",
    suite="trixie",
    packages=("python3", "python3-numpy", "python3-torch"),
    without=_WITHOUT,
    user="4321:1000",
)


async def build(image: ForeignImage, folder: Path) -> Path:
    """The archive of this image, made where it is missing. Raises CommandError."""
    archive = folder / f"{image.reference.rpartition('/')[2].replace(':', '-')}.tar"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".image-", dir=folder) as work:
        root, layer = Path(work) / "root", Path(work) / "layer.tar"
        bootstrap = ["debootstrap", "--variant=minbase", f"--include={','.join(image.packages)}", image.suite, str(root)]
        await watch(f"installing Debian {image.suite} with its own torch", bootstrap, log=folder / "debootstrap.log")
        for path in [path for pattern in image.without for path in root.glob(pattern)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        await run("tar", "--numeric-owner", "-C", root, "-cf", layer, ".")
        shutil.rmtree(root)
        pack(image, layer, Path(work) / "image.tar").replace(archive)
    return archive


def pack(image: ForeignImage, layer: Path, archive: Path) -> Path:
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    settings = {"Env": [f"PATH={_PATH}"], "Entrypoint": ["/usr/bin/false"], "User": image.user}
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = {"architecture": architecture, "os": "linux", "config": settings}
    config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    manifest = [{"Config": "config.json", "RepoTags": [image.reference], "Layers": ["layer.tar"]}]
    for name, content in (("config.json", config), ("manifest.json", manifest)):
        layer.with_name(name).write_text(json.dumps(content))
    with tarfile.open(archive, "w") as tar:
        for name in ("manifest.json", "config.json", "layer.tar"):
            tar.add(layer.with_name(name), name)
    return archive
