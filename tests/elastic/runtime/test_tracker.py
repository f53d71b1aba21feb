"""The address of the run in an experiment tracker: of libraries that the program has imported, without asking anybody."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ebb.elastic.runtime.metrics import Board, find_tracker
from tests.elastic.runtime.test_time_account import progress

ADDRESS = "https://wandb.ai/team/digits/runs/5f3c"


def wandb(monkeypatch: pytest.MonkeyPatch, **run: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=SimpleNamespace(**run) if run else None))


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_run_that_is_online_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_tracker() == ""
    wandb(monkeypatch)
    assert find_tracker() == ""
    wandb(monkeypatch, offline=False, url=ADDRESS)
    assert find_tracker() == ADDRESS


def test_one_that_is_offline_is_not_even_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb(monkeypatch, offline=True)  # without a url: asking would raise
    assert find_tracker() == ""


def test_mlflow_has_one_on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def server(uri: str) -> None:
        run = SimpleNamespace(info=SimpleNamespace(experiment_id="1", run_id="a1"))
        library = SimpleNamespace(active_run=lambda: run, get_tracking_uri=lambda: uri)
        monkeypatch.setitem(sys.modules, "mlflow", library)

    server("http://mlflow:5000/")
    assert find_tracker() == "http://mlflow:5000/#/experiments/1/runs/a1"
    server("file:///tmp/mlruns")
    assert find_tracker() == ""


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://a\nebb_step 7", "https://" + "x" * 500])
def test_what_is_no_address_is_none(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    wandb(monkeypatch, offline=False, url=url)
    assert find_tracker() == ""


def test_a_library_of_another_version_costs_the_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb(monkeypatch, id="5f3c")  # knows neither offline nor url
    assert find_tracker() == ""


def test_the_page_names_it_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board()
    board.show(progress())
    assert "ebb_tracker_info" not in board.text()
    wandb(monkeypatch, offline=False, url=f'{ADDRESS}?q="a"')
    board.show(progress())
    assert board.text().endswith(f'ebb_tracker_info{{url="{ADDRESS}?q=\\"a\\""}} 1\n')
