"""One optimizer step of the global batch, as a program sees it: this rank's micro-batches, one after the other.

    for step in run.steps(loader):
        for images, labels in step:
            step.backward(criterion(model(images), labels))       # the loss is a mean over the micro-batch
        optimizer.step(); optimizer.zero_grad()

Where a loss is a mean over something else, such as the tokens that are no padding, step.backward(loss, weight=tokens) makes the
step's gradient and loss the mean over those of the whole step (weights.py).

A rank usually has one micro-batch of its share; several where the share is larger than max_micro_batch. A rank without a share (a
last step with fewer samples than ranks) gets one sample that weighs nothing, since the others need it in their collectives.

Where the memory does not suffice, the step begins once more with smaller micro-batches. In step.backward() that needs nothing; an
exception in the loop's own body leaves the loop, unless the body stands in `with step.within_memory():`.
"""

from __future__ import annotations

import contextlib
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ebb.elastic.data.order import Piece, mix
from ebb.elastic.runtime.gradients import Gradients
from ebb.elastic.runtime.loading import Fetched
from ebb.elastic.runtime.micro_batch import is_out_of_memory
from ebb.elastic.runtime.plan import MicroBatch
from ebb.elastic.runtime.process_group import PeerLostError, noticing_loss
from ebb.elastic.runtime.weights import check_weight, refuse_mix
from ebb.elastic.torch_compat import GradScaler


