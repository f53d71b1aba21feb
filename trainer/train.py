"""One worker, from top to bottom: build, resume, train, leave or finish. Run by `python -m trainer`.

Exit codes (trainer/contract.py): 0 trained to the end; 1 the program failed; 138 left at a step boundary after a notice, with
a checkpoint of that step on the disk; 75, for the launcher only: another rank vanished, meet the others again.

Who resumes from what: rank 0 of a new generation reads the newest whole checkpoint and hands its bytes to all. After a loss
the survivors write what they hold (rank 0; if it is the lost one, the next two), so that usually no step is done again.
"""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from trainer import metrics, model
from trainer.account import Account
from trainer.checkpoint import ForeignCheckpointError
from trainer.config import ConfigError, TrainConfig, parse
from trainer.contract import EXIT_FINISHED, EXIT_PEER_LOST, EXIT_PROGRAM_FAILED, EXIT_RECLAIMED
from trainer.data import Batch, DataError, ImageFolder, ImageIndex, batches
from trainer.group import Group, PeerLostError, noticing_loss
from trainer.ledger import Ledger
from trainer.notice import Notice, install
from trainer.order import Plan, Stream, mix
from trainer.result import evaluate, weights_sha256, write_json
from trainer.saver import Cadence, Saver
from trainer.start import agree_on_start, checkpoints, choose_device, index_path, open_ledger
from trainer.step import Step, backward, learning_rate


