"""Two jobs never write the same folder or file."""

import json
import threading
from pathlib import Path

import pytest
import torch

from ebb.elastic.checkpoint import OwnedFolderError, Owner, claim_folder
from ebb.elastic.checkpoint.owner import claim_file
from ebb.elastic.checkpoint.plain import PlainFile
from tests.elastic.checkpoint.disks import Client, Share

FIRST = Owner(uid="aaaa-1", job="digits", namespace="elastic-job")
AGAIN = Owner(uid="bbbb-2", job="digits", namespace="elastic-job")


def test_a_job_gets_its_own_folder_back(tmp_path: Path) -> None:
    identity = claim_folder(tmp_path / "new", FIRST)
    assert claim_folder(tmp_path / "new", FIRST) == identity
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["owner.json"]
    assert json.loads((tmp_path / "new/owner.json").read_text())["uid"] == "aaaa-1"


@pytest.mark.parametrize("other", [AGAIN, Owner()], ids=["created-again-under-its-name", "outside-of-the-cluster"])
def test_another_job_is_refused_and_told_how_to_go_on(tmp_path: Path, other: Owner) -> None:
    claim_folder(tmp_path, FIRST)
    words = rf"belongs to job elastic-job/digits \(aaaa-1\); this is {'job' if other.uid else 'a run'}.*--resume-from {tmp_path}"
    with pytest.raises(OwnedFolderError, match=words):
        claim_folder(tmp_path, other)


def test_runs_outside_of_a_cluster_are_one_owner(tmp_path: Path) -> None:
    assert claim_folder(tmp_path, Owner()) == claim_folder(tmp_path, Owner())


@pytest.mark.parametrize("links", [True, False], ids=["links", "no-links"])
def test_of_many_only_one_gets_it(tmp_path: Path, links: bool) -> None:
    disk = None if links else Client(Share())
    won, lost = [], []
    start = threading.Barrier(8)

    def claim(number: int) -> None:
        start.wait()
        try:
            won.append(claim_folder(tmp_path, Owner(uid=f"uid-{number % 4}"), disk))
        except OwnedFolderError:
            lost.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(set(won)), len(lost)) == (2, 1, 6)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"uid": "aaaa-1"}'])
def test_a_damaged_marker_is_nobodys_guess(tmp_path: Path, text: str) -> None:
    (tmp_path / "owner.json").write_text(text)
    with pytest.raises(OwnedFolderError, match=r"owner.json is damaged .*Remove it if no other job writes here"):
        claim_folder(tmp_path, FIRST)


def test_two_jobs_in_one_folder_of_files_as_in_the_articles(tmp_path: Path) -> None:
    """checkpoint.pth and checkpoint2.pth side by side, and one model_best.pth.tar each."""
    one = PlainFile.claim(tmp_path / "checkpoint.pth", FIRST)
    two = PlainFile.claim(tmp_path / "checkpoint2.pth", AGAIN)
    assert (one.best.name, two.best.name) == ("model_best.pth.tar", "model_best-checkpoint2.pth.tar")
    with pytest.raises(OwnedFolderError, match=r"--checkpoint-file .*belongs to .*Name another file"):
        PlainFile.claim(tmp_path / "checkpoint.pth", AGAIN)
    claim_file(tmp_path / "checkpoint.pth", FIRST)


def test_a_bare_file_name_is_a_path_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"step": 1}, tmp_path / "data.pt")
    PlainFile.claim(Path("x.pth"), FIRST).publish(tmp_path / "data.pt", best=True)
    assert torch.load("x.pth") == torch.load("model_best.pth.tar") == {"step": 1}


def test_a_copy_that_fails_is_a_sentence_and_the_old_one_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data.pt").write_bytes(b"content")
    file = PlainFile.claim(tmp_path / "x.pth", FIRST)
    file.publish(tmp_path / "data.pt", best=False)
    file.publish(tmp_path / "nowhere.pt", best=True)
    assert file.path.read_bytes() == b"content"
    assert not file.best.exists()
    assert "x.pth could not be written: No such file or directory; the checkpoint itself is in" in capsys.readouterr().err
    assert not list(tmp_path.glob(".tmp-*"))
