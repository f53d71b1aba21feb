"""One etcd of a version for many tests; what breaks or restarts its etcd starts its own."""

import os
from collections.abc import Iterator

import pytest

from tests.elastic.rendezvous.servers import VERSIONS, Server, built

# The platform's. Our client meets all versions in each run, and all else does in `make prove-rendezvous`, which sets this.
PLATFORMS = "3.6"
EVERY = bool(os.environ.get("EBB_EVERY_ETCD"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "version" in metafunc.fixturenames:
        every = EVERY or metafunc.module.__name__.endswith(".test_etcd")
        metafunc.parametrize("version", list(VERSIONS) if every else [PLATFORMS], indirect=True, scope="session")


@pytest.fixture(scope="session")
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
