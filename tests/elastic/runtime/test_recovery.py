"""Recovery in memory: processes that live through changes, with the state that they hold."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from ebb import elastic
from ebb.elastic.contract import EXIT_PEER_LOST
from ebb.elastic.notices.notice import Notice
from ebb.elastic.notices.relay import FOLDER_VARIABLE
from ebb.elastic.runtime.config import ConfigError, resolve
from ebb.elastic.runtime.process_group import MEETING_SECONDS
from ebb.elastic.runtime.start import decide_recovery
from testing import exactness as ledger
from tests.elastic.machines import until
from tests.elastic.runtime import programs
from tests.elastic.runtime.generations import Launcher, play
from tests.elastic.runtime.programs import Program
from tests.elastic.runtime.ranks import together

EXACT = {"virtual_workers": 5, "max_micro_batch": 2}
MEMORY = {"recovery": "memory", "checkpoint_seconds": 1e6, "checkpoint_min_seconds": 1e6}  # none but the last one is written


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> str:
    (answer,) = together(programs.train, 1, Program(output=tmp_path_factory.mktemp("calm"), settings=EXACT))
    return str(answer["weights"])


def survived(output: Path, **facts: Any) -> list[Any]:
    world_size, beside = facts.pop("world_size", 3), facts.pop("beside", False)
    coming = {name: facts.pop(name) for name in ("newcomers", "come_after") if name in facts}
    settings = {**MEMORY, **facts.pop("settings", EXACT)}
    program = Program(output=output, settings=settings, linger_at=8 if beside else None, **facts)
    return play(programs.train, program, output=output, world_size=world_size, beside=beside, **coming)


def lost_seconds(output: Path) -> float:
    return max(float(json.loads(line)["lost_seconds"]) for line in (output / "metrics.jsonl").read_text().splitlines())


@pytest.mark.parametrize("leaver", [0, 2])
@pytest.mark.parametrize("where", ["pass", "body"])
def test_a_lost_rank_changes_no_bit_and_no_process_ends(tmp_path: Path, calm: str, leaver: int, where: str) -> None:
    answers = survived(tmp_path, vanish_at=4, vanish_in=where, leaver=leaver)
    assert [answer is None for answer in answers] == [rank == leaver for rank in range(3)]
    left = [answer for answer in answers if answer]
    assert [answer["weights"] for answer in left] == [calm] * 2
    assert [answer["steps"] for answer in left] == [list(range(12))] * 2
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize("beside", [False, True])
def test_newcomers_take_the_state_of_the_others(tmp_path: Path, calm: str, beside: bool) -> None:
    answers = survived(tmp_path, world_size=1, newcomers=2, beside=beside, settings={**EXACT, "min_step_seconds": 0.2})
    assert [answer["weights"] for answer in answers] == [calm] * 3
    assert answers[0]["steps"] == list(range(12))
    assert answers[1]["steps"] == answers[2]["steps"] == list(range(answers[1]["steps"][0], 12))
    assert answers[1]["steps"][0] >= 2
    assert ledger.check(tmp_path).exact


def test_the_others_train_on_while_a_newcomer_builds_its_model(tmp_path: Path, calm: str) -> None:
    """It is not through before they have done three more steps, and no step comes after the one in which it is there."""
    settings = {**EXACT, "min_step_seconds": 0.2}
    answers = survived(tmp_path, world_size=2, newcomers=1, beside=True, build_until=3, settings=settings)
    assert [answer["weights"] for answer in answers] == [calm] * 3
    assert answers[2]["steps"][0] >= 5
    assert ledger.check(tmp_path).exact


def test_a_newcomer_takes_the_state_of_another_rank_when_the_first_dies_giving_it(tmp_path: Path, calm: str) -> None:
    settings = {**EXACT, "min_step_seconds": 0.2}
    answers = survived(tmp_path, world_size=2, newcomers=1, beside=True, dies_giving=True, leaver=0, settings=settings)
    assert answers[0] is None
    assert [answer["weights"] for answer in answers[1:]] == [calm] * 2
    assert answers[1]["steps"] == list(range(12))
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize("leaver", [0, 2])
def test_an_evaluation_is_made_again_by_those_that_are_left(tmp_path: Path, calm: str, leaver: int) -> None:
    answers = survived(tmp_path, evaluate_at=5, disturbed_by="loss", leaver=leaver)
    left = [answer for answer in answers if answer]
    assert [answer["weights"] for answer in left] == [calm] * 2
    assert [answer["steps"] for answer in left] == [list(range(12))] * 2
    assert [answer["owes"] for answer in left] == [False] * 2
    (undisturbed,) = survived(tmp_path / "calm", world_size=1, evaluate_at=5)
    assert left[0]["evaluated"] == left[1]["evaluated"] == {5: pytest.approx(undisturbed["evaluated"][5])}
    verdict = ledger.check(tmp_path)
    assert verdict.exact
    assert verdict.steps_redone == 0


def test_a_notice_in_an_evaluation_takes_one_machine(tmp_path: Path, calm: str) -> None:
    answers = survived(tmp_path, evaluate_at=5, disturbed_by="notice", leaver=1)
    assert [answer["left"] for answer in answers] == [False, True, False]
    assert answers[1]["step"] == 6
    assert [answers[0]["weights"], answers[2]["weights"]] == [calm] * 2
    assert answers[0]["evaluated"] == answers[2]["evaluated"]
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("g*.json"))
    assert kept == ["g00002-s00000006-r0.json", "g00002-s00000012-r0.json"], "the evaluation's, and the last: none for the notice"
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert ledger.check(tmp_path).exact


def test_the_last_machine_that_leaves_an_evaluation_keeps_it_owed(tmp_path: Path) -> None:
    (first,) = survived(tmp_path, world_size=1, evaluate_at=5, disturbed_by="notice")
    assert (first["left"], first["step"]) == (True, 6)
    (second,) = survived(tmp_path, world_size=1, evaluate_at=5)
    assert second["steps"] == list(range(6, 12))
    assert list(second["evaluated"]) == ["owed"]


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_rank_that_is_behind_evaluates_the_weights_of_the_others(tmp_path: Path, calm: str, leaver: int) -> None:
    answers = survived(tmp_path, deaf_at=5, evaluate_at=5, leaver=leaver)
    assert [answer["weights"] for answer in answers] == [calm] * 3
    assert answers[0]["evaluated"] == answers[1]["evaluated"] == answers[2]["evaluated"]
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize("newcomers", [1, 2])
def test_a_newcomer_that_dies_taking_the_state_holds_nobody_up(tmp_path: Path, calm: str, newcomers: int) -> None:
    """Of two the second, who would have got it from the first, gets it from another one."""
    settings = {**EXACT, "min_step_seconds": 0.2}
    answers = survived(tmp_path, world_size=2, newcomers=newcomers, beside=True, dies_taking=True, leaver=2, settings=settings)
    assert answers.pop(2) is None
    assert [answer["weights"] for answer in answers] == [calm] * (1 + newcomers)
    assert [answer["steps"] for answer in answers[:2]] == [list(range(12))] * 2
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize("where", ["follow", "_come", "standings", "barrier"])
@pytest.mark.parametrize("leaver", [0, 1])
def test_a_rank_that_is_lost_during_a_change(tmp_path: Path, calm: str, leaver: int, where: str) -> None:
    """The others stand in the new generation already, or connect: they go on without it at once, and the newcomer with them."""
    settings = {**EXACT, "min_step_seconds": 0.2}
    answers = survived(tmp_path, world_size=2, newcomers=1, beside=True, dies_in=where, leaver=leaver, settings=settings)
    assert answers.pop(leaver) is None
    assert [answer["weights"] for answer in answers] == [calm] * 2
    assert answers[0]["steps"] == list(range(12))
    assert ledger.check(tmp_path).exact
    assert lost_seconds(tmp_path) < MEETING_SECONDS / 2


@pytest.mark.parametrize("seconds", [-86400.0, 86400.0])
@pytest.mark.parametrize("leaver", [0, 1])
def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, calm: str, leaver: int, seconds: float) -> None:
    """Not even the seconds that were lost by a change: they are those of a clock that only runs on."""
    settings = {**EXACT, "min_step_seconds": 0.2}
    answers = survived(
        tmp_path, world_size=2, newcomers=1, come_after=5, beside=True, clock_jumps=seconds, leaver=leaver, settings=settings
    )
    assert [answer["weights"] for answer in answers] == [calm] * 3
    assert ledger.check(tmp_path).exact
    assert lost_seconds(tmp_path) < 60


@pytest.mark.parametrize("beside", [False, True])
def test_a_newcomer_hears_what_the_others_found_before_their_first_step(tmp_path: Path, beside: bool) -> None:
    """It evaluates nothing with them: they are in their steps."""
    settings = {**EXACT, "min_step_seconds": 0.2}
    answers = survived(tmp_path, world_size=2, newcomers=1, beside=beside, evaluate_first=True, settings=settings)
    assert len(answers) == 3
    assert answers[2]["steps"][0] >= 2
    assert answers[0]["first"] == answers[1]["first"] == answers[2]["first"]
    assert answers[0]["first"]["samples"] == 40


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_step_that_the_others_have_done_is_taken_from_them(tmp_path: Path, calm: str, leaver: int) -> None:
    """It is behind by the step whose sum it did not get: it does not do it, and no rank does it again."""
    answers = survived(tmp_path, deaf_at=5, leaver=leaver)
    assert [answer["weights"] for answer in answers] == [calm] * 3
    assert [answer["steps"] for answer in answers] == [list(range(12))] * 3
    verdict = ledger.check(tmp_path)
    assert verdict.exact
    assert verdict.steps_redone == 0


def test_a_notice_takes_one_machine_and_no_checkpoint(tmp_path: Path, calm: str) -> None:
    answers = survived(tmp_path, leave_at=4, leaver=1)
    assert [answer["left"] for answer in answers] == [False, True, False]
    assert [answers[0]["weights"], answers[2]["weights"]] == [calm] * 2
    assert answers[1]["step"] == 5
    assert [path.name for path in (tmp_path / "checkpoints").glob("g*.json")] == ["g00002-s00000012-r0.json"]


def test_without_virtual_workers_the_gradient_is_that_of_the_whole_batch(tmp_path: Path) -> None:
    """Two ranks, then one, and several micro-batches: the weights are those of one process but for the order of sums."""
    settings = {"max_micro_batch": 3}
    (alone,) = together(programs.train, 1, Program(output=tmp_path / "alone", plain=True, settings=settings))
    answers = survived(tmp_path / "lost", world_size=3, plain=True, vanish_at=11, leaver=2, settings=settings)
    for answer in (answers[0], answers[1]):
        assert answer["steps"] == list(range(12))
        for found, wanted in zip(answer["gradient"], alone["gradient"], strict=True):
            assert torch.tensor(found) == pytest.approx(torch.tensor(wanted), abs=1e-5)


@pytest.mark.parametrize("leaver", [0, 2])
@pytest.mark.parametrize("settings", [EXACT, {}], ids=["virtual", "summed"])
def test_a_rank_that_stood_still_while_the_others_went_on_takes_their_state(
    tmp_path: Path, calm: str, settings: dict[str, Any], leaver: int
) -> None:
    """At its step boundary, and not after a step more, in whose sums it would be alone."""
    settings = {**MEMORY, **settings, "min_step_seconds": 0.5}
    program = Program(output=tmp_path, settings=settings, stands_at=2, leaver=leaver, evaluate_at=4, evaluate_again_at=10)
    with TemporaryDirectory(prefix="ebb-") as folder, contextlib.closing(Launcher(Path(folder), tmp_path)) as launcher:
        launcher.regroup(programs.train, program, 3)
        still = launcher.ranks[leaver]
        until("it stands still", lambda: is_stopped(still.process.pid))
        began = time.monotonic()
        launcher.beside = [still]  # no part of the next generation
        launcher.regroup(programs.train, program)
        until("the others make steps", lambda: launcher.done() >= 6 and time.monotonic() - began > 2.5)
        os.kill(still.process.pid, signal.SIGCONT)
        launcher.beside = []
        launcher.server.tell_change()
        others = [each.process.pid for each in launcher.ranks if each is not still]
        until("the others ask", lambda: launcher.server.all_ask(others))
        launcher.regroup(programs.train, program)
        assert all(each.reader.poll(60) for each in launcher.ranks), "they wait for each other"
        answers = [each.reader.recv() for each in launcher.ranks]
    assert [kind for kind, _ in answers] == ["answered"] * 3, answers
    weights = {answer["weights"] for _, answer in answers}
    assert len(weights) == 1
    assert "virtual_workers" not in settings or weights == {calm}
    assert answers[1][1]["steps"] == list(range(12))
    written = [json.loads(line)["generation"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert written == sorted(written), "its own line came among those of the others"
    assert ledger.check(tmp_path).exact


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_newcomer_starts_again_when_nobody_is_left_who_has_trained(tmp_path: Path) -> None:
    """It has looked for no checkpoint."""
    settings = {**MEMORY, "epochs": 10**6, "ledger": False}
    program = Program(output=tmp_path, settings=settings)
    with TemporaryDirectory(prefix="ebb-") as folder, contextlib.closing(Launcher(Path(folder), tmp_path)) as launcher:
        launcher.regroup(programs.train, program, 1)
        until("a newcomer", lambda: launcher.start_beside(programs.train, program, 1))
        (newcomer,) = launcher.beside
        until("it is ready", lambda: launcher.server.all_ask([newcomer.process.pid]))
        launcher.ranks[0].process.kill()
        launcher.ranks[0].process.join()
        launcher.beside = []
        launcher.regroup(programs.train, program)
        newcomer.process.join(30)
        assert newcomer.process.exitcode == EXIT_PEER_LOST


def test_nobody_is_let_in_after_the_last_step(tmp_path: Path, calm: str) -> None:
    """A newcomer has seen no evaluation: it would make one alone, and the others wait for it."""
    program = Program(output=tmp_path, settings={**MEMORY, **EXACT, "min_step_seconds": 0.2}, linger_at=11)
    with TemporaryDirectory(prefix="ebb-") as folder, contextlib.closing(Launcher(Path(folder), tmp_path)) as launcher:
        launcher.regroup(programs.train, program, 2)
        until("a newcomer", lambda: launcher.start_beside(programs.train, program, 1))
        (newcomer,) = launcher.beside
        until("it is ready", lambda: launcher.server.all_ask([newcomer.process.pid]))
        until("the last step", lambda: launcher.done() == 11)
        launcher.server.tell_change()
        others = [each for each in launcher.ranks if each is not newcomer]
        assert all(each.reader.poll(30) for each in others), "they ask for a place, and wait for the newcomer"
        answers = [each.reader.recv() for each in others]
    assert [(kind, answer["weights"]) for kind, answer in answers] == [("answered", calm)] * 2


@pytest.mark.parametrize("leaver", [0, 2])
@pytest.mark.parametrize("part", programs.ENDS)
def test_a_rank_that_is_lost_after_the_last_step_ends_no_other(tmp_path: Path, calm: str, part: str, leaver: int) -> None:
    """The others save, and write the result, without it; nobody waits for those that are through."""
    answers = survived(tmp_path, disturbed_after=part, leaver=leaver)
    assert [answer is None for answer in answers] == [rank == leaver and part.startswith("dies") for rank in range(3)]
    left = [answer for answer in answers if answer]
    assert {answer["weights"] for answer in left} == {calm}
    assert all(answer["steps"] == list(range(12)) and not answer["left"] for answer in left)
    assert json.loads((tmp_path / "result.json").read_text())["weights_sha256"] == calm
    assert any((tmp_path / "checkpoints").glob("*-s00000012-*.json"))
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize("leaver", [0, 2])
@pytest.mark.parametrize("phase", programs.PHASES)
def test_a_rank_that_is_lost_before_the_first_step_ends_no_other(tmp_path: Path, calm: str, phase: str, leaver: int) -> None:
    answers = survived(tmp_path, lost_before=phase, leaver=leaver)
    assert answers.pop(leaver) is None
    assert [answer["weights"] for answer in answers] == [calm] * 2
    assert [answer["steps"] for answer in answers] == [list(range(12))] * 2
    assert [answer["went_first"] for answer in answers] == [phase == "first", False]
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize("phase", ["weights", "data"])
def test_one_that_comes_for_it_begins_with_the_others(tmp_path: Path, calm: str, phase: str) -> None:
    """It builds its model while they wait, and takes the state that they have."""
    answers = survived(tmp_path, lost_before=phase, leaver=2, newcomers=1, come_after=0)
    assert answers.pop(2) is None
    assert [answer["weights"] for answer in answers] == [calm] * 3
    assert [answer["steps"] for answer in answers] == [list(range(12))] * 3
    assert ledger.check(tmp_path).exact


@pytest.mark.parametrize("leaver", [0, 1])
@pytest.mark.parametrize("phase", ["weights", "checkpoint", "data"])
def test_a_rank_that_is_behind_before_the_first_step_takes_the_state_of_another(
    tmp_path: Path, calm: str, phase: str, leaver: int
) -> None:
    """The state of a checkpoint too, which it has not read."""
    together(programs.train, 1, Program(output=tmp_path, settings=EXACT, break_at=4))
    answers = survived(tmp_path, deaf_before=phase, leaver=leaver)
    assert [answer["weights"] for answer in answers] == [calm] * 3
    assert [answer["steps"] for answer in answers] == [list(range(5, 12))] * 3
    assert ledger.check(tmp_path).exact


def test_what_only_torchs_own_can_do_is_refused(tmp_path: Path) -> None:
    run = elastic.start(resolve({}, output=tmp_path, recovery="memory"), notice=Notice())
    run.distribute(torch.nn.Linear(2, 2), broadcast_buffers=False, find_unused_parameters=True)
    with pytest.raises(ConfigError, match=r"broadcast_buffers=.*With --recovery restart"):
        run.distribute(torch.nn.Linear(2, 2), broadcast_buffers=True)


TORCHRUN = {"TORCHELASTIC_RUN_ID": "digits", "WORLD_SIZE": "2"}
LAUNCHER = {**TORCHRUN, FOLDER_VARIABLE: "/tmp"}


@pytest.mark.parametrize(
    ("asked", "environment", "decided"),
    [
        ("auto", LAUNCHER, "memory"),
        ("auto", TORCHRUN, "restart"),
        ("auto", {}, "restart"),
        ("memory", LAUNCHER, "memory"),
        ("restart", LAUNCHER, "restart"),
    ],
)
def test_programs_under_our_launcher_recover_in_memory(
    tmp_path: Path, asked: str, environment: dict[str, str], decided: str
) -> None:
    assert decide_recovery(resolve(environment, output=tmp_path, recovery=asked), environment).recovery == decided


def test_memory_is_refused_where_nothing_gives_places(tmp_path: Path) -> None:
    environment = {"WORLD_SIZE": "2"}
    with pytest.raises(ConfigError, match=r"--recovery is 'memory'.*ebb.elastic.launch.*--recovery restart"):
        decide_recovery(resolve(environment, output=tmp_path, recovery="memory"), environment)


def test_many_changes_leave_nothing_behind(tmp_path: Path) -> None:
    """No thread and no descriptor of an old generation stays."""
    settings = {**MEMORY, "epochs": 10**6, "log_every": 10**6, "ledger": False}
    program = Program(output=tmp_path, settings=settings)
    with TemporaryDirectory(prefix="ebb-") as folder, contextlib.closing(Launcher(Path(folder), tmp_path)) as launcher:
        launcher.regroup(programs.train, program, 2)
        until("two ranks that train", lambda: launcher.done() > 0)
        held = []
        for _ in range(12):
            launcher.server.tell_change()
            until("a boundary", lambda: all(launcher.server.asks([each.process.pid]) for each in launcher.ranks))
            launcher.regroup(programs.train, program)
            held.append([open_by(each.process.pid) for each in launcher.ranks])
    assert max(max(each) for each in held[6:]) <= max(max(each) for each in held[:6]) + 4, held


def open_by(process: int) -> int:
    """Its descriptors and threads."""
    return sum(1 for name in ("fd", "task") for _ in Path(f"/proc/{process}/{name}").iterdir())
