"""The platforms that a person uses, by names of their own: which kubeconfig each is reached by, and which one is meant usually.

    add("gcp", kubeconfig="~/gcp.kubeconfig");  use("gcp");  find("gcp").kubeconfig;  remove("gcp")

One file, ~/.config/ebb/platforms.yaml ($XDG_CONFIG_HOME/ebb/platforms.yaml), for its owner alone, always whole:

    current: aws
    platforms:
      aws: {kubeconfig: /home/ada/.kube/aws, context: null}

It names kubeconfigs and holds no secret. connection.py says when it counts; nothing here speaks to a platform.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ebb.client.errors import BadRequest, Missing

ALL = "all"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Known:
    """One line of the file."""

    name: str
    kubeconfig: str
    context: str | None
    current: bool


def file() -> Path:
    """Return where they are kept."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "ebb" / "platforms.yaml"


def known() -> tuple[Known, ...]:
    """All of them, by name. Raises BadRequest for a file that nobody could have meant."""
    content = _read()
    return tuple(
        Known(name=name, kubeconfig=item["kubeconfig"], context=item.get("context"), current=name == content.get("current"))
        for name, item in sorted(content["platforms"].items())
    )


def current() -> Known | None:
    """The one that is meant where nothing else says which."""
    return next((each for each in known() if each.current), None)


def find(name: str) -> Known:
    """Raises Missing with the names that there are."""
    platforms = known()
    found = next((each for each in platforms if each.name == name), None)
    if found is None:
        names = ", ".join(each.name for each in platforms)
        there = f"there are: {names}" if names else "there are none yet"
        raise Missing(f"platform {name!r} is not known: {there}. Add it with `ebb platform add {name} --kubeconfig FILE`.")
    return found


def add(name: str, *, kubeconfig: str, context: str | None = None) -> Known:
    """Write it down, over one of the same name; the first one becomes the current one. Raises BadRequest."""
    if not _NAME.fullmatch(name) or name == ALL:
        raise BadRequest(
            f"name {name!r} is not usable for a platform: use lower-case letters, digits, '-', '_' and '.', and not {ALL!r}, "
            "which means every platform."
        )
    paths = [str(Path(part).expanduser().absolute()) for part in kubeconfig.split(os.pathsep)]
    content = _read()
    content["platforms"][name] = {"kubeconfig": os.pathsep.join(paths), "context": context}
    content["current"] = content.get("current") or name
    _write(content)
    return find(name)


def use(name: str) -> Known:
    """Make it the current one. Raises Missing."""
    find(name)
    _write({**_read(), "current": name})
    return find(name)


def remove(name: str) -> Known:
    """Forget it; the platform itself and its kubeconfig stay. Raises Missing."""
    gone = find(name)
    content = _read()
    del content["platforms"][name]
    if gone.current:
        content["current"] = None
    _write(content)
    return gone


def _read() -> dict[str, Any]:
    path = file()
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"current": None, "platforms": {}}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadRequest(f"{path} cannot be read: {' '.join(str(error).split())}. {_FIX}") from error
    if content is None:
        return {"current": None, "platforms": {}}
    if problem := _problem(content):
        raise BadRequest(f"{path}: {problem}. {_FIX}")
    return {"current": content.get("current"), "platforms": dict(content.get("platforms") or {})}


_FIX = "Mend it, or remove it and add your platforms again with `ebb platform add`."


def _problem(content: object) -> str:
    if not isinstance(content, Mapping):
        return "it must hold the keys current and platforms"
    platforms = content.get("platforms") or {}
    if not isinstance(platforms, Mapping):
        return f"platforms {platforms!r} must be a mapping of names"
    for name, item in platforms.items():
        if not isinstance(item, Mapping) or not isinstance(item.get("kubeconfig"), str):
            return f"platforms.{name} must hold kubeconfig: FILE, and may hold context: NAME"
    if content.get("current") not in (None, *platforms):
        return f"current {content['current']!r} is none of its platforms ({', '.join(map(str, platforms)) or 'there are none'})"
    return ""


def _write(content: Mapping[str, Any]) -> None:
    """Whole or not at all, and nobody else's to read."""
    path = file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(prefix=".platforms-", dir=path.parent)  # mode 600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                yaml.safe_dump(dict(content), out, sort_keys=False)
                out.flush()
                os.fsync(out.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror}. Free the disk, or set XDG_CONFIG_HOME.") from error
