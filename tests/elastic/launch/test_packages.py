"""What a requirements.txt asks for: added to the image once, and never in place of what the image has."""

import functools
import importlib.metadata
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ebb.elastic.launch import packages
from ebb.elastic.launch.lease import Lease
from ebb.elastic.launch.packages import PackagesError, _InstallError, ensure, key, pip_settings
from ebb.elastic.launch.reclaim import Interrupted
from tests.elastic.launch.wheels import make_wheel

ENVIRONMENT = {"EBB_JOB": "digits", "EBB_WORKER_INDEX": "3"}
TORCH = importlib.metadata.version("torch")


@pytest.fixture(autouse=True)
def _image(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the image, the folder with torch comes first on the path."""
    folder = str(importlib.metadata.distribution("torch").locate_file(""))
    monkeypatch.setenv("PYTHONPATH", folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(os, "sync", lambda: None)  # of the whole machine: minutes where somebody else writes


def asks(tmp_path: Path, *lines: str) -> Path:
    """A requirements.txt that finds wheels in its folder, and asks no index."""
    for name in ("code", "wheels"):
        (tmp_path / name).mkdir(exist_ok=True)
    path = tmp_path / "code" / "requirements.txt"
    path.write_text("\n".join(["--no-index", f"--find-links {(tmp_path / 'wheels').as_uri()}", *lines]) + "\n")
    return path


def test_only_what_the_image_lacks_is_added(tmp_path: Path) -> None:
    """A package that needs torch gets the image's; a dependency that is missing comes along."""
    make_wheel(tmp_path / "wheels", "ebbnet", needs="torch>=2\nRequires-Dist: ebbword")
    make_wheel(tmp_path / "wheels", "ebbword")
    told = list[str]()
    folder = ensure(asks(tmp_path, "ebbnet", "torch"), tmp_path / "packages", ENVIRONMENT, told.append)
    assert sorted(path.name for path in folder.glob("*.py")) == ["ebbnet.py", "ebbword.py"]
    assert not (folder / "torch").exists()
    assert told[0] == "installing requirements.txt for this job and all later ones with the same"
    assert told[-1].startswith("installed ebbnet 1.0, ebbword 1.0 in ")
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing else stays"
    told.clear()
    assert ensure(asks(tmp_path, "ebbnet", "torch"), tmp_path / "packages", ENVIRONMENT, told.append) == folder
    assert told == []


def test_what_the_image_has_already_makes_an_empty_folder(tmp_path: Path) -> None:
    told = list[str]()
    folder = ensure(asks(tmp_path, "torch>=2"), tmp_path / "packages", {}, told.append)
    assert list(folder.iterdir()) == []
    assert told[-1] == "the image has all of requirements.txt already"


REFUSED = {
    "another torch": (
        ["torch==1.0"],
        rf"The image's own packages \(torch {re.escape(TORCH)} among them\) stay as they are",
    ),
    "unknown": (["ebbnothing"], "ebbnothing was not found in the provided package locations"),
    "not a line": (["what is this"], r"Couldn't parse requirement in `requirements.txt`"),
}


@pytest.mark.parametrize(("lines", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_installed_is_said_with_uvs_words(lines: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(PackagesError, match=words) as raised:
        ensure(asks(tmp_path, *lines), tmp_path / "packages", ENVIRONMENT, print)
    assert str(raised.value).startswith("requirements.txt could not be installed; uv ended with ")
    assert [path.suffix for path in (tmp_path / "packages").iterdir()] == [".failed"]


def test_a_mended_environment_is_tried_again(tmp_path: Path) -> None:
    with pytest.raises(PackagesError, match="ebbword"):
        ensure(asks(tmp_path, "ebbword"), tmp_path / "packages", ENVIRONMENT, print)
    make_wheel(tmp_path / "wheels", "ebbword")
    folder = ensure(asks(tmp_path, "ebbword"), tmp_path / "packages", ENVIRONMENT, print)
    assert (folder / "ebbword.py").exists()


def test_of_many_workers_one_installs_and_the_others_say_that_they_wait(tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "ebbword")
    requirements, told, found = asks(tmp_path, "ebbword"), list[str](), list[Path]()

    def worker(index: int) -> None:
        environment = {"EBB_JOB": "digits", "EBB_WORKER_INDEX": str(index)}
        found.append(ensure(requirements, tmp_path / "packages", environment, told.append))

    threads = [threading.Thread(target=worker, args=(index,)) for index in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(found)) == 1
    assert len([line for line in told if line.startswith("installed ")]) == 1
    assert len([line for line in told if "installs requirements.txt; waiting for it since" in line]) == 2


def test_who_waited_for_a_failure_does_not_repeat_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requirements, root = asks(tmp_path, "ebbword"), tmp_path / "packages"
    root.mkdir()
    name = key(requirements)
    (root / f"{name}.lock").write_text("4f1c 000000000000 worker 0 of digits\n")
    (root / f"{name}-4f53cda1.failed").write_text("uv said no")  # the digest of no settings
    monkeypatch.setattr(packages, "_install", lambda *_: pytest.fail("it was tried again"))
    with pytest.raises(PackagesError, match="as another worker found: uv said no"):
        ensure(requirements, root, ENVIRONMENT, print)


def test_the_folder_is_of_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = asks(tmp_path, "ebbword")
    path.write_text("ebbword\n")
    first = key(path)
    (path.parent / "train.py").write_text("other code")
    assert key(path) == first, "the code does not say what is installed"
    path.write_text("ebbword==2\n")
    assert key(path) != first
    path.write_text("ebbword\n")
    monkeypatch.setattr(packages, "version_of", lambda name: "9.9")
    assert key(path) != first, "another torch"
    assert "site-packages" in first, "dill, and so Hugging Face's datasets, would pickle the packages with each function"


FILES = [
    "-e .",
    ".",
    "./lib",
    "lib/x",
    "-r more.txt",
    "--find-links wheels",
    "--no-index --find-links wheels",
    "-fwheels",
    "x @ file:///code/x.whl",
    "x-0.1-py3-none-any.whl",
    "wheels/x-0.1-py3-none-any.whl[fast] ; python_version > '3'",
    "x-0.1.tar.gz",
]


@pytest.mark.parametrize("line", FILES)
def test_where_files_of_the_code_say_what_is_installed_they_count(line: str, tmp_path: Path) -> None:
    path = asks(tmp_path)
    path.write_text(line + "\n")
    first = key(path)
    (path.parent / "more.txt").write_text("ebbword\n")
    assert key(path) != first


@pytest.mark.parametrize(
    "line", ["x @ https://a.org/x.whl", "git+https://a.org/x.git", "x==1.0 # as in a/b", "-i https://a.org/x"]
)
def test_where_they_do_not_they_do_not_count(line: str, tmp_path: Path) -> None:
    path = asks(tmp_path)
    path.write_text(line + "\n")
    first = key(path)
    (path.parent / "more.txt").write_text("ebbword\n")
    assert key(path) == first


def test_a_wheel_that_is_built_again_is_installed_again(tmp_path: Path) -> None:
    path, folder = asks(tmp_path), tmp_path / "packages"
    path.write_text("--no-index\nwheels/ebbword-1.0-py3-none-any.whl\n")
    for word in ("old", "new"):
        make_wheel(path.parent / "wheels", "ebbword", says=word)
        assert word in (ensure(path, folder, ENVIRONMENT, print) / "ebbword.py").read_text()


def test_the_images_own_package_from_another_place_is_refused(tmp_path: Path) -> None:
    """Of the same version, and still not the one that the platform is tested with."""
    version = importlib.metadata.version("filelock")
    wheel = make_wheel(tmp_path / "wheels", "filelock", version)
    with pytest.raises(PackagesError, match=f"requirements.txt would replace the image's filelock {version}, which"):
        ensure(asks(tmp_path, f"filelock @ {wheel.as_uri()}"), tmp_path / "packages", ENVIRONMENT, print)


def test_pips_own_variables_count(tmp_path: Path) -> None:
    named = {
        "PIP_INDEX_URL": "https://a.org",
        "PIP_EXTRA_INDEX_URL": "https://b.org https://c.org",
        "PIP_FIND_LINKS": f"{tmp_path} /no/such/folder",
        "PIP_TRUSTED_HOST": "b.org",
        "PIP_NO_INDEX": "1",
    }
    assert pip_settings(named)[1:] == [
        "--default-index=https://a.org",
        "--index=https://b.org",
        "--index=https://c.org",
        f"--find-links={tmp_path}",
        "--allow-insecure-host=b.org",
        "--no-index",
    ]


def test_wheels_that_came_with_the_job_stand_for_every_index(tmp_path: Path) -> None:
    """Those of a devcluster, whose pods reach none: ebb/client/staging/wheels.py."""
    make_wheel(tmp_path / "came", "ebbnet", needs="torch>=2\nRequires-Dist: ebbword")
    make_wheel(tmp_path / "came", "ebbword")
    requirements = asks(tmp_path)
    requirements.write_text("ebbnet\n")
    folder = ensure(requirements, tmp_path / "packages", {**ENVIRONMENT, "EBB_WHEELS": str(tmp_path / "came")}, print)
    assert sorted(path.name for path in folder.glob("*.py")) == ["ebbnet.py", "ebbword.py"]


def test_places_are_read_as_in_the_file(tmp_path: Path) -> None:
    make_wheel(tmp_path / "code" / "my wheels", "ebbword")
    path = asks(tmp_path)
    path.write_text("--no-index \\\n --find-links 'my wheels' # ours\n-r more.txt\n")
    (path.parent / "more.txt").write_text("--trusted-host=a.org\nebbword\n")
    assert (ensure(path, tmp_path / "packages", ENVIRONMENT, print) / "ebbword.py").exists()


def test_a_repository_that_wants_a_password_is_said_with_the_fix(tmp_path: Path) -> None:
    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        requirements = asks(tmp_path, f"ebbword @ git+http://127.0.0.1:{server.server_port}/x.git")
        with pytest.raises(
            PackagesError, match=r"A server wants a name and a password: put them into the URL in requirements.txt"
        ):
            ensure(requirements, tmp_path / "packages", ENVIRONMENT, print)
        server.shutdown()


def test_what_failed_with_one_index_is_tried_with_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one who waited for the first, too: only a failure with the same settings is its own."""
    make_wheel(tmp_path / "wheels", "ebbword")
    requirements, root = asks(tmp_path, "ebbword"), tmp_path / "packages"
    root.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(packages, "_install", refuse)
        with pytest.raises(PackagesError, match="uv said no"):
            ensure(requirements, root, {**ENVIRONMENT, "PIP_INDEX_URL": "https://a.org"}, print)
    (failed,) = root.iterdir()
    (root / f"{key(requirements)}.lock").write_text("4f1c 000000000000 worker 0 of digits\n")
    monkeypatch.setattr(packages, "Lease", functools.partial(Lease, silent_seconds=0.05, look_seconds=0.01))
    folder = ensure(requirements, root, {**ENVIRONMENT, "PIP_INDEX_URL": "https://b.org"}, print)
    assert (folder / "ebbword.py").exists()
    assert failed.read_text() == "uv said no"


def refuse(*_: object) -> None:
    raise _InstallError("uv said no")


def test_what_a_notice_left_is_not_removed_then_but_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted

    make_wheel(tmp_path / "wheels", "ebbword")
    requirements, root = asks(tmp_path, "ebbword"), tmp_path / "packages"
    with monkeypatch.context() as patch:
        patch.setattr(packages, "run_uv", interrupted)
        with pytest.raises(Interrupted):
            ensure(requirements, root, ENVIRONMENT, print)
    (left,) = root.iterdir()
    assert ".partial-" in left.name
    folder = ensure(requirements, root, ENVIRONMENT, print)
    assert list(root.iterdir()) == [folder]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "packages").write_text("a file")
    with pytest.raises(PackagesError, match=r"requirements.txt cannot be installed into .*: File exists.*Free space"):
        ensure(asks(tmp_path), tmp_path / "packages", ENVIRONMENT, print)
