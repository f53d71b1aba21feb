"""The Grafana dashboards, as code: `make manifests` writes one JSON file of each into workloads/manifests/monitoring/dashboards.

    pages()                     # file -> function that gives its text, for manifests.py
    queries(json.loads(text))   # (panel, PromQL) of a dashboard, its variables' queries among them

Made with Grafana's own grafana-foundation-sdk, which knows their schema; that is a developer's package, and a stack only reads
the files. tests/monitoring compares what the queries ask for with what the code exports.

Workers come and go and controllers take turns, so a figure of a job is the largest that any of them says.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from workloads.manifest import FOLDER as MANIFESTS

with warnings.catch_warnings():
    # It would have people take its second kind of dashboards. Grafana before 12, and the clouds' own, read the first alone.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
    from grafana_foundation_sdk.builders import dashboard as grafana
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.common import TooltipDisplayMode
    from grafana_foundation_sdk.models.dashboard import Dashboard, DataSourceRef, VariableRefresh

FOLDER: Final = MANIFESTS / "monitoring" / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
OF_JOB = 'namespace=~"$namespace",ebb_job=~"$ebb_job"'
JOB = "by (namespace, ebb_job)"
ONE = "{{namespace}}/{{ebb_job}}"
USD = "currencyUSD"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One panel. `queries`: PromQL -> how its lines are called. `now`: the last value as a number, in place of a graph."""

    title: str
    meaning: str
    queries: Mapping[str, str]
    unit: str = "short"
    now: bool = False
    stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Page:
    """One dashboard. `jobs`: people choose namespaces and jobs."""

    name: str
    title: str
    rows: Mapping[str, Sequence[Figure]]
    jobs: bool = False


def _of_job(metric: str, how: str = "max") -> str:
    return f"{how} {JOB} ({metric}{{{OF_JOB}}})"


def _per_job(title: str, meaning: str, metric: str, unit: str = "short") -> Figure:
    return Figure(title=title, meaning=meaning, unit=unit, queries={_of_job(metric): ONE})


