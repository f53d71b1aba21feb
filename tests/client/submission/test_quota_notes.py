"""A job that needs more GPUs than its team has a right to is told so when it is submitted."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.api.platform import Team
from ebb.client.submission.request import Request
from ebb.client.submission.submit import prepare
from tests.builders import make_group, make_platform

VISION = Team(name="vision", namespace="ebb-team-vision", gpus=4)
OTHER = Team(name="other", namespace="ebb-team-other", gpus=4)
BEYOND = "This job needs 6 GPUs to start, and the quota of team 'vision' is 4"
TOLD: dict[str, tuple[Team, int, str]] = {
    # my team, the least GPUs -> the words; "": none
    "within the quota": (VISION, 4, ""),
    "no quota": (replace(VISION, gpus=None), 6, ""),
    "another team's namespace": (replace(VISION, namespace="elsewhere"), 6, ""),
    "more than the quota, which nobody lends": (
        VISION, 6, f"{BEYOND}: it can never start. Use --min 4 or fewer, or have the quota raised."
    ),
    "more than it may borrow": (
        replace(VISION, borrow=1), 6,
        f"{BEYOND}, beyond which it may borrow 1: it can never start. Use --min 4 or fewer, or have the quota raised.",
    ),
    "more than all teams have": (
        replace(VISION, borrow=9), 9,
        "This job needs 9 GPUs to start, and the quota of team 'vision' is 4, beyond which it may borrow 9: it can never start. "
        "Use --min 4 or fewer, or have the quota raised.",
    ),
    "what others may lend": (
        replace(VISION, borrow=4), 6,
        f"{BEYOND}: it has no right to the rest, and starts when other teams leave enough, or after a day without any machine, "
        "when what becomes free is kept for it. With --min 4 or fewer it starts within the quota.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("team", "least", "words"), TOLD.values(), ids=TOLD)
def test_what_a_team_has_no_right_to_is_said_at_submit(team: Team, least: int, words: str) -> None:
    platform = make_platform(make_group(max=20), teams=(team, OTHER))
    ebb: Any = SimpleNamespace(platform=platform, namespace=VISION.namespace, owner="")
    notes: list[str] = []
    prepare(ebb, Request(name="large", arguments=("train.py",), gpus=least, min_gpus=least, code=None), note=notes.append)
    assert notes == ([words] if words else [])
