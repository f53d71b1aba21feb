"""`ebb logs` and what watches a job: each line once, whatever breaks; the end of the job ends the follower."""

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from ebb.cli.app import app
from ebb.cli.terminal import Writer
from ebb.client.errors import Missing
from ebb.client.jobs import watch
from ebb.client.jobs.view import FAILED_STATE, FINISHED
from ebb.client.jobs.watch import Board, states
from ebb.client.logs import Choice, Line, follow, follow_logs, print_logs
from ebb.client.logs import pod as pod_logs
from ebb.client.logs.lines import parse
from ebb.client.logs.replay import Replay
from ebb.kube import PODS, Denied, KubeError, Object
from tests.cli.world import NS, FakeKube, elastic_job, platform_map, session, worker_pod


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RETRY_SECONDS", (0.002,))
    for module in (follow, pod_logs):
        monkeypatch.setattr(module, "RECHECK_SECONDS", 0.005)
        monkeypatch.setattr(module, "DRAIN_SECONDS", 0.05)


def at(second: float, text: str) -> str:
    whole, fraction = divmod(round(second * 1000), 1000)
    return f"2026-11-21T12:00:{whole:02}.{fraction:03}000000Z {text}"


def line_of(raw: str) -> Line:
    line = parse(raw)
    assert line
    return line


def writer() -> Writer:
    return Writer(out=io.StringIO(), notes=io.StringIO())


def lines(found: Writer) -> list[str]:
    assert isinstance(found.out, io.StringIO)
    return found.out.getvalue().splitlines()


def notes(found: Writer) -> str:
    assert isinstance(found.notes, io.StringIO)
    return found.notes.getvalue()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition is text that another task prints
            await asyncio.sleep(0.001)


def end(kube: FakeKube, *pods: Object, state: str = "Succeeded") -> None:
    """The programs exit and the controller says how the job ended."""
    for pod in pods:
        kube.put({**pod, "status": worker_pod(0, state="terminated")["status"]})
        kube.close_log(pod)
    kube.put(elastic_job(state=state))


async def test_what_there_is_in_the_order_of_time() -> None:
    zero, one = worker_pod(0), worker_pod(1)
    kube, found = FakeKube(elastic_job(), zero, one, worker_pod(2, state="waiting")), writer()
    kube.write(zero, at(1, "a"), at(3, "c"))
    kube.write(one, at(2, "b"), "unable to retrieve container logs for containerd://1")
    await print_logs(kube, NS, "digits", found)
    assert lines(found) == ["w0 | a", "w1 | b", "w0 | c"]


async def test_one_worker_has_no_prefix_and_a_tail() -> None:
    zero, one = worker_pod(0), worker_pod(1)
    kube, found = FakeKube(elastic_job(), zero, one), Writer(out=io.StringIO(), prefix=False)
    kube.write(one, at(1, "a"), at(2, "b"), at(3, "c"))
    await print_logs(kube, NS, "digits", found, choice=Choice(worker=1, tail=2))
    assert lines(found) == ["b", "c"]


def test_json_lines() -> None:
    found = Writer(out=io.StringIO(), json=True)
    line = line_of(at(1.5, "x"))
    found.line(1, line)
    found.line(1, replace(line, rank=3, stream="err"))
    known = {"worker": 1, "time": "2026-11-21T12:00:01.500000000Z", "text": "x"}
    assert json.loads(lines(found)[0]) == {**known, "rank": None, "stream": ""}
    assert json.loads(lines(found)[1]) == {**known, "rank": 3, "stream": "err"}


def test_prefixes_are_coloured_on_a_terminal_only() -> None:
    line = line_of(at(1, "x"))
    coloured = Writer(out=io.StringIO(), colour=True)
    coloured.line(0, line)
    coloured.line(7, line)
    assert lines(coloured) == ["\x1b[36mw0 | \x1b[0mx", "\x1b[33mw7 | \x1b[0mx"]


@pytest.mark.parametrize(("condition", "state"), [("Succeeded", FINISHED), ("Failed", FAILED_STATE)])
async def test_following_ends_with_the_job(condition: str, state: str) -> None:
    zero = worker_pod(0)
    kube, found = FakeKube(elastic_job(), zero), writer()
    kube.write(zero, at(1, "a"))
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found))
    await until(lambda: lines(found) == ["w0 | a"])
    kube.write(zero, at(2, "b"))
    await until(lambda: len(lines(found)) == 2)
    kube.write(zero, at(3, "last words"))
    end(kube, zero, state=condition)
    assert (await task).state == state
    assert lines(found) == ["w0 | a", "w0 | b", "w0 | last words"]


async def test_the_log_of_a_job_that_is_over_is_shown_once() -> None:
    zero = worker_pod(0)
    kube, found = FakeKube(elastic_job(), zero), writer()
    kube.write(zero, at(1, "a"), at(2, "b"))
    end(kube, zero)
    assert (await follow_logs(kube, NS, "digits", found)).state == FINISHED
    assert lines(found) == ["w0 | a", "w0 | b"]


