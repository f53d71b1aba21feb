"""A training as it goes on spot machines: its metric lines and its ElasticJob, made from a few moments. No clock, no chance."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ebb.api.clock import stamp, unix
from ebb.kube import Object
from tests.cli.world import elastic_job

BEGIN = unix("2026-11-21T12:00:00Z") or 0.0  # world.elastic_job's creation
BATCH = 64
Moments = Sequence[tuple[float, int, int]]
MOMENTS: Moments = ((40.0, 2, 0), (70.0, 1, 1), (82.0, 2, 0), (120.0, 3, 0))


def metric_lines(
    moments: Moments = MOMENTS,
    *,
    until: float = 180.0,
    every: int = 1,
    rate: float = 0.02,
) -> Iterator[dict[str, Any]]:
    """`moments`: (seconds after submission, world size, steps that are done again), each a generation that begins there; the one
    before it made its last step two seconds earlier. A step takes 0.4 s divided by the world size."""
    step, useful, lost, redone = 0, 0.0, 0.0, 0
    for number, (at, world, again) in enumerate(moments):
        last = number + 1 == len(moments)
        stop = until if last else moments[number + 1][0] - 2.0
        seconds = 0.4 / world
        step, redone, useful, lost = (
            step - again,
            redone + again,
            useful - again * 0.2,
            lost + (2.0 if number else 0.0) + again * 0.2,
        )
        now = at
        while now + seconds <= stop + 1e-6:
            now, step, useful = now + seconds, step + 1, useful + seconds
            if step % every == 0:
                wave = 0.15 * math.exp(-rate * step) * math.sin(step * 1.7)
                yield {
                    "time": round(BEGIN + now, 3),
                    "step": step,
                    "total_steps": 1000,
                    "epoch": round(step * BATCH / 1438, 3),
                    "loss": round(2.3 * math.exp(-rate * step) + 0.05 + wave, 5),
                    "samples_per_second": round(BATCH / seconds, 1),
                    "world_size": world,
                    "generation": number + 1,
                    "useful_seconds": round(useful, 3),
                    "lost_seconds": round(lost, 3),
                    "steps_redone": redone,
                    "checkpoint_seconds": 0.5,
                    "checkpoint_step": step - step % 20,
                    "step_seconds": round(seconds, 4),
                    "data_seconds": 0.01,
                    "samples": step * BATCH,
                    "figures": {"top1": round(1 - math.exp(-rate * step), 4)},
                }


def text(lines: Iterator[dict[str, Any]]) -> bytes:
    """metrics.jsonl."""
    return b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)


def job(name: str = "digits", *, state: str = "Succeeded", end: float = 182.0, **changes: Any) -> Object:
    """Finished, with the history of the moments above; its last machines were in another zone."""
    history = [
        {"at": _at(1.0), "what": "placed", "cause": "local-a"},
        {"at": _at(67.5), "what": "reclaimed", "worker": 1, "node": "spot-t4-local-a-x1b2c", "cause": "ReclaimNotice"},
        {"at": _at(81.0), "what": "placed", "cause": "local-b"},
        {"at": _at(182.0), "what": "ended", "cause": "ElasticJobSucceeded"},
    ]
    cost = {"usdSpent": 0.0185, "usdOnDemand": 0.0617, "machineSeconds": 352.0, "at": _at(end)}
    made = elastic_job(
        name,
        state=state,
        **{
            "completionTime": _at(end),
            "placement": {"zone": "local-b", "capacityType": "spot", "gpuType": "T4"},
            "progress": {
                "step": 900,
                "totalSteps": 1000,
                "loss": 0.06,
                "worldSize": 3,
                "generation": 4,
                "samplesPerSecond": 480.0,
            },
            "reclaims": 1,
            "history": history,
            "cost": cost,
            **changes,
        },
    )
    made["status"]["state"] = state
    return made


def _at(seconds: float) -> str:
    return stamp(BEGIN + seconds, digits=3)
