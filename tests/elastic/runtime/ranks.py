"""Several ranks on this machine: together(function, 3, arguments...) gives what each returned, or how it ended."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

from testing.ports import free_port

LIMIT_SECONDS = 120


class Ended:
    """A rank that ended without an answer."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ended) and self.code == other.code

    def __hash__(self) -> int:
        return hash(self.code)

    def __repr__(self) -> str:
        return f"Ended({self.code})"


def together(function: Callable[..., Any], world_size: int, *arguments: Any, waited_for: list[int] | None = None) -> list[Any]:
    """Each rank's answer, in order. Ranks that are not in `waited_for` are killed when those have ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.elastic.runtime.programs"])
    port = free_port()
    ends = [context.Pipe(duplex=False) for _ in range(world_size)]
    ranks = [
        context.Process(target=_one, args=((rank, world_size, port), ends[rank][1], function, arguments))
        for rank in range(world_size)
    ]
    for process, (_, writer) in zip(ranks, ends, strict=True):
        process.start()
        writer.close()
    try:
        answers = _answers([reader for reader, _ in ends], ranks, waited_for or list(range(world_size)))
    finally:
        for process in ranks:
            process.kill()  # those that have not answered; the others have ended
            process.join(LIMIT_SECONDS)
            process.close()
        for reader, _ in ends:
            reader.close()
    return [answers.get(rank) for rank in range(world_size)]


def _answers(readers: list[Any], ranks: list[Any], waited_for: list[int]) -> dict[int, Any]:
    answers = {}
    for rank in waited_for:
        try:
            assert readers[rank].poll(LIMIT_SECONDS), f"rank {rank} has not answered in {LIMIT_SECONDS} s"
            kind, answer = readers[rank].recv()
        except EOFError:
            ranks[rank].join(LIMIT_SECONDS)
            kind, answer = "ended", Ended(ranks[rank].exitcode)
        assert kind != "failed", f"rank {rank}:\n{answer}"
        answers[rank] = answer
    return answers


def _one(place: tuple[int, int, int], answer: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    rank, world_size, port = place
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world_size))
    os.environ.update(OMP_NUM_THREADS="1", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world_size))
    try:
        answer.send(("answered", function(*arguments)))
    except BaseException:
        answer.send(("failed", traceback.format_exc()))
