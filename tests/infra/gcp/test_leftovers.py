"""What is left on Google Cloud after destroy: found by label and name, with what removes it."""

import json
from typing import Any

import pytest

from infra import commands
from infra.account import leftovers as neutral
from infra.account.records import Seen
from infra.clouds.gcp import leftovers
from infra.clouds.gcp.calls import DENIED, NoAccess, Refused
from tests.infra.gcp import stacks
from tests.infra.gcp.fake_calls import FakeCalls

FILESTORE = {
    "name": "projects/p/locations/us-central1-a/instances/ebb-gcp-1a2b3c4",
    "tier": "ZONAL",
    "labels": {"ebb-stack": "gcp"},
    "fileShares": [{"capacityGb": "1024"}],
}
FILES = "file.googleapis.com/v1/projects/my-project-123/locations/-/instances"
MAIL = "my-project-123.iam.gserviceaccount.com"
CLAIMED = {"name": "pvc-1", "zone": "zones/us-central1-a", "sizeGb": "9", "labels": {"goog-k8s-cluster-name": "ebb-gcp"}}
MACHINE = {"name": "gke-x", "zone": "us-central1-b", "labels": {"ebb-stack": "gcp"}}


def seen(answers: dict[str, Any], changes: dict[str, Any] | None = None) -> Seen:
    return leftovers.seen("gcp", stacks.stack(changes), lambda line: None, FakeCalls(answers))


def aggregated(inner: str, *things: dict[str, Any]) -> dict[str, Any]:
    return {"items": {"zones/us-central1-a": {inner: list(things)}, "zones/us-central1-b": {}}}


def test_nothing_is_left() -> None:
    assert seen({}) == Seen(things=())


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param(
            {"us-central1/clusters": {"clusters": [{"name": "ebb-gcp", "location": "us-central1"}]}},
            ("cluster", "ebb-gcp", "gcloud container clusters delete ebb-gcp --region us-central1 --project my-project-123"),
            id="by its name",
        ),
        pytest.param(
            {"aggregated/disks": aggregated("disks", CLAIMED)},
            ("disk", "pvc-1", "gcloud compute disks delete pvc-1 --zone us-central1-a --project my-project-123"),
            id="by the cluster's label",
        ),
        pytest.param(
            {"aggregated/instances": aggregated("instances", MACHINE)},
            ("machine", "gke-x", "gcloud compute instances delete gke-x --zone us-central1-b --project my-project-123"),
            id="by the stack's label",
        ),
        pytest.param(
            {"serviceAccounts": {"accounts": [{"name": "projects/p/serviceAccounts/x", "email": "ebb-gcp-machine@p.iam"}]}},
            (
                "service account", "ebb-gcp-machine",
                f"gcloud iam service-accounts delete ebb-gcp-machine@{MAIL} --project my-project-123",
            ),
            id="an account",
        ),
    ],
)  # fmt: skip
def test_a_thing_is_found_with_what_removes_it(answers: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert [(one.kind, one.name, one.remove) for one in seen(answers).things] == [expected]


def test_another_stacks_things_are_not_ours() -> None:
    others = aggregated(
        "disks", {"name": "ebb-gcp-two-etcd", "labels": {"ebb-stack": "gcp-two"}}, {"name": "ebb-gcpx-etcd"}, {"name": "data"}
    )
    machines = aggregated("instances", {"name": "ebb-gcp-1"})  # a machine that only is called so
    assert seen({"aggregated/disks": others, "aggregated/instances": machines}).things == ()


def test_prices_are_told() -> None:
    disk = aggregated("disks", {"name": "ebb-gcp-etcd", "sizeGb": "10", "type": ".../pd-balanced"})
    assert [one.usd_per_month for one in seen({"aggregated/disks": disk}).things] == [1.0]
    [file] = seen({FILES: {"instances": [FILESTORE]}}, {"gcp.storage.data": "delete"}).things
    assert (file.usd_per_month, file.note, file.kept) == (256.0, "us-central1-a", "")


def test_kept_data_and_its_network_are_no_leftovers() -> None:
    answers = {FILES: {"instances": [FILESTORE]}, "global/networks": {"items": [{"name": "ebb-gcp-9f"}]}}
    found = seen(answers)
    assert {one.kind: bool(one.kept) for one in found.things} == {"Filestore": True, "network": True}
    assert neutral.summary(found)["left"] == []
    alone = seen({"global/networks": {"items": [{"name": "ebb-gcp-9f"}]}})
    assert [one.kept for one in alone.things] == [""]


def test_the_whole_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(leftovers, "Account", lambda: FakeCalls({"aggregated/instances": aggregated("instances", MACHINE)}))
    assert neutral.main(["-s", "gcp"]) == commands.EXIT_BAD
    said = capsys.readouterr().out.splitlines()
    assert "  gcloud compute instances delete gke-x --zone us-central1-b --project my-project-123" in said
    assert json.loads(said[-1])["left"] == [{"kind": "machine", "name": "gke-x"}]


def test_what_cannot_be_looked_at_is_said() -> None:
    found = seen({"global/firewalls": Refused(DENIED, "no right")})
    assert found.blind == ("firewall rule: no right",)
    with pytest.raises(NoAccess):
        seen({"global/firewalls": NoAccess(401, "log in")})
