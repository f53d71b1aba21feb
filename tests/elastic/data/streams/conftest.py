from collections.abc import Iterator

import fsspec
import pytest


@pytest.fixture(autouse=True)
def _empty_store() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()
