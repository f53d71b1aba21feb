"""The wheels of a job's requirements.txt, for workers that reach no package index: those of a devcluster, on this machine.

    wheels = wheels_for(folder, request.env, platform)      # None: the workers install from an index, as anywhere else
    files = await fetch(wheels, note)                       # kept for later jobs with the same requirements

Only what the image does not have is fetched, for the Python and the kind of machine that the workers have; a package that has no
wheel and is Python alone is built here. The launcher installs from that folder in place of an index
(ebb/elastic/launch/packages.py). Requirements that name files or indexes of their own are
left to the workers: these may be there on purpose.
"""

import asyncio
import hashlib
import importlib.util
import os
import platform as this
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ebb.api.platform import Platform
from ebb.client.errors import BadRequest

FOLDER = ".ebb/wheels"  # on the output volume
PYTHON = "3.11"  # of the devcluster's image, as devcluster/images/environment.py says
GLIBC = range(36, 16, -1)  # manylinux_2_36 and older: Debian bookworm
INDEX_SETTINGS = frozenset(
    {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX"}
)
_IMAGE = Path(__file__).parents[3] / "trainer" / "requirements.txt"  # in a checkout, where devclusters are
_PLAIN = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w.,\s-]+\])?\s*([<>=!~][^@/]*)?(;.*)?")
_OF_TORCH = re.compile(r"(nvidia|cuda)-.*|triton")  # its wheel's own, in no list of the image
_LAST_LINES = 6

Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """`requirements`: the text that asks for them. `name`: of the folder, the same for the same text and image."""

    requirements: str
    name: str

    def place(self, root: str) -> str:
        """The folder in the workers."""
        return f"{root}/{FOLDER}/{self.name}"


def wheels_for(folder: Path, environment: Mapping[str, str], platform: Platform) -> Wheels | None:
    """Decide, and fetch nothing. None where the workers do it themselves."""
    try:
        text = (folder / "requirements.txt").read_text(encoding="utf-8-sig")
        image = _IMAGE.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    if platform.cloud != "local" or INDEX_SETTINGS & environment.keys() or not all(map(importlib.util.find_spec, ("pip", "uv"))):
        return None
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    if not any(lines) or not all(_PLAIN.fullmatch(line) for line in lines if line):
        return None
    key = hashlib.sha256("\0".join([*sorted(filter(None, lines)), image, PYTHON, this.machine()]).encode())
    return Wheels(requirements=text, name=key.hexdigest()[:16])


async def fetch(wheels: Wheels, note: Note) -> tuple[Path, ...]:
    """The files. Raises BadRequest where there are none that fit."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "ebb" / "wheels"
    folder = home / wheels.name
    if not folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=home))
        try:
            await _fetch(wheels, partial, note)
            (partial / "new").rename(folder)
        except OSError as error:
            if not folder.is_dir():  # another `ebb` was faster
                raise BadRequest(
                    f"{home} cannot be written: {error.strerror}. It keeps what requirements.txt asks for."
                ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return tuple(sorted(folder.iterdir()))


async def _fetch(wheels: Wheels, partial: Path, note: Note) -> None:
    """uv says what it comes to, and pip fetches what of that the image does not have: torch alone would be gigabytes."""
    note("fetching what requirements.txt asks for: workers on this machine's devcluster reach no package index")
    (partial / "new").mkdir()
    (partial / "requirements.txt").write_text(wheels.requirements)
    image = _IMAGE.read_text()
    (partial / "image.txt").write_text(image)
    # Not wheels alone: hydra-core needs a package that has none, and would be resolved to a version of years ago that does not.
    fits = [f"--python-version={PYTHON}", f"--python-platform={this.machine()}-manylinux_2_{GLIBC[0]}"]
    flags = ["--quiet", "--no-header", "--no-annotate", "--index-strategy=unsafe-best-match", "--constraint=image.txt", *fits]
    said = await _run("uv", "pip", "compile", *flags, *_indexes(), "requirements.txt", folder=partial)
    has = {_normal(name) for name in re.findall(r"^([\w.-]+)==", image, re.MULTILINE)}
    pins = {_normal(name): f"{name}=={version}" for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", said, re.MULTILINE)}
    missing = {name: pin for name, pin in pins.items() if name not in has and not _OF_TORCH.fullmatch(name)}
    if missing:
        kinds = [*(f"manylinux_2_{minor}" for minor in GLIBC), "manylinux2014", "manylinux1", "linux"]
        fits = [f"--python-version={PYTHON}", "--implementation=cp"]
        fits += [f"--platform={kind}_{this.machine()}" for kind in kinds]
        flags = ["--no-input", "--disable-pip-version-check", "--quiet", "--no-deps", "--dest=new", *fits]
        await _run("pip", "download", *flags, *missing.values(), folder=partial)
        await _build(partial)
    size = sum(each.stat().st_size for each in (partial / "new").iterdir())
    note(f"fetched {', '.join(sorted(missing))} ({size / 1e6:.1f} MB)" if missing else "the image has all of requirements.txt")


async def _build(partial: Path) -> None:
    """Make wheels of what came as its source. Raises BadRequest where it is no Python alone, and fits this machine at most."""
    for source in sorted(path for path in (partial / "new").iterdir() if path.suffix != ".whl"):
        flags = ["--no-input", "--disable-pip-version-check", "--quiet", "--no-deps", "--wheel-dir=built"]
        await _run("pip", "wheel", *flags, str(source), folder=partial)
        source.unlink()
        (wheel,) = (partial / "built").iterdir()
        if not wheel.name.endswith("-none-any.whl"):
            raise BadRequest(
                f"requirements.txt needs {source.name}, which has no wheel for the workers' Python {PYTHON}, and one built "
                "here fits this machine alone. Choose a version with wheels, or use --image with one that has it."
            )
        wheel.rename(partial / "new" / wheel.name)


def _indexes() -> list[str]:
    """pip's own variables, for uv, which does not read them."""
    options = {"PIP_INDEX_URL": "--default-index", "PIP_EXTRA_INDEX_URL": "--index"}
    return [f"{option}={value}" for name, option in options.items() for value in os.environ.get(name, "").split()]


async def _run(module: str, *words: str, folder: Path) -> str:
    """Return what it prints. Raises BadRequest with the last of its complaint."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    command = [sys.executable, "-P", "-m", module, *words]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdin=nothing, stdout=pipe, stderr=pipe)
    try:
        said, complaint = await process.communicate()
    finally:
        if process.returncode is None:  # Ctrl-C
            process.kill()
            await process.wait()
    if process.returncode:
        last = "\n".join(f"  {line}" for line in complaint.decode(errors="replace").strip().splitlines()[-_LAST_LINES:])
        raise BadRequest(
            f"requirements.txt cannot be fetched for the workers, with Python {PYTHON} and what their image has:\n{last}\n"
            "Correct it, or name an index that the workers reach with --env PIP_INDEX_URL=..."
        )
    return said.decode()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
