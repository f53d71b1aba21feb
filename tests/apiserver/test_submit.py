"""`ebb submit` on a real API server with a researcher's rights: what it writes is taken, is the job's, and stays as it is."""

import base64
from pathlib import Path

import pytest

from ebb.client.errors import ClientError
from ebb.client.staging.clone import clone
from ebb.client.submission.jobfile import request_of
from ebb.client.submission.request import Request
from ebb.client.submission.submit import prepare, submit
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Invalid
from tests.apiserver.plane import JOBS, Made, gone
from tests.apiserver.test_researcher import ada, connected, found_in_time  # noqa: F401 - ada is a fixture

NAME = "with-code"


async def test_a_job_and_its_code(made: Made, ada: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')\n")
    request = Request(
        name=NAME,
        arguments=("train.py",),
        code=str(tmp_path / "src"),
        capacity=None,
        priority="elastic",
        max_cost=4.5,
        deadline="2099-01-01T00:00:00Z",
        user="ada@example.org",
    )

    async def sent() -> None:  # rights take a moment to reach the authorizer
        async with connected(ada) as ebb:
            prepared = prepare(ebb, request)
            await submit(ebb, prepared.body, code=prepared.code)

    try:
        await found_in_time(sent)
        job = await made.kube.get(ELASTIC_JOBS, JOBS, NAME)
        assert (job["spec"]["budget"], job["spec"]["deadline"]) == ({"maxUSD": 4.5}, "2099-01-01T00:00:00Z")
        assert job["metadata"]["labels"] == {"ebb.dev/user": "ada-example.org"}
        held = await made.kube.get(CONFIG_MAPS, JOBS, f"{NAME}-code")
        assert [owner["uid"] for owner in held["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
        other = base64.b64encode(b"other").decode()
        with pytest.raises(Invalid, match="immutable"):
            await made.kube.patch(CONFIG_MAPS, JOBS, f"{NAME}-code", {"binaryData": {"code.tar.gz": other}})
        async with connected(ada) as ebb:
            prepared = prepare(ebb, request)
            with pytest.raises(ClientError, match=f"name '{NAME}' is taken"):
                await submit(ebb, prepared.body, code=prepared.code)
            again = await clone(ebb, NAME, ebb)
            assert again.code is not None
            assert again.code.sha256 == job["metadata"]["annotations"]["ebb.dev/code"]
            body = prepare(ebb, request_of({"name": NAME, **again.settings}, {}, (), "ab12"), again.code).body
            assert body["spec"]["replicaSpecs"] == job["spec"]["replicaSpecs"]
        assert (await made.kube.get(CONFIG_MAPS, JOBS, f"{NAME}-code"))["metadata"]["uid"] == held["metadata"]["uid"]
    finally:
        await gone(made.kube.delete(ELASTIC_JOBS, JOBS, NAME))
        await gone(made.kube.delete(CONFIG_MAPS, JOBS, f"{NAME}-code"))
