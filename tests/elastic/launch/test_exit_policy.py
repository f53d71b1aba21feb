"""What the ends of workers mean, and what the launcher ends with."""

import pytest

from ebb.elastic.launch.exit_policy import ExitPolicy, Failure, ProgramFailedError, exit_code, may_be_peer_loss

PEER = "RuntimeError: [enforce fail at pair.cc:553] Connection closed by peer [10.1.2.3]:4242"
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


@pytest.mark.parametrize(("code", "expected"), [(3, 3), (1, 1), (255, 255), (-9, 137), (-6, 134), (-10, 1), (75, 1), (138, 1)])
def test_the_exit_code_of_the_launcher(code: int, expected: int) -> None:
    assert exit_code(Failure(code=code)) == expected, "138 by signal 10 is no reclaim"
