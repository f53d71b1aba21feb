"""Official release binaries: downloaded where their sites answer, and checked against the checksums published beside them.

    taken = await download("etcd v3.6.16", ETCD, "v3.6.16", ("etcd",), folder)     # False: the caller builds from source

Everything that can go wrong on the way is one line for the person who waits, and False: nothing is raised and nothing is left in
the folder. A site that does not answer within ANSWER_SECONDS is not asked again by this process.
EBB_DOWNLOADS (settings.py) names a mirror that has each site as the first component of its paths, or is `never`.
"""

import asyncio
import hashlib
import platform
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from devcluster import settings
from devcluster.commands import HEARTBEAT_SECONDS, say

ANSWER_SECONDS = 3.0  # a site that cannot be reached should not hold up the build that takes its place
SILENCE_SECONDS = 20.0  # within a download; a stalled mirror is worse than a build
CHUNK_BYTES = 2**18
MB = 10**6
NEVER = "never"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_unreachable: dict[str, str] = {}  # site -> the reason


class DownloadError(Exception):
    """A file could not be downloaded; the message says why."""


class BadFileError(DownloadError):
    """A file arrived in part, or is not the published one."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """Place of a project's release: `file` and `checksums` are in `folder` on `site`.

    Placeholders: {version} v1.2.3, {number} 1.2.3, {arch} amd64 or arm64, and in `file` {program}, for a project that
    publishes each program by itself; any other file is a tar archive. In `checksums` {file} is the name of the file.
    """

    site: str
    folder: str
    file: str
    checksums: str
    amd64: str = "amd64"
    """The project's own name for the architecture."""
    beside: tuple[str, ...] = ()
    """Programs of the archive to take along."""

    def files(self, version: str, programs: Sequence[str]) -> dict[str, str]:
        """Path on the site of each file -> path of its checksums. Empty where nothing is published for this machine."""
        arch = ARCHITECTURES.get(platform.machine()) if platform.system() == "Linux" else None
        if arch is None:
            return {}
        values = {"version": version, "number": version.removeprefix("v"), "arch": self.amd64 if arch == "amd64" else arch}
        folder, found = self.folder.format(**values), {}
        for program in programs if "{program}" in self.file else programs[:1]:
            file = self.file.format(program=program, **values)
            found[f"{folder}/{file}"] = f"{folder}/{self.checksums.format(file=file, **values)}"
        return found


async def download(what: str, release: Release, version: str, programs: Sequence[str], folder: Path) -> bool:
    """Put the release's programs into the folder: all of them or none. Says in one line which way was taken."""
    try:
        size = await _download(what, release, version, programs, folder)
    except DownloadError as error:
        said = f"error: {what}: {error}" if isinstance(error, BadFileError) else f"{what}: not downloaded, {error}"
        say(f"{said}; building it from source")
        return False
    say(f"{what}: the official release from {release.site} ({size / MB:.0f} MB, checksums match)")
    return True


async def is_offered(release: Release, version: str, programs: Sequence[str]) -> bool:
    """True if the site answers and publishes checksums of all files."""
    try:
        async with _session() as session:
            await _digests(session, release, version, programs)
    except DownloadError:
        return False
    return True


async def answers(site: str, path: str) -> bool:
    """True if the page can be had within seconds."""
    try:
        async with _session() as session:
            await _text(session, site, path)
    except DownloadError:
        return False
    return True


def url_of(site: str, path: str) -> str:
    return f"{settings.DOWNLOADS.rstrip('/') + '/' if settings.DOWNLOADS else 'https://'}{site}/{path}"


async def _download(what: str, release: Release, version: str, programs: Sequence[str], folder: Path) -> int:
    async with _session() as session:
        digests = await _digests(session, release, version, programs)
        # Programs get their final names only when all of them are there and checked.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as name:
            work, size = Path(name), 0
            (work / "programs").mkdir()
            for path, digest in digests.items():
                file = work / Path(path).name
                size += await _save(session, release.site, path, digest=digest, file=file, what=f"downloading {what}")
                if "{program}" in release.file:
                    file.rename(work / "programs" / file.name)
                else:
                    await asyncio.to_thread(_unpack, file, work / "programs", {*programs, *release.beside})
            for program in (work / "programs").iterdir():
                program.chmod(0o755)
                program.rename(folder / program.name)
    return size


@asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    # Proxies of the environment are the only way out of many networks.
    async with aiohttp.ClientSession(trust_env=True, auto_decompress=False, headers={"Accept-Encoding": "identity"}) as session:
        yield session


async def _digests(
    session: aiohttp.ClientSession, release: Release, version: str, programs: Sequence[str]
) -> dict[str, str]:  # fmt: skip
    """SHA-256 of every file, by its path on the site."""
    files = release.files(version, programs)
    if not files:
        raise DownloadError(f"{release.site} has nothing for {platform.system()} on {platform.machine()}")
    texts = {path: await _text(session, release.site, path) for path in sorted(set(files.values()))}
    return {path: _digest(texts[checksums], Path(path).name, checksums) for path, checksums in files.items()}


def _digest(text: str, file: str, path: str) -> str:
    """The file's SHA-256 in the output of sha256sum, or alone in the text."""
    for words in map(str.split, text.splitlines()):
        named = len(words) == 1 or Path(words[-1].lstrip("*")).name == file
        if words and named and re.fullmatch("[0-9a-fA-F]{64}", words[0]):
            return words[0].lower()
    raise DownloadError(f"{Path(path).name} holds no SHA-256 of {file}")


async def _text(session: aiohttp.ClientSession, site: str, path: str) -> str:
    if settings.DOWNLOADS == NEVER:
        raise DownloadError(f"EBB_DOWNLOADS={NEVER}")
    if site in _unreachable:
        raise DownloadError(_unreachable[site])
    try:
        async with asyncio.timeout(ANSWER_SECONDS), session.get(url_of(site, path)) as answer:
            body = await answer.read()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        why = f"within {ANSWER_SECONDS:g} s" if isinstance(error, TimeoutError) else f"({error})"
        _unreachable[site] = f"{site} does not answer {why}"
        raise DownloadError(_unreachable[site]) from error
    if answer.status != 200:
        raise DownloadError(f"{site} answers {answer.status} for {path}")
    return body.decode(errors="replace")


async def _save(session: aiohttp.ClientSession, site: str, path: str, *, digest: str, file: Path, what: str) -> int:
    """Download one file, with a line of progress every few seconds; returns its size."""
    done, seen, told = 0, hashlib.sha256(), time.monotonic()
    limits = aiohttp.ClientTimeout(total=None, connect=ANSWER_SECONDS, sock_read=SILENCE_SECONDS)
    size: int | None = None
    try:
        async with session.get(url_of(site, path), timeout=limits) as answer:
            if answer.status != 200:
                raise DownloadError(f"{site} answers {answer.status} for {path}")
            size = answer.content_length
            with file.open("wb") as output:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    output.write(chunk)
                    seen.update(chunk)
                    done += len(chunk)
                    if time.monotonic() - told >= HEARTBEAT_SECONDS:
                        told = time.monotonic()
                        say(f"{what} ... {file.name}: {done / MB:.0f}{f' of {size / MB:.0f}' if size else ''} MB")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        of = f" of {size:,}" if size else ""
        raise BadFileError(f"{file.name} broke off after {done:,}{of} bytes ({error or type(error).__name__})") from error
    if seen.hexdigest() != digest:
        raise BadFileError(f"{file.name} has SHA-256 {seen.hexdigest()}, and {site} publishes {digest}: it is not used")
    return done


def _unpack(archive: Path, folder: Path, wanted: set[str]) -> None:
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = Path(member.name).name
                if name in wanted and member.isfile() and (source := tar.extractfile(member)) is not None:
                    with (folder / name).open("wb") as target:
                        shutil.copyfileobj(source, target)
    except (tarfile.TarError, EOFError) as error:
        raise BadFileError(f"{archive.name} cannot be unpacked ({error})") from error
    if missing := wanted - {file.name for file in folder.iterdir()}:
        raise BadFileError(f"{archive.name} has no {', '.join(sorted(missing))}")
    archive.unlink()
