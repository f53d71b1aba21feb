"""Keep etcd's database small, and clear its alarm NOSPACE: `python -m ebb.controller.etcd.maintenance --etcd https://etcd:2379`.
With --etcd said again, those of several, one after the other. For each https:// address, --certificates is a folder with
<host>.ca.crt, <host>.crt and <host>.key, as certificates.py writes them.

Ordinary runs defragment when half of the file is holes. Under the alarm, etcd refuses writes until three things have happened:
older revisions are dropped, the file is rewritten without them, and the alarm is taken back, in this order. The last is done
only where the file has become small enough, as the alarm would be back with the next write.

It speaks to etcd's JSON gateway, so that it needs neither etcdctl nor a shell. Exit codes: 0 all is well, 1 it is not, and the
log says why. Safe to run at any time, also twice at once; while etcd defragments (well under a second for 100 MB) it answers
nobody.
"""

import argparse
import json
import logging
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Object = dict[str, Any]
Post = Callable[[str, Object], Object]
"""Path of the gateway, body -> answer. Raises EtcdError."""

NOSPACE = "NOSPACE"
TIMEOUT_SECONDS = 120.0  # a defragmentation of the whole quota on a slow disk
WORTHWHILE_BYTES = 16 * 2**20  # holes below this are not worth a pause
ROOM = 0.8  # of the quota: with more than this in use, the alarm would soon be back
log = logging.getLogger("etcd-maintenance")


class EtcdError(Exception):
    """etcd does not answer, or refuses; the message says which."""


def maintain(post: Post, quota_bytes: int) -> str:
    """Do what is needed; returns a sentence about it. Raises EtcdError, also when the alarm had to stay."""
    alarms = post("/v3/maintenance/alarm", {"action": "GET"}).get("alarms", [])
    full = [alarm for alarm in alarms if alarm.get("alarm") == NOSPACE]
    if full:
        return _clear_alarm(post, full, quota_bytes)
    size, used = _sizes(post)
    if size - used < max(size // 2, WORTHWHILE_BYTES):
        return f"nothing to do: {_mib(used)} of {_mib(size)} are in use"
    post("/v3/maintenance/defragment", {})
    return f"defragmented: {_mib(size)} became {_mib(_sizes(post)[0])}"


def _clear_alarm(post: Post, alarms: Sequence[Object], quota_bytes: int) -> str:
    size, _ = _sizes(post)
    _compact(post)
    post("/v3/maintenance/defragment", {})
    left, _ = _sizes(post)
    if left > ROOM * quota_bytes:
        raise EtcdError(
            f"the alarm {NOSPACE} stays: compacted and defragmented, the database still has {_mib(left)} of {_mib(quota_bytes)}: "
            "look for what fills it (docs/operations.md, etcd), or raise --quota-backend-bytes in workloads/manifests/etcd.yaml "
            "and --quota-bytes in maintenance.yaml beside it"
        )
    for alarm in alarms:  # without its member, etcd takes none back, and says nothing
        post("/v3/maintenance/alarm", {"action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": NOSPACE})
    return f"the alarm {NOSPACE} is taken back: {_mib(size)} became {_mib(left)}"


def _compact(post: Post) -> None:
    """Drop all revisions but the current one."""
    revision = post("/v3/maintenance/status", {})["header"]["revision"]
    try:
        post("/v3/kv/compaction", {"revision": revision, "physical": True})
    except EtcdError as error:
        if "has been compacted" not in str(error):
            raise


def _sizes(post: Post) -> tuple[int, int]:
    """Bytes of the file, and those in use. The gateway writes 64-bit numbers as text, and leaves out zeros."""
    status = post("/v3/maintenance/status", {})
    return int(status.get("dbSize", 0)), int(status.get("dbSizeInUse", 0))


def _mib(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


def gateway(address: str, certificates: Path | None = None) -> Post:
    """The real Post. Raises EtcdError where the certificates cannot be used."""
    context = None
    if certificates and (host := urllib.parse.urlsplit(address).hostname) and address.startswith("https://"):
        try:
            context = ssl.create_default_context(cafile=str(certificates / f"{host}.ca.crt"))
            context.load_cert_chain(certificates / f"{host}.crt", certificates / f"{host}.key")
        except OSError as error:  # ssl.SSLError is one
            fix = "kubectl -n ebb-system create job --from=cronjob/etcd-certificates certificates-now"
            raise EtcdError(
                f"the certificates for {address} in {certificates} cannot be used: {error}; make them: {fix}"
            ) from error

    def post(path: str, body: Object) -> Object:
        request = urllib.request.Request(address + path, json.dumps(body).encode())  # noqa: S310 - the address is checked below
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as answer:  # noqa: S310
                read: Object = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise EtcdError(f"{address}{path}: {error.code} {error.read(500).decode(errors='replace')}") from error
        except (OSError, ValueError) as error:
            raise EtcdError(f"{address}{path}: {error}: is etcd running? kubectl -n ebb-system get pods") from error
        return read

    return post


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ebb.controller.etcd.maintenance", description="Defragments etcd, clears NOSPACE."
    )
    parser.add_argument(
        "--etcd",
        required=True,
        action="append",
        metavar="https://HOST:PORT",
        help="a client address of the one member; may be said again for another etcd",
    )
    parser.add_argument("--certificates", type=Path, metavar="FOLDER", help="what opens the etcds with an https:// address")
    parser.add_argument("--quota-bytes", required=True, type=int, help="what etcd was started with as --quota-backend-bytes")
    given = parser.parse_args(arguments)
    for address in given.etcd:
        if not address.startswith(("http://", "https://")):
            parser.error(f"--etcd {address!r} is not an address: use for example https://etcd:2379")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    code = 0
    for address in given.etcd:  # one that does not answer is no reason to leave out the others
        try:
            log.info("%s: %s", address, maintain(gateway(address.rstrip("/"), given.certificates), given.quota_bytes))
        except EtcdError as error:
            log.error("%s", error)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
