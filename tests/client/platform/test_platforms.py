"""The file of platforms: what it takes, that it is whole and private, and which way to a platform wins."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ebb.cli.app import app
from ebb.client.errors import BadRequest, Missing, NoPlatform
from ebb.client.platform import connection, platforms
from ebb.client.platform.platforms import Known
from ebb.client.submission.request import Request
from ebb.client.submission.submit import prepare
from ebb.kube import Object
from tests.cli.world import FakeKube, platform_json, platform_map, session


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in which nothing is set and nothing is there."""
    for name in ("EBB_KUBECONFIG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "EBB_PLATFORM", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EBB_HOME", str(tmp_path / ".ebb"))
    return tmp_path


def kubeconfig(home: Path, name: str) -> str:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return str(path)


def test_the_first_is_the_current_one_until_another_is_used(home: Path) -> None:
    platforms.add("aws", kubeconfig="~/aws", context="ada")
    platforms.add("gcp", kubeconfig=str(home / "gcp"))
    aws = Known(name="aws", kubeconfig=str(home / "aws"), context="ada", current=True)
    gcp = Known(name="gcp", kubeconfig=str(home / "gcp"), context=None, current=False)
    assert platforms.known() == (aws, gcp)
    platforms.use("gcp")
    assert [each.name for each in platforms.known() if each.current] == ["gcp"]
    assert platforms.remove("gcp").current
    assert platforms.current() is None
    assert platforms.add("aws", kubeconfig="/other").kubeconfig == "/other", "over the one of that name"


def test_the_file_is_its_owners_alone_and_always_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platforms.add("aws", kubeconfig="/aws")
    path = home / ".config" / "ebb" / "platforms.yaml"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    before = path.read_text()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadRequest, match=r"platforms\.yaml cannot be written: No space left on device"):
        platforms.add("gcp", kubeconfig="/gcp")
    assert path.read_text() == before
    assert [each.name for each in path.parent.iterdir()] == ["platforms.yaml"]


