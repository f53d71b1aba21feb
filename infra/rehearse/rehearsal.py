"""The steps of a rehearsal, and the promises that they check. Whatever happens on the way, it ends with a destroy.

    Rehearsal(plan, shell, budget).run()       # {"stack": ..., "created": ..., "second_up_changes": ..., "leftovers": ..., ...}

    up            everything is made
    second up     nothing is changed
    job           torch sees a GPU on a spot machine that was not there before
    reclaim       the cloud takes that machine back, and the job is there again
    refresh       nothing that was made has vanished
    destroy       the stack is empty
    leftovers     so is the account, but for what is kept on purpose

A step that cannot be done here is `skipped`, with the reason; a promise that was not kept is `broken`. Where one breaks, the
steps that do not need it go on.
"""

import contextlib
import json
import math
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from ebb.kube import KubeError
from infra.commands import CannotLook, RequestRefused
from infra.rehearse.budget import MINUTES, Budget
from infra.rehearse.shell import Ran, Shell, TooLong
from workloads.cluster import NodeGroup

JOB = Path(__file__).resolve().parent / "job"
JOB_NAME, SEEN = "rehearsal", "torch.cuda.is_available():"
JOB_MINUTES = 120  # it waits for its reclaim, and is deleted after it
PATIENCE = 2.0  # a step that takes so many times as long as planned is given up
POLL_SECONDS = 10.0
DESTROY_TRIES = 2  # what a cloud still held the first time (a network interface, mostly) is free a little later
UNCHANGED = frozenset({"same", "read", "refresh"})


class Broken(Exception):
    """A promise was not kept; the text says which."""


class Over(Exception):
    """No further step: the cap, a missing stack, Ctrl-C. What there is gets destroyed."""


@dataclass(frozen=True, kw_only=True)
class RehearsalPlan:
    """`settings`: the stack's file as it is rehearsed. `group`: where the job runs; None: the stack has no GPU machines.
    `reclaim`: from the provider id of a Node to what was started. `skipped`: step -> the reason why it is not done.
    `leftovers`: a command whose last line is that of infra/account/leftovers.py."""

    stack: str
    settings: Path
    group: NodeGroup | None
    reclaim: Callable[[str], str] | None
    provider_id: Callable[[Path, str], str]
    skipped: Mapping[str, str]
    leftovers: Sequence[str]
    sleep: Callable[[float], None] = time.sleep


@dataclass
class Result:
    """Findings of a rehearsal; None: it did not get there."""

    created: int | None = None
    second_up_changes: int | None = None
    cuda: bool | None = None
    reclaim_seconds: float | None = None
    refresh_changes: int | None = None
    in_state: int | None = None
    leftovers: list[str] | None = None
    kept: list[str] | None = None
    broken: list[str] = field(default_factory=list)
    minutes: dict[str, float] = field(default_factory=dict)


