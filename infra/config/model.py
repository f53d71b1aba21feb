"""The settings that every cloud has, typed and frozen. Checks that read several keys are in infra/config/checks.py."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from infra.config.section import Form, Section
from workloads.cluster import DEFAULT_IMAGE

CLOUD_KEY: Final = "<cloud>"  # stands for the cloud's name, which a file has as a key; parse puts the checked section there
Name = Annotated[str, Form("[a-z]([a-z0-9-]*[a-z0-9])?", "a-z, 0-9 and -, first a letter, last no -")]
Version = Annotated[str, Form(r"\d+\.\d+\.\d+", "a whole version, three numbers")]
Hexadecimal = Annotated[str, Form("[0-9a-f]+", "the digits 0-9 and a-f, as sha256sum and md5sum print them")]


class Manager(Section):
    """The machine, on-demand and without GPUs, that carries etcd, the controller and data preparation; or two of them."""

    zone: str = Field(description="Where it is, and etcd's disk: one of ebb:zones.", examples=["us-west-2a"])
    instance_type: str = Field(description="Its instance type, one without GPUs.", examples=["m7i.large"])
    count: int = Field(
        default=1,
        ge=1,
        le=2,
        description="How many. The second is in the first other zone of ebb:zones; all but etcd can run on either.",
    )


class InstanceTypeSettings(Section):
    """A machine type that the catalog lacks, or a correction of one that it has. What is left out is as in `like`."""

    like: str | None = Field(
        default=None,
        description="The instance type that it is like in all that is not said here. Default: the one of its own name.",
        examples=["g4dn.xlarge"],
    )
    cpu: int | None = Field(default=None, ge=1, description="vCPUs.")
    memory_gib: int | None = Field(default=None, ge=1, description="GiB of memory.")
    gpu: str | None = Field(default=None, description="The GPU type.", examples=["A100"])
    gpus: int | None = Field(default=None, ge=0, description="How many GPUs. Default: 1 with `gpu`, else none.")
    usd_per_hour: float | None = Field(default=None, ge=0, strict=False, description="On-demand, for estimates.")
    spot_discount: float | None = Field(
        default=None, ge=0, lt=1, strict=False, description="A fraction of that price: with 0.6 a spot machine costs 40 % of it."
    )

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that are said, by the fields of an InstanceType."""
        said = self.model_dump(exclude={"like", "gpu"}, exclude_none=True)
        return ({"gpu_type": self.gpu, "gpus": 1} if self.gpu else {}) | said


class NodeGroupSettings(Section):
    """Machines for jobs: one line becomes one node group in each of its zones. Either gpu or instanceTypes is needed."""

    gpu: str | None = Field(default=None, description="The GPU type, in any case; the cloud's smallest machine with it is taken.")
    instance_types: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Instance types by name, the first preferred. All of one shape: vCPU, memory, GPU type and number.",
    )
    capacity: Literal["spot", "on-demand", "capacity-block", "flex-start"] = Field(
        default="spot",
        description="spot is cheap and may be reclaimed; on-demand is not; capacity-block was reserved for some days; flex-start "
        "is waited for, and then kept for some days.",
    )
    zones: tuple[str, ...] | None = Field(
        default=None, min_length=1, strict=False, description="Where: some of ebb:zones. Default: all of them."
    )
    min: int = Field(default=0, ge=0, description="Machines that are always there, per zone.")
    max: int = Field(ge=0, description="Machines at most, per zone.", examples=[8])
    max_age_hours: float | None = Field(
        default=None,
        gt=0,
        strict=False,
        description="No machine is kept for longer: jobs leave it by plan before. Default: for ever.",
    )
    image: str = Field(default=DEFAULT_IMAGE, description="The trainer image of jobs on it: a key of ebb:trainers.")
    name: Name | None = Field(
        default=None,
        description="What the groups' names begin with; the zone follows. Default: <capacity>-<gpu or instance type>.",
    )
    settings: Any = Field(default=None, alias=CLOUD_KEY)

    def names(self, zones: Sequence[str]) -> Mapping[str, str]:
        """Zone -> name of the node group there. `zones`: those of the stack."""
        what = self.gpu or next(iter(self.instance_types), "")
        prefix = self.name or f"{self.capacity}-{what}".lower().replace(".", "-")
        return {zone: f"{prefix}-{zone}" for zone in self.zones or zones}


