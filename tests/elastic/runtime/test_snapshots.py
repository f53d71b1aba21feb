"""Snapshots in memory that outlives a job's processes, and the start from them."""

import contextlib
import itertools
import math
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ebb.elastic.notices.relay import Relay
from ebb.elastic.runtime import snapshots as module
from ebb.elastic.runtime.process_group import Agreement, Group
from ebb.elastic.runtime.snapshots import MemoryFile, SnapshotOrder, Snapshots, choose, find_newest
from testing import exactness as ledger
from tests.elastic.machines import until
from tests.elastic.runtime import programs
from tests.elastic.runtime.generations import Launcher
from tests.elastic.runtime.programs import Program
from tests.elastic.runtime.ranks import together

EXACT = {"virtual_workers": 5, "max_micro_batch": 2}
EACH_STEP = {"snapshot_overhead": 1e9}
NO_CHECKPOINT = {"checkpoint_seconds": 1e6, "checkpoint_min_seconds": 1e6}
PLENTY = 2**33


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    lender = Relay.create({})
    lender.lend_memory(1)
    yield lender
    lender.remove()


def opened(
    relay: Relay,
    *,
    owner: str = "me",
    free: int = PLENTY,
    share: float = 0.01,
    clock: Clock | None = None,
    pod: Any = None,
) -> Snapshots:
    """As a process of the machine would."""
    return Snapshots(
        [MemoryFile(path) for path in relay.memory(0)],
        share=share,
        owner=owner,
        optimizer=torch.optim.SGD([torch.zeros(1, requires_grad=True)]),
        free_bytes=lambda: free,
        clock=clock or Clock(),
        pod=pod,
    )


def take(snapshots: Snapshots, generation: int, step: int, made: Callable[[], Any]) -> None:
    """At the boundary at which the memory for it is there; before the first one it is still to be taken."""
    for _ in range(2):
        snapshots.take(generation, step, made)
        until("memory", lambda: snapshots.due != -math.inf)
        if snapshots._number or snapshots.due is None:
            return


def newest(snapshots: Snapshots, *, below: int) -> SnapshotOrder | None:
    return max(snapshots.held(below=below), default=None)


def state(step: int, *, size: int = 1000) -> dict[str, Any]:
    """With what is easily lost: tied weights, channels_last, other widths of numbers, scalars, empty tensors."""
    weight = torch.arange(size, dtype=torch.float32) * step
    image = torch.arange(2 * 3 * 4 * 5, dtype=torch.bfloat16).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    tensors = {"first": weight, "tied": weight, "image": image, "flag": torch.tensor(True), "none": torch.empty(0, 3)}
    return {"step": step, "tensors": tensors, "gaps": torch.arange(10)[::2] + step, "text": ["a", (1.5, None)]}


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for name, each in wanted.items():
            assert_same(found[name], each)
    elif isinstance(wanted, torch.Tensor):
        assert torch.equal(found, wanted)
        assert found.dtype == wanted.dtype
    else:
        assert found == wanted


def test_a_state_comes_back_whole_in_another_process(relay: Relay) -> None:
    take(opened(relay), 3, 7, lambda: state(7))
    later = opened(relay)
    assert newest(later, below=4) == SnapshotOrder(3, 7)
    found = later.read(SnapshotOrder(3, 7))
    assert_same(found, state(7))
    assert found["tensors"]["first"] is found["tensors"]["tied"]
    assert found["tensors"]["image"].is_contiguous(memory_format=torch.channels_last)


def test_what_is_read_is_not_written_to_again(relay: Relay) -> None:
    """An optimizer keeps the very tensors that it loads."""
    snapshots = opened(relay, share=1e9)
    take(snapshots, 1, 1, lambda: state(1))
    found = opened(relay).read(SnapshotOrder(1, 1))
    for step in (2, 3):
        take(snapshots, 1, step, lambda step=step: state(step))  # type: ignore[misc]
    assert_same(found, state(1))


