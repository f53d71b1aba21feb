"""How two cores are shared: pure tests as they come, the slow ones in two streams, each in its order."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling, WorkStealingScheduling

PROCESSES = ("apiserver", "benchmarks", "client", "controller", "elastic", "kube", "trainer")


class Streams(LoadScopeScheduling):
    """Two scopes, what starts processes and what starts clusters: two clusters at once would starve each other.

    (xdist's own `loadgroup` does nothing with pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        return "processes" if nodeid.split("/")[1] in PROCESSES else "clusters"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """For `-n 2`."""
    slow = config.option.markexpr.startswith("e2e")
    return Streams(config, log) if slow else WorkStealingScheduling(config, log)
