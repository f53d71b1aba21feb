"""Images: registries and builds."""

from testing.pulumi.mocks.kind import AwsType

ROWS = (
    AwsType(
        "aws:ecr/repository:Repository", create="ecr/CreateRepository",
        updates=("PutImageTagMutability", "PutImageScanningConfiguration", "TagResource"), delete="DeleteRepository",
        autoname="name", autoname_length=256, id="{name}",
        members={"name": "repositoryName", "encryptionConfigurations": "encryptionConfiguration", "forceDelete": None},
        outputs={
            "arn": "arn:aws:ecr:{region}:{account}:repository/{name}", "registryId": "{account}",
            "repositoryUrl": "{account}.dkr.ecr.{region}.amazonaws.com/{name}",
        },
    ),
    AwsType(
        "aws:ecr/lifecyclePolicy:LifecyclePolicy", create="ecr/PutLifecyclePolicy", delete="DeleteLifecyclePolicy",
        id="{repository}", members={"repository": "repositoryName", "policy": "lifecyclePolicyText"},
        delete_first=True,  # pulumi-aws
        outputs={"registryId": "{account}"},
    ),
    AwsType(
        "aws:codebuild/project:Project", create="codebuild/CreateProject", updates=("UpdateProject",),
        delete="DeleteProject", autoname="name", id="arn:aws:codebuild:{region}:{account}:project/{name}",
        members={
            "buildTimeout": "timeoutInMinutes", "queuedTimeout": "queuedTimeoutInMinutes",
            "projectVisibility": "UpdateProjectVisibility:projectVisibility",
            "resourceAccessRole": "UpdateProjectVisibility:resourceAccessRole",
        },
        updated=("tags",),  # UpdateProject takes them
        sets=("vpcConfig.securityGroupIds", "vpcConfig.subnets"),
        outputs={"arn": "{id}", "badgeUrl": "", "publicProjectAlias": ""},
    ),
)  # fmt: skip
