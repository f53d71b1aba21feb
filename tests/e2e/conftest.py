"""A box and a stack of its own for the whole session: the platform as users get it, driven by the commands that users type.

Box and Pulumi stack are named `e2e`, with a state backend of their own: a running demo is never touched. Needs root.
EBB_E2E_KEEP=1 leaves the box up after the tests, for looking at it; the next run removes it.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.settings import CHECKOUT, EBB_HOME

STACK = "e2e"
BOX = f"e2e-{hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:6]}"  # two checkouts may run their tests on one machine
Object = dict[str, Any]


class Platform:
    """What the tests do to the platform, each by its real command; every failure shows the command's whole output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / f"Pulumi.{STACK}.yaml"
        self.kubeconfig = EBB_HOME / "boxes" / BOX / "kubeconfig"
        self.env = os.environ | {
            "EBB_KUBECONFIG": str(self.kubeconfig),
            "KUBECONFIG": str(self.kubeconfig),
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "COLUMNS": "80",
        }

    def run(self, *command: str, ok: bool = True, seconds: float = 600) -> str:
        """Standard output of a command; with ok=False what it says on both streams when it fails, and that it fails."""
        done = subprocess.run(command, cwd=CHECKOUT, env=self.env, capture_output=True, text=True, timeout=seconds, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, f"{' '.join(command)} ended with {done.returncode}:\n{said[-6000:]}"
        return done.stdout if ok else said

    def box(self, *arguments: str, ok: bool = True) -> str:
        return self.run(sys.executable, "-m", "devcluster", *arguments, "--box", BOX, ok=ok)

    def ebb(self, *arguments: str, ok: bool = True) -> str:
        return self.run(str(Path(sys.executable).with_name("ebb")), *arguments, ok=ok)

    def pulumi(self, *arguments: str, ok: bool = True) -> str:
        """As at the shell of a user: after `source ./env`."""
        file = [] if arguments[0] == "stack" else ["--config-file", str(self.config)]
        typed = " ".join([*arguments, "--stack", STACK, *file, "--non-interactive", "--color", "never"])
        return self.run("bash", "-c", f"source ./env && exec pulumi {typed}", ok=ok)

    def kubectl(self, *arguments: str, ok: bool = True) -> str:
        return self.run("bash", "-c", 'source ./env && exec kubectl "$@"', "kubectl", *arguments, ok=ok)

    def get(self, *arguments: str) -> Object:
        found: Object = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def settings(self) -> Object:
        parsed: Object = yaml.safe_load(self.config.read_text())
        return parsed

    def configure(self, settings: Object) -> None:
        self.config.write_text(yaml.safe_dump(settings))

    def nodes(self, selector: str = "ebb.dev/capacity-type=spot") -> list[Object]:
        return list(self.get("nodes", "-l", selector)["items"])

    def until(self, what: str, look: Callable[[], Any], seconds: float = 180) -> Any:
        """Look every half second until the answer is true; fails with what was awaited."""
        deadline = time.monotonic() + seconds
        while not (answer := look()):
            assert time.monotonic() < deadline, (
                f"not within {seconds} s: {what}\n{self.kubectl('get', 'pods,nodes,elasticjobs', '-A')}"
            )
            time.sleep(0.5)
        return answer


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what ends the shared platform after all others, in any order that they come in: `destroy`, then `down`."""
    places = {item: mark.args[0] for item in items if (mark := item.get_closest_marker("ends_platform"))}
    items.sort(key=lambda item: places.get(item, 0))


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    if os.geteuid() != 0:
        pytest.fail(
            "the tests of the whole platform need root on Linux: sudo make test, or run the pure ones with: .venv/bin/pytest"
        )
    it = Platform(tmp_path_factory.mktemp("stack"))
    settings = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())
    settings["config"]["ebb:local"]["kubeconfig"] = str(it.kubeconfig)
    it.configure(settings)
    (it.folder / "state").mkdir()
    it.box("down")  # what a killed run left
    try:
        it.box("up")
        it.run("bash", "-c", f"source ./env && pulumi stack init {STACK} --no-select --non-interactive")
        (CHECKOUT / f"Pulumi.{STACK}.yaml").unlink(missing_ok=True)  # `init` cannot be told where the stack's file is
        it.pulumi("up", "--yes", "--skip-preview")
        yield it
    finally:
        if os.environ.get("EBB_E2E_KEEP") != "1":
            it.box("down")
