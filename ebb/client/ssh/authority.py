"""The keys by which OpenSSH on this machine knows the worker that it speaks to.

    host = await sign("ebb-digits")         # a key pair for one connection, and a certificate for that name
    known_hosts()                           # the file that says whose certificates count

A certificate authority of the user's own, made by OpenSSH's ssh-keygen: its private key stays on this machine, for its owner
alone. Each connection gets a new host key, which travels over the connection to the API server into the memory of the server in
the worker, and lies on no disk there. So OpenSSH checks every host, and no question of a changed host key ever comes up although
workers come and go; connections that begin at the same time do not get into each other's way.
"""

import asyncio
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ebb.client.errors import BadRequest, ClientError
from ebb.client.platform import platforms

AUTHORITY, KNOWN_HOSTS = "authority", "known_hosts"
PATTERN = "ebb-*"  # the names of hosts.py
VALID = "-5m:+1d"  # OpenSSH asks at the beginning of a connection only


@dataclass(frozen=True, kw_only=True)
class HostKey:
    """Of one connection, as OpenSSH writes them."""

    private: str
    certificate: str


def folder() -> Path:
    """Return where they are kept."""
    return platforms.file().parent / "ssh"


def known_hosts() -> Path:
    """Return OpenSSH's file of hosts to trust; `prepare` writes it."""
    return folder() / KNOWN_HOSTS


async def prepare() -> None:
    """Make the authority, and write who it is, where that is not done yet. Raises BadRequest, ClientError."""
    place = folder()
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (place / AUTHORITY).exists():
            with tempfile.TemporaryDirectory(dir=place) as made:  # mode 0700
                await _keygen("-q", "-t", "ed25519", "-N", "", "-C", "ebb", "-f", str(Path(made) / AUTHORITY))
                with suppress(FileExistsError):  # another `ebb` was faster
                    os.link(Path(made) / AUTHORITY, place / AUTHORITY)
        public = await _keygen("-y", "-P", "", "-f", str(place / AUTHORITY))
        line = f"@cert-authority {PATTERN} {public.strip()}\n"
        if not known_hosts().exists() or known_hosts().read_text() != line:
            write(known_hosts(), line)
    except OSError as error:
        raise BadRequest(
            f"{place} cannot be written: {error.strerror}. It keeps the keys of `ebb ssh`: make it yours."
        ) from error


async def sign(host: str) -> HostKey:
    """A new host key with a certificate for this name. Raises BadRequest, ClientError."""
    await prepare()
    with tempfile.TemporaryDirectory(prefix="ebb-ssh-") as made:
        key = Path(made) / "key"
        await _keygen("-q", "-t", "ed25519", "-N", "", "-C", host, "-f", str(key))
        authority = str(folder() / AUTHORITY)
        await _keygen("-q", "-s", authority, "-P", "", "-h", "-I", host, "-n", host, "-V", VALID, f"{key}.pub")
        return HostKey(private=key.read_text(), certificate=Path(f"{key}-cert.pub").read_text())


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file as a whole."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


async def _keygen(*words: str) -> str:
    pipe = asyncio.subprocess.PIPE
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec("ssh-keygen", *words, stdin=nothing, stdout=pipe, stderr=pipe)
    except FileNotFoundError as error:
        raise BadRequest(NO_OPENSSH) from error
    said, complaint = await process.communicate()
    if process.returncode:
        raise ClientError(
            f"ssh-keygen could not make the keys: {' '.join(complaint.decode(errors='replace').split())[-300:]}. "
            f"If {folder()} is damaged, remove it: it is made anew."
        )
    return said.decode()


NO_OPENSSH = "OpenSSH's client is not on this machine: install it (Debian and Ubuntu: `apt-get install openssh-client`)."
