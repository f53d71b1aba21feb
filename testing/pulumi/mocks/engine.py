"""The real Pulumi engine on a program, with the mock plugins: what tests of the cloud's stack and `make preview` use.

    with Stack("dev", CHECKOUT / "Pulumi.dev.yaml") as stack:      # or {"ebb:cloud": "aws", ...} in place of the file
        run = stack.preview()                                      # or up(), refresh(), destroy(): each returns a Run
        run.changes                                                # {urn: "create" | "update" | "replace" | "delete"}, no "same"
        run.named("create")                                        # names of the resources with that operation
        run.step("spot-t4-a").diff                                 # {"scalingConfig.maxSize": "update"}
        run.started("delete"), run.finished("delete")              # URNs in the order in which operations began and ended
        stack.configure({...})                                     # the next run has these settings
        stack.resources()                                          # the state after up: {urn: resource as `pulumi stack export`}
        stack.calls()                                              # what the engine asked of the plugins, oldest first

Everything is in one folder, build/mocks/<stack>-<pid>-<n>, which `with` removes: state, PULUMI_HOME, a project of links to the
program's files (the engine writes into a project; into the checkout it must not), the records. Nothing of the user's environment
reaches the engine, AWS_* and PULUMI_* least of all. A run that fails raises EngineError with what a person should read.
Blocking; safe to interrupt. Not for two threads: one engine at a time per Stack.
"""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from devcluster.commands import dies_with_us, lives
from devcluster.pulumi import launcher
from devcluster.settings import CHECKOUT, BoxError
from testing.pulumi.mocks.run import EventLog, Run
from testing.pulumi.mocks.server import OPT_IN, RECORD

FOLDER = CHECKOUT / "build" / "mocks"
PLUGINS = Path(__file__).resolve().parent / "plugin"
PASSPHRASE = "mock"  # noqa: S105 - of a state that lives as long as one test
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TERM", "USER", "PYTHONDONTWRITEBYTECODE", "EBB_HOME")
POLL_SECONDS = 0.1
GRACE_SECONDS = 20.0
OWN_SECRETS = ("secretsprovider", "encryptedkey", "encryptionsalt")
_COUNT = itertools.count(1)

Settings = Mapping[str, object]
Watch = Callable[[Mapping[str, Any]], None]


