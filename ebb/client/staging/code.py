"""The code that travels with a job: a folder -> one small archive, the same for the same files.

    code = packed(Path("."))        # what .gitignore ignores stays at home

delivery.py brings it to the pods, where ebb/elastic/launch/code.py unpacks it. Not packed: what .gitignore says, tracked or not
(also those of the folders above, up to the repository's), .git, caches of Python, virtual environments.
"""

import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pathspec import GitIgnoreSpec

from ebb.client.errors import BadRequest
from ebb.client.jobs.watch import ignore

SMALL_BYTES = 700 * 1024  # of the 1 MiB that a ConfigMap may hold; in the request it is a third longer, and the job is beside it
LARGEST_BYTES = 512 * 2**20  # packed. More is data, and every worker would unpack it at every start
MOST_FILES = 20_000
FOLDERS_LEFT_OUT = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}
    | {"ebb-output"}  # what `ebb local` wrote
)
FILES_LEFT_OUT = (".pyc", ".pyo")
_ENVIRONMENT = "pyvenv.cfg"  # in a virtual environment, whatever its name
_PIECE = 2**20
_NOTE_SECONDS = 5.0
_WORTH_A_LINE = 10**7  # bytes; less is packed before it is read


@dataclass(frozen=True, kw_only=True)
class Code:
    """A packed folder. `sha256` of the archive is its version: the same files, names and modes have the same."""

    folder: str
    archive: Path
    sha256: str
    size_bytes: int
    files: int
    unpacked_bytes: int
    on_volume: bool = False  # of this platform, from an earlier job: nothing is sent, and there need be no archive here

    @property
    def small(self) -> bool:
        return self.size_bytes <= SMALL_BYTES and not self.on_volume


@dataclass(frozen=True)
class CodeEntry:
    """A file or a symbolic link of the folder; `name` is relative to it."""

    name: str
    path: Path
    size: int
    executable: bool
    link: str = ""


