"""A rehearsal's reclaim on Google Cloud: a simulated maintenance event on the Node's own instance."""

import pytest

from infra.clouds.gcp import reclaim
from infra.clouds.gcp.calls import Refused
from tests.infra.gcp import stacks
from tests.infra.gcp.fake_calls import FakeCalls

NODE = "gce://my-project-123/us-central1-a/gke-ebb-gcp-t4-1a2b"
ADDRESS = (
    "https://compute.googleapis.com/compute/v1/projects/my-project-123/zones/us-central1-a/instances/gke-ebb-gcp-t4-1a2b"
    "/simulateMaintenanceEvent"
)


def test_the_event_is_of_the_nodes_instance() -> None:
    calls = FakeCalls({"/simulateMaintenanceEvent": {"name": "operation-1"}})
    assert reclaim.reclaim("gcp", stacks.stack(), NODE, calls) == "operation operation-1 on gke-ebb-gcp-t4-1a2b"
    assert calls.seen == [("POST", ADDRESS)]


def test_the_node_of_another_cloud_is_refused() -> None:
    with pytest.raises(Refused, match="is 'aws:///us-west-2a/i-1', and not gce://PROJECT/ZONE/INSTANCE"):
        reclaim.reclaim("gcp", stacks.stack(), "aws:///us-west-2a/i-1", FakeCalls({}))
