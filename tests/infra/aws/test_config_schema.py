"""What editors know of a stack on AWS."""

import pytest

from infra.config import ROOT
from tests.infra.test_config_schema import checked


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("nat: one", "nat: two", id="value"),
        pytest.param("vpc-cni: v", "vpc-cni: ", id="form"),
        pytest.param("vpc-cni: v", "vpc-cnii: v", id="key with a form"),
        pytest.param("    region: us-west-2\n", "", id="needed key"),
    ],
)
def test_an_editor_shows_what_is_wrong(old: str, new: str) -> None:
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    assert old in text
    assert checked(text.replace(old, new, 1))
