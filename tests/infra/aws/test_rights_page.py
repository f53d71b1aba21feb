"""The table of rights in docs/aws.md."""

from pathlib import Path

import pytest

from infra.clouds.aws.iam import page as rights_page


def test_the_page_has_the_table_of_today() -> None:
    assert rights_page.table() in rights_page.PAGE.read_text()


def test_an_old_table_is_refused_and_then_renewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "aws.md"
    page.write_text(f"before\n{rights_page.BEGIN}| old |\n{rights_page.END}after\n")
    assert rights_page.main(["--check"], page) == 1
    assert "make manifests" in capsys.readouterr().err
    assert rights_page.main([], page) == 0
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")
    assert rights_page.main(["--check"], page) == 0
