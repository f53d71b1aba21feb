"""Figures of GPUs, with a stand-in for pynvml that behaves as NVML's documentation says. No GPU has run this."""

import inspect
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from ebb.api.status import GpuUse
from ebb.controller.launchers import read_gpus
from ebb.elastic.launch import gpu_use
from ebb.elastic.launch.gpu_use import Gpus, visible
from ebb.elastic.launch.page import LauncherPage

GIB = 2**30
CALLS: dict[str, tuple[object, ...]] = {
    "nvmlInit": (),
    "nvmlDeviceGetCount": (),
    "nvmlDeviceGetHandleByIndex": (0,),
    "nvmlDeviceGetHandleByUUID": ("GPU-0",),
    "nvmlDeviceGetUtilizationRates": (0,),
    "nvmlDeviceGetMemoryInfo": (0,),
}


class NVMLError(Exception):
    """As pynvml's: one class above all errors."""


@dataclass(frozen=True)
class Rates:
    gpu: int
    memory: int = 0


@dataclass(frozen=True)
class Memory:
    total: int
    free: int
    used: int


class FakeNvml(types.ModuleType):
    """GPUs of 40 GiB by their percent of use; None: it does not tell, as under MIG. A handle is the GPU's number."""

    NVMLError = NVMLError

    def __init__(self, *busy: int | None, driver: bool = True) -> None:
        super().__init__("pynvml")
        self.busy, self.driver, self.lost = list(busy), driver, False

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.busy)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= len(self.busy):
            raise NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return self.nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-")))

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Rates:
        busy = self.busy[handle]
        if busy is None or self.lost:
            raise NVMLError("Not Supported")
        return Rates(busy)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Memory:
        if self.lost:
            raise NVMLError("GPU is lost")
        used = (handle + 1) * GIB
        return Memory(total=40 * GIB, free=40 * GIB - used, used=used)


def gpus_of(nvml: FakeNvml, ranks: tuple[int, ...] = (8, 9), clock: Callable[[], float] = lambda: 0.0) -> Gpus:
    return Gpus(nvml, visible(nvml, None), lambda: ranks, clock)


def read(gpus: Gpus) -> list[tuple[int, tuple[int, ...], int | None, int | None, int]]:
    return [
        (use.gpu, use.ranks, use.utilization, use.memory_used_bytes, use.idle_seconds) for use in read_gpus(gpus.text(), worker=4)
    ]


def test_from_the_library_to_the_controller() -> None:
    gpus = gpus_of(FakeNvml(97, 3))
    gpus.look()
    assert read_gpus(gpus.text(), worker=4) == (
        GpuUse(worker=4, gpu=0, ranks=(8,), utilization=97, memory_used_bytes=GIB, memory_total_bytes=40 * GIB),
        GpuUse(worker=4, gpu=1, ranks=(9,), utilization=3, memory_used_bytes=2 * GIB, memory_total_bytes=40 * GIB),
    )


def test_it_is_a_mean_over_half_a_minute() -> None:
    nvml = FakeNvml(0)
    gpus = gpus_of(nvml)
    for percent in (100, *[0] * 7, *[90] * 7):
        nvml.busy[0] = percent
        gpus.look()
    assert read(gpus)[0][2] == round((100 + 7 * 90) / 15)
    gpus.look()
    assert read(gpus)[0][2] == round(8 * 90 / 15)  # the first look is forgotten


@pytest.mark.parametrize(("percent", "idle"), [(9, 600), (10, 0)])
def test_time_without_use(percent: int, idle: int) -> None:
    now = [100.0]
    gpus = gpus_of(FakeNvml(percent), (0,), clock=lambda: now[0])
    for moment in (100.0, 400.0, 700.0):
        now[0] = moment
        gpus.look()
    assert read(gpus)[0][4] == idle


def test_a_gpu_that_works_again_is_no_longer_idle() -> None:
    now, nvml = [0.0], FakeNvml(0)
    gpus = gpus_of(nvml, (0,), clock=lambda: now[0])
    gpus.look()
    now[0], nvml.busy[0] = 700.0, 100
    gpus.look()
    assert read(gpus)[0][4] == 0


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    nvml = FakeNvml(None, 50)
    gpus = gpus_of(nvml)
    gpus.look()
    assert read(gpus) == [(0, (8,), None, GIB, 0), (1, (9,), 50, 2 * GIB, 0)]
    nvml.lost = True
    gpus.look()
    assert gpus.text() == ""


@pytest.mark.parametrize(
    ("count", "ranks", "expected"),
    [(2, (4, 5), [(4,), (5,)]), (2, (0, 1, 2, 3), [(0, 2), (1, 3)]), (2, (6,), [(6,), ()]), (1, (), [()])],
)
def test_ranks_take_gpus_by_their_local_rank(count: int, ranks: tuple[int, ...], expected: list[tuple[int, ...]]) -> None:
    gpus = gpus_of(FakeNvml(*[50] * count), ranks)
    gpus.look()
    assert [found[1] for found in read(gpus)] == expected


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), (" 1 ", [1]), ("GPU-2", [2]), ("0,-1,2", [0]), ("-1", [])],
)
def test_only_the_gpus_that_the_program_sees(chosen: str | None, expected: list[int]) -> None:
    assert visible(FakeNvml(1, 1, 1), chosen) == expected


NONE = {
    "no pynvml": (None, {}),
    "no driver": (FakeNvml(50, driver=False), {}),
    "no GPU": (FakeNvml(), {}),
    "a GPU that is not there": (FakeNvml(50), {"CUDA_VISIBLE_DEVICES": "7"}),
}


@pytest.mark.parametrize(("module", "environment"), NONE.values(), ids=NONE)
def test_without_gpus_nothing_is_said(
    module: FakeNvml | None, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)  # None: its import fails
    assert Gpus.find(environment, lambda: [0]) is None
    assert capfd.readouterr() == ("", "")


def test_a_launcher_that_nobody_asks_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = threading.Event()
    monkeypatch.setattr(gpu_use, "_watch", lambda page, ranks: seen.set())
    page = LauncherPage()
    gpu_use.watch(page, lambda: [0])
    assert not seen.is_set()
    page.is_served = True
    gpu_use.watch(page, lambda: [0])
    assert seen.wait(5)


def test_the_page_has_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    class Over(Exception):
        pass

    def end(_: float) -> None:
        raise Over

    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(50))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("time.sleep", end)
    page = LauncherPage()
    with pytest.raises(Over):
        gpu_use._watch(page, lambda: [3])
    assert 'ebb_gpu_utilization_ratio{gpu="0",rank="3"} 0.5\n' in page.text()
    assert "# TYPE ebb_gpu_memory_used_bytes gauge\n" in page.text()


def test_the_stand_in_is_called_as_the_library_is() -> None:
    pynvml = pytest.importorskip("pynvml", reason="the training environment is not installed")
    for name, arguments in CALLS.items():
        inspect.signature(getattr(pynvml, name)).bind(*arguments)
        inspect.signature(getattr(FakeNvml(1), name)).bind(*arguments)
    assert {"gpu", "memory"} <= {name for name, _ in pynvml.c_nvmlUtilization_t._fields_}
    assert {"total", "free", "used"} <= {name for name, _ in pynvml.c_nvmlMemory_t._fields_}
    assert issubclass(pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError)
