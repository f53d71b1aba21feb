"""Secrets on the platform: set, replaced, listed, removed, by somebody who may read none of them."""

import base64
import json
from dataclasses import replace

import pytest

from ebb.api.platform import parse
from ebb.client.errors import BadRequest, ClientError, Missing
from ebb.client.platform.connection import Ebb
from ebb.client.secrets import store
from ebb.client.secrets.uses import object_name, variables
from ebb.client.submission.submit import prepare_whole, submit
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, SECRETS, KubeError, Object, Unreachable
from tests.cli.world import NS, FakeKube, elastic_job, known_secret, platform_map
from tests.client.secrets.blind import BlindKube


def ebb(kube: FakeKube) -> Ebb:
    return Ebb(kube=kube, platform=parse(platform_map()["data"]), namespace=NS)


def held(kube: FakeKube, name: str) -> Object:
    return kube._objects[SECRETS.path(NS, f"ebb-secret-{name}")]


def content(kube: FakeKube, name: str, key: str = "value") -> bytes:
    return base64.b64decode(held(kube, name)["data"][key])


def user(name: str, secret: str, state: str = "Running") -> Object:
    job = elastic_job(name, state=state)
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = variables({"KEY": secret})
    return job


async def test_a_value_is_set_replaced_listed_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_USER", "ada")
    kube = BlindKube(platform_map())
    found, replaced = await store.set_secret(ebb(kube), "HF_TOKEN", b"one")
    assert (found.name, found.kind, found.variable, found.set_by, replaced) == ("hf-token", "value", "HF_TOKEN", "ada", False)
    assert (content(kube, "hf-token"), held(kube, "hf-token")["type"]) == (b"one", "Opaque")
    assert held(kube, "hf-token")["metadata"]["labels"] == {"ebb.dev/secret": "hf-token"}
    assert (await store.set_secret(ebb(kube), "hf-token", b"two"))[1] is True
    assert content(kube, "hf-token") == b"two"
    kube.put(user("digits", "hf-token"))
    kube.put(user("old", "hf-token", "Succeeded"))
    (listed,) = await store.list_secrets(ebb(kube))
    assert (listed.name, listed.set_by, listed.set_at, listed.jobs) == ("hf-token", "ada", listed.set_at, ("digits",))
    with pytest.raises(ClientError, match="is used by digits: its next worker could not start without it"):
        await store.remove_secret(ebb(kube), "hf-token")
    assert content(kube, "hf-token") == b"two"
    assert (await store.remove_secret(ebb(kube), "hf-token", force=True)).jobs == ("digits",)
    assert await store.list_secrets(ebb(kube)) == ()
    assert SECRETS.path(NS, "ebb-secret-hf-token") not in kube._objects


async def test_a_login_is_what_kubernetes_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = BlindKube(platform_map())
    found, _ = await store.set_registry_secret(ebb(kube), "lab", host="ghcr.io", username="ada", password=b"pass:word")
    assert (found.kind, found.registry, found.username, found.variable) == ("registry", "ghcr.io", "ada", "")
    assert held(kube, "lab")["type"] == "kubernetes.io/dockerconfigjson"
    login = json.loads(content(kube, "lab", ".dockerconfigjson"))["auths"]["ghcr.io"]
    assert base64.b64decode(login.pop("auth")) == b"ada:pass:word"
    assert login == {"username": "ada", "password": "pass:word"}
    await store.set_registry_secret(ebb(kube), "hub", host="docker.io", username="ada", password=b"x")
    assert list(json.loads(content(kube, "hub", ".dockerconfigjson"))["auths"]) == ["https://index.docker.io/v1/"]


async def test_one_kind_does_not_become_the_other() -> None:
    kube = BlindKube(platform_map(), known_secret("lab", kind="registry", registry="ghcr.io"), known_secret("hf"))
    with pytest.raises(BadRequest, match=r"'lab' is the login to ghcr.io now, which cannot become.*`ebb secret rm lab`"):
        await store.set_secret(ebb(kube), "lab", b"x")
    with pytest.raises(BadRequest, match="'hf' is a value now"):
        await store.set_registry_secret(ebb(kube), "hf", host="ghcr.io", username="ada", password=b"x")
    assert {method for method, _ in kube.sent} == {"GET"}


async def test_what_an_interrupted_set_left_is_finished_by_the_next() -> None:
    """The Secret without its ConfigMap: not listed, and no hindrance."""
    kube = BlindKube(platform_map())
    await store.set_secret(ebb(kube), "hf", b"one")
    del kube._objects[CONFIG_MAPS.path(NS, "ebb-secret-hf")]
    assert await store.list_secrets(ebb(kube)) == ()
    await store.set_secret(ebb(kube), "hf", b"two")
    assert ([one.name for one in await store.list_secrets(ebb(kube))], content(kube, "hf")) == (["hf"], b"two")


async def test_what_an_interrupted_set_of_the_other_kind_left_makes_room() -> None:
    kube = BlindKube(platform_map())
    await store.set_registry_secret(ebb(kube), "lab", host="ghcr.io", username="ada", password=b"x")
    del kube._objects[CONFIG_MAPS.path(NS, "ebb-secret-lab")]
    await store.set_secret(ebb(kube), "lab", b"one")
    assert (content(kube, "lab"), held(kube, "lab")["type"]) == (b"one", "Opaque")


