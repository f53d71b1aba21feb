"""The scenario of one job: its size, its spec, the moment at which it is submitted, and the actions of its life.

    manifest(scenario, namespace="elastic-job", now=time.time())

Which machines are lost meanwhile is not in it: no scenario depends on that, and neither may any end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.week import actions
from benchmarks.week.actions import Action, Fail, Finish, Rest, Train
from ebb.api.clock import stamp

Object = dict[str, Any]

BROKEN = "week.ebb.dev/broken"
"""Annotation of workers whose image cannot be pulled."""
SETTLE_SECONDS = 45.0  # per job: machines boot, zones run out of machines, the controller is killed
STALL_SECONDS = 660.0  # two times the 5 minutes after which the controller gives containers up, and the machines' boots
STRAGGLER_SECONDS = 120.0  # what the controller leaves other workers after the first one finished


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One job. `need`: seconds that its life takes when nothing goes wrong."""

    name: str
    kind: str
    low: int
    replicas: int
    high: int
    actions: tuple[Action, ...]
    arrives: float = 0.0
    need: float = 0.0
    policy: str = "OnFailure"
    backoff_limit: int = 3
    ttl: int | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)
    budget_usd: float | None = None
    deadline_after: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)


def need(lived: Sequence[Action]) -> float:
    """Seconds that such a life takes."""
    seconds, failures = SETTLE_SECONDS / 3, 0
    for act in lived:
        match act:
            case Train(several) | Rest(several):
                seconds += several
            case Fail():
                failures += 1
                seconds += 5 * 2 ** (failures - 1) + 6  # the controller's pause, and new workers
            case Finish(stragglers):
                seconds += STRAGGLER_SECONDS + 10 if stragglers else 3
            case actions.Suspend() | actions.Resume() | actions.Scale() | actions.Leave() | actions.Delete() | actions.Allow():
                seconds += 6
            case actions.Overrun() | actions.Spend() | actions.Outlive() | actions.Hang():
                seconds += 45
            case actions.Stick():
                seconds += STALL_SECONDS
    return seconds


def manifest(scenario: Scenario, *, namespace: str, now: float) -> Object:
    """The ElasticJob as its author would apply it."""
    container = {
        "name": "elasticjob-worker",
        "image": "registry.example/trainer:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "2", "memory": "4Gi"}},
    }
    template: Object = {"metadata": {"annotations": dict(scenario.annotations)}, "spec": {"containers": [container]}}
    spec: Object = {
        "rdzvEndpoint": "etcd-service:2379",
        "minReplicas": scenario.low,
        "maxReplicas": scenario.high,
        "backoffLimit": scenario.backoff_limit,
        "replicaSpecs": {"Worker": {"replicas": scenario.replicas, "restartPolicy": scenario.policy, "template": template}},
        "placement": dict(scenario.placement),
        **scenario.spec,
    }
    if scenario.ttl is not None:
        spec["ttlSecondsAfterFinished"] = scenario.ttl
    if scenario.budget_usd is not None:
        spec["budget"] = {"maxUSD": scenario.budget_usd}
    if scenario.deadline_after is not None:
        spec["deadline"] = stamp(now + scenario.deadline_after)
    return {
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": scenario.name, "namespace": namespace},
        "spec": spec,
    }
