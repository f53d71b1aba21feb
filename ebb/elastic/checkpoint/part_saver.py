"""A saver of checkpoints in parts: the ranks of one pod, in one rhythm.

    saver = PartSaver(folder, fence, cadence=..., writer=rank, optimizer=optimizer, pod=pod)      # otherwise as saver.py

Every rank of the pod copies and writes the part that it has. The first one also writes the rest, waits for the word of the others
that theirs is on the disk, and commits them all at once: the manifest names every part with its sha256. Whichever rank is killed
when, there is no manifest without all of its parts. Where one cannot write, none of them counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ebb.elastic.checkpoint.errors import CheckpointError, NotWritten
from ebb.elastic.checkpoint.manifest import Manifest, name_of
from ebb.elastic.checkpoint.parts import dump_rows, split
from ebb.elastic.checkpoint.saver import Saver, State
from ebb.elastic.checkpoint.state import dump

_PART_SECONDS = 600.0  # all ranks write at the same time; one that is gone takes its pod with it


class Words(Protocol):
    """The part of runtime.pod.Exchange that is needed here."""

    def tell(self, name: str, word: object) -> None: ...
    def hear(self, name: str, *, seconds: float) -> Any: ...


class PartOwner(Protocol):
    """The part of runtime.pod.Pod that is needed here."""

    rank: int
    size: int

    def any(self, flag: bool) -> bool: ...
    def exchange(self, name: str) -> Words: ...


class PartSaver(Saver):
    """Of one rank. Its methods are called on all ranks of the pod at the same step boundary."""

    def __init__(self, *arguments: Any, pod: PartOwner, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._pod = pod
        self._words = pod.exchange("parts")
        self._last: tuple[str, object] = ("", None)  # the name of the last checkpoint, and this rank's word of its part
        self._tries = 0  # of last checkpoints, on all ranks of the pod alike: each try has words of its own

    def maybe_save(self, step: int, take_state: Callable[[], State], *, soon: bool = False) -> None:
        """As Saver's; the first rank says whether one is due."""
        self._soon |= soon
        prepares = not self._prepared
        due = self._pod.rank == 0 and not prepares and self._is_due()
        if self._pod.any(self._busy()):
            self._raise_failure()
            return
        if self._pod.any(prepares):
            self._prepared = True
            self._start(self._buffers.prepare, self._form(take_state()))
        elif self._pod.any(due):
            self._begin(step, take_state, {})
        self._raise_failure()

    def _on_any(self, flag: bool) -> bool:
        return self._pod.any(flag)

    def _try_again(self) -> None:
        self._last, self._tries = ("", None), self._tries + 1

    def _form(self, state: State) -> State:
        head, rows = split(state)
        return {"head": head, "rows": rows} if self._pod.rank == 0 else {"rows": rows}

    def _facts(self) -> dict[str, Any]:
        """Those of the boundary at which all ranks are: each of their threads may come to it in another generation."""
        return {"generation": self._fence.generation, "writer": self._writer - self._pod.rank}

    def _put(self, tree: State, step: int, facts: dict[str, Any]) -> Manifest | None:
        name = name_of(facts["generation"], step, facts["writer"])
        word = self._write_part(name, tree["rows"])
        if self._pod.rank:
            self._words.tell(f"{name}/{self._pod.rank}/{self._tries}", word)
            if isinstance(word, str):
                raise NotWritten(word)
            return None
        return self._folder.write(dump(tree["head"]), step=step, parts=lambda: self._gather(name, word), **facts)

    def _write_part(self, name: str, rows: dict[str, Any]) -> dict[str, Any] | str:
        """Its facts, or the reason why it is not there."""
        if self._last[0] == name and isinstance(self._last[1], dict):
            return self._last[1]
        word: dict[str, Any] | str
        try:
            word = self._folder.write_part(dump_rows(rows), name=name, number=self._pod.rank)
        except CheckpointError as error:
            word = str(error)
        self._last = name, word
        return word

    def _gather(self, name: str, mine: object) -> list[dict[str, Any]]:
        """Raises NotWritten."""
        found = [mine]
        try:
            others = range(1, self._pod.size)
            found += [self._words.hear(f"{name}/{rank}/{self._tries}", seconds=_PART_SECONDS) for rank in others]
        except TimeoutError as error:
            raise NotWritten(f"checkpoint {name} is not complete: {error}") from error
        reasons = [each for each in found if not isinstance(each, dict)]
        if reasons:
            raise NotWritten(str(reasons[0]))
        return found  # type: ignore[return-value]  # facts, all of them
