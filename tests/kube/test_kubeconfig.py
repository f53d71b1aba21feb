"""The kubeconfigs that one meets: certificates and tokens, several files, the clouds' plugins."""

import asyncio
import base64
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ebb.kube import Kube, KubeconfigError
from ebb.kube.kubeconfig import AGAIN_SECONDS, ByLibrary, Plain, load


def write(folder: Path, user: Any, *, server: str = "https://10.0.0.1:6443", cluster: Any = None) -> Path:
    path, named = folder / "kubeconfig", {"name": "x"}
    content = {
        "current-context": "x",
        "clusters": [named | {"cluster": {"server": server} | (cluster or {})}],
        "users": [named | {"user": user}],
        "contexts": [named | {"context": {"cluster": "x", "user": "x"}}],
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("pair")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=me"]
    subprocess.run([*command, "-keyout", "key", "-out", "crt"], cwd=folder, check=True, capture_output=True)
    return folder / "crt", folder / "key"


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_certificates_in_files_beside_the_kubeconfig(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    for source, name in zip(pair, ("me.crt", "me.key"), strict=True):
        (tmp_path / name).write_bytes(source.read_bytes())
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    cluster = {"certificate-authority": "me.crt", "tls-server-name": "api", "proxy-url": "http://p:1"}
    path = write(tmp_path, user, cluster=cluster)
    entry = await load(str(path), None)
    assert isinstance(entry, Plain)
    assert (entry.host, entry.tls_server_name, entry.proxy) == ("https://10.0.0.1:6443", "api", "http://p:1")
    assert [one["subject"] for one in entry.tls().get_ca_certs()] == [((("commonName", "me"),),)]
    assert await entry.token() == ""


async def test_certificates_inside_the_kubeconfig_and_no_check_of_the_servers(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    user = {"client-certificate-data": encoded(pair[0]), "client-key-data": encoded(pair[1])}
    entry = await load(str(write(tmp_path, user, cluster={"insecure-skip-tls-verify": True})), None)
    assert isinstance(entry, Plain)
    assert entry.tls().check_hostname is False


async def test_a_key_that_is_none_is_a_sentence(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    user = {"client-certificate-data": encoded(pair[0]), "client-key-data": encoded(pair[0])}
    with pytest.raises(KubeconfigError, match=r"the certificates for https://10\.0\.0\.1:6443 cannot be used"):
        async with Kube.connect(str(write(tmp_path, user))):
            pass


async def test_another_context_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, {"token": "t"})
    content = json.loads(path.read_text())
    content["contexts"].append({"name": "y", "context": {"cluster": "y", "user": "x"}})
    content["clusters"].append({"name": "y", "cluster": {"server": "https://y/"}})
    path.write_text(json.dumps(content))
    entry = await load(str(path), "y")
    assert (entry.host, await entry.token()) == ("https://y", "Bearer t")


@pytest.mark.parametrize(
    "text", ["", "clusters: []\n", "{", "a: b: c", json.dumps({"current-context": "none"})], ids=["", "half", "{", "a", "context"]
)
async def test_what_is_no_kubeconfig_is_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=f"no usable kubeconfig at {path}: .* Set KUBECONFIG"):
        await load(str(path), None)


async def test_several_files_are_one_kubeconfig(tmp_path: Path) -> None:
    path = write(tmp_path, {"token": "t"})
    content, other = json.loads(path.read_text()), tmp_path / "other"
    other.write_text(json.dumps({"users": content.pop("users"), "contexts": [], "clusters": []}))
    path.write_text(json.dumps(content | {"users": []}))
    entry = await load(f"{path}:{other}", None)
    assert isinstance(entry, ByLibrary)
    assert await entry.token() == "Bearer t"


def test_a_plain_kubeconfig_needs_no_large_library(tmp_path: Path) -> None:
    """It takes 36 MB, in every controller."""
    code = (
        "import asyncio, sys; from ebb.kube import client, kubeconfig; import ebb.controller.__main__;"
        "asyncio.run(client.load(sys.argv[1], None)); sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(write(tmp_path, {"token": "t"}))], check=False, timeout=60)
    assert done.returncode == 0


# --- Plugins --------------------------------------------------------------------------------------------------------------------

PLUGIN = """
import datetime, json, pathlib, sys
here = pathlib.Path(sys.argv[1])
number = int(here.read_text()) + 1
here.write_text(str(number))
if len(sys.argv) > 3 and pathlib.Path(sys.argv[3]).exists():
    sys.exit("no network")
ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=float(sys.argv[2]))
status = {"token": f"token-{number}", "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


def plugin(folder: Path, lives_seconds: float) -> Path:
    """A kubeconfig with a plugin as the clouds have them; its tokens are numbered, and it fails while file `down` is there."""
    (folder / "plugin.py").write_text(PLUGIN)
    (folder / "number").write_text("0")
    arguments = [str(folder / "plugin.py"), str(folder / "number"), str(lives_seconds), str(folder / "down")]
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": arguments}
    return write(folder, {"exec": command})


async def test_a_plugins_token_is_used_while_it_lives(tmp_path: Path) -> None:
    entry = await load(str(plugin(tmp_path, 3600)), None)
    assert [await entry.token() for _ in range(3)] == ["Bearer token-1"] * 3


@pytest.mark.parametrize(("lives", "kept"), [(3600, 3300), (600, 300), (60, 30)], ids=["an-hour", "ten-minutes", "a-minute"])
async def test_a_plugin_is_asked_again_before_its_token_ends(tmp_path: Path, lives: float, kept: float) -> None:
    """Five minutes before, as a request may take one; halfway, where tokens live for less than ten. Times are to the second."""
    entry, began = await load(str(plugin(tmp_path, lives)), None), time.monotonic()
    assert isinstance(entry, ByLibrary)
    entry._clock = lambda: began + kept - 5
    assert [await entry.token() for _ in range(3)] == ["Bearer token-1"] * 3
    entry._clock = lambda: began + kept + 5
    assert await asyncio.gather(*(entry.token() for _ in range(3))) == ["Bearer token-2"] * 3


async def test_a_plugin_that_fails_costs_nothing_but_a_warning_and_is_not_asked_by_every_request(tmp_path: Path) -> None:
    entry = await load(str(plugin(tmp_path, 240)), None)
    assert isinstance(entry, ByLibrary)
    now = time.monotonic() + 125
    entry._clock = lambda: now
    (tmp_path / "down").touch()
    assert [await entry.token() for _ in range(3)] == ["Bearer token-1"] * 3
    assert (tmp_path / "number").read_text() == "2"
    (tmp_path / "down").unlink()
    now += AGAIN_SECONDS
    assert await entry.token() == "Bearer token-3"


async def test_requests_that_are_denied_together_ask_the_plugin_once(tmp_path: Path) -> None:
    entry = await load(str(plugin(tmp_path, 3600)), None)
    assert await asyncio.gather(*(entry.renew("Bearer token-1") for _ in range(5))) == [True] * 5
    assert await entry.token() == "Bearer token-2"
    assert await entry.renew("Bearer token-1")  # refused together with the others, and told late
    (tmp_path / "down").touch()
    assert await asyncio.gather(*(entry.renew("Bearer token-2") for _ in range(5))) == [False] * 5
    assert (tmp_path / "number").read_text() == "3"
