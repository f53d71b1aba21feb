"""The rules and the scrape configuration by Prometheus itself: `make prove-monitoring`.

Promtool has each alert fire and clear on made-up series. Then a real Prometheus scrapes a real controller, gateway and etcd, and
the pages of workers, by a real API server: through a reclaim, and through the causes of alerts. There each minute of the rules
lasts a second.
"""

import asyncio
import shutil
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.place import Job
from tests.apiserver.plane import JOBS
from tests.monitoring.conftest import Watched
from tests.monitoring.known import OTHERS, asked
from tests.monitoring.platform import Worker, worker
from tests.monitoring.test_dashboards import PAGES, page, plain
from workloads import dashboards, monitoring

pytestmark = [pytest.mark.proof, pytest.mark.asyncio(loop_scope="session")]
HERE = Path(__file__).parent


async def promtool(tool: Path, *words: str | Path, cwd: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        tool / "promtool", *map(str, words), cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


# --- Promtool -------------------------------------------------------------------------------------------------------------------


async def test_configuration_and_rules_are_prometheus_own(tool: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(monitoring.rules())
    config = monitoring.configuration("alertmanager.monitoring:9093").replace("/etc/prometheus/", f"{tmp_path}/")
    (tmp_path / "prometheus.yaml").write_text(config)
    code, said = await promtool(tool, "check", "config", "--syntax-only", "prometheus.yaml", cwd=tmp_path)
    assert code == 0, said
    code, said = await promtool(tool, "check", "rules", "rules.yaml", cwd=tmp_path)
    assert (code, "17 rules found" in said) == (0, True), said


async def test_every_alert_fires_by_its_condition_and_clears(tool: Path, tmp_path: Path, watched: Watched) -> None:
    shutil.copy(HERE / "alerts.yaml", tmp_path)
    (tmp_path / "rules.yaml").write_text(monitoring.rules())
    code, said = await promtool(tool, "test", "rules", "alerts.yaml", cwd=tmp_path)
    assert code == 0, said
    alerts = [rule for group in yaml.safe_load(monitoring.rules())["groups"] for rule in group["rules"] if "alert" in rule]
    watched.figures["alerts that fire and clear on made-up series"] = len(alerts)


async def test_without_one_of_its_rules_that_test_fails(tool: Path, tmp_path: Path, watched: Watched) -> None:
    """Or it would prove nothing."""
    shutil.copy(HERE / "alerts.yaml", tmp_path)
    rules = yaml.safe_load(monitoring.rules())
    caught = 0
    for group in rules["groups"]:
        for rule in list(group["rules"]):
            group["rules"].remove(rule)
            (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
            code, _ = await promtool(tool, "test", "rules", "alerts.yaml", cwd=tmp_path)
            assert code != 0, rule
            caught += 1
            group["rules"].append(rule)
    watched.figures["rules whose removal is found"] = caught


async def test_every_query_of_every_panel_is_promql(tool: Path, tmp_path: Path, watched: Watched) -> None:
    """By Prometheus' own parser, as rules of a file."""
    asked_for = sorted({plain(query) for name in PAGES for _, query in dashboards.queries(page(name))})
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(asked_for)]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    code, said = await promtool(tool, "check", "rules", "panels.yaml", cwd=tmp_path)
    assert (code, f"{len(rules)} rules found" in said) == (0, True), said
    rules[0]["expr"] = "max by (ebb_job (ebb_step)"
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert (await promtool(tool, "check", "rules", "panels.yaml", cwd=tmp_path))[0] != 0
    watched.figures["queries of panels parsed"] = len(asked_for)


# --- Prometheus -----------------------------------------------------------------------------------------------------------------


class Crew:
    """The pages of a job's workers, while the block lasts."""

    def __init__(self, job: Job, opened: AsyncExitStack) -> None:
        self.job, self._opened = job, opened
        self.pages: dict[str, Worker] = {}  # by the pod's address
        self._closers: dict[str, AsyncExitStack] = {}

    async def appears(self) -> None:
        """Those of new pods are served, those of lost ones are not."""
        there = {self.job.pods[index]["status"]["podIP"] for index in self.job.running()}
        step = max((one.step for one in self.pages.values()), default=0)
        checkpoint = max((one.checkpoint for one in self.pages.values()), default=0)
        for address in there - self.pages.keys():
            closer = await self._opened.enter_async_context(AsyncExitStack())
            self.pages[address] = await closer.enter_async_context(worker(address, step))
            self.pages[address].checkpoint = checkpoint
            self._closers[address] = closer
        for address in self.pages.keys() - there:
            del self.pages[address]
            await self._closers.pop(address).aclose()


def of(job: Job) -> str:
    return f'namespace="{job.namespace}",ebb_job="{job.name}"'


async def test_it_scrapes_a_job_through_a_reclaim(watched: Watched) -> None:
    server = watched.server
    async with AsyncExitStack() as opened:
        job = await watched.place.submit("through", replicas=3, low=2)
        await job.runs(3, 60)
        crew = Crew(job, opened)
        await crew.appears()

        async def workers() -> bool:
            return await server.value(f"count(ebb_step{{{of(job)}}})") == 3

        await server.until("it scrapes three workers", workers)
        series, began = await server.all(f"ebb_step{{{of(job)}}}"), time.time()
        assert {one["metric"]["pod"] for one in series} == {job.worker(index) for index in range(3)}
        assert {one["metric"]["node"] for one in series} == {job.machine(index).name for index in range(3)}
        old, lost = job.pod_uid(0), job.pods[0]["status"]["podIP"]
        await watched.place.machines.vanish(job.machine(0))
        await job.is_replaced(0, old, 60)
        await crew.appears()

        async def replaced() -> bool:
            told = {one["metric"]["instance"].partition(":")[0] for one in await server.all(f"ebb_step{{{of(job)}}}")}
            return len(told) == 3 and lost not in told

        await server.until("it scrapes the new worker and forgets the old one", replaced)
        watched.figures["from a loss to the new worker's first figures, s"] = round(time.time() - began, 1)

        async def counted() -> bool:
            return await server.value(f"ebb:job_reclaims{{{of(job)}}}") == 1

        await server.until("the reclaim is counted", counted)
        until = began + 20

        async def later() -> bool:
            return time.time() > until + 2

        await server.until("it was trained for a while after", later)
        steps = await server.history(f"ebb:job_step{{{of(job)}}}", began, until)
        assert len(steps) >= 20, "there is no second without a figure"
        assert steps == sorted(steps), "nor one with an older one"
        assert steps[-1] > steps[0]
        watched.figures["seconds of the job's step through the reclaim, without a gap"] = len(steps)
        assert (await server.value('sum(ebb_reclaims_total{cause="NodeGone"})') or 0) >= 1
        assert await server.value(f"ebb_job_state{{{of(job)},state='Running'}}") == 1
        await job.delete()


async def test_what_others_export_is_called_so(watched: Watched) -> None:
    """Of those that run here: etcd, and Prometheus' own."""
    for name, kind in {**OTHERS["etcd 3.6"], **OTHERS["Prometheus"]}.items():
        asked_for = f"{name}_count" if kind == "histogram" else name

        async def there(query: str = asked_for) -> bool:
            return await watched.server.value(query) is not None

        await watched.server.until(f"{asked_for} is scraped", there)


async def test_panels_find_figures_of_what_runs(watched: Watched) -> None:
    """Each query that names only figures of the controller, the gateway, etcd or a training answers while a job trains."""
    absent = ("DCGM_", "cluster_autoscaler_", "kubelet_", "container_", "process_")
    async with AsyncExitStack() as opened:
        job = await watched.place.submit("shown", replicas=2, low=1)
        await job.runs(2, 60)
        await Crew(job, opened).appears()
        told, silent = 0, []
        for name in PAGES:
            for title, query in dashboards.queries(page(name)):
                meant = query.replace("$namespace", ".*").replace("$ebb_job", ".*").replace("$__rate_interval", "10s")
                if title in ("namespace", "ebb_job") or any(one.startswith(absent) for one in asked(meant)):
                    continue

                async def answers(asks: str = meant) -> bool:
                    return bool(await watched.server.all(asks))

                try:
                    await watched.server.until(title, answers, 10)
                    told += 1
                except AssertionError:
                    silent.append(f"{name}: {title}")
        assert silent == []
        watched.figures["queries of panels that answer while a job trains"] = told
        await job.delete()


async def test_alerts_about_a_job_fire_and_clear(watched: Watched) -> None:
    server, machines = watched.server, watched.place.machines
    async with AsyncExitStack() as opened:
        job = await watched.place.submit("alarming", replicas=8, low=7, high=8)
        await job.runs(8, 90)
        crew = Crew(job, opened)
        await crew.appears()
        # Its checkpoint stays where it was, and one GPU does nothing.
        for one in crew.pages.values():
            one.checkpoint = 1
        index = min(job.running())
        idle = crew.pages[job.pods[index]["status"]["podIP"]]
        idle.idles()
        told = await server.fires("EbbGpuIdle", ebb_job=job.name, pod=job.worker(index))
        assert told["labels"]["gpu"] == "0"
        idle.works()
        await server.clears("EbbGpuIdle", ebb_job=job.name)
        await server.fires("EbbCheckpointOld", ebb_job=job.name)
        for one in crew.pages.values():
            one.checkpoint = one.step
        await server.clears("EbbCheckpointOld", ebb_job=job.name)
        # The cloud takes six of eight machines and has no others.
        machines.boots = False
        for index in sorted(job.running())[:6]:
            await machines.vanish(job.machine(index))
        storm = await server.fires("EbbReclaimStorm")
        short = await server.fires("EbbJobBelowMinimum", ebb_job=job.name, namespace=job.namespace)
        assert short["annotations"]["summary"].endswith("2 run.")
        assert storm["labels"]["severity"] == "warning"
        machines.boots = True
        for pod in list(job.pods.values()):
            machines.serve(pod["metadata"]["name"])
        await job.runs(8, 90)
        await server.clears("EbbJobBelowMinimum", ebb_job=job.name)
        await server.clears("EbbReclaimStorm")
        _seen(watched, "EbbGpuIdle", "EbbCheckpointOld", "EbbReclaimStorm", "EbbJobBelowMinimum")
        await job.delete()


async def test_alerts_about_etcd_fire_and_clear(watched: Watched) -> None:
    server, etcd = watched.server, watched.etcd
    await etcd.fill()
    await server.fires("EbbEtcdFillsUp", pod="etcd-0")
    await etcd.empty()
    await server.clears("EbbEtcdFillsUp")
    await etcd.alarm("ACTIVATE")
    await server.fires("EbbEtcdAlarm", alarm="NOSPACE")
    await etcd.alarm("DEACTIVATE")
    await server.clears("EbbEtcdAlarm")
    await etcd.stop()
    await server.fires("EbbEtcdDown")
    await etcd.start()
    await server.clears("EbbEtcdDown")
    _seen(watched, "EbbEtcdFillsUp", "EbbEtcdAlarm", "EbbEtcdDown")


async def test_alerts_about_volumes_and_the_gateway_fire_and_clear(watched: Watched) -> None:
    server, large = watched.server, watched.volume / "large"
    large.write_bytes(b"x" * 15 * 2**20)
    told = await server.fires("EbbVolumeFull", volume="output")
    assert told["labels"]["namespace"] == JOBS
    large.unlink()
    await server.clears("EbbVolumeFull")
    await watched.gateway.aclose()
    await server.fires("EbbTargetDown", job="ebb-gateway", pod="ebb-gateway-0")
    await watched.start_gateway()
    await server.clears("EbbTargetDown", job="ebb-gateway")
    _seen(watched, "EbbVolumeFull", "EbbTargetDown")


async def test_the_alert_about_the_controller_fires_and_clears(watched: Watched) -> None:
    port = watched.controller.port
    watched.controller.kill()
    await watched.server.fires("EbbNoLeader")
    await watched.controller.start(port=port)
    await watched.server.clears("EbbNoLeader")
    _seen(watched, "EbbNoLeader")


def _seen(watched: Watched, *alerts: str) -> None:
    seen: list[Any] = watched.figures.setdefault("alerts that fired by their cause and cleared", [])
    seen += alerts
