"""The pinned versions beside the newest that their publishers know: `make bump`. It changes nothing.

    python -m infra.bump

The one command that asks package indexes. Pins are found in the files themselves, by the patterns of PINS and of the clouds
(Cloud.PINS), so none is written down twice. What only a cloud's account knows `make preflight` compares.
"""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import clouds, commands
from infra.account.records import ACCOUNT, GITHUB, PYPI, Pattern
from infra.config import ROOT

Fetch = Callable[[str], Any]  # an address -> its JSON; raises OSError
SIMPLE = "application/vnd.pypi.simple.v1+json"  # with the list of versions: https://peps.python.org/pep-0700/
SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One version in one file."""

    name: str
    version: str
    file: str
    source: str
    pattern: Pattern


PINS = (
    Pattern(files="pyproject.toml", text=r'"(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^"]+)"', index=PYPI),
    Pattern(files="trainer/requirements.txt", text=r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>\S+)", index=PYPI),
    Pattern(files="Makefile", text=r"^UV_VERSION := (?P<version>\S+)", index=PYPI, name="uv"),
    Pattern(
        files="infra/clouds/*/**/*.py",
        text=r"nvcr\.io/nvidia/k8s-device-plugin:(?P<version>v[\d.]+)",
        index=GITHUB,
        name="k8s-device-plugin",
        source="NVIDIA/k8s-device-plugin",
    ),
    Pattern(
        files="workloads/manifests/**/kustomization.yaml",
        text=r"newName: registry\.k8s\.io/etcd\n(?:.*#.*\n)*\s*newTag: (?P<version>[\d.]+)",
        index=GITHUB,
        name="etcd",
        source="etcd-io/etcd",
    ),
)


def patterns() -> Iterator[Pattern]:
    """Those of all, then those of each cloud."""
    yield from PINS
    for name in clouds.names():
        yield from clouds.named(name).PINS


def pins(root: Path) -> Iterator[Pin]:
    """Every pin below a checkout's root, in the order of patterns()."""
    for pattern in patterns():
        for path in sorted(root.glob(pattern.files)):
            for match in re.finditer(pattern.text, path.read_text(), re.MULTILINE):
                found = {"name": pattern.name, "source": pattern.source, **match.groupdict()}
                yield Pin(**found, file=str(path.relative_to(root)), pattern=pattern)


def newest(pin: Pin, fetch: Fetch) -> str:
    """The newest released version that the index has, pre-releases aside. Raises OSError."""
    if pin.pattern.index == PYPI:
        index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
        found = fetch(f"{index}/{re.sub('[-_.]+', '-', pin.name).lower()}/")["versions"]
    else:
        answer = fetch(f"https://api.github.com/repos/{pin.source}/releases?per_page=100")
        found = [one["tag_name"] for one in answer if not one["prerelease"]]
    matches = [match[1] for one in found if (match := re.fullmatch(pin.pattern.versions, one))]
    return max(matches, key=_numbers, default="")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def rows(root: Path, fetch: Fetch) -> Iterator[list[str]]:
    """A row for each pin: name, version, newest, file. An index that does not answer costs its own pins alone."""
    known: dict[tuple[str, str], str] = {}
    for pin in pins(root):
        key = (pin.source, pin.name)
        if pin.pattern.index == ACCOUNT:
            known[key] = "? make preflight"
        elif key not in known:
            try:
                known[key] = newest(pin, fetch) or "? no release"
            except (OSError, KeyError, ValueError) as error:
                known[key] = f"? {error}"
        same = _numbers(known[key]) == _numbers(pin.version)
        yield [pin.name, pin.version, "newest" if same else known[key], pin.file]


def fetched(address: str) -> Any:
    """The JSON at an address. Raises OSError, ValueError."""
    accept = "application/json" if address.startswith("https://api.github.com/") else SIMPLE
    asked = urllib.request.Request(address, headers={"Accept": accept, "User-Agent": "ebb"})  # noqa: S310 - https, or the user's index
    with urllib.request.urlopen(asked, timeout=SECONDS) as answer:  # noqa: S310 - the same
        return json.load(answer)


def main() -> int:
    for line in commands.table([["pin", "pinned", "newest", "in"], *rows(ROOT, fetched)]):
        print(line)
    return commands.EXIT_GOOD


if __name__ == "__main__":
    sys.exit(main())
