"""Settings under hydra.launcher.NAME: the options of `ebb submit`, and where the platform is."""

from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore

METRIC = "loss"


@dataclass
class LauncherSettings:
    """None: not said; see `ebb submit --help`."""

    _target_: str = "hydra_plugins.ebb_launcher.launcher.EbbLauncher"
    name: str | None = None  # of the sweep. With one, the same command finds its runs again; default: another one each time
    gpus: int = 1
    min: int | None = None
    max: int | None = None
    gpu: str | None = None
    zone: str | None = None
    capacity: str | None = None  # spot, on-demand, spot-then-on-demand
    env: dict[str, str] = field(default_factory=dict)  # +hydra.launcher.env.LR=0.1
    image: str | None = None
    shm: str | None = None
    data: str | None = None
    code: str | None = "."  # the folder that travels with each job
    priority: str | None = None
    max_cost: float | None = None  # USD, of each job
    max_parallel: int | None = None
    stop_worst: float | None = None  # as --stop-worst; after: as --after
    asha: int | None = None
    after: int | None = None
    secret: list[str] = field(default_factory=list)  # hf-token, or gcs=/secrets/gcs.json, as --secret has them
    registry_secret: str | None = None
    metric: str = METRIC  # what a run returns to Hydra's sweeper: loss, samples_per_second, or one of the program's own
    namespace: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    platform: str | None = None


def register() -> None:
    """Make it known as hydra/launcher=ebb."""
    ConfigStore.instance().store(group="hydra/launcher", name="ebb", node=LauncherSettings, provider="ebb")