@pytest.mark.parametrize("forget", [False, True], ids=["short break", "history forgotten"])
async def test_a_restarted_api_server_loses_and_repeats_no_line(forget: bool) -> None:
    zero, one = worker_pod(0), worker_pod(1)
    kube, found = FakeKube(elastic_job(), zero, one), writer()
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found))
    wanted = []
    for turn in range(6):
        for pod, worker in ((zero, 0), (one, 1)):
            kube.write(pod, at(1 + turn / 2, f"same {turn // 2}"), at(1.2 + turn / 2, f"turn {turn}"))
            wanted += [f"w{worker} | same {turn // 2}", f"w{worker} | turn {turn}"]
        if turn % 2:
            kube.break_connections(forget=forget)
            await asyncio.sleep(0.01)
            kube.heal()
        await until(lambda: len(lines(found)) >= 4 * (turn + 1))  # noqa: B023 - called at once
    end(kube, zero, one)
    assert (await task).state == FINISHED
    assert sorted(lines(found)) == sorted(wanted)
    assert "no answer; trying again" in notes(found)


async def test_a_lost_worker_and_the_one_in_its_place() -> None:
    old = worker_pod(1, uid="old", node="m1")
    kube, found = FakeKube(elastic_job(), old), writer()
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found))
    kube.write(old, at(30, "before"))
    await until(lambda: lines(found) == ["w1 | before"])
    kube.remove(old)
    entry = {"at": "2026-11-21T12:00:31Z", "what": "reclaimed", "worker": 1, "node": "m1", "cause": "NodeGone"}
    kube.put(elastic_job(state="Restarting", message="0 of at least 1 workers run.", history=[entry]))
    new = worker_pod(1, uid="new", state="waiting")
    kube.put(new)
    await until(lambda: "is recovering" in notes(found))
    kube.put(worker_pod(1, uid="new"))
    kube.write(new, at(29, "after"), at(32, "more"))  # the new machine's clock is behind
    await until(lambda: len(lines(found)) == 3)
    kube.put(elastic_job(history=[entry]))
    end(kube, worker_pod(1, uid="new"))
    assert (await task).state == FINISHED
    assert lines(found) == ["w1 | before", "w1 | after", "w1 | more"]
    assert (
        notes(found)
        == "worker 1 on m1 was lost: its machine was taken away\ndigits is recovering: 0 of at least 1 workers run.\n"
    )


async def test_a_log_that_belongs_to_the_next_pod_of_that_name_is_left_to_its_own_follower() -> None:
    """Logs are asked for by name: the follower of the old pod, whose end it has not heard of, gets the new pod's lines."""
    new = worker_pod(0, uid="new")
    kube, found = FakeKube(elastic_job(), new), writer()
    kube.write(new, at(2, "new"))
    async with Board(kube, NS, "digits") as board:
        board._pods["old"] = old = worker_pod(0, uid="old")
        follower = asyncio.create_task(pod_logs.PodTail(board, old, Replay(), lambda line: found.line(0, line)).run())
        await until(lambda: sum(path.endswith("/digits-worker-0") for _, path in kube.sent) >= 6)
        follower.cancel()
    assert lines(found) == []


async def test_a_job_that_is_deleted_ends_the_follower() -> None:
    zero = worker_pod(0)
    kube, found = FakeKube(elastic_job(), zero), writer()
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found))
    kube.write(zero, at(1, "a"))
    await until(lambda: lines(found) == ["w0 | a"])
    kube.remove(zero)
    kube.remove(elastic_job())
    with pytest.raises(Missing, match=r"digits was deleted\."):
        await task


async def test_a_silent_connection_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "SILENCE_SECONDS", 0.01)
    zero = worker_pod(0)
    kube, found = FakeKube(elastic_job(), zero), writer()
    kube.write(zero, at(1, "a"))
    task = asyncio.create_task(follow_logs(kube, NS, "digits", found))
    await asyncio.sleep(0.05)
    kube.write(zero, at(2, "b"))
    end(kube, zero)
    assert (await task).state == FINISHED
    assert lines(found) == ["w0 | a", "w0 | b"]


async def test_pods_of_an_earlier_job_of_that_name_are_not_shown() -> None:
    other = worker_pod(0, uid="other")
    other["metadata"]["ownerReferences"][0]["uid"] = "uid-earlier"
    kube, found = FakeKube(elastic_job(), other), writer()
    kube.write(other, at(1, "old news"))
    end(kube)
    assert (await follow_logs(kube, NS, "digits", found)).state == FINISHED
    assert lines(found) == []


async def test_a_first_refusal_is_final() -> None:
    class Refusing(FakeKube):
        async def list_with_version(self, *args: Any, **kwargs: Any) -> tuple[list[Object], str]:
            raise Denied("no", status=403)

    with pytest.raises(KubeError):
        await anext(states(Refusing(), PODS, NS))


def test_logs_verb_follows_to_the_end() -> None:
    zero = worker_pod(0)
    kube = FakeKube(platform_map(), elastic_job(), zero)
    kube.write(zero, at(1, "a"))
    end(kube, zero, state="Failed")
    result = CliRunner().invoke(app, ["logs", "-f", "digits"], obj=session(kube))
    assert (result.exit_code, result.stdout) == (5, "w0 | a\n")
