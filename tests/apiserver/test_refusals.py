"""What a template may not ask for: refused when it is written, and by the controller where nobody refused it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from ebb.api import contract as names
from ebb.kube import KubeError, Resource
from tests.apiserver.place import Place
from tests.apiserver.plane import found, gone

Object = dict[str, Any]
POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
REFUSED: dict[str, tuple[Object, str]] = {
    "another account": ({"pod": {"serviceAccountName": "admin"}}, "serviceAccountName"),
    "a machine of its own choice": ({"pod": {"nodeName": "n0"}}, "nodeName"),
    "the machine's network": ({"pod": {"hostNetwork": True}}, "hostNetwork"),
    "the machine's processes": ({"pod": {"hostPID": True}}, "hostPID"),
    "the machine's memory": ({"pod": {"hostIPC": True}}, "hostIPC"),
    "the system's priority": ({"pod": {"priorityClassName": "system-node-critical"}}, "priorityClassName"),
    "the system's priority for the job": ({"priorityClassName": "system-cluster-critical"}, "priorityClassName"),
    "the platform's machine": ({"pod": {"nodeSelector": {names.LABEL_NODE_GROUP: "manager"}}}, "nodeSelector"),
}


@pytest_asyncio.fixture(loop_scope="session")
async def without_policy(place: Place) -> AsyncIterator[None]:
    """A cluster where nobody applied manifests/policy.yaml."""
    kube = place.made.kube
    bindings = await kube.list(BINDINGS)
    for binding in bindings:
        await gone(kube.delete(BINDINGS, None, binding["metadata"]["name"]))

    async def all_are(refused: bool) -> None:
        for changes, _ in REFUSED.values():
            if ("is refused" in await place.refusal(**changes)) is not refused:  # and not for its name, which is in use
                raise KubeError("not yet")

    await found(lambda: all_are(refused=False))
    yield
    for binding in bindings:
        await kube.create(BINDINGS, None, {**binding, "metadata": {"name": binding["metadata"]["name"]}})
    await found(lambda: all_are(refused=True))


@pytest.mark.parametrize(("changes", "field"), REFUSED.values(), ids=REFUSED)
async def test_the_policy_refuses(place: Place, changes: Object, field: str) -> None:
    said = await place.refusal(**changes)
    assert field in said
    assert "is refused" in said


async def test_the_policy_lets_ordinary_jobs_in(place: Place) -> None:
    assert await place.refusal(pod={"serviceAccountName": "default", "nodeSelector": {"disk": "fast"}}) == ""


async def test_without_the_policy_the_controller_refuses_the_same(place: Place, without_policy: None) -> None:
    jobs = [await place.submit(f"job-{number}", **changes) for number, (changes, _) in enumerate(REFUSED.values())]
    fine = await place.submit("fine", replicas=1)
    await fine.runs(1)
    for job, (_, field) in zip(jobs, REFUSED.values(), strict=True):
        reason = await job.until("it is told", lambda: job.condition(names.RUNNING).get("reason"))  # noqa: B023
        assert reason == names.REASON_SPEC_INVALID
        assert field in job.condition(names.RUNNING)["message"]
        assert not job.pods
        assert not job.services


async def test_a_refused_job_runs_when_it_is_corrected(place: Place, without_policy: None) -> None:
    job = await place.submit(replicas=1, pod={"hostPID": True})
    await job.until("it is told", lambda: job.condition(names.RUNNING).get("reason") == names.REASON_SPEC_INVALID)
    await job.patch(replicaSpecs={"Worker": {"template": {"spec": {"hostPID": None}}}})
    await job.runs(1)
