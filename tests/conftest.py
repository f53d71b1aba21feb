"""How the slow tests share two cores: those on boxes beside those of processes, each kind one after the other (make test)."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

PROCESSES = ("apiserver", "benchmarks", "client", "controller", "elastic", "kube", "trainer", "workloads")


class Streams(LoadScopeScheduling):
    """A scope is what one process runs in order. (xdist's own `loadgroup` does nothing with pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        return "processes" if nodeid.split("/")[1] in PROCESSES else "boxes"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """For `-n 2`."""
    return Streams(config, log)
