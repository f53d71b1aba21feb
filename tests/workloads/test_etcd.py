"""etcd as it is declared: it never fills its volume, an alarm restarts nothing, and its maintenance runs by itself."""

import re
from typing import Any

import pytest
from pulumi_kubernetes import core

from ebb.controller.etcd.alarm import FIX
from tests.infra.declared import Declared, declared
from tests.pod_security import violations
from tests.workloads.test_storage import MANAGER, a_cluster, wanted
from workloads import manifest
from workloads.cluster import JOBS, SYSTEM
from workloads.etcd import etcd, etcd_maintenance, of_teams
from workloads.teams import Team

TEAM = Team(name="vision", researchers=[("Group", "vision")])
SMALLEST_VOLUME = 2 * 2**30  # the local stack's
LOG_BYTES = 7 * 64_000_000  # 5 files (--max-wals), one being written, one being made; measured: 64 000 000 bytes each


@pytest.fixture(scope="module")
def seen() -> Declared:
    def all_of_it() -> None:
        cluster = a_cluster()
        spaces = [core.v1.Namespace(name, metadata={"name": name}, opts=cluster.options()) for name in (SYSTEM, JOBS)]
        made = etcd(cluster, wanted(), "ebb/etcd:1", MANAGER, spaces)
        made += of_teams(cluster, [TEAM], "ebb/etcd:1", MANAGER, spaces)
        etcd_maintenance(cluster, "ebb/controller:1", MANAGER, made, [TEAM])

    return declared(all_of_it)


def pods(seen: Declared) -> dict[str, dict[str, Any]]:
    cron = seen.one("CronJob").inputs["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    etcds = {name: seen.one("StatefulSet", name).inputs["spec"]["template"]["spec"] for name in ("etcd", TEAM.etcd)}
    return {**etcds, "etcd-maintenance": cron}


@pytest.mark.parametrize("name", ["etcd", TEAM.etcd, "etcd-maintenance"])
def test_pods_pass_pod_security_restricted(seen: Declared, name: str) -> None:
    pod = pods(seen)[name]
    assert violations(pod) == []
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def flags(seen: Declared) -> dict[str, str]:
    words = pods(seen)["etcd"]["containers"][0]["command"][1:]
    return dict(word.removeprefix("--").split("=", 1) for word in words)


def test_the_database_its_copy_and_the_log_fit_on_the_smallest_volume(seen: Declared) -> None:
    older = documents()["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]["command"]
    (quota,) = (int(word.partition("=")[2]) for word in older if word.startswith("--quota-backend-bytes="))
    assert 2 * int(flags(seen)["quota-backend-bytes"]) + LOG_BYTES + quota + LOG_BYTES < SMALLEST_VOLUME


def documents() -> dict[str, dict[str, Any]]:
    """Of the older etcd, which shares the volume where a stack has it."""
    return {one["kind"]: one for one in manifest.read("etcd.yaml", manifest.LEGACY)}


def test_old_revisions_are_dropped_after_an_hour(seen: Declared) -> None:
    assert (flags(seen)["auto-compaction-mode"], flags(seen)["auto-compaction-retention"]) == ("periodic", "1h")


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_an_alarm_neither_restarts_etcd_nor_hides_it(seen: Declared, probe: str) -> None:
    (container,) = pods(seen)["etcd"]["containers"]
    path = container[probe]["httpGet"]["path"]
    assert set(re.findall(r"exclude=(\w+)", path)) == {"NOSPACE", "CORRUPT"}
    assert path.startswith("/health?")


def test_jobs_reach_it_by_the_name_of_the_articles(seen: Declared) -> None:
    alias = seen.one("Service", "service-etcd-service").inputs
    assert (alias["metadata"]["name"], alias["metadata"]["namespace"]) == ("etcd-service", JOBS)
    assert alias["spec"] == {"type": "ExternalName", "externalName": "etcd.ebb-system.svc.cluster.local"}


def test_the_fix_in_the_message_starts_the_cron_job(seen: Declared) -> None:
    cron = seen.one("CronJob").inputs["metadata"]
    assert f"-n {cron['namespace']} create job --from=cronjob/{cron['name']} " in FIX


def test_maintenance_knows_the_quota_and_the_address(seen: Declared) -> None:
    (container,) = pods(seen)["etcd-maintenance"]["containers"]
    assert container["command"][2:] == [
        *("python3", "-m", "ebb.controller.etcd.maintenance", "--etcd=https://etcd:2379", "--certificates=/etc/ebb/etcd"),
        f"--quota-bytes={flags(seen)['quota-backend-bytes']}",
        "--etcd=https://etcd-team-vision:2379",
    ]
    assert seen.one("CronJob").inputs["spec"]["concurrencyPolicy"] == "Forbid"


def test_maintenance_comes_after_etcd_and_etcd_after_its_claim(seen: Declared) -> None:
    before = seen.before(seen.one("CronJob"))
    claim = seen.one("PersistentVolumeClaim", "claim-ebb-etcd")
    assert {seen.one("StatefulSet", "etcd").key, seen.one("StatefulSet", TEAM.etcd).key, claim.key} <= before
    assert claim.key in seen.before(seen.one("StatefulSet", "etcd"))


def test_a_teams_etcd_is_the_same_under_its_own_name_with_its_data_in_its_pod(seen: Declared) -> None:
    usual, own = (seen.one("StatefulSet", name).inputs["spec"] for name in ("etcd", TEAM.etcd))
    assert own["serviceName"] == TEAM.etcd == "etcd-team-vision"
    assert own["selector"]["matchLabels"] == own["template"]["metadata"]["labels"] == {"app.kubernetes.io/name": TEAM.etcd}
    words = [word.replace("//etcd.", f"//{TEAM.etcd}.") for word in pods(seen)["etcd"]["containers"][0]["command"]]
    (container,) = pods(seen)[TEAM.etcd]["containers"]
    assert (container["command"], container["name"]) == (words, "etcd")
    assert any(f"https://{TEAM.etcd}.{SYSTEM}.svc" in word for word in words)
    assert container["volumeMounts"] == usual["template"]["spec"]["containers"][0]["volumeMounts"]
    data, tls = pods(seen)[TEAM.etcd]["volumes"]
    assert data == {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}}
    assert tls["secret"]["secretName"] == "etcd-team-vision-server"
    assert pods(seen)["etcd"]["volumes"][1] == {**tls, "secret": {**tls["secret"], "secretName": "etcd-server"}}
    assert seen.one("Service", f"service-{TEAM.etcd}").inputs["spec"]["selector"] == {"app.kubernetes.io/name": TEAM.etcd}
