"""The code that comes with a job: unpacked safely, verified, and the place where workers start."""

import errno
import os
import signal
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ebb.elastic.launch import code
from ebb.elastic.launch.code import CodeError, unpack
from tests.elastic.launch.test_main import launch
from tests.elastic.launch.wheels import make_wheel, pack

SCRIPT = "import os, helper\nprint('ran', helper.WORD, os.path.basename(os.getcwd())[:5], flush=True)\n"


@pytest.fixture(params=["filter", "old-python"])
def _python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's Python 3.11 has no filters for tarfile."""
    if request.param == "old-python":
        monkeypatch.delattr(tarfile, "data_filter")
        monkeypatch.delattr(tarfile, "FilterError")


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


@pytest.mark.usefixtures("_python")
def test_files_folders_and_links_come_out(tmp_path: Path) -> None:
    archive, told = tmp_path / "code.tar.gz", list[str]()
    sha = pack(archive, {"train.py": "1", "nets/small.py": "2"}, links={"nets/same.py": "small.py", "top.py": "nets/../train.py"})
    folder = unpack(archive, sha, told.append)
    assert (folder / "nets" / "same.py").read_text() == "2"
    assert (folder / "top.py").read_text() == "1"
    assert told == [f"code {sha[:12]} unpacked to {folder}"]
    assert unpack(archive, sha, told.append) != folder, "each start has a folder of its own"


@pytest.mark.usefixtures("_python")
@pytest.mark.parametrize(
    ("files", "links", "words"),
    [
        pytest.param({"../evil.py": "x"}, {}, "leads out of its folder|outside the destination", id="climbs"),
        pytest.param({}, {"out": "../../etc"}, "leads out of its folder|outside the destination", id="a-link-out"),
        pytest.param({}, {"out": "/etc/passwd"}, "leads out of its folder|absolute path", id="an-absolute-link"),
    ],
)
def test_nothing_gets_out_of_the_folder(files: dict[str, str], links: dict[str, str], words: str, tmp_path: Path) -> None:
    archive = tmp_path / "code.tar.gz"
    sha = pack(archive, files, links=links)
    with pytest.raises(CodeError, match=words):
        unpack(archive, sha, print)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_another_content_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "code.tar.gz"
    pack(archive, {"train.py": "1"})
    with pytest.raises(CodeError, match=r"is not what was submitted: .* the job's is 0000.*: submit the job again with --code"):
        unpack(archive, "0" * 64, print)


@pytest.mark.usefixtures("_python")
def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "code.tar.gz"
    archive.write_text("not at all")
    with pytest.raises(CodeError, match=r"is no \.tar\.gz"):
        unpack(archive, "", print)


@pytest.mark.usefixtures("_python")
def test_a_full_temporary_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: str) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/code-1")

    archive = tmp_path / "code.tar.gz"
    sha = pack(archive, {"train.py": "1"})
    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(CodeError, match=r"No space left on device: /tmp/code-1\. The pod's temporary disk is full"):
        unpack(archive, sha, print)


def test_an_archive_that_may_not_be_looked_at_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(path: Path) -> bool:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr(Path, "exists", stale)
    with pytest.raises(CodeError, match=r"cannot be unpacked: Stale file handle: .*code\.tar\.gz\. Can user 1000 read"):
        unpack(tmp_path / "code.tar.gz", "", print)


def test_an_archive_that_does_not_show_up_is_said(tmp_path: Path) -> None:
    told = list[str]()
    with pytest.raises(CodeError, match=r"the job's code is not there: .* is no file"):
        unpack(tmp_path / "code.tar.gz", "", told.append, patience_seconds=0.01)
    assert told == [f"waiting for {tmp_path}/code.tar.gz to show up on its volume"]


def test_without_code_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PYTHONPATH": "/opt/ebb"}
    here = Path.cwd()
    assert code.bring(environment, print) is None
    assert (environment, Path.cwd()) == ({"PYTHONPATH": "/opt/ebb"}, here)


def test_a_folder_called_trainer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told, archive = list[str](), tmp_path / "code.tar.gz"
    sha = pack(archive, {"trainer/net.py": "1"})
    folder = code.bring({"EBB_CODE_ARCHIVE": str(archive), "EBB_CODE_SHA256": sha}, told.append)
    assert Path.cwd() == folder
    assert "your trainer has the name of Ebb's own package" in told[-1]


@pytest.mark.e2e
@pytest.mark.parametrize("how", ["script", "module"])
def test_a_job_runs_its_code_with_its_packages(how: str, tmp_path: Path) -> None:
    """The whole launcher: the archive becomes the working directory, and what its requirements.txt names can be imported."""
    wheel = make_wheel(tmp_path / "wheels", "ebbword", says="hello")
    archive = tmp_path / "code.tar.gz"
    files = {
        "train.py": SCRIPT,
        "helper.py": "from ebbword import SAYS as WORD\n",
        "requirements.txt": f"ebbword @ {wheel.as_uri()}\n",
    }
    sha = pack(archive, files)
    program = ["train.py"] if how == "script" else ["-m", "train"]
    environment = {
        "EBB_CODE_ARCHIVE": str(archive),
        "EBB_CODE_SHA256": sha,
        "EBB_PACKAGES": str(tmp_path / "packages"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = launch("--standalone", *program, **environment)
    assert done.returncode == 0, done.stderr
    assert "ran hello code-" in done.stdout
    assert "installed ebbword 1.0 in" in done.stderr
    assert not list((tmp_path / "tmp").glob("code-*")), "the folder goes with the launcher"


@pytest.mark.e2e
def test_a_notice_while_packages_are_installed_ends_all_of_it(tmp_path: Path) -> None:
    """uv waits for an index that never answers: the launcher leaves as on any notice, and nobody waits for it afterwards."""
    archive, packages, log = tmp_path / "code.tar.gz", tmp_path / "packages", tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as silent, log.open("wb") as file:
        index = f"--index-url http://127.0.0.1:{silent.getsockname()[1]}/simple\nebbword\n"
        sha = pack(archive, {"train.py": "1", "requirements.txt": index})
        told = {"EBB_CODE_ARCHIVE": str(archive), "EBB_CODE_SHA256": sha, "EBB_PACKAGES": str(packages)}
        process = subprocess.Popen(
            [sys.executable, "-m", "ebb.elastic.launch", "--standalone", "train.py"],
            stdout=file,
            stderr=file,
            env={**os.environ, **told, "TMPDIR": str(tmp_path / "tmp"), "no_proxy": "*"},
        )
        silent.settimeout(60)
        connection, _ = silent.accept()  # uv is at work
        with connection:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 138, log.read_text()
    assert "left before the training started again: SIGTERM" in log.read_text()
    (partial,) = packages.iterdir()  # not the lease; what was begun is the next one's to remove, and marked as nobody's
    assert ".partial-" in partial.name
    assert partial.stat().st_mtime == 0
    assert not list((tmp_path / "tmp").glob("code-*"))


@pytest.mark.e2e
def test_code_that_cannot_be_used_is_a_failed_program(tmp_path: Path) -> None:
    archive = tmp_path / "code.tar.gz"
    pack(archive, {"train.py": "1"})
    done = launch("--standalone", "train.py", EBB_CODE_ARCHIVE=str(archive), EBB_CODE_SHA256="0" * 64)
    assert done.returncode == 1
    assert "is not what was submitted" in done.stderr
    assert "Traceback" not in done.stderr
