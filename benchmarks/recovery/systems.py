"""The systems that are compared: how a machine of each is started, and where it writes its steps.

Each trains the same network on the same data with 24 samples a step, a step lasting at least STEP_SECONDS. Ours runs ours.py as
the platform starts it. Stock torchrun runs stock.py, with its defaults and with the settings that are best for it; its
--max-restarts is above its default of 0 in both, since with 0 every loss ends the job. torchft runs torchft_program.py, each
machine under a torchrun of its own, as its documentation says.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.exact import processes, watch
from benchmarks.exact.etcd import etcd
from benchmarks.exact.machines import LAUNCHER, Machine, environment, nccl_host
from benchmarks.recovery import torchft
from benchmarks.recovery.timeline import Line
from testing.ports import free_port

STEP_SECONDS = 0.1
GLOBAL_BATCH = 24
# An epoch of 60 steps, 6 s with a small state: real ones are hours, after which stock torchrun with such a script would do all of
# it again.
EPOCH_SAMPLES = 60 * GLOBAL_BATCH
# Processes of one new membership start within this time of each other; two memberships are further apart.
_TOGETHER_SECONDS = 1.5


@dataclass(frozen=True, kw_only=True)
class System:
    """`etcd` is the tool of devcluster/tools.py and its flags; None: it needs none. `conf` goes into --rdzv_conf. `lighthouse`
    are the flags of torchft's."""

    name: str
    title: str
    module: str = "torch.distributed.run"
    backend: str = ""
    etcd: tuple[str, ...] | None = None
    conf: str = ""
    lighthouse: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ()  # flags of our trainer

    @property
    def is_ours(self) -> bool:
        return self.module == LAUNCHER

    @contextlib.contextmanager
    def rendezvous(self, folder: Path, *, host: str = "127.0.0.1", within: Sequence[str] = ()) -> Iterator[str]:
        """Its endpoint: an etcd or lighthouse of its own, or for c10d a port on which one machine will listen. See etcd()."""
        if self.lighthouse is not None:
            with torchft.lighthouse(folder, self.lighthouse) as endpoint:
                yield endpoint
            return
        if self.etcd is None:
            yield f"{host}:{free_port()}"
            return
        tool, *flags = self.etcd
        with etcd(folder, tool=tool, flags=flags, host=host, within=within) as endpoint:
            yield endpoint

    def command(
        self, *, endpoint: str, run_id: str, address: str, number: int, megabytes: float, output: Path, device: str
    ) -> list[str]:
        """The launcher's arguments on the machine with this address and number, for a state of so many MB."""
        trained = ["--output", str(output), "--state-megabytes", str(megabytes), "--samples", str(EPOCH_SAMPLES)]
        stock = ["--batch-size", str(GLOBAL_BATCH // 2), "--step-seconds", str(STEP_SECONDS)]
        if self.lighthouse is not None:
            alone = ["--standalone", "--nproc-per-node=1", f"--local-addr={address}", "--max-restarts=1000"]
            found = ["--lighthouse", endpoint, "--address", address, "--replica", str(number)]
            return [*alone, "-m", "benchmarks.recovery.torchft_program", *trained, *stock, *found]
        flags = [f"--rdzv_backend={self.backend}", f"--rdzv_endpoint={endpoint}", f"--rdzv_id={run_id}", "--nnodes=1:4"]
        flags += ["--nproc-per-node=1", f"--local-addr={address}", *([f"--rdzv_conf={self.conf}"] if self.conf else [])]
        if self.is_ours:
            ours = ["--device", device, "--global-batch", str(GLOBAL_BATCH), "--epochs", "100000", "--log-every", "1", "--ledger"]
            return [
                *flags,
                "-m",
                "benchmarks.recovery.ours",
                *trained,
                *ours,
                *["--min-step-seconds", str(STEP_SECONDS), *self.more],
            ]
        return [*flags, "--max-restarts=1000", "-m", "benchmarks.recovery.stock", *trained, *stock]

    def given(self, output: Path, *, planned: int, number: int, device: str, interface: str = "") -> dict[str, str]:
        """The environment of a machine; `planned` is what a controller would tell it. `interface`: the one to its peers, where
        gloo would not find it by the host's name."""
        ours = {"EBB_OUTPUT_DIR": str(output), "EBB_PLANNED_WORKERS": str(planned)} if self.is_ours else {}
        temporary = output.parent / "tmp"  # a machine that is killed leaves its temporary files
        temporary.mkdir(exist_ok=True)
        gloo = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
        nccl = nccl_host(number, interface or "lo") if device == "cuda" else {}
        return environment() | {"TMPDIR": str(temporary)} | dict(self.environment) | ours | gloo | nccl

    def lines(self, output: Path) -> list[Line]:
        if self.is_ours:
            return _our_lines(output)
        return _stock_lines(output) if self.lighthouse is None else _torchft_lines(output)

    def ranks(self, output: Path, machines: Sequence[Machine]) -> dict[int, watch.Rank]:
        """The newest membership's processes, of those that live."""
        if self.is_ours:
            return watch.ranks(output, machines)
        return _stock_ranks(output, machines) if self.lighthouse is None else _torchft_ranks(output, machines)


_UNSHARED = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # without it no torch 2.13 job can grow (pytorch #182221)
_DYNAMIC_BEST = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=1,join_timeout=600"

SYSTEMS = {
    system.name: system
    for system in (
        System(
            name="ours",
            title="Ebb's launcher, etcd3 on etcd 3.6, --recovery memory (the default)",
            module=LAUNCHER,
            backend="etcd3",
            etcd=("etcd36",),
            more=("--recovery", "memory"),
        ),
        System(
            name="restart",
            title="the same, --recovery restart",
            module=LAUNCHER,
            backend="etcd3",
            etcd=("etcd36",),
            more=("--recovery", "restart"),
        ),
        # The slowest of the others first: three play at a time, and a long one that begins last would be alone at the end.
        System(name="etcd_v2", title="torchrun etcd-v2, defaults", backend="etcd-v2", etcd=("etcd", "--enable-v2")),
        System(name="c10d", title="torchrun c10d, defaults", backend="c10d"),
        System(name="etcd", title="torchrun etcd, defaults, etcd 3.5", backend="etcd", etcd=("etcd", "--enable-v2")),
        System(
            name="etcd_best",
            title="torchrun etcd, last_call_timeout=1",
            backend="etcd",
            etcd=("etcd", "--enable-v2"),
            conf="last_call_timeout=1",
        ),
        System(
            name="c10d_best",
            title="torchrun c10d, own store, quick keep-alive",
            backend="c10d",
            conf=_DYNAMIC_BEST,
            environment=_UNSHARED,
        ),
        System(
            name="etcd_v2_best",
            title="torchrun etcd-v2, own store, quick keep-alive",
            backend="etcd-v2",
            etcd=("etcd", "--enable-v2"),
            conf=_DYNAMIC_BEST,
            environment=_UNSHARED,
        ),
        System(name="torchft", title="torchft 0.2, lighthouse with defaults", lighthouse=(), environment=torchft.ENVIRONMENT),
        System(
            name="torchft_best",
            title="torchft 0.2, quick lighthouse: heartbeats for 1 s, joins within 1 s",
            lighthouse=("--join_timeout_ms=1000", "--heartbeat_timeout_ms=1000", "--quorum_tick_ms=50"),
            environment=torchft.ENVIRONMENT,
        ),
    )
}


def _our_lines(output: Path) -> list[Line]:
    """From metrics.jsonl: a line for each step that is done; and the steps whose line went with rank 0."""
    path = output / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    found = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    lines = [_our_line(one["time"], one["generation"], one["world_size"], one["step"]) for one in found]
    pairs = [(one, later) for one, later in pairwise(found) if later["step"] > one["step"] + 1]
    lines += [line for last, first in pairs for line in _told_by_ledger(output, last, first)]
    return sorted(lines, key=lambda line: line.time)


def _our_line(seconds: float, generation: int, world_size: int, step: int) -> Line:
    first, end = (step - 1) * GLOBAL_BATCH, step * GLOBAL_BATCH
    return Line(time=seconds, incarnation=str(generation), world_size=world_size, first=first, end=end)


def _told_by_ledger(output: Path, last: dict[str, Any], first: dict[str, Any]) -> Iterator[Line]:
    """Steps between two lines, the last one of a generation and the first one of the next: rank 0 may be killed when a step is
    done and its line is not written; a survivor saves that step. A ledger counts from 0. Every rank writes its samples of a step
    down before it gives its gradients away, so a step that one rank lacks there was not done."""
    generation, world_size = last["generation"], last["world_size"]
    ranks = [(output / "ledger" / f"g{generation}-r{rank}.jsonl").read_text() for rank in range(world_size)]
    told = [{one["step"] + 1: float(one["time"]) for one in map(json.loads, text.split("\n")[1:-1])} for text in ranks]
    for step in range(last["step"] + 1, first["step"]):
        if all(step in times for times in told):
            yield _our_line(max(times[step] for times in told), generation, world_size, step)


def _stock_lines(output: Path) -> list[Line]:
    """Of rank 0 of each membership: the others tell the same."""
    found = []
    for path in (output / "steps").glob("*.jsonl"):
        header, *lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]] or [{}]
        if header.get("rank") == 0:
            size = header["world_size"]
            found += [
                Line(time=line["time"], incarnation=path.stem, world_size=size, first=line["from"], end=line["to"])
                for line in lines
            ]
    return sorted(found, key=lambda line: line.time)


