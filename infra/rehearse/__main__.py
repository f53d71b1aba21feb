"""A rehearsal of a whole stack in its account: up, up again, a GPU job, a reclaim, refresh, destroy, leftovers.

    python -m infra.rehearse -s dev --budget 10

The stack has to be there (pulumi stack init) and empty: it ends with a destroy. The last line is one JSON object; everything that
was printed is in build/rehearsals/<stack>-<time>/transcript.txt.
"""

import asyncio
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import yaml

from ebb.kube import NODES, Kube
from infra import clouds, commands, config
from infra.account import costs
from infra.cloud import Reclaims
from infra.config import ROOT, ConfigError, Stack
from infra.rehearse.budget import Budget
from infra.rehearse.rehearsal import Rehearsal, RehearsalPlan
from infra.rehearse.shell import Shell
from workloads.cluster import SPOT, NodeGroup

FOLDER = ROOT / "build" / "rehearsals"
DEFAULT_USD = 5.0
HELP = """\
THIS COSTS MONEY: it makes the whole stack in the account of your credentials, and destroys it again. The estimate is printed
first; above --budget nothing is begun. When the rest of the budget is just enough to destroy, it destroys; also after an error,
and after Ctrl-C. Rehearsed is the stack's file without its jobs, with what the reclaim needs.
"""
NO_MACHINES = "the mocks of the clouds have no machines: only an account can show it"


def main(arguments: Sequence[str] | None = None) -> int:
    codes = commands.EXIT_CODES.format(good="every promise that could be checked was kept", bad="one was broken")
    parser = commands.parser("infra.rehearse", "Rehearse a stack in its account, from nothing to nothing.", f"{HELP}\n{codes}")
    parser.add_argument("--budget", type=float, default=DEFAULT_USD, metavar="USD", help="spend no more (default: %(default)g)")
    parser.add_argument(
        "--mock", metavar="COMMAND", help="`pulumi` runs against mocks, and COMMAND looks for leftovers: see testing.pulumi.mocks"
    )
    given = parser.parse_args(arguments)
    return commands.run(lambda: _rehearse(given.stack, given.budget, shlex.split(given.mock) if given.mock else None))


def _rehearse(name: str, usd: float, mock: Sequence[str] | None) -> int:
    folder = FOLDER / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    chosen = choose(name, Path.cwd(), folder)
    skipped = skipped_steps(chosen, mock=mock is not None)
    sheet = costs.sheet(chosen.stack)
    machine = chosen.group.usd_per_hour if chosen.group and sheet else 0.0
    budget = Budget(usd, sheet.usd_per_hour_idle if sheet else 0.0, machine, time.monotonic)
    estimate = budget.estimate(job="job" not in skipped)
    commands.say(
        f"estimate: {estimate:.2f} USD of at most {usd:.2f}, at {budget.usd_per_hour:.3f} USD per hour without machines for jobs"
    )
    if estimate > usd:
        raise ConfigError(
            f"budget: {usd:g} USD is below the estimate of {estimate:.2f}; nothing was made. Give --budget (BUDGET=)"
        )
    refuse_unless_empty(name)
    with Shell(folder / "transcript.txt") as shell:
        if mock is None:
            checked = shell.run([sys.executable, "-m", "infra.account.preflight", "-s", name])
            if checked.code != 0:
                commands.conclude({"stack": name, "mock": False, "created": 0, "broken": ["preflight: nothing was made"]})
                return checked.code
        plan = RehearsalPlan(
            stack=name,
            settings=chosen.file,
            group=chosen.group,
            reclaim=partial(chosen.reclaims.reclaim, name, chosen.stack) if chosen.reclaims else None,
            provider_id=provider_id,
            skipped=skipped,
            leftovers=mock or [sys.executable, "-m", "infra.account.leftovers", "-s", name],
        )
        rehearsal = Rehearsal(plan, shell, budget)
        result = rehearsal.run()
        facts = {
            "stack": name, "mock": mock is not None, **asdict(result), "skipped": skipped, "usd_budget": usd,
            "usd_estimate": round(estimate, 2), "usd_spent": 0.0 if mock else round(budget.spent(), 2),
            "transcript": str(folder / "transcript.txt"),
        }  # fmt: skip
        shell.say("")
        for one in result.broken:
            shell.say(f"broken: {one}")
        shell.say(json.dumps(facts))
    return (
        commands.EXIT_INTERRUPTED
        if "interrupted" in result.broken
        else commands.EXIT_BAD
        if result.broken
        else commands.EXIT_GOOD
    )


