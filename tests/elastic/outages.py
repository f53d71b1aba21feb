"""Faults that end no process (--recovery memory), on real launchers and etcd: a machine stands still, or is cut off from etcd or
from its peers, or etcd is down.

    python -m tests.elastic.outages                  # with the default lease and full lengths (make prove-outages), 12 minutes
    python -m tests.elastic.outages apart etcd_down  # some of them

Each is a job of its own: it trains, the fault comes and goes, all train together again, and the job ends. Every time the
survivors keep their processes, no checkpoint is read, no retry is spent, every sample is trained on once, at most one step is
done again, and nothing of an older generation is written once a newer one writes. Progress goes to standard error; the last line
of standard output is JSON, with the longest time without a step, and the exit code 1 when one of these is not so.
"""

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.exact.etcd import etcd as etcd_of
from benchmarks.recovery.namespaces import Network
from ebb.elastic.contract import EXIT_FINISHED
from testing import exactness as ledger
from tests.elastic import images
from tests.elastic.machines import Job, children, kill_with_children, start_etcd, until, workers
from tests.elastic.rendezvous.proxy import Proxy
from tests.elastic.rendezvous.servers import built

_STEP_SECONDS = 0.3
_LONG_STEP_SECONDS = 1.0  # most of it a pause, in which a rank is stopped
_STEPS_PER_EPOCH = 5
# Around the fault: the steps before it, the joins after it, and the end. So the job is still there when it is over.
_AROUND_SECONDS = 25.0
_TOGETHER_STEPS = 4


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Seconds of the faults, beside the lease that they are to outlast, and the launcher's flags."""

    still: float = 30.0
    off: float = 60.0  # from etcd, or etcd itself
    apart: float = 30.0
    flags: tuple[str, ...] = ()
    lease: float = 10.0


FULL = Lengths()
SHORT = Lengths(
    still=12.0, off=12.0, apart=12.0, lease=4.0, flags=("--rdzv_conf=lease_seconds=4,last_call_timeout=1,join_batch_seconds=0.3",)
)


@dataclass(frozen=True, kw_only=True)
class Outage:
    """`without_step`: the longest time between two steps from the fault's beginning to the end. `trained`: world sizes meanwhile.
    `back`: from the fault's end to the first step of all. `generations` with steps from its beginning on."""

    name: str
    seconds: float
    without_step: float
    trained: list[int]
    back: float
    generations: int
    steps_redone: int
    load: float


@dataclass(kw_only=True)
class Stage:
    """One job, and the fault that it is played for."""

    name: str
    folder: Path
    data: Path
    lengths: Lengths
    opened: ExitStack
    seconds: float
    tell: Callable[[str], None] = lambda text: None
    began: float = 0.0
    healed: float = 0.0
    seen: list[dict[str, Any]] = field(default_factory=list)  # the lines while the fault lasted

    def job(self, endpoint: str, step_seconds: float = _STEP_SECONDS) -> Job:
        epochs = math.ceil((self.seconds + _AROUND_SECONDS) / step_seconds / _STEPS_PER_EPOCH)
        training = images.training(
            self.data, "--epochs", str(epochs), "--min-step-seconds", str(step_seconds), "--recovery", "memory"
        )
        # a checkpoint each second, so that a rank 0 that may not write any more would have something to write
        training += ["--evaluate-every", "0", "--checkpoint-seconds", "1", "--checkpoint-min-seconds", "0.2"]
        job = Job(endpoint, self.folder / "output", [*self.lengths.flags, *training], name=self.name)
        self.opened.callback(job.stop_all)
        return job

    def own_etcd(self) -> tuple["subprocess.Popen[bytes]", str]:
        process, endpoint = start_etcd(built("3.6"), self.folder)
        self.opened.callback(_end, process)
        return process, endpoint

    @contextmanager
    def fault(self, job: Job) -> Iterator[None]:
        """The body begins it; so long after that it is left."""
        self.began = time.time()
        self.tell(f"{self.name}: the fault begins after step {job.lines()[-1]['step']}")
        yield
        before = len(job.lines())
        until("the end of the fault", lambda: time.time() - self.began >= self.seconds, self.seconds + 10)
        self.seen = job.lines()[before:]
        self.healed = time.time()
        self.tell(f"{self.name}: over, {len(self.seen)} steps later")

    def together_again(self, job: Job, size: int) -> None:
        """Wait until all train, after the fault."""

        def enough() -> bool:
            after = [line for line in job.lines() if line["time"] > self.healed and line["world_size"] == size]
            return len(after) >= _TOGETHER_STEPS

        until(f"{size} machines that train after {self.name}", enough)

    def finish(
        self, job: Job, machines: Sequence["subprocess.Popen[bytes]"], *, redone: float = 1, reads: bool = False
    ) -> Outage:
        """All train to the end; at most so many steps are done again, and a checkpoint is read only if `reads`."""
        assert [machine.wait(300) for machine in machines] == [EXIT_FINISHED] * len(machines)
        verdict = ledger.check(job.output)
        every = job.lines()
        assert verdict.exact, verdict
        assert verdict.steps_redone <= redone, verdict
        written = [line["generation"] for line in every]
        assert written == sorted(written), "one that was left behind has written"
        steps = [line["step"] for line in every]
        assert reads or steps == sorted(set(steps)), "a step was written twice"
        logs = "".join(path.read_text() for path in job.output.glob("machine*.log"))
        assert ("resumed after step" in logs) is reads, "was a checkpoint read?"
        assert "more times at most" not in logs, "a retry was spent"
        together = next(line["time"] for line in every if line["time"] > self.healed and line["world_size"] == len(machines))
        times = [line["time"] for line in every if self.began < line["time"] <= together]
        pauses = [later - earlier for earlier, later in zip([self.began, *times], times, strict=False)]
        return Outage(
            name=self.name,
            seconds=self.seconds,
            without_step=round(max(pauses), 1),
            trained=sorted({line["world_size"] for line in self.seen}),
            back=round(together - self.healed, 1),
            generations=len({line["generation"] for line in every if line["time"] > self.began}),
            steps_redone=verdict.steps_redone,
            load=round(os.getloadavg()[0], 1),
        )


