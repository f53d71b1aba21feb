"""The judge of chaos: it calls a history right in which all was kept, and refuses it with any one promise broken."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.history import History, HistoryError, read
from benchmarks.chaos.judge import judge
from tests.benchmarks.chaos.histories import Record, commit, find, formed, kept, ledger, pod, status

Change = Callable[[list[Record]], Any]


def file_of(records: list[Record], generation: int) -> Record:
    return find(records, "file", name=f"ledger/g{generation}-r0.jsonl")


def one_off(records: list[Record]) -> None:
    """The planted sampler: each step takes the samples one further than its own."""
    for generation, resumed in ((1, 0), (2, 1)):
        steps = {0: [1, 2, 3, 4], 1: [5, 6, 7, 0]} if generation == 1 else {1: [5, 6, 7, 5]}
        file_of(records, generation)["text"] = ledger(generation, resumed=resumed, before=resumed, steps=steps)


def test_a_run_in_which_all_was_kept() -> None:
    verdict = judge(kept())
    assert verdict.violations == []
    assert (verdict.seed, verdict.events, verdict.samples_lost, verdict.samples_repeated) == (7, 1, 0, 0)
    assert (verdict.samples, verdict.steps_redone, verdict.ends) == (8, 1, {"Succeeded": 1, "Failed": 1})
    assert (verdict.kinds, verdict.reclaims, verdict.generations) == ({"machine": 1}, 1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        # The three that are planted
        pytest.param(
            lambda all: all.insert(18, commit(131.0, 1, 2, revision=6)),
            "one: a checkpoint of generation 1, step 2 was committed after one of generation 2, step 2",
            id="fencing",
        ),
        pytest.param(
            lambda all: find(all, "status", state="Restarting").update(failures=1),
            "one: 1 failures were charged to its budget, its program failed 0 times",
            id="budget",
        ),
        pytest.param(one_off, "one: 1 samples lost, 1 repeated", id="sampler"),
        # Ends
        pytest.param(
            lambda all: all.remove(find(all, "status", state="Succeeded")),
            "one: never ended, it was to be Succeeded; the last that was seen is Restarting, why",
            id="no-end",
        ),
        pytest.param(
            lambda all: find(all, "status", state="Succeeded").update(state="Failed"),
            "one: Failed (why), it was to be Succeeded",
            id="another-end",
        ),
        pytest.param(
            lambda all: all.insert(-4, status(210.0, "Running", reclaims=1)),
            "one: came back from Succeeded to Running",
            id="end-of-an-end",
        ),
        pytest.param(
            lambda all: find(all, "status", job="bad").update(failures=1),
            "bad: Failed after 1 failures, its budget allows 1",
            id="too-early",
        ),
        pytest.param(
            lambda all: find(all, "crashes", job="bad").update(times=1),
            "bad: 2 failures were charged to its budget, its program failed 1 times",
            id="a-failure-that-was-none",
        ),
        # Reclaims and pods
        pytest.param(
            lambda all: [one.update(reclaims=0) for one in all if one["what"] == "status"],
            "one: 0 reclaims were counted, at least 1 of its workers died with their machines",
            id="reclaim-not-counted",
        ),
        pytest.param(
            lambda all: all.insert(15, pod(121.5, "p3", node="n3")),
            "one: 2 pods at once at 121.5 s, it has 1 workers",
            id="double-pods",
        ),
        pytest.param(
            lambda all: all.insert(18, formed(131.0, 3, "10.0.0.1", "10.0.0.2", revision=6)),
            "one: generation 3 has 2 pods of worker 0",
            id="both-in-a-generation",
        ),
        pytest.param(
            lambda all: all.insert(18, formed(131.0, 1, "10.0.0.1", revision=6)),
            "one: generation 1 was formed after 2",
            id="an-older-generation",
        ),
        pytest.param(
            lambda all: [all.remove(one) for one in list(all) if one.get("key", "").endswith("/generation")],
            "one: no generation of it was seen in etcd, so that nothing is shown of who trained",
            id="generations-not-seen",
        ),
        pytest.param(
            lambda all: [all.remove(one) for one in list(all) if "/checkpoints/" in one.get("key", "")],
            "one: no checkpoint of it was seen in etcd, so that nothing is shown of who committed",
            id="commits-not-seen",
        ),
        pytest.param(
            lambda all: all.insert(
                18, {**formed(131.0, 1, "10.0.0.1", "10.0.0.2", revision=6), "key": "/ebb/one-one-uid0-r1/generation"}
            ),
            "one: generation 1 has 2 pods of worker 0",
            id="both-in-a-later-attempt",
        ),
        # Samples
        pytest.param(
            lambda all: file_of(all, 2).update(text=ledger(2, resumed=1, before=1, steps={1: [4, 5, 6]})),
            "one: 1 samples lost, 0 repeated; one: 1 steps with more or fewer samples than the global batch",
            id="lost",
        ),
        pytest.param(
            lambda all: all.remove(file_of(all, 1)),
            "one: generation 1, from which a later one resumed, has no ledger",
            id="ledger-lost",
        ),
        pytest.param(
            lambda all: all.remove(find(all, "file", name="result.json")),
            "one: its output has no result.json: the job has not finished",
            id="no-result",
        ),
        # The platform
        pytest.param(lambda all: find(all, "part").update(well=False), "the controller was not back at the end", id="away"),
        pytest.param(lambda all: all.remove(find(all, "part")), "nobody looked at the platform at the end", id="not-looked"),
        pytest.param(lambda all: all.remove(find(all, "healed")), "action 0 (machine of n1) was never healed", id="not-healed"),
        pytest.param(lambda all: all.remove(find(all, "bill")), "there is no bill", id="no-bill"),
        pytest.param(
            lambda all: find(all, "bill")["cost"]["jobs"].update(usd=0.010),
            "`ebb cost`: jobs and what idled come to 0.0120 USD, the machines cost 0.0200; 0.0022 may be missing",
            id="cost-missing",
        ),
        pytest.param(
            lambda all: find(all, "bill")["cost"]["machines"].update(usd=0.04),
            "`ebb cost`: the machine record come to 0.0300 USD, the machines cost 0.0200; 0.0022 may be missing",
            id="cost-too-high",
        ),
    ],
)
def test_one_broken_promise_is_found(change: Change, words: str) -> None:
    records = kept()
    change(records)
    assert "; ".join(judge(records).violations) == words


def test_a_history_that_is_cut_off_shows_nothing() -> None:
    records = kept()[:12]
    assert judge(records).violations[0] == "the history is cut off: its run did not come to its end"


def test_a_machine_that_goes_while_no_controller_acts_may_be_seen_late() -> None:
    records = kept()
    records.insert(-1, {"at": 112.0, "what": "acts", "acts": False, "since": 105.0})
    records.insert(-1, {"at": 165.0, "what": "acts", "acts": True, "since": 165.0})
    find(records, "bill")["cost"]["jobs"].update(usd=0.0240)
    find(records, "bill")["cost"]["machines"].update(usd=0.0360)
    assert judge(records).violations == [], "for 55 s and the next controller's lists nobody knew that n1 was gone"
    find(records, "bill")["cost"]["jobs"].update(usd=0.0300)
    assert len(judge(records).violations) == 1


@pytest.mark.parametrize(("since", "counts"), [(5.0, False), (19.0, True)])
def test_a_worker_that_came_and_went_while_no_controller_acted_is_perhaps_not_counted(since: float, counts: bool) -> None:
    """The pod ran from 13 s on, and its machine died at 110."""
    records = kept()
    for one in records:
        if one["what"] == "status" and one["job"] == "one":
            one["reclaims"] = 0
    records.insert(-1, {"at": 25.0, "what": "acts", "acts": False, "since": since})
    records.insert(-1, {"at": 150.0, "what": "acts", "acts": True, "since": 150.0})
    assert bool(judge(records).violations) == counts


def test_a_machine_that_dies_near_a_jobs_end_is_perhaps_no_reclaim() -> None:
    records = kept()
    for one in records:
        if one["what"] == "status" and one["job"] == "one":
            one["reclaims"] = 0
    find(records, "action").update(at=190.0, victim="n2")
    assert judge(records).violations == []


def test_a_history_is_written_so_that_it_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "build" / "history.jsonl"
    with History.begin(path, seed=3) as history:
        history.add("job", name="one")
        assert [one["what"] for one in read(path)] == ["begin", "job"], "a run that dies leaves what it saw"
        history.add("action", at=0.5, number=1)
    records = read(path)
    assert [one["what"] for one in records] == ["begin", "job", "action", "end"]
    assert records[2]["at"] == 0.5
    path.write_text(path.read_text()[:-4])
    assert [one["what"] for one in read(path)] == ["begin", "job", "action"], "half a line is none"


def test_what_breaks_off_is_no_whole_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with pytest.raises(RuntimeError), History.begin(path, seed=3):
        raise RuntimeError
    assert "the history is cut off" in judge(read(path)).violations[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(None, "there is no history", id="missing"),
        pytest.param("x\n", "is no history of chaos: Expecting value", id="no-json"),
        pytest.param(json.dumps({"what": "job"}) + "\n", "its first line must begin one", id="other"),
        pytest.param(json.dumps({"what": "begin", "schema": 99}) + "\n", "of schema 1", id="newer"),
        pytest.param("", "its first line must begin one", id="empty"),
    ],
)
def test_what_is_no_history_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "history.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(HistoryError, match=words):
        read(path)
