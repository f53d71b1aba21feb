"""The stacks under our launcher: the local one, which `python -m devcluster stack` runs, and those of real clouds.

    up        creates the local stack if there is none, clears what a killed run left, and runs `pulumi up`
    down      `pulumi destroy`
    forget    drops its state: for when the cluster is already gone, as after `python -m devcluster down`

These type the commands that a person would type after `source ./env`, and are safe to repeat after any interruption.

A cloud stack has official plugins, the user's own Pulumi home, and state that is not on this machine: the state is the only
record of what runs and costs money. It belongs where a second person, and a machine after this one, finds it: Pulumi Cloud or
an object store, with a secrets provider. A folder is refused unless EBB_FILE_STATE=1 says so. Which stack a command is about
must be said (--stack, or PULUMI_STACK): nothing is guessed where it may cost money.
"""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from devcluster.commands import dies_with_us
from devcluster.settings import CHECKOUT, EBB_HOME, BoxError

FILE_STATE = "EBB_FILE_STATE"
LOCAL = "local"


class StateError(BoxError):
    """The state of a cloud stack has no place to go; the message says how to give it one."""


def named_stack(arguments: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The stack that the command names, without its organization."""
    for index, argument in enumerate(arguments):
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        positional = index > 0 and arguments[index - 1] == "stack" and argument in ("init", "select")
        if argument in ("-s", "--stack") or (positional and not following.startswith("-")):
            return following.rpartition("/")[2] or None
        if argument.startswith("--stack="):
            return argument.rpartition("=")[2].rpartition("/")[2]
    return environment.get("PULUMI_STACK", "").rpartition("/")[2] or None


def users_own(arguments: Sequence[str]) -> bool:
    """True if the command is about where the states of cloud stacks are: the local stack's place is fixed."""
    return next((word for word in arguments if not word.startswith("-")), "") in ("login", "logout")


def cloud_of(stack: str | None, folder: Path = CHECKOUT) -> str:
    """The cloud in the stack's file; `local` for what is none of our stacks."""
    try:
        content = yaml.safe_load((folder / f"Pulumi.{stack}.yaml").read_text())
        return str(content["config"]["ebb:cloud"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return LOCAL


def environment_for(given: Mapping[str, str], path: str, stack: str) -> dict[str, str]:
    """The environment of the real pulumi. Raises StateError."""
    home = home_of(given)
    url = given.get("PULUMI_BACKEND_URL") or _logged_in(Path(home))
    if not url:
        raise StateError(
            f"stack {stack!r} is of a real cloud, and nothing says where its state goes. Log in first: `pulumi login` (Pulumi "
            "Cloud), or `pulumi login s3://BUCKET?region=REGION` with `pulumi stack init --stack "
            f"{stack} --secrets-provider=awskms://alias/KEY?region=REGION`. Nothing was changed."
        )
    if url.startswith("file:") and given.get(FILE_STATE) != "1":
        raise StateError(
            f"stack {stack!r} is of a real cloud, and its state would be in a folder of this machine ({url}): whoever loses the "
            "folder can no longer remove what costs money. Use Pulumi Cloud or an object store (`pulumi login`), or say that you "
            f"mean it: {FILE_STATE}=1. Nothing was changed."
        )
    return {"PULUMI_SKIP_UPDATE_CHECK": "true", **given, "PULUMI_HOME": home, "PATH": path}


def home_of(given: Mapping[str, str]) -> str:
    """The user's own PULUMI_HOME, where logins are."""
    return given.get("PULUMI_HOME") or str(Path(given.get("HOME") or "/") / ".pulumi")


def _logged_in(home: Path) -> str:
    try:
        return str(json.loads((home / "credentials.json").read_text()).get("current") or "")
    except (OSError, ValueError, AttributeError):
        return ""


class StackError(BoxError):
    """Pulumi ended with an error; what it printed says why."""


def up() -> None:
    """Returns when everything is there and ready. Raises StackError."""
    if LOCAL not in _stacks():
        _pulumi("stack", "init", LOCAL)
    _clear_interrupted_run()
    # --refresh: the state must not claim what a new or half-killed cluster does not have.
    _pulumi("up", "--yes", "--skip-preview", "--refresh", "--stack", LOCAL)


def down() -> None:
    """Returns when all resources are gone; the stack stays, empty. Raises StackError."""
    if LOCAL in _stacks():
        _clear_interrupted_run()
        _pulumi("destroy", "--yes", "--skip-preview", "--stack", LOCAL)


def forget() -> None:
    """Idempotent. Raises StackError."""
    if (EBB_HOME / "pulumi" / "state").exists() and LOCAL in _stacks():  # without one, no Pulumi need be built to find none
        _pulumi("stack", "rm", LOCAL, "--force", "--yes", "--preserve-config", quiet=True)


def _clear_interrupted_run() -> None:
    """A killed Pulumi leaves operations of which it does not know how they ended; its lock is the launcher's to remove."""
    state = json.loads(_pulumi("stack", "export", "--stack", LOCAL, quiet=True))
    if state["deployment"].get("pending_operations"):
        _pulumi("refresh", "--yes", "--skip-preview", "--clear-pending-creates", "--stack", LOCAL)


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
