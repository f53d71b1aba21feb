"""File systems and backups: EFS, FSx for Lustre, the lifecycle manager of snapshots."""

from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables import conditions

EFS = "arn:aws:elasticfilesystem:{region}:{account}"
FSX = "arn:aws:fsx:{region}:{account}"
_LUSTRE = {
    name: f"LustreConfiguration.{name[0].upper()}{name[1:]}"
    for name in (
        *("autoImportPolicy", "automaticBackupRetentionDays", "copyTagsToBackups", "dailyAutomaticBackupStartTime"),
        *("dataCompressionType", "dataReadCacheConfiguration", "deploymentType", "driveCacheType", "efaEnabled", "exportPath"),
        *("importPath", "importedFileChunkSize", "logConfiguration", "metadataConfiguration", "perUnitStorageThroughput"),
        *("rootSquashConfiguration", "throughputCapacity", "weeklyMaintenanceStartTime"),
    )
}

ROWS = (
    AwsType(
        "aws:efs/fileSystem:FileSystem", create="efs/CreateFileSystem", updates=("UpdateFileSystem", "TagResource"),
        delete="DeleteFileSystem", autoname="creationToken", autoname_length=64, id="fs-{hash}",
        members={
            "lifecyclePolicies": "PutLifecycleConfiguration:LifecyclePolicies",
            "protection": None, "protection.replicationOverwrite": "UpdateFileSystemProtection:ReplicationOverwriteProtection",
        },
        outputs={
            "arn": EFS + ":file-system/{id}", "dnsName": "{id}.efs.{region}.amazonaws.com", "ownerId": "{account}",
            "numberOfMountTargets": 0, "sizeInBytes": [{"value": 6144, "valueInIa": 0, "valueInStandard": 6144}],
        },
    ),
    AwsType(
        "aws:efs/mountTarget:MountTarget", create="efs/CreateMountTarget", updates=("ModifyMountTargetSecurityGroups",),
        delete="DeleteMountTarget", id="fsmt-{hash}", sets=("securityGroups",),
        delete_first=True,  # pulumi-aws: one per zone
        outputs={
            "dnsName": "{fileSystemId}.efs.{region}.amazonaws.com", "networkInterfaceId": "eni-{hash}", "ownerId": "{account}",
            "fileSystemArn": EFS + ":file-system/{fileSystemId}",
        },
    ),
    AwsType(
        "aws:efs/accessPoint:AccessPoint", create="efs/CreateAccessPoint", updates=("TagResource",),
        delete="DeleteAccessPoint", id="fsap-{hash}", members={
            "posixUser.secondaryGids": "SecondaryGids", "rootDirectory.creationInfo": "CreationInfo",
        },
        sets=("posixUser.secondaryGids",),
        outputs={
            "arn": EFS + ":access-point/{id}", "fileSystemArn": EFS + ":file-system/{fileSystemId}", "ownerId": "{account}",
        },
    ),
    AwsType(
        "aws:efs/backupPolicy:BackupPolicy", create="efs/PutBackupPolicy", updates=("PutBackupPolicy",), id="{fileSystemId}",
        replaces=("fileSystemId",),
    ),
    AwsType(
        "aws:efs/fileSystemPolicy:FileSystemPolicy", create="efs/PutFileSystemPolicy", updates=("PutFileSystemPolicy",),
        delete="DeleteFileSystemPolicy", id="{fileSystemId}",
    ),
    AwsType(
        "aws:fsx/lustreFileSystem:LustreFileSystem", create="fsx/CreateFileSystem",
        updates=("UpdateFileSystem", "TagResource"), delete="DeleteFileSystem", id="fs-{hash}",
        members={
            **_LUSTRE, "dataReadCacheConfiguration.size": "SizeGiB", "backupId": "CreateFileSystemFromBackup:BackupId",
            "finalBackupTags": "DeleteFileSystem:LustreConfiguration.FinalBackupTags",
            "skipFinalBackup": "DeleteFileSystem:LustreConfiguration.SkipFinalBackup",
        },
        # tf, resourceLustreFileSystem: ForceNew, though UpdateFileSystem takes some (it changes them for other kinds of systems).
        replaces=("backupId", "storageType", "importedFileChunkSize"),
        sets=("securityGroupIds", "rootSquashConfiguration.noSquashNids"), sometimes=conditions.lustre,
        allowed={"perUnitStorageThroughput": ("12", "40", "50", "100", "125", "200", "250", "500", "1000")},  # tf, the same
        outputs={
            "arn": FSX + ":file-system/{id}", "dnsName": "{id}.fsx.{region}.amazonaws.com", "mountName": "{short}",
            "networkInterfaceIds": ["eni-{hash}"], "ownerId": "{account}", "vpcId": "vpc-{hash}",
        },
    ),
    AwsType(
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", create="fsx/CreateDataRepositoryAssociation",
        updates=("UpdateDataRepositoryAssociation", "TagResource"), delete="DeleteDataRepositoryAssociation", id="dra-{hash}",
        members={"deleteDataInFilesystem": "DeleteDataRepositoryAssociation:DeleteDataInFileSystem"},
        updated=("batchImportMetaDataOnCreate",),  # tf, resourceDataRepositoryAssociation: no ForceNew; a change does nothing
        outputs={"arn": FSX + ":association/{fileSystemId}/{id}", "associationId": "{id}"},
    ),
    AwsType(
        "aws:dlm/lifecyclePolicy:LifecyclePolicy", create="dlm/CreateLifecyclePolicy",
        updates=("UpdateLifecyclePolicy", "TagResource"), delete="DeleteLifecyclePolicy", id="policy-{hash}",
        members={"policyDetails.schedules.archiveRule.archiveRetainRule": "RetainRule"},
        # tf, resourceLifecyclePolicy: ForceNew, though UpdateLifecyclePolicy takes it; no ForceNew, though it does not.
        replaces=("policyDetails.schedules.copyTags",), updated=("defaultPolicy",), sometimes=conditions.snapshot_policy,
        sets=(
            "policyDetails.eventSource.parameters.snapshotOwners", "policyDetails.schedules.fastRestoreRule.availabilityZones",
            "policyDetails.schedules.shareRule.targetAccounts",
        ),
        outputs={"arn": "arn:aws:dlm:{region}:{account}:policy/{id}"},
    ),
)  # fmt: skip
