"""A box and a stack of its own for the whole session: the platform as users get it, driven by the commands that users type.

Box and Pulumi stack are named `e2e`, with a state backend of their own: a running demo is never touched. Needs root.
test_foreign_cluster.py, test_manager_lost.py and test_upgrade.py have boxes and stacks of other names.
EBB_E2E_KEEP=1 leaves the box up after the tests, for looking at it; the next run removes it.
"""

import contextlib
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

from devcluster.commands import say
from devcluster.settings import CHECKOUT, EBB_HOME

Object = dict[str, Any]


def box_name(stack: str) -> str:
    """Name the box of a stack: two checkouts may run their tests on one machine."""
    return f"{stack}-{hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:6]}"


STACK = "e2e"
BOX = box_name(STACK)


class Platform:
    """What the tests do to the platform, each by its real command; every failure shows the command's whole output."""

    def __init__(self, folder: Path, stack: str = STACK, *, says: bool = False, checkout: Path = CHECKOUT) -> None:
        """`says`: a line for each command that takes long, where pytest -s shows it. `checkout`: whose commands they are."""
        self._say: Callable[[str], None] = say if says else lambda _: None
        self.folder, self.stack, self.box_name, self.checkout = folder, stack, box_name(stack), checkout
        self.config = folder / f"Pulumi.{stack}.yaml"
        self.kubeconfig = EBB_HOME / "boxes" / self.box_name / "kubeconfig"
        self.env = os.environ | {
            "EBB_HOME": str(EBB_HOME),
            "EBB_KUBECONFIG": str(self.kubeconfig),
            "KUBECONFIG": str(self.kubeconfig),
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "COLUMNS": "80",
        }

    def run(self, *command: str, ok: bool = True, seconds: float = 600) -> str:
        """Standard output of a command; with ok=False what it says on both streams when it fails, and that it fails."""
        done = subprocess.run(
            command, cwd=self.checkout, env=self.env, capture_output=True, text=True, timeout=seconds, check=False
        )
        said = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, f"{' '.join(command)} ended with {done.returncode}:\n{said[-6000:]}"
        return done.stdout if ok else said

    def box(self, *arguments: str, ok: bool = True) -> str:
        self._say(f"python -m devcluster {' '.join(arguments)}")
        return self.run(self._program("python"), "-m", "devcluster", *arguments, "--box", self.box_name, ok=ok)

    def ebb(self, *arguments: str, ok: bool = True) -> str:
        return self.run(self._program("ebb"), *arguments, ok=ok)

    def pulumi(self, *arguments: str, ok: bool = True) -> str:
        """As at the shell of a user: after `source ./env`."""
        self._say(f"pulumi {' '.join(arguments)}")
        file = [] if arguments[0] == "stack" else ["--config-file", str(self.config)]
        typed = " ".join([*arguments, "--stack", self.stack, *file, "--non-interactive", "--color", "never"])
        return self.run("bash", "-c", f"source ./env && exec pulumi {typed}", ok=ok)

    def kubectl(self, *arguments: str, ok: bool = True) -> str:
        return self.run("bash", "-c", 'source ./env && exec kubectl "$@"', "kubectl", *arguments, ok=ok)

    def get(self, *arguments: str) -> Object:
        found: Object = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    @contextlib.contextmanager
    def on_a_devcluster(self) -> Iterator[None]:
        """Its box from `up` to `down`. Needs root."""
        if os.geteuid() != 0:
            pytest.fail(
                "the tests of the whole platform need root on Linux: sudo make test, or run the pure ones with: .venv/bin/pytest"
            )
        self.box("down")  # what a killed run left
        try:
            self.box("up")
            yield
        finally:
            if os.environ.get("EBB_E2E_KEEP") != "1":
                self.box("down")

    def bring_up(self, settings: Object) -> None:
        """Make the stack from the text of its file: `pulumi stack init`, then `pulumi up`."""
        self.configure(settings)
        (self.folder / "state").mkdir()
        self.run("bash", "-c", f"source ./env && pulumi stack init {self.stack} --no-select --non-interactive")
        (self.checkout / f"Pulumi.{self.stack}.yaml").unlink(missing_ok=True)  # `init` cannot be told where the stack's file is
        self.pulumi("up", "--yes", "--skip-preview")

    def _program(self, name: str) -> str:
        """Of the checkout's environment; our own may be elsewhere."""
        folder = Path(sys.executable).parent if self.checkout == CHECKOUT else self.checkout / ".venv" / "bin"
        return str(folder / name)

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
    it = Platform(tmp_path_factory.mktemp("stack"))
    settings = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())
    settings["config"]["ebb:local"]["kubeconfig"] = str(it.kubeconfig)
    with it.on_a_devcluster():
        it.bring_up(settings)
        yield it
