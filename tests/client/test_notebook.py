"""docs/notebook.ipynb does what it says: its cells are run as a notebook would, on a fake platform."""

import ast
import inspect
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ebb import client
from ebb.kube import ELASTIC_JOBS, Kube
from tests.cli.world import FakeKube, elastic_job, platform_map, worker_pod

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


class Notebook:
    """Cells share their names; the value of a last expression is the cell's."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}

    async def run(self, source: str) -> Any:
        tree = ast.parse(source)
        if tree.body and isinstance(last := tree.body[-1], ast.Expr):
            tree.body[-1] = ast.copy_location(ast.Assign(targets=[ast.Name("_", ast.Store())], value=last.value), last)
        code = compile(ast.fix_missing_locations(tree), NOTEBOOK.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        self._names["_"] = None
        running = eval(code, self._names)
        if inspect.isawaitable(running):
            await running
        return self._names["_"]


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text())
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert all(cell["id"] and (cell["cell_type"] != "code" or cell["outputs"] == []) for cell in found["cells"])
    return ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == "code"]


async def test_every_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kube = FakeKube(platform_map())

    @asynccontextmanager
    async def opener(_: str | None, __: str | None) -> AsyncIterator[Kube]:
        yield kube

    monkeypatch.setattr(client, "connect", partial(client.connect, __file__, opener=opener))
    monkeypatch.chdir(tmp_path)
    notebook, values = Notebook(), list[Any]()
    for source in cells():
        values.append(await notebook.run(source))
        if "client.submit(" in source:  # what the platform then does
            kube.put(elastic_job("notebook"))
            kube.put(worker_pod(0, job="notebook", node="m-1"))
        if 'client.status(ebb, "notebook")' in source:
            history = [{"at": "2026-11-21T12:01:07Z", "what": "reclaimed", "worker": 0, "node": "m-1", "cause": "NodeGone"}]
            end = "2026-11-21T12:09:00Z"
            kube.put(elastic_job("notebook", state="Succeeded", completionTime=end, reclaims=1, history=history))
    place, groups, price, job, workers, ended, events, size, _, _ = values
    assert place == ("elastic-job", "local")
    assert ("T4", "local-a", "spot", 0.158) in groups
    assert price.usd_per_hour == pytest.approx(2 * 0.526 * 0.3)
    assert job == ("notebook", "waiting")
    assert workers == [(0, "running", "m-1")]
    assert ended == ("finished", 1, None)
    assert [what for what, _, _ in events] == ["reclaimed"]
    assert size == len((tmp_path / "notebook.html").read_text())
    said = capsys.readouterr().out
    assert "finished None None" in said
    assert "no job named 'other' in elastic-job. There are: notebook." in said
    assert await kube.list(ELASTIC_JOBS, "elastic-job") == []
