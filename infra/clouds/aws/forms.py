"""Texts of AWS that have a form, and values that AWS has lists of. Sources: the botocore models 1.44.5, and the pages named."""

from typing import Annotated, Literal

from infra.config import Form, OneOf

# ARNs here are of the partition `aws`: China and the government's regions have others.
Region = Annotated[str, Form(r"(?!cn-|us-gov-|us-iso)[a-z]{2}(-[a-z]+)+-\d", "a region such as us-west-2, not cn- or us-gov-")]
AccountId = Annotated[str, Form(r"\d{12}", "12 digits, in quotes")]
Cidr = Annotated[str, Form(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}", "a range of IPv4 addresses such as 198.51.100.0/24")]
SubnetId = Annotated[str, Form(r"subnet-[0-9a-f]{8,17}", "a subnet's id such as subnet-0123456789abcdef0")]
VpcId = Annotated[str, Form(r"vpc-[0-9a-f]{8,17}", "a VPC's id such as vpc-0123456789abcdef0")]
FileSystemId = Annotated[str, Form(r"fs-[0-9a-f]{8,40}", "a file system's id such as fs-0123456789abcdef0")]
ReservationId = Annotated[str, Form(r"cr-[0-9a-f]{8,17}", "a capacity reservation's id such as cr-0123456789abcdef0")]
Client = Annotated[
    str,
    Form(
        r"sg-[0-9a-f]{8,17}|\d{1,3}(\.\d{1,3}){3}/\d{1,2}",
        "a range such as 10.0.0.0/16, or a security group's id such as sg-0123456789abcdef0",
    ),
]
Bucket = Annotated[
    str, Form(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()/-]*)?", "s3://<bucket> or s3://<bucket>/<folder>")
]
VolumeFolder = Annotated[
    str,
    Form(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*", "a folder without / at its ends, such as ILSVRC/Data"),
]
MountedBucket = Annotated[
    str,
    Form(
        r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()/-]*[A-Za-z0-9!_.*'()-])?",
        "s3://<bucket> or s3://<bucket>/<folder>; a bucket of another cloud is not mounted, but jobs can copy it "
        "(`ebb submit --data`)",
    ),
]
Principal = Annotated[
    str,
    Form(
        r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+",
        "the ARN of an IAM role or user, such as arn:aws:iam::123456789012:role/platform (of a session: the role's)",
    ),
]
KeyArn = Annotated[
    str,
    Form(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[0-9a-f-]{36}", "the ARN of a KMS key, arn:aws:kms:<region>:<account>:key/<id>"
    ),
]
AlarmArn = Annotated[
    str,
    Form(
        r"arn:aws[a-z-]*:cloudwatch:[a-z0-9-]+:\d{12}:alarm:.+",
        "the ARN of a CloudWatch alarm, arn:aws:cloudwatch:<region>:<account>:alarm:<name>",
    ),
]
ServiceName = Annotated[
    str, Form(r"[a-z0-9]+([.-][a-z0-9]+)*", "the end of a service's name, such as ecr.api, ecr.dkr, sts, ec2")
]
AddOnVersion = Annotated[str, Form(r"v\d+\.\d+\.\d+-eksbuild\.\d+", "a version such as v1.2.3-eksbuild.4")]
AutoscalerVersion = Annotated[str, Form(r"v?\d+\.\d+\.\d+", "a version such as v1.35.0, of karpenter such as 1.14.1")]
Release = Annotated[
    str, Form(r"\d+\.\d+\.\d+-\d{8}", "a release such as 1.35.6-20260714 (https://github.com/awslabs/amazon-eks-ami/releases)")
]
ImageReference = Annotated[
    str,
    Form(
        r"[^\s:@]+(:\d+)?(/[^\s:@]+)*(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+(@sha256:[0-9a-f]{64})?)",
        "an image with a digest, name@sha256:<64 digits>, or at least a tag other than latest",
    ),
]

LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]  # eks LogType
LogDays = Literal[  # logs PutRetentionPolicy retentionInDays
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]  # fmt: skip
LustreThroughput = Literal[125, 250, 500, 1000]  # fsx PerUnitStorageThroughput, PERSISTENT_2 with SSD
# Those of eks AMITypes that the catalog's machines start from.
AmiType = Annotated[str, OneOf("AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA")]
AddOn = Annotated[
    str,
    OneOf(
        "vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-ebs-csi-driver", "aws-efs-csi-driver",
        "aws-fsx-csi-driver", "aws-mountpoint-s3-csi-driver", "metrics-server", "eks-node-monitoring-agent",
        "amazon-cloudwatch-observability",
    ),
]  # fmt: skip
# End of standard support, after which a version costs more (https://endoflife.date/amazon-eks, read 2026-11-21). Older ones are
# there already, newer ones have not been tried.
KUBERNETES = {"1.34": "2026-12-02", "1.35": "2027-03-27"}
