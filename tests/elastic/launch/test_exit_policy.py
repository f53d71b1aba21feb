"""What the ends of workers mean, and what the launcher ends with."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.elastic.launch import node_agent
from ebb.elastic.launch.agent import Agent
from ebb.elastic.launch.exit_policy import (
    ExitPolicy,
    Failure,
    HardwareFailedError,
    ProgramFailedError,
    exit_code,
    may_be_peer_loss,
)
from ebb.elastic.launch.restart_rules import RestartRules

PEER = "RuntimeError: [enforce fail at pair.cc:553] Connection closed by peer [10.1.2.3]:4242"
DUPLICATE = (
    "NCCL error in: ..., invalid usage, NCCL version 2.20.5\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on"
)
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported"
WRONG = "ValueError: the shapes (3, 4) and (5,) do not fit"


def failures(*found: int | tuple[int, str]) -> list[Failure]:
    return [Failure(code=each) if isinstance(each, int) else Failure(code=each[0], sentence=each[1]) for each in found]


@pytest.mark.parametrize(
    ("max_restarts", "exits", "ends_at"),
    [
        pytest.param(0, [failures(138)] * 50 + [failures(75)] * 50 + [failures(75, 138)], None, id="changes-of-membership"),
        pytest.param(0, [failures(1)], 0, id="a-failure-ends-it"),
        pytest.param(0, [failures(138, 1)], 0, id="a-failure-beside-one-that-left"),
        pytest.param(2, [failures(1), failures(138), failures(1), failures(1)], 3, id="restarts-allowed"),
        pytest.param(0, [failures(-9), failures(75), failures(-9), failures(-11), failures(-9)], 4, id="three-workers-killed"),
        pytest.param(0, [failures(-9, 75), failures(1, -9), failures((1, PEER), -9)], None, id="those-beside-a-killed-one"),
        pytest.param(0, [failures((1, WRONG), -9)], 0, id="a-mistake-beside-a-killed-one"),
        pytest.param(0, [failures(1, -15)], 0, id="torch-ends-those-beside-a-failed-one"),
        pytest.param(0, [failures(-15)] * 4, 3, id="told-to-end-by-somebody-else"),
    ],
)  # fmt: skip
def test_judgement(max_restarts: int, exits: list[list[Failure]], ends_at: int | None) -> None:
    policy = ExitPolicy(max_restarts=max_restarts, say=lambda _: None)
    ended = None
    for number, found in enumerate(exits):
        try:
            policy.apply(found)
        except ProgramFailedError:
            ended = number
            break
    assert ended == ends_at


IN_PLACE = [
    {"rule": 1, "times": 0, "codes": [4], "words": ""},
    {"rule": 2, "times": 2, "codes": [3, 4, 139], "words": ""},
    {"rule": 3, "times": 1, "codes": [], "words": "DataLoader worker"},
]
LOADER = "RuntimeError: DataLoader worker (pid 7) is killed"


@pytest.mark.parametrize(
    ("exits", "ends_at"),
    [
        pytest.param([failures(3), failures(3), failures(3)], 2, id="as-often-as-the-rule-says"),
        pytest.param([failures(4)], 0, id="another-rule-comes-first"),
        pytest.param([failures(1)], 0, id="no-rule-fits"),
        pytest.param([failures((1, LOADER)), failures((1, LOADER))], 1, id="by-words"),
        pytest.param([failures((3, LOADER))] * 4, 3, id="the-next-rule-when-one-is-used-up"),
        pytest.param([failures(-11)] * 6, 5, id="a-signal-as-a-shell-counts-it-and-then-as-without-rules"),
        pytest.param([failures(138, 3), failures(75), failures(3)], None, id="changes-of-membership-use-none"),
    ],
)
def test_rules_start_the_program_again_in_its_pod(exits: list[list[Failure]], ends_at: int | None) -> None:
    said: list[str] = []
    rules = RestartRules.of({"EBB_RESTART_RULES": json.dumps(IN_PLACE)})
    policy, ended = ExitPolicy(max_restarts=0, say=said.append, rules=rules), None
    for number, found in enumerate(exits):
        try:
            policy.apply(found)
        except ProgramFailedError:
            ended = number
            break
    assert ended == ends_at
    if exits[0] == failures(3):
        assert said[0] == (
            "a worker failed with exit code 3; its last lines say why; rule 2 of spec.failurePolicy starts it again in its "
            "place, 1 more times at most"
        )


def test_a_machine_at_fault_leaves_whatever_the_rules_say() -> None:
    rules = RestartRules([{"rule": 1, "times": 9, "codes": [], "words": "CUDA"}])
    with pytest.raises(HardwareFailedError):
        ExitPolicy(max_restarts=0, say=lambda _: None, rules=rules).apply(failures((1, ECC)), gpu_fault="GPU 0 fails")


@pytest.mark.parametrize(
    ("found", "knows_codes", "expected"),
    [
        pytest.param(failures(1), False, True, id="a-program-that-says-nothing"),
        pytest.param(failures((1, PEER)), False, True, id="one-that-speaks-of-a-connection"),
        pytest.param(failures((1, WRONG)), False, False, id="one-that-says-what-is-wrong"),
        pytest.param(failures((1, PEER), (1, WRONG)), False, False, id="one-of-two-says-what-is-wrong"),
        pytest.param(failures(1), True, False, id="ours-would-have-said-75"),
        pytest.param(failures(75), False, False, id="a-peer-is-gone"),
        pytest.param(failures(-9, 1), False, False, id="the-one-beside-it-was-killed"),
        pytest.param(failures(-6), True, True, id="aborted-as-nccl-does"),
        pytest.param(failures(-6, 75, -15), True, True, id="aborted-beside-others"),
        pytest.param(failures((1, WRONG), -6), False, False, id="aborted-beside-a-mistake"),
        pytest.param(failures(-6, -11), True, False, id="aborted-beside-a-crash"),
        pytest.param(failures((1, DUPLICATE)), False, False, id="an-nccl-error-that-comes-again"),
        pytest.param(failures((1, ECC), -6), False, False, id="aborted-beside-a-gpu-that-failed"),
        pytest.param(failures(79), False, False, id="a-gpu-that-failed"),
    ],
)
def test_when_the_others_are_asked(found: list[Failure], knows_codes: bool, expected: bool) -> None:
    assert may_be_peer_loss(found, knows_codes=knows_codes) is expected


def test_a_lost_peer_explains_a_failure_without_limit_but_not_a_mistake() -> None:
    policy = ExitPolicy(max_restarts=0, say=lambda _: None)
    for _ in range(20):
        policy.apply(failures((1, PEER)), peer_lost=True)
    with pytest.raises(ProgramFailedError, match=r"exit code 1: ValueError: the shapes .* do not fit: the job ends"):
        policy.apply(failures((1, WRONG)), peer_lost=True)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param(failures((1, ECC)), "RuntimeError: CUDA error: uncorrectable ECC error encountered", id="its-exception"),
        pytest.param(failures(79), "the worker's last lines say how", id="its-code"),
        pytest.param(
            failures((79, ECC), (1, PEER)), "RuntimeError: CUDA error: uncorrectable ECC", id="both-beside-one-that-misses-it"
        ),
        pytest.param(failures((1, WRONG), (1, ECC)), "RuntimeError: CUDA error: uncorrectable ECC", id="beside-a-mistake"),
    ],
)
@pytest.mark.parametrize("peer_lost", [False, True])
def test_a_gpu_that_fails_is_no_failure_of_the_program(found: list[Failure], words: str, peer_lost: bool) -> None:
    policy = ExitPolicy(max_restarts=1, say=lambda _: None)
    for _ in range(10):
        with pytest.raises(HardwareFailedError, match=f"a GPU of this machine failed: {words}"):
            policy.apply(found, peer_lost=peer_lost)
    policy.apply(failures(1))  # the budget is whole


LAUNCH = "RuntimeError: CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported"


@pytest.mark.parametrize(
    ("max_restarts", "exits", "ends_at", "error"),
    [
        pytest.param(0, [failures((79, ECC))] * 2, 1, HardwareFailedError, id="only-hardware-does-it-the-second-time"),
        pytest.param(0, [failures(79)] * 2, 1, HardwareFailedError, id="a-program-that-says-no-more-than-79"),
        pytest.param(0, [failures((1, LAUNCH))] * 4, 3, ProgramFailedError, id="a-program-may-do-it"),
        pytest.param(1, [failures((79, LAUNCH))] * 5, 4, ProgramFailedError, id="restarts-allowed"),
        pytest.param(0, [failures((1, LAUNCH)), *[failures(-11)] * 3], 3, ProgramFailedError, id="as-a-crash-in-c"),
        pytest.param(0, [failures((1, LAUNCH), (1, WRONG))], 0, ProgramFailedError, id="beside-a-mistake"),
        pytest.param(0, [failures((1, LAUNCH)), *[failures((1, ECC))] * 2], 2, HardwareFailedError, id="one-after-another"),
        pytest.param(0, [failures((1, LAUNCH), (1, PEER), -6, -15)], None, None, id="those-beside-it"),
    ],
)  # fmt: skip
def test_a_fault_of_a_gpu_that_passes_a_test(
    max_restarts: int, exits: list[list[Failure]], ends_at: int | None, error: type[Exception] | None
) -> None:
    policy = ExitPolicy(max_restarts=max_restarts, say=lambda _: None)
    ended: tuple[int | None, type[Exception] | None] = (None, None)
    for number, found in enumerate(exits):
        try:
            policy.apply(found, gpu_fault="")
        except (HardwareFailedError, ProgramFailedError) as raised:
            ended = (number, type(raised))
            break
    assert ended == (ends_at, error)


@pytest.mark.parametrize("found", [failures((1, ECC)), failures((1, LAUNCH)), failures((1, LAUNCH), (1, WRONG))])
def test_a_fault_of_a_gpu_that_fails_a_test(found: list[Failure]) -> None:
    policy = ExitPolicy(max_restarts=1, say=lambda _: None)
    with pytest.raises(HardwareFailedError, match=r"CUDA error: .*; GPU 1 computes wrongly; the job goes on"):
        policy.apply(found, gpu_fault="GPU 1 computes wrongly")
    policy.apply(failures(1))  # the budget is whole


class Peers:
    """A membership in which a peer is gone, or one has failed because of this machine's worker."""

    detection_seconds = 0.3
    lost = cause = failed = by_itself = members_only = left = False

    def __init__(self, *, explains: bool) -> None:
        self.explains = explains

    def num_nodes_waiting(self) -> int:
        self.lost, self.cause = True, self.explains
        return 1

    def is_closed(self) -> bool:
        return False

    def leave(self) -> None:
        self.left = True

    def find_others(self, *, wait_seconds: float) -> None: ...


