"""The few look-ups of pulumi_aws that the mock answers: those whose answer is the stack's own, or always the same."""

from collections.abc import Callable, Mapping

from testing.pulumi.mocks.package import MockError, Object

ACCOUNT = "123456789012"  # as in AWS's own documentation
PARTITION = "aws"
IMAGE_BYTES = 3_500_000_000


def answer(token: str, arguments: Object, region: str) -> Object:
    """Raises MockError for all others, with what to do instead."""
    if token not in ANSWERS:
        raise MockError(
            f"the program looks up {token} while it runs, and what that finds depends on the account and the day: put the value "
            f"into the stack's settings. (Answered are {', '.join(sorted(ANSWERS))}.)"
        )
    return ANSWERS[token](arguments, region)


def _caller(arguments: Object, region: str) -> Object:
    return {"accountId": ACCOUNT, "arn": f"arn:{PARTITION}:iam::{ACCOUNT}:user/mock", "id": ACCOUNT, "userId": "AIDAMOCK"}


def _partition(arguments: Object, region: str) -> Object:
    return {"dnsSuffix": "amazonaws.com", "id": PARTITION, "partition": PARTITION, "reverseDnsPrefix": "com.amazonaws"}


def _region(arguments: Object, region: str) -> Object:
    return {
        "description": region, "endpoint": f"ec2.{region}.amazonaws.com", "id": region, "name": region, "region": region,
    }  # fmt: skip


def _registry_password(arguments: Object, region: str) -> Object:
    return {
        "authorizationToken": "QVdTOm1vY2s=", "expiresAt": "2100-01-01T00:00:00Z", "id": region, "password": "mock",
        "proxyEndpoint": f"https://{ACCOUNT}.dkr.ecr.{region}.amazonaws.com", "region": region, "userName": "AWS",
    }  # fmt: skip


def _image(arguments: Object, region: str) -> Object:
    """By its digest, which only the stack that built it knows; the newest one would be another at every preview."""
    name, digest = arguments.get("repositoryName"), arguments.get("imageDigest")
    if not digest:
        raise MockError(f"aws:ecr/getImage:getImage is asked for {arguments}: give imageDigest, or every push changes the stack.")
    registry = f"{ACCOUNT}.dkr.ecr.{region}.amazonaws.com"
    return {
        "id": digest, "imageDigest": digest, "imagePushedAt": 1767225600, "imageSizeInBytes": IMAGE_BYTES, "imageTags": [],
        "imageUri": f"{registry}/{name}@{digest}", "region": region, "registryId": ACCOUNT, "repositoryName": name,
    }  # fmt: skip


ANSWERS: Mapping[str, Callable[[Object, str], Object]] = {
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _region,
    "aws:ecr/getAuthorizationToken:getAuthorizationToken": _registry_password,
    "aws:ecr/getImage:getImage": _image,
}
