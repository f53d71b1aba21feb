"""The reviewed table of Google Cloud: every type that the stack uses.

What replaces is ForceNew of terraform-provider-google at commit e03b7622a26cf4e878f90bdccaca6aa3d03a7999 (2026-08-21, major
version 7 on its way to 8), from which pulumi-gcp is bridged: taken from the source of each resource by a script that walks its
schema, nested blocks too, and turned into Pulumi's names (a list is plural). tests/testing/mocks/test_gcp.py has the result
written out. Sets are TypeSet of the same source; `sometimes` are its CustomizeDiff functions with ForceNewIfChange.

Not read: the very version behind the installed pulumi_gcp 10.2.0, whose wheel does not tell it, and pulumi-gcp's overrides
(provider/resources.go) but for its autonaming. Not proven, beside what testing/pulumi/mocks/tabled.py says: that Google accepts a
value (GPU types in a zone, versions of a channel, sizes), quotas and rights; DiffSuppressFunc, by which the provider calls two
values the same (labels that GKE adds, versions that a channel has moved); fields that Google fills in and that are Optional and
Computed.
"""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from testing.pulumi.mocks.rows import Row

Inputs = Mapping[str, Any]
_IAM = ("project", "role", "member", "condition")
LINK = "https://www.googleapis.com/compute/v1/projects/{project}"


