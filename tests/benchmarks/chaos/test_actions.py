"""The draw of what breaks and of the jobs: by the seed alone, and nothing is left out."""

from itertools import pairwise

import pytest

from benchmarks.chaos.actions import GAP_SECONDS, KINDS, schedule, victim
from benchmarks.chaos.jobs import ARCH, BACKOFF_LIMIT, FAILED, FAILING, SUCCEEDED, JobPlan, draw, manifest
from tests.elastic.images import ARCH as TESTS_ARCH


def test_the_seed_says_it_all() -> None:
    assert schedule(seed=7, seconds=600) == schedule(seed=7, seconds=600)
    assert schedule(seed=7, seconds=600) != schedule(seed=8, seconds=600)
    assert schedule(seed=7, seconds=300) == schedule(seed=7, seconds=600)[: len(schedule(seed=7, seconds=300))]


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_comes_in_ten_minutes_and_in_order(seed: int) -> None:
    actions = schedule(seed=seed, seconds=600)
    assert {action.kind for action in actions} == {name for name, kind in KINDS.items() if kind.cards}
    assert all(GAP_SECONDS[0] - 0.1 <= after.at - before.at <= GAP_SECONDS[1] + 0.1 for before, after in pairwise(actions))
    for action in actions:
        assert action.at < 600
        assert KINDS[action.kind].seconds[0] <= action.seconds <= KINDS[action.kind].seconds[1]
        assert 0 <= action.pick < 1


def test_only_some_kinds() -> None:
    actions = schedule(seed=1, seconds=300, only=("cut", "disk"))
    assert {action.kind for action in actions} == {"cut", "disk"}
    assert all(before.at + before.seconds < after.at for before, after in pairwise(actions)), "one after the other"


def test_a_kind_that_no_round_has_comes_where_it_is_asked_for() -> None:
    assert {action.kind for action in schedule(seed=1, seconds=300, only=("zombie",))} == {"zombie"}


def test_the_victim_is_by_name_and_not_by_chance() -> None:
    assert [victim(["b", "a", "c"], pick) for pick in (0.0, 0.34, 0.99, 1.0)] == ["a", "b", "c", "c"]
    assert victim([], 0.5) is None


def test_jobs_are_drawn_by_their_number() -> None:
    plans = [draw(seed=7, number=number) for number in range(8)]
    assert plans == [draw(seed=7, number=number) for number in range(8)]
    assert [plan.workers for plan in plans] == [1, 2, 1, 1, 1, 2, 1, 1]
    assert [plan.ends for plan in plans].count(FAILED) == 2
    assert len({plan.name for plan in plans}) == 8
    assert {draw(seed=7, number=number, slow=True).workers for number in range(8)} == {1}


TEMPLATE = {
    "metadata": {"name": "template"},
    "spec": {"replicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "w", "args": []}]}}}}},
}


def test_the_manifest_is_of_the_plan() -> None:
    plan = JobPlan(name="chaos-5", workers=2, epochs=11, ends=SUCCEEDED)
    body = manifest(TEMPLATE, plan, env={"EBB_PLANTED": "sampler"})
    [container] = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert (body["metadata"]["name"], body["spec"]["minReplicas"], body["spec"]["maxReplicas"]) == ("chaos-5", 1, 2)
    assert (body["spec"]["replicaSpecs"]["Worker"]["replicas"], body["spec"]["backoffLimit"]) == (2, BACKOFF_LIMIT)
    assert container["args"][container["args"].index("--epochs") + 1] == "11"
    assert "--ledger" in container["args"]
    assert container["env"] == [{"name": "EBB_PLANTED", "value": "sampler"}]
    assert TEMPLATE["metadata"] == {"name": "template"}, "the template is for the next one too"


def test_a_job_that_is_to_fail_runs_the_program_that_fails() -> None:
    body = manifest(TEMPLATE, JobPlan(name="chaos-3", workers=1, epochs=0, ends=FAILED), env={})
    assert body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["args"] == [FAILING]


def test_the_small_model_is_that_of_the_tests() -> None:
    assert ARCH == TESTS_ARCH
