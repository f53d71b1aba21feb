"""`ebb secret` on a real API server: what a researcher may do to Secrets, and that a value is in no other place.

A researcher may write and not read. Kubernetes answers some writes with what was there (a patch, some deletions); the role or
manifests/policy.yaml refuses these.
"""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ebb.api.contract import LABEL_SECRET
from ebb.cli.app import app
from ebb.cli.options import Session
from ebb.client.secrets.uses import object_name
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, EVENTS, PODS, SECRETS, Denied, Kube, KubeError, NotFound, Object
from tests.apiserver.controller import Process
from tests.apiserver.plane import ACCOUNTS, JOBS, SYSTEM, Made, gone
from tests.apiserver.test_researcher import ada, found_in_time, login  # noqa: F401 - ada is a fixture

VALUE, OTHER, PASSWORD = "hf_AbCdEfGhIjKlMnOp", "hf_QrStUvWxYzAbCdEf", "pass-PASS-pass"
NAMES = ("hf-token", "gcs", "lab")


async def ebb(kubeconfig: Path, *words: str, given: str = "", code: int = 0) -> str:
    """All that the command prints. In a thread, as it has a loop of its own."""

    def run() -> Result:
        return CliRunner().invoke(app, list(words), obj=Session(kubeconfig=str(kubeconfig)), input=given, env={"COLUMNS": "200"})

    done = await asyncio.to_thread(run)
    assert done.exit_code == code, (words, done.output)
    return done.output


async def everything(made: Made) -> list[Object]:
    """All objects of the jobs' namespace but Secrets, and their events."""
    found: list[Object] = []
    for root in ("/api/v1", "/apis/elastic.pytorch.org/v1alpha1", "/apis/apps/v1", "/apis/events.k8s.io/v1"):
        for kind in (await made.kube.request("GET", root))["resources"]:
            if kind["namespaced"] and "list" in kind["verbs"] and kind["name"] != "secrets":
                found += (await made.kube.request("GET", f"{root}/namespaces/{JOBS}/{kind['name']}"))["items"]
    return found


async def content(made: Made, name: str, key: str = "value") -> str:
    return base64.b64decode((await made.kube.get(SECRETS, JOBS, object_name(name)))["data"][key]).decode()


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: with-secrets\ngpu: T4\ncode: false\nsecret: [hf-token, gcs=/secrets/gcs.json]\nregistry-secret: lab\n"
        "image: ghcr.io/lab/trainer:1\ncommand: -m trainer\n"
    )
    return path


async def test_a_value_is_in_the_secret_and_in_no_other_place(
    made: Made,
    controller: Process,
    ada: Path,  # noqa: F811
    job_file: Path,
) -> None:
    said: list[str] = []
    if not controller.alive:
        await controller.start()
    try:

        async def first() -> None:  # rights take a moment to reach the authorizer
            try:
                said.append(await ebb(ada, "secret", "set", "hf-token", given=VALUE))
            except AssertionError as error:
                raise KubeError(str(error)) from error

        await found_in_time(first)
        assert await content(made, "hf-token") == VALUE
        said.append(await ebb(ada, "secret", "set", "hf-token", "-o", "json", given=f"{OTHER}\n"))
        assert await content(made, "hf-token") == OTHER
        said.append(await ebb(ada, "secret", "set", "gcs", given=VALUE))
        said.append(await ebb(ada, "secret", "set", "lab", "--registry", "ghcr.io", "--username", "ada", given=PASSWORD))
        assert json.loads(await content(made, "lab", ".dockerconfigjson"))["auths"]["ghcr.io"]["password"] == PASSWORD
        said.append(await ebb(ada, "submit", "-f", str(job_file), "-o", "json"))
        pod = await made.seen.until(
            "the worker is made",
            lambda: made.seen.get(PODS, JOBS, "with-secrets-worker-0"),
            30,
            also=controller.said,
        )
        (container,) = pod["spec"]["containers"]
        assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "ebb-secret-hf-token", "key": "value"}}} in container[
            "env"
        ]
        assert "/secrets/gcs.json" in [mount["mountPath"] for mount in container["volumeMounts"]]
        assert pod["spec"]["imagePullSecrets"] == [{"name": "ebb-secret-lab"}]
        await made.seen.until("its events", lambda: [one for one in made.seen.all(EVENTS, JOBS) if "with-s" in json.dumps(one)])
        said.append(await ebb(ada, "secret", "list"))
        said.append(await ebb(ada, "status", "with-secrets", "-o", "json"))
        said.append(await ebb(ada, "secret", "rm", "hf-token", code=1))
        assert "is used by with-secrets" in said[-1]
        stored = json.dumps(await everything(made))
        assert "ebb-secret-hf-token" in stored
        for value in (VALUE, OTHER, PASSWORD):
            for needle in (value, base64.b64encode(value.encode()).decode().rstrip("=")[:-1]):
                assert needle not in stored
                assert needle not in "".join(said)
                assert needle not in controller.log.read_text()
        said.append(await ebb(ada, "secret", "rm", "hf-token", "--force"))
        assert object_name("hf-token") not in [one["metadata"]["name"] for one in await made.kube.list(SECRETS, JOBS)]
    finally:
        await gone(made.kube.delete(ELASTIC_JOBS, JOBS, "with-secrets"))
        for name in NAMES:
            await gone(made.kube.delete(SECRETS, JOBS, object_name(name)))
            await gone(made.kube.delete(CONFIG_MAPS, JOBS, object_name(name)))


def secret(name: str, *, label: str = "", kind: str = "Opaque", **metadata: object) -> Object:
    labels = {"ebb.dev/secret": label} if label else {}
    return {
        "apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": name, "labels": labels, **metadata},
        "stringData": {"value": VALUE},
    }  # fmt: skip


