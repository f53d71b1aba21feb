"""Machine types of Google Cloud: what is computed from a line of machines.yaml."""

import pytest

from infra.clouds.gcp import catalog
from infra.config import ConfigError


def test_what_cannot_be_computed_is_named() -> None:
    whole = {"name": "z9-standard-4", "cpu": 4, "memoryGiB": 16, "usdPerHour": 0.5}
    with pytest.raises(ConfigError, match="its family, 'z9', has no spot discount"):
        catalog.made(catalog.GcpLine.model_validate(whole))
    attached = {**whole, "name": "n1-standard-4", "gpu": "A100", "gpus": 1, "attached": True}
    with pytest.raises(ConfigError, match="found 'A100'; attached may be T4, P100, V100"):
        catalog.made(catalog.GcpLine.model_validate(attached))