def an_agent(peers: Peers, gpus: Any = None) -> tuple[Agent, Any]:
    agent = Agent.__new__(Agent)  # torch's own part starts processes
    agent._handler = peers  # type: ignore[assignment]
    agent._notices = SimpleNamespace(seen=False, hurried=False, waiting=contextlib.nullcontext)
    agent._gpus, agent._say = gpus, lambda _: None
    agent._knows_codes, agent._beside = True, False
    agent._exit_policy = ExitPolicy(max_restarts=0, say=lambda _: None)
    return agent, SimpleNamespace(group_world_size=2)


def test_ten_aborts_beside_lost_peers_spend_nothing() -> None:
    """NCCL's watchdog aborts the survivors of every loss; the fourth ended the job before."""
    peers = Peers(explains=True)
    agent, group = an_agent(peers)
    for _ in range(10):
        agent._handle_failures(failures(-6), group)
    assert (peers.failed, peers.by_itself) == (True, False)


def test_an_abort_that_the_others_have_lost_spends_the_budget() -> None:
    """They meet again because of it: that does not explain it, or a crash in C would be started again for ever."""
    agent, group = an_agent(Peers(explains=False))
    for _ in range(3):
        agent._handle_failures(failures(-6), group)
    with pytest.raises(ProgramFailedError, match="killed by signal 6"):
        agent._handle_failures(failures(-6), group)


