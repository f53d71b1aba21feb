"""NetworkPolicies as nftables rules of each machine: the devcluster's cluster network enforces them, as those of clouds do.

    text = ruleset(machine, policies, namespaces, pods, networks)      # for `nft -f`: replaces the machine's last one in one step
    await Enforcer(load, network_of).step(records, policies, namespaces, pods)

Every pod has a link of its own to its machine, which routes: what pods say to each other, also on one machine, passes `forward`
there, after Services were turned into pods' addresses; what a pod says to its own machine passes `input`. What a machine says to
its own pods passes neither: probes always come in. A packet has to be let out where it begins and in where it ends.
As on clouds, a pod speaks freely for the second until its address is known; where policies say who may come in, what it sends
until then is lost, so that its first connection comes late and does not fail.

Kubernetes: networking.k8s.io/v1 (API reference). An answer belongs to its connection, and a connection stays that was let in.
What is refused is told so (`EHOSTUNREACH`), which is neither what a closed port says nor what is lost. IPv4 alone: so is the
devcluster.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from devcluster.cloud.records import Object
from devcluster.machines.lifecycle import MachineRecord

TABLE = "ebb-policies"
INGRESS, EGRESS = "Ingress", "Egress"
REFUSE = "counter reject with icmp type admin-prohibited"
EMPTY = f"table ip {TABLE}\ndelete table ip {TABLE}\n"  # `add` first: there is no delete that forgives
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A pod with an address of its own."""

    namespace: str
    name: str
    machine: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (protocol, name) -> number


