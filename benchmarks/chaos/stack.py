"""The devcluster of a run and the stack on it: its own, as users get them, with an output volume that can be full.

    with Stack(folder, planted="fencing").up() as stack: stack.box, stack.output, stack.template(), stack.env

The output volume is a small file system in memory. Ledgers are the judge's witness and no part of the product, so they have their
place on the other volume, which is never filled. A planted fault is a module in front of the workers' or the controller's own.
"""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.chaos.jobs import DATA, FAILING
from benchmarks.controller.processes import BenchmarkError
from devcluster.cloud.verbs import DELAY_KEY
from devcluster.cloud.volumes import FOLDER_MODE, TRAINER_UID
from devcluster.settings import CHECKOUT, Box
from tests.e2e.conftest import Platform

Object = dict[str, Any]

STACK = "chaos"
OUTPUT_MIB = 384
# A machine that is cut off has no pods any more, as far as the API server knows: an autoscaler takes minutes to give it back, and
# until then its worker trains on.
SCALE_DOWN_SECONDS = 120.0
IMAGES_PATH = "/opt/ebb/packages:/opt/ebb:/opt/ebb/site-packages"  # PYTHONPATH of the trainer's image
CONTROLLERS_PATH = "/opt/ebb/packages"
PLANT = Path(__file__).parent / "planted" / "sitecustomize.py"
IN_WORKERS = ("fencing", "sampler")
IN_CONTROLLERS = ("budget",)
FAILS = """\
import os, sys, time
time.sleep(4)
with open(f"{os.path.dirname(__file__)}/crashes/{os.environ['EBB_JOB']}", "a") as file:
    file.write("x")
sys.exit(3)
"""


class Stack:
    """See the module's docstring."""

    def __init__(self, folder: Path, *, planted: str = "") -> None:
        self.platform, self._planted = Platform(folder, STACK), planted
        self.env = {"EBB_PLANTED": planted, "PYTHONPATH": f"{DATA}:{IMAGES_PATH}"} if planted in IN_WORKERS else {}

    @property
    def box(self) -> Box:
        return Box.load(self.platform.box_name)

    @property
    def output(self) -> Path:
        """Of all jobs, as this machine sees it."""
        return self.box.volumes / "shared" / "output"

    @property
    def place(self) -> Path:
        """The folder that jobs see at DATA."""
        return self.box.volumes / "shared" / "data" / "chaos"

    @contextlib.contextmanager
    def up(self) -> Iterator["Stack"]:
        """Raises BenchmarkError when it does not come up."""
        if os.geteuid() != 0:
            raise BenchmarkError("a devcluster needs root on Linux: sudo make chaos")
        try:
            with self.platform.on_a_devcluster(), self._small_output():
                settings = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())
                settings["config"]["ebb:local"]["kubeconfig"] = str(self.platform.kubeconfig)
                self.keep_idle_machines(SCALE_DOWN_SECONDS)
                self.platform.bring_up(settings)
                self._prepare()
                yield self
        except AssertionError as error:
            raise BenchmarkError(str(error)) from error

    @contextlib.contextmanager
    def _small_output(self) -> Iterator[None]:
        """Before the first machine boots: each takes the mounts that are there then."""
        output = self.output
        output.mkdir(parents=True)
        for folder in (output.parent, output):
            os.chown(folder, TRAINER_UID, TRAINER_UID)
            folder.chmod(FOLDER_MODE)
        options = f"size={OUTPUT_MIB}m,uid={TRAINER_UID},gid={TRAINER_UID},mode={FOLDER_MODE:o}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "ebb-chaos", str(output)], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(output)], check=False)  # machines that still run hold it

    def keep_idle_machines(self, seconds: float) -> None:
        """For so long."""
        (self.box.folder / "cloud.json").write_text(json.dumps({DELAY_KEY: seconds}))

    def _prepare(self) -> None:
        for folder in (self.place, self.place / "ledgers", self.place / "crashes"):
            folder.mkdir(parents=True, exist_ok=True)
            os.chown(folder, TRAINER_UID, TRAINER_UID)
        (self.place / Path(FAILING).name).write_text(FAILS)
        if self._planted in IN_WORKERS:
            (self.place / PLANT.name).write_text(PLANT.read_text())
        if self._planted in IN_CONTROLLERS:
            self._plant_in_controller()

    def _plant_in_controller(self) -> None:
        kubectl, system = self.platform.kubectl, ("-n", "ebb-system")
        kubectl("create", "configmap", "planted", *system, f"--from-file={PLANT}")
        container = {
            "name": "controller",
            "env": [
                {"name": "EBB_PLANTED", "value": self._planted},
                {"name": "PYTHONPATH", "value": f"/planted:{CONTROLLERS_PATH}"},
            ],
            "volumeMounts": [{"name": "planted", "mountPath": "/planted"}],
        }
        spec = {"containers": [container], "volumes": [{"name": "planted", "configMap": {"name": "planted"}}]}
        patch = json.dumps({"spec": {"template": {"spec": spec}}})
        kubectl("patch", "deployment", "ebb-controller", *system, "-p", patch)
        kubectl("rollout", "status", "deployment/ebb-controller", *system, "--timeout=120s")

    def template(self) -> Object:
        """A job's manifest, as `ebb submit` makes it."""
        printed = self.platform.ebb(
            "submit", "--name", "template", "--gpus", "1", "--gpu", "T4", "--dry-run", "--", "-m", "trainer"
        )
        parsed: Object = yaml.safe_load(printed)
        return parsed

    def folder_of(self, name: str, uid: str) -> Path:
        """A job's own."""
        return self.output / "elastic-job" / f"{name}-{uid[:8]}"

    def move_ledger(self, name: str, uid: str) -> None:
        """Before its first worker runs: its ledger is to be on the volume that is never full."""
        ledger, folder = self.place / "ledgers" / name, self.folder_of(name, uid)
        for one in (ledger, folder.parent, folder):
            one.mkdir(exist_ok=True)
            os.chown(one, TRAINER_UID, TRAINER_UID)
        (folder / "ledger").symlink_to(f"{DATA}/ledgers/{name}")

    def ledger(self, name: str) -> dict[str, str]:
        """The files of a job's ledger, by their names."""
        return {path.name: path.read_text() for path in sorted((self.place / "ledgers" / name).glob("*.jsonl"))}

    def crashes(self, name: str) -> int:
        """Count how often the program of a job has really failed."""
        path = self.place / "crashes" / name
        return path.stat().st_size if path.exists() else 0
