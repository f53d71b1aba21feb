"""The play: `python -m devcluster.demo [--started UNIX_SECONDS]`. Exit code 0 only if every promise of the demo was kept.

The last line of standard output is one JSON object with the figures of the run. It may be interrupted at any moment and started
again: the devcluster and the stack heal, the old job is deleted, a new one is trained.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from devcluster.cloud.charges import read_charges
from devcluster.demo import figures
from devcluster.demo.figures import ReclaimedMachine
from devcluster.demo.story import CommandFailed, Story, TookTooLong
from devcluster.settings import Box
from ebb.kube import ELASTIC_JOBS, NODE_GROUPS, NODES, PODS, Kube, KubeError, NotFound, Object

JOB, NAMESPACE = "digits", "elastic-job"
EBB = Path(sys.executable).with_name("ebb")
NOTICE_SECONDS = 30
EPOCHS = 9  # 211 steps: enough that four membership changes fit in, each of which costs steps that fewer workers make
PACE_SECONDS = 0.2  # on a fast machine a step takes a hundredth of this, and the job would end before anything happened to it
STEPS_BETWEEN = 12  # full-strength steps to watch before the next thing happens; more than one checkpoint apart
TARGET_ACCURACY = 0.95
BOOT_LIMIT_SECONDS = 180.0
STEP_LIMIT_SECONDS = 240.0

SUBMIT = [
    *["submit", "--name", JOB, "--gpus", "2", "--gpu", "T4", "--min", "1", "--max", "4", "--"],
    *["-m", "trainer", "--data", "/mnt/data/digits", "--arch", "resnet18", "--image-size", "32", "--epochs", str(EPOCHS)],
    *["--global-batch", "64", "--min-step-seconds", str(PACE_SECONDS), "--log-every", "1", "--ledger"],
]


class Play:
    """One run of the demo: the story so far and what was measured."""

    def __init__(self, story: Story, box: Box, kube: Kube) -> None:
        self.story, self.box, self.kube = story, box, kube
        self.zones: list[list[str]] = []
        self.reclaims: list[ReclaimedMachine] = []
        self.output = Path()
        self.told_step = 0

    async def ebb(self, what: str, *arguments: str) -> None:
        await self.story.run(what, [str(EBB), *arguments])

    async def clear_the_stage(self) -> None:
        """An interrupted demo may have left its job."""
        try:
            await self.kube.get(ELASTIC_JOBS, NAMESPACE, JOB)
        except NotFound:
            return
        await self.ebb("an earlier demo left its job: deleting it", "delete", JOB)

    async def submit(self) -> None:
        machines = await self.spot_machines()
        self.story.tell(f"submit a job of 2 workers (1 to 4) while {len(machines)} spot machines run")
        await self.ebb("submitting", *SUBMIT)
        uid = (await self.job())["metadata"]["uid"]
        self.output = self.box.volumes / "shared" / "output" / NAMESPACE / f"{JOB}-{uid[:8]}"

    async def job(self) -> Object:
        return await self.kube.get(ELASTIC_JOBS, NAMESPACE, JOB)

    async def pods(self) -> list[Object]:
        return await self.kube.list(PODS, NAMESPACE, labels=f"job-name={JOB}")

    async def spot_machines(self) -> list[Object]:
        return await self.kube.list(NODES, labels="ebb.dev/capacity-type=spot")

    def lines(self) -> list[figures.Line]:
        """The job's metrics lines; a line that is still being written is left for the next look."""
        path = self.output / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    async def look(self) -> list[figures.Line]:
        """One look at the running job: notes zones, shows the newest step, fails when the job has failed."""
        running = [pod for pod in await self.pods() if pod["status"].get("phase") == "Running"]
        zone_of = {
            node["metadata"]["name"]: node["metadata"]["labels"].get("topology.kubernetes.io/zone", "")
            for node in await self.spot_machines()
        }
        self.zones.append([zone_of.get(pod["spec"]["nodeName"], "") for pod in running if pod["spec"]["nodeName"] in zone_of])
        lines = self.lines()
        if lines and lines[-1]["step"] >= self.told_step + 5:
            self.told_step = lines[-1]["step"]
            self.story.say(
                "  step {step}/{total_steps}  loss {loss:.3f}  workers {world_size}  generation {generation}".format(**lines[-1])
            )
        failed = [
            c
            for c in (await self.job()).get("status", {}).get("conditions", [])
            if c["type"] == "Failed" and c["status"] == "True"
        ]
        if failed:
            raise CommandFailed(f"the job failed: {failed[0].get('message')}. See: ebb logs {JOB}")
        return lines

    async def trained(self, world_size: int, steps: int, after: float = 0.0) -> float:
        """Wait until that many workers made that many steps together after a moment; returns the time of the first."""

        async def enough() -> float | None:
            lines = [line for line in await self.look() if line["time"] > after]
            together = [
                line for line in lines if line["world_size"] == world_size and line["generation"] == lines[-1]["generation"]
            ]
            return together[0]["time"] if len(together) >= steps else None

        return await self.story.until(f"{world_size} workers training together", enough, limit_seconds=STEP_LIMIT_SECONDS)

    async def machines_of_job(self) -> None:
        """Wait for the first machines, and say where they booted."""

        async def two() -> list[Object] | None:
            nodes = await self.spot_machines()
            return nodes if len(nodes) >= 2 else None

        nodes = await self.story.until("spot machines booting", two, limit_seconds=BOOT_LIMIT_SECONDS)
        zones = {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in nodes}
        self.story.tell(f"{len(nodes)} spot machines booted in {' and '.join(sorted(zones))}")

    async def reclaim(self, *, notice: bool) -> None:
        """Take away the machine under one of the workers, any of them, as a cloud does."""
        pod = random.choice([pod for pod in await self.pods() if pod["status"].get("phase") == "Running"])  # noqa: S311 - no secret
        node = pod["spec"]["nodeName"]
        how = ["--notice", str(NOTICE_SECONDS)] if notice else ["--no-notice"]
        self.story.tell(
            f"take away {node} under {pod['metadata']['name']} " + ("with notice" if notice else "with kill -9, no notice")
        )
        self.reclaims.append(ReclaimedMachine(time.time(), notice, wanted=2))
        await self.story.run("reclaiming", [sys.executable, "-m", "devcluster", "reclaim", node, *how])
        back = await self.trained(
            2, STEPS_BETWEEN, after=self.reclaims[-1].at + figures.recovery_seconds(await self.came_back(), self.reclaims[-1])
        )
        self.story.tell(f"both workers train again, {back - self.reclaims[-1].at:.1f} s after the reclaim")

    async def came_back(self) -> list[figures.Line]:
        """Wait for the first step of a later generation; returns the lines so far."""

        async def stepped() -> list[figures.Line] | None:
            lines = await self.look()
            try:
                figures.recovery_seconds(lines, self.reclaims[-1])
            except figures.MissingFigure:
                return None
            return lines

        lines = await self.story.until("the remaining worker carrying on", stepped, limit_seconds=STEP_LIMIT_SECONDS)
        self.story.tell(f"training went on after {figures.recovery_seconds(lines, self.reclaims[-1]):.1f} s without a step")
        return lines

    async def grow(self) -> float:
        asked = time.time()
        await self.ebb("scaling", "scale", JOB, "3")
        self.story.tell("scale the job to 3 workers")
        await self.trained(3, 3, after=asked)
        seconds = figures.joined_seconds(self.lines(), asked, 3)
        self.story.tell(f"three workers train together {seconds:.1f} s later")
        return seconds

    async def finish(self) -> Object:
        async def result() -> Object | None:
            await self.look()
            conditions = (await self.job())["status"].get("conditions", [])
            if not any(c["type"] == "Succeeded" and c["status"] == "True" for c in conditions):
                return None
            parsed: Object = json.loads((self.output / "result.json").read_text())
            return parsed

        answer = await self.story.until("training to the end", result, limit_seconds=600)
        self.story.tell(f"the job finished: test accuracy {answer['test_accuracy']:.3f}")
        return answer

    async def back_to_zero(self) -> int:
        async def left() -> int | None:
            groups = [g for g in await self.kube.list(NODE_GROUPS) if g["spec"]["capacityType"] == "spot"]
            machines = sum(g.get("status", {}).get("machines", 0) for g in groups) + len(await self.spot_machines())
            return 0 if machines == 0 else None

        machines = await self.story.until("idle spot machines leaving", left, limit_seconds=120)
        self.story.tell("all spot machines are gone")
        return machines


