"""The launcher: a multirun of Hydra -> one sweep of jobs, which it waits for.

Each job runs the same script with its overrides, and Hydra's own folder is in the job's output. The jobs go on when this program
is stopped; under the same hydra.launcher.name the same command then finds them again. A run gives Hydra's sweeper its last loss.
The image must have hydra-core: a requirements.txt in the code's folder brings it.
"""

import copy
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

# Relative: type checkers take a folder without __init__.py, as the one above must be, for no package.
from .settings import LauncherSettings, register

if TYPE_CHECKING:
    from ._runs import Outcome

register()

_PASSED_ON = ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd")


class EbbLauncher(Launcher):
    """Called by Hydra: once with its settings, `setup`, then `launch`, for some sweepers more than once."""

    def __init__(self, **settings: Any) -> None:
        self._settings = LauncherSettings(**{key: _plain(value) for key, value in settings.items()})
        self._config: DictConfig | None = None
        self._context: HydraContext | None = None
        self._began = time.time_ns()

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._config, self._context = config, hydra_context

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Raises ClientError and KubeError for what cannot be submitted."""
        from ._runs import train  # noqa: PLC0415 - see there

        assert self._config is not None
        setup_globals()
        configure_log(self._config.hydra.hydra_logging, self._config.hydra.verbose)
        folder = Path(str(self._config.hydra.sweep.dir)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        told = f"{folder} {self._began}"  # the same for all batches, another one the next time: its folder may be a fixed one
        multirun = hashlib.sha256(told.encode()).hexdigest()[:8]
        words = _program(sys.argv, sys.modules["__main__"], Path(self._settings.code or "."))
        outcomes = train(self._settings, words, multirun, [filter_overrides(each) for each in job_overrides])
        pairs = zip(job_overrides, outcomes, strict=True)
        return [self._returned(initial_job_idx + index, *pair) for index, pair in enumerate(pairs)]

    def _returned(self, index: int, overrides: Sequence[str], outcome: "Outcome") -> JobReturn:
        """As Hydra's own launchers tell of a run; its configuration is what the job made of the same words."""
        assert self._context is not None
        assert self._config is not None
        whole = self._context.config_loader.load_sweep_config(self._config, list(overrides))
        with open_dict(whole):
            whole.hydra.job.id = outcome.job
            whole.hydra.job.num = index
        task = copy.deepcopy(whole)
        with read_write(task), open_dict(task):
            del task["hydra"]
        return JobReturn(
            overrides=list(overrides),
            cfg=task,
            hydra_cfg=OmegaConf.masked_copy(whole, ["hydra"]),
            working_dir=str(Path.cwd()),
            task_name=str(self._config.hydra.job.name),
            status=JobStatus.FAILED if outcome.failure else JobStatus.COMPLETED,
            _return_value=RuntimeError(outcome.failure) if outcome.failure else outcome.metric,
        )


def _plain(value: Any) -> Any:
    return OmegaConf.to_object(value) if OmegaConf.is_config(value) else value


def _program(argv: Sequence[str], main: Any, code: Path) -> list[str]:
    """Return how this program was started, without what Hydra was told of the multirun: the workers start the same, in `code`."""
    package = getattr(main, "__spec__", None)
    program = ["-m", package.name.removesuffix(".__main__")] if package else [_relative(argv[0], code)]
    passed, words = list[str](), iter(argv[1:])
    for word in words:
        if word in _PASSED_ON:
            passed += [word, next(words, "")]
        elif word.startswith(tuple(f"{flag}=" for flag in _PASSED_ON)):
            passed.append(word)
    return [*program, *passed]


def _relative(script: str, code: Path) -> str:
    """As the pod finds it, where the code's folder is the current one."""
    path, folder = Path(script).resolve(), code.resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else script
