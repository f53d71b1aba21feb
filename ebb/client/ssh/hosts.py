"""A job's worker as OpenSSH is told of it: options of one call, or an entry of its configuration that VS Code finds.

host = Host(job="digits", command=("/usr/bin/ebb", "ssh", "--stdio", "digits"))
host.name                               # ebb-digits
install(host)                           # in a file of ours, which one Include line of ~/.ssh/config names
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from ebb.client.errors import BadRequest
from ebb.client.ssh.authority import folder, known_hosts, write

ALIVE_SECONDS = 30
_ENTRY = re.compile(r"^Host (\S+)\n(?:[ \t].*\n)*", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Host:
    """A job's worker as a host. `command`: the program and its words that carry one connection there."""

    job: str
    worker: int | None = None
    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name for OpenSSH."""
        return host_name(self.job, self.worker)

    @property
    def settings(self) -> dict[str, str]:
        """OpenSSH's options: it speaks only to a server with a certificate for this name, and shows it no key of the user's."""
        return {
            "ProxyCommand": shlex.join(self.command).replace("%", "%%"),
            "User": "ebb",
            "HostKeyAlias": self.name,
            "UserKnownHostsFile": _quoted(known_hosts()),
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "HostKeyAlgorithms": "ssh-ed25519-cert-v01@openssh.com",
            "CheckHostIP": "no",
            "UpdateHostKeys": "no",
            "PubkeyAuthentication": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "ServerAliveInterval": str(ALIVE_SECONDS),
        }

    @property
    def options(self) -> list[str]:
        """The words of `ssh` that lead there."""
        return [word for name, value in self.settings.items() for word in ("-o", f"{name}={value}")]

    @property
    def entry(self) -> str:
        """The lines of a configuration."""
        return "".join([f"Host {self.name}\n", *(f"  {name} {value}\n" for name, value in self.settings.items())])


def host_name(job: str, worker: int | None = None) -> str:
    """The name of a job's worker, or of whichever runs."""
    return f"ebb-{job}" if worker is None else f"ebb-{job}-worker-{worker}"


def config() -> Path:
    """Return our own file of entries."""
    return folder() / "config"


def install(host: Host) -> bool:
    """Write the entry, over one of the same name, and have OpenSSH read it: True where that took a line in the user's own file.
    Raises BadRequest where a file cannot be written."""
    _change(host.name, host.entry)
    users, line = Path("~/.ssh/config").expanduser(), f"Include {_quoted(config())}\n"
    try:
        users.parent.mkdir(mode=0o700, exist_ok=True)
        users = users.resolve()  # of people who keep it elsewhere, behind a link
        text = users.read_text(encoding="utf-8", errors="surrogateescape") if users.exists() else ""
        if line in text.splitlines(keepends=True):
            return False
        # First: below a Host line it would count for that host alone.
        mode = users.stat().st_mode & 0o777 if users.exists() else 0o600
        write(users, line + text, mode)
    except OSError as error:
        raise BadRequest(f"{users} cannot be written: {error.strerror}. Put this line first into it: {line.strip()}") from error
    return True


def remove(host: Host) -> bool:
    """Take the entry out; False where there is none. Raises BadRequest."""
    return _change(host.name, "")


def _change(name: str, entry: str) -> bool:
    path = config()
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        others = "".join(each[0] for each in _ENTRY.finditer(text) if each[1] != name)
        if others + entry != text:
            write(path, others + entry)
    except OSError as error:
        raise BadRequest(
            f"{path} cannot be written: {error.strerror}. It keeps the hosts of `ebb ssh`: make it yours."
        ) from error
    return any(each[1] == name for each in _ENTRY.finditer(text))


def _quoted(path: Path) -> str:
    return f'"{path}"' if " " in str(path) else str(path)
