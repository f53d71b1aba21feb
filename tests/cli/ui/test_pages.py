"""The pages: what they say of jobs, sweeps and GPUs, in the words of the CLI, and that no text of a user's becomes HTML."""

import json
from typing import Any

import pytest

from ebb.api.clock import stamp
from ebb.api.contract import LABEL_NODE_GROUP
from ebb.cli.ui import pages
from ebb.cli.ui.live import Snapshot
from ebb.cli.ui.pages import PagePlace
from ebb.client.report.lines import Reader
from ebb.client.sweep.view import ANNOTATION_POINT, LABEL_SWEEP
from ebb.kube import Object
from tests.cli.ui.served import ebb_of
from tests.cli.world import NS, FakeKube, elastic_job, worker_pod
from tests.client.report import story
from tests.client.report.html import Element, read
from tests.client.test_gpus import node, pod

PLACE = PagePlace(base="/base/", platform="local")
NOW = story.BEGIN + 182
COST = {"usdSpent": 1.25, "usdPerHour": 0.6, "usdOnDemand": 4.0, "usdOnDemandPerHour": 2.0, "at": stamp(NOW)}
EVIL = "<img src=x onerror=alert(1)>\"'&</td>"


def snapshot(*jobs: Object, pods: tuple[Object, ...] = (), machines: tuple[Object, ...] | None = ()) -> Snapshot:
    platform = ebb_of(FakeKube()).platform
    return Snapshot(at=NOW, namespace=NS, platform=platform, objects=jobs, pods=pods, machines=machines)


def shown(body: str) -> Element:
    return read(pages.whole(body, PLACE, title="x", stream="stream", log=True)).all("main")[0]


def rows(page: Element, caption: str) -> list[list[str]]:
    [table] = [each for each in page.all("table") if each.all("caption")[0].words.startswith(caption)]
    return [[cell.words for cell in row.all("td")] for row in table.all("tbody")[0].all("tr")]


def tiles(page: Element) -> dict[str, tuple[str, str]]:
    found = [(each.all("dt")[0], each.all("dd")[0]) for each in page.all("div", "tile")]
    return {name.words: (value.text, value.all("small")[0].words) for name, value in found}


def of_sweep(name: str, loss: float | None, state: str = "Running", **point: str) -> Object:
    job = elastic_job(name, state=state, progress={} if loss is None else {"loss": loss, "step": 5, "totalSteps": 9})
    labels = {"labels": {LABEL_SWEEP: "scan"}, "annotations": {ANNOTATION_POINT: json.dumps(point)}}
    return {**job, "metadata": {**job["metadata"], **labels}}


def test_the_first_page_has_jobs_with_their_state_and_its_reason() -> None:
    progress = {"step": 120, "totalSteps": 560, "loss": 0.12345}
    running = elastic_job(
        "digits", progress=progress, reclaims=2, cost=COST, replicaStatuses={"Worker": {"active": 1}}, replicas=2
    )
    waiting = elastic_job("late", state="Waiting", message="no machine in local-a (0/3 nodes are available).")
    over = elastic_job("old", state="Failed", message="exit code 1")
    over["metadata"]["creationTimestamp"] = "2026-11-21T12:01:00Z"
    page = shown(pages.overview(snapshot(over, running, waiting), PLACE))
    assert rows(page, "Jobs") == [
        ["digits", "running", "1/2", "120/560", "0.1235", "2", "$1.25", "3m"],
        ["late", "waitingno machine in local-a.", "0/2", "-", "-", "0", "-", "3m"],
        ["old", "failedexit code 1", "0/2", "-", "-", "0", "-", "2m"],
    ]
    assert [link.attributes["href"] for link in page.all("a")] == ["/base/jobs/digits", "/base/jobs/late", "/base/jobs/old"]
    found = tiles(page)
    assert found["Running"] == ("1", "of 2 jobs that are not over")
    assert found["Money now"] == ("$0.60/h", "all jobs together")
    assert found["Money so far"] == ("$1.25", "$2.75 less than on demand")


def test_the_first_page_has_free_gpus() -> None:
    machines = (node("m0", "spot-t4-local-a"), node("m1", "spot-t4-local-a"))
    page = shown(pages.overview(snapshot(elastic_job(), pods=(pod(0, "m0"),), machines=machines), PLACE))
    assert rows(page, "GPUs")[0] == ["T4", "local-a", "spot", "g4dn.xlarge, 1 each", "1", "2", "4", "$0.16"]
    assert tiles(page)["GPUs free"] == ("1", "of 2 that are there; up to 10 more can boot")
    assert any("Spot prices are assumed" in line.words for line in page.all("ul", "lines")[0].all("li"))


def test_without_the_right_to_see_machines_it_does_not_guess() -> None:
    page = shown(pages.overview(snapshot(elastic_job(), machines=None), PLACE))
    assert tiles(page)["GPUs free"] == ("?", "you may not look at machines")
    assert rows(page, "GPUs")[0][4:6] == ["?", "?"]


def test_a_platform_without_jobs_says_how_to_start_one() -> None:
    page = shown(pages.overview(snapshot(), PLACE))
    assert page.all("p", "empty")[0].words == "No jobs in elastic-job yet. Start one: ebb submit --gpus 1 -- python train.py"


class Fed:
    """A feed that has read all."""

    def __init__(self, **facts: Any) -> None:
        reader = Reader()
        for line in story.metric_lines():
            reader.add(line)
        self.training, self.source, self.notes, self.told = reader.done(), "metrics.jsonl", (), list[Object]()
        self.__dict__.update(facts)