async def perform(play: Play) -> dict[str, Any]:
    """The acts in order; returns the figures."""
    began = time.time()
    await play.clear_the_stage()
    await play.submit()
    await play.machines_of_job()
    await play.trained(2, STEPS_BETWEEN)
    play.story.tell("two workers train together")
    await play.reclaim(notice=True)
    await play.reclaim(notice=False)
    joined = await play.grow()
    result = await play.finish()
    verdict = await judge(play.output)
    lost, repeated = verdict["samples_lost"], verdict["samples_repeated"]
    play.story.tell(f"the ledger: {lost} samples lost, {repeated} repeated, {verdict['steps_redone']} steps redone")
    at_end = await play.back_to_zero()
    lines = play.lines()
    return {
        "kubernetes": (await play.kube.request("GET", "/version"))["gitVersion"],
        "zones_used": figures.most_zones_at_once(play.zones),
        "machines_booted": booted_since(play.box, began),
        "reclaims": len(play.reclaims),
        "recovery_seconds": [round(figures.recovery_seconds(lines, r), 1) for r in play.reclaims],
        "full_size_seconds": [round(figures.full_size_seconds(lines, r), 1) for r in play.reclaims],
        "grow_seconds": round(joined, 1),
        "samples_lost": verdict["samples_lost"],
        "samples_repeated": verdict["samples_repeated"],
        "steps_redone": verdict["steps_redone"],
        "ledger_problems": verdict["problems"],
        "test_accuracy": round(result["test_accuracy"], 4),
        "machines_at_end": at_end,
    }