JOBS = Page(
    name="jobs",
    title="Ebb: jobs",
    jobs=True,
    rows={
        "Progress": [
            _per_job("Step", "Optimizer steps done.", "ebb_step"),
            _per_job("Loss", "Mean of the last logged step.", "ebb_loss"),
            _per_job("Samples per second", "All machines of a job together.", "ebb_samples_per_second"),
            Figure(
                title="Done",
                meaning="Steps done, of those of the whole run.",
                unit="percentunit",
                now=True,
                queries={f"{_of_job('ebb_step')} / {_of_job('ebb_total_steps')}": ONE},
            ),
        ],
        "Workers": [
            Figure(
                title="Workers",
                meaning="Those that run, and those without which the job does not train.",
                queries={_of_job("ebb_job_workers"): ONE, _of_job("ebb_job_min_workers"): f"{ONE}, at least"},
            ),
            _per_job("Ranks", "Processes that train together.", "ebb_world_size"),
            Figure(
                title="Steps since the newest checkpoint",
                meaning="What a cold start would do again.",
                queries={f"{_of_job('ebb_step')} - {_of_job('ebb_checkpoint_step')}": ONE},
            ),
            Figure(
                title="State",
                meaning="Of the controller: Waiting, Running, Restarting or Suspended.",
                now=True,
                queries={f"max by (namespace, ebb_job, state) (ebb_job_state{{{OF_JOB}}})": f"{ONE}: {{{{state}}}}"},
            ),
        ],
        "Time": [
            Figure(
                title="Time in steps that count",
                meaning="Of the training's time; the rest are recoveries and steps done again.",
                unit="percentunit",
                queries={
                    f"{_of_job('ebb_useful_seconds_total')} / "
                    f"({_of_job('ebb_useful_seconds_total')} + {_of_job('ebb_lost_seconds_total')})": ONE
                },
            ),
            _per_job("Steps done again", "After losses without notice.", "ebb_steps_redone_total"),
            _per_job("Stood still for checkpoints", "Seconds, since the job began.", "ebb_checkpoint_seconds_total", "s"),
        ],
    },
)
GPUS = Page(
    name="gpus",
    title="Ebb: GPUs",
    jobs=True,
    rows={
        "As the workers see them": [
            Figure(
                title="Utilization",
                meaning="Share of the last 30 s in which a kernel ran.",
                unit="percentunit",
                queries={f"ebb_gpu_utilization_ratio{{{OF_JOB}}}": "{{pod}} GPU {{gpu}}"},
            ),
            Figure(
                title="Memory",
                meaning="In use, of what the GPU has.",
                unit="percentunit",
                queries={
                    f"ebb_gpu_memory_used_bytes{{{OF_JOB}}} / ebb_gpu_memory_total_bytes{{{OF_JOB}}}": "{{pod}} GPU {{gpu}}"
                },
            ),
            Figure(
                title="Idle",
                meaning="Seconds since the utilization was last 10 % or more.",
                unit="s",
                queries={f"ebb_gpu_idle_seconds{{{OF_JOB}}}": "{{pod}} GPU {{gpu}}"},
            ),
        ],
        "As the machines see them (DCGM exporter)": [
            Figure(
                title="Utilization",
                meaning="Share of the time in which a kernel ran.",
                unit="percent",
                queries={"DCGM_FI_DEV_GPU_UTIL": "{{Hostname}} GPU {{gpu}} {{pod}}"},
            ),
            Figure(
                title="Memory in use",
                meaning="In MiB.",
                unit="mbytes",
                queries={"DCGM_FI_DEV_FB_USED": "{{Hostname}} GPU {{gpu}}"},
            ),
            Figure(
                title="Power", meaning="In watts.", unit="watt", queries={"DCGM_FI_DEV_POWER_USAGE": "{{Hostname}} GPU {{gpu}}"}
            ),
            Figure(
                title="Temperature",
                meaning="In °C.",
                unit="celsius",
                queries={"DCGM_FI_DEV_GPU_TEMP": "{{Hostname}} GPU {{gpu}}"},
            ),
            Figure(
                title="Last XID error",
                meaning="0: none. 79 and 48 are broken hardware: NVIDIA's list of XID errors has them all.",
                queries={"DCGM_FI_DEV_XID_ERRORS": "{{Hostname}} GPU {{gpu}}"},
            ),
        ],
    },
)
RECLAIMS = Page(
    name="reclaims",
    title="Ebb: reclaims",
    jobs=True,
    rows={
        "Losses": [
            Figure(
                title="Workers lost to reclaims, in an hour",
                meaning="By cause, of all jobs.",
                queries={"sum by (cause) (increase(ebb_reclaims_total[1h]))": "{{cause}}"},
            ),
            _per_job("By job", "Since the job began.", "ebb_job_reclaims_total"),
            _per_job("Failures of programs", "Those that were counted against backoffLimit.", "ebb_job_failures_total"),
        ],
        "What they cost": [
            Figure(
                title="From a loss to its replacement",
                meaning="Until the new worker is created; half of them, and all but 1 in 20.",
                unit="s",
                queries={
                    f"histogram_quantile({quantile}, sum by (le) (rate(ebb_replacement_seconds_bucket[1h])))": f"{quantile}"
                    for quantile in (0.5, 0.95)
                },
            ),
            Figure(
                title="Below the minimum",
                meaning="From too few workers to enough; half of the times, and all but 1 in 20.",
                unit="s",
                queries={
                    f"histogram_quantile({quantile}, sum by (le) (rate(ebb_recovery_seconds_bucket[1h])))": f"{quantile}"
                    for quantile in (0.5, 0.95)
                },
            ),
            _per_job("Changes of membership", "Each is a generation of the training.", "ebb_generation"),
        ],
    },
)
MONEY = Page(
    name="money",
    title="Ebb: money",
    jobs=True,
    rows={
        "Now": [
            Figure(
                title="All jobs, per hour",
                meaning="By the stack's prices.",
                unit=USD,
                now=True,
                queries={f"sum(max {JOB} (ebb_job_usd_per_hour))": "all jobs"},
            ),
            Figure(
                title="Per hour",
                meaning="By namespace: each team has one.",
                unit=USD,
                stacked=True,
                queries={f"sum by (namespace) (max {JOB} (ebb_job_usd_per_hour))": "{{namespace}}"},
            ),
        ],
        "Jobs that have not ended": [
            _per_job("Spent", "US dollars so far.", "ebb_job_usd_total", USD),
            Figure(
                title="Saved",
                meaning="Against the same machines on-demand.",
                unit="percentunit",
                queries={f"1 - {_of_job('ebb_job_usd_total')} / {_of_job('ebb_job_usd_on_demand_total')}": ONE},
            ),
            Figure(
                title="Dollars per million samples",
                meaning="What they cost at the present speed.",
                unit=USD,
                queries={f"{_of_job('ebb_job_usd_per_hour')} / {_of_job('ebb_samples_per_second')} / 3600 * 1e6": ONE},
            ),
        ],
    },
)
PLATFORM = Page(
    name="platform",
    title="Ebb: platform",
    rows={
        "Controller": [
            Figure(title="Leads", meaning="Exactly one does.", now=True, queries={"sum(ebb_leads)": "controllers that lead"}),
            Figure(title="Jobs", meaning="By state.", stacked=True, queries={"max by (state) (ebb_jobs)": "{{state}}"}),
            Figure(
                title="A look at a job",
                meaning="Seconds; all but 1 in 20.",
                unit="s",
                queries={
                    "histogram_quantile(0.95, sum by (le) (rate(ebb_reconcile_seconds_bucket[$__rate_interval])))": "95 %",
                },
            ),
            Figure(
                title="Waiting, and failing",
                meaning="Jobs to look at; looks that failed, a second; attempts to send a notification that failed, an hour.",
                queries={
                    "max(ebb_queue_depth)": "waiting",
                    "sum(rate(ebb_reconcile_errors_total[$__rate_interval]))": "failing",
                    "sum(increase(ebb_notification_failures_total[1h]))": "notifications",
                },
            ),
            Figure(
                title="Heard from the API server",
                meaning="Seconds ago, by kind: above 180 it restarts.",
                unit="s",
                queries={"max by (kind) (ebb_watch_age_seconds)": "{{kind}}"},
            ),
            Figure(
                title="Memory",
                meaning="Of the controllers.",
                unit="bytes",
                queries={'process_resident_memory_bytes{job="ebb-controller"}': "{{pod}}"},
            ),
        ],
        "etcd": [
            Figure(
                title="Answers, and alarms",
                meaning="By the controller.",
                queries={
                    "min by (team) (ebb_etcd_up)": "answers {{team}}",
                    "max by (alarm, team) (ebb_etcd_alarm)": "{{alarm}} {{team}}",
                },
            ),
            Figure(
                title="Database",
                meaning="Of what it may use.",
                unit="percentunit",
                queries={"etcd_mvcc_db_total_size_in_bytes / etcd_server_quota_backend_bytes": "{{pod}}"},
            ),
            Figure(
                title="Time to write to disk",
                meaning="All but 1 in 100: above 0.1 s its disk is too slow.",
                unit="s",
                queries={
                    "histogram_quantile(0.99, sum by (le, pod) "
                    "(rate(etcd_disk_wal_fsync_duration_seconds_bucket[$__rate_interval])))": "{{pod}}"
                },
            ),
        ],
        "Machines and volumes": [
            Figure(
                title="Nodes",
                meaning="As cluster-autoscaler counts them; clouds that run their own have none here.",
                queries={"sum by (state) (cluster_autoscaler_nodes_count)": "{{state}}"},
            ),
            Figure(
                title="Pods that no node fits",
                meaning="They wait for machines.",
                queries={
                    "sum(cluster_autoscaler_unschedulable_pods_count)": "waiting",
                    "sum by (reason) (increase(cluster_autoscaler_failed_scale_ups_total[1h]))": "failed: {{reason}}",
                },
            ),
            Figure(
                title="Room on the volumes",
                meaning="As the gateway sees them.",
                unit="percentunit",
                queries={
                    "min by (namespace, volume) (ebb_volume_free_bytes / ebb_volume_size_bytes)": "{{namespace}} {{volume}}",
                    'min by (persistentvolumeclaim) (kubelet_volume_stats_available_bytes{namespace="ebb-system"} '
                    '/ kubelet_volume_stats_capacity_bytes{namespace="ebb-system"})': "{{persistentvolumeclaim}}",
                },
            ),
            Figure(
                title="CPU of the platform's pods",
                meaning="Cores.",
                queries={
                    "sum by (pod) (rate(container_cpu_usage_seconds_total"
                    '{namespace="ebb-system",container!=""}[$__rate_interval]))': "{{pod}}"
                },
            ),
            Figure(
                title="Memory of the platform's pods",
                meaning="What counts against their limits.",
                unit="bytes",
                queries={'sum by (pod) (container_memory_working_set_bytes{namespace="ebb-system",container!=""})': "{{pod}}"},
            ),
            Figure(
                title="Network of jobs",
                meaning="Bytes a second that their pods send.",
                unit="Bps",
                queries={
                    "sum by (namespace) (rate(container_network_transmit_bytes_total"
                    '{namespace!="ebb-system"}[$__rate_interval]))': "{{namespace}}"
                },
            ),
            Figure(title="Scraped", meaning="Targets that answer.", queries={"sum by (job) (up)": "{{job}}"}),
        ],
    },
)
PAGES = (JOBS, GPUS, RECLAIMS, MONEY, PLATFORM)


