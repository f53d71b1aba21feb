"""The proof of data's own judgement: a program that fails, and a tree that is another one."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.data import __main__ as proof
from benchmarks.verdict import BROKEN, KEPT


def test_a_program_that_fails_is_no_proof() -> None:
    with pytest.raises(proof.DataError, match=r"exit code 3: \['out of order'\]"):
        proof.killed([sys.executable, "-c", "print('out of order'); raise SystemExit(3)"], {}, lambda: 0.0, kills=1)


def test_a_program_is_killed_where_its_share_is_done_and_ends_in_its_own_time(tmp_path: Path) -> None:
    """The first start waits to be killed; the second finds what it left."""
    program = (
        "import pathlib, sys, time; p = pathlib.Path(sys.argv[1]); there = p.exists(); p.touch(); time.sleep(0 if there else 60)"
    )
    begun = tmp_path / "begun"
    found = proof.killed([sys.executable, "-c", program, str(begun)], {}, lambda: float(begun.exists()), kills=1)
    assert found["kills"] == 1


@pytest.mark.parametrize(("same", "code"), [(True, KEPT), (False, BROKEN)])
def test_one_tree_that_differs_breaks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], same: bool, code: int
) -> None:
    monkeypatch.setattr(proof, "prepare", lambda *_: {"identical": True})
    monkeypatch.setattr(proof, "copy", lambda *_: {"identical": same})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # a folder is kept where a promise is broken
    assert proof.main([]) == code
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["bucket"] == {"identical": same}


def test_trees_are_told_apart_by_names_and_bytes_but_not_by_notes(tmp_path: Path) -> None:
    for name, text in (("a/1", "x"), ("b/1", "x")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    before = proof.tree(tmp_path)
    assert set(before) == {"a/1", "b/1"}
    (tmp_path / ".ebb-copy.json").write_text("{}")
    assert proof.tree(tmp_path) == before
    (tmp_path / "a" / "1").write_text("y")
    assert proof.tree(tmp_path) != before
