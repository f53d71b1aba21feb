"""Every document that any test here lets `ebb` print with `-o json` must be as docs/cli/schemas says."""

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.cli.conforming import check

_invoke = CliRunner.invoke


@pytest.fixture(autouse=True)
def _documents_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def invoke(self: CliRunner, app: Any, args: Any = None, **more: Any) -> Result:
        result = _invoke(self, app, args, **more)
        if isinstance(args, list):
            check(args, result.stdout)
        return result

    monkeypatch.setattr(CliRunner, "invoke", invoke)
