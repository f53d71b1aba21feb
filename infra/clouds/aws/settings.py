"""Section `aws` of a stack, and of its node groups: what only Amazon Web Services has. Checked before any resource exists.

What one key may be is here; what must agree with other keys is in infra/clouds/aws/checks.py.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from infra.clouds.aws import forms
from infra.config import Name, Section

# What Ebb was made with, where a stack names no version. Karpenter's is the one that its chart was read in.
CLUSTER_AUTOSCALER = "v1.35.0"
KARPENTER = "1.14.1"


def _supported(version: str) -> str:
    if version not in forms.KUBERNETES:
        allowed = " and ".join(f"{one} (standard support until {until})" for one, until in forms.KUBERNETES.items())
        raise ValueError(f"found {version!r}; allowed are {allowed}: older ones cost extra, newer ones have not been tried")
    return version


KubernetesVersion = Annotated[str, AfterValidator(_supported), Field(json_schema_extra={"enum": list(forms.KUBERNETES)})]


class Network(Section):
    """An own VPC (`cidr`), or an existing one by ids (`vpcId`, `privateSubnets`, `publicSubnets`: zone -> subnet)."""

    cidr: forms.Cidr = Field(
        default="10.64.0.0/16",
        description="Addresses of the own VPC: a private range from /16 to /20 that no network that shall reach it has.",
    )
    nat: Literal["one", "per-zone"] = Field(
        default="one", description="NAT gateways of the own VPC: one, or one per zone, which costs more and outlives a zone."
    )
    interface_endpoints: tuple[forms.ServiceName, ...] = Field(
        default=(),
        strict=False,
        description="Services that the own VPC reaches without the NAT gateway, paid by the hour: ecr.api, ecr.dkr, sts, ec2...",
    )
    vpc_id: forms.VpcId | None = Field(default=None, description="An existing VPC, in place of an own one.")
    private_subnets: dict[str, forms.SubnetId] = Field(
        default={}, description="Existing VPC: zone -> private subnet, where machines are. Every zone of ebb:zones needs one."
    )
    public_subnets: dict[str, forms.SubnetId] = Field(
        default={}, description="Existing VPC: zone -> public subnet; may be left out."
    )


class Cluster(Section):
    """The control plane, who may reach it, and who may do what."""

    kubernetes_version: KubernetesVersion = Field(default="1.35", description="The minor version of Kubernetes, in quotes.")
    endpoint: Literal["public", "private"] = Field(
        default="public", description="public: from publicAccessCidrs and from the VPC; private: from the VPC alone."
    )
    public_access_cidrs: tuple[forms.Cidr, ...] = Field(
        default=(),
        strict=False,
        description="Public addresses that may reach a public endpoint: those of the office, of CI. Required.",
    )
    up_reaches_vpc: bool = Field(
        default=False, description="With a private endpoint: the machine that runs `pulumi up` is inside the VPC (VPN, bastion)."
    )
    logs: tuple[forms.LogType, ...] = Field(
        default=("api", "audit", "authenticator"), strict=False, description="Logs of the control plane that go to CloudWatch."
    )
    log_retention_days: forms.LogDays = Field(default=30, description="How long CloudWatch keeps them.")
    encryption_key_arn: forms.KeyArn | None = Field(
        default=None, description="A KMS key of yours for Kubernetes' secrets. Default: a key of AWS."
    )
    administrators: tuple[forms.Principal, ...] = Field(
        default=(), strict=False, description="IAM roles and users with all rights in the cluster, beside who creates it."
    )
    researchers: tuple[forms.Principal, ...] = Field(
        default=(),
        strict=False,
        description="IAM roles and users that may take the researcher role: jobs, their logs and shells.",
    )
    add_ons: dict[forms.AddOn, forms.AddOnVersion] = Field(
        default={}, description="Versions of the EKS add-ons, every one: an add-on without a pin would change under running jobs."
    )


class Nodes(Section):
    """Settings that all instances share."""

    releases: dict[forms.AmiType, forms.Release] = Field(
        default={}, description="AMI type -> release version, pinned so that no `pulumi up` replaces machines by itself."
    )
    disk_gib: int = Field(
        default=200, ge=50, le=16384, description="System disk of machines for jobs. An image with torch takes 10 GB unpacked."
    )
    disk_throughput_mib: int = Field(
        default=500, ge=125, le=2000, description="Its MiB/s: it limits how fast an image is unpacked."
    )
    manager_disk_gib: int = Field(default=50, ge=20, le=16384, description="System disk of the manager machine.")
    repair: bool = Field(default=True, description="Let EKS replace machines with a failed GPU, disk or kubelet.")
    ssm: bool = Field(
        default=False,
        description="Let administrators open a shell on machines by AWS Systems Manager: no port, no key, each session logged.",
    )


class Efs(Section):
    """An EFS file system in all zones."""

    file_system_id: forms.FileSystemId | None = Field(
        default=None, description="An existing file system, e.g. one that an earlier destroy has kept. Default: a new one."
    )
    throughput_mode: Literal["elastic", "bursting"] = Field(
        default="elastic", description="elastic is fast and paid per GB; bursting is free and grows with what is stored."
    )


class Fsx(Section):
    """An FSx for Lustre file system in one zone, filled from and exported to an S3 bucket."""

    zone: str = Field(description="Its zone: one in which machines with GPUs may be.", examples=["us-west-2a"])
    size_gib: int = Field(default=1200, ge=1200, description="1200, 2400, or a multiple of 2400.")
    deployment: Literal["PERSISTENT_2", "SCRATCH_2"] = Field(
        default="PERSISTENT_2", description="PERSISTENT_2 survives failed servers; SCRATCH_2 is cheaper and does not."
    )
    throughput: forms.LustreThroughput = Field(default=250, description="MB/s per TiB of PERSISTENT_2.")
    version: Literal["2.12", "2.15"] = Field(default="2.15", description="Version of Lustre.")
    bucket: forms.Bucket | None = Field(
        default=None,
        description="The S3 bucket, which exists, that it is filled from and exports to. Without it `data: delete` is needed.",
    )
    preload: tuple[forms.VolumeFolder, ...] = Field(
        default=(),
        strict=False,
        description="Folders of /mnt/fsx (of /mnt/data without EFS) that a Job has FSx fetch from the bucket before the stack's "
        "jobs start, so that GPUs do not wait for S3 in the first epoch.",
        examples=[["ILSVRC/Data/CLS-LOC"]],
    )


class Bucket(Section):
    """An existing S3 bucket that jobs may read without credentials of their own."""

    name: Name = Field(description="`--data <name>`; the files of a mounted one are at /mnt/<name>.", examples=["imagenet"])
    url: forms.MountedBucket = Field(description="The bucket, or a folder of it.", examples=["s3://our-data/imagenet"])
    teams: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Teams whose jobs may copy it, and nobody else's; none: jobs without a team may.",
        examples=[["vision"]],
    )
    mode: Literal["mount", "copy"] = Field(
        default="mount",
        description="mount: every job sees it as files, each read is a request of S3; copy: a job that names it copies it onto "
        "the data volume first, once.",
    )

    @property
    def bucket(self) -> str:
        """The bucket's own name."""
        return self.url.removeprefix("s3://").partition("/")[0]

    @property
    def prefix(self) -> str:
        """The folder with a slash at its end, as Mountpoint wants it; "" for the whole bucket."""
        folder = self.url.removeprefix("s3://").partition("/")[2]
        return f"{folder}/" if folder else ""


