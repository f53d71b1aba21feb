"""Tests of the trainer share the machine's cores with each other: one thread each. And no test hears another's signals."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ebb.elastic.notices import notice
from tests.elastic import images
from tests.elastic.machines import NO_DNS, start_etcd
from tests.elastic.rendezvous.servers import built

# Everything is on loopback. torch looks up the name of each peer of a store, six times in a generation of two, and each lost
# packet of DNS costs a second. A process reads the options at its first look-up. They must not stay in the environment: the box
# of the tests of the whole platform has to find its mirrors.
with pytest.MonkeyPatch.context() as _patch, contextlib.suppress(OSError):
    for _name, _value in NO_DNS.items():
        _patch.setenv(_name, _value)
    socket.getaddrinfo("ebb.invalid", None)
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns of each name that it did not find


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of one that all jobs of a module share."""
    process, endpoint = start_etcd(built("3.6"), tmp_path_factory.mktemp("etcd"))
    yield endpoint
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return images.make(tmp_path_factory.mktemp("images"), train=40)


@pytest.fixture(autouse=True)
def _no_notice_is_left() -> Iterator[None]:
    """A test that calls main() installs one in this process: a later test's SIGTERM would be its notice, and end all tests."""
    yield
    if notice._installed:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        notice._installed.clear()
