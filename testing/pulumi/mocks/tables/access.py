"""Identity and keys: IAM, KMS."""

from testing.pulumi.mocks.kind import AwsType

IAM = "arn:aws:iam::{account}"
STAMP = {"createDate": "2026-01-01T00:00:00Z"}

ROWS = (
    AwsType(
        "aws:iam/role:Role", create="iam/CreateRole",
        updates=("UpdateRole", "UpdateAssumeRolePolicy", "PutRolePermissionsBoundary", "TagRole"), delete="DeleteRole",
        autoname="name", autoname_length=64, id="{name}",
        members={
            "name": "RoleName", "namePrefix": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument",
            "forceDetachPolicies": None, "inlinePolicies": None, "inlinePolicies.name": "PutRolePolicy:PolicyName",
            "managedPolicyArns": "AttachRolePolicy:PolicyArn",
        },
        updated=("assumeRolePolicy",),  # UpdateAssumeRolePolicy calls it PolicyDocument
        sets=("managedPolicyArns",),
        outputs={"arn": IAM + ":role/{name}", "uniqueId": "AROA{short}", **STAMP},
    ),
    AwsType(
        "aws:iam/rolePolicy:RolePolicy", create="iam/PutRolePolicy", updates=("PutRolePolicy",), delete="DeleteRolePolicy",
        autoname="name", autoname_length=128, id="{role}:{name}",
        members={"name": "PolicyName", "namePrefix": "PolicyName", "role": "RoleName", "policy": "PolicyDocument"},
    ),
    AwsType(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment", create="iam/AttachRolePolicy", delete="DetachRolePolicy",
        id="{role}-{short}", members={"role": "RoleName"},
        delete_first=True,  # pulumi-aws: made before, it would be the one that is then deleted
    ),
    AwsType(
        "aws:iam/policy:Policy", create="iam/CreatePolicy", updates=("CreatePolicyVersion", "TagPolicy"),
        delete="DeletePolicy", autoname="name", autoname_length=128, id=IAM + ":policy/{name}",
        members={
            "name": "PolicyName", "namePrefix": "PolicyName", "policy": "PolicyDocument", "delayAfterPolicyCreationInMs": None,
        },
        outputs={"arn": IAM + ":policy/{name}", "policyId": "ANPA{short}", "attachmentCount": 0},
    ),
    AwsType(
        "aws:iam/serviceLinkedRole:ServiceLinkedRole", create="iam/CreateServiceLinkedRole",
        updates=("UpdateRole", "TagRole"), delete="DeleteServiceLinkedRole",
        id=IAM + ":role/aws-service-role/{awsServiceName}/AWSServiceRoleForMock",
        outputs={"arn": "{id}", "name": "AWSServiceRoleForMock", "path": "/aws-service-role/{awsServiceName}/", **STAMP},
    ),
    AwsType(
        "aws:iam/instanceProfile:InstanceProfile", create="iam/CreateInstanceProfile", updates=("TagInstanceProfile",),
        delete="DeleteInstanceProfile", autoname="name", autoname_length=128, id="{name}",
        members={
            "name": "InstanceProfileName", "namePrefix": "InstanceProfileName", "role": "AddRoleToInstanceProfile:RoleName",
        },
        outputs={"arn": IAM + ":instance-profile/{name}", "uniqueId": "AIPA{short}", **STAMP},
    ),
    AwsType(
        "aws:kms/key:Key", create="kms/CreateKey",
        updates=("UpdateKeyDescription", "PutKeyPolicy", "TagResource"), id="{uuid}",
        members={
            "bypassPolicyLockoutSafetyCheck": "BypassPolicyLockoutSafetyCheck", "deletionWindowInDays": None,
            "enableKeyRotation": None, "isEnabled": None, "rotationPeriodInDays": "EnableKeyRotation:RotationPeriodInDays",
        },
        outputs={"arn": "arn:aws:kms:{region}:{account}:key/{id}", "keyId": "{id}"},
    ),
    AwsType(
        "aws:kms/alias:Alias", create="kms/CreateAlias", updates=("UpdateAlias",), delete="DeleteAlias", autoname="name",
        id="{name}", members={"name": "AliasName", "namePrefix": "AliasName"},
        outputs={
            "arn": "arn:aws:kms:{region}:{account}:{name}", "targetKeyArn": "arn:aws:kms:{region}:{account}:key/{targetKeyId}",
        },
    ),
)  # fmt: skip
