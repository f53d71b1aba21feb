"""Pods try to break in, on a devcluster with a stack of two teams: the table is attempts.py. `make prove-security`.

Every attempt is refused while all rules are there. Then each rule is removed in turn: what it alone stops is open, all else is
still refused; and refused again when it is back. Rules are the NetworkPolicies that the stack declares, as the devcluster's
machines enforce them, and rights in Kubernetes that nobody has given.
"""

import contextlib
import errno
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

import pytest
import yaml

from devcluster.commands import say
from devcluster.machines.lifecycle import node_ip
from devcluster.settings import CHECKOUT, EBB_HOME, Box
from devcluster.tools import folder_of
from tests.e2e import attempts as table
from tests.e2e.attempts import ALLOWED, ATTEMPTS, BLUE, JOBS, LISTENER, OPEN, PORT, PROGRAM, RED, SYSTEM, Attempt
from tests.e2e.conftest import Object, Platform
from tests.e2e.link_local import served
from tests.figures import report

pytestmark = pytest.mark.proof
USER = "ebb-box-admin"  # whoever gets into a worker has to be its owner
SETTLED_SECONDS = 30.0
RED_JOB, BLUE_JOB, PLAIN_JOB = "attacker", "victim", "teamless"

KUBECTL = folder_of("kubernetes", EBB_HOME) / "kubectl"

# ---------------------------------------------------------------------------------------------------------------- the place


class Attacked(Platform):
    """Asked by kubectl itself: the users' starts Python before it, which a few hundred times is most of the test."""

    def kubectl(self, *arguments: str, ok: bool = True) -> str:
        return self.run(str(KUBECTL), *arguments, ok=ok)


def settings(platform: Platform) -> Object:
    found: Object = yaml.safe_load((CHECKOUT / "Pulumi.local.yaml").read_text())
    found["config"]["ebb:local"]["kubeconfig"] = str(platform.kubeconfig)
    found["config"]["ebb:teams"] = {name: {"researchers": [f"user:{USER}"]} for name in ("red", "blue")}
    found["config"]["ebb:digits"] = False
    return found


def job(name: str, namespace: str, image: str, workers: int) -> Object:
    """Workers that listen, and that have a token, for which a job may ask."""
    resources = {"limits": {"nvidia.com/gpu": 1}, "requests": {"cpu": "50m", "memory": "64Mi"}}
    container = {"name": "elasticjob-worker", "image": image, "command": ["python3", "-c", LISTENER], "resources": resources}
    template = {"spec": {"automountServiceAccountToken": True, "containers": [container]}}
    spec: Object = {"rdzvEndpoint": "etcd-service:2379", "minReplicas": workers, "maxReplicas": workers}
    spec |= {"placement": {"gpuType": "T4"}, "replicaSpecs": {"Worker": {"replicas": workers, "template": template}}}
    meta = {"name": name, "namespace": namespace, "annotations": {"ebb.dev/owner": USER}}
    return {"apiVersion": "elastic.pytorch.org/v1alpha1", "kind": "ElasticJob", "metadata": meta, "spec": spec}


def plain_pod(name: str, namespace: str, image: str, machine: str) -> Object:
    container = {"name": "one", "image": image, "command": ["python3", "-c", LISTENER]}
    # Not by the scheduler: beside a worker, whose machine is full.
    spec = {"nodeName": machine, "automountServiceAccountToken": False, "tolerations": [{"operator": "Exists"}]}
    spec |= {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def service(name: str, namespace: str, address: str, **more: object) -> list[Object]:
    """A Service without pods of its own, which names an address of somebody's."""
    ports = [{"name": "way", "port": PORT, "protocol": "TCP"}]
    port = {**ports[0], **({"nodePort": table.NODE_PORT} if more else {})}
    meta = {"name": name, "namespace": namespace}
    slice_meta = {**meta, "labels": {"kubernetes.io/service-name": name}}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [port], **more}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": slice_meta,
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [address]}],
        },
    ]


def apply(platform: Platform, *objects: Object) -> None:
    path = platform.folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    platform.kubectl("apply", "-f", str(path))


@contextlib.contextmanager
def metadata(box: Box) -> Iterator[None]:
    """Servers at the addresses where clouds give out a machine's identity; the devcluster's router has them."""

    with contextlib.ExitStack() as at_last:
        for address in (table.METADATA, table.AGENT):
            at_last.enter_context(at_last.enter_context(served(box, address)))
        yield  # the kernel takes connections, and that is all that is asked for


# ----------------------------------------------------------------------------------------------------------------- the pods


@dataclass(frozen=True)
class Place:
    """Values for the table's words with a `$`, and the pod of each attacker."""

    facts: Mapping[str, str]
    pods: Mapping[str, tuple[str, str]]

    def ask(self, attempt: Attempt) -> list[object]:
        return [Template(part).substitute(self.facts) if isinstance(part, str) else part for part in attempt.ask]


