"""The rehearsal of the stacks as they are shipped, on the real Pulumi engine with mocks of their clouds."""

import json
import subprocess
import sys

import pytest

from devcluster.settings import CHECKOUT
from testing.pulumi.mocks.__main__ import parted
from tests.infra.cases import CASES, Case

URN = "urn:pulumi:dev::ebb::aws:ec2/vpc:Vpc::"


# One cloud stands for all in `make test-all`: tests/infra/test_engine.py takes each of them up and down. The others by hand:
# pytest -m proof, or make rehearse MOCK=1 STACK=gcp.
MARKS = {"aws": pytest.mark.e2e}
SHIPPED = [pytest.param(case, id=str(case), marks=MARKS.get(case.cloud, pytest.mark.proof)) for case in CASES]


@pytest.mark.parametrize("case", SHIPPED)
def test_a_shipped_stack_is_rehearsed(case: Case) -> None:
    command = [sys.executable, "-m", "testing.pulumi.mocks", "rehearse", "--stack", case.stack]
    ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["created"] > case.least
    assert (found["second_up_changes"], found["refresh_changes"], found["in_state"]) == (0, 0, 0)
    assert (found["leftovers"], found["broken"]) == ([], [])
    assert any(one.startswith(f"{case.file_system} ") for one in found["kept"]), "the stack's file says `data: keep`"
    assert set(found["skipped"]) == {"preflight", "job", "reclaim"}
    assert (found["cuda"], found["reclaim_seconds"], found["usd_spent"]) == (None, None, 0.0)


def test_leftovers_are_what_the_mocks_made_and_were_not_asked_to_delete() -> None:
    calls = [
        {"method": method, "urn": f"{URN}{name}", "inputs": {"id": number}}
        for method, name, number in (
            ("Create", "refused", None),  # asked for, and not made
            ("Created", "gone", "1"),
            ("Created", "replaced", "1"),
            ("Created", "replaced", "2"),
            ("Created", "data", "1"),
            ("Delete", "gone", "1"),
            ("Delete", "replaced", "1"),
        )
    ]
    kind = "aws:ec2/vpc:Vpc"
    assert parted(calls, frozenset({f"{URN}data"})) == ([{"kind": kind, "name": "replaced"}], [{"kind": kind, "name": "data"}])