class Storage(Section):
    """The places of data and output. With both, EFS carries /mnt/data and /mnt/output, and FSx is a third volume at /mnt/fsx."""

    efs: Efs | None = Field(default=None, description="EFS, in all zones. `efs: {}` takes its defaults.")
    fsx: Fsx | None = Field(default=None, description="FSx for Lustre, in one zone.")
    buckets: tuple[Bucket, ...] = Field(
        default=(), strict=False, description="S3 buckets that are mounted read-only, by Mountpoint for Amazon S3, or copied."
    )
    data: Literal["keep", "protect", "delete"] = Field(
        default="keep",
        description="What `pulumi destroy` does to EFS: keep leaves it in the account, protect stops at once, delete deletes. "
        "FSx always goes, its bucket stays.",
    )
    clients: tuple[forms.Client, ...] = Field(
        default=(),
        strict=False,
        description="Ranges of addresses and security groups that may mount the data from outside the cluster.",
    )
    etcd_gib: int = Field(default=10, ge=1, le=16384, description="The volume of etcd, which holds the jobs' rendezvous.")

    @property
    def copied(self) -> tuple[Bucket, ...]:
        """Those that copies may read: all, as each may be copied too."""
        return self.buckets


class Images(Section):
    """docker and codebuild build the images within `up`; with none, `controller` and `trainers` name images that exist."""

    build: Literal["docker", "codebuild", "none"] = Field(
        default="codebuild", description="docker: on this machine; codebuild: in AWS; none: they are there already."
    )
    controller: forms.ImageReference | None = Field(default=None, description="build: none: the controller's image.")
    trainers: dict[str, forms.ImageReference] = Field(
        default={}, description="build: none: for `default` and each key of ebb:trainers its image."
    )