def pages() -> dict[Path, Callable[[], str]]:
    """Each file with the function that gives its text."""
    return {FOLDER / f"{page.name}.json": partial(text, page) for page in PAGES}


def text(page: Page) -> str:
    """The file of a dashboard."""
    return json.dumps(_plain(_dashboard(page).build()), indent=1) + "\n"


def again(written: Mapping[str, Any]) -> Any:
    """The same dashboard through Grafana's schema, from which its SDK is generated: what that does not know is missing."""
    return _plain(Dashboard.from_json(dict(written)))


def _plain(model: Any) -> Any:
    return json.loads(JSONEncoder(sort_keys=True).encode(model))


def queries(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The title of a panel, or the name of a variable, and what it asks for."""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]
    for panel in dashboard["panels"]:
        for one in (panel, *panel.get("panels", ())):
            for target in one.get("targets", ()):
                yield one["title"], target["expr"]


def _dashboard(page: Page) -> grafana.Dashboard:
    made = grafana.Dashboard(page.title).uid(f"ebb-{page.name}").tags(["ebb"]).readonly().refresh("30s").time("now-6h", "now")
    made = made.with_variable(grafana.DatasourceVariable("source").label("Prometheus").type("prometheus"))
    if page.jobs:
        made = made.with_variable(_choice("namespace", "Team", "label_values(ebb_job_workers, namespace)"))
        made = made.with_variable(_choice("ebb_job", "Job", 'label_values(ebb_job_workers{namespace=~"$namespace"}, ebb_job)'))
    for title, figures in page.rows.items():
        made = made.with_row(grafana.Row(title))
        for figure in figures:
            made = made.with_panel(_panel(figure))
    return made


def _choice(name: str, label: str, query: str) -> grafana.QueryVariable:
    made = grafana.QueryVariable(name).label(label).datasource(SOURCE).query(query)
    return made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).multi(True).include_all(True).all_value(".*")


def _panel(figure: Figure) -> Any:
    panel: Any = stat.Panel() if figure.now else _graph()
    panel = panel.title(figure.title).description(figure.meaning).datasource(SOURCE).unit(figure.unit).height(8)
    panel = panel.span(6 if figure.now else 8)
    if figure.stacked:
        panel = panel.fill_opacity(30)
    for number, (query, legend) in enumerate(figure.queries.items()):
        asked = prometheus.Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + number))
        panel = panel.with_target(asked.instant() if figure.now else asked.range())
    return panel


def _graph() -> timeseries.Panel:
    shown = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)
    return timeseries.Panel().legend(common.VizLegendOptions().show_legend(True)).tooltip(shown)
