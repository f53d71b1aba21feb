"""Deleting one cloud's folder breaks only its own tests.

Those of the other clouds are left out here, to be quick; all of tests/infra is `python -m tests.infra.without CLOUD`.
"""

import pytest

from tests.infra.cases import CASES, Case
from tests.infra.without import run


@pytest.mark.e2e
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_all_share_does_without_any_one_cloud(case: Case) -> None:
    others = [f"--ignore=tests/infra/{other.cloud}" for other in CASES if other is not case]
    done = run(case.cloud, "tests/infra", *others)
    assert done.returncode == 0, done.stdout[-4000:]
