"""The scraper: who is asked, how often, and what it tells."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest

from ebb.controller.scraper import Key, Scraper
from tests.builders import NOW
from tests.fake_time import run

KEY = ("ns", "job")


class Workers:
    """Answers for some addresses, and remembers who was asked and when."""

    def __init__(self, targets: dict[Key, Sequence[str]]) -> None:
        self.targets, self.pages = targets, dict[str, str]()
        self.asked: list[tuple[float, str]] = []
        self.told: list[tuple[float, Key]] = []
        self.at_once = self.most_at_once = 0
        self.takes_seconds = 0.0
        self.scraper = Scraper(self._fetch, self, self._tell, clock=lambda: NOW)

    def training(self) -> Sequence[Key]:
        return list(self.targets)

    def addresses(self, key: Key) -> Sequence[str]:
        return self.targets[key]

    async def _fetch(self, address: str) -> str | None:
        self.asked.append((asyncio.get_running_loop().time(), address))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.takes_seconds)
        self.at_once -= 1
        return self.pages.get(address)

    def _tell(self, key: Key) -> None:
        self.told.append((asyncio.get_running_loop().time(), key))

    @asynccontextmanager
    async def scraped(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.scraper.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def test_the_first_worker_that_answers_is_believed_and_asked_first_from_then_on() -> None:
    async def story() -> None:
        workers = Workers({KEY: ["10.0.0.0", "10.0.0.1", "10.0.0.2"]})
        workers.pages = {"10.0.0.1": "ebb_step 120\n"}
        async with workers.scraped():
            await asyncio.sleep(7)
            assert [address for _, address in workers.asked] == ["10.0.0.0", *["10.0.0.1"] * 3]
            assert workers.scraper.latest[KEY].step == 120

    run(story())


def test_of_many_workers_that_do_not_answer_only_some_are_asked_in_a_round_and_others_in_the_next() -> None:
    async def story() -> None:
        workers = Workers({KEY: [f"10.0.0.{index}" for index in range(7)]})
        async with workers.scraped():
            await asyncio.sleep(4)
            assert [address[-1] for _, address in workers.asked] == ["0", "1", "2", "3"]
            workers.pages = {"10.0.0.5": "ebb_step 1\n"}
            await asyncio.sleep(3)
            assert workers.scraper.latest[KEY].step == 1
            workers.targets = {KEY: ["10.0.0.0"]}
            workers.pages = {"10.0.0.0": "ebb_step 2\n"}
            await asyncio.sleep(3)
            assert workers.scraper.latest[KEY].step == 2, "the job shrank"

    run(story())


def test_workers_that_never_answer_are_asked_ever_less_often_until_there_are_others() -> None:
    async def story() -> None:
        workers = Workers({KEY: ["10.0.0.0"]})
        async with workers.scraped():
            await asyncio.sleep(300)
            gaps = [after - before for (before, _), (after, _) in pairwise(workers.asked)]
            assert gaps[:4] == [3, 3, 3, 3], "programs take a while to start"
            assert gaps == sorted(gaps)
            assert gaps[-1] == 30
            workers.targets, workers.pages = {KEY: ["10.0.0.9"]}, {"10.0.0.9": "ebb_step 7\n"}
            await asyncio.sleep(3)
            assert workers.scraper.latest[KEY].step == 7

    run(story())


def test_progress_is_told_at_once_and_then_at_most_every_ten_seconds() -> None:
    async def story() -> None:
        workers = Workers({KEY: ["a"]})
        async with workers.scraped():
            for step in range(60):
                workers.pages = {"a": f"ebb_step {step}\n"}
                await asyncio.sleep(1)
            times = [at for at, _ in workers.told]
            assert times[0] == 0
            assert min(after - before for before, after in pairwise(times)) >= 10
            assert len(times) >= 5

    run(story())


def test_a_job_that_stands_still_is_not_told_of() -> None:
    async def story() -> None:
        workers = Workers({KEY: ["a"]})
        workers.pages = {"a": "ebb_step 5\n"}
        async with workers.scraped():
            await asyncio.sleep(100)
            assert len(workers.told) == 1
            workers.scraper.forget(KEY)
            await asyncio.sleep(3)
            assert len(workers.told) == 2, "a job of the same name is another one"

    run(story())


def test_many_jobs_are_read_less_often_and_spread_over_the_time() -> None:
    async def story() -> None:
        workers = Workers({("ns", f"job-{index}"): [f"a{index}"] for index in range(500)})
        async with workers.scraped():
            workers.pages = {f"a{index}": "ebb_step 1\n" for index in range(500)}
            await asyncio.sleep(60)
            per_second = [sum(1 for at, _ in workers.asked if second <= at < second + 1) for second in range(60)]
            assert all(19 <= reads <= 21 for reads in per_second)

    run(story())


def test_workers_that_hang_do_not_pile_up() -> None:
    async def story() -> None:
        workers = Workers({("ns", f"job-{index}"): [f"a{index}"] for index in range(500)})
        workers.takes_seconds = 2.0
        async with workers.scraped():
            await asyncio.sleep(120)
            assert workers.most_at_once <= 32

    run(story())


@pytest.mark.parametrize("page", ["ebb_step NaN\n", "ebb_step +Inf\n", "ebb_step x\n", "<html>"])
def test_a_page_that_makes_no_sense_stops_nobody(page: str) -> None:
    async def story() -> None:
        workers = Workers({KEY: ["a"]})
        workers.pages = {"a": page}
        async with workers.scraped():
            await asyncio.sleep(4)
            assert workers.scraper.latest == {}
            workers.pages = {"a": "ebb_step 1\n"}
            await asyncio.sleep(4)
            assert workers.scraper.latest[KEY].step == 1

    run(story())
