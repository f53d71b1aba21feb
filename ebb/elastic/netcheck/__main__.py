"""One rank of the network's check. Rank 0 prints a line for each figure: the word ebb-network, then JSON.

start      ranks, machines, device, and of each machine: its adapters, and the network that was selected
figure     operation, bytes, seconds, algorithm and bus bandwidth in GB/s, wrong: ranks with a wrong result
skipped    operation, bytes, reason
end        through; without it the check was not finished
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ebb.elastic.contract import (
    ENV_WORKER_INDEX,
    EXIT_FINISHED,
    EXIT_HARDWARE,
    EXIT_PEER_LOST,
    EXIT_PROGRAM_FAILED,
    EXIT_RECLAIMED,
    NETWORK_LINE,
)
from ebb.elastic.faults import Fault, fault_of
from ebb.elastic.netcheck.adapters import CHOICES, SOCKETS, Selected, choose, find_adapters, selected
from ebb.elastic.netcheck.bandwidth import LARGEST, OPERATIONS, bandwidths, reason_to_skip, sizes_of
from ebb.elastic.notices.notice import install

_LEAVE_SECONDS = 2.0  # after a notice: there is nothing to save


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m ebb.elastic.netcheck", description=__doc__)
    parser.add_argument("--adapters", choices=CHOICES, default="all", help="how many fast adapters of a machine NCCL may use")
    parser.add_argument("--largest", type=int, metavar="BYTES", default=LARGEST, help="the last size (default: %(default)d)")
    parser.add_argument("--operation", choices=OPERATIONS, help="measure this one alone")
    asked = parser.parse_args(arguments)
    install().leave_within(_LEAVE_SECONDS, EXIT_RECLAIMED)
    try:
        check(asked.adapters, asked.largest, (asked.operation,) if asked.operation else OPERATIONS)
    except Exception as error:  # whatever torch raises
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        codes = {Fault.PEER: EXIT_PEER_LOST, Fault.HARDWARE: EXIT_HARDWARE}
        return codes.get(fault_of(str(error)), EXIT_PROGRAM_FAILED)
    return EXIT_FINISHED


def check(choice: str, largest: int, operations: Sequence[str] = OPERATIONS) -> None:
    """Measure all of it, together with the other ranks."""
    adapters = find_adapters()
    choose(choice, adapters, os.environ)
    log = Path(tempfile.gettempdir(), f"ebb-nccl-{os.getpid()}.log")
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=str(log))

    import torch  # noqa: PLC0415 - NCCL's environment first: it is read once

    from ebb.elastic.netcheck.measure import Buffers, Ranks, free_bytes, measure  # noqa: PLC0415

    local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ranks = Ranks.meet(device)
    if ranks.size == 1:
        raise ValueError("one rank has no network to measure: use at least 2")
    free = int(ranks.agree(free_bytes(device, ranks_here=here), least=True))
    fitting = [size for size in sizes_of(OPERATIONS[0], largest) if not reason_to_skip(size, before=None, free_bytes=free)]
    if not fitting:
        raise ValueError(f"a rank has {free / 2**20:.0f} MiB of memory free, too little for any size")
    buffers = Buffers(max(fitting[-1], 4 * ranks.size), device)
    measure(ranks, OPERATIONS[0], fitting[0], buffers)  # NCCL looks for its network with the first operation
    found = Selected(SOCKETS) if device.type == "cpu" else selected(log.read_text(errors="replace") if log.exists() else "")
    facts = {
        "worker": int(os.environ.get(ENV_WORKER_INDEX) or os.environ.get("GROUP_RANK", "0")),
        "machine": socket.gethostname(),
        "adapters": [each._asdict() for each in adapters],
        "selected": found._asdict(),
    }
    every = ranks.gather(facts)
    machines = [facts for number, facts in enumerate(every) if facts["worker"] not in [one["worker"] for one in every[:number]]]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    say = partial(ranks.tell, NETWORK_LINE)
    say("start", ranks=ranks.size, device=device.type, gpu=name, adapters=choice, machines=machines)
    for operation in operations:
        before: tuple[int, float] | None = None
        for size in sizes_of(operation, largest):
            if reason := reason_to_skip(size, before=before, free_bytes=free):
                say("skipped", operation=operation, bytes=size, reason=reason)
                continue
            figure = measure(ranks, operation, size, buffers)
            before = (size, figure.seconds)
            rates = bandwidths(operation, size, seconds=figure.seconds, ranks=ranks.size)
            say("figure", operation=operation, bytes=size, seconds=figure.seconds, times=figure.times, wrong=figure.wrong,
                algorithm=rates.algorithm, bus=rates.bus)  # fmt: skip
    say("end")
    ranks.agree(0.0)  # nobody's connections close before all are through


if __name__ == "__main__":
    from ebb.elastic.runtime.main import end_process

    end_process(main(sys.argv[1:]))
