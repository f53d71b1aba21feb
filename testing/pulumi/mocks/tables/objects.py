"""Buckets and logs."""

from testing.pulumi.mocks.kind import AwsType
from testing.pulumi.mocks.tables import conditions

_OBJECT = {
    "content": None, "contentBase64": None, "source": None, "sourceHash": None, "etag": None, "forceDestroy": None,
    "overrideProvider": None, "kmsKeyId": "SSEKMSKeyId", "websiteRedirect": "WebsiteRedirectLocation",
    "overrideProvider.defaultTags": None,
}  # fmt: skip

ROWS = (
    AwsType(
        "aws:s3/bucket:Bucket", create="s3/CreateBucket", updates=("PutBucketTagging",), delete="DeleteBucket", autoname="bucket",
        autoname_length=63, id="{bucket}",
        members={
            # Each of these is a resource of its own today; what the bucket still takes is put by another operation.
            "accelerationStatus": None, "bucketPrefix": "Bucket", "corsRules": None, "forceDestroy": None, "grants": None,
            "lifecycleRules": None, "logging": None, "objectLockConfiguration": None,
            "objectLockEnabled": "ObjectLockEnabledForBucket", "policy": "PutBucketPolicy:Policy",
            "replicationConfiguration": None, "requestPayer": None, "serverSideEncryptionConfiguration": None,
            "versioning": None, "website": None,
        },
        updated=("acl",), replaces=("objectLockConfiguration.objectLockEnabled",),  # tf, resourceBucket: ForceNew
        sets=("grants.permissions",),
        outputs={
            "arn": "arn:aws:s3:::{bucket}", "bucketDomainName": "{bucket}.s3.amazonaws.com", "bucketRegion": "{region}",
            "bucketRegionalDomainName": "{bucket}.s3.{region}.amazonaws.com", "hostedZoneId": "Z3AQBSTGFYJSTF",
        },
    ),
    AwsType(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", create="s3/PutPublicAccessBlock",
        updates=("PutPublicAccessBlock",), delete="DeletePublicAccessBlock", id="{bucket}",
        members={
            name: f"PublicAccessBlockConfiguration.{name[0].upper()}{name[1:]}"
            for name in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
        } | {"skipDestroy": None},
    ),
    AwsType(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        create="s3/PutBucketEncryption", updates=("PutBucketEncryption",), delete="DeleteBucketEncryption", id="{bucket}",
        members={
            "rules": "ServerSideEncryptionConfiguration.Rules",
            "rules.applyServerSideEncryptionByDefault.kmsMasterKeyId": "KMSMasterKeyID",
        },
        updated=("expectedBucketOwner",), sometimes=conditions.bucket_owner,
    ),
    AwsType(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", create="s3/PutBucketLifecycleConfiguration",
        updates=("PutBucketLifecycleConfiguration",), delete="DeleteBucketLifecycle", id="{bucket}",
        members={"rules": "LifecycleConfiguration.Rules", "timeouts": None},
    ),
    AwsType(
        "aws:s3/bucketVersioning:BucketVersioning", create="s3/PutBucketVersioning", updates=("PutBucketVersioning",),
        id="{bucket}", replaces=("bucket",),  # the identity: versioning has no delete operation
        updated=("expectedBucketOwner",), sometimes=conditions.bucket_owner,
        members={"versioningConfiguration.mfaDelete": "MFADelete"},
    ),
    AwsType(
        "aws:s3/bucketPolicy:BucketPolicy", create="s3/PutBucketPolicy", updates=("PutBucketPolicy",),
        delete="DeleteBucketPolicy", id="{bucket}",
    ),
    AwsType(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls", create="s3/PutBucketOwnershipControls",
        updates=("PutBucketOwnershipControls",), delete="DeleteBucketOwnershipControls", id="{bucket}",
        members={"rule": "OwnershipControls.Rules"},
    ),
    AwsType(
        "aws:s3/bucketObjectv2:BucketObjectv2", create="s3/PutObject", updates=("PutObject", "PutObjectTagging"),
        delete="DeleteObject", id="{bucket}/{key}", members=_OBJECT,
        replaces=("bucket", "key"), updated=("bucketKeyEnabled",),
        outputs={"arn": "arn:aws:s3:::{bucket}/{key}", "versionId": "{short}"},
    ),
    AwsType(
        "aws:cloudwatch/logGroup:LogGroup", create="logs/CreateLogGroup",
        updates=("PutRetentionPolicy", "AssociateKmsKey", "PutLogGroupDeletionProtection", "TagResource"),
        delete="DeleteLogGroup", autoname="name", autoname_length=512, id="{name}",
        members={
            "name": "logGroupName", "namePrefix": "logGroupName", "retentionInDays": "PutRetentionPolicy:retentionInDays",
            "skipDestroy": None,
        },
        outputs={"arn": "arn:aws:logs:{region}:{account}:log-group:{name}"},
    ),
)  # fmt: skip
