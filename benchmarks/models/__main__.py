"""Sharded models through losses and joins, beside DistributedDataParallel, their checkpoints, and data in shards."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.verdict import Say, conclude

HELP = """\
1. fsdp_difference: 50 steps of a tiny decoder in two pods of two ranks (fully_shard inside, our sum across). A rank of one is
   lost, a pod joins, the whole other pod is lost after its update, and one more joins. The largest difference of a weight at the
   end, and of a step's loss, from two undisturbed ranks of DistributedDataParallel. Lines have 0 to 12 tokens, which weigh.
   weights_difference: the gradient of those uneven padded batches, by the same two, in the first step, relative to its norm.
2. killed_saves: saves that were cut off by SIGKILL, every second history of them in three parts, after which the newest whole
   checkpoint was not there. Then one is saved by four ranks and loaded by 1, 2, 3 and 6 (loaded_at).
   peak_parts: memory of a rank (VmHWM: pages of files that it maps too) from the moment its model is sharded to the end, in which
   it loads, trains and saves, above what the process had before the model, in units of its part: of the weights, the gradient and
   Adam's two averages. In one pod of two ranks, and in two that load what that one has saved. The copy that is written is such a
   part without its gradient, so less than 2 and a constant: the code that torch loads, and layers that are gathered. Each of the
   eight here is an eighth of the model, and eight times its size are there in a backward pass: weights and gradients of two, and
   the room in which they travel. peak_parts_with_snapshots: the same with a snapshot of each step, for the loss of all processes:
   two more copies like the one that is written, in memory that the launcher lends, so 1.5 parts more.
3. streams_lost, streams_repeated: samples of WebDataset's tars, of MosaicML's MDS shards and of parquet, all written by their own
   libraries and read from a store, through 50 histories each of machines that leave, are lost in a step or throw the job back to
   a checkpoint, and join (streams_changes): those that were not trained on in an epoch, or twice. Their contents say which they
   are.

Everything runs on this machine's CPUs, over gloo. The last line is one JSON object.

exit status: 0 the promises are kept, 1 one is broken, 2 it could not be run, 130 interrupted
"""
LIMITS = {
    "fsdp_difference": 1e-5,
    "weights_difference": 1e-6,
    "streams_lost": 0,
    "streams_repeated": 0,
    "killed_saves": 0,
    "peak_parts": 2.5,
    "peak_parts_with_snapshots": 4.0,
}
_MEMORY = {"recovery": "memory", "checkpoint_seconds": 1e6, "checkpoint_min_seconds": 1e6}
_POINTS = 200
_LIMIT_SECONDS = 900.0  # of a run of pods on a busy machine; seconds on an idle one
_READERS = (1, 2, 3, 6)


def measure(folder: Path, say: Say) -> dict[str, Any]:
    """All figures. Raises AssertionError where a run does not come to its end."""
    from tests.elastic.checkpoint import kill_points  # noqa: PLC0415 - with torch, which --help does without
    from tests.elastic.data.streams import histories, written  # noqa: PLC0415
    from tests.elastic.runtime import pods, shard_memory  # noqa: PLC0415
    from tests.elastic.runtime.ranks import together  # noqa: PLC0415
    from tests.elastic.runtime.test_sharding import difference, losses  # noqa: PLC0415

    found: dict[str, Any] = {}
    say("two ranks of DistributedDataParallel, 50 steps")
    stock, _ = together(pods.alone, 2, pods.Program(output=folder / "ddp", settings={"recovery": "restart"}))
    say("two pods of two ranks: a rank is lost, a pod joins, a pod is lost, a pod joins")
    program = pods.Program(
        output=folder / "pods",
        settings=_MEMORY,
        dies={"b": (10, [1], "pass"), "a": (30, [0, 1], "body")},
        joins={"c": 20, "d": 40},
    )
    answers = pods.play(program, limit_seconds=_LIMIT_SECONDS)
    ours, theirs = losses(folder / "pods"), losses(folder / "ddp")
    last = [answer for pod in answers.values() for answer in pod if answer is not None]
    found["fsdp_difference"] = max(
        *(difference(answer["weights"], stock["weights"]) for answer in last),
        *(abs(loss - theirs[step]) for step, loss in ours.items()),
    )
    found["steps_compared"] = len(ours)
    say("the gradient of one step, by two pods of two and by one process")
    alone, _ = together(pods.alone, 2, pods.Program(output=folder / "one", settings={"recovery": "restart"}, stop_at=0))
    shared = pods.play(pods.Program(output=folder / "four", settings=_MEMORY, stop_at=0), limit_seconds=_LIMIT_SECONDS)["a"][0]
    found["weights_difference"] = pods.relative(shared["gradient"], alone["gradient"])
    say("saved by four ranks, loaded by others")
    saved = folder / "saved"
    pods.play(pods.Program(output=saved, settings=_MEMORY, stop_at=9), pods=1, size=4, limit_seconds=_LIMIT_SECONDS)
    found["loaded_at"] = []
    for size in _READERS:
        copy = folder / f"read-by-{size}"
        shutil.copytree(saved, copy)
        read = pods.play(
            pods.Program(output=copy, settings=_MEMORY, stop_at=14), pods=1, size=size, limit_seconds=_LIMIT_SECONDS
        )["a"]
        right = all(answer["resumed"] == 10 for answer in read)
        if right and all(abs(loss - theirs[step]) < LIMITS["fsdp_difference"] for step, loss in losses(copy).items()):
            found["loaded_at"].append(size)
        say(f"loaded by {size}: {'the same losses' if size in found['loaded_at'] else 'WRONG'}")
    played = histories.Played()
    for format in written.FORMATS:
        say(f"{histories.HISTORIES} histories of {format}")
        played.add(histories.play_all(folder / "streams", format))
    found["streams_lost"], found["streams_repeated"] = played.lost, played.repeated
    found["streams_changes"], found["streams_samples"] = played.changes, played.samples
    found["streams_histories"] = histories.HISTORIES * len(written.FORMATS)
    say(f"a writer is killed at {_POINTS} points of its saves")
    verdict = kill_points.prove(folder / "killed", _POINTS, 0)
    found["kill_points"] = verdict["kill_points"]
    found["killed_saves"] = len(verdict["wrong"])  # type: ignore[arg-type]  # a list
    say("the memory of two ranks that load and save")
    found |= shard_memory.measure(folder / "memory")
    return found


def judge(found: dict[str, Any]) -> list[str]:
    """The promises that are broken, in words."""
    broken = [f"{name} is {found[name]:g}, and may be {limit:g} at most" for name, limit in LIMITS.items() if found[name] > limit]
    if missing := sorted(set(_READERS) - set(found["loaded_at"])):
        broken.append(f"a checkpoint of four ranks could not be loaded by {missing}")
    return broken


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models", description=__doc__, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return conclude("models", measure, judge, failures=(AssertionError, OSError))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
