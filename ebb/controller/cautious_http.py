"""HTTP to addresses that people who submit jobs have a say in: what answers there must not use the controller for its own ends.

    async with cautious_session(seconds=2.0) as session:
        status, raw = await ask(session, "GET", "http://10.0.0.7:9464/metrics", longest_bytes=2**20)

The controller reaches what pods cannot: the metadata address of its machine, the platform's network. So a redirect is an answer
like any other and is not followed; cookies are not kept, nor is anything unpacked. Time and size of an answer are bounded: one
that is too long is none.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp


class AnswerTooLong(aiohttp.ClientError):
    """The answer is longer than what was asked for can be."""


@asynccontextmanager
async def cautious_session(seconds: float) -> AsyncIterator[aiohttp.ClientSession]:
    """`seconds`: for a whole exchange, from the connection to the last byte."""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,  # a kilobyte may unpack to a gigabyte
        headers={"Accept-Encoding": "identity"},
    ) as session:
        yield session


async def ask(
    session: aiohttp.ClientSession, method: str, address: str, *, longest_bytes: int, fields: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """The status and the whole answer. Raises aiohttp.ClientError, TimeoutError, OSError."""
    async with session.request(method, address, params=fields, allow_redirects=False) as answer:
        raw = bytearray()
        async for chunk in answer.content.iter_any():
            raw += chunk
            if len(raw) > longest_bytes:
                raise AnswerTooLong(f"the answer is longer than {longest_bytes} bytes")
        return answer.status, bytes(raw)
