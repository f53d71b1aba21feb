"""What users write on the command line, and what they are told when it is wrong."""

import subprocess
import sys
from typing import Any

import pytest
from torch.distributed.elastic.rendezvous import RendezvousParameters

from ebb.elastic.rendezvous.errors import Compacted, EtcdError, LeaseGone, Refused, Unreachable, explain
from ebb.elastic.rendezvous.generation import EtcdAddress, Generation, read
from ebb.elastic.rendezvous.handler import create_handler, own_address


def create(endpoint: str = "127.0.0.1:2379", **settings: Any) -> object:
    return create_handler(RendezvousParameters("etcd3", endpoint, "job", 1, 4, **settings))


@pytest.mark.parametrize(
    ("endpoint", "settings", "words"),
    [
        pytest.param("", {}, "--rdzv_endpoint is missing", id="no-endpoint"),
        pytest.param("etcd", {"usr": "x"}, "has no 'usr' for the backend etcd3.*user: etcd's user", id="unknown-setting"),
        pytest.param("etcd", {"lease_seconds": "long"}, "lease_seconds is 'long'; it must be a number", id="no-number"),
        pytest.param("etcd", {"protocol": "ftp"}, "protocol is 'ftp'; allowed: http, https", id="protocol"),
    ],
)
def test_wrong_settings(endpoint: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        create(endpoint, **settings)


def test_torch_finds_it_while_we_import_torchs_own() -> None:
    """torch says no more than a warning when that fails."""
    program = (
        "from ebb.elastic.rendezvous.handler import rendezvous_handler_registry as registry\n"
        "print(registry._registry['etcd3'].__module__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("ebb.elastic.rendezvous.entry_point\n", "")


def test_a_wrong_plan_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_PLANNED_WORKERS", "four")
    with pytest.raises(ValueError, match="EBB_PLANNED_WORKERS is 'four'; it must be a number"):
        create()


def test_a_missing_certificate_is_said() -> None:
    handler = create_handler(RendezvousParameters("etcd3", "etcd", "job", 1, 4, cacert="/nowhere/ca.crt"))
    with pytest.raises(Exception, match=r"cacert='/nowhere/ca.crt'.*must be the path of a readable PEM file"):
        handler.is_closed()


@pytest.mark.parametrize(
    ("endpoint", "settings", "wanted"),
    [
        pytest.param("etcd", {}, ("https://etcd:2379", "/tls/ca.crt", "/tls/tls.crt", "/tls/tls.key"), id="of-the-environment"),
        pytest.param(
            "etcd", {"lease_seconds": "5"}, ("https://etcd:2379", "/tls/ca.crt", "/tls/tls.crt", "/tls/tls.key"), id="more"
        ),
        pytest.param("etcd", {"cacert": "/mine.crt"}, ("https://etcd:2379", "/mine.crt", "", ""), id="those-that-were-written"),
        pytest.param("etcd", {"protocol": "http"}, ("http://etcd:2379", "", "", ""), id="plain-text-by-a-setting"),
        pytest.param("http://etcd:2379", {}, ("http://etcd:2379", "", "", ""), id="plain-text-by-the-endpoint"),
    ],
)
def test_certificates_come_from_the_folder_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, settings: dict[str, str], wanted: tuple[str, ...]
) -> None:
    monkeypatch.setenv("EBB_ETCD_TLS", "/tls")
    parameters = RendezvousParameters("etcd3", endpoint, "job", 1, 4, local_addr="127.0.0.1", **settings)
    found = create_handler(parameters)._etcd
    assert (found.endpoint, found.cacert, found.cert, found.key) == wanted


@pytest.mark.parametrize("endpoint", ["127.0.0.1", "127.0.0.1:2379", "http://127.0.0.1:1,http://nowhere:2"])
def test_own_address(endpoint: str) -> None:
    assert own_address(endpoint) == "127.0.0.1"


def test_own_address_is_no_name_while_etcds_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.elastic.rendezvous.handler._FAR_AWAY", "127.0.0.1:9")  # there may be no way out of here
    assert own_address("http://no-such-host.invalid:2379") == "127.0.0.1"


@pytest.mark.parametrize(
    ("status", "found", "kind", "words"),
    [
        (400, {"message": "etcdserver: user name is empty", "code": 3}, Refused, "EBB_ETCD_PASSWORD"),
        (403, {"error": "etcdserver: permission denied", "code": 7}, Refused, "user 'u' needs a role"),
        (429, {"message": "etcdserver: mvcc: database space exceeded", "code": 8}, Refused, "alarm disarm"),
        (429, {"message": "etcdserver: too many requests", "code": 8}, Unreachable, "too many"),
        (503, {"message": "etcdserver: no leader", "code": 14}, Unreachable, "no leader"),
        (404, {"error": "etcdserver: requested lease not found", "code": 5}, LeaseGone, "lease"),
        (404, {"message": "404 page not found"}, Refused, "no etcd of 3.4 or newer"),
        (400, {"message": "Client sent an HTTP request to an HTTPS server."}, Refused, "https://"),
        (400, {"message": "etcdserver: mvcc: required revision has been compacted", "code": 11}, Compacted, "compacted"),
        (400, {"message": "something new", "code": 3}, Refused, "something new"),
    ],
)
def test_what_etcd_says_is_explained(status: int, found: dict[str, Any], kind: type[EtcdError], words: str) -> None:
    error = explain("http://e:1", status, found, user="u")
    assert type(error) is kind
    assert words in str(error)
    assert "http://e:1" in str(error)


def test_a_worker_reads_what_the_agent_wrote() -> None:
    found = EtcdAddress(endpoint="https://a:1,https://b:2", cacert="/ca", user="u", addresses={"a": ["10.0.0.7"]})
    for etcd in (None, found):
        generation = Generation(number=12, prefix="/ebb/job", etcd=etcd)
        assert Generation.from_json(generation.to_json()) == generation
        assert "password" not in generation.to_json()
    assert generation.key == "/ebb/job/generation"


def test_a_worker_of_another_rendezvous_reads_none() -> None:
    assert read({"MASTER_ADDR": "nowhere", "MASTER_PORT": "1"}) is None
