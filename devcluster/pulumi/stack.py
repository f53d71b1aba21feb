"""`python -m devcluster stack up | down | forget`: the local stack by Pulumi, safe to repeat after any interruption.

    up       creates the stack if there is none, clears what a killed run left, and runs `pulumi up`
    down     `pulumi destroy`
    forget   drops the stack's state: for when the cluster is already gone, as after `python -m devcluster down`

It types the commands that a person would type after `source ./env`, and adds nothing that `pulumi` does not do.
"""

import json
import shlex
import subprocess

from devcluster.commands import dies_with_us
from devcluster.settings import CHECKOUT, EBB_HOME, BoxError

STACK = "local"


class StackError(BoxError):
    """Pulumi ended with an error; what it printed says why."""


def up() -> None:
    """Returns when everything is there and ready. Raises StackError."""
    if STACK not in _stacks():
        _pulumi("stack", "init", STACK)
    _clear_interrupted_run()
    # --refresh: the state must not claim what a new or half-killed cluster does not have.
    _pulumi("up", "--yes", "--skip-preview", "--refresh", "--stack", STACK)


def down() -> None:
    """Returns when all resources are gone; the stack stays, empty. Raises StackError."""
    if STACK in _stacks():
        _clear_interrupted_run()
        _pulumi("destroy", "--yes", "--skip-preview", "--stack", STACK)


def forget() -> None:
    """Idempotent. Raises StackError."""
    if (EBB_HOME / "pulumi" / "state").exists() and STACK in _stacks():  # without one, no Pulumi need be built to find none
        _pulumi("stack", "rm", STACK, "--force", "--yes", "--preserve-config", quiet=True)


def _clear_interrupted_run() -> None:
    """A killed Pulumi leaves operations of which it does not know how they ended; its lock is the launcher's to remove."""
    state = json.loads(_pulumi("stack", "export", "--stack", STACK, quiet=True))
    if state["deployment"].get("pending_operations"):
        _pulumi("refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--stack", STACK)


def _stacks() -> set[str]:
    return {stack["name"].rpartition("/")[2] for stack in json.loads(_pulumi("stack", "ls", "--json", quiet=True))}


def _pulumi(*arguments: str, quiet: bool = False) -> str:
    """Run pulumi as at the shell; its output is shown as it comes, or returned when quiet. What it says beside (that Pulumi is
    being built, for minutes) is shown in any case."""
    typed = shlex.join(["pulumi", *arguments, "--non-interactive", "--color", "never"])
    done = subprocess.run(
        [*dies_with_us(), "bash", "-c", f"source ./env && exec {typed}"],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(f"`{typed}` ended with {done.returncode}: what it said is above.")
    return done.stdout or ""
