"""The table of attempts to break in is whole: each policy of a stack is attacked, and docs/threat-model.md counts them."""

import re

from tests.docs.tree import ROOT
from tests.e2e.attempts import ALLOWED, ATTEMPTS, RIGHTS, policy
from tests.workloads.world import stack

# One opens a way, and closes none. The other waits for pods that only `legacyRendezvous` makes, and is as a team's etcd's.
NOT_ATTACKED = {"copies", "etcd-legacy"}


def test_every_network_policy_of_a_stack_with_teams_is_attacked() -> None:
    world = stack(teams={name: {"researchers": ["user:one"]} for name in ("red", "blue")})
    found = [one.inputs["metadata"] for one in world.all("NetworkPolicy")]
    declared = {policy(one["namespace"], one["name"]) for one in found if one["name"] not in NOT_ATTACKED}
    assert {rule for one in ATTEMPTS for rule in one.rules} - RIGHTS == declared


def test_an_attempt_has_a_rule_and_what_jobs_need_has_none() -> None:
    assert len({(one.by, one.ask) for one in ATTEMPTS}) == len(ATTEMPTS), "none twice"
    assert all(one.rules for one in ATTEMPTS)
    assert not any(one.rules for one in ALLOWED)


def test_the_page_counts_them() -> None:
    section = (ROOT / "docs" / "threat-model.md").read_text().partition("## Pods that try to break in")[2].partition("\n## ")[0]
    counts = [int(number) for number in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)]
    assert sum(counts) == len(ATTEMPTS) >= 30
