"""The agent's answer to a change of the membership."""

import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from torch.distributed.elastic.agent.server.api import WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

from ebb.elastic.launch.agent import _IMPORT_SECONDS, Agent
from ebb.elastic.rendezvous.handler import Etcd3Handler


def change(monkeypatch: pytest.MonkeyPatch, *, age: float, lost: bool = False, live: bool = False, failed: bool = False) -> str:
    """The fate of workers that were started `age` seconds ago."""
    done: list[str] = []
    monkeypatch.setattr(LocalElasticAgent, "_restart_workers", lambda *_: done.append("restarted"))
    monkeypatch.setattr(Agent, "_move", lambda *_: done.append("moved"))
    handler: Any = object.__new__(Etcd3Handler)
    handler._member, handler.lost, handler.cause = Mock(), lost, lost
    handler.failed = handler.by_itself = handler.members_only = False
    agent: Any = object.__new__(Agent)
    agent._handler, agent._met_at = handler, time.monotonic() - age
    agent._places = Mock(used=live, all_live=lambda processes: live, tell_change=lambda: done.append("told"))
    state = WorkerState.FAILED if failed else WorkerState.HEALTHY
    agent._restart_workers(SimpleNamespace(state=state, workers=[SimpleNamespace(id=1)], group_world_size=1))
    return " ".join(done)


def test_newcomers_wait_for_workers_that_still_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were started anew, and imported all of it again, where two machines came at nearly the same time."""
    assert change(monkeypatch, age=1.0) == ""
    assert change(monkeypatch, age=1.0, live=True) == "told"
    assert change(monkeypatch, age=_IMPORT_SECONDS + 1) == "restarted", "a script that knows nothing of places"


def test_nobody_waits_for_them_where_one_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert change(monkeypatch, age=1.0, lost=True) == "restarted"
    assert change(monkeypatch, age=1.0, lost=True, live=True) == "moved"
    assert change(monkeypatch, age=1.0, failed=True) == "restarted"
