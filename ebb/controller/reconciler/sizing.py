"""The number of workers that a job wants, and the creation of those that are missing. Pure.

    resize(view, draft)         # creates the first minReplicas and, with a lower priority, the elastic rest
    aim(view, draft)            # sets status.target of an automatic job; the planner acts on it in the next round

With the lower priority all workers are made at once: a job that needs machines for its first workers gets those of others'
elastic ones, and a second round would cost every start the boot of a machine. Where that priority is missing, the rest is made
when the first have machines; but on a cluster that no stack of ours describes, where nothing says that machines come one by one,
all at once again. The rule by which jobs let go of halves (queue.py) holds everywhere.

A job never pushes off a worker of its own: while an elastic one has a machine, the replacement of a first one waits for a free
machine, ahead of all elastic workers.

An automatic job wants as many workers as there is room for, from minReplicas to maxReplicas. It grows in one batch and at most
once a minute, because every change of size costs all workers a pause; it shrinks at once, when machines do not come or others
need theirs. Room is what the node groups may grow to, less what others have and less the minReplicas of those that wait.
"""

from collections.abc import Sequence
from dataclasses import replace

from ebb.api import contract as names
from ebb.api.clock import stamp, unix
from ebb.api.template import worker_container
from ebb.controller.reconciler import quotas, short_lives, stockouts
from ebb.controller.reconciler.candidates import Candidate, pod_placement
from ebb.controller.reconciler.capacity import Claim, claim
from ebb.controller.reconciler.containers import rendezvous_id, run_id
from ebb.controller.reconciler.pods import serve, worker_name, worker_pod
from ebb.controller.reconciler.queue import FreeCapacity
from ebb.controller.reconciler.scheduling import doubled, enough_scheduled, missing_base, scheduled, unscheduled, waiting_since
from ebb.controller.reconciler.spec_changes import of_another_spec
from ebb.controller.reconciler.stockouts import Kind, Stockout
from ebb.controller.reconciler.summary import here
from ebb.controller.reconciler.turns import turns_of
from ebb.controller.reconciler.types import CreatePod, CreateRun, JobView, PlanBuilder
from ebb.controller.reconciler.worker_state import Outcome, numbered

# PriorityClasses (manifests/priorities.yaml) of workers that make room for another job's first ones, and of those that come for a
# lost first one while such workers of the same job run.
ELASTIC_CLASS, REPLACEMENT_CLASS = "ebb-elastic", "ebb-replacement"
MOST_SHUNNED = 100  # a pod's size has a limit; where more are silent, nothing is believed of any (node_heartbeats.py)
RESTART_SECONDS, RESTART_MAX_SECONDS = 5.0, 60.0  # the pause before the first restart; doubles with every failure
Near = Sequence[tuple[Claim, Candidate]]  # the other jobs that are at the same site
GROWS_SECONDS = 60.0
SHRINKS_SECONDS = 60.0  # between two times, where what the first freed may be on its way


def resize(view: JobView, draft: PlanBuilder) -> None:
    """Create the workers that are missing, never more than maxReplicas pods at once, those on their way out included:
    one agent too many makes torch's legacy rendezvous end and restart without end."""
    aim(view, draft)
    quotas.make_room(view, draft)
    serve(view, draft)
    held = {worker.index for worker, _ in view.workers} | set(draft.status.succeeded_indices)
    first, elastic = _priority_classes(view)
    all_at_once = view.observed.platform is None or elastic or enough_scheduled(view)
    all_at_once = all_at_once and not quotas.leaves_none_for_more(view)
    most = view.wanted if all_at_once else min(view.wanted, view.job.min_replicas)
    missing = [index for index in range(most) if index not in held]
    free = [index for index in missing if worker_name(view.job.name, index) not in view.observed.taken]
    if len(free) < len(missing):
        draft.wakes.append(view.now + RESTART_SECONDS)
    resting = short_lives.resting(view, draft)
    free = [index for index in free if index not in resting]
    created = free[: max(0, view.job.max_replicas - len(view.workers))]
    # Workers that were started with another spec would train beside the new ones, into the same output.
    if not created or of_another_spec(view) or _pausing(view, draft):
        return
    assert draft.status.placement is not None
    placed = pod_placement(view.job, draft.status.placement, view.observed.platform)
    shunned = tuple(sorted(view.observed.shunned))[:MOST_SHUNNED]
    # When all of them start, newer ones should wait for those with a machine and for the first minReplicas, without which nothing
    # starts. An elastic worker that has no machine may not get any; it joins when it does.
    alive = [worker for worker, verdict in view.workers if verdict.outcome is Outcome.LIVES and worker.index < view.wanted]
    awaited = sum(1 for worker in alive if worker.node or worker.index < view.job.min_replicas)
    placed = replace(placed, shunned=shunned, planned=awaited + len(created))
    if placed.met and placed.met.prefix:
        container = worker_container(view.job.worker.template["spec"]["containers"])
        meeting = run_id(container, rendezvous_id(view.job, draft.status.restarts))
        draft.actions.append(CreateRun(endpoint=placed.met.endpoint, folder=placed.met.folder(meeting)))
    for index in created:
        name = first if index < view.job.min_replicas else elastic
        pod = worker_pod(view.job, index=index, attempt=draft.status.restarts, pod_placement=placed, priority_class=name)
        draft.actions.append(CreatePod(pod))
    # Of one that comes for another people were told when that was lost.
    known = {member.index for member in view.job.status.members}
    newcomers = [index for index in created if index not in known]
    if newcomers:
        draft.event(names.REASON_POD_CREATED, f"Created {numbered(newcomers)}.")


