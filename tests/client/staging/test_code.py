"""What travels with a job: which files, and the same archive for the same files."""

import os
import socket
import tarfile
from pathlib import Path

import pytest

from ebb.client.errors import BadRequest
from ebb.client.staging import code as module
from ebb.client.staging.code import Code, amount, listed, pack


def write(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def names(folder: Path) -> list[str]:
    return [entry.name for entry in listed(folder)]


def packed(tmp_path: Path, folder: Path) -> Code:
    return pack(folder, tmp_path / "code.tar.gz")


def test_what_git_ignores_and_what_python_makes_stays_at_home(tmp_path: Path) -> None:
    """Nested .gitignore files, one that takes something back, and those above the folder up to the repository's."""
    write(tmp_path, "project/.git/info/exclude", "project/code/train.py", "project/code/a.log", "project/code/deep/b.log")
    code = write(
        tmp_path / "project" / "code",
        *("deep/keep.log", "deep/x.py", "data/train.bin", "__pycache__/t.pyc", "x.pyc", ".git/HEAD", "notes.private"),
        *(
            "ebb-output/run/checkpoints/x.pt",
            "env/pyvenv.cfg",
            "env/lib/torch.py",
            ".venv/bin/python",
            "build/out.bin",
            "nets/build",
            "cache/y",
        ),
    )
    (tmp_path / ".gitignore").write_text("*\n")  # above the repository: it is not asked
    (tmp_path / "project" / ".gitignore").write_text("*.log\n/code/data/\n")
    (tmp_path / "project" / ".git" / "info" / "exclude").write_text("*.private\n")
    (code / ".git" / "HEAD").unlink()
    (code / ".git").rmdir()
    (code / ".gitignore").write_text("build/\n/cache\n")
    (code / "deep" / ".gitignore").write_text("!keep.log\n")
    assert names(code) == [".gitignore", "deep/.gitignore", "deep/keep.log", "deep/x.py", "nets/build", "train.py"]


def test_a_folder_in_no_repository_has_its_own_rules_alone(tmp_path: Path) -> None:
    code = write(tmp_path / "code", "train.py", "a.log")
    (tmp_path / ".gitignore").write_text("train.py\n")
    (code / ".gitignore").write_text("*.log\n")
    assert names(code) == [".gitignore", "train.py"]


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    """Whenever they were written, by whomever, and in whatever order they lie in the folder."""
    first = write(tmp_path / "first", "b/two.py", "a.py", "run.sh")
    second = write(tmp_path / "second", "run.sh", "a.py", "b/two.py")
    for folder in (first, second):
        (folder / "run.sh").chmod(0o755 if folder == first else 0o700)
    os.utime(second / "a.py", (1, 1))
    one, two = pack(first, tmp_path / "1.tar.gz"), pack(second, tmp_path / "2.tar.gz")
    assert (one.sha256, one.archive.read_bytes()) == (two.sha256, two.archive.read_bytes())
    assert (one.files, one.unpacked_bytes, one.size_bytes) == (3, 18, one.archive.stat().st_size)
    (second / "a.py").write_text("other")
    assert pack(second, tmp_path / "3.tar.gz").sha256 != one.sha256


def test_links_that_stay_inside_are_links_in_the_pod(tmp_path: Path) -> None:
    code = write(tmp_path / "code", "nets/small.py", "train.py")
    (code / "nets" / "main.py").symlink_to("../train.py")
    (code / "models").symlink_to(code / "nets")  # absolute, and a folder
    with tarfile.open(packed(tmp_path, code).archive) as tar:
        links = {member.name: member.linkname for member in tar if member.issym()}
    assert links == {"models": "nets", "nets/main.py": "../train.py"}


def test_what_is_no_file_does_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = write(tmp_path / "code", "train.py")
    os.mkfifo(code / "pipe")
    monkeypatch.chdir(code)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert names(code) == ["train.py"]


def leads_out(code: Path) -> None:
    (code / "data").symlink_to("/etc")


def leads_out_by_another(code: Path) -> None:
    (code / "data").symlink_to("../elsewhere/x")


def empty(code: Path) -> None:
    (code / ".gitignore").write_text("*\n")


REFUSED = {
    "a link to elsewhere": (
        leads_out,
        r"the link data leads out of the folder, to /etc\. Copy what it leads to, or add the link",
    ),
    "a link that climbs": (leads_out_by_another, r"the link data leads out of the folder, to \.\./elsewhere/x\."),
    "nothing": (empty, r"holds nothing that \.gitignore does not ignore: name the folder of your program\."),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_travel_is_refused(make: object, words: str, tmp_path: Path) -> None:
    code = write(tmp_path / "code", "train.py")
    assert callable(make)
    make(code)
    with pytest.raises(BadRequest, match=words):
        listed(code)


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadRequest, match=r"code '.*/nowhere' is not a folder: name the one that holds your program, as in --code \."
    ):
        pack(tmp_path / "nowhere", tmp_path / "x")


def test_too_much_is_refused_with_the_largest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = write(tmp_path / "code", "a.py", "weights.bin")
    (code / "weights.bin").write_bytes(os.urandom(5000))
    monkeypatch.setattr(module, "LARGEST_BYTES", 4000)
    with pytest.raises(BadRequest, match=r"packs to more than 4\.0 kB, .* weights\.bin \(5\.0 kB\), a\.py \(4 B\)"):
        packed(tmp_path, code)
    assert (tmp_path / "code.tar.gz").stat().st_size <= 4000  # and no disk is filled with what cannot travel
    monkeypatch.setattr(module, "MOST_FILES", 1)
    with pytest.raises(BadRequest, match="holds more than 1 files"):
        listed(code)


@pytest.mark.parametrize(("size", "words"), [(812, "812 B"), (34_200, "34 kB"), (1_250_000, "1.2 MB"), (3.2e9, "3.2 GB")])
def test_amounts(size: float, words: str) -> None:
    assert amount(size) == words


def test_a_long_transfer_is_told_every_few_seconds() -> None:
    told, now = list[str](), [0.0]
    tally = module.Tally("sent", 10_000_000, told.append, lambda: now[0])
    for second in range(12):
        now[0] = second
        tally(10**6)
    assert told == ["sent 6.0 MB of 10 MB", "sent 11 MB of 10 MB"]
