"""`python3 -m ebb.elastic.portable FOLDER --urllib3 DIR`: make the folder."""

import argparse
import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

import ebb

PARTS = (
    "__init__.py",
    "compat.py",
    "torch_limits.py",
    "elastic",
    "metadata",
)  # of the package: what runs beside a training program
PROGRAMS = ("tini-static", "busybox")  # static: they run in any image
_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "contrib")  # urllib3's, for browsers and other libraries
_MODULES = ((r"^import urllib3$", "from ebb._vendor import urllib3"), (r"^from urllib3\b", "from ebb._vendor.urllib3"))


def make(folder: Path, urllib3: Path) -> None:
    """Raises FileNotFoundError for a program that this machine has not."""
    source, python = Path(ebb.__file__).parent, folder / "python"
    for part in PARTS:
        copy(source / part, python / "ebb" / part)
    for path in (python / "ebb").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for pattern, replacement in _MODULES:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        path.write_text(text, encoding="utf-8")
    copy(urllib3 / "urllib3", python / "ebb" / "_vendor" / "urllib3")
    (python / "ebb" / "_vendor" / "__init__.py").touch()
    portable = source / "elastic" / "portable"
    shutil.copy(portable / "entry.py", python / "__main__.py")
    shutil.copy(portable / "start", folder / "start")
    _describe(python)
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is None:
            raise FileNotFoundError(f"there is no program {name!r} here: install Debian's packages tini and busybox-static")
        shutil.copy(found, folder / name.partition("-")[0])


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=_IGNORED)
    else:
        shutil.copy(source, target)


def _describe(python: Path) -> None:
    """Metadata: torchrun finds our rendezvous by it, and a requirements.txt that names ebb-train is content. It requires nothing:
    what the launcher needs is here, and the image's torch is whatever it is."""
    version = importlib.metadata.version("ebb-train")
    info = python / f"ebb_train-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ebb-train\nVersion: {version}\nProvides-Extra: train\n")
    (info / "entry_points.txt").write_text("[torchrun.handlers]\netcd3 = ebb.elastic.rendezvous.entry_point:torchrun_handler\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m ebb.elastic.portable", description=__doc__)
    parser.add_argument("folder", type=Path, help="must not be there")
    parser.add_argument("--urllib3", type=Path, required=True, metavar="DIR", help="the folder with a urllib3 for Python 3.9")
    given = parser.parse_args()
    make(given.folder, given.urllib3)
    return 0


if __name__ == "__main__":
    sys.exit(main())