class Sums:
    """Numbers that add up on the device, by name, without waiting for it. `take` does wait."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sums: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def add(self, name: str, value: torch.Tensor | float, weight: float) -> None:
        number = torch.as_tensor(value, device=self._device).detach().double() * weight
        self._sums[name] = self._sums[name] + number if name in self._sums else number

    @property
    def names(self) -> list[str]:
        return sorted(self._sums)

    def copy(self) -> dict[str, torch.Tensor]:
        """For put_back(): the present sums."""
        return dict(self._sums)

    def put_back(self, before: dict[str, torch.Tensor]) -> None:
        self._sums = before

    def take(self, names: list[str]) -> list[float]:
        """The sums of these names, 0 for one that is unknown; all start again from zero."""
        zero = torch.zeros((), dtype=torch.float64, device=self._device)
        values: list[float] = torch.stack([self._sums.get(name, zero) for name in names]).tolist() if names else []
        self._sums = dict.fromkeys(self._sums, zero)
        return values


class Step:
    """`number` steps are done before it. `samples` are its positions in the stream of all epochs."""

    def __init__(
        self,
        *,
        number: int,
        samples: Piece,
        dataset_size: int,
        seed: int,
        micro_batches: list[MicroBatch],
        source: Iterator[Fetched],
        gradients: Gradients,
        sums: Sums,
        write_down: Callable[[int, list[int]], None],
        shared: Callable[[Step], None],
        again: Callable[[Step], bool] | None,
        smaller: Callable[[Step, str, bool], bool] | None,
    ) -> None:
        self.number = number
        self.samples = samples
        self.piece = samples  # positions of the micro-batch that was given last; none in one that weighs nothing
        self.epoch = (samples.stop - 1) // dataset_size  # of its last sample
        self.ends_epoch = samples.stop // dataset_size > samples.start // dataset_size
        self.loss = torch.zeros((), device=sums._device)  # this rank's part of the mean; with weights once the step is through
        self._seed = seed
        self._micro_batches = micro_batches
        self._source = source
        self._gradients = gradients
        self._sums = sums
        self._write_down: Callable[[int, list[int]], None] | None = write_down
        self._shared = shared
        self._again = again
        self._smaller = smaller
        self._no_room = ""  # what was said when this pass ran out of memory
        self._given = False  # the backward pass in which other ranks get this one's gradients has begun
        self._numbers: list[int] = []
        self._now: MicroBatch | None = None  # given, and its loss not yet
        self._weighted: bool | None = None  # by the program; None before the first backward pass
        self._counted = 1.0  # of each sample in it: a half where it comes twice, 0 where it weighs nothing
        self.begun = False  # it has read samples
        self.done = False  # the step's gradient lies in the parameters
        self.counted = False  # its update is done too: the loop's state is the one after it

    def __iter__(self) -> Iterator[Any]:
        """The micro-batches of this rank. When it is through, the gradient of the step lies in the parameters.

        Where a peer is lost meanwhile, and this process goes on with others, they come once more, dealt out anew. Where a pass
        runs out of memory they come once more too, smaller.
        """
        self.begun = True
        while True:
            before = self._sums.copy()
            yield from self._pass()
            if self._no_room:
                assert self._smaller is not None
                self._sums.put_back(before)
                if self._smaller(self, self._no_room, self._gave):
                    continue
                break
            self._tell()
            try:
                with noticing_loss():
                    total = self._gradients.share(self.samples.size)
                if total:
                    self.loss /= total
                break
            except PeerLostError:
                if self._again is None:
                    raise
                if not self._again(self):
                    break
        self.done = True
        self._shared(self)

    def _pass(self) -> Iterator[Any]:
        for micro_batch in self._micro_batches:
            fetched = next(self._source)
            self._numbers += fetched.numbers[: micro_batch.num_samples]
            self._counted = micro_batch.num_samples / len(fetched.numbers)
            if micro_batch.first:
                seed_everything(mix(self._seed, self.number, micro_batch.worker))
            self._gradients.begin(micro_batch)
            self._now, self.piece = micro_batch, micro_batch.piece
            yield fetched.batch
            if self._no_room:
                return
            if self._now is not None:
                raise RuntimeError(f"step {self.number}: call step.backward(loss) once for each micro-batch, before the next one")

    def backward(
        self,
        loss: torch.Tensor,
        *,
        weight: float | torch.Tensor | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        """The backward pass of a micro-batch. `loss` is its mean loss; `scaler` is for gradients in fp16.

        `weight` is what that mean was taken over, such as the number of tokens, where that is not the number of samples. The step
        is then the mean over all of them, on any number of ranks. A micro-batch of weight 0 counts nothing, even if its loss is
        NaN. Give it in every micro-batch or in none. A tensor on a GPU is waited for: better count on the CPU. Raises ValueError
        for a weight that is none, and where all weights of a step are 0.
        """
        if self._now is None:
            raise RuntimeError(f"step {self.number}: step.backward(loss) belongs to a micro-batch, once for each")
        if loss.dim():
            raise ValueError(f"the loss has the shape {tuple(loss.shape)}; it must be one number, the mean over the micro-batch")
        given = self._checked(weight)
        micro_batch, self._now = self._now, None
        if given is None:
            self.loss += loss.detach() * (micro_batch.num_samples / self.samples.size)
        elif given:
            self.loss += loss.detach() * given  # divided when all weights are known
        if micro_batch is self._micro_batches[-1]:
            self._tell()
            self._given = True
        try:
            scaled = loss if scaler is None else scaler.scale(loss)
            factor = self._gradients.weight(micro_batch, self.samples.size, given)
            with noticing_loss(), self._gradients.pass_of_nothing() if given == 0 else contextlib.nullcontext():
                (scaled * factor).backward()  # type: ignore[no-untyped-call]
        except PeerLostError:
            if self._again is None:
                raise
            return  # out of the program's loop: after the pass the step begins once more
        except RuntimeError as error:
            if not self._repeats(error):
                raise
            with contextlib.suppress(RuntimeError):  # of a loss that is a view
                loss.detach_()  # the program may hold it, and with it all that its forward pass has left
            return
        self._gradients.end(micro_batch)

    def _checked(self, weight: float | torch.Tensor | None) -> float | None:
        """The weight of a micro-batch's own samples. Raises ValueError, RuntimeError."""
        given = None if weight is None else check_weight(weight, self.number) * self._counted
        if self._weighted is not None and self._weighted != (given is not None):
            raise refuse_mix("other micro-batches")
        self._weighted = given is not None
        return given

    @contextlib.contextmanager
    def within_memory(self) -> Iterator[None]:
        """Around the body of the loop over micro-batches: where it runs out of memory, the step begins once more with smaller
        ones. What else the body does before its step.backward() then happens again."""
        try:
            yield
        except RuntimeError as error:
            if not self._repeats(error):
                raise

    def _repeats(self, error: RuntimeError) -> bool:
        """True if it ran out of memory in this pass, and the step can begin once more in this process."""
        if self.done or self._smaller is None or not is_out_of_memory(error):
            return False
        if self._again is None and self._gave:
            return False
        self._no_room = str(error).partition("\n")[0]
        traceback.clear_frames(error.__traceback__)  # what the forward pass held
        return True

    @property
    def _gave(self) -> bool:
        """True if other ranks may have got something of this step from here: then they have to begin once more too."""
        return not self._gradients.may_repeat(given=self._given)

    def add(self, **sums: torch.Tensor | float) -> None:
        """Sums over the samples of this micro-batch, such as right answers: the log shows their means over all samples since its
        last line. Give the same names in every micro-batch."""
        for name, value in sums.items():
            self._sums.add(name, value, self._counted)

    def _tell(self) -> None:
        """Write down this rank's samples before it gives its gradients to others."""
        if self._write_down is not None:
            self._write_down(self.number, self._numbers)
            self._write_down = None


def restart(
    step: Step,
    *,
    micro_batches: list[MicroBatch],
    source: Iterator[Fetched],
    write_down: Callable[[int, list[int]], None] | None = None,
) -> None:
    """Nothing of the step is done: these are its micro-batches now. `write_down` is a new generation's; in the same one samples
    that are written down are not written again."""
    step._micro_batches, step._source = micro_batches, source
    step._write_down = write_down or step._write_down
    step._numbers, step._now, step._no_room, step._given = [], None, "", False
    step.loss = torch.zeros_like(step.loss)


def seed_everything(seed: int) -> None:
    """All generators that a forward pass may draw from: dropout is then the same in a step that is done again."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
