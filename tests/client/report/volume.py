"""Files of jobs in memory, as a platform's gateway has them. For tests of reports and of sweeps' results."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from ebb.client import Ebb, Missing
from ebb.client.files.transfer import FileEntry


class Volume:
    """A gateway with files in memory; it answers in pieces that know nothing of lines."""

    def __init__(self, files: Mapping[str, bytes], fails: Exception | None = None) -> None:
        self.files, self.fails = dict(files), fails
        self.opened = self.bytes_read = 0

    @asynccontextmanager
    async def open(self, _: Ebb) -> AsyncIterator["Volume"]:
        self.opened += 1
        yield self

    async def stat(self, path: str) -> FileEntry:
        return FileEntry(name=path, kind="file", size=len(self._held(path)), modified_ns=0)

    async def read(self, path: str, start: int = 0) -> AsyncIterator[bytes]:
        content = self._held(path)
        for at in range(start, len(content), 1000):
            if self.fails and at > 0:
                raise self.fails
            self.bytes_read += len(content[at : at + 1000])
            yield content[at : at + 1000]

    def _held(self, path: str) -> bytes:
        if path not in self.files:
            raise Missing(f"{path} is not there.")
        return self.files[path]
