"""NetworkPolicies as rules of a machine: the text for nftables. `make prove-security` loads it, and pods try to get past it."""

from typing import Any

import pytest

from devcluster.cloud.network_policies import EMPTY, Enforcer, ruleset, selects
from devcluster.machines.lifecycle import MachineRecord
from ebb.kube import NAMESPACES, NETWORK_POLICIES, NODE_GROUPS, PODS
from tests.devcluster.cloud_world import CloudWorld, group_object, pod_object

Object = dict[str, Any]
SPACES = {"red": {"kubernetes.io/metadata.name": "red"}, "blue": {"kubernetes.io/metadata.name": "blue"}, "sys": {"tier": "sys"}}


def pod(namespace: str, name: str, number: int, machine: str = "m1", **more: Any) -> Object:
    """With the address 10.0.0.<number>."""
    ports = [{"name": "web", "containerPort": 8000 + number}, {"name": "dns", "containerPort": 53, "protocol": "UDP"}]
    spec = {"nodeName": machine, "containers": [{"ports": ports}], **more}
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
        "spec": spec,
        "status": {"phase": "Running", "podIP": f"10.0.0.{number}"},
    }


PODS_HERE = (pod("red", "one", 1), pod("red", "two", 2, "m2"), pod("blue", "one", 3), pod("sys", "dns", 4, "m2"))


def policy(spec: Object, namespace: str = "red", name: str = "guard") -> Object:
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"podSelector": {}, **spec}}


def chain(text: str, name: str) -> list[str]:
    """The rules of a chain, without their comments."""
    body = text.partition(f"chain {name} {{\n")[2].partition("  }")[0]
    return [line.strip().partition(" comment")[0] for line in body.splitlines()]


def into(*rules: Object, machine: str = "m1", pods: tuple[Object, ...] = PODS_HERE) -> list[str]:
    """The rules for packets into pod red/one."""
    return chain(ruleset(machine, [policy({"ingress": [*rules]})], SPACES, pods), "ingress-10.0.0.1")


def out_of(*rules: Object, pods: tuple[Object, ...] = PODS_HERE) -> list[str]:
    spec = {"policyTypes": ["Egress"], "egress": [*rules]}
    return chain(ruleset("m1", [policy(spec)], SPACES, pods), "egress-10.0.0.1")


REFUSED = "counter reject with icmp type admin-prohibited"


def test_without_a_policy_nothing_is_in_the_way() -> None:
    assert ruleset("m1", [], SPACES, PODS_HERE) == EMPTY
    assert ruleset("m1", [policy({}, "sys")], SPACES, PODS_HERE) == EMPTY, "its pods are on another machine"


def test_a_policy_without_rules_lets_nobody_in_and_everything_out() -> None:
    text = ruleset("m1", [policy({"policyTypes": ["Ingress"]})], SPACES, PODS_HERE)
    assert chain(text, "ingress-10.0.0.1") == [REFUSED]
    assert "egress" not in text
    assert "10.0.0.3" not in text, "no policy selects the pod of blue"
    assert chain(text, "forward")[1:] == ["ct state established,related accept", "ip daddr vmap @ingress"]


def test_a_new_text_takes_the_place_of_the_old_one() -> None:
    assert ruleset("m1", [policy({})], SPACES, PODS_HERE).startswith(EMPTY + "table ip ebb-policies {")


def test_an_empty_rule_lets_everybody_in() -> None:
    assert into({}) == ["return", REFUSED]
    assert into({"ports": [{"port": 80}]}) == ["tcp dport 80 return", REFUSED]