class EngineError(BoxError):
    """The engine ended with an error. The text is what it and the program said, without its warnings; `run` is what happened."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


class Stack:
    """One stack of one program. `settings`: a stack file, or its `config:` mapping. `program`: the folder with Pulumi.yaml."""

    def __init__(self, name: str, settings: Path | Settings, *, program: Path = CHECKOUT) -> None:
        self.name, self._program, self._settings = name, program, settings
        self.folder = FOLDER / f"{name}-{os.getpid()}-{next(_COUNT)}"

    def __enter__(self) -> Self:
        _sweep()
        try:
            for part in ("project", "home", "state"):
                (self.folder / part).mkdir(parents=True)
            kubeconfig = self.folder / "home" / ".kube" / "config"  # for a stack on a cluster that is there already
            kubeconfig.parent.mkdir()
            kubeconfig.write_text(yaml.safe_dump({"clusters": [{"name": "mock", "cluster": {"server": "https://mock.invalid"}}]}))
            _link_program(self._program, self.folder / "project")
            self._environment = self._clean_environment()
            self.configure(self._settings)
            self._pulumi(["stack", "init", self.name])  # writes the salt of its secrets into the project's stack file
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def configure(self, settings: Path | Settings) -> None:
        """Settings of the following runs."""
        content = yaml.safe_load(settings.read_text()) if isinstance(settings, Path) else {"config": dict(settings)}
        if not isinstance(content, dict):
            raise BoxError(f"{settings}: a stack file is a mapping with a `config:` in it, found {type(content).__name__}")
        ours = {key: value for key, value in content.items() if key not in OWN_SECRETS}
        kept = yaml.safe_load(self._file.read_text()) if self._file.exists() else {}
        salt = {key: kept[key] for key in OWN_SECRETS if key in kept}
        self._file.write_text(yaml.safe_dump({**salt, **ours, "config": _disclosed(ours.get("config") or {})}, sort_keys=False))

    def preview(self, *, watch: Watch | None = None) -> Run:
        return self._run("preview", "--json", "--show-sames", watch=watch)

    def up(self, *, watch: Watch | None = None) -> Run:
        return self._run("up", "--yes", "--skip-preview", watch=watch)

    def refresh(self, *, watch: Watch | None = None) -> Run:
        return self._run("refresh", "--yes", "--skip-preview", watch=watch)

    def destroy(self, *, with_preview: bool = False, watch: Watch | None = None) -> Run:
        """`with_preview`: after the preview that a person gets; what the preview refuses is not begun."""
        return self._run("destroy", "--yes", *([] if with_preview else ["--skip-preview"]), watch=watch)

    def export(self) -> dict[str, Any]:
        """The deployment, as `pulumi stack export` prints it."""
        return dict(json.loads(self._pulumi(["stack", "export", "--stack", self.name]))["deployment"])

    def load(self, deployment: Mapping[str, Any]) -> None:
        """Put a deployment in the place of the stack's, as `pulumi stack import` does."""
        file = self.folder / "deployment.json"
        file.write_text(json.dumps({"version": 3, "deployment": deployment}))
        self._pulumi(["stack", "import", "--stack", self.name, "--file", str(file)])

    def resources(self) -> dict[str, dict[str, Any]]:
        """The state: URN -> resource."""
        return {one["urn"]: one for one in self.export().get("resources") or []}

    def outputs(self) -> dict[str, Any]:
        return dict(json.loads(self._pulumi(["stack", "output", "--json", "--stack", self.name])))

    def calls(self) -> list[dict[str, Any]]:
        """The plugins' record: {time, package, method, urn, type, inputs, ...} of every call since the stack was opened."""
        record = self.folder / "calls.jsonl"
        return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []

    def run(self, command: Sequence[str]) -> int:
        """Run a program that runs `pulumi` by itself, in the project, with the mocks. Returns its exit code. Ctrl-C is the
        program's to answer: it is waited for."""
        with subprocess.Popen(command, cwd=self.folder / "project", env=self._environment) as process:
            while True:
                with contextlib.suppress(KeyboardInterrupt):
                    return process.wait()

    @property
    def _file(self) -> Path:
        return self.folder / "project" / f"Pulumi.{self.name}.yaml"

    def _clean_environment(self) -> dict[str, str]:
        with contextlib.redirect_stdout(sys.stderr):  # what a build says must not get between our lines of JSON
            engine = launcher.engine_folder()
        given = {key: value for key, value in os.environ.items() if key in KEPT}
        path = [str(PLUGINS), str(engine), str(CHECKOUT / ".venv" / "bin"), given.get("PATH", os.defpath)]
        return given | {
            "PATH": os.pathsep.join(path),
            "HOME": str(self.folder / "home"),
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_DISABLE_REGISTRY_RESOLVE": "true",
            "PULUMI_PYTHON_CMD": str(CHECKOUT / "devcluster" / "pulumi" / "program" / "python"),
            "PULUMI_DEBUG_COMMANDS": "true",  # has --event-log
            "PULUMI_EXPERIMENTAL": "true",
            "PULUMI_SKIP_CHECKPOINTS": "true",  # the state is written once, at the end
            "PYTHONDONTWRITEBYTECODE": given.get("PYTHONDONTWRITEBYTECODE", ""),
            OPT_IN: "1",
            RECORD: str(self.folder / "calls.jsonl"),
        }

    def _run(self, verb: str, *flags: str, watch: Watch | None) -> Run:
        log, started = self.folder / "events.jsonl", time.monotonic()
        log.unlink(missing_ok=True)
        events: list[Mapping[str, Any]] = []
        command = [verb, *flags, "--stack", self.name, "--event-log", str(log)]
        code, said = self._watched(command, EventLog(log), events, watch or (lambda _: None))
        document = _document(said) if verb == "preview" else {}
        run = Run.of(verb, events, document.get("steps") or [], seconds=time.monotonic() - started)
        if code != 0:
            text = run.error() or said.strip()[-3000:] or f"pulumi {verb} ended with {code}"
            raise EngineError(text.replace(str(self.folder / "project"), str(self._program)), run)
        return run

    def _watched(
        self, command: Sequence[str], log: EventLog, events: list[Mapping[str, Any]], watch: Watch
    ) -> tuple[int, str]:  # fmt: skip
        """Exit status and output; `events` grows, and `watch` sees every one of them, while the command runs."""
        output = self.folder / "output"
        with output.open("wb") as file, self._started(command, file) as process:
            while True:
                code = process.poll()
                for event in log.new():
                    events.append(event)
                    watch(event)
                if code is not None:
                    return code, output.read_text(errors="replace")
                time.sleep(POLL_SECONDS)

    def _pulumi(self, arguments: Sequence[str]) -> str:
        """A command without events; returns its standard output."""
        output = self.folder / "output"
        with output.open("wb") as file, self._started(arguments, file, stderr=subprocess.PIPE) as process:
            _, complaint = process.communicate()
        if process.returncode != 0:
            said = complaint.decode(errors="replace")
            raise BoxError(f"`pulumi {' '.join(arguments)}` ended with {process.returncode}: {said[-3000:]}")
        return output.read_text()

    @contextlib.contextmanager
    def _started(
        self, arguments: Sequence[str], output: Any, *, stderr: int = subprocess.STDOUT
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The engine. On an interruption it, too, has got Ctrl-C from the terminal, and may finish what it is at."""
        process = subprocess.Popen(
            [*dies_with_us(), "pulumi", *arguments, "--non-interactive", "--color", "never"],
            cwd=self.folder / "project", env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=stderr,
        )  # fmt: skip
        try:
            yield process
        except BaseException:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.terminate()
                process.wait(GRACE_SECONDS)
            process.kill()
            process.wait()
            raise


def _link_program(program: Path, project: Path) -> None:
    """A project whose files are links to the program's. Stack files stay out: each Stack brings its own."""
    for entry in program.iterdir():
        generated = entry.name in ("build", ".git", ".ebb", "__pycache__") or entry.name.endswith(".egg-info")
        if not generated and not (entry.match("Pulumi.*.yaml") and entry.is_file()):
            (project / entry.name).symlink_to(entry)


def _disclosed(value: Any) -> Any:
    """Settings whose secrets, which belong to another passphrase, are replaced by a word."""
    if isinstance(value, dict):
        return "mock-secret" if set(value) == {"secure"} else {key: _disclosed(item) for key, item in value.items()}
    return [_disclosed(item) for item in value] if isinstance(value, list) else value


def _document(said: str) -> dict[str, Any]:
    """The JSON object in the output of `preview --json`; warnings may stand before and after it."""
    start = said.find("\n{") + 1 if not said.startswith("{") else 0
    try:
        found, _ = json.JSONDecoder().raw_decode(said[start:])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _sweep() -> None:
    """Remove what a killed run left: folders whose process is gone."""
    for folder in FOLDER.glob("*-*-*"):
        pid = folder.name.split("-")[-2]
        if pid.isdigit() and not lives(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
