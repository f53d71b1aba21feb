"""Pages of status, events, top, check and sweep: views -> text of at most the terminal's width. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median

from rich.console import Group, RenderableType
from rich.text import Text

from ebb.cli.render import STYLES, age, clock, facts, hanging, number, short, table
from ebb.client.diagnostics.check_job import CheckEstimate
from ebb.client.diagnostics.network import TABLE_FROM, NetworkReport, size_text
from ebb.client.diagnostics.storage import StorageReport, rate_text
from ebb.client.diagnostics.symptoms import OK, PROBLEM, UNSEEN, WARNING, Finding
from ebb.client.jobs.reclaims import Reclaim
from ebb.client.jobs.top import Top, TopJob, TopMachine
from ebb.client.jobs.view import (
    FINISHED,
    OVER,
    RUNNING_STATE,
    STOPPED,
    GpuView,
    JobView,
    WorkerView,
    describe,
    duration,
    mean_utilization,
)
from ebb.client.scaling import ScalingPlan, ScalingReport
from ebb.client.scaling.figures import gpus_text
from ebb.client.submission.fit import Fit, price
from ebb.client.submission.submit import Prepared
from ebb.client.sweep import RunView, SweepPlan, SweepView
from ebb.client.sweep.view import count_states
from ebb.client.timeline.timeline import Entry, of_reclaim

GIB = 2**30
MOST_GPUS = 16  # that `status` shows
RECENT = 10  # lines of history that `status` shows
LEVELS = {OK: "green", WARNING: "yellow", PROBLEM: "red", UNSEEN: "dim"}


def job_page(
    job: JobView, workers: Sequence[WorkerView], now: datetime, width: int, reclaims: Sequence[Reclaim] = ()
) -> RenderableType:
    """`ebb status`."""
    parts: list[RenderableType] = [
        Text.assemble((job.name, "bold"), "  ", (job.state, STYLES.get(job.state, "yellow")), _since(job, now)),
    ]
    if job.detail and job.state not in (RUNNING_STATE, FINISHED):
        parts += facts([("because", job.detail)], width)
    parts += facts(job_facts(job, reclaims, now), width)
    if workers:
        parts += [Text(), _workers(workers, now, width)]
    if job.gpus and job.state == RUNNING_STATE:
        parts += [Text(), gpu_table(job.gpus, width)]
    if job.history:
        parts.append(Text())
        known = {(loss.at, loss.worker): of_reclaim(loss) for loss in reclaims}
        for item in job.history[-RECENT:]:
            text = known.get((item.at, item.worker if item.worker is not None else -1)) or describe(item)
            parts += hanging(f"{clock(item.at, now)}  ", text, width)
    return Group(*parts)


def event_lines(entries: Iterable[Entry], now: datetime, width: int) -> Iterable[Text]:
    """`ebb events`: a line each, which goes on under its beginning."""
    for entry in entries:
        last = f", last {clock(entry.last, now)}" if entry.last != entry.at else ""
        times = f" (x{entry.count}{last})" if entry.count > 1 else ""
        for line in hanging(f"{clock(entry.at, now)}  ", entry.text + times, width):
            yield Text(line.plain, "yellow" if entry.warning else "")


def top_page(found: Top, now: datetime, width: int) -> RenderableType:
    """`ebb top`."""
    running = sum(job.state == RUNNING_STATE for job in found.jobs)
    parts = [
        f"{running} of {len(found.jobs)} jobs run",
        f"{found.gpus_busy} of {found.gpus} GPUs busy",
        f"{number(found.samples_per_second)} samples/s",
        f"${found.usd_per_hour:.2f} per hour",
    ]
    page: list[RenderableType] = [*hanging("", ", ".join(parts), width)]
    if found.jobs:
        headers = ("NAME", "STATE", "WORKERS", "GPUS", "ZONE", "STEP", "STEP/S", "SAMPLES/S", "GPU %")
        known = len(headers) if any(job.utilization is not None for job in found.jobs) else len(headers) - 1
        page += [Text(), table(headers[:known], [_job_row(job)[:known] for job in found.jobs], width)]
    if found.machines:
        rows = [_machine_row(seat, now) for seat in found.machines]
        page += [Text(), table(("MACHINE", "TYPE", "ZONE", "CAPACITY", "BUSY", "STATE", "AGE", "JOBS"), rows, width, gives=7)]
    return Group(*page)


def check_page(findings: Sequence[Finding], width: int) -> RenderableType:
    """`ebb check`."""
    lines: list[Text] = []
    for found in findings:
        for line in hanging(f"{found.level:<8} {found.name:<12} ", found.text, width):
            lines.append(Text(line.plain, LEVELS[found.level]) if found.level in (WARNING, PROBLEM) else line)
        lines += hanging(" " * 22 + "-> ", found.fix, width)
    counts = {level: sum(found.level == level for found in findings) for level in (PROBLEM, WARNING)}
    said = [f"{count} {level}{'' if count == 1 else 's'}" for level, count in counts.items() if count]
    return Group(*lines, Text(), Text(", ".join(said) or "Everything that can be seen is in order."))


def check_estimate(job: str, fit: Fit, found: CheckEstimate) -> str:
    """The price of a check that is a job, before it starts."""
    machines = "1 machine" if found.machines == 1 else f"{found.machines} machines"
    network = f" with {fit.network}" if fit.network else ""
    return (
        f"{job}: {machines}{network} ({', '.join(fit.instance_types)}, {fit.capacity}) for about {found.seconds // 60} min, "
        f"about ${found.usd:.2f}; it ends after {found.seconds_at_most // 60} min at the latest, ${found.usd_at_most:.2f}."
    )


def network_page(found: NetworkReport, width: int) -> RenderableType:
    """`ebb check network`."""
    sizes = sorted({figure.bytes for figure in found.figures if figure.bytes >= TABLE_FROM})
    by_place = {(figure.operation, figure.bytes): figure for figure in found.figures}
    rows = []
    for size in sizes:
        row: list[str] = [size_text(size)]
        for operation in ("all-reduce", "all-gather", "send-receive"):
            figure = by_place.get((operation, size))
            rates = (figure.algorithm_gb_s, figure.bus_gb_s) if figure else ()
            cells = [seconds_text(figure.seconds) if figure else "-", *(f"{rate:.2f}" for rate in rates)]
            row += [*cells, "-", "-"][: 2 if operation == "send-receive" else 3]
        rows.append(row)
    heads = ("SIZE", "ALL-REDUCE", "ALG", "BUS", "ALL-GATHER", "ALG", "BUS", "SEND-RECV", "ALG=BUS")
    where = f"{found.ranks} x {found.gpu}" if found.gpu else f"{found.ranks} ranks without GPUs"
    latencies = ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in found.latency_seconds.items())
    mine = (
        f"here, {found.adapters} adapters"
        if any(one.adapters for one in found.machines) and found.adapters != "0"
        else "here, no adapter",
        found.most_gb_s,
        found.average_gb_s,
    )
    theirs = [
        (f"article, {row.adapters} EFA" if row.adapters else "article, no EFA", row.most_gb_s, row.average_gb_s)
        for row in found.article
    ]
    compared = [(name, f"{most:.2f}", f"{average:.2f}") for name, most, average in (mine, *theirs)]
    return Group(
        Text(f"{where} on {len(found.machines)} machines; times, and bandwidths in GB/s as nccl-tests reckons them", "bold"),
        table(heads, rows, width),
        *hanging("left out  ", "; ".join(found.skipped), width),
        *hanging("8 bytes   ", latencies, width),
        Text(),
        table(("ALL-REDUCE, 8 B TO 1 GB, BUS", "MOST", "AVERAGE"), compared, width),
        Text("article: 16 A100 on two p4d.24xlarge, by nccl-tests"),
        Text(),
        *_verdict(found.finding, width),
    )


def scaling_plan(plan: ScalingPlan, sizes: Mapping[int, Prepared]) -> str:
    """The jobs of `ebb bench scaling` and their prices, before they start."""
    hourly = []
    for gpus, item in sizes.items():
        assert item.fit is not None
        hourly.append(f"${price(item.fit, item.fit.workers).usd_per_hour:.2f} on {gpus_text(gpus)}")
    jobs = "1 job" if len(hourly) == 1 else f"{len(hourly)} jobs, one after the other"
    return f"{plan.name}: {jobs}, each one epoch of {plan.title}. Per hour: {', '.join(hourly)}."


def scaling_page(found: ScalingReport, width: int) -> RenderableType:
    """`ebb bench scaling`."""
    rows = [
        (
            str(size.gpus),
            size.state if size.epoch_seconds is None else duration(size.epoch_seconds),
            number(size.samples_per_second),
            "-" if size.speed_up is None else f"{size.speed_up:.2f}",
            f"{size.ideal:g}",
            "-" if size.efficiency is None else f"{size.efficiency:.0%}",
            str(size.reclaims),
            "-" if size.usd is None else f"{size.usd:.2f}",
        )
        for size in found.sizes
    ]
    heads = ("GPUS", "EPOCH", "SAMPLES/S", "SPEED-UP", "IDEAL", "EFFICIENCY", "RECLAIMS", "$")
    lines: list[RenderableType] = [table(heads, rows, width, gives=1)]
    for text in found.notes:
        lines += hanging("", text, width)
    return Group(*lines)


def storage_page(found: StorageReport, width: int) -> RenderableType:
    """`ebb check storage`."""
    machines = "1 machine" if found.machines == 1 else f"{found.machines} machines at once"
    rows = [
        (one.operation, rate_text(one.bytes_per_second), f"{one.per_second:,.0f}", rate_text(one.least_bytes_per_second))
        for one in found.figures
    ]
    return Group(
        Text(f"{found.path} from {machines}", "bold"),
        table(("ACCESS", "TOGETHER", "PER SECOND", "SLOWEST MACHINE"), rows, width),
        Text(),
        *_verdict(found.finding, width),
    )


def _verdict(finding: Finding, width: int) -> list[Text]:
    level = LEVELS.get(finding.level, "")
    lines = hanging(f"{finding.level:<8} {finding.name:<12} ", finding.text, width)
    return [*(Text(line.plain, level) for line in lines), *hanging(" " * 22 + "-> ", finding.fix, width)]


def seconds_text(seconds: float) -> str:
    """12.3 us, 4.56 ms, 7.89 s."""
    for limit, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= limit:
            return f"{seconds / limit:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _workers(workers: Sequence[WorkerView], now: datetime, width: int) -> RenderableType:
    rows = [
        (
            str(item.worker),
            item.state,
            age(item.since, now),
            item.machine or "-",
            item.instance_type or "-",
            age(item.machine_since, now),
        )
        for item in workers
    ]
    headers = ("WORKER", "STATE", "AGE", "MACHINE", "TYPE", "UP")
    known = len(headers) if any(item.instance_type for item in workers) else 4
    return table(headers[:known], [row[:known] for row in rows], width, gives=3)


def gpu_table(gpus: Sequence[GpuView], width: int) -> RenderableType:
    """A row for each GPU, the least busy of many."""
    rows = [
        (
            ", ".join(map(str, gpu.ranks)) or "-",
            str(gpu.worker),
            str(gpu.gpu),
            "-" if gpu.utilization is None else f"{gpu.utilization} %",
            memory_of(gpu),
            Text(f"hardly used for {duration(gpu.idle_seconds)}", "yellow") if gpu.is_idle else Text(),
        )
        for gpu in sorted(gpus, key=lambda gpu: (not gpu.is_idle, gpu.utilization or 0))[:MOST_GPUS]
    ]
    return table(("RANK", "WORKER", "GPU", "BUSY", "MEMORY", ""), rows, width)


def memory_of(gpu: GpuView) -> str:
    """Used of all, in GiB; "-" where it is not told."""
    if gpu.memory_used_bytes is None or gpu.memory_total_bytes is None:
        return "-"
    return f"{gpu.memory_used_bytes / GIB:.1f} of {gpu.memory_total_bytes / GIB:.0f} GiB"


def _gpus(job: JobView) -> str:
    mean, idle = mean_utilization(job.gpus), sum(gpu.is_idle for gpu in job.gpus)
    parts = (
        f"{mean:.0f} % busy on average" if mean is not None else "",
        f"{idle} hardly used" if idle else "",
    )
    return ", ".join(filter(None, parts))


def job_facts(job: JobView, reclaims: Sequence[Reclaim], now: datetime) -> list[tuple[str, str]]:
    """The lines of `ebb status`: a label, and its text, "" for what is not known."""
    elastic = f", from {job.min_workers} to {job.max_workers}" if job.min_workers < job.max_workers else ""
    size = f"{job.workers} of {job.wanted_workers}{elastic}"
    gpus = f"; each {job.gpus_per_worker} {job.gpu_type}".rstrip() if job.gpus_per_worker else ""
    zone = f"in {job.zone}" if job.zone else "no zone yet"
    return [
        ("held", _held(job, now)),
        ("workers", size + gpus),
        ("where", f"{job.capacity}, {zone}" if job.capacity else zone),
        ("network", job.network),
        ("secrets", ", ".join(use.words for use in job.secrets)),
        ("last seen" if job.state in OVER else "progress", _progress(job)),
        ("speed" if job.state == RUNNING_STATE else "last speed", _speed(job)),
        ("GPUs" if job.state == RUNNING_STATE else "last GPUs", _gpus(job)),
        ("tracker", job.tracker),
        ("left", f"about {duration(job.eta_seconds)}" if job.eta_seconds is not None else ""),
        ("reclaims", _reclaims(job, reclaims)),
        ("failures", str(job.failures) if job.failures else ""),
        ("goodput", f"{100 * job.goodput:.0f} % of the paid machine time trained" if job.goodput is not None else ""),
        ("cost", _cost(job)),
    ]


def _held(job: JobView, now: datetime) -> str:
    if job.held_worker is None:
        return ""
    return (
        f"worker {job.held_worker}'s machine, for you until {clock(job.held_until, now)}: ebb exec {job.name}; release it with "
        f"ebb resume {job.name} or ebb stop {job.name}"
    )


def _progress(job: JobView) -> str:
    if job.step is None:
        return ""
    share = f" ({100 * job.step // job.total_steps} %)" if job.total_steps else ""
    total = f" of {job.total_steps}" if job.total_steps else ""
    epoch = f", epoch {job.epoch}" if job.epoch is not None else ""
    loss = f", loss {number(job.loss)}" if job.loss is not None else ""
    return f"step {job.step}{total}{share}{epoch}{loss}"


def _speed(job: JobView) -> str:
    # The two differ: the status has the rate of the newest step, and of all steps their number and time, but no global batch.
    parts = (
        f"last {number(job.samples_per_second)} samples/s" if job.samples_per_second is not None else "",
        f"mean {number(job.steps_per_second, 3)} steps/s" if job.steps_per_second is not None else "",
        f"world size {job.world_size}" if job.world_size is not None else "",
        f"generation {job.generation}" if job.generation is not None else "",
    )
    return ", ".join(filter(None, parts))


def _reclaims(job: JobView, reclaims: Sequence[Reclaim]) -> str:
    """Return how many, how long each took, and how long the job had too few workers."""
    if not job.reclaims:
        return "none"
    took = [loss.seconds for loss in reclaims if loss.seconds is not None]
    few = f"back after {', '.join(map(duration, took))}" if 0 < len(took) <= 3 else ""
    many = f"back after {duration(median(took))} (median), {duration(max(took))} at most" if len(took) > 3 else ""
    lost = f"{duration(job.seconds_lost)} with too few workers to train" if job.seconds_lost >= 1 else ""
    return "; ".join(filter(None, (str(job.reclaims), few or many, lost)))


def _cost(job: JobView) -> str:
    if job.usd_spent is None or job.usd_saved is None:
        return ""
    rate = f", ${job.usd_per_hour:.2f} per hour now" if job.usd_per_hour and job.state not in OVER else ""
    return f"${job.usd_spent:.2f}{rate}" + (f" (${job.usd_saved:.2f} less than on-demand)" if job.usd_saved >= 0.005 else "")


def _since(job: JobView, now: datetime) -> str:
    if job.state in OVER and job.ended:
        begun = datetime.fromisoformat(job.started or job.created)
        took = duration((datetime.fromisoformat(job.ended) - begun).total_seconds())
        return f"  after {took}, {age(job.ended, now)} ago"
    return f"  submitted {age(job.created, now)} ago" if job.created else ""


def _job_row(job: TopJob) -> tuple[str | Text, ...]:
    trains = job.state == RUNNING_STATE
    return (
        job.name,
        Text(job.state, STYLES.get(job.state, "yellow")),
        f"{job.workers}/{job.wanted_workers}",
        str(job.gpus),
        job.zone or "-",
        "-" if job.step is None else short(job.step),
        number(job.steps_per_second if trains else None, 3),
        number(job.samples_per_second if trains else None),
        Text("-" if job.utilization is None or not trains else f"{job.utilization:.0f}", "yellow" if job.gpus_idle else ""),
    )


def _machine_row(seat: TopMachine, now: datetime) -> tuple[str | Text, ...]:
    machine = seat.machine
    state = "leaving" if machine.leaving else "ready" if machine.ready else "not ready"
    return (
        machine.name,
        machine.instance_type or "-",
        machine.zone or "-",
        machine.capacity or "-",
        f"{seat.gpus_busy}/{machine.gpus}",
        Text(state, "" if state == "ready" else "yellow"),
        age(machine.since, now),
        ", ".join(seat.jobs) or "-",
    )


_HEADS = {"loss": "LOSS", "samples_per_second": "SAMPLES/S"}


def sweep_page(sweep: SweepView, width: int) -> RenderableType:
    """One row a run, then how many are in which state and which is the best."""
    rows = [
        (
            Text(_point(run.point) or run.job, "bold" if run.job == sweep.best else ""),
            run.job,
            Text(_run_state(run), STYLES.get(run.state, "yellow")),
            _run_steps(run),
            number(run.metric),
            _usd(run.usd_spent),
        )
        for run in sweep.runs
    ]
    return Group(
        table(("POINT", "JOB", "STATE", "STEP", _HEADS.get(sweep.metric, sweep.metric), "$"), rows, width),
        Text(),
        Text(summary(sweep)),
    )


def summary(sweep: SweepView) -> str:
    """A sweep in one line."""
    best = next((run for run in sweep.runs if run.job == sweep.best), None)
    parts = [
        f"{sweep.name}: {count_states(sweep)}",
        f"best {'' if sweep.over else 'so far '}{_point(best.point) or best.job} ({sweep.metric} {number(best.metric)})"
        if best
        else "",
        f"${sweep.usd_spent:.2f} spent" if sweep.usd_spent is not None else "",
        f"{sweep.max_parallel} at once" if sweep.max_parallel and not sweep.over else "",
    ]
    return "; ".join(filter(None, parts))


def price_line(plan: SweepPlan, fit: Fit) -> str:
    """Return what all runs cost together while they train."""
    count = len(plan.points)
    at_once = min(count, plan.max_parallel or count)
    runs = "1 run" if count == 1 else f"{count} runs"
    most = f", at most ${count * plan.request.max_cost:.2f} in all" if plan.request.max_cost else ""
    return f"{runs} like this, {at_once} at once: ${at_once * price(fit, fit.workers).usd_per_hour:.2f} per hour{most}"


def _point(point: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in point.items())


def _run_state(run: RunView) -> str:
    return "among the worst" if run.state == STOPPED and run.stopped_because else run.state


def _run_steps(run: RunView) -> str:
    if run.step is None:
        return "-"
    return short(run.step) + (f"/{short(run.total_steps)}" if run.total_steps else "")


def _usd(spent: float | None) -> str:
    return "-" if spent is None else f"{spent:.2f}"
