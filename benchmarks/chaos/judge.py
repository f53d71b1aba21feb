"""Says from a history alone which promises were broken. Pure, but that ledgers are laid out in a temporary folder to be read.

    verdict = judge(read(path))       # verdict.violations is empty where all were kept

Of every job: it ends as its plan says, an end is final, every sample is used once, a failure is counted only where its program
failed, a machine that died under a worker is counted as a reclaim, and never are there more pods than workers. Of etcd: its
records of every job were seen, what is committed never goes back to an older generation, and no generation has two pods of one
worker. Of the platform: it is whole again at the end, and its bill is the devcluster's.
"""

import json
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.chaos.history import Record
from benchmarks.chaos.jobs import FAILED, SUCCEEDED
from testing import exactness

NEAR = 0.01  # of the bill, as in make prove-money
LATE_SECONDS = 5.0  # of each end of a machine's life: the watch, the controller's round, and whole seconds
LISTS_SECONDS = 10.0  # from a controller's first renewal of the Lease until it has seen everything
DEADLY = ("machine", "reclaim", "kubelet")  # the victim's workers die with it, at once
LAST_SECONDS = 60.0  # a job whose end is seen so soon after may have ended before: an API server may be away
ENDS = (SUCCEEDED, FAILED)
RECORDS, COMMITS, GENERATION = "/ebb/", "/ebb/checkpoints/", "/generation"
ATTEMPT = re.compile(r"-r\d+$")  # a program that failed is started again under another name


@dataclass(kw_only=True)
class Verdict:
    """`violations` in words, empty when there are none."""

    seed: int
    events: int = 0
    violations: list[str] = field(default_factory=list)
    samples_lost: int = 0
    samples_repeated: int = 0
    samples: int = 0
    steps_redone: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    reclaims: int = 0
    generations: int = 0
    kinds: dict[str, int] = field(default_factory=dict)


class Seen:
    """The records by what they are about."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._by_kind: defaultdict[str, list[Record]] = defaultdict(list)
        for record in records:
            self._by_kind[record["what"]].append(record)
        self.begin = records[0]

    def of(self, what: str) -> list[Record]:
        return self._by_kind[what]

    def about(self, what: str, job: str) -> list[Record]:
        return [record for record in self.of(what) if record["job"] == job]

    @cached_property
    def jobs(self) -> list[str]:
        return [record["name"] for record in self.of("job")]

    @cached_property
    def checkpoints(self) -> dict[str, str]:
        """By job, the name under which etcd keeps what it committed."""
        owners = [record for record in self.of("file") if record["name"] == "owner.json"]
        return {record["job"]: COMMITS + json.loads(record["text"])["id"] for record in owners}

    def end_of(self, job: str) -> Record | None:
        """The first record of its end."""
        return next((record for record in self.about("status", job) if record["state"] in ENDS), None)

    @cached_property
    def outages(self) -> list[tuple[float, float]]:
        """The times in which perhaps no controller saw anything."""
        found, since = [], None
        for record in self.of("acts"):
            if record["acts"] and since is not None:
                found.append((since, record["since"] + LISTS_SECONDS))
            since = None if record["acts"] else record["since"]
        return found if since is None else [*found, (since, math.inf)]

    def was_watched(self, since: float, until: float) -> bool:
        """A controller acted at some moment of that time."""
        return self.back(since) < until

    def back(self, moment: float) -> float:
        """The first moment from then on at which a controller acted."""
        for begins, ends in self.outages:
            if begins <= moment < ends:
                moment = ends
        return moment

    def healed(self, action: Record) -> float | None:
        return next((record["at"] for record in self.of("healed") if record["number"] == action["number"]), None)


def judge(records: Sequence[Record]) -> Verdict:
    """See the module's docstring."""
    seen = Seen(records)
    verdict = Verdict(seed=seen.begin["seed"], events=len(seen.of("action")))
    verdict.kinds = dict(sorted(Counter(record["kind"] for record in seen.of("action")).items()))
    verdict.violations = [*_of_history(seen)]
    for plan in seen.of("job"):
        verdict.violations += [*_of_end(seen, plan), *_of_counts(seen, plan), *_of_pods(seen, plan)]
        if plan["ends"] == SUCCEEDED:
            verdict.violations += _of_samples(seen, plan, verdict)
        end = seen.end_of(plan["name"])
        verdict.ends[end["state"] if end else "none"] = verdict.ends.get(end["state"] if end else "none", 0) + 1
        verdict.reclaims += max((record["reclaims"] for record in seen.about("status", plan["name"])), default=0)
    verdict.violations += [*_of_records(seen), *_of_commits(seen), *_of_generations(seen), *_of_platform(seen), *_of_bill(seen)]
    return verdict


