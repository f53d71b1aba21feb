"""Commands that only read, on a real API server and with a researcher's rights alone: check, status, events, top, list, wait, ui.

The doctor's questions (SelfSubjectAccessReview, the kind's OpenAPI, who one is) have answers of Kubernetes' own here.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from ebb import client
from ebb.api.contract import LABEL_RECORD
from ebb.cli.ui.server import JOBS as JOBS_PAGE
from ebb.client.diagnostics.symptoms import Finding
from ebb.client.jobs.top import top_now
from ebb.client.jobs.watch import list_jobs, status, wait_for
from ebb.client.platform.connection import Ebb, connect
from ebb.client.timeline.events import events
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, EVENTS, NODES, Denied, Kube, KubeError, Object, Resource
from tests.apiserver.plane import ACCOUNTS, JOBS, SYSTEM, Made, found, gone
from tests.cli.ui.served import served
from tests.cli.world import elastic_job, platform_map

BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
NAME = "looked-at"


@pytest_asyncio.fixture(loop_scope="session")
async def ada(made: Made, tmp_path: Path) -> AsyncIterator[Path]:
    """The kubeconfig of a researcher; the stack's ConfigMap and a job are there as well."""
    await made.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ada", "namespace": JOBS}})
    for namespace, role in ((JOBS, "ebb-researcher"), (SYSTEM, "ebb-researcher-platform")):
        await made.kube.apply(BINDINGS, namespace, binding("Role", role), manager="tests")
    await made.kube.apply(CLUSTER_BINDINGS, None, binding("ClusterRole", "ebb-researcher"), manager="tests")
    await made.apply(platform_map())
    job = elastic_job(NAME)
    job["spec"]["managedBy"] = "ebb.dev/tests"  # or a controller that other tests have started would write its status
    written = await made.kube.create(ELASTIC_JOBS, JOBS, {**job, "metadata": {"name": NAME}})
    await made.kube.replace(ELASTIC_JOBS, JOBS, NAME, {**written, "status": job["status"]}, "status")
    answer = await made.kube.request(
        "POST", ACCOUNTS.path(JOBS, "ada", "token"),
        body={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )  # fmt: skip
    yield login(made, answer["status"]["token"], tmp_path)
    await gone(made.kube.delete(ELASTIC_JOBS, JOBS, NAME))
    await gone(made.kube.delete(CONFIG_MAPS, SYSTEM, "ebb-platform"))


def login(made: Made, token: str, folder: Path) -> Path:
    """A kubeconfig with this token in place of the administrator's certificate."""
    config = json.loads(made.processes.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def binding(kind: str, role: str) -> Object:
    subject = {"kind": "ServiceAccount", "name": "ada", "namespace": JOBS}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": f"ada-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [subject],
    }


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[Ebb]:
    async with connect(str(path), namespace=JOBS) as ebb:
        yield ebb


async def checked(path: Path) -> dict[str, Finding]:
    return {finding.name: finding for finding in await client.check(str(path), namespace=JOBS)}


async def test_a_researcher_has_every_right_and_sees_everything(ada: Path) -> None:
    async def complete() -> None:  # rights take a moment to reach the authorizer
        assert (await checked(ada))["rights"].level == "ok"

    await found_in_time(complete)
    seen = await checked(ada)
    assert seen["api server"].text.endswith(f"as system:serviceaccount:{JOBS}:ada")
    assert seen["elasticjobs"].text.endswith("with the fields that this `ebb` knows")
    levels = {name: finding.level for name, finding in seen.items()}
    assert levels.pop("controller") in ("ok", "problem"), "as other tests have left it"
    assert levels == {
        "kubeconfig": "ok", "api server": "ok", "platform": "ok", "rights": "ok", "elasticjobs": "ok", "namespace": "ok",
        "volumes": "problem", "etcd": "ok", "autoscaler": "ok", "quotas": "ok", "gateway": "problem",
    }  # fmt: skip
    assert "ebb-data is not there" in seen["volumes"].text


async def test_a_stranger_is_told_what_they_lack(made: Made, ada: Path) -> None:
    await made.kube.delete(BINDINGS, JOBS, "ada-ebb-researcher")

    async def gone_now() -> None:
        assert (await checked(ada))["rights"].level == "problem"

    await found_in_time(gone_now)
    assert "create elasticjobs (submit, sweep)" in (await checked(ada))["rights"].text


async def test_looking_needs_no_other_rights(made: Made, ada: Path) -> None:
    told = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{NAME}.1", "namespace": JOBS}, "type": "Normal",
        "reason": "FailedScheduling", "message": "0/0 nodes", "firstTimestamp": "2099-01-01T00:00:00Z",
        "lastTimestamp": "2099-01-01T00:00:00Z", "count": 3,
        "involvedObject": {"kind": "Pod", "name": f"{NAME}-worker-0", "namespace": JOBS, "apiVersion": "v1"},
    }  # fmt: skip
    await made.kube.create(EVENTS, JOBS, told)

    async def looked() -> None:
        async with connected(ada) as ebb:
            assert NAME in [job.name for job in await list_jobs(ebb)]
            assert (await status(ebb, NAME)).job.state == "running"
            assert [(entry.text, entry.count) for entry in await events(ebb, NAME)] == [("worker 0 waits for a machine", 3)]
            assert NAME in [job.name for job in (await top_now(ebb)).jobs]
            assert [job.name for job in await wait_for(ebb, [NAME], "running", timeout_seconds=10)] == [NAME]
            await ebb.kube.list(NODES)
            async with served(ebb.kube, ebb=ebb) as page, page.stream(f"{JOBS_PAGE}/{NAME}/stream") as news:
                async for kind, data in news:
                    if kind == "page" and "waits for a machine" in data.get("body", ""):
                        break
                assert page.live.snapshot is not None
                assert page.live.snapshot.machines is not None
                assert page.live.trouble == ""

    await found_in_time(looked)
    await made.kube.delete(EVENTS, JOBS, f"{NAME}.1")


