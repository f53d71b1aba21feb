"""`make bump` finds each kind of pin; it is a stack on AWS that has some of them."""

import pytest

from infra import bump
from infra.account.records import Pattern
from infra.config import ROOT


@pytest.mark.parametrize("pattern", [*bump.patterns()], ids=lambda pattern: pattern.name or pattern.text)
def test_every_pattern_finds_a_pin_in_the_checkout(pattern: Pattern) -> None:
    assert [pin for pin in bump.pins(ROOT) if pin.pattern is pattern]
