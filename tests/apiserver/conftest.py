"""One control plane and one controller for all tests of this folder; a namespace with machines for each.

The tests share one event loop, in which the proxy and the machines work too. `pytest -q` leaves them out: they start processes.
"""

import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.apiserver.controller import Process
from tests.apiserver.machines import machines
from tests.apiserver.place import Place
from tests.apiserver.plane import Made, plane
from tests.apiserver.proxy import Line, proxy
from tests.apiserver.stage import Stage, stage

# How long something takes, where tests wait for it; everything else is as it ships. That a limit is what it ships with is the
# planner's own tests' to say.
SETTINGS: dict[str, float] = {
    "ebb.controller.reconciler.sizing.RESTART_SECONDS": 0.3,
    "ebb.controller.reconciler.candidates.PATIENCE_SECONDS": 1.0,
    "ebb.controller.reconciler.stockouts.LASTS_SECONDS": 1.0,
    "ebb.controller.reconciler.relocation.RETURN_SECONDS": 3.0,
    "ebb.controller.reconciler.sizing.GROWS_SECONDS": 1.0,
    "ebb.controller.reconciler.sizing.SHRINKS_SECONDS": 1.0,
    "ebb.controller.reconciler.placing.AGAIN_SECONDS": 2.0,
    "ebb.controller.reconciler.stall_policy.ERROR_SECONDS": 1.0,
    "ebb.controller.reconciler.quotas.REFUSED_SECONDS": 4.0,
    "ebb.controller.reconciler.quotas.TRIAL_SECONDS": 2.0,
    "ebb.controller.rate_limits.FIRST_REFUSAL_SECONDS": 0.5,
    "ebb.controller.node_heartbeats.LEAST_SECONDS": 4.0,
    "ebb.controller.node_heartbeats.SETTLE_SECONDS": 4.0,
    "ebb.controller.cluster_cache.LATER_SECONDS": 0.3,
    "ebb.controller.scraper.EVERY_SECONDS": 0.5,
    "ebb.controller.scraper.TELL_SECONDS": 1.0,
    "ebb.controller.reconciler.reconcile.PROGRESS_SECONDS": 3.0,
    "ebb.controller.reconciler.reconcile.NOT_READY": 3.0,
    "ebb.controller.reconciler.worker_state.NOT_READY_SECONDS": 3.0,
}
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them in the session's loop, and none without being asked for.

    One after the other, in any order: while another folder's test runs, the loop stands still and the proxy with it, and a
    controller that cannot reach its API server for ten seconds gives up its lease and ends.
    """
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
    items.sort(key=lambda item: item.path.is_relative_to(here))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def made(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Made]:
    async with plane(tmp_path_factory.mktemp("plane")) as one:
        yield one


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def line(made: Made) -> AsyncIterator[Line]:
    """What stands between the controller and the API server."""
    async with proxy(made.processes.server, made.processes.trust()) as one:
        yield one


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def controller(made: Made, line: Line, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    """The one that acts, unless a test of faults has ended it."""
    one = Process(tmp_path_factory.mktemp("controller"), "ebb-controller-0", line.url, await made.token(), SETTINGS)
    await one.start()
    yield one
    await one.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def place(made: Made, controller: Process, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A namespace of the test's own."""
    if not controller.alive:
        await controller.start()
    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"{words[:40].strip('-')}-{next(_numbers)}"  # the names of tests are longer than a namespace's may be
    await made.namespace(name)
    async with machines(made, name) as ours:
        one = Place(made, ours)
        yield one
        await one.clear()


@pytest_asyncio.fixture(loop_scope="session")
async def on(made: Made, controller: Process, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage for a fault: the controller of the other tests gives way."""
    if controller.alive:
        await controller.stop()
    async with stage(made, tmp_path) as one:
        yield one
    await made.release_lease()
