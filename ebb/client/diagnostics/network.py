"""`ebb check network`: a small job that measures the network between GPUs, and what its figures mean.

    prepared = prepare_check(ebb, NetworkOptions(gpus=16))                   # nothing is sent; estimate(prepared): its price
    report = await check_network(ebb, prepared, note=print, show=show)       # the job is deleted, whatever happens
    report.finding.level, report.finding.text, report.finding.fix

The job runs ebb/elastic/netcheck; check_job.py sends, follows and deletes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ebb.api.contract import NETWORK_LINE
from ebb.client.diagnostics.check_job import CheckOptions, Show, fields_of, prepare_check_job, run_check_job
from ebb.client.diagnostics.symptoms import Finding, ok, problem, warning
from ebb.client.errors import BadRequest
from ebb.client.platform.connection import Ebb
from ebb.client.submission.fit import Fit
from ebb.client.submission.submit import Prepared

PROGRAM = ("-m", "ebb.elastic.netcheck")
ADAPTERS = ("0", "1", "all")
FIGURES = 28 + 12 + 12
"""Lines that the program prints about sizes: of an all-reduce, an all-gather and a send-receive."""

SOCKETS = "sockets"
ALL_REDUCE = "all-reduce"
TABLE_FROM = 2**20  # bytes: smaller sizes are in latencies and averages alone


@dataclass(frozen=True, kw_only=True)
class ArticleRow:
    """All-reduce on 16 A100 of two p4d.24xlarge, 8 bytes to 1 GB, bus bandwidth in GB/s, as AWS' article measured it with
    nccl-tests ("Distributed training with Amazon EKS and Torch Distributed Elastic")."""

    adapters: int
    provider: str
    most_gb_s: float
    average_gb_s: float


ARTICLE = (
    ArticleRow(adapters=4, provider="efa", most_gb_s=42.04, average_gb_s=8.24),
    ArticleRow(adapters=1, provider="efa", most_gb_s=5.89, average_gb_s=3.02),
    ArticleRow(adapters=0, provider="socket", most_gb_s=2.38, average_gb_s=0.97),
)


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(CheckOptions):
    """The words on the command line. `adapters`: how many fast ones of each machine NCCL may use."""

    adapters: str = "all"


@dataclass(frozen=True, kw_only=True)
class NetworkMachine:
    """`network`: the one that was used, "" unknown. `adapters`: kinds of the fast ones that the worker was given; `unreached`:
    of those that the machine has and the worker was not given."""

    worker: int
    machine: str
    network: str
    provider: str
    gpu_direct: bool
    adapters: tuple[str, ...]
    unreached: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NetworkFigure:
    """One operation at one size, as nccl-tests reckons it; GB are 10**9 bytes. `wrong`: ranks that had a wrong result."""

    operation: str
    bytes: int
    seconds: float
    times: int
    algorithm_gb_s: float
    bus_gb_s: float
    wrong: int


@dataclass(frozen=True, kw_only=True)
class NetworkReport:
    """Result of `ebb check network`. `most_gb_s`, `average_gb_s`: bus bandwidth of the all-reduce over all sizes, as nccl-tests
    has it; `latency_seconds`: of each operation on 8 bytes."""

    job: str
    ranks: int
    device: str
    gpu: str
    adapters: str
    machines: tuple[NetworkMachine, ...]
    figures: tuple[NetworkFigure, ...]
    skipped: tuple[str, ...]
    latency_seconds: dict[str, float]
    most_gb_s: float
    average_gb_s: float
    article: tuple[ArticleRow, ...]
    finding: Finding


def prepare_check(ebb: Ebb, asked: NetworkOptions) -> Prepared:
    """Return the job that would be sent. Raises BadRequest."""
    if asked.adapters not in ADAPTERS:
        raise BadRequest(f"adapters {asked.adapters!r} is unknown: use {', '.join(ADAPTERS[:-1])} or {ADAPTERS[-1]}.")
    if asked.gpus < 2:
        raise BadRequest(f"gpus {asked.gpus} is too few: a network is between at least 2. Use --gpus 2 or more.")
    return prepare_check_job(ebb, "network", (*PROGRAM, "--adapters", asked.adapters), asked)


class NetworkReading:
    """The figures, from the lines of the job's log; they begin anew where a machine was lost and its job began again."""

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.figures: list[NetworkFigure] = []
        self.skipped: list[str] = []
        self.is_complete = False

    def feed(self, text: str) -> bool:
        """Return whether the line is one of them."""
        said = fields_of(text, NETWORK_LINE)
        if said is None:
            return False
        kind = said.pop("kind", "")
        if kind == "start":
            self.start, self.figures, self.skipped, self.is_complete = said, [], [], False
        elif kind == "figure":
            rates = {"algorithm_gb_s": said.pop("algorithm"), "bus_gb_s": said.pop("bus")}
            self.figures.append(NetworkFigure(**said, **rates))
        elif kind == "skipped":
            self.skipped.append(f"{said['operation']} of {size_text(said['bytes'])}: {said['reason']}")
        elif kind == "end":
            self.is_complete = True
        return True

    @property
    def done(self) -> int:
        return len(self.figures) + len(self.skipped)

    @property
    def total(self) -> int:
        return FIGURES

    @property
    def newest(self) -> str:
        return f"{self.figures[-1].operation} of {size_text(self.figures[-1].bytes)}" if self.figures else "starting"

    def machines(self) -> tuple[NetworkMachine, ...]:
        return tuple(
            NetworkMachine(
                worker=one["worker"],
                machine=one["machine"],
                network=one["selected"]["network"],
                provider=one["selected"]["provider"],
                gpu_direct=one["selected"]["gpu_direct"],
                adapters=tuple(each["kind"] for each in one["adapters"] if each["given"]),
                unreached=tuple(each["kind"] for each in one["adapters"] if not each["given"]),
            )
            for one in sorted(self.start.get("machines", []), key=lambda one: int(one["worker"]))
        )