class Trainer(Section):
    """One build of the trainer image. Another CUDA than the default's gives old GPUs a torch that still has code for them."""

    torch: Version = Field(default="2.13.0", description="Version of torch.")
    torchvision: Version = Field(default="0.28.0", description="Version of torchvision; it belongs to torch's.")
    cuda: str = Field(default="13.0", description="The CUDA that this torch was built with. 13.0 is PyPI's build.")


class Dataset(Section):
    """A data set that a re-runnable Job fetches, checks and unpacks onto the data volume. The Job runs on machines without GPUs
    where nodeGroups has spot and on-demand ones, spot first, else on the manager machine."""

    name: Name = Field(description="Its folder in the data volume: /mnt/data/<name>.", examples=["tiny-imagenet-200"])
    url: Annotated[
        str, Form(r"https://\S+|(s3|gs|az)://[^\s/]+/\S+", "an address that begins with https://, s3://, gs:// or az://")
    ] = Field(
        description="The archive, a zip or tar; of kind imagenet the folder of its three archives.",
        examples=["https://example.org/data.zip"],
    )
    sha256: Hexadecimal | None = Field(default=None, description="The archive's SHA-256. It, or md5, is needed.")
    md5: Hexadecimal | None = Field(default=None, description="The archive's MD5, where no SHA-256 is published.")
    kind: Literal["tiny-imagenet", "imagenet", "image-folder"] = Field(
        default="image-folder",
        description="imagenet: ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz as published, "
        "whose checksums are known; tiny-imagenet: its archive; in both the validation images get into folders by class. "
        "image-folder: as in the archive.",
    )
    secrets: tuple[Name, ...] = Field(
        default=(),
        strict=False,
        description="Names of `ebb secret set` with credentials for its bucket, where storage.buckets of the cloud does not name "
        "it; each becomes the variable that is called so: a-b becomes A_B. docs/data.md has their names by store.",
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Variables for reading its bucket, as docs/data.md has them.",
    )


class Storage(Section):
    """Sizes of the shared volumes in GiB. Where the storage does not enforce sizes they are labels."""

    data_gib: int = Field(default=10, ge=1, description="The volume /mnt/data.")
    output_gib: int = Field(default=10, ge=1, description="The volume /mnt/output.")


Subject = Annotated[
    str, Form("(user|group):.+", "user:<name> or group:<name>, as the cluster knows people: user:ada@lab.example, group:vision")
]


class TeamSettings(Section):
    """A group of people with a namespace, volumes and limits of their own. Other teams neither see nor reach what is in it."""

    gpus: int | None = Field(default=None, ge=0, description="GPUs of all its jobs together, at most. Default: no limit.")
    borrow: int = Field(
        default=0,
        ge=0,
        description="GPUs beyond `gpus` that its jobs may use while other teams leave them of theirs; the jobs are stopped, with "
        "a checkpoint, when those teams need them.",
    )
    usd_per_month: float | None = Field(
        default=None,
        gt=0,
        strict=False,
        description="What its jobs may cost in a calendar month (UTC); then they wait. By the stack's prices. Default: no limit.",
    )
    priority: Literal["job", "elastic"] | None = Field(
        default=None, description="Of jobs that `ebb submit` sends without --priority; elastic yields to all others."
    )
    readers: tuple[Subject, ...] = Field(default=(), strict=False, description="May look at jobs, logs and events.")
    researchers: tuple[Subject, ...] = Field(default=(), strict=False, description="May submit jobs, and change their own.")
    leads: tuple[Subject, ...] = Field(default=(), strict=False, description="May do that to all of the team.")

    @property
    def people(self) -> tuple[str, ...]:
        return (*self.readers, *self.researchers, *self.leads)


