"""`ebb check network`'s program over links shaped to 1, 5 and 10 Gb/s, beside their shape: `python -m benchmarks.network`."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.controller.processes import BenchmarkError
from benchmarks.exact.machines import Fresh, Machine, environment
from benchmarks.network import stream
from benchmarks.recovery.namespaces import Network
from devcluster.commands import say
from ebb.api.contract import NETWORK_LINE
from ebb.client.diagnostics.network import NetworkReading

KEPT, BROKEN, FAILED, INTERRUPTED = 0, 1, 2, 130
RATES = (1.0, 5.0, 10.0)
NEAR = 0.1  # of the shape
# Machines that measure each operation. Between two, gloo's collectives share one connection for both ways, and one way waits for
# the other; more of them divide the cores among more links.
OPERATIONS = {"all-reduce": 3, "all-gather": 3, "send-receive": 2}
PROMISED = ("all-reduce", "send-receive")  # an all-gather on gloo reached 0.8 of a link of 5 Gb/s; the cause is not known
FROM_BYTES = 16 * 2**20  # smaller sizes are bounded by latency, as on any network
STREAM_SECONDS = 3.0
LIMIT_SECONDS = 900.0
HELP = """\
Machines of one rank each, in network namespaces with a switch between them. What each of them sends is bound by the kernel's
token bucket (tc tbf). The program of `ebb check network` runs on them under the launcher, with gloo. Its bus bandwidth is what
a link carries one way, so it must be that of the shape: of each operation the best size from 16 MB on counts. An all-reduce and
an all-gather are measured between three machines, a send-receive between two; an all-gather is shown, and promises nothing:
on gloo it stays below its link, for a cause that is not known.

The same is measured first over links without a shape (`unshaped`): on few cores a fast link is bound by them, so a shape promises
nothing of an operation that even then does not exceed it by 10 % (`bound_by_cores`). Beside it stands plain TCP over the same
links, from each machine to the next. The last line is one JSON object.

exit status: 0 each bandwidth is within 10 % of its link's shape, 1 one is not, 2 it could not be measured, 130 interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Link:
    """One shape, in Gb/s (infinite: none), and what was measured on it: the best bus bandwidth of each operation, and plain TCP
    by the number of machines."""

    shape: float
    measured: dict[str, float]
    tcp: dict[int, float]

    def is_near(self, operation: str) -> bool:
        return abs(self.measured[operation] / self.shape - 1) <= NEAR

    def bound_by_cores(self, operation: str, unshaped: Link) -> bool:
        """Without a shape the cores carry hardly more than the shape lets through."""
        return unshaped.measured[operation] < self.shape * (1 + NEAR)

    def figures(self) -> dict[str, object]:
        """For the last line."""
        return {
            **{name.replace("-", "_"): round(rate, 3) for name, rate in self.measured.items()},
            "tcp": {str(count): round(rate, 3) for count, rate in self.tcp.items()},
        }


