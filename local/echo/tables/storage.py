"""File systems and backups: EFS, FSx for Lustre, the lifecycle manager of snapshots."""

from collections.abc import Mapping
from typing import Any

from local.echo.kind import AwsType

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


def _shrunk(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """A file system grows in place, if it is not of the first kind, and never shrinks (tf, lustre_file_system.go)."""
    before, after = (int(inputs.get("storageCapacity") or 0) if _known(inputs) else 0 for inputs in (old, new))
    fixed = new.get("deploymentType", "SCRATCH_1") == "SCRATCH_1"
    return ("storageCapacity",) if after < before or (fixed and after != before) else ()


def _known(inputs: Mapping[str, Any]) -> bool:
    return str(inputs.get("storageCapacity", "")).isdigit()


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
        delete_first=True,  # pulumi-aws, resources.go: one per zone
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
        # tf, lustre_file_system.go: ForceNew, though UpdateFileSystem takes them (it changes them for other kinds of systems).
        replaces=("backupId", "storageType", "perUnitStorageThroughput", "fileSystemTypeVersion", "importedFileChunkSize"),
        sets=("securityGroupIds",), sometimes=_shrunk,
        allowed={"perUnitStorageThroughput": ("12", "40", "50", "100", "125", "200", "250", "500", "1000")},  # tf
        outputs={
            "arn": FSX + ":file-system/{id}", "dnsName": "{id}.fsx.{region}.amazonaws.com", "mountName": "{short}",
            "networkInterfaceIds": ["eni-{hash}"], "ownerId": "{account}", "vpcId": "vpc-{hash}",
        },
    ),
    AwsType(
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation", create="fsx/CreateDataRepositoryAssociation",
        updates=("UpdateDataRepositoryAssociation", "TagResource"), delete="DeleteDataRepositoryAssociation", id="dra-{hash}",
        members={"deleteDataInFilesystem": "DeleteDataRepositoryAssociation:DeleteDataInFileSystem"},
        updated=("batchImportMetaDataOnCreate",),  # tf, data_repository_association.go: no ForceNew; a change does nothing
        sets=("s3.autoImportPolicy.events", "s3.autoExportPolicy.events"),
        outputs={"arn": FSX + ":association/{fileSystemId}/{id}", "associationId": "{id}"},
    ),
    AwsType(
        "aws:dlm/lifecyclePolicy:LifecyclePolicy", create="dlm/CreateLifecyclePolicy",
        updates=("UpdateLifecyclePolicy", "TagResource"), delete="DeleteLifecyclePolicy", id="policy-{hash}",
        members={"policyDetails.schedules.archiveRule.archiveRetainRule": "RetainRule"},
        outputs={"arn": "arn:aws:dlm:{region}:{account}:policy/{id}"},
    ),
)  # fmt: skip