def test_where_xdg_says(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    platforms.add("aws", kubeconfig="/aws")
    assert (home / "xdg" / "ebb" / "platforms.yaml").is_file()


@pytest.mark.parametrize("name", ["all", "AWS", "", "-a", "a b", "a" * 64])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(BadRequest, match=r"is not usable for a platform: use lower-case letters"):
        platforms.add(name, kubeconfig="/x")


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(Missing, match=r"platform 'gcp' is not known: there are none yet\. Add it with `ebb platform add gcp"):
        platforms.use("gcp")
    platforms.add("aws", kubeconfig="/aws")
    with pytest.raises(Missing, match=r"platform 'gcp' is not known: there are: aws\."):
        platforms.remove("gcp")


MALFORMED = {
    "no YAML": ("a: [", "cannot be read"),
    "a list": ("- aws", "it must hold the keys current and platforms"),
    "platforms as a list": ("platforms: [aws]", r"platforms \['aws'\] must be a mapping of names"),
    "no kubeconfig": ("platforms: {aws: {context: x}}", r"platforms\.aws must hold kubeconfig: FILE"),
    "current is unknown": ("current: gcp\nplatforms: {aws: {kubeconfig: /x}}", r"current 'gcp' is none of its platforms \(aws\)"),
}


@pytest.mark.parametrize(("text", "words"), MALFORMED.values(), ids=MALFORMED)
def test_a_file_that_nobody_could_have_meant(text: str, words: str, home: Path) -> None:
    path = Path(kubeconfig(home, ".config/ebb/platforms.yaml"))
    path.write_text(text)
    with pytest.raises(BadRequest, match=words) as raised:
        platforms.known()
    assert str(raised.value).startswith(str(path))
    assert path.read_text() == text


def test_which_way_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last that counts to the first."""
    default = kubeconfig(home, ".kube/config")
    assert connection.find_way().kubeconfig == default
    box = kubeconfig(home, ".ebb/boxes/ebb/researcher.kubeconfig")
    assert connection.find_way().kubeconfig == box
    monkeypatch.setenv("KUBECONFIG", kubeconfig(home, "usual"))
    assert connection.find_way().kubeconfig == str(home / "usual")
    platforms.add("aws", kubeconfig=kubeconfig(home, "aws"), context="ada")
    assert connection.find_way() == connection.Way(kubeconfig=str(home / "aws"), context="ada", platform="aws")
    monkeypatch.setenv("EBB_KUBECONFIG", kubeconfig(home, "ours"))
    assert connection.find_way().kubeconfig == str(home / "ours")
    platforms.add("gcp", kubeconfig=kubeconfig(home, "gcp"))
    monkeypatch.setenv("EBB_PLATFORM", "gcp")
    assert connection.find_way().kubeconfig == str(home / "gcp")
    assert connection.find_way(platform="aws").kubeconfig == str(home / "aws")
    assert connection.find_way(platform="aws", context="bob").context == "bob"
    given = kubeconfig(home, "given")
    assert connection.find_way(given, platform="aws") == connection.Way(kubeconfig=given, context=None)


def test_a_pod_goes_by_its_service_account_unless_a_platform_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platforms.add("aws", kubeconfig=kubeconfig(home, "aws"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert connection.find_way().kubeconfig is None
    assert connection.find_way(platform="aws").kubeconfig == str(home / "aws")


def test_a_platform_whose_kubeconfig_is_gone() -> None:
    platforms.add("aws", kubeconfig="/nowhere/aws")
    with pytest.raises(NoPlatform, match=r"kubeconfig '/nowhere/aws' is not a file\. It is that of platform 'aws'"):
        connection.find_way()


def test_all_is_for_looking() -> None:
    with pytest.raises(BadRequest, match="platform 'all' is for `ebb list` and `ebb gpus` only: name one for anything else"):
        connection.find_way(platform="all")


@pytest.mark.parametrize(("said", "user"), [("ada", "ada"), ("", "root-like")])
def test_the_user_is_who_says_so(said: str, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBB_USER", said)
    monkeypatch.setenv("LOGNAME", "root-like")
    assert connection.find_user() == user


@pytest.mark.parametrize(("namespace", "owner"), [("ebb-team-vision", "ada@lab.example"), (None, "")])
async def test_in_a_team_the_api_server_says_who_one_is(home: Path, namespace: str | None, owner: str) -> None:
    """Elsewhere nobody asks."""
    kube = Knows(platform_map())
    async with connection.connect(kubeconfig(home, "config"), namespace=namespace, opener=session(kube).connect) as ebb:
        assert ebb.owner == owner


class Knows(FakeKube):
    """Knows who asks."""

    async def request(self, method: str, path: str, **more: Any) -> Object:
        if path == connection.WHO:
            return {"status": {"userInfo": {"username": "ada@lab.example"}}}
        return await super().request(method, path, **more)


TEAMS = [
    {"name": "vision", "namespace": "ebb-team-vision"},
    {"name": "speech", "namespace": "ebb-team-speech", "priority": "elastic"},
]


class LetsIn(Knows):
    """Says into which namespaces one may look."""

    def __init__(self, *open_to: str) -> None:
        found = {"schema": "1", "platform.json": json.dumps({**platform_json(), "teams": TEAMS})}
        super().__init__({**platform_map(), "data": found})
        self.open_to = open_to

    async def request(self, method: str, path: str, **more: Any) -> Object:
        if path == connection.MAY:
            return {"status": {"allowed": more["body"]["spec"]["resourceAttributes"]["namespace"] in self.open_to}}
        return await super().request(method, path, **more)


@pytest.mark.parametrize(
    ("open_to", "named", "namespace"),
    [
        (("elastic-job", "ebb-team-vision"), ("", ""), "elastic-job"),
        (("ebb-team-speech",), ("", ""), "ebb-team-speech"),
        (("ebb-team-speech", "ebb-team-vision"), ("vision", "speech"), "ebb-team-vision"),
        (("ebb-team-speech", "ebb-team-vision"), ("", "speech"), "ebb-team-speech"),
        ((), ("", ""), "elastic-job"),
    ],
    ids=["the stack's own", "the only one", "by name", "by EBB_TEAM", "nowhere"],
)
async def test_which_team_is_meant(
    home: Path, monkeypatch: pytest.MonkeyPatch, open_to: tuple[str, ...], named: tuple[str, str], namespace: str
) -> None:
    """`named`: by --team, and by EBB_TEAM."""
    team, variable = named
    monkeypatch.setenv("EBB_TEAM", variable)
    kube = LetsIn(*open_to)
    async with connection.connect(kubeconfig(home, "config"), team=team, opener=session(kube).connect) as ebb:
        assert (ebb.namespace, ebb.platform.jobs_namespace) == (namespace, namespace)


async def test_a_team_that_cannot_be_meant(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EBB_TEAM", raising=False)
    path = kubeconfig(home, "config")
    both = session(LetsIn("ebb-team-vision", "ebb-team-speech")).connect
    with pytest.raises(BadRequest, match=r"you are in several teams: name one, --team speech or --team vision, or set EBB_TEAM"):
        async with connection.connect(path, opener=both):
            pass
    with pytest.raises(Missing, match=r"no team named 'audio'\. There are: speech, vision\."):
        async with connection.connect(path, team="audio", opener=both):
            pass
    with pytest.raises(Missing, match=r"no team named 'audio'\. This platform has none"):
        async with connection.connect(path, team="audio", opener=session(Knows(platform_map())).connect):
            pass


async def test_the_team_says_the_usual_priority(home: Path) -> None:
    def priority(ebb: connection.Ebb, asked: str | None = None) -> str:
        body = prepare(ebb, Request(name="x", arguments=("train.py",), priority=asked)).body
        return str(body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"])

    path, opener = kubeconfig(home, "config"), session(LetsIn()).connect
    async with connection.connect(path, team="speech", opener=opener) as ebb:
        assert (priority(ebb), priority(ebb, "job")) == ("ebb-elastic", "ebb-job")
    async with connection.connect(path, team="vision", opener=opener) as ebb:
        assert priority(ebb) == "ebb-job"


def test_every_verb_takes_a_team(home: Path) -> None:
    """Before its name and after it."""
    for words in (["--team", "audio", "list"], ["list", "--team", "audio"]):
        done = CliRunner().invoke(app, words, obj=session(LetsIn()))
        assert (done.exit_code != 0, "no team named 'audio'" in done.output + done.stderr) == (True, True), words