@pytest.mark.parametrize(
    ("peer", "addresses"),
    [
        ({"podSelector": {}}, "10.0.0.1, 10.0.0.2"),
        ({"podSelector": {"matchLabels": {"app": "one"}}}, "10.0.0.1"),
        ({"namespaceSelector": {"matchLabels": SPACES["blue"]}}, "10.0.0.3"),
        ({"namespaceSelector": {}}, "10.0.0.3, 10.0.0.1, 10.0.0.2, 10.0.0.4"),
        ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "one"}}}, "10.0.0.3, 10.0.0.1"),
    ],
)
def test_peers_are_pods_of_all_machines(peer: Object, addresses: str) -> None:
    assert into({"from": [peer]}) == [f"ip saddr {{ {addresses} }} return", REFUSED]


def test_peers_that_are_not_there_let_nobody_in() -> None:
    nowhere = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "green"}}}
    assert into({"from": [nowhere]}) == [REFUSED]


def test_address_blocks_and_what_they_leave_out() -> None:
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}
    assert out_of({"to": [block]}) == ["ip daddr { 0.0.0.0/0 } ip daddr != { 169.254.0.0/16 } return", REFUSED]


def test_ports() -> None:
    ports = [{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 100, "endPort": 200}, {"protocol": "UDP"}]
    assert into({"ports": ports}) == [
        "tcp dport 80 return", "udp dport 53 return", "tcp dport 100-200 return", "ip protocol udp return", REFUSED,
    ]  # fmt: skip


def test_a_name_of_a_port_is_that_of_the_pod_spoken_to() -> None:
    assert into({"ports": [{"port": "web"}]}) == ["tcp dport 8001 return", REFUSED]
    assert into({"ports": [{"port": "dns"}]}) == [REFUSED], "its name is of UDP"
    named = {"to": [{"podSelector": {}}], "ports": [{"port": "web"}]}
    both = ["ip daddr { 10.0.0.1 } tcp dport 8001 return", "ip daddr { 10.0.0.2 } tcp dport 8002 return"]
    assert out_of(named) == [*both, REFUSED]
    assert out_of({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": "web"}]}) == [REFUSED]


def test_policies_add_up() -> None:
    one = policy({"ingress": [{"ports": [{"port": 1}]}]}, name="one")
    two = policy({"podSelector": {"matchLabels": {"app": "one"}}, "ingress": [{"ports": [{"port": 2}]}]}, name="two")
    other = policy({"podSelector": {"matchLabels": {"app": "two"}}, "ingress": [{}]}, name="other")
    text = ruleset("m1", [two, other, one], SPACES, PODS_HERE)
    assert chain(text, "ingress-10.0.0.1") == ["tcp dport 1 return", "tcp dport 2 return", REFUSED]
    assert text == ruleset("m1", [one, two, other], SPACES, reversed(PODS_HERE)), "the order changes no text"


def test_both_directions_are_asked_on_the_way_and_only_the_way_out_to_its_own_machine() -> None:
    text = ruleset("m1", [policy({"policyTypes": ["Ingress", "Egress"]})], SPACES, PODS_HERE)
    assert chain(text, "forward")[2:] == ["ip saddr vmap @egress", "ip daddr vmap @ingress"]
    assert chain(text, "input")[2:] == ["ip saddr vmap @egress"]


@pytest.mark.parametrize(
    ("spec", "directions"),
    [
        ({}, {"ingress"}),
        ({"egress": [{}]}, {"ingress", "egress"}),
        ({"policyTypes": ["Egress"]}, {"egress"}),
        ({"policyTypes": ["Ingress"], "egress": [{}]}, {"ingress"}),
    ],
)
def test_the_directions_that_a_policy_closes(spec: Object, directions: set[str]) -> None:
    text = ruleset("m1", [policy(spec)], SPACES, PODS_HERE)
    assert {one for one in ("ingress", "egress") if f"map {one}" in text} == directions


@pytest.mark.parametrize(
    "gone",
    [
        pod("red", "late", 1, hostNetwork=True),
        {**pod("red", "late", 1), "status": {"phase": "Succeeded", "podIP": "10.0.0.1"}},
        {**pod("red", "late", 1), "status": {"phase": "Pending"}},
    ],
    ids=["of the machine", "ended", "without an address yet"],
)
def test_pods_without_an_address_of_their_own(gone: Object) -> None:
    assert ruleset("m1", [policy({})], SPACES, [gone]) == EMPTY
    assert into({"from": [{"podSelector": {"matchLabels": {"app": "late"}}}]}, pods=(PODS_HERE[0], gone)) == [REFUSED]


def test_an_address_that_is_used_again_is_the_younger_pods() -> None:
    old, new = pod("red", "old", 1), pod("blue", "new", 1)
    old["metadata"]["creationTimestamp"], new["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    assert ruleset("m1", [policy({})], SPACES, [new, old]) == EMPTY


def test_what_a_pod_sends_before_it_is_known_is_lost_and_not_refused() -> None:
    text = ruleset("m1", [policy({"ingress": []})], SPACES, PODS_HERE[:2], ["10.0.0.0/24", "10.0.1.0/24"])
    assert chain(text, "ingress-10.0.0.1") == ["ip saddr @networks ip saddr != @pods drop", REFUSED]
    assert "elements = { 10.0.0.1, 10.0.0.2 }" in text
    assert "elements = { 10.0.0.0/24, 10.0.1.0/24 }" in text


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ({"operator": "In", "values": ["a", "b"]}, {"a"}),
        ({"operator": "NotIn", "values": ["a"]}, {"c", None}),
        ({"operator": "Exists"}, {"a", "c"}),
        ({"operator": "DoesNotExist"}, {None}),
    ],
)
def test_selectors(expression: Object, chosen: set[str | None]) -> None:
    values = ("a", "c", None)
    found = {one for one in values if selects({"matchExpressions": [{"key": "k", **expression}]}, {"k": one} if one else {})}
    assert found == chosen


def test_a_rule_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ValueError, match="'Near'"):
        selects({"matchExpressions": [{"key": "k", "operator": "Near"}]}, {})


