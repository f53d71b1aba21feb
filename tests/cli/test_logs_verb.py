"""`ebb logs`: what it shows by its options, and what it refuses."""

import json

import pytest
from typer.testing import CliRunner, Result

from ebb.cli.app import app
from ebb.cli.exits import Exit
from ebb.client.logs.sources import job_folder
from tests.cli.world import FakeKube, elastic_job, platform_map, session, worker_pod


def ebb(*arguments: str) -> Result:
    zero, one = worker_pod(0), worker_pod(1)
    kube = FakeKube(platform_map(), elastic_job(), zero, one)
    kube.write(zero, "2026-11-21T12:00:01.000000000Z step 1 loss 2.5", "2026-11-21T12:00:03.000000000Z step 2 loss nan")
    kube.write(one, "2026-11-21T12:00:02.000000000Z ready")
    return CliRunner().invoke(app, ["logs", "digits", *arguments], obj=session(kube))


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        pytest.param([], ["w0 | step 1 loss 2.5", "w1 | ready", "w0 | step 2 loss nan"], id="all"),
        pytest.param(["--worker", "1"], ["ready"], id="worker"),
        pytest.param(["--grep", "loss (nan|inf)$"], ["w0 | step 2 loss nan"], id="grep"),
        pytest.param(["--since", "2026-11-21T12:00:02Z"], ["w1 | ready", "w0 | step 2 loss nan"], id="since-a-moment"),
        pytest.param(["--since", "2026-11-21T14:00:03+02:00"], ["w0 | step 2 loss nan"], id="since-elsewhere"),
        pytest.param(["--since", "1s"], [], id="since-a-second-ago"),
        pytest.param(["--tail", "1"], ["w1 | ready", "w0 | step 2 loss nan"], id="tail"),
        pytest.param(["--worker", "0", "--tail", "1", "--grep", "loss 2"], [], id="tail-before-grep"),
    ],
)
def test_options(arguments: list[str], lines: list[str]) -> None:
    result = ebb(*arguments)
    assert (result.exit_code, result.stdout.splitlines()) == (Exit.OK, lines), result.output


def test_json() -> None:
    first = json.loads(ebb("-o", "json").stdout.splitlines()[0])
    stamp = "2026-11-21T12:00:01.000000000Z"
    assert first == {"worker": 0, "rank": None, "stream": "", "time": stamp, "text": "step 1 loss 2.5"}


def test_a_platform_without_a_gateway_is_a_note_beside_the_lines() -> None:
    result = ebb()
    assert "the output volume cannot be read, so lines of workers that are gone are missing: " in result.stderr
    assert len(result.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--since", "yesterday"], "--since 'yesterday' is not a time: use for example 10m (ago)", id="since"),
        pytest.param(["--grep", "loss ("], "--grep 'loss (' is not a regular expression", id="grep"),
        pytest.param(["-f", "--lost"], "--lost and --follow exclude each other", id="lost-and-follow"),
    ],
)
def test_refusals(arguments: list[str], words: str) -> None:
    result = ebb(*arguments)
    assert result.exit_code == Exit.USAGE
    assert words in " ".join(result.stderr.split())


def test_a_worker_that_is_not_there() -> None:
    result = ebb("--worker", "7")
    assert result.exit_code == Exit.NOT_FOUND
    assert "digits has no worker 7 whose log can be read" in " ".join(result.stderr.split())


def test_the_folder_is_that_of_the_jobs_author_or_the_controllers() -> None:
    job = elastic_job()
    assert job_folder(job) == "/mnt/output/elastic-job/digits-uid-digi"
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "EBB_OUTPUT_DIR", "value": "/mnt/output/mine/"}]
    assert job_folder(job) == "/mnt/output/mine"