@dataclass(frozen=True)
class Chosen:
    """A stack's file as it is rehearsed, with the node group of the job and how the cloud reclaims its machines."""

    stack: Stack
    file: Path
    group: NodeGroup | None
    reclaims: Reclaims | None


def choose(name: str, root: Path, folder: Path) -> Chosen:
    """Write the file that is rehearsed into `folder`: the stack's in `root`, with what a reclaim needs, and without jobs: they
    would take machines that nobody has counted. Raises ConfigError."""
    stack = config.read(name, root)
    if getattr(getattr(stack.settings, "storage", None), "data", "") == "protect":
        raise ConfigError(
            f"{stack.cloud}.storage.data: found 'protect', which no destroy gets past; a rehearsal ends with one. Allowed "
            "are keep and delete: rehearse a copy of the file under another stack's name"
        )
    gpus = [one for one in costs.groups_of(stack) if one.instance.gpus and one.max]
    group = min(gpus, key=lambda one: (one.capacity_type != SPOT, one.usd_per_hour), default=None)
    reclaims = clouds.named(stack.cloud).reclaims()
    document = yaml.safe_load((root / f"Pulumi.{name}.yaml").read_text())
    document["config"] = {**document["config"], "ebb:jobs": []}
    if reclaims and group and group.capacity_type == SPOT:
        section = f"ebb:{stack.cloud}"
        document["config"][section] = {**document["config"][section], **reclaims.needed(group.name)}
    folder.mkdir(parents=True)
    file = folder / f"Pulumi.{name}.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return Chosen(config.read(name, folder), file, group, reclaims)


def skipped_steps(chosen: Chosen, *, mock: bool) -> Mapping[str, str]:
    """Step -> the reason why it cannot be done."""
    if mock:
        return {"preflight": "the mocks of the clouds have no account to ask", "job": NO_MACHINES, "reclaim": NO_MACHINES}
    if chosen.group is None:
        return {"job": "the stack has no node group with GPUs", "reclaim": "the stack has no node group with GPUs"}
    if chosen.group.capacity_type != SPOT:
        return {"reclaim": "the stack has no spot machines with GPUs"}
    return {} if chosen.reclaims else {"reclaim": f"{chosen.stack.cloud} takes no machine back on request"}


def refuse_unless_empty(name: str) -> None:
    """Raise ConfigError for a stack that is not there, or has something in it that the destroy would take."""
    words = ["pulumi", "stack", "export", "--stack", name, "--non-interactive"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ConfigError("pulumi is not on PATH: `source ./env` puts it there") from error
    if ran.returncode != 0:
        raise ConfigError(f"`{shlex.join(words)}` ended with {ran.returncode}: {ran.stderr.strip()}")
    resources = json.loads(ran.stdout)["deployment"].get("resources") or []
    if resources:
        raise ConfigError(
            f"stack {name!r} has {len(resources)} resources: a rehearsal ends with a destroy and would take them. Nothing was "
            f"changed. Rehearse a copy: cp Pulumi.{name}.yaml Pulumi.rehearsal.yaml && pulumi stack init --stack rehearsal"
        )


def provider_id(kubeconfig: Path, node: str) -> str:
    """The cloud's name of a Node's machine. Raises KubeError."""

    async def read() -> str:
        async with Kube.connect(str(kubeconfig)) as kube:
            found = await kube.get(NODES, None, node)
            return str(found["spec"].get("providerID", ""))

    return asyncio.run(read())


if __name__ == "__main__":
    sys.exit(main())
