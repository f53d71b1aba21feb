"""A resolver that never answers costs a store nothing, and other look-ups of the process are as they were."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

# In a network of its own, whose resolver takes every question and answers none; each question is a line of the file `asked`.
PROGRAM = """
import pathlib, socket, subprocess, sys, threading
folder = pathlib.Path(sys.argv[1])
(folder / "resolv.conf").write_text("nameserver 10.73.0.1\\n")
subprocess.run(["mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf"], check=True)
for words in ("set lo up", "add switch type bridge", "set switch up"):
    subprocess.run(["ip", "link", *words.split()], check=True)
for address in ("10.73.0.1/16", "10.73.0.2/16"):
    subprocess.run(["ip", "addr", "add", address, "dev", "switch"], check=True)
resolver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
resolver.bind(("10.73.0.1", 53))

def hear():
    while True:
        question = resolver.recv(4096)
        with (folder / "asked").open("ab") as file:
            file.write(question[12:].replace(b"\\n", b" ") + b"\\n")

threading.Thread(target=hear, daemon=True).start()
from ebb.elastic.torch_compat import open_store
server = open_store("10.73.0.2", 0, is_master=True, wait_for_workers=False)
client = open_store("10.73.0.2", server.port, is_master=False, wait_for_workers=False)
client.set("a", "b")
assert server.get("a") == b"b"
(folder / "joined").touch()
try:
    socket.gethostbyname("a-store.test")
except OSError:
    pass
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a resolver of its own")
def test_a_store_asks_for_no_name_of_its_peers(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--net", sys.executable, "-c", PROGRAM, str(tmp_path)]
    environment = {**os.environ, "RES_OPTIONS": "timeout:1 attempts:2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "joined").exists()
    asked = (tmp_path / "asked").read_bytes().splitlines()
    assert [b"a-store" in question for question in asked] == [True, True], asked
