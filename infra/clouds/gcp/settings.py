"""Section `gcp` of a stack, and of its node groups: what only Google Cloud has. Checked before any resource exists.

What one key may be is here; what must agree with other keys is in checks.py.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.config import Form, Name, Section

MOMENT = "a moment such as 2026-12-20T00:00:00Z, in quotes"


def _exists(moment: str) -> str:
    """The same text. Raises ValueError for a moment that no calendar has."""
    try:
        datetime.fromisoformat(moment)
    except ValueError:
        raise ValueError(f"found {moment!r}, which no calendar has; allowed is {MOMENT}") from None
    return moment


Region = Annotated[str, Form(r"[a-z]+-[a-z]+\d+", "a region such as us-central1")]
ProjectId = Annotated[str, Form(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", "a project's id such as my-project-123, not its name or number")]
Cidr = Annotated[str, Form(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}", "a range of IPv4 addresses such as 198.51.100.0/24")]
Resource = Annotated[str, Form(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "a name of a-z, 0-9 and -, first a letter, last no -")]
Person = Annotated[
    str,
    Form(r"(user|group|serviceAccount):[^\s@:]+@[^\s@:]+\.[a-z]+", "an identity such as group:research@example.org or user:..."),
]
Group = Annotated[str, Form(r"gke-security-groups@[^\s@:]+\.[a-z]+", "the group gke-security-groups@<your domain>")]
Version = Annotated[
    str, Form(r"1\.\d+", "a minor version such as 1.35, in quotes: of it GKE takes the newest patch, and it drops older patches")
]
Moment = Annotated[str, Form(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", MOMENT), AfterValidator(_exists)]
Hour = Annotated[str, Form(r"([01]\d|2[0-3]):00", "a full hour such as 03:00, in quotes")]
LabelKey = Annotated[str, Form(r"[a-z][a-z0-9_-]{0,62}", "63 of a-z, 0-9, _ and -, first a letter")]
LabelValue = Annotated[str, Form(r"[a-z0-9_-]{0,63}", "63 of a-z, 0-9, _ and -")]
Address = Annotated[str, Form(r"\d{1,3}(\.\d{1,3}){3}", "an IPv4 address such as 10.0.0.2")]
Share = Annotated[str, Form(r"[a-z][a-z0-9_]{0,15}", "16 of a-z, 0-9 and _, first a letter")]
ImageReference = Annotated[
    str,
    Form(
        r"[^\s:@]+(:\d+)?(/[^\s:@]+)*(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+(@sha256:[0-9a-f]{64})?)",
        "an image with a digest, name@sha256:<64 digits>, or at least a tag other than latest",
    ),
]


class Network(Section):
    """An own network with one subnet, or an existing one by names."""

    cidr: Cidr = Field(default="10.64.0.0/20", description="Addresses of the own subnet: one for each machine.")
    pods_cidr: Cidr = Field(
        default="10.68.0.0/14", description="Addresses of pods, a second range of the subnet: each machine takes a /24."
    )
    services_cidr: Cidr = Field(default="10.66.0.0/20", description="Addresses of Kubernetes' services, a third range.")
    name: Resource | None = Field(default=None, description="An existing network of the project, in place of an own one.")
    subnet: Resource | None = Field(default=None, description="Existing network: its subnet in the region.")
    pods_range: Resource | None = Field(default=None, description="Existing network: the subnet's second range for pods.")
    services_range: Resource | None = Field(default=None, description="Existing network: the same for services.")


class Exclusion(Section):
    """A time in which GKE leaves the cluster as it is."""

    name: Resource = Field(description="What it is called.", examples=["paper"])
    start: Moment = Field(description="When it begins, UTC.", examples=["2026-12-20T00:00:00Z"])
    end: Moment | None = Field(default=None, description="When it ends. Default: when the minor version's support does.")
    scope: Literal["nodes", "minor", "all"] = Field(
        default="nodes",
        description="nodes: no upgrades of machines, and none to another minor version; minor: none of the latter; all: none at "
        "all, for 30 days at most.",
    )


class Cluster(Section):
    """The control plane, who may reach it, and who may do what."""

    channel: Literal["RAPID", "REGULAR", "STABLE", "EXTENDED"] = Field(
        default="REGULAR", description="How soon Google upgrades control plane and machines."
    )
    min_version: Version = Field(
        default="1.35",
        description="The control plane's first version, the newest patch of it; a higher one upgrades. Spot machines can leave "
        "pods 105 s instead of 15 from 1.35.0-gke.1171000 on.",
    )
    maintenance_start: Hour = Field(
        default="03:00", description="Upgrades begin within four hours from this hour on, UTC; they end machines, one by one."
    )
    maintenance_exclusions: tuple[Exclusion, ...] = Field(
        default=(), strict=False, description="Times without upgrades: those that end machines come between jobs then."
    )
    endpoint: Literal["public", "private"] = Field(
        default="public", description="public: from authorizedCidrs and from the network; private: from the network alone."
    )
    authorized_cidrs: tuple[Cidr, ...] = Field(
        default=(),
        strict=False,
        description="Addresses that may reach the endpoint: with a public one those of the office, of CI. Required there.",
    )
    up_reaches_network: bool = Field(
        default=False,
        description="With a private endpoint: the machine that runs `pulumi up` is inside the network (VPN, bastion).",
    )
    administrators: tuple[Person, ...] = Field(
        default=(), strict=False, description="Identities with all rights in the project's clusters, beside the project's owners."
    )
    researchers: tuple[Person, ...] = Field(
        default=(), strict=False, description="Identities that may submit jobs, read their logs and open shells in them."
    )
    security_group: Group | None = Field(
        default=None, description="Needed for groups of researchers: the group that theirs are members of (docs/gcp.md)."
    )
    deletion_protection: bool = Field(default=False, description="Google refuses to delete the cluster until this is false.")


class Nodes(Section):
    """Settings that all instances share."""

    disk_gib: int = Field(
        default=200, ge=50, le=65536, description="System disk of machines for jobs. An image with torch takes 10 GB unpacked."
    )
    disk_type: Literal["pd-balanced", "pd-ssd", "hyperdisk-balanced"] = Field(
        default="pd-balanced",
        description="Its kind; machines that take only Hyperdisk (a3-ultragpu, g4, n4) get that in any case.",
    )
    manager_disk_gib: int = Field(default=50, ge=20, le=65536, description="System disk of the manager machine.")
    repair: bool = Field(default=True, description="Let GKE replace machines that are not healthy.")
    # GKE's API allows 0, 30 and 120, and these for spot machines alone: NodeKubeletConfig.shutdownGracePeriodSeconds of
    # https://docs.cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeKubeletConfig (a stored copy, read 2026-11-23).
    shutdown_grace_seconds: Literal[30, 120] = Field(
        default=120,
        description="What a spot machine's kubelet makes of a reclaim; 15 of it are for the system's own pods. Preemptible ones "
        "have 30 in any case.",
    )


class Filestore(Section):
    """A Filestore instance, mounted by NFS; or the address and share of one that exists."""

    tier: Literal["BASIC_HDD", "BASIC_SSD", "ZONAL", "REGIONAL"] = Field(
        default="ZONAL", description="ZONAL and BASIC are in one zone and read by all; REGIONAL outlives a zone, at a price."
    )
    size_gib: int = Field(default=1024, ge=1024, description="Its size, paid whether used or not; it may grow later.")
    zone: str | None = Field(default=None, description="Its zone, one of ebb:zones. Default: the manager's.")
    address: Address | None = Field(
        default=None,
        description="An existing instance, e.g. one that an earlier destroy has kept: its address, with share and network.name.",
    )
    share: Share = Field(default="ebb", description="The name of its file share.")


class Lustre(Section):
    """A Managed Lustre instance in one zone, as a third volume at /mnt/lustre."""

    zone: str = Field(description="Its zone: one in which machines with GPUs may be.", examples=["us-central1-a"])
    size_gib: int = Field(default=18000, ge=9000, description="18000, or more in the steps of its throughput.")
    throughput: Literal[125, 250, 500, 1000] = Field(default=500, description="MB/s per TiB.")


class Bucket(Section):
    """An existing bucket of Cloud Storage that jobs may read without credentials of their own."""

    name: Name = Field(description="`--data <name>`; the files of a mounted one are at /mnt/<name>.", examples=["imagenet"])
    url: Annotated[
        str,
        Form(
            r"gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9](/[^\s/]+)*",
            "gs://<bucket> or gs://<bucket>/<folder>; for another cloud's bucket a job brings credentials (`ebb submit --data`)",
        ),
    ] = Field(description="The bucket, or a folder of it.", examples=["gs://our-data/imagenet"])
    teams: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Teams whose jobs may read it, and nobody else's; none: jobs without a team may.",
        examples=[["vision"]],
    )
    mode: Literal["mount", "copy"] = Field(
        default="mount",
        description="mount: every job of these teams sees it as files, each read is a request of Cloud Storage; copy: a job that "
        "names it copies it onto the data volume first, once.",
    )

    @property
    def bucket(self) -> str:
        """The bucket's own name."""
        return self.url.removeprefix("gs://").partition("/")[0]

    @property
    def prefix(self) -> str:
        """The folder; "" for the whole bucket."""
        return self.url.removeprefix("gs://").partition("/")[2]


