"""Members by the dozen in one rendezvous: a few in the suite; make prove-rendezvous has 64, and loses 20 at once."""

from pathlib import Path

import pytest

from tests.elastic.rendezvous.scale import gather


@pytest.mark.e2e
def test_a_dozen_members_meet_and_those_left_of_them_meet_again(tmp_path: Path) -> None:
    found = gather("3.6", tmp_path, members=12, lost=4)
    print(found)
    assert found.generations >= 1
    assert 0 < found.form_seconds < 60
    assert 0 < found.survive_seconds < 60
