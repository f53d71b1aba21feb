"""Our client against real etcd of all versions: what each call promises, and how it fails."""

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebb.elastic.rendezvous import wire
from ebb.elastic.rendezvous.etcd import Compacted, Compare, Delete, Etcd, KeyEvent, LeaseGone, Put, Refused, Tls, Unreachable
from testing.ports import free_port
from tests.elastic.machines import until
from tests.elastic.rendezvous.servers import Server, built

pytestmark = pytest.mark.e2e


def ask(server: Server, path: str, **body: Any) -> None:
    """What an administrator does; the client has no need of it."""
    request = urllib.request.Request(server.endpoint + path, json.dumps(body).encode(), method="POST")
    urllib.request.urlopen(request, timeout=10).close()


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"/ebb/{request.node.name}/"


def test_keys_and_transactions(etcd: Server, prefix: str) -> None:
    client = etcd.client()
    key, other = f"{prefix}a", f"{prefix}b"
    assert client.get(key) is None
    revision = client.put(key, b"\x00one")
    found = client.get(key)
    assert found is not None
    assert (found.value, found.mod_revision, found.create_revision, found.version) == (b"\x00one", revision, revision, 1)

    assert client.transact(
        [Compare(key, "mod_revision", revision), Compare(other, "version", 0)], [Put(other, b"2"), Put(key, b"")]
    )
    assert not client.transact([Compare(key, "mod_revision", revision)], [Delete(other)])
    assert client.transact([Compare(key, "create_revision", revision), Compare(other, "value", b"2")], [Delete(key)])
    items, at = client.list(prefix)
    assert [(item.key, item.value) for item in items] == [(other, b"2")]
    assert at >= items[0].mod_revision
    assert client.delete(other)
    assert not client.delete(other)
    client.put(key, b"")
    assert client.delete_prefix(prefix) == 1


def test_leases(etcd: Server, prefix: str) -> None:
    client = etcd.client()
    lease, short = client.grant(60), client.grant(2)
    client.put(f"{prefix}kept", b"", lease)
    client.put(f"{prefix}short", b"", short)
    assert client.keep_alive(lease) == 60
    assert client.time_to_live(lease) in [(60, 60), (59, 60)]
    assert client.time_to_live(12345) == (0, 0)
    until("the lease has expired", lambda: client.get(f"{prefix}short") is None, 10)
    assert client.keep_alive(short) == 0
    with pytest.raises(LeaseGone):
        client.put(f"{prefix}short", b"", short)
    with pytest.raises(LeaseGone):
        client.transact([], [Put(f"{prefix}short", b"", short)])
    client.revoke(lease)
    client.revoke(lease)
    assert client.list(prefix)[0] == []


class Watcher:
    """A watch in a thread, and what came of it."""

    def __init__(self, client: Etcd, prefix: str, revision: int) -> None:
        self.client, self.events, self.ended = client, list[KeyEvent](), list[BaseException | None]()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(prefix, revision))
        self.thread.start()

    def _run(self, prefix: str, revision: int) -> None:
        try:
            for events in self.client.watch(prefix, revision, self.stop):
                self.events += events
            self.ended.append(None)
        except Exception as error:
            self.ended.append(error)

    def end(self) -> None:
        self.stop.set()
        self.client.close()
        self.thread.join(5)
        assert not self.thread.is_alive()


def test_a_watch_gives_all_events_in_order_and_ends_at_once(etcd: Server, prefix: str) -> None:
    client = etcd.client()
    first = client.put(f"{prefix}a", b"1")
    client.put(f"{prefix}a", b"2")
    watcher = Watcher(etcd.client(), prefix, first)
    until("the past", lambda: len(watcher.events) == 2, 5)
    client.put("/elsewhere", b"")
    client.transact([], [Put(f"{prefix}a", b"3"), Put(f"{prefix}b", b"")])
    client.delete(f"{prefix}a")
    until("the present", lambda: len(watcher.events) == 5, 5)
    assert [(event.item.key[-1], event.item.value, event.deleted) for event in watcher.events] == [
        ("a", b"1", False),
        ("a", b"2", False),
        ("a", b"3", False),
        ("b", b"", False),
        ("a", b"", True),
    ]
    before = time.monotonic()
    watcher.end()
    assert watcher.ended == [None]
    assert time.monotonic() - before < 2