def _priority_classes(view: JobView) -> tuple[str, str]:
    """Of new workers among the first minReplicas, and beyond; "" for the job's own, and where none is below that."""
    priorities, asked = view.observed.priorities, view.job.worker.template["spec"].get("priorityClassName")
    own = priorities.get(asked or view.job.spec.priority_class_name or "", priorities.get("", 0))
    if priorities.get(ELASTIC_CLASS, own) >= own:
        return "", ""
    if not any(worker.pod["spec"].get("priorityClassName") == ELASTIC_CLASS for worker in scheduled(view)):
        return "", ELASTIC_CLASS
    # Above the job's own, the replacement would be safer than the job may be; on a cluster without it, it makes room itself.
    return REPLACEMENT_CLASS if priorities.get(REPLACEMENT_CLASS, own + 1) <= own else ELASTIC_CLASS, ELASTIC_CLASS


def _pausing(view: JobView, draft: PlanBuilder) -> bool:
    """Return whether the pause after a failure of the program is not over."""
    failed = unix(draft.status.last_failure_time)
    if failed is None or failed > view.now:  # a time to come is of another clock
        return False
    until = failed + doubled(RESTART_SECONDS, draft.status.failures - 1, RESTART_MAX_SECONDS)
    if view.now < until:
        draft.wakes.append(until)
    return view.now < until


def aim(view: JobView, draft: PlanBuilder) -> None:
    """Set status.target where scaling is automatic; elsewhere there is none."""
    if not view.job.automatic:
        draft.status = replace(draft.status, target=None, target_time=None)
        return
    site, wanted = here(view, draft.status), view.wanted
    me = claim(view.job, view.observed.priorities, view.now)
    near = [other for other in turns_of(view).line(view, me).holders if other[1].overlaps(site)]
    room = _room(view, me, near, site)
    smaller = max(me.least, min(room, _without_late(view, draft, site), _without_needed(view, draft, near, site)))
    if smaller < wanted or draft.status.target is None:
        _set(view, draft, min(smaller, wanted))
        return
    larger = min(view.most, room)
    if larger > wanted and len(view.running) >= wanted:
        due = (unix(draft.status.target_time) or view.now) + GROWS_SECONDS
        if stockouts.seen(view, draft.status, site) is not None:
            due = max(due, view.now + GROWS_SECONDS)
        if view.now < due:
            draft.wakes.append(due)
            return
        draft.event(names.REASON_SCALED, f"The job grows from {wanted} to {larger} workers: there is room in {site.title}.")
        _set(view, draft, larger)


def _set(view: JobView, draft: PlanBuilder, target: int) -> None:
    draft.status = replace(draft.status, target=target, target_time=stamp(view.now))


def _room(view: JobView, me: Claim, near: Near, site: Candidate) -> int:
    """Workers for which there would be room; without a stack no bound is known."""
    if not site.fits:
        return view.job.max_replicas
    free = FreeCapacity(view.observed.platform)
    in_need = any(other.hungry_since is not None for other, _ in near)
    for other, place in near:
        # Of several that can make room, those behind do so first.
        gives = in_need and other.automatic and other.rank > me.rank
        free.take(place, other.holds if gives else max(other.holds, other.placed))
    return free.room(site)


def _without_late(view: JobView, draft: PlanBuilder, site: Candidate) -> int:
    """Workers that there are machines for, if those for the others are long overdue."""
    begun = waiting_since(view, unscheduled(view))
    if begun is None:
        return view.job.max_replicas
    # What the last change freed may be on its way to them.
    late = max(begun + site.patience_seconds, (unix(draft.status.target_time) or 0.0) + SHRINKS_SECONDS)
    if view.now < late:
        draft.wakes.append(late)
        return view.job.max_replicas
    words = [view.observed.supply.words.get(worker.uid) for worker in unscheduled(view)]
    none = f"no machine came for {site.patience_seconds:.0f} s"
    said = next((word.message for word in words if word and not word.triggered), none)
    if site.fits and not missing_base(view):  # else that is remembered already, perhaps in other words (placing.py)
        stockouts.remember(view, draft, site, Stockout(kind=stockouts.kind_of(said) or Kind.DRY, message=said, sure=True))
    return len(scheduled(view))


def _without_needed(view: JobView, draft: PlanBuilder, near: Near, site: Candidate) -> int:
    """Without as many as the jobs lack that have waited there for longer than a machine takes: the cloud gives no more."""
    limit = view.now - site.patience_seconds
    lacking = sum(
        other.least - other.placed for other, _ in near if other.hungry_since is not None and other.hungry_since <= limit
    )
    if lacking <= 0:
        return view.job.max_replicas
    due = (unix(draft.status.target_time) or 0.0) + SHRINKS_SECONDS
    if view.now < due:
        draft.wakes.append(due)
        return view.job.max_replicas
    return len(scheduled(view)) - lacking
