"""The generator of committed files: nothing has drifted, drift is named, and writing repairs it."""

from pathlib import Path

import pytest

import manifests


def test_every_generated_file_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert (manifests.main(["--check"]), capsys.readouterr().err) == (0, "")


def test_drift_is_named_and_repaired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, lacking, surplus = tmp_path / "old.md", tmp_path / "lacking.json", tmp_path / "surplus.json"
    old.write_text("old")
    surplus.write_text("{}")
    files = {old: lambda: "new", lacking: lambda: "{}"}
    monkeypatch.setattr(manifests, "outdated", lambda _, outdated=manifests.outdated: outdated(files, tmp_path))
    assert manifests.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert all(f"{path} differs from the code: run `make manifests`" in said for path in (old, lacking, surplus))
    assert (manifests.main([]), manifests.main(["--check"])) == (0, 0)
    assert (old.read_text(), lacking.read_text(), surplus.exists()) == ("new", "{}", False)