async def test_a_removal_that_was_interrupted_can_be_done_again() -> None:
    kube = BlindKube(platform_map(), known_secret("hf"))
    await store.remove_secret(ebb(kube), "hf")
    assert await store.list_secrets(ebb(kube)) == ()


SIZES = {"nothing": (b"", "is empty"), "too much": (b"x" * (2**20 + 1), r"1048577 bytes, and a secret holds at most 1048576 \(1")}


@pytest.mark.parametrize(("value", "sentence"), SIZES.values(), ids=SIZES)
async def test_a_value_of_no_size_or_too_much_is_refused_before_anything_is_sent(value: bytes, sentence: str) -> None:
    kube = BlindKube(platform_map())
    with pytest.raises(BadRequest, match=sentence):
        await store.set_secret(ebb(kube), "hf", value)
    assert kube.sent == []


async def test_the_largest_value_is_taken() -> None:
    kube = BlindKube(platform_map())
    await store.set_secret(ebb(kube), "hf", b"x" * 2**20)
    assert len(content(kube, "hf")) == 2**20


LINES = {b"a\n": b"a", b"a\r\n": b"a", b"a": b"a", b"a\nb\n": b"a\nb\n", b"\n": b"", b"a\n\n": b"a\n\n"}


@pytest.mark.parametrize(("raw", "value"), LINES.items(), ids=map(repr, LINES))
def test_the_end_of_a_single_line_is_no_part_of_it(raw: bytes, value: bytes) -> None:
    assert store.one_line(raw) == value


@pytest.mark.parametrize("value", [b"\xff\xfe", b"a\0b", b"x" * 2**17], ids=["no text", "nul", "long"])
async def test_what_cannot_be_a_variable_is_a_file_only(value: bytes) -> None:
    kube = BlindKube(platform_map())
    await store.set_secret(ebb(kube), "blob", value)
    with pytest.raises(BadRequest, match=r"'blob' is not text, or too long.*--secret blob=/secrets/blob"):
        await store.check_there(ebb(kube), NS, user("digits", "blob"))


MISSING = {
    "one of several": (
        [known_secret("a"), known_secret("b")],
        "named 'hf' in elastic-job. There are: a, b. Set it with",
    ),
    "of none": ([], "no secret named 'hf' in elastic-job. There are none. Set it with `ebb secret set hf`"),
}


@pytest.mark.parametrize(("there", "sentence"), MISSING.values(), ids=MISSING)
async def test_a_job_with_a_secret_that_is_not_there_is_not_sent(there: list[Object], sentence: str) -> None:
    kube = BlindKube(platform_map(), *there)
    made = prepare_whole(ebb(kube), user("digits", "hf"), None)
    with pytest.raises(Missing, match=sentence):
        await submit(ebb(kube), made.body)
    assert {method for method, _ in kube.sent} == {"GET"}


async def test_a_job_without_any_asks_nothing() -> None:
    kube = BlindKube(platform_map())
    await submit(ebb(kube), elastic_job())
    assert kube.sent == [("POST", ELASTIC_JOBS.path(NS))]


async def test_a_spoiled_record_is_still_a_secret() -> None:
    spoiled = known_secret("hf")
    spoiled["data"] = {"about.json": "{"}
    (found,) = await store.list_secrets(ebb(BlindKube(platform_map(), spoiled)))
    assert (found.name, found.kind, found.variable) == ("hf", "value", "")


async def test_an_answer_that_is_lost_is_said() -> None:
    kube = BlindKube(platform_map())
    kube.broken = True
    with pytest.raises(Unreachable):
        await store.set_secret(ebb(kube), "hf", b"hf_AbCdEf")


async def test_nobody_asks_for_a_value() -> None:
    """The stand-in of these tests refuses what the role refuses."""
    kube = BlindKube(platform_map())
    await store.set_secret(ebb(kube), "hf", b"one")
    for ask in (kube.get(SECRETS, NS, "ebb-secret-hf"), kube.list(SECRETS, NS), kube.patch(SECRETS, NS, "ebb-secret-hf", {})):
        with pytest.raises(KubeError, match="may not"):
            await ask


async def test_in_a_team_each_has_secrets_of_their_own() -> None:
    """By the object's name, which the API server judges; a list has one's own alone."""
    kube = BlindKube(platform_map())
    ada, bob = (replace(ebb(kube), owner=f"{name}@lab.example") for name in ("ada", "bob"))
    for one, value in ((ada, b"hers"), (bob, b"his")):
        await store.set_secret(one, "hf-token", value)
    assert content(kube, f"hf-token.{b'ada@lab.example'.hex()}") == b"hers"
    assert content(kube, f"hf-token.{b'bob@lab.example'.hex()}") == b"his"
    await store.set_secret(bob, "wandb", b"his")
    assert [found.name for found in await store.list_secrets(ada)] == ["hf-token"]
    index = await kube.get(CONFIG_MAPS, NS, object_name("wandb", bob.owner))
    assert index["metadata"]["annotations"] == {"ebb.dev/owner": "bob@lab.example"}
    with pytest.raises(Missing, match="no secret named 'wandb'"):
        await store.check_there(ada, NS, user("digits", "wandb"))
    await store.remove_secret(bob, "hf-token")
    assert [found.name for found in await store.list_secrets(ada)] == ["hf-token"]
    with pytest.raises(BadRequest, match=r"secret 'hf-token': with your user, '.*', its name is longer than Kubernetes' 253"):
        await store.set_secret(replace(ada, owner="a" * 120), "hf-token", b"x")
