"""Whose notices the launcher of a machine listens to; nobody's in Kubernetes."""

from pathlib import Path

import pytest

from ebb.elastic.notices.choice import choose
from ebb.metadata.aws import Aws
from ebb.metadata.azure import Azure
from ebb.metadata.firmware import CHOICES
from ebb.metadata.gcp import Gcp
from tests.metadata.test_firmware import firmware

pytestmark = pytest.mark.usefixtures("no_network")


@pytest.mark.parametrize(("choice", "kind"), [("aws", Aws), ("gcp", Gcp), ("azure", Azure)])
def test_what_the_user_chose_needs_no_firmware(tmp_path: Path, choice: str, kind: type) -> None:
    assert type(choose(choice, {}, say=pytest.fail, firmware=tmp_path)) is kind


def test_auto_and_none(tmp_path: Path) -> None:
    machine = firmware(tmp_path, {"sys_vendor": "Amazon EC2"})
    assert isinstance(choose("auto", {}, say=pytest.fail, firmware=machine), Aws)
    assert choose("none", {}, say=pytest.fail, firmware=machine) is None


@pytest.mark.parametrize("choice", CHOICES)
def test_in_kubernetes_there_is_nothing_to_ask(tmp_path: Path, choice: str) -> None:
    said: list[str] = []
    machine = firmware(tmp_path, {"sys_vendor": "Amazon EC2"})
    assert choose(choice, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, say=said.append, firmware=machine) is None
    assert len(said) == (choice not in ("auto", "none"))
    assert not said or "is ignored: in Kubernetes the notice is SIGTERM" in said[0]


def test_a_wrong_choice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--notices is 'ec2'; allowed: auto, none, aws, gcp, azure"):
        choose("ec2", {}, say=pytest.fail)
