"""Section `azure` of a stack, and of its node groups: what only Microsoft Azure has. Checked before any resource exists.

What one key may be is here; what must agree with other keys is in infra/clouds/azure/checks.py.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.config import Form, Name, Section

# Minor version of Kubernetes -> when AKS ends its support
# (https://learn.microsoft.com/azure/aks/supported-kubernetes-versions, as of 2026-08).
KUBERNETES = {"1.35": "2027-03", "1.36": "2027-06"}


def _supported(version: str) -> str:
    if version not in KUBERNETES:
        allowed = " and ".join(f"{one} (supported until {until})" for one, until in KUBERNETES.items())
        raise ValueError(f"found {version!r}; allowed are {allowed}: AKS supports no older ones, newer ones have not been tried")
    return version


KubernetesVersion = Annotated[str, AfterValidator(_supported), Field(json_schema_extra={"enum": list(KUBERNETES)})]
_GUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
Guid = Annotated[str, Form(_GUID, "a GUID such as 01234567-89ab-cdef-0123-456789abcdef, in lower case")]
Location = Annotated[str, Form(r"[a-z]+[0-9]?", "a region's short name such as westus2 (az account list-locations)")]
Cidr = Annotated[str, Form(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}", "a range of IPv4 addresses such as 198.51.100.0/24")]
_GROUP = rf"/subscriptions/{_GUID}/resourceGroups/[\w().-]+/providers"
SubnetId = Annotated[
    str,
    Form(
        rf"{_GROUP}/Microsoft\.Network/virtualNetworks/[\w.-]+/subnets/[\w.-]+",
        "a subnet's id, /subscriptions/.../subnets/<name>",
    ),
]
ShareId = Annotated[
    str,
    Form(
        rf"{_GROUP}/Microsoft\.Storage/storageAccounts/[a-z0-9]{{3,24}}/fileServices/default/shares/[a-z0-9-]+",
        "a file share's id, /subscriptions/.../storageAccounts/<account>/fileServices/default/shares/<share>",
    ),
]
ContainerId = Annotated[
    str,
    Form(
        rf"{_GROUP}/Microsoft\.Storage/storageAccounts/[a-z0-9]{{3,24}}/blobServices/default/containers/[a-z0-9-]+",
        "a blob container's id, /subscriptions/.../storageAccounts/<account>/blobServices/default/containers/<container>",
    ),
]
Folder = Annotated[str, Form(r"[^\s/,]+(/[^\s/,]+)*", "a path such as imagenet/train, without / at its ends, blanks and commas")]
ImageReference = Annotated[
    str, Form(r"[a-z0-9.-]+(:\d+)?/[a-z0-9._/-]+(@sha256:[0-9a-f]{64}|:[\w.-]+)", "an image such as example.org/ebb/trainer:1")
]


class Network(Section):
    """An own network (`cidr`), or existing subnets by id (`subnetId`, `endpointSubnetId`)."""

    cidr: Cidr = Field(
        default="10.80.0.0/16",
        description="Addresses of the own network: a private range from /16 to /22 that no network that shall reach it has.",
    )
    subnet_id: SubnetId | None = Field(
        default=None,
        description="An existing subnet for all machines, with a way out to the internet, in place of an own network.",
    )
    endpoint_subnet_id: SubnetId | None = Field(
        default=None, description="With subnetId: an existing subnet of the same network for the address of the file share."
    )
    outbound: Literal["nat-gateway", "routes"] = Field(
        default="nat-gateway", description="With subnetId: what its way out is, a NAT gateway or routes through a firewall."
    )


class Cluster(Section):
    """The control plane, who may reach it, and who may do what."""

    kubernetes_version: KubernetesVersion = Field(default="1.35", description="The minor version of Kubernetes, in quotes.")
    tier: Literal["free", "standard"] = Field(
        default="standard", description="standard has an SLA and is paid by the hour; free has neither."
    )
    endpoint: Literal["public", "private"] = Field(
        default="public", description="public: from authorizedRanges; private: from the network alone."
    )
    authorized_ranges: tuple[Cidr, ...] = Field(
        default=(),
        strict=False,
        description="Public addresses that may reach a public endpoint: of the office, of CI; with an existing network its way "
        "out too, by which machines come. Required.",
    )
    up_reaches_network: bool = Field(
        default=False,
        description="With a private endpoint: the machine that runs `pulumi up` is inside the network (VPN, bastion).",
    )
    administrators: tuple[Guid, ...] = Field(
        default=(),
        strict=False,
        description="Object ids of Entra groups with all rights in the cluster. Required: there are no local accounts.",
    )
    researchers: tuple[Guid, ...] = Field(
        default=(), strict=False, description="Object ids of Entra groups with the researcher role: jobs, their logs and shells."
    )


class Nodes(Section):
    """Settings that all instances share."""

    disk_gib: int = Field(
        default=128, ge=64, le=2048, description="System disk of machines for jobs. An image with torch takes 10 GB unpacked."
    )
    manager_disk_gib: int = Field(default=64, ge=64, le=2048, description="System disk of the manager machine.")


class Files(Section):
    """An Azure Files share over NFS, in a premium storage account."""

    share_id: ShareId | None = Field(
        default=None, description="An existing NFS share, e.g. one that an earlier destroy has kept. Default: a new one."
    )
    redundancy: Literal["zone", "local"] = Field(
        default="zone", description="zone: copies in three zones, so that a lost zone loses no data; local costs less."
    )


class Bucket(Section):
    """An existing container of Azure Blob Storage that jobs may read without credentials of their own."""

    name: Name = Field(description="`--data <name>`; its files are at /mnt/<name>.", examples=["imagenet"])
    container_id: ContainerId = Field(
        description="Its id.",
        examples=[
            "/subscriptions/01234567-89ab-cdef-0123-456789abcdef/resourceGroups/data/providers/Microsoft.Storage"
            "/storageAccounts/ourdata/blobServices/default/containers/imagenet"
        ],
    )
    folder: Folder | None = Field(default=None, description="A folder of it. Default: all of it.", examples=["train"])
    teams: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Teams whose jobs may read it, and nobody else's; none: jobs without a team may.",
        examples=[["vision"]],
    )


class Storage(Section):
    """The places of data and output."""

    files: Files = Field(default=Files(), description="The share with /mnt/data and /mnt/output.")
    buckets: tuple[Bucket, ...] = Field(
        default=(), strict=False, description="Blob containers that are mounted read-only, by blobfuse."
    )
    data: Literal["keep", "protect", "delete"] = Field(
        default="keep",
        description="What `pulumi destroy` does to the share: keep leaves it there, protect stops at once, delete deletes.",
    )
    clients: tuple[Cidr, ...] = Field(
        default=(), strict=False, description="Ranges of addresses that may mount the share from outside the cluster."
    )
    etcd_gib: int = Field(default=16, ge=4, le=1024, description="The disk of etcd, which holds the jobs' rendezvous.")


class Images(Section):
    """docker and acr build the images within `up`; with none, `controller` and `trainers` name images that exist."""

    build: Literal["docker", "acr", "none"] = Field(
        default="acr", description="docker: on this machine; acr: in Azure; none: they are there already."
    )
    controller: ImageReference | None = Field(default=None, description="build: none: the controller's image.")
    trainers: dict[str, ImageReference] = Field(
        default={}, description="build: none: for `default` and each key of ebb:trainers its image."
    )


class Autoscaler(Section):
    """The autoscaler of AKS."""

    scale_down_minutes: int = Field(default=10, ge=1, description="How long a machine may be idle.")
    provision_minutes: int = Field(
        default=12,
        ge=5,
        description="A machine that is not there by then counts as failed, and another group that fits is tried.",
    )


class Settings(Section):
    """Section `azure` of the stack."""

    location: Location = Field(description="The region; ebb:zones are in it.", examples=["westus2"])
    subscription_id: Guid = Field(
        description="The subscription, and no other.", examples=["01234567-89ab-cdef-0123-456789abcdef"]
    )
    tags: dict[str, str] = Field(default={}, description="Further tags of everything that the stack makes.")
    network: Network = Field(default=Network(), description="An own network, or existing subnets.")
    cluster: Cluster = Field(description="The control plane and its rights.")
    nodes: Nodes = Field(default=Nodes(), description="Disks of the machines.")
    storage: Storage = Field(default=Storage(), description="The file share, and etcd's disk.")
    images: Images = Field(default=Images(), description="How the images come to be.")
    autoscaler: Autoscaler = Field(default=Autoscaler(), description="What makes and removes machines.")


class GroupSettings(Section):
    """Section `azure` of a node group."""

    disk_gib: int | None = Field(default=None, ge=64, le=2048, description="Another system disk than azure.nodes.diskGiB.")
    proximity: bool = Field(
        default=False, description="Machines close to each other: faster between them, and scarcer. For groups of one zone."
    )
    infiniband: bool = Field(
        default=False,
        description="InfiniBand between machines that have it: ND sizes with A100, H100 and H200.",
    )
