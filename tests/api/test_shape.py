"""Templates that are no pod templates: each is refused with the field's path, or pods are made of it; nothing breaks."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ebb.api.shape import misshapen
from ebb.api.spec import Job, SpecError
from ebb.controller.reconciler.capacity import survey
from tests.builders import make_job, make_platform
from tests.looks import look

Object = dict[str, Any]

FULL: Object = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
    "spec": {
        "containers": [
            {
                "name": "elasticjob-worker",
                "image": "trainer",
                "command": ["python"],
                "args": ["-m", "trainer"],
                "env": [{"name": "A", "value": "b"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "4Gi"}, "requests": {"cpu": "2"}},
                "securityContext": {"runAsUser": 1000},
            }
        ],
        "initContainers": [{"name": "download", "image": "trainer"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "a", "operator": "Exists", "value": "", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{}]}]}
            }
        },
        "dnsConfig": {"searches": ["example.org"]},
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "priorityClassName": "ebb-job",
    },
}
ODD: tuple[Any, ...] = (None, "text", 5, 1.5, True, [], {}, ["text"], [None], [5], {"a": 5}, "1e400", "-1", -1)
Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from paths(item, (*path, key))


def with_field(path: Path, odd: Any) -> Object:
    job = make_job()
    template = copy.deepcopy(FULL)
    inner: Any = template
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    job["spec"]["replicaSpecs"]["Worker"]["template"] = template
    return job


@pytest.mark.parametrize("path", list(paths(FULL)), ids=lambda path: ".".join(map(str, path)))
def test_whatever_a_field_holds_it_is_refused_or_planned(path: Path) -> None:
    for odd in ODD:
        value = with_field(path, odd)
        said = misshapen(value["spec"]["replicaSpecs"]["Worker"]["template"], "spec.replicaSpecs.Worker.template")
        if said:
            with pytest.raises(SpecError, match=re.escape(said)):
                Job.of(value)
        elif path != ("spec",) and (odd or path != ("spec", "containers")):  # without containers there is no job
            survey([Job.of(value)], {}, 0.0, but=("", ""))
            look(value, platform=make_platform())
            look(value)


SAID = {
    "spec": ("text", "T.spec must be an object, found 'text': write it as Kubernetes' pods have it."),
    "spec.containers.0.args": ("-m", "T.spec.containers[0].args must be a list, found '-m'"),
    "spec.containers.0.env.0.value": (5, "T.spec.containers[0].env[0].value must be text, found 5"),
    "spec.containers.0.resources.limits.memory": (True, "T.spec.containers[0].resources.limits.memory must be text or a number"),
    "spec.containers.0.volumeMounts.0": ({"name": "a"}, "T.spec.containers[0].volumeMounts[0].mountPath is missing"),
    "spec.terminationGracePeriodSeconds": ("30", "T.spec.terminationGracePeriodSeconds must be a whole number, found '30'"),
}


@pytest.mark.parametrize(("path", "odd", "said"), [(path, *rest) for path, rest in SAID.items()], ids=SAID)
def test_what_is_said(path: str, odd: Any, said: str) -> None:
    job = with_field(tuple(int(key) if key.isdigit() else key for key in path.split(".")), odd)
    assert misshapen(job["spec"]["replicaSpecs"]["Worker"]["template"], "T").startswith(said)


def test_a_full_template_is_fine() -> None:
    assert misshapen(FULL, "T") == ""