def still(stage: Stage, *, rank_zero: bool) -> Outage:
    """A machine is stopped, and its launcher; its kernel still answers. The others notice by its lease, and train on."""
    job = stage.job(stage.own_etcd()[1], _LONG_STEP_SECONDS)
    machines = [job.start(planned=2), job.start(planned=2)]
    job.together(2, 4)
    first = [re.findall(r"machine \d of \d", job.log(number))[-1] for number in range(2)].index("machine 0 of 2")
    stopped, other = machines[first if rank_zero else 1 - first], machines[1 - first if rank_zero else first]
    kept = workers(other.pid)
    processes = [stopped.pid, *children(stopped.pid)]
    done = len(job.lines())
    until("one more step", lambda: len(job.lines()) > done)
    time.sleep(0.7 * _LONG_STEP_SECONDS)  # all ranks have agreed on the next one, and rank 0 is about to write its line
    with stage.fault(job):
        signal_all(processes, signal.SIGSTOP)
        stage.opened.callback(signal_all, processes, signal.SIGCONT)
    before = checkpoints(job)
    signal_all(processes, signal.SIGCONT)
    stage.together_again(job, 2)
    assert workers(other.pid) == kept, "the other one's process has ended"
    late = [name for name in checkpoints(job) - before if name < max(before)]
    assert not late, f"checkpoints of an older generation: {late}"
    found = stage.finish(job, machines)
    assert {1} <= set(found.trained) <= {1, 2}, found  # both may have agreed on one step more
    assert found.without_step < stage.lengths.lease + 6, found
    return found


def left_alone(stage: Stage) -> Outage:
    """A machine is stopped, and when it wakes those that have trained on are gone: it goes on from their checkpoint, not its own
    older state."""
    job = stage.job(stage.own_etcd()[1])
    machines = [job.start(planned=2), job.start(planned=2)]
    job.together(2, 4)
    stopped, other = machines
    processes = [stopped.pid, *children(stopped.pid)]
    with stage.fault(job):
        signal_all(processes, signal.SIGSTOP)
        stage.opened.callback(signal_all, processes, signal.SIGCONT)
    kill_with_children(other)
    signal_all(processes, signal.SIGCONT)
    stage.together_again(job, 1)
    return stage.finish(job, [stopped], redone=stage.seconds / _STEP_SECONDS / 3, reads=True)


def cut_off(stage: Stage) -> Outage:
    """One of three machines does not reach etcd, and its peers do: two train on, and it waits."""
    _, endpoint = stage.own_etcd()
    job = stage.job(endpoint)
    proxy = Proxy(int(endpoint.rpartition(":")[2]))
    stage.opened.callback(proxy.close)
    machines = [job.start(planned=3), job.start(planned=3), job.start(planned=3, endpoint=proxy.endpoint)]
    job.together(3, 6)
    kept = [workers(machine.pid) for machine in machines]
    with stage.fault(job):
        proxy.cut()
    proxy.heal()
    stage.together_again(job, 3)
    assert [workers(machine.pid) for machine in machines] == kept, "that one too"
    found = stage.finish(job, machines)
    assert {2} <= set(found.trained) <= {2, 3}
    assert found.without_step < stage.lengths.lease + 6
    return found


