"""What a worker's template may not ask for: a row for each rule, what is refused and what is not."""

from typing import Any

import pytest

from ebb.api.spec import Job, SpecError
from ebb.api.template import refusal
from tests.builders import make_job

Object = dict[str, Any]
POD = "spec.replicaSpecs.Worker.template.spec"

FINE: dict[str, tuple[Object, str | None]] = {
    "silent": ({}, None),
    "the account default": ({"serviceAccountName": "default", "serviceAccount": "default"}, None),
    "no account": ({"serviceAccountName": ""}, None),
    "its own namespaces, in so many words": ({"hostNetwork": False, "hostPID": False, "hostIPC": None}, None),
    "a job's class": ({"priorityClassName": "ebb-job"}, "ebb-job"),
    "a class with system in its name": ({"priorityClassName": "my-system-class"}, None),
    "machines by label": ({"nodeSelector": {"ebb.dev/node-group": "spot-t4-local-a"}, "nodeName": ""}, None),
}


@pytest.mark.parametrize(("pod", "priority"), FINE.values(), ids=FINE)
def test_what_is_fine(pod: Object, priority: str | None) -> None:
    assert refusal({"spec": pod}, priority) == ""


REFUSED: dict[str, tuple[Object, str | None, str]] = {
    "an account": (
        {"serviceAccountName": "admin"},
        None,
        f"{POD}.serviceAccountName 'admin' is refused: whoever may submit jobs would get the rights of that account. "
        "Remove it; workers run as 'default' of their namespace.",
    ),
    "an account by its old name": ({"serviceAccount": "admin"}, None, f"{POD}.serviceAccount 'admin' is refused: "),
    "a machine": (
        {"nodeName": "n1"},
        None,
        f"{POD}.nodeName 'n1' is refused: it goes past the scheduler, and so past taints and what is free. "
        "Remove it, and choose machines by spec.placement or nodeSelector.",
    ),
    "the machine's network": (
        {"hostNetwork": True},
        None,
        f"{POD}.hostNetwork True is refused: workers do not share namespaces with their machine. Remove it.",
    ),
    "the machine's processes": ({"hostPID": True}, None, f"{POD}.hostPID True is refused: "),
    "the machine's memory": ({"hostIPC": True}, None, f"{POD}.hostIPC True is refused: "),
    "the platform's machine": (
        {"nodeSelector": {"ebb.dev/node-group": "manager"}},
        None,
        f"{POD}.nodeSelector ebb.dev/node-group='manager' is refused: that machine is for the platform. "
        "Name another node group, or remove it.",
    ),
    "Kubernetes' class": (
        {"priorityClassName": "system-node-critical"},
        None,
        f"{POD}.priorityClassName 'system-node-critical' is refused: such workers would push the platform and the machines' own "
        "agents off. Use 'ebb-job', or none.",
    ),
    "Kubernetes' class, of the job": (
        {},
        "system-cluster-critical",
        "spec.priorityClassName 'system-cluster-critical' is refused: ",
    ),
    "the platform's class": ({"priorityClassName": "ebb-system"}, None, f"{POD}.priorityClassName 'ebb-system' is refused: "),
}


@pytest.mark.parametrize(("pod", "priority", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(pod: Object, priority: str | None, message: str) -> None:
    found = refusal({"spec": pod}, priority)
    assert (found[: len(message)], found[-1]) == (message, ".")


@pytest.mark.parametrize(("pod", "priority", "message"), REFUSED.values(), ids=REFUSED)
def test_such_a_job_is_no_job(pod: Object, priority: str | None, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        Job.of(make_job(pod=pod, priorityClassName=priority))
    assert str(caught.value).startswith(message)


def test_a_job_that_somebody_else_runs_is_not_judged() -> None:
    assert not Job.of(make_job(pod={"hostNetwork": True}, managedBy="kueue.x-k8s.io/multikueue")).deleting
