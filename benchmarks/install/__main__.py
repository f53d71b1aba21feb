"""`python -m benchmarks.install`: see the package. Exit status: 0 all kept, 1 a promise is broken, 130 interrupted."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from devcluster.commands import say
from devcluster.images import environment
from devcluster.settings import CHECKOUT, EBB_HOME

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TORCH_VERSION = "3.11"  # of the environment that the pods on this machine mount
NAMES = {"ebb", "hydra_plugins"}
COLLIDING = ("trainer", "workloads", "local", "infra", "utils", "testing", "devcluster")
PROGRAM = """\
import {modules}

found = [module.NAME for module in ({modules},)]
assert found == {names!r}, found
{body}
print("own modules:", *found, flush=True)
"""
CLIENT = "from ebb import client\nassert client.Request"
TRAINING = """
import torch
from ebb import elastic

with elastic.start(global_batch=8, epochs=2, output="out") as run:
    data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    model = run.distribute(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.register_state(model=model, optimizer=optimizer)
    for step in run.steps(run.loader(data)):
        for x, y in step:
            step.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
"""


class BrokenError(Exception):
    """A promise that was not kept; the message says which and how."""


def call(*command: str | Path, cwd: Path, **more: str) -> str:
    """The standard output. Raises BrokenError with what the command printed."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "EBB_HOME")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean | more, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise BrokenError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def python_of(version: str) -> Path | None:
    """A Python of that version on this machine, which really starts (a shim may have nothing behind it)."""
    places = [Path(one) for one in os.environ.get("PATH", "").split(os.pathsep)]
    for folder in (*places, *Path.home().glob(f".pyenv/versions/{version}.*/bin")):
        program = folder / f"python{version}"
        if program.exists() and not subprocess.run([program, "-c", "import venv"], capture_output=True, check=False).returncode:
            return program
    return None


def own_folder(folder: Path, body: str) -> Path:
    """A user's folder whose modules are named as folders of our repository."""
    folder.mkdir()
    for name in COLLIDING:
        (folder / f"{name}.py").write_text(f'NAME = "my {name}"\n')
    names = [f"my {name}" for name in COLLIDING]
    (folder / "train.py").write_text(PROGRAM.format(modules=", ".join(COLLIDING), names=names, body=body))
    return folder


def check(version: str, python: Path, wheel: Path, work: Path) -> dict[str, Any]:
    """Figures of one version. Raises BrokenError."""
    began = time.monotonic()
    fresh = work / f"venv-{version}"
    call(python, "-m", "venv", fresh, cwd=work)
    own = fresh / "bin" / "python"
    call(own, "-m", "pip", "install", "--quiet", wheel, cwd=work)
    seconds = time.monotonic() - began
    if "submit" not in call(fresh / "bin" / "ebb", "--help", cwd=work):
        raise BrokenError(f"ebb --help on Python {version} does not list `submit`")
    listing = "import importlib.metadata as m; print(*{f.parts[0] for f in m.files('ebb-train') if f.parts[0] != '..'})"
    names = {name for name in call(own, "-c", listing, cwd=work).split() if not name.endswith(".dist-info")}
    if names != NAMES:
        raise BrokenError(f"Python {version}: the wheel installs {sorted(names)}, promised {sorted(NAMES)}")
    packages = call(own, "-m", "pip", "list", "--format=freeze", cwd=work).split()
    call(own, "train.py", cwd=own_folder(work / f"mine-{version}", CLIENT))
    return {"install_seconds": round(seconds, 1), "top_level": sorted(names), "packages": len(packages)}


def train(python: Path, work: Path) -> None:
    """The colliding folder under `ebb local`, with torch from the pods' environment. Raises BrokenError."""
    said = call(
        *(python.with_name("ebb"), "local", "--name", "mine", "--workers", "2", "--python", python, "--", "python", "train.py"),
        cwd=own_folder(work / "training", TRAINING),
        PYTHONPATH=str(environment.folder_of(EBB_HOME)),
    )
    if said.count("own modules: my trainer") != 2:
        raise BrokenError(f"`ebb local` did not run the folder's own modules on both workers:\n{said}")


def main() -> int:
    found: dict[str, Any] = {}
    missing, broken = [], []
    with tempfile.TemporaryDirectory(prefix="ebb-install-") as name:
        work = Path(name)
        call(Path(sys.executable).with_name("uv"), "build", "--quiet", "--out-dir", work, CHECKOUT, cwd=work)
        (wheel,) = work.glob("*.whl")
        say(f"built {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB")
        for version in VERSIONS:
            python = python_of(version)
            if python is None:
                missing.append(version)
                say(f"Python {version}: not on this machine")
                continue
            try:
                found[version] = check(version, python, wheel, work)
                if version == TORCH_VERSION and environment.folder_of(EBB_HOME).exists():
                    train(work / f"venv-{version}" / "bin" / "python", work)
                    found[version]["trained_by_ebb_local"] = True
                say(f"Python {version}: {found[version]}")
            except BrokenError as error:
                broken.append(version)
                print(f"BROKEN: {error}", file=sys.stderr)
    print(json.dumps({"install": "broken" if broken else "kept", "pythons": found, "missing": missing, "broken": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