@pytest.mark.parametrize("cut", ["_copy_all", "MemoryFile.commit"])
def test_one_that_is_cut_off_in_the_middle_is_none(relay: Relay, monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
    snapshots = opened(relay, share=1e9)
    for step in (1, 2):
        take(snapshots, 1, step, lambda step=step: state(step))  # type: ignore[misc]

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        name, _, method = cut.partition(".")
        patched.setattr(getattr(module, name) if method else module, method or name, die)
        with pytest.raises(KeyboardInterrupt):
            take(snapshots, 1, 3, lambda: state(3))
    later = opened(relay)
    assert newest(later, below=9) == SnapshotOrder(1, 2)
    assert_same(later.read(SnapshotOrder(1, 2)), state(2))


def write_for_ever(folder: Path, generation: int) -> None:
    """Ten MiB each, all of them the step's number."""
    snapshots, numbers = opened(Relay(folder), share=1e9), torch.zeros(10 * 2**18)
    for step in itertools.count(1):
        take(snapshots, generation, step, lambda step=step: [numbers.fill_(step)])  # type: ignore[misc]


def test_a_killed_writer_leaves_a_whole_one(relay: Relay) -> None:
    """Killed as soon as the second one is there, so in the middle of the third, or near it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.elastic.runtime.programs"])
    reader = opened(relay)
    for generation in range(1, 5):
        writer = context.Process(target=write_for_ever, args=(relay.folder, generation))
        writer.start()
        until("two", lambda: (newest(reader, below=99) or SnapshotOrder(0, 0)) >= (generation, 2))  # noqa: B023
        writer.kill()
        writer.join()
        last = newest(reader, below=99)
        assert last is not None
        assert last >= (generation, 2)
        (numbers,) = reader.read(last)
        assert numbers.unique().tolist() == [last.step]


@pytest.mark.parametrize("place", [0, 20, 511], ids=["checksum", "facts", "end of the header"])
def test_a_damaged_header_is_none(relay: Relay, place: int) -> None:
    take(opened(relay), 1, 1, lambda: state(1))
    damaged = next(path for path in relay.memory(0) if path.stat().st_size and MemoryFile(path).facts())
    with damaged.open("r+b", buffering=0) as file:
        file.seek(place)
        file.write(b"!")
    assert newest(opened(relay), below=9) is None


def test_a_new_process_keeps_the_newest_until_it_has_a_newer_one(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        take(opened(relay), 1, step, lambda step=step: state(step))  # type: ignore[misc]
    later = opened(relay)
    monkeypatch.setattr(module, "_copy_all", lambda pairs: os.close(-1))
    with pytest.raises(OSError, match="Bad file descriptor"):
        take(later, 2, 4, lambda: state(4))
    assert newest(opened(relay), below=9) == SnapshotOrder(1, 3)


def test_newest_is_of_the_highest_generation_below_the_present_one(relay: Relay) -> None:
    snapshots = opened(relay, share=1e9)
    take(snapshots, 2, 50, lambda: state(50))
    take(snapshots, 3, 40, lambda: state(40))
    assert newest(snapshots, below=9) == SnapshotOrder(3, 40)
    assert newest(snapshots, below=3) == SnapshotOrder(2, 50)
    assert newest(snapshots, below=2) is None


def test_another_programs_state_is_not_gone_on_from(relay: Relay) -> None:
    take(opened(relay), 1, 1, lambda: state(1))
    assert newest(opened(relay, owner="another"), below=9) is None


def test_the_cost_sets_the_distance(relay: Relay) -> None:
    """A snapshot of 0.2 s that may take 1 % of the time comes every 20 s."""
    clock = Clock()
    snapshots = opened(relay, clock=clock)
    assert snapshots.due == math.inf, "a newcomer has none of its own"

    def slow() -> dict[str, Any]:
        clock.now += 0.2
        return state(1)

    take(snapshots, 1, 1, slow)
    assert snapshots.seconds == pytest.approx(0.2)
    clock.now += 19.7
    assert snapshots.due == 0
    clock.now += 0.2
    assert snapshots.due == 1
    take(snapshots, 1, 2, slow)
    assert snapshots.due == 0


@pytest.mark.parametrize(
    ("dues", "wanted"),
    [
        pytest.param((1.0, 1.0), True, id="all are due"),
        pytest.param((1.0, 0.0), False, id="one is not yet"),
        pytest.param((1.0, None), True, id="one makes none"),
        pytest.param((0.0, None), False, id="one makes none, and the other is not due"),
        pytest.param((math.inf, 0.0), True, id="one has none yet"),
        pytest.param((-math.inf, 1.0), False, id="one takes its memory"),
        pytest.param((-math.inf, math.inf), False, id="one takes its memory, and another has none yet"),
        pytest.param((None, None), False, id="none makes any"),
    ],
)
def test_all_machines_make_theirs_at_the_same_boundary(dues: tuple[float | None, ...], wanted: bool) -> None:
    facts: dict[str, Any] = {"leave": False, "wish": False, "change": False, "checkpoint_step": 0, "sums": []}
    told = [Group(0, 1, torch.device("cpu")).agree(**facts, snapshot_due=due).values for due in dues]
    assert Agreement(told[0] + told[1], None, 1, lambda _: None).wait().snapshot is wanted


def test_where_there_is_no_room_one_line_says_so(relay: Relay, capsys: pytest.CaptureFixture[str]) -> None:
    take(opened(relay), 1, 1, lambda: state(1))
    snapshots = opened(relay, free=2**20)
    for _ in range(3):
        take(snapshots, 2, 2, lambda: state(2, size=2**20))
    assert snapshots.due is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "no snapshots in memory: 8 MiB are needed, and 0 MiB are half of what is free. Checkpoints go on as before"
    assert [path.stat().st_size for path in relay.memory(0)] == [0, 0], "what there was has been given back"


@pytest.mark.parametrize(("free", "refused"), [(36 * 2**20, False), (28 * 2**20, True)])
def test_the_ranks_of_a_pod_share_the_room(relay: Relay, capsys: pytest.CaptureFixture[str], free: int, refused: bool) -> None:
    """8 MiB for each of two ranks are half of 32 MiB."""
    snapshots = opened(relay, free=free, pod=SimpleNamespace(size=2, any=lambda lacks: lacks))
    take(snapshots, 1, 1, lambda: state(1, size=2**20))
    assert (snapshots.due is None) is refused
    words = "8 MiB are needed, and 7 MiB are this rank's share, of 2, of half of what is free." if refused else ""
    assert words in capsys.readouterr().err


def test_a_part_is_given_back_where_another_rank_of_the_pod_has_no_room(relay: Relay, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the rank that has no room says so."""
    lacking = False
    snapshots = opened(relay, share=1e9, pod=SimpleNamespace(size=2, any=lambda mine: mine or lacking))
    take(snapshots, 1, 1, lambda: state(1))
    assert newest(snapshots, below=9) == SnapshotOrder(1, 1)
    lacking = True
    for _ in range(2):
        take(snapshots, 1, 2, lambda: state(2))
    assert snapshots.due is None
    assert [path.stat().st_size for path in relay.memory(0)] == [0, 0]
    assert capsys.readouterr().err == ""


A, B, C = (SnapshotOrder(1, step) for step in (7, 8, 9))


@pytest.mark.parametrize(
    ("held", "size", "wanted", "missing"),
    [
        pytest.param([{A, B}, set(), {B, C}], 1, C, None, id="not sharded"),
        pytest.param([{A, B}, {A, B}], 2, B, None, id="one pod"),
        pytest.param([{A, B}, {A, C}], 2, A, (C, 0), id="one that was cut off"),
        pytest.param([{B}, set(), set(), {B}], 2, B, None, id="a part on each of two machines"),
        pytest.param([{A, B}, set(), {B, C}, {A}], 2, A, (C, 1), id="older in one lane"),
        pytest.param([{A, B}, set()], 2, SnapshotOrder(-1, -1), (B, 1), id="a part is lost"),
        pytest.param([set(), set()], 2, SnapshotOrder(-1, -1), None, id="none"),
    ],
)
def test_the_newest_of_which_all_parts_are_there_counts(
    held: list[set[SnapshotOrder]], size: int, wanted: SnapshotOrder, missing: tuple[SnapshotOrder, int] | None
) -> None:
    assert choose(held, size) == (wanted, missing)


def found_by(
    rank: int, held: list[list[SnapshotOrder]], checkpoint: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Any, list[int]] | None:
    """Of two pods of two ranks: the words, the state, and the ranks between which that rank's part went."""
    chains: list[list[int]] = []

    def pass_on(chain: list[int], *, give: Callable[[], Any]) -> Any:
        if rank in chain:
            chains.append(chain)
        return {"of": chain[0]} if rank in chain[1:] else give() and None

    def all_facts(mine: Any) -> list[Any]:
        assert mine == [held[rank], checkpoint if rank == 0 else None]
        return [[each, checkpoint if number == 0 else None] for number, each in enumerate(held)]

    monkeypatch.setattr(module, "newest_checkpoint", lambda *_: checkpoint)
    snapshots: Any = SimpleNamespace(held=lambda below: held[rank] if below == 3 else [], read=lambda _order: {"of": rank})
    group: Any = SimpleNamespace(rank=rank, world_size=4, all_facts=all_facts, pass_on=pass_on)
    start: Any = SimpleNamespace(generation=3)
    pod: Any = SimpleNamespace(size=2, rank=rank % 2)
    found = find_newest(snapshots, Any, start, Any, group, pod=pod)  # type: ignore[arg-type]
    return None if found is None else (found[0].words, found[1], *chains)  # type: ignore[return-value]


def test_each_rank_gets_its_part_from_the_same_one_of_another_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders of the state need no traffic."""
    held = [[A, B], [], [B], [B, C]]
    words = "resumed after step 8 of generation 1, from a snapshot in the memory of ranks 0, 3"
    found = [found_by(rank, held, (1, 7), monkeypatch) for rank in range(4)]
    assert found == [(words, {"of": 0}), (words, {"of": 3}, [3, 1]), (words, {"of": 2}), (words, {"of": 3}, [3, 1])]


def test_a_checkpoint_counts_where_a_part_is_lost_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held = [[A, B], [], [B], []]
    assert [found_by(rank, held, (1, 5), monkeypatch) for rank in range(4)] == [None] * 4
    line = "the snapshot after step 8 of generation 1 lacks the part of local rank 1: what is older counts"
    assert capsys.readouterr().err.splitlines() == [line]
    assert found_by(0, held, (1, 8), monkeypatch) is None
    assert capsys.readouterr().err == "", "nothing newer than the checkpoint is lost"


def test_other_threads_work_while_memory_is_taken(relay: Relay) -> None:
    """The one that trains is among them: for 11 GiB it once stood for 6 s, twice."""
    path, done = relay.memory(0)[0], threading.Event()
    MemoryFile(path).reserve(2**28, pinned=False)  # the kernel's part, for which Python lets others work anyway
    file, began = MemoryFile(path), time.monotonic()
    seen = [began]

    def reserve() -> None:
        file.reserve(2**28, pinned=False)
        done.set()

    thread = threading.Thread(target=reserve)
    thread.start()
    while not done.wait(0.001):
        seen.append(time.monotonic())
    thread.join()
    seen.append(time.monotonic())
    longest = max(after - before for before, after in itertools.pairwise(seen))
    assert longest < (seen[-1] - began) / 2, f"{longest:.2f} s of {seen[-1] - began:.2f} s"


def test_memory_is_taken_with_the_processors_that_training_leaves(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    found, before = [], os.getpriority(os.PRIO_PROCESS, 0)
    reserve = MemoryFile.reserve

    def look(file: MemoryFile, size: int, *, pinned: bool) -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, 0))  # of this thread
        reserve(file, size, pinned=pinned)

    monkeypatch.setattr(MemoryFile, "reserve", look)
    take(opened(relay), 1, 8, lambda: state(8))
    assert found == [min(before + 10, 19)] * 2
    assert os.getpriority(os.PRIO_PROCESS, 0) == before, "only that thread's"


def test_nothing_grows(relay: Relay) -> None:
    """200 snapshots by one process, whose numbers get longer."""
    snapshots = opened(relay, share=1e9)
    held = []
    for step in range(200):
        take(snapshots, 1, 10**step, lambda step=step: {**state(1, size=10**5), "step": 10**step})  # type: ignore[misc]
        held.append((sum(1 for _ in Path("/proc/self/fd").iterdir()), [path.stat().st_size for path in relay.memory(0)]))
    assert held[-1][0] <= held[2][0]
    assert held[-1][1] == held[2][1]


def test_each_rank_has_memory_of_its_own_which_goes_with_its_lender() -> None:
    lender = Relay.create({})
    lender.lend_memory(3)
    paths = [path.readlink() for rank in range(3) for path in lender.memory(rank)]
    assert len(set(paths)) == 6
    lender.remove()
    assert not any(path.exists() and "ebb-memory" in str(path.readlink()) for path in paths)


class OnGpu(torch.Tensor):
    """One that says so."""

    is_cuda = True
    device = torch.device("cuda", 0)

    def record_stream(self, _stream: Any) -> None:
        pass


class Cuda:
    """Its streams and events, as far as the order of calls goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.events: list[Any] = []
        self.computing, copying = self._stream("computing"), self._stream("copying")
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.computing)
        monkeypatch.setattr(torch.cuda, "Stream", lambda: copying)
        monkeypatch.setattr(torch.cuda, "Event", self._event)
        monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
        monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
        monkeypatch.setattr(torch.cuda, "cudart", lambda: SimpleNamespace(cudaHostRegister=self._register))
        monkeypatch.setattr(torch.cuda, "check_error", lambda _code: None)
        copy_all = module._copy_all

        def noted(pairs: list[Any]) -> None:
            self.calls += [f"copy {tensor.tolist()}" for _, tensor in pairs]
            copy_all(pairs)

        monkeypatch.setattr(module, "_copy_all", noted)

    def _stream(self, name: str) -> Any:
        return SimpleNamespace(
            name=name,
            wait_stream=lambda other: self.calls.append(f"{name} waits for {other.name}"),
            wait_event=lambda event: self.calls.append(f"{name} waits for event {event.number}"),
        )

    def _event(self, *, enable_timing: bool) -> Any:
        event = SimpleNamespace(
            number=len(self.events), done=False, elapsed_time=lambda _other: 2000.0 if enable_timing else 1 / 0
        )
        event.record = lambda: self.calls.append(f"event {event.number}")
        event.query = lambda: event.done
        self.events.append(event)
        return event

    def _register(self, address: int, size: int, flags: int) -> int:
        assert (address % 4096, flags) == (0, 0)
        assert size > 0
        return 0


