"""The sharing of two cores (pure tests as they come, slow ones by folder, longest first), and tests without a network."""

import gc
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling, WorkStealingScheduling
from xdist.workermanage import WorkerController

# The longest folders of slow tests first, so that no process is left alone with one of them at the end.
LONGEST = (
    *("e2e", "infra/aws", "elastic", "elastic/launch", "infra/gcp", "infra/azure", "apiserver", "benchmarks", "testing"),
    *("workloads", "elastic/rendezvous"),
)
# When a run begins no more tests, in seconds since 1970: .ci/run says it. A run that one of its tests starts goes whole, since
# what it left out would show nothing there; by pytest's own variable it knows that it is one.
UNTIL = float("inf" if "PYTEST_CURRENT_TEST" in os.environ else os.environ.get("EBB_TESTS_UNTIL", "inf"))
CLOUDS = [case.parent.name for case in Path(__file__).parent.glob("infra/*/case.py")]  # as tests/infra/cases.py finds them


class Folders(LoadScopeScheduling):
    """A scope is what one process runs in order. (xdist's own `loadgroup` does nothing with pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        """A folder of tests/; of the largest each folder in it, and of the stacks' each cloud. No two share a cluster, an engine
        or a server."""
        path, _, name = nodeid.partition("::")
        _, folder, *below = path.split("/")
        if folder == "infra":
            parameters = name.partition("[")[2].rstrip("]").split("-")
            return next((f"infra/{cloud}" for cloud in CLOUDS if cloud in (*below, *parameters)), folder)
        return f"{folder}/{below[0]}" if folder == "elastic" and len(below) > 1 else folder

    def _assign_work_unit(self, node: WorkerController) -> None:
        def place(scope: str) -> int:
            return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)

        self.workqueue.move_to_end(min(self.workqueue, key=place), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """For `-n`: the slow tests are those that are asked for by `-m e2e...`."""
    return Folders(config, log) if _asks_for_slow_ones(config) else WorkStealingScheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unread, the files without slow tests when only these are asked for: each process would import a thousand."""
    if not (_asks_for_slow_ones(config) and collection_path.name.startswith("test_")):
        return None
    marked = (collection_path, collection_path.with_name("conftest.py"))
    return None if any(one.is_file() and "pytest.mark.e2e" in one.read_text() for one in marked) else True


def _asks_for_slow_ones(config: pytest.Config) -> bool:
    return str(config.option.markexpr).startswith("e2e")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin nothing more when the time of the run is up."""
    if time.time() > UNTIL:
        pytest.skip("the time that this run had was up (EBB_TESTS_UNTIL)")


def pytest_configure() -> None:
    """Hear Ctrl-C also where a shell has started all this in its background: what the tests start inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection() -> None:
    """Import without the garbage collector: nearly all that is made now stays to the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    _settle()
    gc.enable()
    gc.set_threshold(50_000, 20, 10)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After the last test of a file and its fixtures: it may have imported more, as Pulumi's SDKs do when they are first used."""
    if nextitem is None or nextitem.path != item.path:
        _settle()


def _settle() -> None:
    """Keep the collector off what stays: the SDKs alone are a million objects, which it would look at again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that looks up or connects to an address."""

    def refuse(*_: object) -> None:
        raise AssertionError("no address may be asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
