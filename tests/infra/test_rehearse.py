"""The rehearsal's steps over a fake shell: what breaks a promise, and that every way out leads through a destroy."""

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import commands, config
from infra.config import ROOT, ConfigError
from infra.rehearse import __main__ as command
from infra.rehearse.budget import MINUTES, Budget
from infra.rehearse.rehearsal import Rehearsal, RehearsalPlan, Result
from infra.rehearse.shell import Ran, Shell, TooLong
from tests.infra.cases import CASES, Case
from workloads.cluster import SPOT, InstanceType, NodeGroup

T4 = InstanceType(name="m1", cpu=4, memory_gib=16, usd_per_hour=0.5, gpu_type="T4", gpus=1)
GROUP = NodeGroup(name="spot-t4-a", zone="a", instance=T4, capacity_type=SPOT, min=0, max=2, notice_seconds=120)
SAID = "[worker 0] torch.cuda.is_available(): True\n"
STATUS = {
    "workers": [{"machine": "node-1"}],
    "reclaims": [{"cause": "Reclaimed", "back": "2026-11-23T10:00:00Z", "seconds": 95.0}],
}
NOTHING = {"left": [], "kept": [{"kind": "EFS", "name": "fs-1"}], "notLookedAt": []}


class Fake(Shell):
    """A shell whose `pulumi` and `ebb` are of this object. `minutes`: how long a verb takes. `answers`: what a verb does
    instead, which may raise."""

    def __init__(self, minutes: Mapping[str, float] | None = None, **answers: Callable[[], Ran]) -> None:
        self.minutes, self.answers = dict(minutes or {}), answers
        self.time, self.resources, self.last = 0.0, 0, dict[str, int]()
        self.ran: list[str] = []
        self.said: list[str] = []
        self.leftovers: object = NOTHING

    def say(self, line: str) -> None:
        self.said.append(line)

    def run(
        self,
        words: Sequence[str],
        *,
        seconds: float = float("inf"),
        quiet: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Ran:
        verb = "_".join(words[1:3] if words[1] == "stack" else words[1:2]) if words[0] in ("pulumi", "ebb") else words[0]
        self.ran.append(verb)
        takes = 60 * self.minutes.get(verb, 1)
        self.time += min(takes, seconds)
        if takes > seconds:
            self.last = {}
            raise TooLong(verb)
        if verb in self.answers:
            return self.answers[verb]()
        return Ran(0, self._answer(verb))

    def _answer(self, verb: str) -> str:
        if verb == "up":
            self.last = {"same": self.resources} if self.resources else {"create": 7}
            self.resources = 7
        elif verb == "refresh":
            self.last = {"same": self.resources}
        elif verb == "destroy":
            self.resources = 0
        texts: dict[str, Any] = {
            "stack_history": [{"resourceChanges": self.last}],
            "stack_export": {"deployment": {"resources": [{}] * self.resources}},
            "status": STATUS,
            "leftovers": self.leftovers,
        }
        return (
            SAID
            if verb == "logs"
            else f"some lines\n{json.dumps(texts.get(verb, ''))}".removeprefix("" if verb == "leftovers" else "some lines\n")
        )


@pytest.fixture
def rehearse(tmp_path: Path) -> Callable[..., Result]:
    def run(shell: Fake, *, usd: float = 5.0, skipped: Mapping[str, str] | None = None, **more: Any) -> Result:
        plan = RehearsalPlan(
            stack="dev", settings=tmp_path / "Pulumi.dev.yaml", group=GROUP, skipped=skipped or {}, leftovers=["leftovers"],
            sleep=lambda seconds: setattr(shell, "time", shell.time + seconds),
            **{"reclaim": lambda node: f"experiment on {node}", "provider_id": lambda kubeconfig, node: f"id of {node}", **more},
        )  # fmt: skip
        return Rehearsal(plan, shell, Budget(usd, 0.6, 0.2, lambda: shell.time)).run()

    return run


Rehearse = Callable[..., Result]


def test_every_promise_is_kept(rehearse: Rehearse) -> None:
    shell = Fake()
    found = rehearse(shell)
    assert found.broken == []
    assert (found.created, found.second_up_changes, found.cuda, found.reclaim_seconds) == (7, 0, True, 95.0)
    assert (found.refresh_changes, found.in_state, found.leftovers, found.kept) == (0, 0, [], ["EFS fs-1"])
    assert [one for one in shell.ran if not one.startswith("stack")] == [
        *("up", "up", "submit", "logs", "status", "status", "delete", "refresh", "destroy", "leftovers"),
    ]
    assert "reclaim of node-1: experiment on id of node-1" in shell.said
    assert set(found.minutes) == set(MINUTES)


def test_a_step_that_cannot_be_done_is_not_pretended(rehearse: Rehearse) -> None:
    shell = Fake()
    found = rehearse(shell, skipped={"job": "no machines", "reclaim": "no machines"})
    assert (found.cuda, found.reclaim_seconds, found.broken) == (None, None, [])
    assert not {"submit", "logs", "status", "delete"} & set(shell.ran)


def test_a_second_up_that_changes_something_is_broken_and_the_rest_goes_on(rehearse: Rehearse) -> None:
    shell = Fake()
    ups = iter([{"create": 7}, {"update": 2, "same": 5}])

    def up() -> Ran:
        shell.resources, shell.last = 7, next(ups)
        return Ran(0, "")

    shell.answers["up"] = up
    found = rehearse(shell)
    assert found.second_up_changes == 2
    assert found.broken == ["second up: it changed 2 update, and ended with 0"]
    assert shell.resources == 0
    assert found.cuda


def failing_up(shell: Fake) -> Callable[[], Ran]:
    def up() -> Ran:
        shell.resources, shell.last = 3, {"create": 3}
        return Ran(255, "error: quota")

    return up


def test_an_up_that_fails_is_destroyed_at_once(rehearse: Rehearse) -> None:
    shell = Fake()
    shell.answers["up"] = failing_up(shell)
    found = rehearse(shell)
    assert found.broken == ["up: it failed; the transcript has what it said"]
    assert (found.created, found.in_state) == (3, 0)
    assert shell.ran.count("up") == 1


@pytest.mark.parametrize("verb", ["up", "submit", "logs", "refresh"])
def test_the_cap_is_never_passed_whatever_hangs(rehearse: Rehearse, verb: str) -> None:
    """At 0.6 USD an hour idle, one dollar is 100 minutes, of which the destroy has 30."""
    shell = Fake({verb: 10_000, "destroy": 25})
    found = rehearse(shell, usd=1.0)
    hours = shell.time / 3600
    assert hours * 0.6 <= 1.0
    assert found.broken
    assert found.in_state == 0
    assert shell.ran[-1] == "leftovers"


def test_a_step_that_hangs_is_given_up_long_before_the_money_is_spent(rehearse: Rehearse) -> None:
    found = rehearse(Fake({"submit": 10_000}), usd=1000.0)
    assert found.broken == ["job: it took more than 40 minutes"]
    assert found.refresh_changes == 0


def interrupt() -> Ran:
    os.kill(os.getpid(), signal.SIGINT)
    raise AssertionError("a signal is handled before the next line")


@pytest.mark.parametrize("verb", ["up", "submit", "logs", "delete", "refresh"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_leads_to_the_destroy(rehearse: Rehearse, verb: str, number: signal.Signals) -> None:
    shell = Fake()

    def answer() -> Ran:
        shell.resources = 7
        os.kill(os.getpid(), number)
        raise AssertionError("a signal is handled before the next line")

    shell.answers[verb] = answer
    before = signal.getsignal(number)
    found = rehearse(shell)
    assert found.broken == ["interrupted"]
    assert found.in_state == 0
    assert shell.ran[-1] == "leftovers"
    assert signal.getsignal(number) is before


def test_a_further_interruption_does_not_stop_the_destroy(rehearse: Rehearse, capfd: pytest.CaptureFixture[str]) -> None:
    shell = Fake(up=interrupt)

    def destroy() -> Ran:
        os.kill(os.getpid(), signal.SIGINT)
        shell.resources = 0
        return Ran(0, "")

    shell.answers["destroy"] = destroy
    assert rehearse(shell).in_state == 0
    assert "would cost money" in capfd.readouterr().err


def test_an_error_of_our_own_is_raised_after_the_destroy(rehearse: Rehearse) -> None:
    def bug() -> Ran:
        raise RuntimeError("a bug")

    shell = Fake(submit=bug)
    with pytest.raises(RuntimeError, match="a bug"):
        rehearse(shell)
    assert shell.resources == 0
    assert shell.ran[-1] == "leftovers"


def test_a_destroy_that_fails_is_tried_again(rehearse: Rehearse) -> None:
    shell = Fake()
    tries = iter([2, 0])

    def destroy() -> Ran:
        shell.resources = next(tries)
        return Ran(255 if shell.resources else 0, "")

    shell.answers["destroy"] = destroy
    assert rehearse(shell).broken == []
    assert shell.ran.count("cancel") == 1


def test_what_no_destroy_removes_is_said_aloud(rehearse: Rehearse) -> None:
    found = rehearse(Fake(destroy=lambda: Ran(255, "")))
    assert found.broken == ["destroy: 7 resources are still in the stack AND MAY COST MONEY: pulumi destroy --stack dev"]


def test_what_an_interrupted_update_left_open_is_cleared_before_the_destroy(rehearse: Rehearse) -> None:
    shell = Fake()
    pending = iter([True, False, False])

    def export() -> Ran:
        open_ones: list[object] = [{}] if next(pending) else []
        return Ran(0, json.dumps({"deployment": {"resources": [{}] * shell.resources, "pending_operations": open_ones}}))

    shell.answers["stack_export"] = export
    rehearse(shell, skipped={"job": "-", "reclaim": "-"})
    assert [one for one in shell.ran if one in ("refresh", "destroy")] == ["refresh", "refresh", "destroy"]


@pytest.mark.parametrize(
    ("said", "broken"),
    [
        ({**NOTHING, "left": [{"kind": "volume", "name": "v-1"}]}, "leftovers: volume v-1"),
        ({**NOTHING, "notLookedAt": ["FSx: denied"]}, "leftovers: not looked at: FSx: denied"),
        ({"error": "no credentials"}, "leftovers: nobody knows: leftovers ended with 0"),
    ],
    ids=["left", "not looked at", "no answer"],
)
def test_leftovers_are_a_broken_promise(rehearse: Rehearse, said: object, broken: str) -> None:
    shell = Fake()
    shell.leftovers = said
    assert rehearse(shell).broken == [broken]


def test_no_gpu_is_a_broken_promise_and_no_machine_is_reclaimed(rehearse: Rehearse) -> None:
    shell = Fake(logs=lambda: Ran(0, SAID.replace("True", "False")))
    found = rehearse(shell)
    assert (found.cuda, found.broken) == (False, ["job: torch sees no GPU on m1"])


def test_a_job_that_says_nothing_is_asked_again_until_its_time_is_over(rehearse: Rehearse) -> None:
    shell = Fake(logs=lambda: Ran(0, "downloading\n"))
    found = rehearse(shell)
    assert shell.ran.count("logs") > 10
    assert (found.cuda, found.broken) == (None, ["job: it took more than 40 minutes"])


def test_a_refused_reclaim_is_a_broken_promise(rehearse: Rehearse) -> None:
    def refuse(node: str) -> str:
        raise commands.RequestRefused("fis start_experiment: AccessDenied")

    assert rehearse(Fake(), reclaim=refuse).broken == ["reclaim: fis start_experiment: AccessDenied"]


def test_something_that_vanished_is_a_broken_promise(rehearse: Rehearse) -> None:
    shell = Fake()

    def refresh() -> Ran:
        shell.last = {"delete": 1, "same": 6}
        return Ran(0, "")

    shell.answers["refresh"] = refresh
    found = rehearse(shell)
    assert (found.refresh_changes, found.broken) == (1, ["refresh: it found 1 delete, and ended with 0"])


def test_the_estimate_has_every_step_and_two_machines_for_the_job() -> None:
    budget = Budget(5.0, 0.6, 0.2, lambda: 0.0)
    assert budget.estimate() == pytest.approx(160 / 60 * 0.6 + 65 / 60 * 2 * 0.2)
    assert budget.estimate(job=False) == pytest.approx(95 / 60 * 0.6)


def test_a_cloud_without_prices_has_no_deadline() -> None:
    assert Budget(5.0, 0.0, 0.0, lambda: 0.0).seconds_left() == float("inf")


# ------------------------------------------------------------------------------------------------------------ before it starts


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_stack_is_rehearsed_without_its_jobs_on_its_cheapest_spot_gpu(case: Case, tmp_path: Path) -> None:
    chosen = command.choose(case.stack, ROOT, tmp_path / "new")
    assert chosen.stack.jobs == ()
    assert chosen.group is not None
    assert (chosen.group.capacity_type, chosen.group.instance.gpu_type) == (SPOT, "T4")
    assert command.skipped_steps(chosen, mock=False) == {}
    assert set(command.skipped_steps(chosen, mock=True)) == {"preflight", "job", "reclaim"}
    usual = config.read(case.stack)
    assert chosen.stack.node_groups == usual.node_groups


@pytest.mark.parametrize("case", CASES, ids=str)
def test_protected_data_is_refused_before_anything_is_made(case: Case, tmp_path: Path) -> None:
    settings = {**case.values((case.data, "protect")), "ebb:jobs": []}
    (tmp_path / f"Pulumi.{case.stack}.yaml").write_text(yaml.safe_dump({"config": settings}))
    with pytest.raises(ConfigError, match=r"storage\.data: found 'protect'.*Allowed are keep"):
        command.choose(case.stack, tmp_path, tmp_path / "new")


def fake_pulumi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "pulumi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_stack_with_something_in_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pulumi(tmp_path, monkeypatch, """echo '{"deployment": {"resources": [{}, {}]}}'""")
    with pytest.raises(ConfigError, match=r"'dev' has 2 resources: a rehearsal ends with a destroy .* Rehearse a copy"):
        command.refuse_unless_empty("dev")


def test_a_stack_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pulumi(tmp_path, monkeypatch, "echo \"error: no stack named 'dev' found\" >&2; exit 255")
    with pytest.raises(ConfigError, match="no stack named 'dev' found"):
        command.refuse_unless_empty("dev")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_budget_below_the_estimate_is_refused(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_pulumi(tmp_path, monkeypatch, "echo called >&2; exit 1")
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.chdir(ROOT)
    assert command.main(["-s", case.stack, "--budget", "0.5"]) == commands.EXIT_USAGE
    said = capsys.readouterr()
    assert "budget: 0.5 USD is below the estimate of" in said.err
    assert "called" not in said.err


# ----------------------------------------------------------------------------------------------------------------- the shell


@pytest.fixture
def shell(tmp_path: Path) -> Any:
    with Shell(tmp_path / "log" / "transcript.txt", cancel_seconds=20.0) as shell:
        yield shell


def test_all_lines_are_shown_and_kept_in_the_transcript(shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = shell.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert ran.code == 3
    assert sorted(ran.output.split()) == ["err", "out"]
    kept, shown = (tmp_path / "log" / "transcript.txt").read_text(), capsys.readouterr().out
    for line in ("$ sh -c", "out\n", "err\n"):
        assert line in kept
        assert line in shown


def test_a_quiet_command_returns_its_output_alone(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run(["sh", "-c", "echo {}; echo warning >&2"], quiet=True, variables={"A": "1"}).output == "{}\n"
    assert "warning" in capsys.readouterr().out


def test_a_program_that_is_not_there_is_an_exit_code(shell: Shell) -> None:
    assert shell.run(["no-such-program"]).code == 127


def test_a_deadline_interrupts_and_lets_it_finish(shell: Shell, tmp_path: Path) -> None:
    script = f"trap 'echo finished > {tmp_path}/done; exit 1' INT; while :; do sleep 0.1; done"
    with pytest.raises(TooLong):
        shell.run(["sh", "-c", script], seconds=0.5)
    assert (tmp_path / "done").read_text() == "finished\n"


def test_what_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.rehearse.shell.KILL_SECONDS", 0.2)
    with Shell(tmp_path / "transcript.txt", cancel_seconds=0.2) as shell, pytest.raises(TooLong):
        shell.run(["sh", "-c", "trap '' INT; while :; do sleep 0.1; done"], seconds=0.3)
