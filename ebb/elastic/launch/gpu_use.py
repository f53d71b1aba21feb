"""Utilization and memory of this machine's GPUs, by NVIDIA's management library, on the launcher's page of metrics.

    page = LauncherPage.of(os.environ, say)
    watch(page, lambda: [8, 9])          # a thread of its own; the global ranks of this machine's processes, by local rank

Processes take GPUs by their local rank, as nearly all programs do: GPU 1 is that of local rank 1. A machine without GPUs, driver
or pynvml has no figures, and nobody hears of it. NVML opens no context on a GPU, so this takes none of its memory. Utilization
is NVML's own: the share of time in which any kernel ran, however little of the GPU that kernel used.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ebb.elastic.contract import (
    METRIC_GPU_IDLE_SECONDS,
    METRIC_GPU_MEMORY_TOTAL,
    METRIC_GPU_MEMORY_USED,
    METRIC_GPU_UTILIZATION,
)
from ebb.elastic.launch.page import LauncherPage, head, line

_EVERY_SECONDS = 2.0
_MEAN_OF = 15  # looks: NVML's own figure is of the last 1/6 to 1 s, in which a step may just wait for its batch
_IDLE_BELOW = 0.1  # of the time; the controller's warning says the same
_MEANINGS = {
    METRIC_GPU_UTILIZATION: "Share of the last 30 s in which a kernel ran on the GPU.",
    METRIC_GPU_MEMORY_USED: "Memory of the GPU in use, by all processes.",
    METRIC_GPU_MEMORY_TOTAL: "Memory of the GPU.",
    METRIC_GPU_IDLE_SECONDS: "Seconds since that share was last 10 % or more.",
}


def watch(page: LauncherPage, ranks: Callable[[], Sequence[int]]) -> None:
    """Begin, if somebody may ask, in a daemon thread: a driver that hangs holds up nobody."""
    if page.is_served:
        threading.Thread(target=_watch, args=(page, ranks), name="GPU use", daemon=True).start()


def _watch(page: LauncherPage, ranks: Callable[[], Sequence[int]]) -> None:
    gpus = Gpus.find(os.environ, ranks)
    if gpus is None:
        return
    gpus.look()
    page.put("gpus", gpus.text)
    while True:
        time.sleep(_EVERY_SECONDS)
        gpus.look()


class _Gpu:
    def __init__(self, handle: Any, now: float) -> None:
        self.handle, self.busy_at = handle, now
        self.looks: deque[float] = deque(maxlen=_MEAN_OF)
        self.used: int | None = None
        self.total: int | None = None

    @property
    def utilization(self) -> float | None:
        looks = tuple(self.looks)
        return sum(looks) / len(looks) if looks else None


class Gpus:
    """The GPUs of this machine that its processes see. `nvml` is the module pynvml, or behaves as it does."""

    def __init__(
        self, nvml: Any, handles: Sequence[Any], ranks: Callable[[], Sequence[int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml, self._ranks, self._clock = nvml, ranks, clock
        self._gpus = [_Gpu(handle, clock()) for handle in handles]

    @classmethod
    def find(cls, environment: Mapping[str, str], ranks: Callable[[], Sequence[int]]) -> Gpus | None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return None
        try:
            nvml.nvmlInit()
            handles = visible(nvml, environment.get("CUDA_VISIBLE_DEVICES"))
        except nvml.NVMLError:  # there is no driver, or it is not to be reached from here
            return None
        return cls(nvml, handles, ranks) if handles else None

    def look(self) -> None:
        """Read all. What a GPU does not tell (utilization under MIG, anything once it is lost) is left out."""
        for gpu in self._gpus:
            try:
                gpu.looks.append(self._nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu / 100)
            except self._nvml.NVMLError:
                gpu.looks.clear()
            gpu.used = gpu.total = None
            with contextlib.suppress(self._nvml.NVMLError):
                memory = self._nvml.nvmlDeviceGetMemoryInfo(gpu.handle)
                gpu.used, gpu.total = int(memory.used), int(memory.total)
            if gpu.utilization is None or gpu.utilization >= _IDLE_BELOW:
                gpu.busy_at = self._clock()

    def text(self) -> str:
        """Prometheus' exposition format."""
        rows: dict[str, list[str]] = {name: [] for name in _MEANINGS}
        ranks = self._ranks()
        for number, gpu in enumerate(self._gpus):
            labels = {"gpu": str(number), "rank": ",".join(map(str, ranks[number :: len(self._gpus)]))}
            found = {
                METRIC_GPU_UTILIZATION: gpu.utilization,
                METRIC_GPU_MEMORY_USED: gpu.used,
                METRIC_GPU_MEMORY_TOTAL: gpu.total,
            }
            if gpu.utilization is not None:
                found[METRIC_GPU_IDLE_SECONDS] = self._clock() - gpu.busy_at
            for name, value in found.items():
                if value is not None:
                    rows[name].append(line(name, round(value, 3), **labels))
        return "".join(head(name, _MEANINGS[name]) + "".join(lines) for name, lines in rows.items() if lines)


def visible(nvml: Any, chosen: str | None) -> list[Any]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all where it is not set. Raises NVMLError.

    NVML counts in the order of the bus, as CUDA does among GPUs of one kind; a container has only its own.
    """
    if chosen is None:
        return [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    found = []
    for word in filter(None, map(str.strip, chosen.split(","))):
        if word == "-1":  # CUDA sees none from here on
            break
        found.append(nvml.nvmlDeviceGetHandleByIndex(int(word)) if word.isdigit() else nvml.nvmlDeviceGetHandleByUUID(word))
    return found
