"""The table of verbs: each is there, has the first line of its own help, and is loaded only when it is called."""

import subprocess
import sys

import pytest

from ebb.cli.app import VERBS, load


@pytest.mark.parametrize("name", VERBS)
def test_the_line_in_the_list_is_the_first_of_the_verbs_help(name: str) -> None:
    assert (load(name).help or "").splitlines()[0] == VERBS[name].line


def test_help_loads_no_client() -> None:
    said = "import sys; from ebb.cli.app import app; app(['--help'], standalone_mode=False); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    assert not {"aiohttp", "yaml", "rich.table", "kubernetes_asyncio", "ebb.client"} & set(found.split())