ACCOUNT = {"annotations": {"kubernetes.io/service-account.name": "default"}}
REFUSED: dict[str, tuple[Object, str]] = {
    "somebody's own": (secret("mine"), "is none of `ebb secret`"),
    "with a label of another name": (secret("ebb-secret-a", label="b"), "is none of `ebb secret`"),
    "the token of an account": (
        secret("ebb-secret-a", label="a", kind="kubernetes.io/service-account-token", **ACCOUNT), "may be the token of an",
    ),
    "one whose deletion would show it": (secret("ebb-secret-a", label="a", finalizers=["x.io/y"]), "finalizers of a Secret"),
}  # fmt: skip


async def refuses(kube: Kube) -> None:
    """A researcher's right and the policy both need a moment."""
    with pytest.raises(Denied, match="none of `ebb secret`"):
        await kube.create(SECRETS, JOBS, secret("mine"), dry_run=True)


async def test_a_researcher_writes_secrets_of_ebb_alone_and_no_answer_shows_one(made: Made, ada: Path) -> None:  # noqa: F811
    path, theirs = SECRETS.path(JOBS, "ebb-secret-a"), SECRETS.path(JOBS, "somebodys")
    await made.kube.create(SECRETS, JOBS, secret("ebb-secret-a", label="a"))
    await made.kube.create(SECRETS, JOBS, secret("somebodys"))
    try:
        async with Kube.connect(str(ada)) as kube:
            await found_in_time(lambda: refuses(kube))
            for body, sentence in REFUSED.values():
                with pytest.raises(Denied, match=sentence):
                    await kube.create(SECRETS, JOBS, body)
            for method, where in (("GET", path), ("GET", SECRETS.path(JOBS)), ("PATCH", path), ("DELETE", SECRETS.path(JOBS))):
                with pytest.raises(Denied, match="cannot"):
                    await kube.request(method, where, body={}, content_type="application/merge-patch+json")
            for method, body in (("PUT", secret("somebodys", label="a")), ("DELETE", {})):
                with pytest.raises(Denied, match="is none of `ebb secret`"):
                    await kube.request(method, theirs, body=body)
            for options in ({"propagationPolicy": "Foreground"}, {"propagationPolicy": "Orphan"}, {"orphanDependents": True}):
                with pytest.raises(Denied, match="is refused, as the answer would show"):
                    await kube.request("DELETE", path, body={"kind": "DeleteOptions", "apiVersion": "v1", **options})
                shown = await made.kube.request("DELETE", path, body={**options, "dryRun": ["All"]})
                assert "data" in shown, "without the policy it does"
            with pytest.raises(Denied, match="is refused, as the answer would show"):
                await kube.request("DELETE", path, query={"propagationPolicy": "Foreground", "dryRun": "All"})
            emptied = {**secret("ebb-secret-a", label="a"), "stringData": {}}
            answers = [
                await kube.request("PUT", path, body=emptied, query={"dryRun": "All"}),
                await kube.request("DELETE", path, query={"dryRun": "All"}),
                await kube.request("DELETE", path, body={"propagationPolicy": "Background"}),
            ]
            assert base64.b64encode(VALUE.encode()).decode() not in json.dumps(answers)
        assert await content_of(made, "somebodys") == VALUE
    finally:
        await gone(made.kube.delete(SECRETS, JOBS, "ebb-secret-a"))
        await gone(made.kube.delete(SECRETS, JOBS, "somebodys"))


async def test_who_may_read_them_deletes_all_of_a_namespace(made: Made, ada: Path) -> None:  # noqa: F811
    """As Kubernetes does where a namespace is deleted: such a request names no Secret."""
    await made.kube.create(SECRETS, JOBS, secret("ebb-secret-left", label="left"))
    async with Kube.connect(str(ada)) as researcher:
        await found_in_time(lambda: refuses(researcher))
    await made.kube.request("DELETE", SECRETS.path(JOBS), query={"labelSelector": f"{LABEL_SECRET}=left"})
    with pytest.raises(NotFound):
        await made.kube.get(SECRETS, JOBS, "ebb-secret-left")


async def content_of(made: Made, name: str) -> str:
    return base64.b64decode((await made.kube.get(SECRETS, JOBS, name))["data"]["value"]).decode()


async def test_who_renews_certificates_fills_that_secret_and_no_other(
    made: Made,
    ada: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The policy is there when it comes: at each renewal, and when an older stack is upgraded."""
    change, how = {"data": {"tls.crt": base64.b64encode(b"new").decode()}}, "application/merge-patch+json"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await made.kube.request("POST", ACCOUNTS.path(SYSTEM, "etcd-certificates", "token"), body=body)
    for name in ("ebb-etcd", "somebodys"):
        await made.kube.create(SECRETS, JOBS, secret(name))
    try:
        async with Kube.connect(str(ada)) as researcher:
            await found_in_time(lambda: refuses(researcher))
        async with Kube.connect(str(login(made, answer["status"]["token"], tmp_path))) as kube:
            await kube.request("PATCH", SECRETS.path(JOBS, "ebb-etcd"), body=change, content_type=how)
            with pytest.raises(Denied, match="cannot"):
                await kube.request("PATCH", SECRETS.path(JOBS, "somebodys"), body=change, content_type=how)
        assert "tls.crt" in (await made.kube.get(SECRETS, JOBS, "ebb-etcd"))["data"]
    finally:
        for name in ("ebb-etcd", "somebodys"):
            await made.kube.delete(SECRETS, JOBS, name)
