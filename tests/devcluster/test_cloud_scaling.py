"""Scaling decisions: which machines a devcluster boots and removes, and what it says to the pods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from devcluster.cloud.records import GIB, GPU, SPOT, Node, NodeGroupObject, Pod, Requirement, Taint, Term, Toleration
from devcluster.cloud.scaling import (
    BOOTING,
    GROUP_DELETED,
    IDLE,
    LEAVING,
    NEVER_READY,
    NODE_DELETED,
    NOT_TRIGGERED,
    PROVISION_SECONDS,
    READY,
    TRIGGERED,
    Machine,
    Removal,
    World,
    decide,
)
from ebb.api.contract import TAINT_RECLAIM

NOW = 1000.0
GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")
SPOT_TAINT = Taint("ebb.dev/capacity-type", "spot", "NoSchedule")
TOLERATED = (Toleration("nvidia.com/gpu", "Exists"), Toleration("ebb.dev/capacity-type", "Equal", "spot", "NoSchedule"))


def spot(letter: str = "a", **changes: Any) -> NodeGroupObject:
    """A group of one-GPU spot machines in zone local-<letter>, as the stack declares them."""
    group = NodeGroupObject(
        name=f"t4-{letter}",
        zone=f"local-{letter}",
        instance_type="g4dn.xlarge",
        gpus=1,
        cpu=4,
        memory_gib=16,
        capacity_type=SPOT,
        labels={"ebb.dev/gpu-type": "T4"},
        taints=(GPU_TAINT, SPOT_TAINT),
        min=0,
        max=4,
        usd_per_hour=0.16,
    )
    return replace(group, **changes)


def plain(**changes: Any) -> NodeGroupObject:
    """The manager group."""
    return replace(
        NodeGroupObject(name="manager", zone="local-a", cpu=2, memory_gib=8, min=0, max=1, usd_per_hour=0.1), **changes
    )


def worker(name: str = "w", **changes: Any) -> Pod:
    """A pod that waits for a GPU machine."""
    requests = {"cpu": 3000, "memory": 8 * GIB, GPU: 1, "pods": 1}
    return replace(Pod(name=name, uid=name, requests=requests, tolerations=TOLERATED, unschedulable=True), **changes)


def small(name: str, cpu: int = 500, **changes: Any) -> Pod:
    """A pod that waits for any machine."""
    return replace(Pod(name=name, uid=name, requests={"cpu": cpu, "pods": 1}, unschedulable=True), **changes)


def ready(name: str, group: NodeGroupObject, **changes: Any) -> tuple[Machine, Node]:
    """A machine that is up, with its node."""
    node = Node(name=name, group=group.name, labels=group.node_labels, taints=group.taints, allocatable=group.allocatable)
    return Machine(name=name, group=group.name, state=READY), replace(node, **changes)


def booting(name: str, group: NodeGroupObject, since: float = NOW) -> Machine:
    return Machine(name=name, group=group.name, state=BOOTING, since=since)


def world(groups: list[NodeGroupObject], *pods: Pod, up: list[tuple[Machine, Node]] | None = None, **more: Any) -> World:
    machines = [machine for machine, _ in up or []] + list(more.pop("machines", []))
    nodes = {node.name: node for _, node in up or []} | more.pop("nodes", {})
    return World(groups=groups, pods=pods, machines=machines, nodes=nodes, **{"now": NOW, **more})


FITS: Mapping[str, tuple[NodeGroupObject, Pod, bool]] = {
    "gpu worker": (spot(), worker(), True),
    "no tolerations": (spot(), worker(tolerations=()), False),
    "one of two taints tolerated": (spot(), worker(tolerations=TOLERATED[:1]), False),
    "tolerates everything": (spot(), worker(tolerations=(Toleration(operator="Exists"),)), True),
    "toleration of another value": (
        spot(),
        worker(tolerations=(TOLERATED[0], Toleration("ebb.dev/capacity-type", value="x"))),
        False,
    ),
    "toleration of another effect": (
        spot(),
        worker(tolerations=(TOLERATED[0], Toleration("ebb.dev/capacity-type", "Exists", effect="NoExecute"))),
        False,
    ),
    "PreferNoSchedule keeps nobody away": (spot(taints=(Taint("soft", "", "PreferNoSchedule"),)), worker(tolerations=()), True),
    "more cpu than a machine has": (spot(), worker(requests={"cpu": 4001, "pods": 1}), False),
    "exactly all cpu": (spot(), worker(requests={"cpu": 4000, "pods": 1}), True),
    "more memory than a machine has": (spot(), worker(requests={"memory": 16 * GIB + 1}), False),
    "two GPUs of one": (spot(), worker(requests={GPU: 2}), False),
    "GPU in a group without": (plain(), worker(), False),
    "a resource that nobody has": (plain(), small("p", requests={"example.com/fpga": 1}), False),
    "asks for nothing": (plain(), small("p", requests={}), True),
    "selector matches": (spot(), worker(node_selector={"topology.kubernetes.io/zone": "local-a"}), True),
    "selector of another zone": (spot(), worker(node_selector={"topology.kubernetes.io/zone": "local-b"}), False),
    "selector on a label of the group": (spot(), worker(node_selector={"ebb.dev/gpu-type": "T4"}), True),
    "selector on the instance type": (spot(), worker(node_selector={"node.kubernetes.io/instance-type": "g4dn.xlarge"}), True),
}


@pytest.mark.parametrize(("group", "pod", "fits"), FITS.values(), ids=FITS)
def test_a_machine_is_booted_exactly_if_the_pod_fits_one(group: NodeGroupObject, pod: Pod, fits: bool) -> None:
    assert decide(world([group], pod)).boot == (((group.name, 1),) if fits else ())


def term(key: str, operator: str, *values: str) -> Term:
    return Term((Requirement(key, operator, values),))


AFFINITY: Mapping[str, tuple[tuple[Term, ...], bool]] = {
    "In": ((term("ebb.dev/gpu-type", "In", "A10G", "T4"),), True),
    "In, other": ((term("ebb.dev/gpu-type", "In", "A10G"),), False),
    "NotIn": ((term("ebb.dev/gpu-type", "NotIn", "T4"),), False),
    "NotIn, absent label": ((term("absent", "NotIn", "T4"),), True),
    "Exists": ((term("ebb.dev/gpu-type", "Exists"),), True),
    "Exists, absent label": ((term("absent", "Exists"),), False),
    "DoesNotExist": ((term("absent", "DoesNotExist"),), True),
    "Gt": ((term("cores", "Gt", "3"),), True),
    "Lt": ((term("cores", "Lt", "3"),), False),
    "Gt, not a number": ((term("ebb.dev/gpu-type", "Gt", "3"),), False),
    "unknown operator": ((term("cores", "Near", "3"),), False),
    "terms are alternatives": ((term("absent", "Exists"), term("cores", "In", "4")), True),
    "requirements of a term hold together": ((Term((Requirement("cores", "Exists"), Requirement("absent", "Exists"))),), False),
    "empty term matches nothing": ((Term(),), False),
    "no terms match nothing": ((), False),
    "a named node is never a new one": ((Term(fields=(Requirement("metadata.name", "In", ("t4-a-x",)),)),), False),
}


@pytest.mark.parametrize(("terms", "fits"), AFFINITY.values(), ids=AFFINITY)
def test_required_node_affinity(terms: tuple[Term, ...], fits: bool) -> None:
    group = spot(labels={"ebb.dev/gpu-type": "T4", "cores": "4"})
    assert bool(decide(world([group], worker(affinity=terms))).boot) == fits


IGNORED = {
    "not tried by the scheduler yet": worker(unschedulable=False),
    "bound": worker(node="n"),
    "being deleted": worker(terminating=True),
    "failed": worker(phase="Failed"),
}


@pytest.mark.parametrize("pod", IGNORED.values(), ids=IGNORED)
def test_pods_that_wait_for_no_machine(pod: Pod) -> None:
    decision = decide(world([spot()], pod))
    assert (decision.boot, decision.events) == ((), ())


def test_small_pods_share_machines() -> None:
    pods = [small(f"p{number}", cpu=500) for number in range(9)]
    assert decide(world([plain(max=9)], *pods)).boot == (("manager", 3),)


def test_large_pods_are_packed_first() -> None:
    # 1500 + 500 twice: two machines; the small ones first would need three.
    pods = [small("a", 500), small("b", 500), small("c", 1500), small("d", 1500)]
    assert decide(world([plain(max=9)], *pods)).boot == (("manager", 2),)


def test_no_more_pods_than_a_kubelet_takes() -> None:
    pods = [small(f"p{number}", cpu=1) for number in range(111)]
    assert decide(world([plain(max=9)], *pods)).boot == (("manager", 2),)


def test_a_booting_machine_is_filled_before_another_is_asked_for() -> None:
    group = spot()
    decision = decide(world([group], worker("w0"), worker("w1"), machines=[booting("t4-a-1", group)]))
    assert decision.boot == (("t4-a", 1),)


def test_a_ready_machine_with_room_is_used_and_not_idle() -> None:
    decision = decide(world([spot()], worker(), up=[ready("t4-a-1", spot())], idle_since={"t4-a-1": 0}))
    assert (decision.boot, decision.remove, decision.events, decision.idle_since) == ((), (), (), {})


def test_a_ready_machine_counts_its_gpu_before_the_box_has_added_it() -> None:
    without = {name: amount for name, amount in spot().allocatable.items() if name != GPU}
    assert decide(world([spot()], worker(), up=[ready("t4-a-1", spot(), allocatable=without)])).boot == ()


def test_what_runs_on_a_machine_takes_its_room() -> None:
    running = worker("r", node="t4-a-1", phase="Running", unschedulable=False)
    assert decide(world([spot()], running, worker(), up=[ready("t4-a-1", spot())])).boot == (("t4-a", 1),)


def test_what_finished_on_a_machine_takes_no_room() -> None:
    finished = worker("r", node="t4-a-1", phase="Succeeded", unschedulable=False)
    assert decide(world([spot()], finished, worker(), up=[ready("t4-a-1", spot())])).boot == ()


UNUSABLE = {
    "cordoned": {"cordoned": True},
    "reclaimed": {"taints": (GPU_TAINT, SPOT_TAINT, Taint(TAINT_RECLAIM, "notice", "NoSchedule"))},
    "not ready": {"ready": False},
}


@pytest.mark.parametrize("changes", UNUSABLE.values(), ids=UNUSABLE)
def test_a_node_that_takes_no_pods_is_no_room(changes: dict[str, Any]) -> None:
    assert decide(world([spot()], worker(), up=[ready("t4-a-1", spot(), **changes)])).boot == (("t4-a", 1),)


def test_kubernetes_own_taints_pass_by_themselves() -> None:
    fresh = ready("t4-a-1", spot(), taints=(*spot().taints, Taint("node.kubernetes.io/not-ready", "", "NoSchedule")))
    assert decide(world([spot()], worker(), up=[fresh])).boot == ()


def test_a_leaving_machine_is_no_room_but_counts_against_max() -> None:
    leaving = Machine(name="t4-a-1", group="t4-a", state=LEAVING)
    assert decide(world([spot(max=2)], worker("w0"), worker("w1"), machines=[leaving])).boot == (("t4-a", 1),)


PRICES = {
    "cheapest": ([spot("a", usd_per_hour=0.3), spot("b", usd_per_hour=0.1)], (("t4-b", 1),)),
    "ties by name": ([spot("b"), spot("a")], (("t4-a", 1),)),
    "cheapest does not fit": ([spot("a", usd_per_hour=0.3), plain(usd_per_hour=0.01)], (("t4-a", 1),)),
    "cheapest is full": ([spot("a", max=0, usd_per_hour=0.1), spot("b")], (("t4-b", 1),)),
}


@pytest.mark.parametrize(("groups", "boot"), PRICES.values(), ids=PRICES)
def test_price_chooses_the_group(groups: list[NodeGroupObject], boot: tuple[tuple[str, int], ...]) -> None:
    assert decide(world(groups, worker())).boot == boot


def test_overflow_goes_to_the_next_cheapest_group() -> None:
    groups = [spot("a", max=2, usd_per_hour=0.1), spot("b", max=1, usd_per_hour=0.2), spot("c", max=9, usd_per_hour=0.3)]
    pods = [worker(f"w{number}") for number in range(5)]
    assert decide(world(groups, *pods)).boot == (("t4-a", 2), ("t4-b", 1), ("t4-c", 2))


def test_pods_pinned_to_a_zone_get_machines_there() -> None:
    pinned = [worker(f"w{number}", node_selector={"topology.kubernetes.io/zone": "local-c"}) for number in range(3)]
    assert decide(world([spot("a"), spot("b"), spot("c", usd_per_hour=9)], *pinned)).boot == (("t4-c", 3),)


def test_fifty_pending_pods_get_no_more_than_max() -> None:
    decision = decide(world([spot(max=4), spot("b", max=30)], *[worker(f"w{number:02}") for number in range(50)]))
    assert decision.boot == (("t4-a", 4), ("t4-b", 30))
    told = [(event.reason, event.message) for event in decision.events]
    assert told.count((TRIGGERED, "pod triggered scale-up: [{t4-a 0->4 (max: 4)}]")) == 4
    assert told.count((TRIGGERED, "pod triggered scale-up: [{t4-b 0->30 (max: 30)}]")) == 30
    assert told.count((NOT_TRIGGERED, "pod didn't trigger scale-up: 2 max node group size reached")) == 16


REFUSALS: Mapping[str, tuple[World, str]] = {
    "max": (world([spot(max=0)], worker()), "1 max node group size reached"),
    "max and taint": (
        world([spot(max=0), plain(), plain(name="other", taints=(GPU_TAINT,))], small("p", tolerations=TOLERATED, cpu=2500)),
        "1 max node group size reached, 2 Insufficient cpu",
    ),
    "taints": (world([spot(), spot("b")], worker(tolerations=())), "2 node(s) had untolerated taint(s)"),
    "selector": (world([plain()], small("p", node_selector={"a": "b"})), "1 node(s) didn't match Pod's node affinity/selector"),
    "resources": (world([plain()], worker()), "1 Insufficient cpu, 1 Insufficient nvidia.com/gpu"),
    "exhausted zone": (world([spot()], worker(), exhausted=frozenset({"local-a"})), "1 zone local-a is out of capacity"),
    "exhausted zone and another that does not fit": (
        world([spot(), plain()], worker(requests={GPU: 1}), exhausted=frozenset({"local-a"})),
        "1 Insufficient nvidia.com/gpu, 1 zone local-a is out of capacity",
    ),
    "backoff": (world([spot()], worker(), backoff={"t4-a": NOW + 1}), "1 in backoff after failed scale-up"),
    "no groups": (world([], worker()), "there are no node groups"),
}


@pytest.mark.parametrize(("before", "why"), REFUSALS.values(), ids=REFUSALS)
def test_a_pod_is_told_why_no_machine_is_booted_for_it(before: World, why: str) -> None:
    decision = decide(before)
    assert decision.boot == ()
    assert [(event.reason, event.message) for event in decision.events] == [
        (NOT_TRIGGERED, f"pod didn't trigger scale-up: {why}")
    ]


def test_a_dry_zone_sends_pods_to_the_next_one() -> None:
    assert decide(world([spot("a"), spot("b")], worker(), exhausted=frozenset({"local-a"}))).boot == (("t4-b", 1),)


def test_a_dry_zone_keeps_the_machines_it_has() -> None:
    running = worker("r", node="t4-a-1", phase="Running", unschedulable=False)
    assert decide(world([spot()], running, up=[ready("t4-a-1", spot())], exhausted=frozenset({"local-a"}))).remove == ()


def test_a_backoff_that_is_over_blocks_nothing() -> None:
    assert decide(world([spot()], worker(), backoff={"t4-a": NOW})).boot == (("t4-a", 1),)


def test_the_event_counts_from_the_size_there_is() -> None:
    busy = worker("r", node="t4-a-1", phase="Running", unschedulable=False)
    decision = decide(world([spot()], busy, worker("w0"), worker("w1"), up=[ready("t4-a-1", spot())]))
    assert {event.message for event in decision.events} == {"pod triggered scale-up: [{t4-a 1->3 (max: 4)}]"}


MINIMUM: Mapping[str, tuple[World, tuple[tuple[str, int], ...]]] = {
    "from nothing": (world([plain(min=1)]), (("manager", 1),)),
    "kept": (world([plain(min=1)], up=[ready("m", plain())]), ()),
    "booting counts": (world([plain(min=1)], machines=[booting("m", plain())]), ()),
    "leaving does not count": (
        world([plain(min=1, max=2)], machines=[Machine(name="m", group="manager", state=LEAVING)]),
        (("manager", 1),),
    ),
    "but max holds": (world([plain(min=1, max=1)], machines=[Machine(name="m", group="manager", state=LEAVING)]), ()),
    "exhausted zone": (world([plain(min=1)], exhausted=frozenset({"local-a"})), ()),
    "pods go there first": (world([plain(min=1, max=2)], small("p")), (("manager", 1),)),
}


@pytest.mark.parametrize(("before", "boot"), MINIMUM.values(), ids=MINIMUM)
def test_the_minimum_is_kept_without_any_pod(before: World, boot: tuple[tuple[str, int], ...]) -> None:
    assert decide(before).boot == boot


def test_a_template_is_what_ready_machines_of_the_group_really_offer() -> None:
    weak = ready("t4-a-1", spot(), allocatable={"cpu": 2000, "memory": 16 * GIB, "pods": 110, GPU: 1})
    assert decide(world([spot()], worker(), up=[weak])).boot == ()


def test_a_template_is_no_larger_than_this_computer() -> None:
    decision = decide(world([spot()], worker(), host={"cpu": 2000}))
    assert (decision.boot, decision.events[0].message) == ((), "pod didn't trigger scale-up: 1 Insufficient cpu")


def test_idle_machines_leave_after_the_delay_and_not_before() -> None:
    up = [ready("t4-a-1", spot())]
    first = decide(world([spot()], up=up, delay_seconds=20))
    assert (first.remove, first.idle_since, first.next_wake_seconds) == ((), {"t4-a-1": NOW}, 10)
    early = decide(world([spot()], up=up, delay_seconds=20, idle_since=first.idle_since, now=NOW + 19))
    assert (early.remove, early.next_wake_seconds) == ((), 1)
    late = decide(world([spot()], up=up, delay_seconds=20, idle_since=early.idle_since, now=NOW + 20))
    assert late.remove == (Removal("t4-a-1", IDLE),)


def on(name: str = "p", **changes: Any) -> Pod:
    return replace(small(name), **{"node": "t4-a-1", "phase": "Running", "unschedulable": False, **changes})


BUSY: Mapping[str, tuple[Pod, bool]] = {
    "running": (on(), True),
    "stopping": (on(terminating=True), True),
    "finished": (on(phase="Succeeded"), False),
    "failed": (on(phase="Failed"), False),
    "daemon": (on(daemon=True), False),
    "daemon with safe-to-evict=false": (on(daemon=True, pinned=True), True),
    "safe-to-evict=false": (on(pinned=True), True),
    "finished, safe-to-evict=false": (on(pinned=True, phase="Succeeded"), False),
}


@pytest.mark.parametrize(("pod", "keeps"), BUSY.values(), ids=BUSY)
def test_pods_that_keep_their_machine(pod: Pod, keeps: bool) -> None:
    decision = decide(world([spot()], pod, up=[ready("t4-a-1", spot())], idle_since={"t4-a-1": 0}))
    assert decision.remove == (() if keeps else (Removal("t4-a-1", IDLE),))


def test_idleness_starts_again_after_work() -> None:
    decision = decide(world([spot()], on(), up=[ready("t4-a-1", spot())], idle_since={"t4-a-1": 0}))
    assert decision.idle_since == {}


def test_the_longest_idle_leave_first_and_the_minimum_stays() -> None:
    group = spot(min=1)
    up = [ready(f"t4-a-{number}", group) for number in range(3)]
    idle_since = {"t4-a-0": 30.0, "t4-a-1": 10.0, "t4-a-2": 20.0}
    assert decide(world([group], up=up, idle_since=idle_since)).remove == (Removal("t4-a-1", IDLE), Removal("t4-a-2", IDLE))


def test_a_leaving_machine_does_not_make_up_the_minimum() -> None:
    leaving = Machine(name="t4-a-0", group="t4-a", state=LEAVING)
    group = spot(min=1)
    decision = decide(world([group], up=[ready("t4-a-1", group)], machines=[leaving], idle_since={"t4-a-1": 0}))
    assert decision.remove == ()


REMOVED: Mapping[str, tuple[World, tuple[Removal, ...]]] = {
    "group deleted, busy": (world([], on(), up=[ready("t4-a-1", spot())]), (Removal("t4-a-1", GROUP_DELETED),)),
    "group deleted, booting": (world([], machines=[booting("t4-a-1", spot())]), (Removal("t4-a-1", GROUP_DELETED),)),
    "group deleted, leaving already": (world([], machines=[Machine(name="x", group="t4-a", state=LEAVING)]), ()),
    "node deleted by hand": (
        world([spot()], machines=[Machine(name="t4-a-1", group="t4-a", state=READY)]),
        (Removal("t4-a-1", NODE_DELETED),),
    ),
    "booting, in time": (world([spot(boot_seconds=5)], machines=[booting("x", spot(), NOW - PROVISION_SECONDS - 4.9)]), ()),
    "booting for too long": (
        world([spot(boot_seconds=5)], machines=[booting("x", spot(), NOW - PROVISION_SECONDS - 5)]),
        (Removal("x", NEVER_READY),),
    ),
}


@pytest.mark.parametrize(("before", "removed"), REMOVED.values(), ids=REMOVED)
def test_other_reasons_to_remove_a_machine(before: World, removed: tuple[Removal, ...]) -> None:
    assert decide(before).remove == removed


def test_max_below_what_runs_removes_nobody() -> None:
    up = [ready("t4-a-1", spot(max=0))]
    assert decide(world([spot(max=0)], on(), up=up)).remove == ()


def test_the_same_world_gives_the_same_decision() -> None:
    pods = [worker(f"w{number}") for number in range(9)]
    assert decide(world([spot(), spot("b")], *pods)) == decide(world([spot("b"), spot()], *reversed(pods)))


def test_wakes_when_a_backoff_ends() -> None:
    assert decide(world([spot()], worker(), backoff={"t4-a": NOW + 3})).next_wake_seconds == 3