def etcd_down(stage: Stage) -> Outage:
    """No machine reaches it: no step waits for it, and all machines stay in their generation."""
    process, endpoint = stage.own_etcd()
    job = stage.job(endpoint)
    machines = [job.start(planned=2), job.start(planned=2)]
    job.together(2, 6)
    kept = [workers(machine.pid) for machine in machines]
    generation = job.lines()[-1]["generation"]
    with stage.fault(job):
        _end(process)
    assert {line["generation"] for line in stage.seen} == {generation}
    restarted, _ = start_etcd(built("3.6"), stage.folder, port=int(endpoint.rpartition(":")[2]))
    stage.opened.callback(_end, restarted)
    machines.append(job.start(planned=3))
    stage.together_again(job, 3)
    assert [workers(machine.pid) for machine in machines[:2]] == kept
    found = stage.finish(job, machines)
    assert found.trained == [2]
    assert found.without_step < 4, "no step waits for etcd"
    return found


def apart(stage: Stage, size: int, cuts: Sequence[tuple[int, int]], *, refuse: bool = False) -> Outage:
    """Machines that all reach etcd, of which one hears nothing of another: the most that reach each other train on."""
    network = stage.opened.enter_context(Network())
    endpoint = stage.opened.enter_context(etcd_of(stage.folder, tool="etcd36", host=network.address(0), within=network.within(0)))
    job = stage.job(endpoint)
    places, machines = [], []
    for _ in range(size):
        places.append(network.attach())
        machines.append(job.start(planned=size, within=network.within(places[-1]), address=network.address(places[-1])))
    job.together(size, 6)
    kept = [workers(machine.pid) for machine in machines]
    with stage.fault(job):
        for here, there in cuts:
            network.cut(places[here], places[there], refuse=refuse)
    for place in places:
        network.heal(place)
    stage.together_again(job, size)
    assert [workers(machine.pid) for machine in machines] == kept
    together = [line["world_size"] for line in stage.seen].count(size)
    found = stage.finish(job, machines)
    assert {size - 1} <= set(found.trained) <= {size - 1, size}
    assert together <= 1, "all may have agreed on one step more, not on two"
    assert found.without_step < min(15, found.seconds)
    assert found.generations <= 3, "apart, together, and one more for machines that come one after the other"
    return found


BOTH_WAYS = ((0, 1), (1, 0))
OUTAGES: dict[str, tuple[str, Callable[[Stage], Outage]]] = {
    "still": ("still", lambda stage: still(stage, rank_zero=False)),
    "still_rank0": ("still", lambda stage: still(stage, rank_zero=True)),
    "left_alone": ("still", left_alone),
    "cut_off": ("off", cut_off),
    "etcd_down": ("off", etcd_down),
    "apart": ("apart", lambda stage: apart(stage, 2, BOTH_WAYS)),
    "apart_refused": ("apart", lambda stage: apart(stage, 2, BOTH_WAYS, refuse=True)),
    "one_way": ("apart", lambda stage: apart(stage, 2, [(0, 1)])),
    "one_way_refused": ("apart", lambda stage: apart(stage, 2, [(0, 1)], refuse=True)),
    "one_of_three": ("apart", lambda stage: apart(stage, 3, [(0, 2), (2, 0), (1, 2), (2, 1)])),
    "two_of_three": ("apart", lambda stage: apart(stage, 3, BOTH_WAYS)),
}
IN_NETWORKS = tuple(name for name, (length, _) in OUTAGES.items() if length == "apart")


def play(name: str, folder: Path, data: Path, lengths: Lengths, tell: Callable[[str], None] = lambda text: None) -> Outage:
    """Raises AssertionError when something is not as it must be, BenchmarkError where there can be no networks for it."""
    length, act = OUTAGES[name]
    with ExitStack() as opened:
        stage = Stage(
            name=name, folder=folder, data=data, lengths=lengths, opened=opened, seconds=getattr(lengths, length), tell=tell
        )
        return act(stage)


def checkpoints(job: Job) -> set[str]:
    """Names sort by generation and step."""
    return {path.stem for path in (job.output / "checkpoints").glob("g*.json")}


def signal_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outages", nargs="*", metavar="NAME", help=f"all of them by default: {', '.join(OUTAGES)}")
    parser.add_argument("--short", action="store_true", help="12 s with leases of 4 s")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for logs, and all else that is left")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.outages) - OUTAGES.keys()):
        parser.error(f"there is no {unknown[0]!r}: use some of {', '.join(OUTAGES)}")
    found: list[Outage] = []
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ebb-outages-", ignore_cleanup_errors=True) as temporary:
        folder = given.keep or Path(temporary)
        data = images.make(folder / "images", train=40)
        for name in given.outages or OUTAGES:
            (folder / name).mkdir()
            try:
                found.append(play(name, folder / name, data, SHORT if given.short else FULL, tell=_say))
                _say(f"{found[-1]}")
            except AssertionError as error:
                failed[name] = str(error)
                _say(f"{name}: {error}")
    print(json.dumps({"outages": [asdict(each) for each in found], "failed": failed}), flush=True)
    return 1 if failed else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
