"""OpenSSH's settings: entries of our own file, and one line in the user's."""

import stat
from pathlib import Path

import pytest

from ebb.client.errors import BadRequest
from ebb.client.ssh.hosts import Host, config, install, remove


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "my config"))
    config().parent.mkdir(parents=True)
    return tmp_path


def host(job: str = "digits", worker: int | None = None, *words: str) -> Host:
    return Host(job=job, worker=worker, command=("/usr/bin/ebb", *words))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_openssh_checks_every_host_and_shows_no_key() -> None:
    entry = host("digits", None, "100% mine").entry
    assert entry.startswith("Host ebb-digits\n  ProxyCommand /usr/bin/ebb '100%% mine'\n")
    for line in (
        "StrictHostKeyChecking yes",
        f'UserKnownHostsFile "{config().parent}/known_hosts"',
        "HostKeyAlias ebb-digits",
        "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com",
        "PubkeyAuthentication no",
        "PasswordAuthentication no",
    ):
        assert f"\n  {line}\n" in entry
    assert host("digits", 2).options[:2] == ["-o", "ProxyCommand=/usr/bin/ebb"]
    assert "HostKeyAlias=ebb-digits-worker-2" in host("digits", 2).options


def test_the_first_entry_takes_one_line_of_the_users_file(home: Path) -> None:
    assert install(host()) is True
    users = home / ".ssh" / "config"
    assert users.read_text() == f'Include "{home}/my config/ebb/ssh/config"\n'
    assert (mode(users.parent), mode(users), mode(config())) == (0o700, 0o600, 0o600)
    assert install(host()) is False
    assert config().read_text() == host().entry


def test_the_users_own_lines_and_link_stay(home: Path) -> None:
    (home / "dotfiles").write_bytes(b"# m\xfc\nHost a\n  User b")
    (home / "dotfiles").chmod(0o644)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").symlink_to(home / "dotfiles")
    install(host())
    assert (home / ".ssh" / "config").is_symlink()
    first, _, rest = (home / "dotfiles").read_bytes().partition(b"\n")
    assert (first[:8], rest, mode(home / "dotfiles")) == (b"Include ", b"# m\xfc\nHost a\n  User b", 0o644)


def test_entries_are_replaced_and_removed_each_for_itself() -> None:
    for each in (host("a"), host("b"), host("a", 1)):
        install(each)
    install(host("a", None, "new"))
    assert config().read_text() == host("b").entry + host("a", 1).entry + host("a", None, "new").entry
    assert (remove(host("a")), remove(host("a"))) == (True, False)
    assert config().read_text() == host("b").entry + host("a", 1).entry


def test_a_file_that_cannot_be_written_changes_nothing(home: Path) -> None:
    (home / ".ssh").write_text("no folder")
    with pytest.raises(BadRequest, match=r"\.ssh/config cannot be written: .* Put this line first into it: Include "):
        install(host())
    assert (home / ".ssh").read_text() == "no folder"