def test_a_crash_is_said_to_be_this_machines_own() -> None:
    peers = Peers(explains=True)
    agent, group = an_agent(peers)
    agent._handle_failures(failures(-9, 75), group)
    assert (peers.failed, peers.by_itself) == (True, True)


class Gpus:
    """A test of them with this outcome, while which the others go on."""

    def __init__(self, peers: Peers, fault: str) -> None:
        self.peers, self.fault, self.tests = peers, fault, 0

    def finish(self) -> str:
        assert self.peers.left
        self.tests += 1
        return self.fault


def test_the_gpus_are_tested_after_a_fault_that_looks_like_theirs() -> None:
    peers = Peers(explains=True)
    gpus = Gpus(peers, "")
    agent, group = an_agent(peers, gpus)
    agent._handle_failures(failures((1, LAUNCH)), group)
    assert gpus.tests == 1
    gpus.fault = "GPU 1 computes wrongly"
    with pytest.raises(HardwareFailedError, match="unspecified launch failure; GPU 1 computes wrongly"):
        agent._handle_failures(failures((1, LAUNCH)), group)


def test_the_gpus_are_not_tested_after_any_other() -> None:
    peers = Peers(explains=True)
    gpus = Gpus(peers, "GPU 1 computes wrongly")
    agent, group = an_agent(peers, gpus)
    for found in (failures(-6), failures(-9, 75), failures(75), failures(138)):
        agent._handle_failures(found, group)
    with pytest.raises(ProgramFailedError):
        agent._handle_failures(failures((1, WRONG)), group)
    assert (gpus.tests, peers.left) == (0, False)


class Handler(Peers):
    """A rendezvous that notes how the launcher ends it."""

    def __init__(self) -> None:
        super().__init__(explains=False)
        self.done: list[str] = []

    def leave(self) -> None:
        self.done.append("leave")

    def shutdown(self) -> None:
        self.done.append("close the job")


@pytest.mark.parametrize(
    ("error", "code", "done"),
    [
        pytest.param(HardwareFailedError("a GPU failed"), 79, ["leave"], id="hardware"),
        pytest.param(ProgramFailedError("a mistake", 3), 3, ["close the job"], id="program"),
    ],
)
def test_a_machine_whose_gpu_failed_leaves_the_job_to_the_others(error: Exception, code: int, done: list[str]) -> None:
    handler = Handler()

    def run() -> None:
        raise error

    agent: Any = SimpleNamespace(run=run, get_worker_group=lambda: SimpleNamespace(spec=SimpleNamespace(rdzv_handler=handler)))
    reclaim: Any = None
    assert node_agent.run(agent, reclaim) == code
    assert handler.done == done


@pytest.mark.parametrize(
    ("code", "expected"), [(3, 3), (1, 1), (255, 255), (-9, 137), (-6, 134), (-10, 1), (75, 1), (138, 1), (79, 1), (78, 1)]
)
def test_the_exit_code_of_the_launcher(code: int, expected: int) -> None:
    assert exit_code(Failure(code=code)) == expected, "138 by signal 10 is no reclaim"
