"""One file from the web, whole and checked: downloads with progress, takes up what an earlier run began, verifies the checksum.

    download(url, file); verify(file, "sha256", checksum)

The file has its name only when all of it is there; until then it is `<name>.part`.
"""

import hashlib
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path

_ATTEMPTS, _PAUSE_SECONDS = 8, 1.0  # without any progress; the pause doubles, so that they take 4 minutes
_SILENCE_SECONDS = 60.0
_CHUNK = 2**20
_SAY_SECONDS = 10.0


class DownloadError(Exception):
    """The file cannot be had; the message says why and what to do."""


def download(url: str, file: Path) -> None:
    """Raises DownloadError. Safe to kill: the next call goes on."""
    if file.exists():
        return
    part, failures = file.with_name(file.name + ".part"), 0
    while True:
        before = _size(part)
        try:
            _take_up(url, part)
            part.rename(file)
            return
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 429):
                raise DownloadError(f"{url}: the server answers {error.code} {error.reason}: check the address") from error
            reason = f"{error.code} {error.reason}"
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        failures = 0 if _size(part) > before else failures + 1
        if failures == _ATTEMPTS:
            raise DownloadError(
                f"{url}: no progress in {_ATTEMPTS} attempts, the last one: {reason}. Run it again: it goes on here"
            )
        say(f"the download broke off ({reason}); going on at {megabytes(_size(part))}")
        time.sleep(_PAUSE_SECONDS * 2**failures)


def _take_up(url: str, part: Path) -> None:
    """Append what is missing. A server that cannot do that sends all again. Raises ConnectionError when it ends too early."""
    there = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})  # noqa: S310 - datasets.py checks
    try:
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=_SILENCE_SECONDS)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        if error.headers.get("Content-Range") != f"bytes */{there}":  # longer than the file is now: it is another one
            part.unlink()
            raise ConnectionError("the part does not fit the file any more") from error
        return  # all of it was there
    with answer:
        if answer.status != 206:
            there = 0
        total = there + int(answer.headers["Content-Length"]) if answer.headers.get("Content-Length") else None
        _append(answer, part, there, total)
    if total is not None and _size(part) != total:
        raise ConnectionError(f"{_size(part)} of {total} bytes came")


def _append(answer: HTTPResponse, part: Path, there: int, total: int | None) -> None:
    progress = DownloadProgress()
    with part.open("r+b" if there else "wb") as file:
        file.seek(there)
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            there += len(chunk)
            progress.say(f"downloaded {megabytes(there)}" + (f" of {megabytes(total)}" if total else ""))


def verify(file: Path, algorithm: str, checksum: str) -> None:
    """Raises DownloadError, and removes the file, if its checksum is another: taken up again, it would only get longer."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    size = 0
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    if digest.hexdigest() != checksum.lower():
        file.unlink()
        raise DownloadError(
            f"the {algorithm} of the download is {digest.hexdigest()} ({size} bytes), and {checksum} is wanted: the address "
            "gives another file, or the checksum in the stack's file is wrong. The download was removed"
        )
    say(f"{megabytes(size)} with the right {algorithm}")


class DownloadProgress:
    """Says how far something is, not too often."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _SAY_SECONDS

    def say(self, text: str) -> None:
        if time.monotonic() >= self._next:
            say(text)
            self._next = time.monotonic() + _SAY_SECONDS


def say(text: str) -> None:
    print(text, flush=True)


def megabytes(size: int) -> str:
    """12 MB; of 1000, as disks and networks are sold."""
    return f"{size / 1e6:.0f} MB"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
