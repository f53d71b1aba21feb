"""Which kubeconfig `ebb` takes, and what it says without one."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from ebb.cli.app import app
from ebb.client.platform import connection


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in which nothing is set and nothing is there."""
    for name in ("EBB_KUBECONFIG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "EBB_PLATFORM", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EBB_HOME", str(tmp_path / ".ebb"))
    return tmp_path


def touch(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return str(path)


def test_order(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = touch(home / ".kube" / "config")
    assert connection._kubeconfig() == default
    box = touch(home / ".ebb" / "boxes" / "ebb" / "researcher.kubeconfig")
    assert connection._kubeconfig() == box
    monkeypatch.setenv("KUBECONFIG", "/usual")
    assert connection._kubeconfig() == "/usual"
    monkeypatch.setenv("EBB_KUBECONFIG", "/ours")
    assert connection._kubeconfig() == "/ours"


def test_a_pod_uses_its_service_account(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(home / ".kube" / "config")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert connection._kubeconfig() is None


def test_without_any(home: Path) -> None:
    result = CliRunner().invoke(app, ["list"])
    assert (result.exit_code, result.stderr) == (
        3,
        f"ebb: no kubeconfig: EBB_KUBECONFIG and KUBECONFIG are not set, and neither {home}/.ebb/boxes/ebb/researcher.kubeconfig "
        f"nor {home}/.kube/config is there. Set EBB_KUBECONFIG to the stack's kubeconfig, or run `make up` for a platform "
        "on this machine.\n",
    )


def test_a_kubeconfig_that_is_no_kubeconfig(home: Path) -> None:
    path = home / "config"
    path.write_text("clusters: []\n")
    result = CliRunner().invoke(app, ["--kubeconfig", str(path), "list"])
    assert result.exit_code == 3
    assert result.stderr.startswith(f"ebb: no usable kubeconfig at {path}: ")
    assert result.stderr.endswith("Set KUBECONFIG or EBB_KUBECONFIG to a file that works with kubectl.\n")