class Storage(Section):
    """The places of data and output: on Filestore. Lustre is a third volume beside it."""

    filestore: Filestore = Field(default=Filestore(), description="The file system of /mnt/data and /mnt/output.")
    lustre: Lustre | None = Field(default=None, description="Managed Lustre, in one zone.")
    data: Literal["keep", "protect", "delete"] = Field(
        default="keep",
        description="What `pulumi destroy` does to Filestore: keep leaves it, and an own network, in the project; protect stops "
        "at once; delete deletes. Lustre always goes.",
    )
    buckets: tuple[Bucket, ...] = Field(
        default=(), strict=False, description="Buckets that are mounted read-only, by Cloud Storage FUSE, or copied."
    )
    clients: tuple[Cidr, ...] = Field(
        default=(),
        strict=False,
        description="Private ranges that may mount the data from outside the subnet.",
    )
    etcd_gib: int = Field(default=10, ge=10, le=16384, description="The volume of etcd, which holds the jobs' rendezvous.")

    @property
    def copied(self) -> tuple[Bucket, ...]:
        """Those that copies may read: all, as each may be copied too."""
        return self.buckets


class Images(Section):
    """docker and cloudbuild build the images within `up`; with none, `controller` and `trainers` name images that exist."""

    build: Literal["docker", "cloudbuild", "none"] = Field(
        default="cloudbuild", description="docker: on this machine; cloudbuild: in Google Cloud; none: they are there already."
    )
    controller: ImageReference | None = Field(default=None, description="build: none: the controller's image.")
    trainers: dict[str, ImageReference] = Field(
        default={}, description="build: none: for `default` and each key of ebb:trainers its image."
    )