def test_the_page_of_a_job_has_curves_workers_reclaims_and_money() -> None:
    job = story.job(state="Running", completionTime=None)
    machine = node("m1", "spot-t4-local-b")
    machine["metadata"]["labels"] |= {"topology.kubernetes.io/zone": "local-b", LABEL_NODE_GROUP: "spot-t4-local-b"}
    found = snapshot(job, pods=(worker_pod(1, node="m1"),), machines=(machine,))
    page = shown(pages.job(found, PLACE, "digits", Fed()))  # type: ignore[arg-type]
    assert [each.words for each in page.all("h3")] == list(pages.CHARTS)
    assert page.all("h1")[0].words == "digits running"
    [worker] = rows(page, "Workers of")
    assert worker[:3] == ["worker 1", "running", "m1"]
    happened = page.all("ol", "happened")[0].all("li")
    assert ["reclaimed" in each.words for each in happened if each.attributes["class"] == "warning"] == [True]
    assert [each.words for each in page.all("ol", "happened")[0].all("b")] == ["!"]
    assert "goes to" in happened[-1].words  # the newest first
    labels = [each.words for each in page.all("dl", "facts")[0].all("dt")]
    assert labels[:2] == ["workers", "where"]
    assert "cost" in labels
    assert "Money" in tiles(page)


def test_before_its_feed_a_job_has_its_status() -> None:
    page = shown(pages.job(snapshot(elastic_job(progress={"step": 5, "loss": 0.5})), PLACE, "digits", None))
    assert page.all("figure") == []
    assert tiles(page)["Loss"] == ("0.5", "as the platform last saw it")


def test_a_job_or_sweep_that_is_not_there() -> None:
    for body in (pages.job(snapshot(), PLACE, EVIL, None), pages.sweep(snapshot(), PLACE, EVIL)):
        page = shown(body)
        assert "<img src=x onerror=alert(1)>" in page.all("p", "empty")[0].words
        assert page.all("img") == []


def test_the_runs_of_a_sweep_are_ranked_as_the_best_one_is_chosen() -> None:
    runs = [
        of_sweep("scan-a", 0.4, lr="0.1"),
        of_sweep("scan-b", None, lr="0.2"),
        of_sweep("scan-c", 0.1, "Failed", lr="0.3"),
        of_sweep("scan-d", float("nan"), lr="0.4"),
        of_sweep("scan-e", 0.2, lr="0.5"),
    ]
    page = shown(pages.sweep(snapshot(*runs), PLACE, "scan"))
    assert [row[:3] for row in rows(page, "Runs")] == [
        ["1 (best)", "scan-c", "lr=0.3"],
        ["2", "scan-e", "lr=0.5"],
        ["3", "scan-a", "lr=0.1"],
        ["-", "scan-b", "lr=0.2"],
        ["-", "scan-d", "lr=0.4"],
    ]
    assert tiles(page)["Best loss so far"] == ("0.1", "lr=0.3")
    first = shown(pages.overview(snapshot(*runs), PLACE))
    assert rows(first, "Sweeps") == [["scan", "1 failed, 4 running", "lr=0.3 (loss 0.1)", "-"]]
    assert "sweep scan" in shown(pages.job(snapshot(*runs), PLACE, "scan-a", None)).words


@pytest.mark.parametrize("page", ["overview", "job", "sweep"])
def test_no_text_of_a_user_becomes_html(page: str) -> None:
    job = of_sweep(EVIL, 0.5, "Failed", **{EVIL: EVIL})
    job["metadata"]["labels"][LABEL_SWEEP] = EVIL
    job["status"]["conditions"][-1]["message"] = EVIL
    job["status"] |= {
        "placement": {"zone": EVIL, "gpuType": EVIL, "capacityType": EVIL},
        "history": [{"at": stamp(NOW), "what": EVIL, "worker": 1, "node": EVIL, "cause": EVIL}],
        "dry": [{"zone": EVIL, "gpuType": EVIL, "capacityType": EVIL, "since": stamp(NOW), "at": stamp(NOW), "message": EVIL}],
    }
    worker = worker_pod(1, job=EVIL, node=EVIL, state="waiting")
    worker["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": EVIL}}
    machine = node(EVIL, "spot-t4-local-a")
    machine["metadata"]["labels"] |= {"node.kubernetes.io/instance-type": EVIL, "topology.kubernetes.io/zone": EVIL}
    found = snapshot(job, pods=(worker,), machines=(machine,))
    told = {
        "involvedObject": {"kind": "Pod", "name": f"{EVIL}-worker-1"}, "reason": EVIL, "message": EVIL, "count": 1,
        "firstTimestamp": stamp(NOW), "lastTimestamp": stamp(NOW), "metadata": {},
    }  # fmt: skip
    feed: Any = Fed(notes=(EVIL,), source=EVIL, told=[told])
    body = {
        "overview": lambda: pages.overview(found, PLACE),
        "job": lambda: pages.job(found, PLACE, EVIL, feed),
        "sweep": lambda: pages.sweep(found, PLACE, EVIL),
    }[page]()
    main = shown(pages.trouble_banner(EVIL, found) + body)  # the reader refuses tags that are none of ours
    assert "<img" not in body
    assert main.words.count(EVIL) >= 4
    for element in _all(main):
        assert not {name for name in element.attributes if name.startswith("on")}


def _all(element: Element) -> list[Element]:
    return [element, *(inner for child in element.children for inner in _all(child))]


def test_trouble_is_said_with_the_age_of_what_stands_there() -> None:
    banner = pages.trouble_banner("no answer from the API server.", snapshot())
    assert banner.startswith('<p class="banner" role="status">no answer from the API server. This is what was known ')
    assert banner.endswith(" ago. Trying again.</p>")
    assert pages.trouble_banner("", snapshot()) == ""