def test_a_silent_watch_asks_again(etcd: Server, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ebb.elastic.rendezvous.etcd._SILENCE_SECONDS", 0.3)
    client = etcd.client()
    watcher = Watcher(etcd.client(), prefix, client.put(f"{prefix}a", b""))
    until("the past", lambda: len(watcher.events) == 1, 5)
    time.sleep(1.0)  # three silences
    client.put(f"{prefix}b", b"")
    until("the present", lambda: len(watcher.events) == 2, 5)
    watcher.end()
    assert watcher.ended == [None]


def test_a_watch_says_when_history_is_gone(own_etcd: Server) -> None:
    client = own_etcd.client()
    revision = [client.put("/ebb/x", b"") for _ in range(5)][-1]
    ask(own_etcd, "/v3/kv/compaction", revision=str(revision))
    with pytest.raises(Compacted, match="no history from revision 1"):
        next(client.watch("/ebb/", 1, threading.Event()))

    watcher = Watcher(own_etcd.client(), "/ebb/", revision + 1)
    own_etcd.kill()
    until("the watch broke", lambda: watcher.ended, 5)
    assert isinstance(watcher.ended[0], Unreachable)
    own_etcd.lose_data()
    own_etcd.start()
    with pytest.raises(Compacted, match="lost its data"):
        next(client.watch("/ebb/", revision + 1, threading.Event()))


def test_the_next_endpoint_is_tried(etcd: Server, prefix: str) -> None:
    client = Etcd([f"127.0.0.1:{free_port()}", "http://no-such-host.invalid:1", etcd.endpoint], timeout_seconds=2)
    client.put(f"{prefix}a", b"1")
    assert client.transact([Compare(f"{prefix}a", "version", 1)], [])
    with pytest.raises(Unreachable, match=r"etcd does not answer \(http://127.0.0.1:1: .*refused"):
        Etcd(["127.0.0.1:1"]).get("/a")


def test_after_a_fork_the_child_has_connections_of_its_own(etcd: Server, prefix: str) -> None:
    client = etcd.client()
    client.put(f"{prefix}a", b"parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.put(f"{prefix}a", b"child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    found = client.get(f"{prefix}a")
    assert found is not None
    assert found.value == b"child"


@pytest.fixture
def guarded(own_etcd: Server) -> Server:
    """With users: `root`, `ebb` that may write below /ebb/, and `other` that may not."""
    for user in ("root", "ebb", "other"):
        ask(own_etcd, "/v3/auth/user/add", name=user, password=f"{user}-secret")
    ask(own_etcd, "/v3/auth/role/add", name="root")
    ask(own_etcd, "/v3/auth/user/grant", user="root", role="root")
    ask(own_etcd, "/v3/auth/role/add", name="jobs")
    permission = {"permType": "READWRITE", "key": wire.text("/ebb/"), "range_end": wire.text("/ebb0")}
    ask(own_etcd, "/v3/auth/role/grant", name="jobs", perm=permission)
    ask(own_etcd, "/v3/auth/user/grant", user="ebb", role="jobs")
    ask(own_etcd, "/v3/auth/enable")
    return own_etcd


def test_user_and_password(guarded: Server) -> None:
    client = guarded.client(user="ebb", password="ebb-secret")
    lease = client.grant(10)
    first = client.put("/ebb/x", b"", lease)
    assert client.time_to_live(lease)[1] == 10, "of a lease whose keys it may read"
    assert client.keep_alive(lease) == 10
    guarded.kill()
    guarded.start()  # it has forgotten all tokens
    assert client.keep_alive(lease) == 10
    watcher = Watcher(guarded.client(user="ebb", password="ebb-secret"), "/ebb/", first)
    until("an event", lambda: watcher.events, 5)
    guarded.kill()
    until("the watch broke", lambda: watcher.ended, 5)
    guarded.start()
    again = Watcher(watcher.client, "/ebb/", first)  # with a token that is not known any more
    until("an event again", lambda: again.events, 5)
    client.revoke(lease)
    until("the end of the lease", lambda: len(again.events) == 2, 5)
    again.end()


def test_the_wrong_user_is_told(guarded: Server) -> None:
    with pytest.raises(
        Refused, match=r"said '.*invalid user ID or password': user 'ebb' and the password in .*EBB_ETCD_PASSWORD"
    ):
        guarded.client(user="ebb", password="wrong").get("/ebb/x")
    with pytest.raises(Refused, match="it asks for a user and a password: give --rdzv_conf user=NAME"):
        guarded.client().get("/ebb/x")
    other = guarded.client(user="other", password="other-secret")
    with pytest.raises(Refused, match="user 'other' needs a role with readwrite on the prefix /ebb/"):
        other.put("/ebb/x", b"")
    with pytest.raises(Refused, match="user 'other' needs a role"):
        next(other.watch("/ebb/", 1, threading.Event()))


def test_a_user_where_none_is_asked_for_is_no_error(etcd: Server, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    assert etcd.client(user="ebb", password="x").get(f"{prefix}a") is None
    assert "asks nobody for a password: user 'ebb' is not used" in caplog.text


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate for 127.0.0.1, a client's, and an authority that signed nothing."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: apt-get install openssl")
    folder = tmp_path_factory.mktemp("certificates")

    def run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    for name in ("ca", "foreign"):
        run("req", "-x509", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:etcd.test\nextendedKeyUsage=serverAuth,clientAuth\n")
    for name in ("server", "client"):
        run("req", *key[:-2], "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2"]
        run("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")
    return folder


@pytest.fixture
def secure(version: str, certificates: Path, tmp_path: Path) -> Iterator[Server]:
    """It asks for a client's certificate too."""
    flags = [f"--cert-file={certificates}/server.crt", f"--key-file={certificates}/server.key"]
    flags += [f"--trusted-ca-file={certificates}/ca.crt", "--client-cert-auth"]
    tls = Tls(cacert=f"{certificates}/ca.crt", cert=f"{certificates}/client.crt", key=f"{certificates}/client.key")
    server = Server(built(version), tmp_path, flags=flags, scheme="https", tls=tls).start()
    yield server
    server.kill()


def test_tls(secure: Server, certificates: Path) -> None:
    client = secure.client()
    until("etcd has a leader", lambda: _answers(client), 20)
    watcher = Watcher(secure.client(), "/ebb/", client.put("/ebb/x", b"secret"))
    until("an event", lambda: watcher.events, 5)
    watcher.end()
    assert watcher.ended == [None]

    plain = secure.endpoint.replace("https", "http")
    with pytest.raises((Refused, Unreachable), match=r"speaks TLS.* write the endpoint with https://"):
        Etcd([plain]).get("/ebb/x")
    with pytest.raises(Refused, match=r"its certificate is not trusted: give the authority that signed it"):
        Etcd([secure.endpoint], tls=Tls(cacert=f"{certificates}/foreign.crt")).get("/ebb/x")
    with pytest.raises((Refused, Unreachable)):  # in TLS 1.3 the refusal may arrive as a broken connection
        Etcd([secure.endpoint], tls=Tls(cacert=f"{certificates}/ca.crt")).get("/ebb/x")


def test_tls_is_with_the_name_that_is_not_looked_up(secure: Server, certificates: Path) -> None:
    assert secure.tls is not None

    def named(name: str) -> Etcd:
        return Etcd([f"https://{name}:{secure.port}"], tls=secure.tls, addresses={name: ["127.0.0.2", "127.0.0.1"]})

    until("etcd has a leader", lambda: _answers(secure.client()), 20)
    assert named("etcd.test").get("/ebb/x") is None
    with pytest.raises(Refused, match="use a host name that the certificate names"):
        named("other.test").get("/ebb/x")


def test_tls_where_none_is_spoken(etcd: Server) -> None:
    with pytest.raises((Refused, Unreachable), match=r"it hung up on TLS.* speaks none \(then write the endpoint with http://"):
        Etcd([etcd.endpoint.replace("http", "https")]).get("/ebb/x")


def _answers(client: Etcd) -> bool:
    try:
        return client.keep_alive(1) == 0
    except Unreachable:
        return False
