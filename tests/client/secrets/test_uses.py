"""Secrets in a job: where a value may go, what the pod then says, and the same read back."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.api.platform import parse
from ebb.client.errors import BadRequest
from ebb.client.jobs.view import view
from ebb.client.platform.connection import Ebb
from ebb.client.secrets.uses import SecretUse, check_uses, destinations, secret_name, uses_of, words_of
from ebb.client.staging.clone import settings_of
from ebb.client.submission.jobfile import request_of
from ebb.client.submission.request import command_of
from ebb.client.submission.submit import prepare, prepare_whole
from ebb.kube import Object
from tests.cli.world import NS, FakeKube, elastic_job, platform_map
from tests.client.cloned import platform, submitted
from tests.pod_security import violations

TYPED = ["hf-token", "WANDB_API_KEY", "gcs=/secrets/gcs.json", "gcs=/keys/other.json", "hf-token=HUGGING_FACE"]
PLACES = {
    "HF_TOKEN": "hf-token", "WANDB_API_KEY": "wandb-api-key", "/secrets/gcs.json": "gcs", "/keys/other.json": "gcs",
    "HUGGING_FACE": "hf-token",
}  # fmt: skip


def test_a_secret_goes_where_it_is_said_or_to_the_variable_of_its_name() -> None:
    assert destinations(TYPED) == PLACES
    assert destinations(words_of(PLACES)) == PLACES


@pytest.mark.parametrize("text", ["HF_TOKEN", "hf-token", "Hf_Token"])
def test_a_secret_is_called_as_its_variable_or_in_small_letters(text: str) -> None:
    assert secret_name(text) == "hf-token"


@pytest.mark.parametrize("text", ["", "1st", "-x", "x-", "a b", "a/b", "ä", "a" * 51])
def test_names_that_kubernetes_would_refuse(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a usable name: start with a letter"):
        secret_name(text)


REFUSED = {
    "EBB_JOB": "the variable EBB_JOB is taken", "RANK": "is taken", "WORLD_SIZE": "is taken", "LOCAL_RANK": "is taken",
    "MASTER_ADDR": "is taken", "MASTER_PORT": "is taken", "PET_NNODES": "is taken", "TORCHELASTIC_RUN_ID": "is taken",
    "HOME": "is taken", "1ST": "of capital letters", "": "of capital letters", "A-B": "of capital letters",
    "key.json": "of capital letters", "keys/gcs": "must be absolute", "./key": "must be absolute",
    "/keys/../dev/x": "must be absolute", "/keys/": "must be absolute", "/": "must be absolute", "/a//b": "must be absolute",
    "/dev/shm/key": "is in /dev, or hides it", "/tmp": "is in /tmp", "/mnt": "is in /mnt/data, or hides it",
    "/mnt/output/keys/x": "is in /mnt/output", "/ebb/code": "is in /ebb", "/proc/1/x": "is in /proc",
    "/etc/hosts": "is in /etc/hosts",
}  # fmt: skip


@pytest.mark.parametrize(("place", "sentence"), REFUSED.items(), ids=REFUSED)
def test_where_no_value_may_go(place: str, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        destinations([f"key={place}"])


@pytest.mark.parametrize("value", ["hf_AbCdEfGh", "sk-proj-AbC123", "0123abcdef", "abc/DEF+gh==", "ghp_x" * 30])
def test_a_value_in_the_place_of_a_place_is_not_repeated(value: str) -> None:
    with pytest.raises(BadRequest) as caught:
        destinations([f"key={value}"])
    assert value not in str(caught.value)


CLASHES: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "a variable of --env": ({"LR": "key"}, {"LR": "1"}, "the variable LR has a value in env as well"),
    "a file in a file": ({"/keys": "a", "/keys/b": "b"}, {}, "/keys is a file, so /keys/b cannot be in it"),
}


@pytest.mark.parametrize(("secrets", "env", "sentence"), CLASHES.values(), ids=CLASHES)
def test_what_cannot_both_be(secrets: dict[str, str], env: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        check_uses(secrets, env)


def test_two_secrets_do_not_go_to_one_place() -> None:
    with pytest.raises(BadRequest, match="secret 'b' and 'a' both go to KEY"):
        destinations(["a=KEY", "b=KEY"])


def pod_of(body: Object) -> Object:
    pod: Object = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    return pod


def asked(**file: Any) -> Object:
    """The job of a short job file."""
    request = request_of({"name": "digits", "gpu": "T4", "command": "-m trainer", **file}, {}, (), "ab12")
    return prepare(Ebb(kube=FakeKube(), platform=parse(platform_map()["data"]), namespace=NS), request).body


def test_the_pod_names_the_secrets_and_nothing_more() -> None:
    pod = pod_of(asked(**{"secret": ["hf-token", "gcs=/secrets/gcs.json"], "registry-secret": "lab"}))
    (container,) = pod["containers"]
    assert violations(pod) == []
    assert container["env"][-1] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "ebb-secret-hf-token", "key": "value"}},
    }
    assert container["volumeMounts"][-1] == {
        "name": "ebb-secret-gcs", "mountPath": "/secrets/gcs.json", "subPath": "value", "readOnly": True,
    }  # fmt: skip
    assert pod["volumes"][-1] == {"name": "ebb-secret-gcs", "secret": {"secretName": "ebb-secret-gcs", "defaultMode": 0o440}}
    assert pod["imagePullSecrets"] == [{"name": "ebb-secret-lab"}]
    assert "imagePullSecrets" not in pod_of(asked())


def test_a_job_in_a_team_names_its_owner_and_their_secrets() -> None:
    file = {"name": "digits", "gpu": "T4", "command": "-m trainer", "secret": ["hf", "gcs=/secrets/x"], "registry-secret": "lab"}
    ebb = Ebb(kube=FakeKube(), platform=parse(platform_map()["data"]), namespace="ebb-team-vision", owner="ada")
    body = prepare(ebb, request_of(file, {}, (), "ab12")).body
    pod = pod_of(body)
    assert body["metadata"]["annotations"]["ebb.dev/owner"] == "ada"
    assert pod["containers"][0]["env"][-1]["valueFrom"]["secretKeyRef"]["name"] == "ebb-secret-hf.616461"
    assert (pod["volumes"][-1]["name"], pod["volumes"][-1]["secret"]["secretName"]) == ("ebb-secret-gcs", "ebb-secret-gcs.616461")
    assert pod["imagePullSecrets"] == [{"name": "ebb-secret-lab.616461"}]
    assert {use.name for use in uses_of(pod)} == {"hf", "gcs", "lab"}
    whole = prepare_whole(ebb, {"metadata": {"name": "x", "annotations": {"note": "a"}}}, None).body
    assert whole["metadata"]["annotations"] == {"note": "a", "ebb.dev/owner": "ada"}
    assert "ebb.dev/owner" not in (asked()["metadata"].get("annotations") or {})


def test_a_file_on_a_volume_of_the_platform_is_refused() -> None:
    with pytest.raises(BadRequest, match="/opt/ebb/site-packages/key is in /opt/ebb/site-packages, or hides it"):
        asked(secret="key=/opt/ebb/site-packages/key")


def test_flags_add_to_the_file_and_win_place_by_place() -> None:
    file = {"secret": ["hf-token", "gcs=/secrets/gcs.json"], "command": "-m trainer"}
    request = request_of(file, {"secret": ["mine=HF_TOKEN", "wandb"]}, (), "ab12")
    assert request.secrets == {"HF_TOKEN": "mine", "/secrets/gcs.json": "gcs", "WANDB": "wandb"}


def test_the_command_says_them_again() -> None:
    request = request_of({"secret": TYPED, "registry-secret": "LAB", "command": "-m trainer"}, {}, (), "x")
    assert command_of(request) == (
        "ebb submit --registry-secret lab --secret hf-token --secret wandb-api-key --secret gcs=/secrets/gcs.json "
        "--secret gcs=/keys/other.json --secret hf-token=HUGGING_FACE -- -m trainer"
    )


def test_a_clone_has_the_secrets_of_its_job() -> None:
    body = submitted(secrets=PLACES, registry_secret="lab")
    settings = settings_of(body, platform(platform_map()))
    assert (sorted(settings["secret"]), settings["registry-secret"]) == (sorted(words_of(PLACES)), "lab")
    again = request_of({"name": "digits", **settings}, {}, (), "ab12")
    ebb = Ebb(kube=FakeKube(), platform=platform(platform_map()), namespace=NS)
    assert view(prepare(ebb, again).body).secrets == view(body).secrets


def test_a_variable_from_somebodys_own_secret_makes_no_clone() -> None:
    body = submitted()
    own = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "x"}}}
    pod_of(body)["containers"][0]["env"].append(own)
    with pytest.raises(BadRequest, match="was not made by `ebb submit`"):
        settings_of(body, platform(platform_map()))


def test_the_view_of_a_job_names_them_and_where_they_go() -> None:
    assert [use.words for use in view(submitted(secrets=PLACES, registry_secret="lab")).secrets] == [
        "hf-token as HF_TOKEN", "wandb-api-key as WANDB_API_KEY", "hf-token as HUGGING_FACE", "gcs at /secrets/gcs.json",
        "gcs at /keys/other.json", "lab for its image",
    ]  # fmt: skip


SPOILED: list[Any] = [
    {}, {"containers": None}, {"containers": "x"}, {"containers": [None, "x", {"env": {"A": 1}}]},
    {"containers": [{"env": [{"name": "A", "valueFrom": "x"}, {"valueFrom": {"secretKeyRef": None}}]}]},
    {"volumes": [{"secret": None}], "imagePullSecrets": ["x", {}]}, {"containers": [{"envFrom": [{"secretRef": "x"}]}]},
]  # fmt: skip


@pytest.mark.parametrize("pod", SPOILED, ids=str)
def test_a_template_that_somebody_spoiled_has_none(pod: Any) -> None:
    assert uses_of(pod) == ()
    job = elastic_job()
    job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"] |= {key: value for key, value in pod.items() if key != "containers"}
    assert view(job).secrets == ()


def test_a_secret_as_a_whole_is_seen_too() -> None:
    """Of a job file written by hand."""
    pod = {"initContainers": [{"envFrom": [{"secretRef": {"name": "ebb-secret-hf"}}]}]}
    assert uses_of(pod) == (SecretUse(name="hf", variable="value"),)


def test_the_job_file_in_the_documentation_is_what_ebb_makes() -> None:
    """docs/submit.md, for people who write an ElasticJob by hand."""
    text = (Path(__file__).parents[3] / "docs" / "submit.md").read_text()
    written = yaml.safe_load(text.split("In its `template`:\n\n```yaml\n")[1].split("```")[0])["spec"]
    made = pod_of(asked(**{"secret": ["hf-token", "gcs=/secrets/gcs.json"], "registry-secret": "lab"}))
    assert uses_of(written) == uses_of(made)
    assert written["imagePullSecrets"] == made["imagePullSecrets"]
    assert written["volumes"][0]["secret"] == made["volumes"][-1]["secret"]
    assert written["containers"][0]["env"] == made["containers"][0]["env"][-1:]