def pods(platform: Platform, namespace: str, selector: str, number: int = 1) -> list[Object]:
    """Running, with an address, and known to the machines' rules, which are made of the same list."""

    def found() -> list[Object]:
        items = platform.get("pods", "-n", namespace, "-l", selector)["items"]
        return [one for one in items if one["status"].get("podIP") and one["status"]["phase"] == "Running"]

    result: list[Object] = platform.until(f"{number} of {selector} run", lambda: len(found()) >= number and found())
    return result


def fill(platform: Platform) -> Place:
    """Everything that the attempts need, and where it is."""
    image = json.loads(platform.get("configmap", "ebb-platform", "-n", SYSTEM)["data"]["platform.json"])["trainerImage"]
    jobs = ((RED_JOB, RED, 2), (BLUE_JOB, BLUE, 1), (PLAIN_JOB, JOBS, 1))
    apply(platform, *(job(name, space, image, workers) for name, space, workers in jobs))
    (red, red_too), (blue,), (plain,) = (pods(platform, space, f"job-name={name}", workers) for name, space, workers in jobs)
    machine, third = red["spec"]["nodeName"], plain["spec"]["nodeName"]  # each has one: their GPU is all that a machine has
    apply(
        platform,
        plain_pod("beside", BLUE, image, machine),
        plain_pod("stranger", table.ELSEWHERE, image, machine),
        *service("detour", RED, blue["status"]["podIP"]),
        *service("detour", table.ELSEWHERE, blue["status"]["podIP"], type="NodePort"),
    )
    label = "app.kubernetes.io/name="
    gateway, gateway_blue, gateway_plain = (pods(platform, space, f"{label}ebb-gateway")[0] for space in (RED, BLUE, JOBS))
    etcd, etcd_red, etcd_blue = (
        pods(platform, SYSTEM, f"{label}{name}")[0] for name in ("etcd", "etcd-team-red", "etcd-team-blue")
    )
    controller = pods(platform, SYSTEM, f"{label}ebb-controller")[0]
    for one in (gateway, gateway_blue, gateway_plain):
        begin_to_listen(platform, one)
    platform.until("the pods beside run", lambda: all(address(platform, *one) for one in BESIDE))
    box = Box.load(platform.box_name)
    server = urlsplit(box.api_url)
    known = {
        "red": red, "red_too": red_too, "blue": blue, "plain": plain, "gateway": gateway, "gateway_blue": gateway_blue,
        "gateway_plain": gateway_plain,
        "etcd": etcd, "etcd_red": etcd_red, "etcd_blue": etcd_blue, "controller": controller,
    }  # fmt: skip
    places = {name: str(one["status"]["podIP"]) for name, one in known.items()}
    places |= {"blue_beside": address(platform, *BESIDE[0]), "api": box.api_url}
    places |= {"api_host": str(server.hostname), "api_port": str(server.port)}
    places |= {"machine": node_ip(box, machine), "other_machine": node_ip(box, third)}
    places["manager"] = node_ip(box, gateway["spec"]["nodeName"])
    places["blue_name"] = f"{blue['spec']['hostname']}.{blue['spec']['subdomain']}.{BLUE}.svc.cluster.local"
    attackers = {
        table.WORKER: red, table.OTHER: blue, table.PLAIN: plain, table.GATEWAY: gateway, table.PLATFORM: controller,
    }  # fmt: skip
    by = {name: (one["metadata"]["namespace"], one["metadata"]["name"]) for name, one in attackers.items()}
    return Place(facts=places, pods={**by, table.STRANGER: BESIDE[1]})


BESIDE = ((BLUE, "beside"), (table.ELSEWHERE, "stranger"))


def address(platform: Platform, namespace: str, name: str) -> str:
    return str(platform.get("pod", name, "-n", namespace)["status"].get("podIP") or "")


def begin_to_listen(platform: Platform, pod: Object) -> None:
    """A gateway opens no port of its pod; this one does, as by a mistake, so that the policy alone is in the way."""
    meta = pod["metadata"]
    words = ["exec", "-n", meta["namespace"], meta["name"], "--", "sh", "-c"]
    platform.kubectl(*words, 'python3 -c "$1" </dev/null >/dev/null 2>&1 &', "sh", LISTENER)


# ------------------------------------------------------------------------------------------------------------- the attempts


def answers(platform: Platform, place: Place, tried: Sequence[Attempt]) -> dict[Attempt, str]:
    """The answer to each attempt, all asked at once."""

    def of_pod(by: str) -> dict[Attempt, str]:
        mine = [one for one in tried if one.by == by]
        namespace, name = place.pods[by]
        asked = json.dumps([place.ask(one) for one in mine])
        told = platform.kubectl("exec", "-n", namespace, name, "--", "python3", "-c", PROGRAM, asked)
        return dict(zip(mine, json.loads(told), strict=True))

    attackers = list(dict.fromkeys(one.by for one in tried))
    with ThreadPoolExecutor(len(attackers)) as pool:
        return {attempt: told for found in pool.map(of_pod, attackers) for attempt, told in found.items()}