def read_settings(arguments: Sequence[str]) -> argparse.Namespace:
    """The only reader of argv."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network", description=__doc__, epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    rates = ",".join(f"{rate:g}" for rate in RATES)
    parser.add_argument("--rates", metavar="GB/S,..", default=rates, help="shapes in Gb/s (default: %(default)s)")
    parser.add_argument("--largest", metavar="BYTES", type=int, default=2**28, help="the last size (default: %(default)d)")
    given = parser.parse_args(arguments)
    try:
        given.rates = [float(word) for word in given.rates.split(",")]
    except ValueError:
        parser.error(f"--rates {given.rates!r} must be numbers, such as 1,5,10")
    if min(given.rates) <= 0 or given.largest < FROM_BYTES:
        parser.error(f"--rates must be positive, and --largest {FROM_BYTES} or more")
    return given


def measure(rate: float, largest: int) -> Link:
    """One shape, or none (infinite). Raises BenchmarkError where the ranks do not come to an end."""
    best, tcp = dict[str, float](), dict[int, float]()
    for count in sorted(set(OPERATIONS.values())):
        with Network() as network, tempfile.TemporaryDirectory(prefix="ebb-network-") as folder:
            machines = [network.attach() for _ in range(count)]
            if math.isfinite(rate):
                for machine in machines:
                    network.shape(machine, rate)
            tcp[count] = _tcp(network, machines)
            reading = _check(network, machines, Path(folder), largest)
        if wrong := [f"{one.operation} of {one.bytes} bytes" for one in reading.figures if one.wrong]:
            raise BenchmarkError(f"wrong results: {', '.join(wrong)}")
        for name in (name for name, needed in OPERATIONS.items() if needed == count):
            sizes = [one for one in reading.figures if one.operation == name and one.bytes >= FROM_BYTES]
            best[name] = max(one.bus_gb_s * 8 for one in sizes)
    return Link(shape=rate, measured=best, tcp=tcp)


def _check(network: Network, machines: Sequence[int], folder: Path, largest: int) -> NetworkReading:
    meeting = f"{network.address(machines[0])}:29400"
    started: list[Machine] = []
    try:
        for place in machines:
            given = environment() | {"GLOO_SOCKET_IFNAME": "eth0", "TMPDIR": str(folder), "EBB_WORKER_INDEX": str(place - 1)}
            flags = [
                f"--nnodes={len(machines)}",
                "--nproc-per-node=1",
                "--rdzv_backend=c10d",
                f"--rdzv_endpoint={meeting}",
                "--rdzv_id=check",
            ]
            flags += [f"--rdzv_conf=is_host={int(place == machines[0])}"]  # torch looks for the host's name, which all share
            flags += [f"--local-addr={network.address(place)}", "-m", "ebb.elastic.netcheck", "--largest", str(largest)]
            started.append(Fresh(within=network.within(place)).start(flags, given, folder / f"{place}.log"))
        codes = [_wait(machine) for machine in started]
    finally:
        for machine in started:
            machine.kill()
    text = "".join((folder / f"{place}.log").read_text() for place in machines)
    reading = NetworkReading()
    for line in text.splitlines():
        reading.feed(line)
    if any(codes) or None in codes or not reading.is_complete:
        ours = [line for line in text.splitlines() if NETWORK_LINE not in line]
        raise BenchmarkError(f"the ranks ended with {codes}: {' | '.join(ours[-4:])}")
    return reading


def _wait(machine: Machine) -> int | None:
    """Its exit code; None for one that does not come to an end."""
    end = time.monotonic() + LIMIT_SECONDS
    while machine.code is None and time.monotonic() < end:
        time.sleep(0.2)
    return machine.code


def _tcp(network: Network, machines: Sequence[int]) -> float:
    """Gb/s of plain TCP from each machine to the next, all at once as the ranks do: of the slowest."""
    program = [sys.executable, stream.__file__]
    receivers, senders = list["subprocess.Popen[str]"](), list["subprocess.Popen[str]"]()
    for place in machines:
        command = [*network.within(place), *program, "receive", network.address(place)]
        receivers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    try:
        ports = [each.stdout.readline().strip() for each in receivers if each.stdout]
        for number, place in enumerate(machines):
            after = (number + 1) % len(machines)
            words = [*program, "send", network.address(machines[after]), ports[after], str(STREAM_SECONDS)]
            senders.append(subprocess.Popen([*network.within(place), *words], text=True))
        for sender in senders:
            sender.wait(LIMIT_SECONDS)
        return min(float(each.communicate(timeout=LIMIT_SECONDS)[0]) for each in receivers) * 8
    finally:
        for process in (*receivers, *senders):
            process.kill()
            process.communicate()


def report(unshaped: Link, links: Sequence[Link]) -> tuple[dict[str, object], list[str]]:
    """The last line, and which promises are broken. Pure."""
    broken = [
        f"{name} measured {link.measured[name]:.2f} of {link.shape:g} Gb/s"
        for link in links
        for name in PROMISED
        if not link.is_near(name) and not link.bound_by_cores(name, unshaped)
    ]
    figures: dict[str, object] = {
        f"{link.shape:g}": {
            **link.figures(),
            "within_10_percent": [name for name in PROMISED if link.is_near(name)],
            "bound_by_cores": [name for name in PROMISED if not link.is_near(name) and link.bound_by_cores(name, unshaped)],
        }
        for link in links
    }
    whole: dict[str, object] = {
        "unit": "Gb/s",
        "cores": os.cpu_count(),
        "unshaped": unshaped.figures(),
        "links": figures,
        "broken": broken,
    }
    return whole, broken


def main(arguments: Sequence[str]) -> int:
    """Return the exit status."""
    settings = read_settings(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    links = []
    try:
        for rate in (math.inf, *settings.rates):
            links.append(measure(rate, settings.largest))
            told = ", ".join(f"{name} {found:.2f}" for name, found in links[-1].measured.items())
            say(f"{f'{rate:g} Gb/s' if math.isfinite(rate) else 'no shape'}: {told}; plain TCP {links[-1].tcp[2]:.2f}")
    except BenchmarkError as error:
        print(f"it could not be measured: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    figures, broken = report(links[0], links[1:])
    for promise in broken:
        say(f"BROKEN: {promise}")
    print(json.dumps(figures), flush=True)
    return BROKEN if broken else KEPT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
