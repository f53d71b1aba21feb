"""etcd's maintenance: what is asked of its gateway, in which order, and when the alarm must stay."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from ebb.controller.etcd.maintenance import EtcdError, gateway, main, maintain

MIB = 2**20
QUOTA = 512 * MIB
COMPACTED = '400 {"error":"etcdserver: mvcc: required revision has been compacted"}'  # as etcd 3.5.21 answered


class Etcd:
    """An etcd as its gateway shows it. `size` and `used` in MiB; `keys`: what is left when everything old is gone."""

    def __init__(self, size: int, used: int, *, keys: int = 1, alarm: bool = False, compacted: bool = False) -> None:
        self.size, self.used, self.keys, self.compacted = size, used, keys, compacted
        self.alarms = [{"memberID": "77", "alarm": "NOSPACE"}] if alarm else []
        self.asked: list[str] = []

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        what = path.rsplit("/", 1)[1]
        self.asked += [what] if what != "alarm" else [body["action"]]
        return getattr(self, what)(body)  # type: ignore[no-any-return]

    def alarm(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["action"] == "GET":
            return {"alarms": self.alarms} if self.alarms else {}
        self.alarms = [one for one in self.alarms if one["memberID"] != body.get("memberID")]
        return {}

    def status(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"header": {"revision": "41"}, "dbSize": str(self.size * MIB), "dbSizeInUse": str(self.used * MIB)}

    def compaction(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body == {"revision": "41", "physical": True}
        if self.compacted:
            raise EtcdError(COMPACTED)
        self.used = self.keys
        return {}

    def defragment(self, body: dict[str, Any]) -> dict[str, Any]:
        self.size = self.used
        return {}


def test_a_full_database_is_compacted_defragmented_and_then_the_alarm_taken_back() -> None:
    etcd = Etcd(512, 500, keys=3, alarm=True)
    assert maintain(etcd, QUOTA) == "the alarm NOSPACE is taken back: 512.0 MiB became 3.0 MiB"
    assert etcd.alarms == []
    assert [step for step in etcd.asked if step != "status"] == ["GET", "compaction", "defragment", "DEACTIVATE"]


def test_maintenance_goes_on_where_etcd_has_compacted_already() -> None:
    etcd = Etcd(512, 9, alarm=True, compacted=True)
    assert "taken back: 512.0 MiB became 9.0 MiB" in maintain(etcd, QUOTA)


def test_the_alarm_stays_where_the_database_is_full_of_what_is_needed() -> None:
    etcd = Etcd(512, 500, keys=450, alarm=True)
    with pytest.raises(EtcdError, match=r"still has 450\.0 MiB of 512\.0 MiB: look for what .* or raise --quota-backend-bytes"):
        maintain(etcd, QUOTA)
    assert etcd.alarms, "the next write would raise it again"


@pytest.mark.parametrize(
    ("size", "used", "said"),
    [
        pytest.param(100, 40, "defragmented: 100.0 MiB became 40.0 MiB", id="half of it is holes"),
        pytest.param(100, 60, "nothing to do: 60.0 MiB of 100.0 MiB are in use", id="not worth a pause"),
        pytest.param(10, 1, "nothing to do: 1.0 MiB of 10.0 MiB are in use", id="small"),
    ],
)
def test_an_ordinary_run_drops_no_revision(size: int, used: int, said: str) -> None:
    etcd = Etcd(size, used)
    assert maintain(etcd, QUOTA) == said
    assert "compaction" not in etcd.asked


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An HTTP server that is well, or says 400 to a compaction."""
    seen: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(400 if self.path.endswith("compaction") else 200)
            self.end_headers()
            self.wfile.write(COMPACTED.encode() if self.path.endswith("compaction") else b"{}")

        def log_message(self, *_: object) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", seen
    http.shutdown()
    thread.join()
    http.server_close()


def test_the_gateway_is_posted_to_in_json(server: tuple[str, list[tuple[str, bytes]]]) -> None:
    address, seen = server
    assert gateway(address)("/v3/maintenance/alarm", {"action": "GET"}) == {}
    assert seen == [("/v3/maintenance/alarm", b'{"action": "GET"}')]
    with pytest.raises(EtcdError, match=r"400 .*required revision has been compacted"):
        gateway(address)("/v3/kv/compaction", {"revision": "1"})


def test_exit_codes(server: tuple[str, list[tuple[str, bytes]]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--etcd={server[0]}/", "--quota-bytes=1"]) == 0
    assert main(["--etcd=http://127.0.0.1:1", "--quota-bytes=1"]) == 1
    seen = server[1]
    seen.clear()
    assert main(["--etcd=http://127.0.0.1:1", f"--etcd={server[0]}", "--quota-bytes=1"]) == 1
    assert seen, "one that does not answer is no reason to leave out the next"
    with pytest.raises(SystemExit):
        main(["--etcd=etcd:2379", "--quota-bytes=1"])
    assert "use for example https://etcd:2379" in capsys.readouterr().err
