"""Everything that a user can get wrong ends in a sentence and a named exit code: misuse.yaml, word for word.

EBB_UPDATE_GOLDENS=1 writes codes and messages again for the commands that are there; read what it changed.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebb.cli.exits import Exit
from tests.cli.misuse_world import Misuse, run

TABLE = Path(__file__).with_name("misuse.yaml")
UPDATE = "EBB_UPDATE_GOLDENS"
LEAST = 50


def read() -> list[Misuse]:
    return [
        Misuse(command=row["command"], code=row["code"], message=row["message"], files=tuple((row.get("files") or {}).items()))
        for row in yaml.safe_load(TABLE.read_text())
    ]


class _Quoted(str):
    """A text that YAML shows in quotes, or as lines where it has several."""


def write(rows: list[Misuse]) -> None:
    class Dumper(yaml.SafeDumper):
        pass

    def represent(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else '"')

    Dumper.add_representer(_Quoted, represent)
    head = "".join(line for line in TABLE.read_text().splitlines(keepends=True) if line.startswith("#"))
    text = [head]
    for row in rows:
        files = {"files": {name: _Quoted(content) for name, content in row.files}} if row.files else {}
        record = {"command": row.command, "code": row.code, "message": _Quoted(row.message), **files}
        dumped = yaml.dump(record, Dumper=Dumper, sort_keys=False, width=10000, allow_unicode=True)
        text.append("- " + dumped.rstrip().replace("\n", "\n  ") + "\n")
    TABLE.write_text("".join(text))


@pytest.mark.parametrize("misuse", read(), ids=lambda misuse: misuse.command)
def test_a_misuse_ends_in_its_sentence(misuse: Misuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get(UPDATE):
        pytest.skip("they are being written")
    result = run(misuse, tmp_path, monkeypatch)
    assert (result.exit_code, result.stderr.rstrip("\n")) == (misuse.code, misuse.message)
    assert isinstance(result.exception, SystemExit), result.exception  # anything else shows a traceback


def test_the_table_is_long_and_every_code_in_it_has_a_name() -> None:
    rows = read()
    assert len({row.command for row in rows}) == len(rows) >= LEAST
    assert {row.code for row in rows} <= {int(code) for code in Exit} - {Exit.OK}
    assert not [row.command for row in rows if "Traceback" in row.message or "ebb: " not in row.message]


def test_it_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is as it would be written: what is shown here is what is compared."""
    rows = read()
    if os.environ.get(UPDATE):
        found = []
        for number, row in enumerate(rows):
            (folder := tmp_path / str(number)).mkdir()
            result = run(row, folder, monkeypatch)
            assert isinstance(result.exception, SystemExit), row.command
            found.append(replace(row, code=int(result.exit_code), message=result.stderr.rstrip("\n")))
        write(found)
        return
    before = TABLE.read_text()
    monkeypatch.setattr("tests.cli.test_misuse.TABLE", tmp_path / "misuse.yaml")
    (tmp_path / "misuse.yaml").write_text(before)
    write(rows)
    assert (tmp_path / "misuse.yaml").read_text() == before