async def judge(output: Path) -> dict[str, Any]:
    """The independent checker's verdict on the samples: a process of its own, which shares nothing with the demo."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "testing.exactness", str(output), stdout=PIPE)
    said, _ = await process.communicate()
    found: dict[str, Any] = {"samples_lost": None, "samples_repeated": None, "steps_redone": None, **json.loads(said)}
    return found


def booted_since(box: Box, moment: float) -> int:
    charges = read_charges(box.folder / "machines.jsonl")
    return sum(1 for charge in charges if charge.capacity_type == "spot" and (charge.booted_at or 0.0) >= moment)


def broken_promises(found: dict[str, Any]) -> list[str]:
    """Promises of the demo that this run did not keep, a sentence each."""
    wanted = {
        "zones_used": 1,
        "reclaims": 2,
        "samples_lost": 0,
        "samples_repeated": 0,
        "ledger_problems": [],
        "machines_at_end": 0,
    }
    broken = [f"{key} is {found[key]}, promised {value}" for key, value in wanted.items() if found[key] != value]
    if found["test_accuracy"] < TARGET_ACCURACY:
        broken.append(f"test_accuracy is {found['test_accuracy']}, promised at least {TARGET_ACCURACY}")
    return broken


async def run(started: float) -> int:
    story = Story(started)
    await story.run("the Kubernetes of this machine", [sys.executable, "-m", "devcluster", "up", "--with-pulumi"])
    await story.run("the platform on it, by pulumi up", [sys.executable, "-m", "devcluster", "stack", "up"])
    box = Box.load("ebb")
    async with Kube.connect(str(box.kubeconfig)) as kube:
        found = await perform(Play(story, box, kube))
    broken = broken_promises(found)
    story.retell()
    for promise in broken:
        print(f"BROKEN: {promise}", file=sys.stderr)
    verdict = {"demo": "failed" if broken else "passed", **found, "wall_seconds": round(time.time() - started, 1)}
    print(json.dumps(verdict))
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--started", type=float, default=time.time(), help="unix seconds at which the whole command began")
    try:
        return asyncio.run(run(parser.parse_args().started))
    except (CommandFailed, TookTooLong, KubeError, figures.MissingFigure) as error:
        print(f"\nthe demo stopped: {error}", file=sys.stderr)
        print(json.dumps({"demo": "failed", "why": str(error)}))
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted. `make demo` starts again and uses what is there; `make down` removes everything.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