class Settings(Section):
    """Section `gcp` of the stack."""

    project: ProjectId = Field(description="The project's id; everything is in it.", examples=["my-project-123"])
    region: Region = Field(description="The region; ebb:zones are in it.", examples=["us-central1"])
    labels: dict[LabelKey, LabelValue] = Field(default={}, description="Further labels of everything that the stack makes.")
    network: Network = Field(default=Network(), description="An own network, or an existing one.")
    cluster: Cluster = Field(description="The control plane and its rights.")
    nodes: Nodes = Field(default=Nodes(), description="Disks, repair, and how long machines shut down.")
    storage: Storage = Field(default=Storage(), description="File systems.")
    images: Images = Field(default=Images(), description="How the images come to be.")


class GroupSettings(Section):
    """Section `gcp` of a node group."""

    compact_placement: bool = Field(
        default=False, description="Machines close to each other: faster between them, and scarcer. With A100, L4, H100 and H200."
    )
    gpu_direct: bool = Field(
        default=False,
        description="GPUDirect RDMA between machines with it (a3-ultragpu-8g), on networks that GKE makes.",
    )
    preemptible: bool = Field(
        default=False,
        description="With capacity spot: the older kind, ended after 24 hours (needs maxAgeHours), with 15 s of notice for pods.",
    )
    disk_gib: int | None = Field(default=None, ge=50, le=65536, description="Another system disk than gcp.nodes.diskGiB.")
    driver: Literal["default", "latest", "disabled"] | None = Field(
        default=None,
        description="NVIDIA's driver that GKE installs. Default: latest, but default for V100 and P100, which newer ones lack.",
    )

    @property
    def notice_seconds(self) -> int | None:
        """The notice that pods get where it is not the stack's. Google ends a preemptible machine after 30 s whatever the kubelet
        says (.../how-to/preemptible-vms, a stored copy, read 2026-11-23), and the last 15 are the system's."""
        return 15 if self.preemptible else None