class Rehearsal:
    """One rehearsal of one stack, which is empty before. Blocking."""

    def __init__(self, plan: RehearsalPlan, shell: Shell, budget: Budget) -> None:
        self._plan, self._shell, self._budget = plan, shell, budget
        self._kubeconfig = plan.settings.parent / "kubeconfig"
        self._now = budget.now
        self._interrupted = False
        self.result = Result()

    def run(self) -> Result:
        """All steps. The stack is destroyed on every way out; an error of our own is raised after that."""
        self._budget.start()
        with self._handling_signals():
            try:
                self._steps()
            except Over as error:
                self.result.broken.append(str(error))
            except KeyboardInterrupt:
                self.result.broken.append("interrupted")
            finally:
                try:
                    self._interrupted = True  # from here on nothing is
                finally:
                    self._destroy()
                    self._look_for_leftovers()
                    self._kubeconfig.unlink(missing_ok=True)
        return self.result

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Ctrl-C, a closed terminal and `kill` end the steps once, and so lead to the destroy; nothing ends that."""

        def handle(number: int, frame: FrameType | None) -> None:
            if not self._interrupted:
                self._interrupted = True
                raise KeyboardInterrupt
            # Not say(): the signal may have come while that holds its lock.
            with contextlib.suppress(OSError):
                os.write(2, b"it goes on until all is destroyed: what is left would cost money\n")

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _steps(self) -> None:
        with self._step("up") as seconds:
            ran = self._up(seconds)
            self.result.created = self._changes().get("create", 0)
            if ran.code != 0:
                raise Over("up: it failed; the transcript has what it said")
        with self._step("second up") as seconds:
            ran, changes = self._up(seconds), self._changes()
            self.result.second_up_changes = sum(count for op, count in changes.items() if op not in UNCHANGED)
            if ran.code != 0 or self.result.second_up_changes:
                raise Broken(f"it changed {_listed(changes) or 'nothing'}, and ended with {ran.code}")
        if "job" not in self._plan.skipped:
            self._budget.machines(True)
            with self._step("job") as seconds:
                self._run_job(seconds)
            if "reclaim" not in self._plan.skipped and self.result.cuda is not None:
                with self._step("reclaim") as seconds:
                    self._reclaim(seconds)
        with self._step("refresh") as seconds:
            if "job" not in self._plan.skipped:
                self._ebb(["delete", JOB_NAME, "--yes"], seconds=seconds)
            ran = self._pulumi(["refresh", "--yes", "--skip-preview"], seconds=seconds)
            changes = self._changes()
            self.result.refresh_changes = sum(count for op, count in changes.items() if op not in UNCHANGED)
            if ran.code != 0 or changes.get("delete"):
                raise Broken(f"it found {_listed(changes) or 'nothing'}, and ended with {ran.code}")

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[float]:
        """Gives the seconds that the step has. Broken ends the step alone; the cap ends the rehearsal."""
        seconds, began = self._seconds(name), self._now()
        self._shell.say("")
        self._shell.say(f"=== {name}: about {self._budget.spent():.2f} USD so far")
        try:
            yield seconds
        except (Broken, CannotLook, RequestRefused, KubeError) as error:
            self.result.broken.append(f"{name}: {error}")
            self._shell.say(f"broken: {name}: {error}")
        except TooLong as error:
            self._raise_if_spent(name)
            text = f"it took more than {seconds / 60:.0f} minutes"
            if name == "up":
                raise Over(f"{name}: {text}") from error
            self.result.broken.append(f"{name}: {text}")
        finally:
            self.result.minutes[name] = round((self._now() - began) / 60, 1)

    def _seconds(self, name: str) -> float:
        """Raises Over if none is left."""
        self._raise_if_spent(name)
        return min(self._budget.seconds_left(), PATIENCE * 60 * MINUTES[name])

    def _raise_if_spent(self, name: str) -> None:
        if self._budget.seconds_left() <= 0:
            raise Over(
                f"{name}: {self._budget.spent():.2f} of {self._budget.usd:.2f} USD are spent, and the rest is for the destroy"
            )

    # ---------------------------------------------------------------------------------------------------------------- pulumi

    def _pulumi(self, words: Sequence[str], *, seconds: float = math.inf, quiet: bool = False) -> Ran:
        return self._shell.run(
            ["pulumi", *words, "--stack", self._plan.stack, "--non-interactive", "--color", "never"], seconds=seconds, quiet=quiet
        )

    def _up(self, seconds: float) -> Ran:
        return self._pulumi(["up", "--yes", "--skip-preview", "--config-file", str(self._plan.settings)], seconds=seconds)

    def _changes(self) -> Mapping[str, int]:
        """Operations of the last update by kind, as Pulumi has written them down."""
        ran = self._pulumi(["stack", "history", "--json", "--page-size", "1", "--page", "1"], quiet=True)
        found = json.loads(ran.output) if ran.code == 0 else []
        return dict((found[0].get("resourceChanges") or {}) if found else {})

    def _deployment(self) -> Mapping[str, Any]:
        ran = self._pulumi(["stack", "export"], quiet=True)
        return dict(json.loads(ran.output)["deployment"]) if ran.code == 0 else {"resources": [{}]}

    def _destroy(self) -> None:
        """Until nothing is in the stack, or the tries are used up."""
        began = self._now()
        for attempt in range(DESTROY_TRIES):
            self._shell.say("")
            self._shell.say(f"=== destroy: about {self._budget.spent():.2f} USD so far")
            if attempt:
                self._pulumi(["cancel", "--yes"])  # a Pulumi that was killed has left its lock
            if self._deployment().get("pending_operations"):
                self._pulumi(["refresh", "--yes", "--skip-preview", "--clear-pending-creates"])
            self._pulumi(["destroy", "--yes", "--skip-preview"])
            self.result.in_state = len(self._deployment().get("resources") or [])
            if self.result.in_state == 0:
                break
        else:
            self.result.broken.append(
                f"destroy: {self.result.in_state} resources are still in the stack AND MAY COST MONEY: "
                f"pulumi destroy --stack {self._plan.stack}"
            )
        self.result.minutes["destroy"] = round((self._now() - began) / 60, 1)

    def _look_for_leftovers(self) -> None:
        self._shell.say("")
        self._shell.say("=== leftovers")
        ran = self._shell.run(self._plan.leftovers)
        try:
            found = json.loads(ran.output.strip().rpartition("\n")[2])
            self.result.leftovers = [_name(one) for one in found["left"]]
            self.result.kept = [_name(one) for one in found["kept"]]
        except (ValueError, KeyError, TypeError):
            self.result.broken.append(f"leftovers: nobody knows: {shlex.join(self._plan.leftovers)} ended with {ran.code}")
            return
        if self.result.leftovers:
            self.result.broken.append(f"leftovers: {', '.join(self.result.leftovers)}")
        if found.get("notLookedAt"):
            self.result.broken.append(f"leftovers: not looked at: {', '.join(found['notLookedAt'])}")

    # ------------------------------------------------------------------------------------------------------------------- job

    def _ebb(self, words: Sequence[str], *, seconds: float, quiet: bool = False) -> Ran:
        return self._shell.run(["ebb", *words], seconds=seconds, quiet=quiet, variables={"EBB_KUBECONFIG": str(self._kubeconfig)})

    def _run_job(self, seconds: float) -> None:
        """Until it has said what torch sees."""
        group, until = self._plan.group, self._now() + seconds
        assert group is not None, self._plan
        printed = self._pulumi(["stack", "output", "kubeconfig", "--show-secrets"], quiet=True).output
        self._kubeconfig.touch(mode=0o600)
        self._kubeconfig.write_text(printed)
        ran = self._ebb(
            ["submit", "--name", JOB_NAME, "--gpus", "1", "--gpu", group.instance.gpu_type, f"--{group.capacity_type}",
             "--zone", group.zone, "--code", str(JOB), "--yes", "--", "python", "cuda.py", str(JOB_MINUTES)],
            seconds=seconds,
        )  # fmt: skip
        if ran.code != 0:
            raise Broken("ebb submit did not take it")
        while self._now() < until:
            said = self._ebb(["logs", JOB_NAME], seconds=until - self._now(), quiet=True).output
            answers = [line.partition(SEEN)[2].split()[:1] for line in said.splitlines() if SEEN in line]
            if answers:
                self.result.cuda = answers[0] == ["True"]
                self._shell.say(f"{SEEN} {self.result.cuda}")
                if not self.result.cuda:
                    raise Broken(f"torch sees no GPU on {group.instance.name}")
                return
            self._plan.sleep(POLL_SECONDS)
        self._ebb(["status", JOB_NAME], seconds=POLL_SECONDS)
        raise TooLong("job")

    def _reclaim(self, seconds: float) -> None:
        """Until the job has a worker again."""
        assert self._plan.reclaim is not None, self._plan
        until = self._now() + seconds
        [worker, *_] = self._status(seconds)["workers"] or [{}]
        if not worker.get("machine"):
            raise Broken("the job has no machine to reclaim")
        started = self._plan.reclaim(self._plan.provider_id(self._kubeconfig, worker["machine"]))
        self._shell.say(f"reclaim of {worker['machine']}: {started}")
        while self._now() < until:
            reclaims = self._status(until - self._now())["reclaims"]
            back = [one["seconds"] for one in reclaims if one["back"]]
            if back:
                self.result.reclaim_seconds = back[0]
                self._shell.say(f"reclaimed ({reclaims[0]['cause']}), back after {back[0]} s")
                return
            self._plan.sleep(POLL_SECONDS)
        self._ebb(["events", JOB_NAME], seconds=POLL_SECONDS)
        raise TooLong("reclaim")

    def _status(self, seconds: float) -> Mapping[str, Any]:
        ran = self._ebb(["status", JOB_NAME, "-o", "json"], seconds=max(0.0, seconds), quiet=True)
        if ran.code != 0:
            raise Broken(f"ebb status ended with {ran.code}")
        return dict(json.loads(ran.output))


def _listed(changes: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {op}" for op, count in sorted(changes.items()) if op not in UNCHANGED)


def _name(one: Mapping[str, str]) -> str:
    return f"{one['kind']} {one['name']}"
