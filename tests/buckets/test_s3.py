"""`python -m ebb.buckets` against moto's S3 server: kills, wrong credentials, a missing bucket, a full volume."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto import settings
from moto.server import ThreadedMotoServer

from ebb.api.contract import EXIT_COPY_REFUSED
from ebb.buckets.copy import NOTE

pytestmark = pytest.mark.e2e
REGION = "eu-central-1"
FILES = {f"train/{n % 7}/{n}.jpg": random.Random(n).randbytes(n * 37) for n in range(300)}
FILES |= {
    "empty.txt": b"",
    "train/0/empty.txt": b"",
    "shards/0.tar": random.Random(0).randbytes(40 * 2**20),
    "shards/1.tar": random.Random(1).randbytes(9 * 2**20),
}


# The program, with files of no more than so many bytes; -1: without a limit.
LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
del sys.argv[1]
runpy.run_module("ebb.buckets", run_name="__main__")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its address. It has a bucket with FILES below set/, of which one was uploaded by parts, so its ETag is no MD5."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    address = f"http://{host}:{port}"
    s3 = boto3.client("s3", endpoint_url=address, region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
    s3.create_bucket(Bucket="images", CreateBucketConfiguration={"LocationConstraint": REGION})
    for name, data in FILES.items():
        if name == "shards/1.tar":
            _by_parts(s3, f"set/{name}", data)
        else:
            s3.put_object(Bucket="images", Key=f"set/{name}", Body=data)
    for mark in ("set/", "set/train/", "set/train/0/"):  # as a console makes folders
        s3.put_object(Bucket="images", Key=mark, Body=b"")
    try:
        yield address
    finally:
        moto.stop()


def _by_parts(s3: object, key: str, data: bytes) -> None:
    part = 5 * 2**20
    upload = s3.create_multipart_upload(Bucket="images", Key=key)["UploadId"]  # type: ignore[attr-defined]
    done = []
    for number, start in enumerate(range(0, len(data), part), start=1):
        sent = s3.upload_part(  # type: ignore[attr-defined]
            Bucket="images", Key=key, UploadId=upload, PartNumber=number, Body=data[start : start + part]
        )
        done.append({"PartNumber": number, "ETag": sent["ETag"]})
    s3.complete_multipart_upload(Bucket="images", Key=key, UploadId=upload, MultipartUpload={"Parts": done})  # type: ignore[attr-defined]


def start(address: str, url: str, target: Path, largest: int = -1) -> "subprocess.Popen[str]":
    environment = {"AWS_ENDPOINT_URL": address, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    return subprocess.Popen(
        [sys.executable, "-c", LIMITED, str(largest), url, str(target)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


def tree(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop(NOTE)
    return files


def test_killed_again_and_again_it_leaves_the_same_tree(server: str, tmp_path: Path) -> None:
    target, dice, kills = tmp_path / "set", random.Random(7), 0
    work = tmp_path / ".copying-set"
    for _ in range(6):
        before = _bytes_of(work)
        process = start(server, "s3://images/set", target)
        while process.poll() is None and _bytes_of(work) < before + dice.randrange(1, 12 * 2**20):
            pass  # the file system is the only one to tell how far another process is
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        finish(process)
    code, said = finish(start(server, "s3://images/set", target))
    assert (code, tree(target)) == (0, FILES), said
    assert kills >= 3
    assert f"{len(FILES)} files" in said
    assert not work.exists()


def _bytes_of(folder: Path) -> int:
    """Of whole files, and of the blocks that large ones have so far."""
    total = 0
    for path in folder.rglob("*") if folder.exists() else ():
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            continue  # renamed meanwhile
    return total


def test_a_bucket_that_is_missing_is_named(server: str, tmp_path: Path) -> None:
    code, said = finish(start(server, "s3://imagse/set", tmp_path / "set"))
    assert code == EXIT_COPY_REFUSED
    assert said.splitlines()[-1] == "error: bucket 'imagse' of s3://imagse/set does not exist: check its name."


def test_wrong_credentials_say_what_to_do(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)  # it checks signatures now, and nobody has a right one
    code, said = finish(start(server, "s3://images/set", tmp_path / "set"))
    assert code == EXIT_COPY_REFUSED
    assert "s3://images refuses the copy (InvalidAccessKeyId)" in said.splitlines()[-1]
    assert "by `ebb secret set` and --secret" in said.splitlines()[-1]


def test_a_volume_that_takes_no_more_is_full(server: str, tmp_path: Path) -> None:
    """A limit of the kernel on the size of files stands in for the volume: it needs no right, and refuses a real write."""
    code, said = finish(start(server, "s3://images/set", tmp_path / "set", largest=20 * 2**20))
    assert code == EXIT_COPY_REFUSED
    assert said.splitlines()[-1].startswith(f"error: the volume is full: {tmp_path / 'set'} cannot take all of s3://images/set")
    code, _ = finish(start(server, "s3://images/set", tmp_path / "set"))
    assert (code, tree(tmp_path / "set")) == (0, FILES)
