"""`ebb secret`: the ways in for a value, and that no way leads out again."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.kube import SECRETS, Object
from tests.cli.world import NS, FakeKube, elastic_job, known_secret, platform_map, session, worker_pod
from tests.client.secrets.blind import BlindKube

VALUE, PASSWORD, KEY = "hf_AbCdEfGhIjKl", "pass-PASS-pass", "-----BEGIN KEY-----\nMIIabc\n-----END KEY-----\n"
JOB = ["--gpu", "T4", "--no-code", "--", "-m", "trainer"]


def invoke(kube: FakeKube, *words: str, given: str | bytes | None = None) -> Result:
    env = {"COLUMNS": "100", "EBB_USER": "ada", "HF_FROM_ENV": VALUE}
    return CliRunner().invoke(app, list(words), obj=session(kube), env=env, input=given)


def done(kube: FakeKube, *words: str, given: str | bytes | None = None) -> str:
    result = invoke(kube, *words, given=given)
    assert result.exit_code == 0, result.output
    return result.output


def held(kube: FakeKube, name: str, key: str = "value") -> str:
    return base64.b64decode(kube._objects[SECRETS.path(NS, f"ebb-secret-{name}")]["data"][key]).decode()


def jobs(kube: FakeKube) -> list[Object]:
    return [item for item in kube._objects.values() if item["kind"] == "ElasticJob"]


@pytest.fixture
def kube() -> BlindKube:
    return BlindKube(platform_map())


def test_a_value_is_piped_in(kube: BlindKube) -> None:
    said = done(kube, "secret", "set", "HF_TOKEN", given=f"{VALUE}\n")
    assert said == "hf-token is set. Use it: ebb submit --secret hf-token ...\n"
    assert held(kube, "hf-token") == VALUE


def test_a_value_is_of_a_file_as_it_is(kube: BlindKube, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(KEY)
    done(kube, "secret", "set", "gcs", "--from-file", str(tmp_path / "key.pem"))
    assert held(kube, "gcs") == KEY


def test_a_value_is_of_a_variable(kube: BlindKube) -> None:
    done(kube, "secret", "set", "hf-token", "--from-env", "HF_FROM_ENV")
    assert held(kube, "hf-token") == VALUE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_value_is_asked_for_and_not_shown(kube: BlindKube, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def prompt(text: str, **how: Any) -> str:
        asked.append((text, how))
        return VALUE

    monkeypatch.setattr("typer.prompt", prompt)
    monkeypatch.setattr("ebb.cli.verbs.secret.sys", type("Sys", (), {"stdin": Terminal()}))
    done(kube, "secret", "set", "hf-token")
    assert held(kube, "hf-token") == VALUE
    assert asked == [("Value of hf-token (not shown)", {"hide_input": True, "err": True})]


def test_a_value_that_is_replaced_is_said(kube: BlindKube) -> None:
    done(kube, "secret", "set", "hf-token", given="old")
    assert done(kube, "secret", "set", "hf-token", given=VALUE) == (
        "hf-token is replaced. Workers that run keep the value they started with. Use it: ebb submit --secret hf-token ...\n"
    )
    assert held(kube, "hf-token") == VALUE


def test_a_larger_value_is_not_cut_to_what_fits(kube: BlindKube, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (2**20 + 5))
    result = invoke(kube, "secret", "set", "large", "--from-file", str(tmp_path / "large"))
    assert (result.exit_code, "a secret holds at most 1048576 (1 MiB)" in result.output) == (2, True)
    assert kube.sent[1:] == []


def test_the_list_says_how_each_is_used(kube: BlindKube) -> None:
    done(kube, "secret", "set", "hf-token", given=VALUE)
    done(kube, "secret", "set", "blob", given=b"\xff\x00")
    done(kube, "secret", "set", "lab", "--registry", "ghcr.io", "--username", "ada", given=PASSWORD)
    done(kube, "submit", "--name", "one", "--secret", "hf-token", *JOB)
    lines = [line.split() for line in done(kube, "secret", "list").splitlines()]
    assert [(line[0], " ".join(line[1:-3]), line[-3], line[-1]) for line in lines[1:]] == [
        ("blob", "--secret blob=/secrets/blob", "ada", "-"),
        ("hf-token", "--secret hf-token", "ada", "one"),
        ("lab", "--registry-secret lab", "ada", "-"),
    ]


def test_an_empty_list_says_how_to_begin(kube: BlindKube) -> None:
    assert done(kube, "secret", "list") == "No secrets yet. Set one: ebb secret set hf-token\n"


def test_a_dry_run_says_that_a_secret_is_not_there(kube: BlindKube) -> None:
    result = invoke(kube, "submit", "--dry-run", "--secret", "nothing", *JOB)
    assert (result.exit_code, "no secret named 'nothing'" in result.stderr) == (4, True)


def test_a_refusal_comes_before_anything_is_sent(kube: BlindKube) -> None:
    for secret in ("nothing", "EBB_X=EBB_X", "x=RANK", "x=rel/path", "x=/mnt/data/x"):
        assert invoke(kube, "submit", "--secret", secret, *JOB).exit_code in (2, 4)
    assert invoke(kube, "sweep", "--name", "s", "--secret", "nothing", "--gpu", "T4", "lr=1,2", "--", "-m", "x").exit_code == 4
    assert {method for method, _ in kube.sent} <= {"GET"}
    assert jobs(kube) == []


def test_a_value_appears_nowhere_again(kube: BlindKube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in what any verb prints, in any of its formats, nor in any object but the Secret itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "key.pem").write_text(KEY)
    (tmp_path / "job.yaml").write_text(
        "gpu: T4\ncode: false\nsecret: [hf-token, gcs=/secrets/gcs.json]\nregistry-secret: lab\ncommand: -m trainer\n"
    )
    said: list[str] = []

    def say(*words: str, code: int = 0, given: str | None = None) -> None:
        for more in ((), ("-o", "json")):
            result = invoke(kube, *words, *more, given=given)
            assert result.exit_code == code, (words, result.output)
            said.append(result.output)

    say("secret", "set", "hf-token", given=VALUE)
    say("secret", "set", "gcs", "--from-file", "key.pem")
    say("secret", "set", "lab", "--registry", "ghcr.io", "--username", "ada", given=PASSWORD)
    say("secret", "set", "hf-token", "--registry", "ghcr.io", "--username", "ada", code=2, given=PASSWORD)
    say("secret", "list")
    say("submit", "-f", "job.yaml", "--dry-run")
    done(kube, "submit", "-f", "job.yaml", "--name", "one")
    say("submit", "-f", "job.yaml", "--name", "one", code=1)
    kube.put(worker_pod(0, job="one"))
    for verb in ("list", "status one", "events one", "report one", "cost", "top", "gpus"):
        say(*verb.split())
    done(kube, "submit", "--from", "one", "--name", "clone")
    done(kube, "sweep", "--name", "scan", "--secret", "hf-token", "--gpu", "T4", "-y", "lr=1,2", "--", "-m", "trainer")
    say("sweep", "show", "scan")
    say("report", "scan")
    say("secret", "rm", "hf-token", code=1)
    said += [path.read_text() for path in tmp_path.glob("*.html")]

    clone = next(job for job in jobs(kube) if job["metadata"]["name"] == "clone")
    one = next(job for job in jobs(kube) if job["metadata"]["name"] == "one")
    assert clone["spec"] == one["spec"]
    assert "hf-token as HF_TOKEN, gcs at /secrets/gcs.json, lab for its image" in " ".join("".join(said).split())
    stored = json.dumps([item for item in kube._objects.values() if item["kind"] != "Secret"])
    secrets = json.dumps([item for item in kube._objects.values() if item["kind"] == "Secret"])
    for value in (VALUE, KEY, PASSWORD):
        encoded = base64.b64encode(value.encode()).decode()
        for needle in {value, value.strip().splitlines()[-1], value.splitlines()[min(1, value.count("\n"))], encoded}:
            assert needle not in "".join(said)
            assert needle not in stored
            assert needle not in json.dumps(kube.sent)
        assert encoded in secrets or value == PASSWORD  # which is a part of what Kubernetes reads
    done(kube, "secret", "rm", "hf-token", "--force")
    assert SECRETS.path(NS, "ebb-secret-hf-token") not in kube._objects


def test_the_job_file_of_somebody_may_name_them(kube: BlindKube, tmp_path: Path) -> None:
    """A whole ElasticJob, beside a Secret of their own, of which nothing is known here."""
    kube.put(known_secret("hf-token", variable="HF_TOKEN"))
    job = elastic_job("mine")
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "ebb-secret-hf-token", "key": "value"}}},
        {"name": "OWN", "valueFrom": {"secretKeyRef": {"name": "made-by-hand", "key": "x"}}},
    ]
    (tmp_path / "job.json").write_text(json.dumps(job))
    done(kube, "submit", "-f", str(tmp_path / "job.json"))
    container["env"][0]["valueFrom"]["secretKeyRef"]["name"] = "ebb-secret-other"
    (tmp_path / "job.json").write_text(json.dumps(job | {"metadata": {"name": "two"}}))
    result = invoke(kube, "submit", "-f", str(tmp_path / "job.json"))
    assert (result.exit_code, "no secret named 'other'" in result.stderr) == (4, True)
