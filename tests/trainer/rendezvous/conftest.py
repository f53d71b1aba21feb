"""One etcd of each version for many tests; what breaks or restarts its etcd starts its own."""

import os
from collections.abc import Iterator

import pytest

from tests.trainer.rendezvous.servers import VERSIONS, Server, built

# As launch/settings.py does, and before the first look-up of a name: a lost DNS packet costs one second instead of five.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:3")


@pytest.fixture(scope="session", params=list(VERSIONS))
def version(request: pytest.FixtureRequest) -> str:
    built(request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def etcd(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Shared: nobody stops it, and each test has keys of its own."""
    server = Server(built(version), tmp_path_factory.mktemp(f"etcd-{version}")).start()
    yield server
    server.kill()


@pytest.fixture
def own_etcd(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(built(version), tmp_path_factory.mktemp(f"etcd-{version}")).start()
    yield server
    server.kill()