def endpoint(pod: Object) -> Endpoint | None:
    """None: it has no address yet or no more, or its machine's."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    if spec.get("hostNetwork") or status.get("phase") in ENDED or not status.get("podIP"):
        return None
    named = {
        (port.get("protocol") or "TCP", port["name"]): int(port["containerPort"])
        for container in spec.get("containers") or []
        for port in container.get("ports") or []
        if port.get("name")
    }
    return Endpoint(
        namespace=meta["namespace"],
        name=meta["name"],
        machine=spec.get("nodeName") or "",
        address=status["podIP"],
        labels=meta.get("labels") or {},
        ports=named,
    )


def ruleset(
    machine: str,
    policies: Iterable[Object],
    namespaces: Mapping[str, Mapping[str, str]],
    pods: Iterable[Object],
    networks: Sequence[str] = (),
) -> str:
    """The rules of this machine. `policies`: all of the cluster; `namespaces`: labels by name; `networks`: of machines' pods."""
    by_age = sorted(pods, key=lambda one: one["metadata"].get("creationTimestamp") or "")
    by_address = {one.address: one for one in map(endpoint, by_age) if one}  # the younger one, where an address is used again
    everywhere = sorted(by_address.values(), key=lambda one: (one.namespace, one.name))
    in_order = sorted(policies, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"]))
    return _Ruleset(in_order, namespaces, everywhere, networks).text(machine)


@dataclass(frozen=True)
class _Ruleset:
    policies: Sequence[Object]
    namespaces: Mapping[str, Mapping[str, str]]
    everywhere: Sequence[Endpoint]
    networks: Sequence[str]

    def text(self, machine: str) -> str:
        chains: list[str] = []
        jumps: dict[str, list[str]] = {INGRESS: [], EGRESS: []}
        for pod in self.everywhere:
            if pod.machine != machine:
                continue
            for direction, found in jumps.items():
                applied = [one for one in self.policies if direction in _directions(one) and self._selects(one, pod)]
                if applied:
                    name = f"{direction.lower()}-{pod.address}"
                    chains.append(self._chain(name, pod, direction, applied))
                    found.append(f"{pod.address} : jump {name}")
        if not chains:
            return EMPTY
        maps = [
            f"  map {direction.lower()} {{\n    type ipv4_addr : verdict\n    elements = {{ {', '.join(found)} }}\n  }}\n"
            for direction, found in jumps.items()
            if found
        ]
        if self.networks:
            known = _set([one.address for one in self.everywhere])
            maps.append(f"  set pods {{\n    type ipv4_addr\n    elements = {known}\n  }}\n")
            networks = _set(self.networks)
            maps.append(f"  set networks {{\n    type ipv4_addr\n    flags interval\n    elements = {networks}\n  }}\n")
        out = ["ip saddr vmap @egress"] if jumps[EGRESS] else []
        into = ["ip daddr vmap @ingress"] if jumps[INGRESS] else []
        hooks = [_hook("forward", [*out, *into]), _hook("input", out)]
        return f"{EMPTY}table ip {TABLE} {{\n{''.join([*maps, *chains, *hooks])}}}\n"

    def _selects(self, policy: Object, pod: Endpoint) -> bool:
        own = policy["metadata"]["namespace"] == pod.namespace
        return own and selects(policy["spec"].get("podSelector") or {}, pod.labels)

    def _chain(self, name: str, pod: Endpoint, direction: str, policies: Iterable[Object]) -> str:
        """The rules of one pod: any rule of any policy lets a packet through, and what none lets through is refused."""
        lines = []
        for policy in policies:
            meta = policy["metadata"]
            for rule in policy["spec"].get(direction.lower()) or []:
                allowed = self._in(pod, rule, meta["namespace"]) if direction == INGRESS else self._out(rule, meta["namespace"])
                lines += [f'{" ".join([*one, "return"])} comment "{meta["namespace"]}/{meta["name"]}"' for one in allowed]
        if direction == INGRESS and self.networks:
            lines.append("ip saddr @networks ip saddr != @pods drop")  # of a pod that is not known yet
        body = "".join(f"    {line}\n" for line in [*dict.fromkeys(lines), f'{REFUSE} comment "{pod.namespace}/{pod.name}"'])
        return f"  chain {name} {{\n{body}  }}\n"

    def _in(self, pod: Endpoint, rule: Object, namespace: str) -> Iterable[list[str]]:
        """Matches, each of which lets a packet in: every peer with every port."""
        ports = _ports(rule.get("ports"), lambda key: {pod.ports[key]: [pod]} if key in pod.ports else {})
        for peer in self._peers(rule.get("from"), namespace, "saddr"):
            for match, _ in ports:
                yield [*peer, *match]

    def _out(self, rule: Object, namespace: str) -> Iterable[list[str]]:
        """The same for the way out. A port with a name is of the pod that is spoken to: no address block has one."""
        numbered = [port for port in rule.get("ports") or [] if not isinstance(port.get("port"), str)]
        if not rule.get("ports") or numbered:
            for peer in self._peers(rule.get("to"), namespace, "daddr"):
                for match, _ in _ports(numbered, lambda _: {}):
                    yield [*peer, *match]
        named = [port for port in rule.get("ports") or [] if isinstance(port.get("port"), str)]
        if not named:
            return
        peers = self._pods(rule["to"], namespace) if rule.get("to") else self.everywhere

        def by_number(key: tuple[str, str]) -> dict[int, list[Endpoint]]:
            found: dict[int, list[Endpoint]] = {}
            for pod in peers:
                if key in pod.ports:
                    found.setdefault(pod.ports[key], []).append(pod)
            return found

        for match, pods in _ports(named, by_number):
            yield [*_addresses("daddr", [pod.address for pod in pods]), *match]

    def _peers(self, peers: Sequence[Object] | None, namespace: str, side: str) -> Iterable[list[str]]:
        """Matches of addresses; an empty one is everybody, none is nobody."""
        if not peers:
            yield []
            return
        if pods := self._pods(peers, namespace):
            yield _addresses(side, [pod.address for pod in pods])
        for block in (peer["ipBlock"] for peer in peers if "ipBlock" in peer):
            left_out = block.get("except") or []
            yield [*_addresses(side, [block["cidr"]]), *(["ip", side, "!=", _set(left_out)] if left_out else [])]

    def _pods(self, peers: Sequence[Object], namespace: str) -> list[Endpoint]:
        return [pod for pod in self.everywhere if any(self._is_peer(one, namespace, pod) for one in peers)]

    def _is_peer(self, peer: Object, namespace: str, pod: Endpoint) -> bool:
        if "ipBlock" in peer:
            return False
        if (spaces := peer.get("namespaceSelector")) is None:
            if pod.namespace != namespace:
                return False
        elif not selects(spaces, self.namespaces.get(pod.namespace, {})):
            return False
        return selects(peer.get("podSelector") or {}, pod.labels)


def _ports(
    ports: Sequence[Object] | None, by_name: Callable[[tuple[str, str]], Mapping[int, list[Endpoint]]]
) -> list[tuple[list[str], list[Endpoint]]]:
    """Matches of ports, with the pods that give a name its number; no ports are all."""
    if not ports:
        return [([], [])]
    found: list[tuple[list[str], list[Endpoint]]] = []
    for one in ports:
        protocol, port = one.get("protocol") or "TCP", one.get("port")
        if port is None:
            found.append((["ip", "protocol", protocol.lower()], []))
        elif isinstance(port, str):
            found += [([protocol.lower(), "dport", str(number)], pods) for number, pods in by_name((protocol, port)).items()]
        else:
            last = one.get("endPort")
            found.append(([protocol.lower(), "dport", f"{port}-{last}" if last and last != port else str(port)], []))
    return found


def _addresses(side: str, addresses: Sequence[str]) -> list[str]:
    return ["ip", side, _set(addresses)]


def _set(members: Sequence[str]) -> str:
    return f"{{ {', '.join(dict.fromkeys(members))} }}"


def _hook(name: str, rules: Sequence[str]) -> str:
    body = "".join(f"    {rule}\n" for rule in ["ct state established,related accept", *rules])
    # After the rules of kube-proxy, which refuse Services that nobody serves.
    return f"  chain {name} {{\n    type filter hook {name} priority filter + 10; policy accept;\n{body}  }}\n"


def _directions(policy: Object) -> Sequence[str]:
    """Those that it closes; the API server fills them in, from a file they may be missing."""
    spec = policy["spec"]
    given: Sequence[str] = spec.get("policyTypes") or ([INGRESS, EGRESS] if spec.get("egress") else [INGRESS])
    return given


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """A LabelSelector; an empty one selects everything."""
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    own = all(labels.get(key) == value for key, value in wanted.items())
    return own and all(_holds(one, labels) for one in selector.get("matchExpressions") or [])


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":  # also without the label
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise ValueError(f"operator {other!r} of a label selector: In, NotIn, Exists and DoesNotExist are Kubernetes'")


class Enforcer:
    """Keeps every machine's rules up to date. After a kill of the daemon all are loaded again, which changes no packet."""

    def __init__(self, load: Callable[[str, str], Awaitable[bool]], network_of: Callable[[int], str]) -> None:
        """`load(machine, text)`: true when the machine has them. `network_of(index)`: of the pods of a machine."""
        self._load, self._network_of, self._loaded = load, network_of, dict[str, str]()

    async def step(
        self, machines: Iterable[MachineRecord], policies: Sequence[Object], namespaces: Sequence[Object], pods: Sequence[Object]
    ) -> None:
        """Load what has changed."""
        alive = {record.name: self._network_of(record.index) for record in machines if record.alive}
        self._loaded = {name: text for name, text in self._loaded.items() if name in alive}  # booted again it has no rules
        labels = {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in namespaces}
        for name in sorted(alive):
            text = ruleset(name, policies, labels, pods, sorted(alive.values()))
            if self._loaded.get(name) != text and await self._load(name, text):
                self._loaded[name] = text