def report_of(job: str, reading: NetworkReading, fit: Fit) -> NetworkReport:
    """Pure."""
    start, figures, machines = reading.start, tuple(reading.figures), reading.machines()
    sums = [figure.bus_gb_s for figure in figures if figure.operation == ALL_REDUCE]
    return NetworkReport(
        job=job,
        ranks=start["ranks"],
        device=start["device"],
        gpu=start["gpu"],
        adapters=start["adapters"],
        machines=machines,
        figures=figures,
        skipped=tuple(reading.skipped),
        latency_seconds={figure.operation: figure.seconds for figure in figures if figure.bytes == 8},
        most_gb_s=max(sums, default=0.0),
        average_gb_s=sum(sums) / max(1, len(sums)),
        article=ARTICLE,
        finding=judge(
            machines, figures, choice=start["adapters"], device=start["device"], expected=fit.network,
            gpus_per_machine=fit.groups[0].gpus_per_node,
        ),
    )  # fmt: skip


def judge(
    machines: tuple[NetworkMachine, ...],
    figures: tuple[NetworkFigure, ...],
    *,
    choice: str,
    device: str,
    expected: str,
    gpus_per_machine: int,
) -> Finding:
    """One sentence about the network, and what to do about it. `expected`: the fast network that the platform says these workers
    have, "" for none."""
    wrong = [figure for figure in figures if figure.wrong]
    if wrong:
        text = f"{wrong[0].operation} of {size_text(wrong[0].bytes)} gave {_count(wrong[0].wrong, 'rank')} a wrong result"
        return problem("network", text, "A GPU or an adapter is broken: tell the platform's owner, and name the machines.")
    if len(machines) == 1:
        return ok(
            "network", f"all GPUs are in one machine, whose own links were measured; --gpus {2 * gpus_per_machine} needs two"
        )
    if choice == "0":
        return ok("network", "sockets, as --adapters 0 asks")
    slow = [one for one in machines if one.network == SOCKETS]
    return _missed(slow, expected, gpus_per_machine) or _used(machines, device)


def _missed(slow: list[NetworkMachine], expected: str, gpus_per_machine: int) -> Finding | None:
    """Sockets where something faster was there; None where nothing was."""
    if given := [one for one in slow if one.adapters]:
        kind, count = given[0].adapters[0], len(given[0].adapters)
        text = f"{kind} was there ({_count(count, 'adapter')} on worker {given[0].worker}), and sockets were used"
        return problem("network", text, PLUGINS.get(kind, RDMA_PLUGIN))
    if slow and expected:
        fix = "Ask the platform's owner to look whether its device plugin runs on these machines, and to run `pulumi up`."
        text = f"{expected} should be there, worker {slow[0].worker} got no adapter, and sockets were used"
        return problem("network", text, fix)
    # RoCE alone may be a cloud's way to accelerate TCP
    if unreached := [one for one in slow if {"EFA", "InfiniBand"} & set(one.unreached)]:
        kind = next(kind for kind in unreached[0].unreached if kind != "RoCE")
        text = f"the machines have {kind}, worker {unreached[0].worker} was given none of it, and sockets were used"
        fix = f"Only workers with a whole machine get it: use --gpus in multiples of {gpus_per_machine}."
        return problem("network", text, fix)
    return None


def _used(machines: tuple[NetworkMachine, ...], device: str) -> Finding:
    used = sorted({one.network or "unknown" for one in machines})
    if len(used) > 1:
        fix = "All workers must use the same: `ebb gpus` shows the machines, --zone and --gpu choose among them."
        return problem("network", f"workers used different networks: {', '.join(used)}", fix)
    if used == ["unknown"] and device == "cuda":
        fix = "Look at the figures: a network of adapters has 3 GB/s and more."
        return warning("network", "NCCL did not say which network it used", fix)
    if used == [SOCKETS]:
        return ok("network", "sockets (TCP): the machines have no faster network")
    direct = ", straight from the GPUs" if all(one.gpu_direct for one in machines) else ""
    return ok("network", f"{used[0]}{direct}")


PLUGINS = {"EFA": "NCCL lacks its plugin for it: use the platform's image, which has it, or install aws-ofi-nccl into yours."}
RDMA_PLUGIN = (
    "NCCL could not open it: use the platform's image, or install rdma-core (libibverbs) into yours; unset NCCL_IB_DISABLE."
)


async def check_network(ebb: Ebb, prepared: Prepared, *, note: Callable[[str], None], show: Show) -> NetworkReport:
    """Run the job to its end and delete it, also when this is cancelled. Raises ClientError where it has no result, KubeError."""
    assert prepared.fit is not None
    reading = NetworkReading()
    await run_check_job(ebb, prepared, reading, note=note, show=show)
    return report_of(prepared.body["metadata"]["name"], reading, prepared.fit)


def size_text(size: int) -> str:
    """1 GB of 2**30 bytes, as nccl-tests' sizes are called."""
    for limit, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if size >= limit:
            return f"{size // limit} {unit}"
    return f"{size} B"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + "s" * (number != 1)
