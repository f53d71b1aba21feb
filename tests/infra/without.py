"""What breaks when one cloud is deleted: nothing but its own tests and stacks.

    python -m tests.infra.without gcp                    # the unit tests of infra, in a copy of the checkout without that cloud
    python -m tests.infra.without gcp tests/infra/test_config.py

Deleted are infra/clouds/<cloud>, tests/infra/<cloud> and the stacks on it; then the generated files are written again, as
`make manifests` does. The checkout itself is not touched. Prints what pytest prints; the exit code is pytest's.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from infra import clouds
from tests.infra.stacks import ROOT

SLOWEST_SECONDS = 1800.0


def copy(folder: Path, cloud: str) -> None:
    """The checkout as git sees it, new files too, without the cloud."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in sorted(set(listed.stdout.split("\0"))):
        if (ROOT / name).is_file() and not _is_of(name, cloud):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")


def _is_of(name: str, cloud: str) -> bool:
    path = Path(name)
    if path.match("Pulumi.*.yaml") and len(path.parts) == 1:
        return bool((yaml.safe_load((ROOT / name).read_text()).get("config") or {}).get("ebb:cloud") == cloud)
    return path.parts[:3] in (("infra", "clouds", cloud), ("tests", "infra", cloud))


def run(cloud: str, *tests: str) -> subprocess.CompletedProcess[str]:
    """pytest, there."""
    with tempfile.TemporaryDirectory(prefix=f"ebb-without-{cloud}-") as name:
        folder = Path(name)
        copy(folder, cloud)
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-m", "manifests"], cwd=folder, env=environment, check=True, capture_output=True)
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(tests or ("tests/infra",))]
        return subprocess.run(
            words, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=SLOWEST_SECONDS, check=False,
        )  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.infra.without", description="Run tests as if a cloud had been deleted."
    )
    parser.add_argument("cloud", choices=clouds.names())
    parser.add_argument("tests", nargs="*", help="what pytest runs; default: tests/infra")
    given = parser.parse_args(arguments)
    done = run(given.cloud, *given.tests)
    print(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