def main(arguments: list[str]) -> int:
    """The process's edge: errors become sentences and exit codes."""
    notice = install()
    try:
        config = parse(arguments, os.environ)
        notice.leave_within(config.leave_seconds, EXIT_PEER_LOST)
        return train(config, notice)
    except (ConfigError, model.UnknownModelError, DataError, ForeignCheckpointError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return EXIT_PROGRAM_FAILED
    except PeerLostError as error:
        print(f"a peer is gone ({error})", flush=True)
        os._exit(EXIT_PEER_LOST)  # the threads of a broken collective may never end
    except Exception:  # whatever the program raised: its code must be 1 under any launcher
        traceback.print_exc()
        return EXIT_PROGRAM_FAILED


def train(config: TrainConfig, notice: Notice) -> int:
    """Train this rank's part; returns the exit code.

    Raises PeerLostError after the survivors have saved what they hold, and the errors of settings, data and checkpoints.
    """
    torch.set_num_threads(config.threads)
    device = choose_device(config)
    group = Group.join(config.place, device, collective_seconds=config.collective_seconds)
    with group, contextlib.closing(Run.build(config, group)) as run:
        try:
            left = run.steps(notice)
            if group.rank == 0:
                run.saver.save_now(run.step, run.state)
            group.barrier()  # nobody goes before the checkpoint is on the disk
            if left:
                run.say(f"left after step {run.step} with a checkpoint")
                return EXIT_RECLAIMED
            run.finish()
        except PeerLostError:
            run.save_after_loss()
            raise
    return EXIT_FINISHED


@dataclass(kw_only=True)
class Run:
    """Everything of one rank in one generation. `step` is the number of steps done: the weights are those after it."""

    config: TrainConfig
    group: Group
    generation: int
    step: int
    checkpoint_step: int  # the newest checkpoint's, as far as this rank was told; 0: there is none
    stream: Stream
    plan: Plan
    dataset: ImageFolder
    network: torch.nn.Module  # plain; `shared` is the same one with gradients shared between ranks
    shared: torch.nn.Module
    optimizer: torch.optim.SGD
    saver: Saver
    account: Account
    lines: metrics.MetricLines
    board: metrics.Board
    ledger: Ledger | None

    @classmethod
    def build(cls, config: TrainConfig, group: Group) -> "Run":
        """Agree on the generation, resume, and prepare all parts. Rank 0 reads the shared folder, the others follow."""
        start = agree_on_start(config, group)
        generation, found = start.generation, start.found
        index = ImageIndex.load_or_scan(config.data / "train", index_path(config, "train"))
        stream = Stream(dataset_size=len(index), epochs=config.epochs, global_batch=config.global_batch, seed=config.seed)

        torch.manual_seed(config.seed)
        network = model.build(config.arch, len(index.classes)).to(group.device)
        optimizer = torch.optim.SGD(
            network.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
        )
        saved: dict[str, Any] = {}
        if found is not None:
            saved = found.state()
            network.load_state_dict(saved["network"])
            optimizer.load_state_dict(saved["optimizer"])
        step = found.manifest.step if found else 0

        lines = metrics.MetricLines(config.output / "metrics.jsonl")
        run = cls(
            config=config,
            group=group,
            generation=generation,
            step=step,
            checkpoint_step=step,
            stream=stream,
            plan=Plan(
                stream=stream,
                first_step=step,
                rank=group.rank,
                world_size=group.world_size,
                max_micro_batch=config.max_micro_batch,
            ),
            dataset=ImageFolder(index, image_size=config.image_size, augment=config.augment, seed=config.seed),
            network=network,
            # every rank loaded the same weights; see model.py for the buffers
            shared=network if group.world_size == 1 else DistributedDataParallel(network, forward_sync_buffers=False),
            optimizer=optimizer,
            saver=Saver(checkpoints(config), generation=generation, cadence=_cadence(config), writer=group.rank),
            account=Account.resume(saved.get("account"), resumed_step=step, last=lines.last),
            lines=lines,
            board=metrics.Board(),
            ledger=open_ledger(config, group, start, stream) if config.ledger else None,
        )
        if config.metrics_port and config.place.local_rank == 0:
            metrics.serve(run.board, config.metrics_port)
        resumed = f"resumed after step {step} of generation {found.manifest.generation}" if found else "from the start"
        run.say(f"generation {generation}: {group.world_size} ranks, {resumed}; {stream.total_steps} steps in all")
        return run

    def steps(self, notice: Notice) -> bool:
        """Train until the end (False) or until the ranks agree to leave (True)."""
        loader = batches(self.dataset, self.plan, workers=self.config.workers, pin_memory=self.group.device.type == "cuda")
        empty = _empty_batch(self.config.image_size)
        self.shared.train()
        self.account.begin(time.time())
        while self.step < self.stream.total_steps:
            started = time.monotonic()
            with noticing_loss():
                loss = self._gradient(loader, empty)
            logged = (self.step + 1) % self.config.log_every == 0 or self.step + 1 == self.stream.total_steps
            newest = max(self.checkpoint_step, self.saver.saved_step)
            agreement = self.group.agree(notice.seen, loss.item() if logged else 0.0, newest)
            self.optimizer.step()
            self.step += 1
            leave, mean_loss, self.checkpoint_step = agreement.wait()
            notice.wait(self.config.min_step_seconds - (time.monotonic() - started))
            self._account(time.monotonic() - started, mean_loss, logged)
            if leave:
                return True
            if self.group.rank == 0:
                self.saver.maybe_save(self.step, self.state)
        return False

    def _gradient(self, loader: Iterator[Batch], empty: Batch) -> torch.Tensor:
        """This step's gradient, and this rank's part of its loss."""
        config, number = self.config, self.step
        rate = learning_rate(
            number,
            peak=config.lr,
            total_steps=self.stream.total_steps,
            warmup_steps=round(config.warmup_epochs * self.stream.dataset_size / config.global_batch),
        )
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        torch.manual_seed(mix(config.seed, number, self.group.rank))  # dropout and the like: the same in a step done again
        step = Step(
            num_micro_batches=len(self.plan.micro_batches(number)),
            num_samples=self.stream.step(number).size,
            world_size=self.group.world_size,
            label_smoothing=config.label_smoothing,
        )

        def write_down(ids: list[int]) -> None:
            if self.ledger is not None:
                self.ledger.write(number, ids)

        return backward(self.shared, loader, step, empty=empty, device=self.group.device, before_sharing=write_down)

    def _account(self, seconds: float, loss: float, logged: bool) -> None:
        self.account.useful_seconds += seconds
        if not logged:
            return
        self.account.checkpoint_seconds += self.saver.take_cost()
        progress = metrics.Progress(
            time=time.time(),
            step=self.step,
            total_steps=self.stream.total_steps,
            epoch=round(min(self.step * self.config.global_batch / self.stream.dataset_size, self.config.epochs), 3),
            loss=round(loss, 5),
            samples_per_second=round(self.stream.step(self.step - 1).size / seconds, 1),
            world_size=self.group.world_size,
            generation=self.generation,
            useful_seconds=round(self.account.useful_seconds, 3),
            lost_seconds=round(self.account.lost_seconds, 3),
            steps_redone=self.account.steps_redone,
            checkpoint_seconds=round(self.account.checkpoint_seconds, 3),
            checkpoint_step=self.checkpoint_step,
        )
        self.board.show(progress)
        if self.group.rank == 0:
            self.lines.write(progress)
        self.say(
            f"step {progress.step}/{progress.total_steps}  epoch {progress.epoch:.2f}  loss {progress.loss:.4f}  "
            f"{progress.samples_per_second:.0f} samples/s  world {progress.world_size}  generation {progress.generation}"
        )

    def state(self) -> dict[str, Any]:
        """A copy on the CPU of what a checkpoint keeps: training may go on while it is written."""
        network = {name: tensor.detach().cpu().clone() for name, tensor in self.network.state_dict().items()}
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {
            number: {key: value.cpu().clone() if isinstance(value, torch.Tensor) else value for key, value in slots.items()}
            for number, slots in optimizer["state"].items()
        }
        return {"network": network, "optimizer": optimizer, "account": self.account.saved(), "config": _plain(self.config)}

    def save_after_loss(self) -> None:
        """A peer is gone: keep the steps that are done. On a GPU the last ones may be the result of a broken collective."""
        self.saver.finish()
        if self.group.device.type != "cpu":
            return
        self.group.abandon()
        if self.group.rank == 0:
            self.saver.save_now(self.step, self.state)
            self.group.announce_saved()
        elif not self.group.saved_by_rank_zero() and self.group.rank <= 2:
            self.saver.save_now(self.step, self.state)

    def finish(self) -> None:
        """Evaluate the final weights and write result.json."""
        correct, samples = evaluate(self.network, self.config, self.group)
        result = {
            "test_accuracy": round(correct / samples, 5),
            "test_samples": samples,
            "step": self.step,
            "generation": self.generation,
            "epochs": self.config.epochs,
            "weights_sha256": weights_sha256(self.network),
            **self.account.saved(),
            "finished_at": time.time(),
        }
        if self.group.rank == 0:
            write_json(self.config.output / "result.json", result)
        self.say(
            f"finished after step {self.step}: test accuracy {result['test_accuracy']:.4f} on {result['test_samples']} images"
        )
        self.group.barrier()

    def close(self) -> None:
        self.lines.close()
        if self.ledger is not None:
            self.ledger.close()

    def say(self, text: str) -> None:
        if self.group.rank == 0:
            print(text, flush=True)


def _cadence(config: TrainConfig) -> Cadence:
    return Cadence(
        shortest_seconds=config.checkpoint_min_seconds,
        longest_seconds=config.checkpoint_seconds,
        overhead=config.checkpoint_overhead,
    )


def _empty_batch(side: int) -> Batch:
    return Batch(torch.zeros((2, 3, side, side), dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), [])


def _plain(config: TrainConfig) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in vars(config).items() if name != "place"}
