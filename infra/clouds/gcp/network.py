"""The network: an own one with a subnet, a router and NAT, or the names of one that exists.

    made = network.declare(part, "ebb-dev", settings)

One subnet serves all zones, as subnets of Google are regional: adding a zone changes nothing here. Machines have no public
address and reach the internet through NAT, and Google's own services without it. In an existing network nothing is made.
"""

from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute, projects

from infra.clouds.gcp.settings import Settings
from infra.part import Part

PODS, SERVICES = "pods", "services"
NETWORK_ADMIN = "roles/compute.networkAdmin"


@dataclass(frozen=True, kw_only=True)
class Network:
    """Names and ids for who makes things in it. `part`: all that machines need to reach out."""

    network: pulumi.Output[str]
    subnet: pulumi.Output[str]
    pods_range: str
    services_range: str
    part: Part


def declare(part: Part, name: str, settings: Settings) -> Network:
    """The network of a stack. `name`: what its parts are called after."""
    return _existing(part, settings) if settings.network.name else _own(part, name, settings)


def allow_gke(part: Part, settings: Settings) -> list[pulumi.Resource]:
    """Let GKE make networks: those of the interfaces for GPUDirect RDMA. That it needs the role says NVIDIA's guide to GKE's
    accelerator network profile, https://docs.nvidia.com/aicr/integrator-guide/gke-a-4-x-max-networking.md (read 2026-11-25)."""
    agent = projects.ServiceIdentity("gke", project=settings.project, service="container.googleapis.com", opts=part.child())
    role = projects.IAMMember(
        "gke-networks", project=settings.project, role=NETWORK_ADMIN, member=agent.member, opts=part.child()
    )
    return [role]


def _existing(part: Part, settings: Settings) -> Network:
    given = settings.network
    return Network(
        network=pulumi.Output.from_input(f"projects/{settings.project}/global/networks/{given.name}"),
        subnet=pulumi.Output.from_input(f"projects/{settings.project}/regions/{settings.region}/subnetworks/{given.subnet}"),
        pods_range=given.pods_range or "",
        services_range=given.services_range or "",
        part=part,
    )


def _own(part: Part, name: str, settings: Settings) -> Network:
    wanted, region = settings.network, settings.region
    network = compute.Network(
        name,
        auto_create_subnetworks=False,
        routing_mode="REGIONAL",
        # A file system that is kept stays on its network (docs/gcp.md): then the network, which costs nothing, is kept too.
        opts=part.child(retain_on_delete=settings.storage.data == "keep" and settings.storage.filestore.address is None),
    )
    subnet = compute.Subnetwork(
        name,
        network=network.id,
        region=region,
        ip_cidr_range=wanted.cidr,
        secondary_ip_ranges=[
            {"range_name": PODS, "ip_cidr_range": wanted.pods_cidr},
            {"range_name": SERVICES, "ip_cidr_range": wanted.services_cidr},
        ],
        private_ip_google_access=True,  # registry, storage and logs are reached past NAT, which is paid by the byte
        opts=part.child(),
    )
    router = compute.Router(name, network=network.id, region=region, opts=part.child())
    compute.RouterNat(
        name,
        router=router.name,
        region=region,
        nat_ip_allocate_option="AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
        subnetworks=[{"name": subnet.id, "source_ip_ranges_to_nats": ["ALL_IP_RANGES"]}],
        enable_dynamic_port_allocation=True,  # a machine that fetches a data set opens more connections than the 64 it would get
        enable_endpoint_independent_mapping=False,  # the two exclude each other
        log_config={"enable": True, "filter": "ERRORS_ONLY"},
        opts=part.child(),
    )
    return Network(network=network.id, subnet=subnet.id, pods_range=PODS, services_range=SERVICES, part=part)