async def test_rules_are_loaded_when_they_change_and_again_when_that_failed() -> None:
    told, works = list[tuple[str, str]](), [False, True, True, True]

    async def load(machine: str, text: str) -> bool:
        told.append((machine, text))
        return works.pop(0)

    def machine(alive: bool) -> list[MachineRecord]:
        return [MachineRecord("m1", None, 1, alive)]  # type: ignore[arg-type]  # it reads no spec

    enforcer, policies = Enforcer(load, lambda index: f"10.0.{index}.0/24"), [policy({})]
    spaces = [{"metadata": {"name": "red", "labels": {}}}]
    for _ in range(3):
        await enforcer.step(machine(True), policies, spaces, PODS_HERE)
    assert [one for one, _ in told] == ["m1", "m1"]
    await enforcer.step(machine(False), policies, spaces, PODS_HERE)
    await enforcer.step(machine(True), policies, spaces, PODS_HERE)
    assert len(told) == 3, "a machine that was booted again has no rules"
    await enforcer.step(machine(True), [], spaces, PODS_HERE)
    assert told[-1] == ("m1", EMPTY)


async def test_the_daemon_brings_the_rules_to_its_machines(tmp_path: Any) -> None:
    world = CloudWorld(tmp_path)
    world.api.put(NODE_GROUPS, group_object())
    world.api.put(PODS, pod_object())
    await world.tick()
    await world.tick(10)
    (name,) = world.nodes
    running = pod_object(node=name)
    running["status"]["podIP"] = "10.210.1.2"
    world.api.put(PODS, running)
    world.api.put(NAMESPACES, {"metadata": {"name": "jobs"}})
    world.api.put(NETWORK_POLICIES, policy({}, "jobs"))
    await world.tick()
    assert chain(world.rules[name], "ingress-10.210.1.2")[-1] == REFUSED
    world.restart()
    world.rules.clear()
    await world.tick()
    assert name in world.rules, "a new daemon does not know what the machines have"
