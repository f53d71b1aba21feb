"""A rehearsal's reclaim on AWS: the stack's own FIS template is started, and no other."""

import copy

import pytest

from infra import config
from infra.clouds.aws import reclaim
from infra.clouds.aws.account.calls import Refused
from infra.config import ROOT
from tests.infra.aws import stacks
from tests.infra.aws.fake_calls import FakeCalls

TEMPLATES = [
    {"id": "EXTother", "tags": {"ebb.dev/stack": "other"}},
    {"id": "EXTours", "tags": {"ebb.dev/stack": "dev"}},
]


def test_the_stacks_own_template_is_started() -> None:
    calls = FakeCalls({
        ("fis", "list_experiment_templates"): {"experimentTemplates": TEMPLATES},
        ("fis", "start_experiment"): lambda asked: {"experiment": {"id": f"EXP-of-{asked['experimentTemplateId']}"}},
    })  # fmt: skip
    assert reclaim.reclaim("dev", stacks.stack(), "aws:///us-west-2a/i-1", calls) == "FIS experiment EXP-of-EXTours"


def test_a_stack_without_the_template_says_so() -> None:
    calls = FakeCalls({("fis", "list_experiment_templates"): {"experimentTemplates": TEMPLATES[:1]}})
    with pytest.raises(Refused, match="no FIS experiment template with the tag of stack dev"):
        reclaim.reclaim("dev", stacks.stack(), "aws:///us-west-2a/i-1", calls)


def test_what_it_needs_is_a_drill_of_that_node_group() -> None:
    own = copy.deepcopy(stacks.values())
    own["aws"] |= reclaim.needed("spot-t4-us-west-2a")
    assert config.parse(own, ROOT, stack="dev").settings.drill.group == "spot-t4-us-west-2a"
