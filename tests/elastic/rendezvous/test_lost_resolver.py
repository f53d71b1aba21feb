"""Machines meet again while nobody answers DNS, and the address of etcd that they used is gone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
_AWAY_SECONDS = 60  # far longer than the machines need; a resolver that is lost with its machine is away for a minute


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a resolver of its own")
def test_machines_find_another_address_of_etcd_without_a_resolver(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = [sys.executable, "-m", "tests.elastic.rendezvous.lost_resolver", "other_address", version, str(tmp_path)]
    command = ["unshare", "--mount", "--net", *program, str(_AWAY_SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f"\na machine lost, with the resolver and the address of etcd in use: {found['seconds']} s to the next generation")
    assert found["met_without_dns"], done.stdout