def wrong(told: Mapping[Attempt, str], away: frozenset[str]) -> dict[Attempt, str]:
    """Attempts that did not end as they have to while these rules are away."""
    return {one: said for one, said in told.items() if not (said == OPEN if one.rules <= away else is_refusal(one, said))}


def is_refusal(attempt: Attempt, said: str) -> bool:
    """A rule's own answer: nobody who is not there, no lost packet and no unknown name is taken for one."""
    return said in ("401", "403") if attempt.ask[0] == "http" else f"[Errno {errno.EHOSTUNREACH}]" in said


def settle(platform: Platform, place: Place, away: frozenset[str]) -> dict[Attempt, str]:
    """Try until all end as they have to; rules take a moment to arrive. Returns what they got."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        told = answers(platform, place, [*ATTEMPTS, *ALLOWED])
        if not (found := wrong(told, away)):
            return told
        told_wrong = [f"{one.by} -> {one.name} {place.ask(one)}: {said}" for one, said in found.items()]
        assert time.monotonic() < deadline, "\n".join([f"without {sorted(away) or 'nothing'}:", *told_wrong])


BINDING = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
ADMIN = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
SUBJECTS = {
    next(iter(table.NO_RIGHTS)): {"kind": "ServiceAccount", "namespace": RED, "name": "default"},
    next(iter(table.NOBODY)): {"kind": "User", "apiGroup": ADMIN["apiGroup"], "name": "system:anonymous"},
}


def policies(platform: Platform) -> dict[str, Object]:
    """All of the cluster by the table's names, as they are applied again."""
    found = {}
    for one in platform.get("networkpolicies", "-A")["items"]:
        meta = {key: value for key, value in one["metadata"].items() if key in ("name", "namespace", "labels", "annotations")}
        found[table.policy(meta["namespace"], meta["name"])] = {**one, "metadata": meta}
    return found


def take_away(platform: Platform, saved: Mapping[str, Object], rules: frozenset[str]) -> None:
    """Delete policies; give a right that is not there."""
    for rule in sorted(rules & SUBJECTS.keys()):
        apply(platform, {**BINDING, "metadata": {"name": "break-in"}, "roleRef": ADMIN, "subjects": [SUBJECTS[rule]]})
    for rule in sorted(rules - SUBJECTS.keys()):
        meta = saved[rule]["metadata"]
        platform.kubectl("delete", "networkpolicy", meta["name"], "-n", meta["namespace"])


def put_back(platform: Platform, saved: Mapping[str, Object], rules: frozenset[str]) -> None:
    if rules & SUBJECTS.keys():
        platform.kubectl("delete", "clusterrolebinding", "break-in")
    if lost := [saved[rule] for rule in sorted(rules - SUBJECTS.keys())]:
        apply(platform, *lost)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Platform]:
    it = Attacked(tmp_path, "breakin", says=True)
    with it.on_a_devcluster():
        it.bring_up(settings(it))
        yield it


def test_pods_break_in_where_a_rule_is_missing_and_nowhere_else(stack: Platform) -> None:
    began = time.monotonic()
    say("the workers, and what they attack")
    place = fill(stack)
    saved, away, opened = policies(stack), frozenset[str](), set[Attempt]()
    groups = list(dict.fromkeys(one.rules for one in ATTEMPTS))
    with metadata(Box.load(stack.box_name)):
        told = settle(stack, place, away)
        for one in ATTEMPTS:
            say(f"refused: {one.by} -> {one.name}: {told[one]}")
        for number, rules in enumerate([*groups, frozenset[str]()], 1):
            put_back(stack, saved, away - rules)
            take_away(stack, saved, rules - away)
            told, away = settle(stack, place, rules), rules
            mine = {one for one in ATTEMPTS if one.rules == rules and told[one] == OPEN}
            opened |= mine
            if rules:
                reached = sum(told[one] == OPEN for one in ATTEMPTS)
                say(f"{number} of {len(groups)}: away is {' and '.join(sorted(rules))}; open are {reached} of {len(ATTEMPTS)}")
        say("with all rules again: all refused")
    report({
        "attempts": len(ATTEMPTS),
        "refused": len(ATTEMPTS),  # settle() ends with nothing else
        "succeed_without_their_rule": len(opened),
        "rules": len({rule for one in ATTEMPTS for rule in one.rules}),
        "seconds": round(time.monotonic() - began),
    })  # fmt: skip
    assert len(opened) == len(ATTEMPTS)
