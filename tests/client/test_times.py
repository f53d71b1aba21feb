"""Moments as people write them."""

import re

import pytest

from ebb.client.errors import BadRequest
from ebb.client.times import moment


@pytest.mark.parametrize("text", ["soon", "99999999d", "2026-13-01", "0001-01-01T00:00+14:00"])
def test_what_is_no_moment_is_told_so(text: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(f"deadline '{text}' is not a time")):
        moment(text, "deadline")