def _of_history(seen: Seen) -> Iterator[str]:
    if not seen.of("end"):
        yield "the history is cut off: its run did not come to its end"
    if not seen.of("job"):
        yield "there was no job, so that nothing is shown"
    for action in seen.of("action"):
        if seen.healed(action) is None:
            yield f"action {action['number']} ({action['kind']} of {action['victim']}) was never healed"


def _of_end(seen: Seen, plan: Record) -> Iterator[str]:
    name, statuses = plan["name"], seen.about("status", plan["name"])
    end = seen.end_of(name)
    if end is None:
        last = f"{statuses[-1]['state']}, {statuses[-1]['reason']}" if statuses else "no status at all"
        yield f"{name}: never ended, it was to be {plan['ends']}; the last that was seen is {last}"
        return
    if end["state"] != plan["ends"]:
        yield f"{name}: {end['state']} ({end['reason']}), it was to be {plan['ends']}"
    for record in statuses[statuses.index(end) :]:
        if record["state"] != end["state"]:
            yield f"{name}: came back from {end['state']} to {record['state']}"


def _of_counts(seen: Seen, plan: Record) -> Iterator[str]:
    """The budget of failures, and the count of reclaims."""
    name, statuses = plan["name"], seen.about("status", plan["name"])
    crashes = max((record["times"] for record in seen.about("crashes", name)), default=0)
    failures = max((record["failures"] for record in statuses), default=0)
    if failures > crashes:
        yield f"{name}: {failures} failures were charged to its budget, its program failed {crashes} times"
    end = seen.end_of(name)
    if end and end["state"] == plan["ends"] == FAILED and end["failures"] != plan["backoff"] + 1:
        yield f"{name}: Failed after {end['failures']} failures, its budget allows {plan['backoff']}"
    reclaims, sure = max((record["reclaims"] for record in statuses), default=0), len(_lost(seen, name))
    if reclaims < sure:
        yield f"{name}: {reclaims} reclaims were counted, at least {sure} of its workers died with their machines"


def _lost(seen: Seen, job: str) -> set[str]:
    """The pods that ran on a machine when it died, long before the job's end, and that a controller has seen there: of one that
    came and went while none acted nobody knows."""
    end, found = seen.end_of(job), set[str]()
    for action in seen.of("action"):
        if action["kind"] not in DEADLY or (end and end["at"] < action["at"] + LAST_SECONDS):
            continue
        now: dict[str, Record] = {}
        ran: dict[str, float] = {}
        for record in seen.about("pod", job):
            if record["at"] < action["at"]:
                now[record["uid"]] = record
                if _runs(record):
                    ran.setdefault(record["uid"], record["at"])
        found |= {
            uid
            for uid, pod in now.items()
            if pod["node"] == action["victim"] and _runs(pod) and seen.was_watched(ran[uid] + LATE_SECONDS, action["at"])
        }
    return found


def _runs(pod: Record) -> bool:
    return pod["phase"] == "Running" and not pod["leaving"] and not pod["gone"]


def _of_pods(seen: Seen, plan: Record) -> Iterator[str]:
    alive: dict[str, Record] = {}
    for record in seen.about("pod", plan["name"]):
        alive.pop(record["uid"], None)
        if not record["gone"] and record["phase"] not in ("Succeeded", "Failed"):
            alive[record["uid"]] = record
        if len(alive) > plan["workers"]:
            yield f"{plan['name']}: {len(alive)} pods at once at {record['at']:.1f} s, it has {plan['workers']} workers"
            return