class Monitoring(Section):
    """Figures of jobs, machines and the platform over time, with alerts. By default nothing collects them: `ebb status` and what
    jobs cost need none of it."""

    prometheus: bool = Field(default=False, description="Run a Prometheus with Ebb's alerts beside the platform.")
    grafana: bool = Field(default=False, description="Run a Grafana with Ebb's dashboards beside it.")
    keep_days: int = Field(default=15, ge=1, description="How long that Prometheus keeps figures, on the manager machine's disk.")
    keep_gib: int = Field(default=4, ge=1, description="How many GiB they may take there; the oldest go first.")
    alertmanager: (
        Annotated[str, Form(r"[A-Za-z0-9.-]+:\d{1,5}", "a host and a port, such as alertmanager.monitoring:9093")] | None
    ) = Field(default=None, description="Where it sends alerts. Default: they are on its own page alone.")
    scrapers: dict[str, str] = Field(
        default_factory=dict,
        description="Labels of the namespace of a Prometheus that is there already: its pods may read all metrics.",
        examples=[{"kubernetes.io/metadata.name": "monitoring"}],
    )
    managed: bool = Field(default=False, description="The cloud's own service for metrics collects them too.")
    links: dict[str, Annotated[str, Form(r"https?://\S+", "an address that begins with https:// or http://")]] = Field(
        default_factory=dict,
        description="Dashboards by name, for `ebb status`; {namespace} and {job} stand for the job's.",
        examples=[{"Grafana": "https://grafana.example.org/d/ebb-jobs?var-namespace={namespace}&var-ebb_job={job}"}],
    )

    @property
    def is_on(self) -> bool:
        """Return whether anybody in the cluster reads metrics."""
        return self.prometheus or self.managed or bool(self.scrapers)


class Logs(Section):
    """Lines that the platform's pods and workers print, kept when pod and machine are gone: in the cloud's own service for logs,
    or as files on a volume where the cloud has none. By default they go with their pod; `ebb logs` has those of jobs from the
    output volume in any case."""

    ship: bool = Field(default=False, description="Keep them.")
    keep_days: int = Field(default=30, ge=1, le=3650, description="How long. Of a cloud's service the values that it knows.")
    keep_gib: int = Field(
        default=10, ge=1, description="How many GiB of files the volume holds at most; the oldest go first. For files alone."
    )


class Stack(Section):
    """All settings of a stack. `settings` is the cloud's own section, checked by the cloud's module."""

    cloud: str = Field(description="Which cloud makes the machines.", examples=["local"])
    zones: tuple[str, ...] = Field(
        min_length=1, strict=False, description="Where machines may be. One job stays in one zone.", examples=[["us-west-2a"]]
    )
    manager: Manager = Field(description="The machine that is always there, or two.")
    node_groups: tuple[NodeGroupSettings, ...] = Field(default=(), strict=False, description="Machines for jobs.")
    instance_types: dict[str, InstanceTypeSettings] = Field(
        default_factory=dict, description="Machine types by name that the catalog lacks, or that it has wrong."
    )
    trainers: dict[str, Trainer] = Field(
        default_factory=dict, description="Builds of the trainer image by name; `default` is there in any case."
    )
    storage: Storage = Field(default=Storage(), description="Sizes of the shared volumes.")
    digits: bool = Field(default=False, description="Write scikit-learn's digits to /mnt/data/digits, to try things with.")
    datasets: tuple[Dataset, ...] = Field(
        default=(), strict=False, description="Data sets to fetch; the stack's jobs wait for them."
    )
    jobs: tuple[dict[str, Any], ...] = Field(
        default=(), strict=False, description="Jobs of the stack: files with ElasticJobs, or ElasticJobs in place."
    )
    teams: dict[str, TeamSettings] = Field(
        default_factory=dict,
        description="Teams by name: each has a namespace of its own, ebb-team-<name>, with roles, volumes and limits.",
        examples=[
            {"vision": {"gpus": 16, "usdPerMonth": 4000, "researchers": ["group:vision"], "leads": ["user:ada@lab.example"]}}
        ],
    )
    webhook: Annotated[str, Form(r"https?://\S+", "an address that begins with https://")] | None = Field(
        default=None,
        description="Where the controller sends notifications about jobs, as JSON or to Slack; `pulumi config set --secret` it.",
        examples=["https://hooks.slack.com/services/..."],
    )
    monitoring: Monitoring = Field(default=Monitoring(), description="Metrics over time, dashboards and alerts.")
    logs: Logs = Field(default=Logs(), description="Logs of the platform and of workers, kept for a while.")
    legacy_rendezvous: bool = Field(
        default=False,
        description="An etcd 3.5 with the v2 API beside the other: for torch's own rendezvous, in images without Ebb's trainer.",
    )
    settings: Any = Field(default=None, alias=CLOUD_KEY)

    @property
    def manager_zones(self) -> tuple[str, ...]:
        """The zone of each manager machine; etcd's disk is in the first."""
        others = [zone for zone in self.zones if zone != self.manager.zone]
        return (self.manager.zone, *others[: self.manager.count - 1])

    def trainer(self, image: str = DEFAULT_IMAGE) -> Trainer:
        """The build of that name."""
        return self.trainers[image] if image in self.trainers else Trainer()