def test_on_a_gpu_the_step_waits_for_no_copy_but_that_of_what_it_changes(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls alone: no GPU is here. 1 is a weight, 2 a running mean, 3 lies on the CPU."""
    cuda = Cuda(monkeypatch)
    weight = torch.tensor([1.0], requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    snapshots = Snapshots(
        [MemoryFile(path) for path in relay.memory(0)], share=0.01, owner="me", optimizer=optimizer, free_bytes=lambda: PLENTY
    )
    tensors = [weight.detach().as_subclass(OnGpu), torch.tensor([2.0]).as_subclass(OnGpu), torch.tensor([3.0])]
    take(snapshots, 1, 1, lambda: tensors)
    assert cuda.calls == [
        "copy [3.0]",
        "copying waits for computing",
        *("event 0", "copy [2.0]", "event 1", "copy [1.0]", "event 2"),
        "computing waits for event 1",
    ]
    assert snapshots.due == 0
    assert newest(snapshots, below=9) is None, "it is not there yet"
    optimizer.step()
    assert cuda.calls[-1] == "computing waits for event 2"
    cuda.events[2].done = True
    assert snapshots.due == 0
    assert newest(snapshots, below=9) == SnapshotOrder(1, 1)
    assert snapshots.seconds == 2.0
    assert snapshots.read(SnapshotOrder(1, 1)) == [torch.tensor([number]) for number in (1.0, 2.0, 3.0)]
    before = list(cuda.calls)
    optimizer.step()
    assert cuda.calls == before, "nothing is waited for twice"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    (answer,) = together(programs.train, 1, Program(output=tmp_path_factory.mktemp("calm"), settings=EXACT))
    return str(answer["weights"])


def disturbed(
    output: Path, disturb: Callable[[Launcher], list[str]], *, at: int = 6, settings: dict[str, Any] | None = None
) -> list[Any]:
    """All processes of two machines are lost in a step; `disturb` names the machines that go on. The answers of those."""
    memory = {**EXACT, **NO_CHECKPOINT, **EACH_STEP, "recovery": "memory", "min_step_seconds": 0.1}
    program = Program(output=output, settings={**memory, **(settings or {})}, waits_for_memory=True)
    with TemporaryDirectory(prefix="ebb-") as folder, contextlib.closing(Launcher(Path(folder), output)) as launcher:
        launcher.regroup(programs.train, program, on=["a", "b"])
        until("some steps", lambda: launcher.done() >= at)
        launcher.lose_all_processes()
        machines = disturb(launcher)
        before = len(launcher.ranks)
        launcher.regroup(programs.train, replace(program, settings={**program.settings, "min_step_seconds": 0.0}), on=machines)
        answers = []
        for each in launcher.ranks[before:]:
            assert each.reader.poll(60)
            kind, answer = each.reader.recv()
            assert kind == "answered", answer
            answers.append(answer)
        return answers


def first_step(answers: list[Any]) -> int:
    """All have begun there, and gone on to the end."""
    (first,) = {answer["steps"][0] for answer in answers}
    assert [answer["steps"] for answer in answers] == [list(range(first, 12))] * len(answers)
    return int(first)


def cut_off_newest(launcher: Launcher) -> None:
    """As a writer that dies in the middle leaves it."""
    for relay in launcher.machines.values():
        files = [(facts["step"], file) for file in map(MemoryFile, relay.memory(0)) if (facts := file.facts())]
        max(files, key=lambda each: each[0])[1].clear()


def test_the_loss_of_all_processes_costs_the_step_under_way(tmp_path: Path, calm: str) -> None:
    answers = disturbed(tmp_path, lambda _: ["a", "b"])
    assert first_step(answers) >= 5
    assert {answer["weights"] for answer in answers} == {calm}
    verdict = ledger.check(tmp_path)
    assert verdict.exact
    assert verdict.steps_redone <= 1


@pytest.mark.parametrize("left", ["a", "b"])
def test_one_machines_memory_is_enough(tmp_path: Path, calm: str, left: str) -> None:
    def lose_the_other(launcher: Launcher) -> list[str]:
        launcher.machines.pop("b" if left == "a" else "a").remove()
        return ["c", left]

    answers = disturbed(tmp_path, lose_the_other)
    assert first_step(answers) >= 5
    assert {answer["weights"] for answer in answers} == {calm}
    verdict = ledger.check(tmp_path)
    assert verdict.exact
    assert verdict.steps_redone <= 2, "the other may have begun a step when this one's copy was not whole yet"


def test_the_older_one_counts_where_the_newest_was_cut_off(tmp_path: Path, calm: str) -> None:
    def cut_off(launcher: Launcher) -> list[str]:
        cut_off_newest(launcher)
        return ["a", "b"]

    answers = disturbed(tmp_path, cut_off)
    assert first_step(answers) >= 4
    assert {answer["weights"] for answer in answers} == {calm}
    verdict = ledger.check(tmp_path)
    assert verdict.exact
    assert 1 <= verdict.steps_redone <= 2


def test_a_checkpoint_counts_where_no_snapshot_is_whole(tmp_path: Path, calm: str) -> None:
    def cut_off_all(launcher: Launcher) -> list[str]:
        for _ in range(2):
            cut_off_newest(launcher)
        return ["a", "b"]

    answers = disturbed(tmp_path, cut_off_all, settings={"checkpoint_seconds": 0.1, "checkpoint_min_seconds": 0.0})
    assert first_step(answers) >= 1
    assert {answer["weights"] for answer in answers} == {calm}
    assert ledger.check(tmp_path).exact


def test_a_newer_checkpoint_counts_more(tmp_path: Path, calm: str) -> None:
    """Its generation saw none of the snapshot's later steps."""

    def renew(launcher: Launcher) -> list[str]:
        for relay in launcher.machines.values():
            for file in map(MemoryFile, relay.memory(0)):
                if facts := file.facts():
                    rest = os.pread(file._descriptor, facts["rest_bytes"], 512 + facts["data_bytes"])
                    file.commit(SnapshotOrder(0, facts["step"] + 1000), facts["owner"], rest, facts["data_bytes"])
        return ["a", "b"]

    answers = disturbed(tmp_path, renew, settings={"checkpoint_seconds": 0.1, "checkpoint_min_seconds": 0.0})
    assert first_step(answers) >= 1
    assert {answer["weights"] for answer in answers} == {calm}
    assert ledger.check(tmp_path).exact


def test_without_snapshots_all_is_lost_with_the_processes(tmp_path: Path) -> None:
    assert first_step(disturbed(tmp_path, lambda _: ["a", "b"], settings={"snapshot_overhead": 0.0})) == 0