def _of_samples(seen: Seen, plan: Record, verdict: Verdict) -> list[str]:
    name, end = plan["name"], seen.end_of(plan["name"])
    if end is None or end["state"] != SUCCEEDED:
        return []  # that is told elsewhere, and there is no line of final weights to judge
    with tempfile.TemporaryDirectory(prefix="ebb-chaos-judge-") as folder:
        for record in seen.about("file", name):
            path = Path(folder) / record["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(record["text"], encoding="utf-8")
        try:
            found = exactness.check(Path(folder))
        except exactness.LedgerError as error:
            return [f"{name}: {str(error).replace(folder, 'its output')}"]
    verdict.samples_lost += found.samples_lost
    verdict.samples_repeated += found.samples_repeated
    verdict.samples += found.samples
    verdict.steps_redone += found.steps_redone
    verdict.generations += found.generations
    problems = [f"{name}: {problem}" for problem in found.problems]
    if found.samples_lost or found.samples_repeated:
        problems.append(f"{name}: {found.samples_lost} samples lost, {found.samples_repeated} repeated")
    if found.steps_of_other_size:
        problems.append(f"{name}: {found.steps_of_other_size} steps with more or fewer samples than the global batch")
    return problems


def _versions(seen: Seen, suffix: str = "", prefix: str = "") -> dict[str, list[Record]]:
    """The values of etcd's keys in the order in which they were written, each once."""
    found: defaultdict[str, dict[int, Record]] = defaultdict(dict)
    for record in seen.of("key"):
        if record["key"].startswith(prefix) and record["key"].endswith(suffix):
            found[record["key"]][record["revision"]] = record
    return {key: [records[revision] for revision in sorted(records)] for key, records in sorted(found.items())}


def _of_records(seen: Seen) -> Iterator[str]:
    """Jobs of which nothing was seen in etcd: of them nothing can be said."""
    keys = {record["key"] for record in seen.of("key")}
    for plan in seen.of("job"):
        end = seen.end_of(plan["name"])
        if end is None or end["state"] != SUCCEEDED:
            continue
        if f"{RECORDS}{_run_of(plan)}{GENERATION}" not in keys:
            yield f"{plan['name']}: no generation of it was seen in etcd, so that nothing is shown of who trained"
        if seen.checkpoints.get(plan["name"]) not in keys:
            yield f"{plan['name']}: no checkpoint of it was seen in etcd, so that nothing is shown of who committed"


def _run_of(plan: Record) -> str:
    """The name under which the workers of a job meet, the first time."""
    return f"{plan['name']}-{plan['uid'][:8]}"


def _of_commits(seen: Seen) -> Iterator[str]:
    """The fence: a pod of an older generation commits nothing after one of a newer."""
    jobs = {key: job for job, key in seen.checkpoints.items()}
    for key, records in _versions(seen, prefix=COMMITS).items():
        job = jobs.get(key, key)
        newest = (0, 0)
        for record in records:
            value = json.loads(record["value"])
            order = value["generation"], value["step"]
            if order < newest:
                yield (
                    f"{job}: a checkpoint of generation {order[0]}, step {order[1]} was committed after one of generation "
                    f"{newest[0]}, step {newest[1]}"
                )
            newest = max(newest, order)


def _of_generations(seen: Seen) -> Iterator[str]:
    """Two pods of one worker are never in one generation."""
    uids = {_run_of(record): record["name"] for record in seen.of("job")}
    for key, records in _versions(seen, suffix=GENERATION).items():
        job = uids.get(ATTEMPT.sub("", key.split("/")[2]), "")
        newest = 0
        for record in records:
            value = json.loads(record["value"])
            if value["number"] <= newest:
                yield f"{job or key}: generation {value['number']} was formed after {newest}"
            newest = max(newest, value["number"])
            workers = Counter(_index_at(seen, job, member["address"], record["at"]) for member in value["members"])
            for index, times in workers.items():
                if index is not None and times > 1:
                    yield f"{job}: generation {value['number']} has {times} pods of worker {index}"


def _index_at(seen: Seen, job: str, address: str, at: float) -> int | None:
    """The worker that had an address then; None where no pod with it was seen."""
    found = [record for record in seen.about("pod", job) if record["ip"] == address and record["at"] < at + LATE_SECONDS]
    return int(found[-1]["index"]) if found else None


def _of_platform(seen: Seen) -> Iterator[str]:
    if seen.of("end") and not seen.of("part"):
        yield "nobody looked at the platform at the end"
    for record in seen.of("part"):
        if not record["well"]:
            yield f"the {record['name']} was not back at the end"


def _of_bill(seen: Seen) -> Iterator[str]:
    if not seen.of("bill"):
        if seen.of("end"):
            yield "there is no bill"
        return
    bill = seen.of("bill")[-1]
    usd = allowed = 0.0
    for machine in bill["machines"]:
        if machine["booted_at"] is None:
            continue
        begins, ends = machine["booted_at"], machine["gone_at"] or bill["at_unix"]
        usd += (ends - begins) / 3600 * machine["usd_per_hour"]
        gone = ends - seen.begin["unix"]
        late = 2 * LATE_SECONDS + min(seen.back(gone), bill["at_unix"] - seen.begin["unix"]) - gone
        allowed += late / 3600 * machine["usd_per_hour"]
    allowed += NEAR * usd
    cost = bill["cost"]
    sums = {
        "jobs and what idled": cost["jobs"]["usd"] + cost["idle"]["usd"] - cost["unseen"]["usd"],
        "the machine record": cost["machines"]["usd"] - cost["platform"]["usd"],
    }
    for name, found in sums.items():
        if abs(found - usd) > allowed:
            yield f"`ebb cost`: {name} come to {found:.4f} USD, the machines cost {usd:.4f}; {allowed:.4f} may be missing"