def pack(folder: Path, archive: Path, note: Callable[[str], None] = ignore) -> Code:
    """Write the folder's archive. Raises BadRequest for what cannot travel."""
    entries = listed(folder)
    size = sum(entry.size for entry in entries)
    if size >= _WORTH_A_LINE:
        where = f"most of it in {_largest(entries)}; .gitignore keeps out what need not travel"
        note(f"packing {folder}: {amount(size)} in {len(entries)} files, {where}")
    try:
        with (
            archive.open("wb") as file,
            gzip.GzipFile("", "wb", 6, _Bounded(file), mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w|", format=tarfile.PAX_FORMAT) as tar,
        ):
            _add(tar, entries, size, note)
    except _TooLarge as error:
        raise BadRequest(_too_large(folder, entries)) from error
    except OSError as error:
        what = f"{error.filename or archive} cannot be read or written: {error.strerror or error}"
        raise BadRequest(f"code {str(folder)!r}: {what}. Put it right, or add the file to .gitignore.") from error
    return Code(
        folder=str(folder),
        archive=archive,
        sha256=digest(archive),
        size_bytes=archive.stat().st_size,
        files=len(entries),
        unpacked_bytes=size,
    )


def packed(folder: Path, note: Callable[[str], None] = ignore) -> Code:
    """The same in a temporary file, which goes with the object. Raises BadRequest."""
    place = tempfile.mkdtemp(prefix="ebb-code-")
    try:
        code = pack(folder, Path(place) / "code.tar.gz", note)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    weakref.finalize(code, shutil.rmtree, place, ignore_errors=True)
    return code


def listed(folder: Path) -> list[CodeEntry]:
    """Return what would travel, in a fixed order. Raises BadRequest for no folder, links that leave it, too much."""
    if not folder.is_dir():
        raise BadRequest(f"code {str(folder)!r} is not a folder: name the one that holds your program, as in --code .")
    found: list[CodeEntry] = []
    for entry in _walk(folder.resolve()):
        found.append(entry)
        if len(found) > MOST_FILES:
            raise BadRequest(
                f"code {str(folder)!r} holds more than {MOST_FILES} files, most of them in {_fullest(found)}: name the folder of "
                "the program alone, or add what it does not need to .gitignore. Data goes with `ebb data put`."
            )
    if not found:
        raise BadRequest(f"code {str(folder)!r} holds nothing that .gitignore does not ignore: name the folder of your program.")
    return sorted(found, key=lambda entry: entry.name)


def digest(path: Path) -> str:
    """The sha256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


def amount(size: float) -> str:
    """Bytes as people read them: 812 B, 34 kB, 1.2 MB."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _fullest(entries: Sequence[CodeEntry]) -> str:
    """The folder with the most files; "." where they lie in none."""
    return Counter(entry.name.rpartition("/")[0].partition("/")[0] or "." for entry in entries).most_common(1)[0][0]


class Tally:
    """Says how much of a transfer is done, every few seconds; to be called with each bytes that went or came."""

    def __init__(self, done: str, total: int, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._words, self._total, self._note, self._clock = done, total, note, clock
        self._bytes, self._told = 0, clock()

    def __call__(self, moved: int) -> None:
        self._bytes += moved
        if self._clock() - self._told >= _NOTE_SECONDS:
            self._told = self._clock()
            self._note(f"{self._words} {amount(self._bytes)} of {amount(self._total)}")


def _walk(root: Path) -> Iterator[CodeEntry]:
    rules = _Rules.above(root)
    for place, folders, files in os.walk(root):
        here = Path(place)
        rules.read(here)
        links = [name for name in folders if (here / name).is_symlink()]
        kept = [name for name in folders if name not in links and not _left_out(here / name, rules)]
        folders[:] = sorted(kept)  # os.walk goes on with these
        for name in sorted([*files, *links]):
            path = here / name
            if not name.endswith(FILES_LEFT_OUT) and not rules.ignores(path, folder=False):
                entry = _entry(path, root)
                if entry is not None:
                    yield entry


def _left_out(folder: Path, rules: "_Rules") -> bool:
    if folder.name in FOLDERS_LEFT_OUT or (folder / _ENVIRONMENT).exists():
        return True
    return rules.ignores(folder, folder=True)


def _entry(path: Path, root: Path) -> CodeEntry | None:
    """None for what is no file: sockets, pipes, devices."""
    name, found = path.relative_to(root).as_posix(), path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return CodeEntry(name, path, 0, False, _target(path, root))
    return CodeEntry(name, path, found.st_size, bool(found.st_mode & stat.S_IXUSR)) if stat.S_ISREG(found.st_mode) else None


def _target(link: Path, root: Path) -> str:
    """Return where a link leads, from its own folder on. Raises BadRequest for one that leaves the folder."""
    written = link.readlink()
    place = Path(os.path.normpath(link.parent / written))
    if not place.is_relative_to(root) or not Path(os.path.realpath(link)).is_relative_to(root):
        raise BadRequest(
            f"code {str(root)!r}: the link {link.relative_to(root)} leads out of the folder, to {written}. "
            "Copy what it leads to, or add the link to .gitignore."
        )
    return os.path.relpath(place, link.parent)


class _Rules:
    """The .gitignore files from the repository's folder down to where the walk is; the deepest that says anything decides."""

    def __init__(self) -> None:
        self._specs: list[tuple[Path, GitIgnoreSpec]] = []

    @classmethod
    def above(cls, root: Path) -> "_Rules":
        """Those that count for `root` before its own: of a folder that is in no repository, none."""
        rules = cls()
        repository = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
        rules._read_file(repository, repository / ".git" / "info" / "exclude")
        for folder in reversed(root.parents):
            if folder.is_relative_to(repository):
                rules.read(folder)
        return rules

    def read(self, folder: Path) -> None:
        """The folder's own; those of folders that the walk has left are forgotten."""
        self._specs = [(place, spec) for place, spec in self._specs if folder.is_relative_to(place)]
        self._read_file(folder, folder / ".gitignore")

    def ignores(self, path: Path, *, folder: bool) -> bool:
        for place, spec in reversed(self._specs):
            name = path.relative_to(place).as_posix() + ("/" if folder else "")
            said = spec.check_file(name).include
            if said is not None:
                return said
        return False

    def _read_file(self, place: Path, file: Path) -> None:
        try:
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise BadRequest(f"{file} cannot be read: {error.strerror}. It says what does not travel; let it be read.") from error
        self._specs.append((place, GitIgnoreSpec.from_lines(lines)))


class _TooLarge(Exception):
    """No more is written: it would fill the disk with what cannot travel."""


class _Bounded(io.RawIOBase):
    """A file that takes at most LARGEST_BYTES."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._written = file, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._written += memoryview(data).nbytes
        if self._written > LARGEST_BYTES:
            raise _TooLarge
        return self._file.write(data)


def _add(tar: tarfile.TarFile, entries: Sequence[CodeEntry], size: int, note: Callable[[str], None]) -> None:
    """With nothing of this machine: no times, no owners, no modes but whether it may be run."""
    done, told = 0, 0
    for entry in entries:
        member = tarfile.TarInfo(entry.name)
        member.mode = 0o755 if entry.executable else 0o644
        if entry.link:
            member.type, member.linkname = tarfile.SYMTYPE, entry.link
            tar.addfile(member)
            continue
        member.size = entry.size
        with entry.path.open("rb") as file:
            tar.addfile(member, file)
        done += entry.size
        if done - told >= 100 * 2**20:
            note(f"packed {amount(done)} of {amount(size)}")
            told = done


def _too_large(folder: Path, entries: Sequence[CodeEntry]) -> str:
    return (
        f"code {str(folder)!r} packs to more than {amount(LARGEST_BYTES)}, and no more than that travels with a job. "
        f"Most of it is in {_largest(entries)}. Add what the program does not need to .gitignore; data goes with `ebb data put`."
    )


def _largest(entries: Sequence[CodeEntry]) -> str:
    """The three largest of the folders, and of the files beside them."""
    sizes: dict[str, int] = {}
    for entry in entries:
        first, inside, _ = entry.name.partition("/")
        name = first + inside
        sizes[name] = sizes.get(name, 0) + entry.size
    return ", ".join(f"{name} ({amount(sizes[name])})" for name in sorted(sizes, key=lambda name: sizes[name], reverse=True)[:3])
