"""The checkout is read and packed for images once: it stays as it is while tests run."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from infra import images
from infra.config import ROOT

T = TypeVar("T")


@pytest.fixture(autouse=True, scope="session")
def _checkout_is_read_once() -> Iterator[None]:
    """Stacks are declared a hundred times here, and each reads, hashes and compresses the same files for its images."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("files", "archive", "tarball"):
            patch.setattr(images, name, _once(getattr(images, name)))
        yield


def _once(read: Callable[[Path, Sequence[str]], T]) -> Callable[[Path, Sequence[str]], T]:
    """Other folders are a test's own, which it may change."""
    kept = cache(lambda sources: read(ROOT, sources))
    return lambda root, sources: kept(tuple(sources)) if root == ROOT else read(root, sources)
