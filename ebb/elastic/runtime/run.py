"""Run: what a program has in its hands. ebb/elastic/__init__.py shows how it is used."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import torch
import torch._dynamo  # optimizers import it in their first step, for a second in which all others would wait for a newcomer
from torch.nn.parallel import DistributedDataParallel

from ebb.compat import Self, add_note
from ebb.elastic.checkpoint import Stale
from ebb.elastic.contract import EXIT_PEER_LOST
from ebb.elastic.data import DataError
from ebb.elastic.data.tuning import workers_beside_cpu_training
from ebb.elastic.notices.notice import Notice, install
from ebb.elastic.notices.relay import Relay
from ebb.elastic.runtime import flight_recorder, peer_loss, sharding
from ebb.elastic.runtime.checkpointing import Checkpointing, TrainingState, Weights
from ebb.elastic.runtime.config import ConfigError, RunConfig, resolve
from ebb.elastic.runtime.evaluation import Measure, Stopped, evaluate, listener
from ebb.elastic.runtime.gradients import Gradients, fix_algorithms, share_gradients
from ebb.elastic.runtime.loading import Loader, loader_processes
from ebb.elastic.runtime.loop import GracefulExit, Loop
from ebb.elastic.runtime.loop_setup import make_loop
from ebb.elastic.runtime.members import Members
from ebb.elastic.runtime.metrics import Progress
from ebb.elastic.runtime.micro_batch import NoRoomError, is_out_of_memory, read_limit
from ebb.elastic.runtime.pod import Pod
from ebb.elastic.runtime.process_group import Group, PeerLostError, is_loss
from ebb.elastic.runtime.recovery import Evaluated, Inherited, Recovery, come_in, inherit_beside, meet, ready
from ebb.elastic.runtime.rehearsal import Calls, rehearse
from ebb.elastic.runtime.report import weights_sha256, write_result
from ebb.elastic.runtime.start import Origin, choose_device, decide_recovery, join, move_saver
from ebb.elastic.runtime.step import Step, seed_everything
from ebb.elastic.runtime.watchdog import Watchdog
from ebb.elastic.speed import CompileCache, Speed
from ebb.elastic.speed.memory import give_back_freed_memory, return_freed_memory, take_ahead


def start(config: RunConfig | None = None, *, notice: Notice | None = None, **settings: Any) -> Run:
    """Meet the other ranks; to be used in a `with`. `settings` are the fields of RunConfig: what is not given comes from the
    environment ($EBB_OUTPUT_DIR, $EBB_CHECKPOINT_SECONDS, ...) or has its default.

    Raises ConfigError for a wrong setting, RefusedError when the output folder is another job's.
    """
    if config is None:
        config = resolve(os.environ, **settings)
    if notice is None:
        notice = install()
        notice.leave_within(config.leave_seconds, EXIT_PEER_LOST)
    return Run(config, notice)


class _GoesFirst(Exception):  # not an error
    """This process waits for rank 0, and has become it."""


class Run:
    """One rank, in one generation or, where it recovers in memory, in one after the other."""

    def __init__(self, config: RunConfig, notice: Notice) -> None:
        torch.set_num_threads(config.threads or config.place.cores)
        self.device = choose_device(config)
        self.config = config = decide_recovery(config, os.environ)
        self.output = config.output
        self._notice = notice
        self._noticed = threading.Event()
        self._answers: list[Any] = []  # of other ranks, before the first step
        self._asked = 0
        self._chain: tuple[int, ...] = ()  # a rank, and those that take its state before the first step
        self._inherited: Inherited | None = None  # from the rank that has the state which this one is to take
        self._models: list[torch.nn.Module] = []
        self._pod: Pod | None = None  # of a model that is sharded
        self._checkpointing: Checkpointing | None = None
        self._loop: Loop | None = None
        try:
            self._group = self._join()
        except (PeerLostError, Stale) as error:
            peer_loss.meet_again(error)
        self._watchdog = Watchdog(
            first_seconds=config.first_step_seconds,
            steady_seconds=config.collective_seconds,
            act=self._give_up,
        )
        if self.world_size > 1 or config.recovery == "memory":  # otherwise, alone, there is nobody to wait for
            self._watchdog.start()
        if config.virtual_workers:
            fix_algorithms(self.device)
        seed_everything(config.seed)
        self._summed_as: torch.dtype | None = None  # gradients; None: as they are
        self._listeners: list[Callable[[Progress], None]] = []
        self._finished: tuple[int, dict[str, Any]] | None = None  # as which rank, with which figures

    def _give_up(self, sentence: str) -> None:
        """In the watchdog's thread."""
        if self.device.type == "cuda":
            flight_recorder.keep(self.output, self.rank, say=lambda text: print(f"rank {self.rank}: {text}", flush=True))
        peer_loss.give_up(sentence, self._group, self._noticed)

    def _join(self) -> Group:
        config = self.config
        if config.recovery != "memory":
            group = Group.join(config.place, self.device, longest_seconds=config.first_step_seconds)
            self._start, self._fence = join(config, group)
            return group
        members = Members.enter(config.place, self.device, longest_seconds=config.first_step_seconds)
        if members.beside is not None:
            found = self._inherited = inherit_beside(config, members)
            self._start, self._fence, self._answers = found.start, found.fence, list(found.facts["answers"])
        else:
            self._meet(members)
        return members

    def _meet(self, members: Members) -> None:
        """The present generation, or the next one, with all that this rank has before its first step."""
        mine = ready(self._answers, behind=self._inherited is not None)
        self.config, found = meet(self.config, members, mine, leaving=lambda: self._notice.seen)
        self._start, self._fence, self._chain = found.start, found.fence, found.chain
        if members.rank in found.chain[1:]:
            if len(found.facts["answers"]) < self._asked:
                peer_loss.meet_again(PeerLostError("no process is left that has the job's state"))
            self._inherited, self._answers = found, list(found.facts["answers"])
        if self._checkpointing is not None:
            self._move(self._checkpointing)

    def _move(self, checkpointing: Checkpointing) -> None:
        """Into the present generation."""
        move_saver(checkpointing.saver, self.config, self._start, self._fence, checkpointing.identity)
        if checkpointing.virtual is not None:
            checkpointing.virtual.follow()

    @property
    def rank(self) -> int:
        """In the present generation."""
        return self._group.rank

    @property
    def world_size(self) -> int:
        """In the present generation."""
        return self._group.world_size

    @property
    def generation(self) -> int:
        """Number of the present membership; it only grows."""
        return self._start.generation

    @property
    def step(self) -> int:
        """Optimizer steps done, of the whole job. One under way counts when its body has ended, or evaluates the new weights."""
        return self._loop.step if self._loop else 0

    @property
    def total_steps(self) -> int:
        """Of the whole job; known once the steps have begun."""
        return self._loop.stream.total_steps if self._loop else 0

    @property
    def evaluation_pending(self) -> bool:
        """True when a notice, or a lost machine, has cut an evaluation of the present weights short.

        To be asked at the beginning of the loop's body, and after the loop. The next evaluation or step makes it False.
        """
        return self._loop is not None and self._loop.evaluation_pending

    def distribute(
        self,
        model: torch.nn.Module,
        *,
        shard: bool = False,
        speed: Speed | None = None,
        cache: CompileCache | None = None,
        **options: Any,
    ) -> torch.nn.Module:
        """The model on this rank's device, the same on all ranks, whose gradients are shared. `speed` changes how it is computed;
        `options` are those of DistributedDataParallel.

        `shard`: the ranks of a machine hold it together, each a part of every weight, of its gradient and of the optimizer's
        state (FSDP2's fully_shard, in place). The optimizer is made afterwards. Needs recovery in memory.
        """
        if unknown := options.keys() - _OPTIONS:  # said now, and not by torch when a second machine comes
            allowed = ", ".join(sorted(_OPTIONS))
            raise ConfigError(f"run.distribute({min(unknown)}=...) is no option of DistributedDataParallel; allowed: {allowed}")
        if shard:
            sharding.check(self.config, self._group, options)
        pod_size = self.config.place.local_world_size if shard else 1
        if pod_size == 1:
            model.to(self.device)
        self._answer(lambda: self._group.hand_out_tensors([each.detach() for each in (*model.parameters(), *model.buffers())]))
        if pod_size > 1:
            if self.device.type == "cpu":
                return_freed_memory(os.environ)
            sharding.shard(model, self._meet_pod())
        if speed is not None:
            model = speed.prepare(model, self.device, cache)
        if isinstance(self._group, Members):
            _check_summed(options)
            if speed is not None and speed.compression == "bf16":
                self._summed_as = torch.bfloat16
        elif self.world_size > 1 and not self.config.virtual_workers:
            model = self._shared(model, speed, options)
        self._models.append(model)
        return model

    def _meet_pod(self) -> Pod:
        """Once in the life of a process."""
        relay = Relay.find(os.environ)
        assert isinstance(self._group, Members)
        assert relay is not None, "several ranks on a machine, which recover in memory, have a launcher"
        if self._chain and not (self._inherited is not None and self._inherited.training):
            peer_loss.meet_again(PeerLostError("lost before the first step, in which a sharded model has no second copy"))
        members = self._group
        if self._pod is None:
            self._pod = Pod.meet(
                self.config.place,
                self.device,
                folder=relay.folder,
                longest_seconds=self.config.first_step_seconds,
                raise_if_lost=lambda: members.raise_if_left() if members.beside is None else None,
            )
        return self._pod

    def _shared(self, model: torch.nn.Module, speed: Speed | None, options: dict[str, Any]) -> torch.nn.Module:
        if speed is None:
            return DistributedDataParallel(model, init_sync=False, forward_sync_buffers=False, **options)
        largest_share = -(-self.config.global_batch // self.world_size)
        return speed.wrap(model, self.world_size, accumulates=largest_share > read_limit(self.config, self.device), **options)

    def register_state(
        self,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        identity: dict[str, Any] | None = None,
        evaluated: Weights | None = None,
        **others: Any,
    ) -> None:
        """Register what checkpoints hold: the model, its optimizer, and whatever else has a state_dict, by any name.

        The newest checkpoint is loaded into them. They change after the gradient of a step is there, in the loop's body, and at
        no other time.

        `identity` is what must be the same to go on from a checkpoint, besides the weights' names and shapes, the optimizer, the
        global batch and the seed. `evaluated` gives the weights that validations judge, by the names in the model's state_dict,
        where they are not its own: plain files hold those as the model's, and an evaluation makes them rank 0's. Raises
        RefusedError where something does not fit.
        """
        if not self._models:
            raise RuntimeError("run.register_state() comes after run.distribute(model)")
        if self._pod is not None:
            sharding.check_state(self._models, optimizer, others)
        identity = identity or {}
        arch = str(identity.get("arch", ""))
        kept = TrainingState(model=model, optimizer=optimizer, others=others, arch=arch, evaluated=evaluated)
        self._checkpointing = Checkpointing.open(
            lambda: (self.config, self._start, self._fence),
            self._group,
            kept,
            models=self._models,
            identity=identity,
            answer=self._answer,
            pod=self._pod,
        )
        give_back_freed_memory()  # the bytes and the tensors of a checkpoint

    def loader(
        self, dataset: Any, *, workers: int | None = None, fingerprint: str = "", seeded: bool = True, **options: Any
    ) -> Loader:
        """Set how steps read a map-style dataset: each sample once per epoch, whatever ranks come and go, with `workers` loader
        processes. `options` are those of torch's DataLoader (collate_fn, ...); and `sections`, the number of shards that are read
        side by side, of data in shards (elastic.webdataset, mds, parquet, tokens).

        Random transforms are seeded per sample; `seeded=False` is for a dataset that does so itself (it gets order.Sample). All
        ranks must see the same samples: their number and `fingerprint`, or the dataset's own, are compared with rank 0's.
        Raises DataError when they differ.
        """
        asked = self.config.workers if workers is None else workers
        processes = loader_processes(asked, dataset, self.config, self.device, self.world_size, options=options, say=self.log)
        loader = Loader(dataset, seed=self.config.seed, workers=processes, seeded=seeded, **options)
        loader.facts["fingerprint"] = fingerprint or str(getattr(dataset, "fingerprint", ""))
        first = self._answer(lambda: self._group.hand_out_facts(loader.facts))
        if first != loader.facts:
            raise DataError(
                f"rank {self.rank} sees other data than rank 0: {loader.facts} here, {first} there. All need the same data"
            )
        return loader

    def steps(self, loader: Loader) -> Iterator[Step]:
        """The steps that are left, one after the other.

        Between two of them checkpoints are written, and the program ends (GracefulExit, code 138) when this machine or another
        one has been told to leave.
        """
        if self._checkpointing is None:
            raise RuntimeError(
                "run.steps() comes after run.register_state(model=..., optimizer=...): without it nothing would survive"
            )
        gradients = self._checkpointing.virtual or self._share_gradients()
        calls = Calls(self._models if isinstance(self._group, Members) and self._pod is None else (), self.device)
        names = self._come_in(self._checkpointing) if self._inherited is not None else None
        follows = self._follows(self._checkpointing, loader, calls)
        self._loop = make_loop(
            self.config,
            self._group,
            notice=self._notice,
            watchdog=self._watchdog,
            checkpointing=self._checkpointing,
            loader=loader,
            generation=self.generation,
            models=self._models,
            gradients=gradients,
            listeners=self._listeners,
            follows=follows,
            names=names,
            pod=self._pod,
        )
        if self._chain:
            self._begin_with_others(self._loop, follows)
        if follows is not None:
            follows.tell(self._loop)
        yield from self._loop.steps()

    def _share_gradients(self) -> Gradients:
        if self._pod is not None and isinstance(self._group, Members):
            return sharding.ShardedGradients(self._models, self._group, self._pod, summed_as=self._summed_as)
        return share_gradients(self._models, self._group, summed_as=self._summed_as)

    def _come_in(self, checkpointing: Checkpointing) -> list[str] | None:
        """Among those that train, with their state; returns the names of the program's sums."""
        assert isinstance(self._group, Members)
        assert self._inherited is not None
        if self._pod is None:
            if self._group.beside is not None:
                known = self._inherited.facts.get("calls", [])  # an earlier version's ranks tell none
                rehearse(self._models, self.device, known, say=lambda text: print(text, flush=True))
            take_ahead([each for model in self._models for each in model.parameters()])  # for the state, then for gradients
        with self._watchdog.paused():
            self.config, found, saved = come_in(
                self.config, self._group, self._inherited, leaving=lambda: self._notice.seen, pod=self._pod
            )
        self._inherited, self._start, self._fence, self._chain = found, found.start, found.fence, found.chain
        origin = checkpointing.origin  # as the others have found it together
        if found.training:
            words = f"joined after step {found.step}, with the state of rank {found.chain[0]}"
            origin = Origin(step=found.step, generation=int(found.facts["generation"]), words=words)
        checkpointing.come_in(saved, origin, rank=self.rank)
        self._move(checkpointing)
        names: list[str] | None = found.facts.get("names")
        return names

    def _begin_with_others(self, loop: Loop, follows: Recovery | None) -> None:
        """All wait for those that take a state before their first step. Others give theirs here if they have not begun either."""
        assert isinstance(self._group, Members)
        taken, self._inherited = self._inherited is not None, None
        members = self._group

        def begin() -> None:
            if not taken:
                members.pass_on(self._chain, give=loop.give)
            members.barrier()

        try:
            begin() if self._pod is None else self._pod.together(begin)
        except PeerLostError:
            if follows is None:
                raise
            follows.follow(loop, broken=True)

    def _follows(self, checkpointing: Checkpointing, loader: Loader, calls: Calls) -> Recovery | None:
        if not isinstance(self._group, Members) or not self._group.can_follow:
            return None

        def enter(found: Inherited) -> None:
            self._start, self._fence = found.start, found.fence

        return Recovery(
            config=self.config,
            group=self._group,
            checkpointing=checkpointing,
            loader=loader,
            answers=self._answers,
            start=self._start,
            evaluated=self._inherited.evaluated if self._inherited else Evaluated(),
            through=self._inherited.evaluated.count if self._inherited else 0,
            ended=self._inherited.ended if self._inherited else 0,
            entered=enter,
            calls=calls,
            pod=self._pod,
        )

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """The answer that all ranks get alike before the first step; one that comes later gets what the others got."""
        if self._loop is not None:
            return ask()
        while self._asked == len(self._answers):
            if self._inherited is not None and self._inherited.training:
                raise RuntimeError(
                    "this process asks more of other ranks before its first step than they did: the program differs"
                )
            try:
                self._answers.append(ask())
            except (PeerLostError, Stale):
                # with a sharded model the pod's other ranks may have got the answer
                if not isinstance(self._group, Members) or not self._group.can_follow or self._pod is not None:
                    raise
                self._group.abandon()
                with self._watchdog.paused():
                    self._meet(self._group)
        self._asked += 1
        return self._answers[self._asked - 1]

    def evaluate(
        self, dataset: Any, measure: Measure, *, batch_size: int = 256, workers: int | None = None, **options: Any
    ) -> dict[str, float]:
        """The means of what `measure(batch)` sums up over a batch's samples, by name, over the whole dataset; and `samples`,
        their number. Each rank has a share, nothing is padded, all get the same answer. Without gradients, and in eval mode.

        One that a notice or a loss cuts short is made again from its start: here by the machines that stay, where ranks recover
        in memory. Otherwise all ranks end with a checkpoint of the step (GracefulExit), and new processes do not come back to
        that place in the program: see `evaluation_pending`. So it comes last in the loop's body, after all that a checkpoint
        keeps has changed. A program that validates other weights must not copy them over the model's own: a notice then has to
        wait for its end.
        """
        return dict(self._answer(lambda: self._evaluate(dataset, measure, batch_size, workers, options)))

    def _evaluate(
        self, dataset: Any, measure: Measure, batch_size: int, workers: int | None, options: dict[str, Any]
    ) -> dict[str, float]:
        assert self._checkpointing is not None, "run.evaluate() comes after run.register_state()"
        asked = self.config.workers if workers is None else workers
        processes = min(self.config.place.cores, asked) if asked >= 0 else workers_beside_cpu_training(self.config.place.cores)
        loader = Loader(dataset, seed=self.config.seed, workers=processes, **options)
        more = self._checkpointing.kept.evaluated

        def once(told: Callable[[], bool]) -> dict[str, float]:
            return evaluate(
                self._models, loader, measure, self._group, batch_size=batch_size, told=told, more=more, pod=self._pod
            )

        loop = self._loop
        if loop is not None and isinstance(loop.follows, Recovery):
            return loop.follows.evaluate(loop, once)
        told = listener(self._notice, self._group) if loop is None or loop.begin_evaluation() else lambda: False
        try:
            with self._watchdog.unhurried():
                found = once(told)
        except Stopped:
            if loop is None:
                raise GracefulExit from None
            loop.leave()
        if loop is not None:
            loop.evaluation_pending = False
        return found

    def best(self, score: float, **metrics: float) -> None:
        """The result of a validation of the present weights, on all ranks; higher is better. Their checkpoint is kept besides the
        newest ones as long as none has a higher score."""
        assert self._loop is not None, "run.best() belongs into run.steps(), or after it"
        assert self._checkpointing is not None
        self._checkpointing.best = max(self._checkpointing.best, score)
        self._loop.judged(score, metrics)

    def finish(self, **figures: Any) -> None:
        """Write result.json: `figures`, and what the run knows. Without a call the end of the `with` does it."""
        assert self._checkpointing is not None
        assert self._loop is not None, "run.finish() comes after run.steps()"
        self._loop.stop_early()
        result = {
            **figures,
            "step": self._loop.step,
            "generation": self.generation,
            "epochs": self.config.epochs,
            "weights_sha256": weights_sha256(self._checkpointing.kept.network),
            **self._loop.report.account.saved(),
            "finished_at": time.time(),
        }
        if self.rank == 0:
            write_result(self.output, result)
        self._finished = self.rank, figures

    @contextlib.contextmanager
    def rank_zero_first(self) -> Iterator[None]:
        """Rank 0 goes through the body before all others: it downloads, lists or decodes, they find what it has made."""
        goes_first = self.rank == 0
        if not goes_first:
            try:
                self._answer(self._wait_for_rank_zero)
            except _GoesFirst:  # that one is lost
                goes_first = True
        yield
        if goes_first:
            self._answer(self._group.barrier)

    def _wait_for_rank_zero(self) -> None:
        if self.rank == 0:
            raise _GoesFirst
        self._group.barrier()

    def from_rank_zero(self, facts: Any) -> Any:
        """Rank 0's `facts` (as JSON can hold them), on every rank: for what all must decide alike."""
        return self._answer(lambda: self._group.hand_out_facts(facts))

    def from_all_ranks(self, facts: Any) -> list[Any]:
        """The facts of each rank (as JSON can hold them), in the order of the ranks, on every rank."""
        return list(self._answer(lambda: self._group.all_facts(facts)))

    def unhurried(self) -> contextlib.AbstractContextManager[None]:
        """For work of the program that takes longer than a step may: in the body it has the limit of a first step."""
        return self._watchdog.unhurried()

    def on_progress(self, listener: Callable[[Progress], None]) -> None:
        """Call it on rank 0 for every line of the log: for TensorBoard and the like."""
        self._listeners.append(listener)

    def log(self, text: str) -> None:
        """Print a line, on rank 0 alone."""
        if self.rank == 0:
            print(text, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        ended = error is None
        try:
            if ended:
                self._end()
        except (PeerLostError, Stale, GracefulExit) as lost:
            error = lost
        if isinstance(error, Stale) or (self.world_size > 1 and is_loss(error)):
            assert error is not None
            self._noticed.set()
            peer_loss.meet_again(error, self._group, self._loop)
        if error is not None and self._loop is not None and self._loop.computes and is_out_of_memory(error):
            self._repeat_smaller(error, self._loop)
        self._watchdog.stop()
        if self._loop is not None:
            self._loop.close()
        if self._pod is not None and (error is None or isinstance(error, GracefulExit)):
            self._pod.part()
        if error is None or isinstance(error, GracefulExit):
            self._group.close()
        if ended and error is not None:
            raise error

    def _repeat_smaller(self, error: BaseException, loop: Loop) -> None:
        """In the next process, if there is a launcher that starts one. Raises NoRoomError where nothing smaller is left."""
        most = max(each.num_samples for each in loop.plan.micro_batches(loop.step))
        if isinstance(error, NoRoomError):
            return
        if self.config.virtual_workers:
            add_note(
                error, f"{most} samples at once do not fit; a smaller --max-micro-batch gives other bits, so set it yourself"
            )
        elif not self.config.place.launched:
            add_note(
                error,
                f"{most} samples at once do not fit: set --max-micro-batch below that, write `with step.within_memory():` around "
                "the loop's body, or start the program with `python -m ebb.elastic.launch`, which repeats the step by itself",
            )
        else:
            peer_loss.repeat_smaller(error, self._group, loop)

    def _end(self) -> None:
        if self._loop is None:
            return self._group.barrier()
        self._loop.stop_early()
        return self._loop.end(self._finish_together)

    def _finish_together(self) -> None:
        assert self._loop is not None
        self._loop.save_now(last=True)
        as_rank, figures = self._finished or (None, {})
        wrote_nothing = self.rank == 0 and as_rank != 0  # it is rank 0 since the one that should have written is lost
        if as_rank is None or wrote_nothing:
            self.finish(**figures)
        self._group.barrier()


_OPTIONS = inspect.signature(DistributedDataParallel).parameters.keys() - {"module"}
# of DistributedDataParallel: what they ask for is so in any case (buckets.py), or makes no difference to the numbers
_WITHOUT_EFFECT = {"find_unused_parameters", "static_graph", "gradient_as_bucket_view", "bucket_cap_mb"}


def _check_summed(options: dict[str, Any]) -> None:
    """Raises ConfigError for what only DistributedDataParallel can do."""
    asked = {name for name, value in options.items() if (name, value) != ("broadcast_buffers", False)}
    if others := sorted(asked - _WITHOUT_EFFECT):
        raise ConfigError(
            f"run.distribute({others[0]}=...) is DistributedDataParallel's, which recovery in memory does without; allowed: "
            f"{', '.join(sorted(_WITHOUT_EFFECT))}. With --recovery restart (EBB_RECOVERY=restart) all of its options are"
        )
