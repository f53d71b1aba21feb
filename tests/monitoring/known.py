"""The metrics that there are: read from the code's own registries, so that one that is renamed is missed by a query.

    exported()          # name -> Prometheus' type
    asked("max(ebb_step)")      # {"ebb_step"}: names in a query, by Greptime's parser; raises ValueError for what is none

Programs of others are listed with what is used of them; tests/monitoring/test_prometheus.py asks those that run here.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as promql
import yaml

from ebb.controller.controller import Controller
from ebb.controller.etcd.alarm import EtcdAlarms
from ebb.controller.job_metrics import show_jobs
from ebb.controller.metrics import HELP, JOBS, LEADS, Metrics, by_state, show_process
from ebb.elastic import contract
from ebb.elastic.launch.gpu_use import Gpus
from ebb.elastic.launch.page import sample
from ebb.elastic.runtime.metrics import prometheus_text
from ebb.gateway.app import exposition
from workloads.monitoring import FOLDER

# What is used of programs that are not ours, with their types.
OTHERS: Mapping[str, Mapping[str, str]] = {
    "Prometheus": {"up": "gauge"},
    "etcd 3.6": {
        "etcd_mvcc_db_total_size_in_bytes": "gauge",
        "etcd_server_quota_backend_bytes": "gauge",
        "etcd_disk_wal_fsync_duration_seconds": "histogram",
    },
    # cluster-autoscaler/metrics/metrics.go of https://github.com/kubernetes/autoscaler at 1.35.2
    "cluster-autoscaler": {
        "cluster_autoscaler_nodes_count": "gauge",
        "cluster_autoscaler_unschedulable_pods_count": "gauge",
        "cluster_autoscaler_failed_scale_ups_total": "counter",
    },
    "kubelet": {"kubelet_volume_stats_available_bytes": "gauge", "kubelet_volume_stats_capacity_bytes": "gauge"},
    "cAdvisor": {
        "container_cpu_usage_seconds_total": "counter",
        "container_memory_working_set_bytes": "gauge",
        "container_network_transmit_bytes_total": "counter",
    },
}
PARTS = {"histogram": ("_bucket", "_sum", "_count")}


def exported() -> dict[str, str]:
    """Name -> type of all that is scraped."""
    pages = [_controller(), prometheus_text(_Everything()), _launcher(), exposition([])]
    found = {name: kind for page in pages for name, kind in _types(page)}
    for names in OTHERS.values():
        found |= names
    return found | dcgm()


def dcgm() -> dict[str, str]:
    """The counters that our exporter is told to read."""
    documents = list(yaml.safe_load_all((FOLDER / "gpus.yaml").read_text()))
    (counters,) = [one for one in documents if one["kind"] == "ConfigMap"]
    rows = [line.split(", ") for line in counters["data"]["counters.csv"].splitlines()]
    return {row[0]: row[1] for row in rows}


def series(names: Mapping[str, str]) -> set[str]:
    """Names that a query may ask for."""
    return {name + part for name, kind in names.items() for part in PARTS.get(kind, ("",))}


def asked(query: str) -> set[str]:
    """The metrics that a query names. Raises ValueError for one that is no PromQL."""
    return {selector.name for selector in selectors(query) if selector.name}


def selectors(query: str) -> list[Any]:
    """Each place in a query where it names series, with its matchers."""
    found: list[Any] = []

    def look(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append(node)
        for part in ("expr", "lhs", "rhs", "param", "vector_selector"):
            inner = getattr(node, part, None)
            if inner is not None:
                look(inner)
        for inner in getattr(node, "args", None) or ():
            look(inner)

    look(promql.parse(query))
    return found


def labels(query: str) -> set[str]:
    """Labels that its matchers name."""
    return {one.name for selector in selectors(query) for one in selector.matchers.matchers}


class _Everything:
    """A progress of which all is known."""

    def __getattr__(self, _: str) -> int:
        return 1


@dataclass
class Nvml:
    """As pynvml of one GPU."""

    percent: int = 50
    NVMLError = OSError

    def nvmlDeviceGetUtilizationRates(self, _: object) -> Any:
        return type("Rates", (), {"gpu": self.percent})

    def nvmlDeviceGetMemoryInfo(self, _: object) -> Any:
        return type("Memory", (), {"used": 1, "total": 2})


def _launcher() -> str:
    gpus = Gpus(Nvml(), [object()], lambda: [0], time.monotonic)
    gpus.look()
    return gpus.text() + sample(contract.METRIC_HELD_SECONDS, "Held.", 1.0)


def _controller() -> str:
    metrics = Metrics()
    unused: Any = None
    Controller(
        _Nothing(), fence=unused, fetch=unused, fetch_launcher=unused, send=unused, clock=time.time, metrics=metrics,
        receiver=unused, silent_after=None,
    )  # fmt: skip
    asking: Callable[..., Any] = unused
    EtcdAlarms("http://etcd:2379", asking, teams=list, jobs=list, emit_events=asking).show(metrics)
    metrics.gauge(LEADS, "", dict)
    metrics.gauge(JOBS, HELP[JOBS], lambda: by_state(()))
    show_jobs(metrics, list, time.time)
    show_process(metrics)
    return metrics.text()


class _Nothing:
    """An API server that nobody asks."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def _types(page: str) -> Iterator[tuple[str, str]]:
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            yield name, kind
