"""Files by path or address: s3://, gs://, https://, hf:// and whatever else fsspec knows.

    urls = expand("s3://bucket/train/{000..099}.tar")
    fetch(urls[0], path)

fsspec comes with torch; the packages for the stores themselves (s3fs, gcsfs, adlfs, huggingface_hub) are the program's to bring.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union

from ebb.elastic.data.sealed import DataError

Urls = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

_TRIES = 4
_FIRST_PAUSE_SECONDS = 1.0
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")

_T = TypeVar("_T")


def is_remote(url: str) -> bool:
    return "://" in url


def expand(urls: Urls, options: dict[str, Any] | None = None) -> list[str]:
    """Each address with {000..099} and {a,b} written out and * looked up, in the order of their names within one address.

    Raises DataError where there is none.
    """
    given = [urls] if isinstance(urls, (str, os.PathLike)) else list(urls)
    found: list[str] = []
    for each in given:
        for url in _without_braces(os.fspath(each).removeprefix("file://")):
            found += _matches(url, options or {}) if _has_star(url) else [url]
    if not found:
        named = ", ".join(map(str, given)) or "an empty list"
        raise DataError(f"{named} names no file: allowed are paths and addresses, with {{000..099}}, {{a,b}} and *")
    if len(set(found)) < len(found):
        twice = next(url for url in found if found.count(url) > 1)
        raise DataError(f"{twice} is named twice: its samples would be used twice in every epoch. Name each file once")
    return found


def _has_star(url: str) -> bool:
    # ? begins the query of an https address
    return "*" in url or (not is_remote(url) and glob.has_magic(url))


def _without_braces(text: str) -> list[str]:
    match = _BRACES.search(text)
    if match is None:
        return [text]
    inside = match.group(1)
    numbers = _RANGE.fullmatch(inside)
    if numbers:
        first, last = numbers.groups()
        width = len(first) if first.startswith("0") or last.startswith("0") else 0
        choices = [f"{number:0{width}}" for number in range(int(first), int(last) + 1)]
    else:
        choices = inside.split(",")
    return [each for choice in choices for each in _without_braces(text[: match.start()] + choice + text[match.end() :])]


def _matches(url: str, options: dict[str, Any]) -> list[str]:
    if not is_remote(url):
        return sorted(glob.glob(url, recursive=True))  # noqa: PTH207 - of a path or a pattern, relative or not
    files, path = _filesystem(url, options)
    return sorted(str(files.unstrip_protocol(each)) for each in _patiently(url, lambda: files.glob(path)))


def fetch(url: str, path: Path, options: dict[str, Any] | None = None) -> None:
    """Copy a file to `path`. Raises DataError."""
    files, place = _filesystem(url, options or {})
    _patiently(url, lambda: files.get_file(place, str(path)))


def read(url: str, options: dict[str, Any] | None = None) -> bytes:
    """The content of a small file. Raises DataError."""
    if not is_remote(url):
        return Path(url).read_bytes()
    files, place = _filesystem(url, options or {})
    content: bytes = _patiently(url, lambda: files.cat_file(place))
    return content


def size_of(url: str, options: dict[str, Any] | None = None) -> int:
    """In bytes. Raises DataError."""
    if not is_remote(url):
        try:
            return Path(url).stat().st_size
        except OSError as error:
            raise DataError(f"cannot read the shard {url}: {error.strerror}") from None
    files, place = _filesystem(url, options or {})
    return int(_patiently(url, lambda: files.size(place)) or 0)


def with_file(url: str, use: Callable[[Any], _T], options: dict[str, Any] | None = None) -> _T:
    """The answer of `use`, which is given a file that can be read at any place. Raises DataError."""
    if not is_remote(url):
        with Path(url).open("rb") as file:
            return use(file)
    files, place = _filesystem(url, options or {})

    def once() -> _T:
        with files.open(place, "rb") as file:
            return use(file)

    return _patiently(url, once)


def _filesystem(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415  # files at hand do without

        files, path = url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise DataError(f"cannot read {url}: {error}. Install the package for that store beside torch") from None
    return files, str(path)


def _patiently(url: str, act: Callable[[], _T]) -> _T:
    """Again after a pause, since stores fail at times. Raises DataError."""
    pause = _FIRST_PAUSE_SECONDS
    for left in reversed(range(_TRIES)):
        try:
            return act()
        except (FileNotFoundError, PermissionError) as error:
            raise DataError(f"cannot read {url}: {type(error).__name__}: {error}") from None
        except (ValueError, TypeError, KeyError):  # of what reads the file
            raise
        except Exception as error:  # each store has errors of its own
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            if not left:
                raise DataError(f"cannot read {url}, tried {_TRIES} times: {type(error).__name__}: {error}") from error
            time.sleep(pause)
            pause *= 2
    raise AssertionError("unreachable")
