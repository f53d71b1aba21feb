"""The machine with the cluster's DNS is lost, in a network of its own with a resolver of its own.

    unshare --mount --net python -m tests.elastic.rendezvous.lost_resolver other_address 3.6 FOLDER [SECONDS]

Three machines of a job have found etcd by the name of a Service, as pods do. Then one of them is lost, the resolver takes every
question and answers none, and

- etcd_stays: etcd is where it was;
- etcd_comes_back: etcd goes too, and is back at its address after 8 s (a Service's cluster IP);
- other_address: the name has two addresses (a headless Service), and the one that the machines use goes too.

The last line is JSON: the seconds until the other two are in a generation, from the loss or from etcd's return, and whether they
met while the resolver was away. It answers again after SECONDS (20).
"""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.elastic.rendezvous.machine import Machines
from tests.elastic.rendezvous.servers import Server, built

_NAME, _DOMAIN = "etcd-client.ebb-system.svc", "cluster.local"
_RESOLVER, _ADDRESSES = "10.73.0.1", ("10.73.0.2", "10.73.0.3")
_AWAY_SECONDS = 8.0
_A, _NO_SUCH_NAME = 1, 3


class Resolver:
    """Knows one name, by these addresses in this order; of others it says that there are none."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses, self.silent = addresses, False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((_RESOLVER, 53))
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            question, asker = self._socket.recvfrom(4096)
            if self.silent:
                continue
            end = question.index(b"\0", 12) + 1
            found = question[12:end] == b"".join(bytes([len(part)]) + part.encode() for part in _LABELS) + b"\0"
            (kind,) = struct.unpack(">H", question[end : end + 2])
            addresses = self.addresses if found and kind == _A else []
            flags = 0x8180 | (0 if found else _NO_SUCH_NAME)
            head = question[:2] + struct.pack(">5H", flags, 1, len(addresses), 0, 0)
            answers = [struct.pack(">HHHIH", 0xC00C, _A, 1, 30, 4) + socket.inet_aton(address) for address in addresses]
            self._socket.sendto(head + question[12 : end + 4] + b"".join(answers), asker)


_LABELS = [*_NAME.split("."), *_DOMAIN.split(".")]


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def play(scenario: str, version: str, folder: Path, dns_seconds: float) -> dict[str, object]:
    (folder / "resolv.conf").write_text(
        f"nameserver {_RESOLVER}\nsearch elastic-job.svc.{_DOMAIN} svc.{_DOMAIN} {_DOMAIN}\noptions ndots:5\n"
    )
    subprocess.run(["mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf"], check=True)
    for words in ("link set lo up", "link add switch type bridge", "link set switch up"):
        ip(words)
    for address in (_RESOLVER, *_ADDRESSES):
        ip(f"addr add {address}/16 dev switch")
    resolver = Resolver(list(_ADDRESSES) if scenario == "other_address" else [_ADDRESSES[0]])
    etcd = Server(built(version), folder)
    etcd.flags += [f"--listen-client-urls=http://0.0.0.0:{etcd.port}"]
    etcd.start()
    machines = Machines(
        f"http://{_NAME}:{etcd.port}",
        folder,
        {"EBB_PLANNED_WORKERS": "3", "RES_OPTIONS": "timeout:1 attempts:3"},  # the launcher's (launch/settings.py)
        lease_seconds=10,
    )
    try:
        for name in "abc":
            machines.start(name)
        number = machines.together("a", "b", "c")
        since = lost = time.monotonic()
        resolver.silent = True
        if scenario == "other_address":
            used = _used(etcd.port)
            ip(f"addr del {used}/16 dev switch")
        if scenario == "etcd_comes_back":
            etcd.kill()
        machines["a"].kill()
        if scenario == "etcd_comes_back":
            time.sleep(_AWAY_SECONDS)
            etcd.start()
            since = time.monotonic()

        def again() -> None:
            resolver.silent = False

        back = threading.Timer(lost + dns_seconds - time.monotonic(), again)
        back.start()
        assert machines.together("b", "c", limit_seconds=90) > number
        seconds, without = time.monotonic() - since, resolver.silent
        back.cancel()
        return {"scenario": scenario, "seconds": round(seconds, 1), "met_without_dns": without}
    finally:
        machines.kill_all()
        etcd.kill()


def _used(port: int) -> str:
    """The address by which the machines reach etcd now."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    remote = [line[2].split(":") for line in lines if line[3] == "01"]
    found = {socket.inet_ntoa(struct.pack("=I", int(address, 16))) for address, other in remote if int(other, 16) == port}
    (used,) = found & set(_ADDRESSES)
    return used


if __name__ == "__main__":
    print(json.dumps(play(sys.argv[1], sys.argv[2], Path(sys.argv[3]), float((*sys.argv[4:], "20")[0]))))
    sys.stdout.flush()
    os._exit(0)