def _shrunk_range(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """A subnet grows in place (IsShrinkageIpCidr)."""
    before, after = old.get("ipCidrRange"), new.get("ipCidrRange")
    try:
        inside = ip_network(str(before)).subnet_of(ip_network(str(after)))  # type: ignore[arg-type]
    except ValueError:
        return ()
    return () if before == after or inside else ("ipCidrRange",)


def _shrunk_disk(old: Inputs, new: Inputs) -> tuple[str, ...]:
    """IsDiskShrinkage."""
    sizes = [one.get("size") for one in (old, new)]
    known = [one for one in sizes if isinstance(one, int)]
    return ("size",) if len(known) == 2 and known[1] < known[0] else ()


_NODE = tuple(
    f"nodeConfig.{name}"
    for name in (
        "advancedMachineFeatures", "bootDiskKmsKey", "confidentialNodes.confidentialInstanceType", "enableConfidentialStorage",
        "ephemeralStorageLocalSsdConfig", "flexStart", "guestAccelerators", "hostMaintenancePolicy", "localNvmeSsdBlockConfig",
        "localSsdCount", "localSsdEncryptionMode", "maxRunDuration", "metadata", "minCpuPlatform", "nodeGroup", "oauthScopes",
        "preemptible", "reservationAffinity", "sandboxConfig", "secondaryBootDisks", "serviceAccount", "shieldedInstanceConfig",
        "soleTenantConfig", "spot",
    )
)  # fmt: skip
_NODE_SETS = ("nodeConfig.oauthScopes", "nodeConfig.reservationAffinity.values", "nodeConfig.soleTenantConfig.nodeAffinities")

ROWS: tuple[Row, ...] = (
    Row(
        "gcp:compute/network:Network", id="projects/{project}/global/networks/{name}",
        replaces=("autoCreateSubnetworks", "description", "internalIpv6Range", "name", "networkProfile", "params", "project"),
        allowed={"routingMode": ("REGIONAL", "GLOBAL")},
        outputs={"selfLink": LINK + "/global/networks/{name}", "gatewayIpv4": ""},
    ),
    Row(
        "gcp:compute/subnetwork:Subnetwork", id="projects/{project}/regions/{region}/subnetworks/{name}",
        replaces=(
            "description", "externalIpv6Prefix", "internalIpv6Prefix", "name", "network", "params", "project", "region",
            "reservedInternalRange", "resolveSubnetMask",
        ),
        sets=("logConfig.metadataFields",), sometimes=_shrunk_range,
        outputs={"selfLink": LINK + "/regions/{region}/subnetworks/{name}"},
    ),
    Row(
        "gcp:compute/router:Router", id="projects/{project}/regions/{region}/routers/{name}",
        replaces=("encryptedInterconnectRouter", "name", "nccGateway", "network", "params", "project", "region"),
    ),
    Row(
        "gcp:compute/routerNat:RouterNat", id="{project}/{region}/{router}/{name}",
        replaces=("endpointTypes", "initialNatIps", "name", "project", "region", "router", "type"),
        sets=("drainNatIps", "initialNatIps", "natIps", "nat64Subnetworks", "rules", "subnetworks"),
        allowed={
            "natIpAllocateOption": ("MANUAL_ONLY", "AUTO_ONLY"),
            "sourceSubnetworkIpRangesToNat": (
                "ALL_SUBNETWORKS_ALL_IP_RANGES", "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES", "LIST_OF_SUBNETWORKS",
            ),
            "logConfig.filter": ("ERRORS_ONLY", "TRANSLATIONS_ONLY", "ALL"),
        },
    ),
    Row(
        "gcp:compute/globalAddress:GlobalAddress", id="projects/{project}/global/addresses/{name}",
        replaces=("address", "addressType", "description", "ipVersion", "name", "network", "prefixLength", "project",
            "purpose"),
        allowed={"addressType": ("EXTERNAL", "INTERNAL")},
    ),
    Row(
        "gcp:servicenetworking/connection:Connection", autoname="", id="{network}:{service}", replaces=("network", "service"),
        outputs={"peering": "servicenetworking-googleapis-com"},
    ),
    Row(
        "gcp:serviceaccount/account:Account", autoname="", replaces=("accountId", "project"),
        id="projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com",
        outputs={"email": "{accountId}@{project}.iam.gserviceaccount.com", "uniqueId": "{short}",
                 "member": "serviceAccount:{accountId}@{project}.iam.gserviceaccount.com"},
    ),
    Row("gcp:projects/service:Service", autoname="", id="{project}/{service}", replaces=("project", "service")),
    Row(
        "gcp:projects/serviceIdentity:ServiceIdentity", autoname="", id="projects/{project}/services/{service}",
        replaces=("project", "service"),
        outputs={"email": "service-1@{service}.iam.gserviceaccount.com",
                 "member": "serviceAccount:service-1@{service}.iam.gserviceaccount.com"},
    ),
    Row("gcp:projects/iAMMember:IAMMember", autoname="", id="{project}/{role}/{member}", replaces=_IAM),
    Row("gcp:logging/projectBucketConfig:ProjectBucketConfig", autoname="",
        id="projects/{project}/locations/{location}/buckets/{bucketId}", replaces=("bucketId", "location", "project")),
    Row("gcp:logging/projectSink:ProjectSink", id="projects/{project}/sinks/{name}", replaces=("name", "project")),
    Row("gcp:logging/projectExclusion:ProjectExclusion", id="projects/{project}/exclusions/{name}", replaces=("name", "project")),
    Row("gcp:storage/bucketIAMMember:BucketIAMMember", autoname="", id="b/{bucket}/{role}/{member}",
        replaces=("bucket", *_IAM[1:])),
    Row("gcp:artifactregistry/repositoryIamMember:RepositoryIamMember", autoname="", id="{repository}/{role}/{member}",
        replaces=("location", "repository", *_IAM)),
    Row(
        "gcp:container/cluster:Cluster", autoname="name", autoname_length=40,
        id="projects/{project}/locations/{location}/clusters/{name}",
        replaces=(
            "clusterAutoscaling.autoProvisioningDefaults.bootDiskKmsKey", "clusterIpv4Cidr", "confidentialNodes",
            "datapathProvider",
            "dataplaneOptimizationMode", "defaultMaxPodsPerNode", "description", "enableAutopilot", "enableKubernetesAlpha",
            "enableTpu", "initialNodeCount", "ipAllocationPolicy.clusterIpv4CidrBlock",
            "ipAllocationPolicy.clusterSecondaryRangeName", "ipAllocationPolicy.podCidrOverprovisionConfig",
            "ipAllocationPolicy.servicesIpv4CidrBlock", "ipAllocationPolicy.servicesSecondaryRangeName", "location",
            "masterAuth.clientCertificateConfig", "name", "network", "networkingMode", *_NODE, "nodePools",
            "privateClusterConfig.masterIpv4CidrBlock", "privateClusterConfig.privateEndpointSubnetwork", "project",
            "subnetwork",
            "userManagedKeysConfig.aggregationCa", "userManagedKeysConfig.clusterCa", "userManagedKeysConfig.etcdApiCa",
            "userManagedKeysConfig.etcdPeerCa",
        ),
        sets=("nodeLocations", "masterAuthorizedNetworksConfig.cidrBlocks", "maintenancePolicy.maintenanceExclusions",
            *_NODE_SETS),
        allowed={
            "networkingMode": ("VPC_NATIVE", "ROUTES"), "releaseChannel.channel": ("UNSPECIFIED", "RAPID", "REGULAR",
                "STABLE", "EXTENDED"),
            "datapathProvider": ("DATAPATH_PROVIDER_UNSPECIFIED", "LEGACY_DATAPATH", "ADVANCED_DATAPATH"),
        },
        outputs={
            "endpoint": "192.0.2.10", "masterAuth": {"clusterCaCertificate": "ZWNobyBjZXJ0aWZpY2F0ZQ=="},
            # Of an alias such as 1.35 the newest patch (Cluster.initialClusterVersion of GKE's API).
            "masterVersion": "{minMasterVersion}.9-gke.1000000", "selfLink": "https://container.googleapis.com/v1/projects/{project}/{name}",
        },
    ),
    Row(
        "gcp:container/nodePool:NodePool", autoname_length=40,
        id="projects/{project}/locations/{location}/clusters/{cluster}/nodePools/{name}",
        replaces=(
            "cluster", "initialNodeCount", "location", "maxPodsPerNode", "name", "namePrefix",
            "networkConfig.acceleratorNetworkProfile", "networkConfig.additionalNodeNetworkConfigs",
            "networkConfig.additionalPodNetworkConfigs", "networkConfig.createPodRange",
            "networkConfig.podCidrOverprovisionConfig",
            "networkConfig.podIpv4CidrBlock", "networkConfig.podRange", "networkConfig.subnetwork", *_NODE, "placementPolicy",
            "project", "queuedProvisioning",
        ),
        sets=("nodeLocations", *_NODE_SETS),
        allowed={
            "autoscaling.locationPolicy": ("BALANCED", "ANY"), "placementPolicy.type": ("COMPACT",),
            "upgradeSettings.strategy": ("SURGE", "BLUE_GREEN"),
            "nodeConfig.taints.effect": ("NO_SCHEDULE", "PREFER_NO_SCHEDULE", "NO_EXECUTE"),
            "nodeConfig.guestAccelerators.gpuDriverInstallationConfig.gpuDriverVersion": ("INSTALLATION_DISABLED",
                "DEFAULT", "LATEST"),
            "nodeConfig.workloadMetadataConfig.mode": ("GCE_METADATA", "GKE_METADATA"),
        },
        outputs={"instanceGroupUrls": [LINK + "/instanceGroupManagers/gke-{name}"]},
    ),
    Row(
        "gcp:filestore/instance:Instance", id="projects/{project}/locations/{location}/instances/{name}",
        replaces=(
            "fileShares.name", "fileShares.sourceBackup", "fileShares.sourceBackupdrBackup", "initialReplication", "kmsKeyName",
            "location", "name", "networks", "project", "protocol", "tags", "tier", "zone",
        ),
        outputs={"networks": [{"ipAddresses": ["10.0.0.2"]}]},
        allowed={
            "tier": ("STANDARD", "PREMIUM", "BASIC_HDD", "BASIC_SSD", "HIGH_SCALE_SSD", "ZONAL", "REGIONAL", "ENTERPRISE"),
            "fileShares.nfsExportOptions.accessMode": ("READ_ONLY", "READ_WRITE"),
            "fileShares.nfsExportOptions.squashMode": ("NO_ROOT_SQUASH", "ROOT_SQUASH"),
            "networks.connectMode": ("DIRECT_PEERING", "PRIVATE_SERVICE_ACCESS", "PRIVATE_SERVICE_CONNECT"),
        },
    ),
    Row(
        "gcp:lustre/instance:Instance", autoname="", id="projects/{project}/locations/{location}/instances/{instanceId}",
        replaces=(
            "dynamicTierOptions", "filesystem", "instanceId", "kmsKey", "location", "network", "perUnitStorageThroughput",
            "project",
        ),
        outputs={"mountPoint": "10.1.0.2@tcp:/{filesystem}",
            "name": "projects/{project}/locations/{location}/instances/{instanceId}"},
    ),
    Row(
        "gcp:compute/disk:Disk", id="projects/{project}/zones/{zone}/disks/{name}",
        replaces=(
            "architecture", "asyncPrimaryDisk", "description", "diskEncryptionKey", "enableConfidentialCompute",
            "guestOsFeatures",
            "image", "licenses", "name", "params", "physicalBlockSizeBytes", "project", "snapshot", "sourceDisk",
            "sourceImageEncryptionKey", "sourceInstantSnapshot", "sourceSnapshotEncryptionKey", "sourceStorageObject",
            "storagePool",
            "type", "zone",
        ),
        sets=("guestOsFeatures",), sometimes=_shrunk_disk,
    ),
    Row(
        "gcp:compute/resourcePolicy:ResourcePolicy", id="projects/{project}/regions/{region}/resourcePolicies/{name}",
        replaces=(
            "diskConsistencyGroupPolicy.enabled", "groupPlacementPolicy.gpuTopology", "project", "region",
            "workloadPolicy.acceleratorTopology", "workloadPolicy.maxTopologyDistance", "workloadPolicy.type",
        ),
        sets=("snapshotSchedulePolicy.schedule.weeklySchedule.dayOfWeeks",
            "snapshotSchedulePolicy.snapshotProperties.storageLocations"),
    ),
    Row(
        "gcp:compute/diskResourcePolicyAttachment:DiskResourcePolicyAttachment", id="{project}/{zone}/{disk}/{name}",
        replaces=("disk", "name", "project", "zone"),
    ),
    Row(
        "gcp:artifactregistry/repository:Repository", autoname="",
        id="projects/{project}/locations/{location}/repositories/{repositoryId}",
        replaces=(
            "format", "kmsKeyName", "location", "mavenConfig", "mode", "project", "remoteRepositoryConfig", "repositoryId",
        ),
        sets=("cleanupPolicies",),
        outputs={"name": "{repositoryId}", "registryUri": "{location}-docker.pkg.dev/{project}/{repositoryId}"},
    ),
    Row(
        "gcp:storage/bucket:Bucket", id="{name}",
        replaces=("customPlacementConfig.dataLocations", "enableObjectRetention", "hierarchicalNamespace", "location",
            "name", "project"),
        allowed={"publicAccessPrevention": ("inherited", "enforced")},
        outputs={"url": "gs://{name}", "selfLink": "https://www.googleapis.com/storage/v1/b/{name}"},
    ),
    Row(
        "gcp:storage/bucketObject:BucketObject", id="{bucket}-{name}",
        replaces=(
            "bucket", "cacheControl", "contentDisposition", "contentEncoding", "contentLanguage", "contentType",
            "customerEncryption",
            "forceEmptyContentType", "kmsKeyName", "metadata", "name", "source", "storageClass",
        ),
    ),
)  # fmt: skip