def _stock_ranks(output: Path, machines: Sequence[Machine]) -> dict[int, watch.Rank]:
    folder, found = output / "steps", dict[int, tuple[float, watch.Rank]]()
    for machine in machines:
        for pid in processes.family(machine.pid):
            for name in processes.has_open(pid, folder):
                header = json.loads((folder / name).read_text().partition("\n")[0] or "{}")
                if header and header["started"] > found.get(header["rank"], (0.0, None))[0]:
                    found[header["rank"]] = header["started"], watch.Rank(machine, pid)
    newest = max((started for started, _ in found.values()), default=time.time())
    return {rank: place for rank, (started, place) in found.items() if newest - started < _TOGETHER_SECONDS}


def _torchft_lines(output: Path) -> list[Line]:
    """Of rank 0 of each quorum. A process outlives quorums, and may have another rank in each. In the step in which a newcomer
    takes its state it is in the quorum and does not count."""
    found = [json.loads(line) for path in (output / "steps").glob("*.jsonl") for line in path.read_text().split("\n")[:-1]]
    lines = [
        Line(
            time=one["time"],
            incarnation=f"{one['generation']} of {one['world_size']}",
            world_size=one["world_size"],
            first=one["from"],
            end=one["to"],
        )
        for one in found
        if one["rank"] == 0
    ]
    return sorted(lines, key=lambda line: line.time)


def _torchft_ranks(output: Path, machines: Sequence[Machine]) -> dict[int, watch.Rank]:
    folder, found = output / "steps", list[tuple[int, int, watch.Rank]]()
    for machine in machines:
        for pid in processes.family(machine.pid):
            for name in processes.has_open(pid, folder):
                if text := (folder / name).read_text().rpartition("\n")[0]:
                    newest = json.loads(text.rpartition("\n")[2])
                    found.append((newest["generation"], newest["rank"], watch.Rank(machine, pid)))
    latest = max((generation for generation, _, _ in found), default=0)
    return {rank: place for generation, rank, place in found if generation == latest}