class Autoscaler(Section):
    """The program that makes and removes the machines for jobs."""

    kind: Literal["cluster-autoscaler", "karpenter"] = Field(
        default="cluster-autoscaler",
        description="cluster-autoscaler resizes managed node groups of EKS; karpenter starts EC2 machines itself.",
    )
    version: forms.AutoscalerVersion | None = Field(
        default=None,
        description=f"Default: {CLUSTER_AUTOSCALER} of cluster-autoscaler, the minor as the cluster's; {KARPENTER} of karpenter.",
    )
    scale_down_minutes: int = Field(default=10, ge=1, description="How long a machine may be idle.")
    provision_minutes: int = Field(
        default=7,
        ge=2,
        description="A machine that is not there by then counts as failed: cluster-autoscaler tries another group that fits the "
        "pod, and jobs go to another zone.",
    )

    @property
    def release(self) -> str:
        """The version, or the one that Ebb was made with."""
        return self.version or (KARPENTER if self.kind == "karpenter" else CLUSTER_AUTOSCALER)


class Drill(Section):
    """A FIS experiment that takes spot machines: started by hand, stopped by an alarm if one is named."""

    group: str = Field(description="The name of a spot node group.", examples=["spot-t4-us-west-2a"])
    machines: int = Field(default=1, ge=1, description="How many machines it takes.")
    stop_alarm_arn: forms.AlarmArn | None = Field(default=None, description="A CloudWatch alarm that ends it.")


class Settings(Section):
    """Section `aws` of the stack."""

    region: forms.Region = Field(description="The region; ebb:zones are in it.", examples=["us-west-2"])
    account_id: forms.AccountId | None = Field(default=None, description="`up` refuses to run in any other account.")
    tags: dict[str, str] = Field(default={}, description="Further tags of everything that the stack makes.")
    network: Network = Field(default=Network(), description="An own VPC, or an existing one.")
    cluster: Cluster = Field(description="The control plane and its rights.")
    nodes: Nodes = Field(default=Nodes(), description="Releases of their AMIs, disks, repair.")
    storage: Storage = Field(description="File systems.")
    images: Images = Field(default=Images(), description="How the images come to be.")
    autoscaler: Autoscaler = Field(default=Autoscaler(), description="What makes and removes machines.")
    drill: Drill | None = Field(default=None, description="An experiment that takes spot machines away.")


class GroupSettings(Section):
    """Section `aws` of a node group."""

    efa: bool = Field(default=False, description="As many EFA interfaces as the instance type has.")
    placement_group: bool = Field(
        default=False, description="Machines close to each other: faster between them, and scarcer. Goes well with efa."
    )
    disk_gib: int | None = Field(default=None, ge=50, le=16384, description="Another system disk than aws.nodes.diskGiB.")
    capacity_reservation_id: forms.ReservationId | None = Field(
        default=None, description="The reservation of a capacity-block, which needs it."
    )
