"""The sharing of two cores (pure tests as they come, slow ones by folder, longest first), and tests without a network."""

import gc
import signal
import socket

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling, WorkStealingScheduling
from xdist.workermanage import WorkerController

# The longest folders of slow tests first, so that no process is left alone with one of them at the end.
LONGEST = ("e2e", "infra", "elastic", "elastic/launch", "apiserver", "benchmarks", "testing", "workloads", "elastic/rendezvous")


class Folders(LoadScopeScheduling):
    """A scope is what one process runs in order. (xdist's own `loadgroup` does nothing with pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        """A folder of tests/, and of the largest one each folder in it: no two of them share a cluster, an engine or a server."""
        _, folder, *below = nodeid.partition("::")[0].split("/")
        return f"{folder}/{below[0]}" if folder == "elastic" and len(below) > 1 else folder

    def _assign_work_unit(self, node: WorkerController) -> None:
        def place(scope: str) -> int:
            return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)

        self.workqueue.move_to_end(min(self.workqueue, key=place), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """For `-n`: the slow tests are those that are asked for by `-m e2e...`."""
    slow = config.option.markexpr.startswith("e2e")
    return Folders(config, log) if slow else WorkStealingScheduling(config, log)


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