def config_map(name: str, **labels: str) -> Object:
    metadata = {"name": name, "namespace": JOBS, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"usdSpent": "1"}}


def a_record(name: str) -> Object:
    return config_map(name, **{LABEL_RECORD: "true"})


async def may_write(kube: Kube) -> None:
    await kube.create(CONFIG_MAPS, JOBS, config_map("settings"), dry_run=True)


async def test_a_researcher_can_neither_edit_nor_delete_the_record_of_a_job_nor_make_one_up(made: Made, ada: Path) -> None:
    name, other = "ebb-record-job-0b8e7a52", "settings"
    await made.kube.create(CONFIG_MAPS, JOBS, a_record(name))
    try:
        async with connected(ada) as ebb:
            await found(lambda: may_write(ebb.kube))  # her rights are there
            for attempt in (
                lambda: ebb.kube.patch(CONFIG_MAPS, JOBS, name, {"data": {"usdSpent": "0"}}),
                lambda: ebb.kube.patch(CONFIG_MAPS, JOBS, name, {"metadata": {"labels": {LABEL_RECORD: None}}}),
                lambda: ebb.kube.delete(CONFIG_MAPS, JOBS, name),
                lambda: ebb.kube.request("DELETE", CONFIG_MAPS.path(JOBS), query={"labelSelector": f"{LABEL_RECORD}=true"}),
                lambda: ebb.kube.create(CONFIG_MAPS, JOBS, a_record("made-up")),
                lambda: ebb.kube.create(CONFIG_MAPS, JOBS, config_map("ebb-record-of-a-job-that-runs-00000000")),
            ):
                with pytest.raises(Denied, match="the controller alone writes and deletes those"):
                    await attempt()
            # Her own are hers as before, until she gives one the label.
            await ebb.kube.create(CONFIG_MAPS, JOBS, config_map(other))
            await ebb.kube.patch(CONFIG_MAPS, JOBS, other, {"data": {"usdSpent": "2"}})
            with pytest.raises(Denied, match="leave out the label"):
                await ebb.kube.patch(CONFIG_MAPS, JOBS, other, {"metadata": {"labels": {LABEL_RECORD: "true"}}})
            await ebb.kube.delete(CONFIG_MAPS, JOBS, other)
            assert (await ebb.kube.get(CONFIG_MAPS, JOBS, name))["data"] == {"usdSpent": "1"}
    finally:
        await gone(made.kube.delete(CONFIG_MAPS, JOBS, name))


async def test_the_controller_writes_and_deletes_records_and_deletes_nothing_else(made: Made, tmp_path: Path) -> None:
    await made.kube.create(CONFIG_MAPS, JOBS, config_map("settings"))
    try:
        async with Kube.connect(str(login(made, await made.token(), tmp_path))) as kube:
            await kube.create(CONFIG_MAPS, JOBS, a_record("ebb-record-job-11111111"))
            with pytest.raises(Denied, match="settings is no record"):
                await kube.delete(CONFIG_MAPS, JOBS, "settings")
            await kube.delete(CONFIG_MAPS, JOBS, "ebb-record-job-11111111")
    finally:
        await gone(made.kube.delete(CONFIG_MAPS, JOBS, "settings"))


async def found_in_time(check: Callable[[], Awaitable[None]]) -> None:
    """Rights that were just given or taken reach the authorizer within a moment."""

    async def ask() -> None:
        try:
            await check()
        except (AssertionError, pytest.fail.Exception) as error:
            raise KubeError(str(error)) from error

    await found(ask)
