"""The mock of pulumi-resource-aws: checks inputs as AWS's API models would, says what replaces, makes up what AWS would answer.

What it knows of a type is one row of tables/ (kind.py says how to read one). A type without a row is refused: it is to be
reviewed and added, not guessed. What replaces was compared with the schema of terraform-provider-aws v6.58.0, attribute by
attribute, and what is deleted first with pulumi-aws; both are somewhat older than or not the very version of the installed SDK:
tables/aws.py says what was read, and what not.

Not proven by it, beside what tabled.py says: patterns that Python's re does not know (most of EC2's values have none at all);
that two policies are the same in other words (the real provider sees it, here they differ); what is inside actions and targets
of a FIS template, and inside rules that a security group carries itself; functions other than those of ANSWERS.
"""

from collections.abc import Callable, Mapping
from typing import Any

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.kind import ACCOUNT, PARTITION
from testing.pulumi.mocks.package import Asked, MockError, Object
from testing.pulumi.mocks.rows import Reviewed
from testing.pulumi.mocks.tabled import DEFAULTS, Tabled
from testing.pulumi.mocks.tables.aws import TYPES
from testing.pulumi.mocks.wheel import Property

IMAGE_BYTES = 3_500_000_000
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


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


__all__ = ["DEFAULTS", "Aws", "package"]


class Aws(Tabled):
    """One configured provider: its region and default tags go into every answer."""

    needed = ("region",)
    lower_case = ("aws:s3/", "aws:ecr/")
    known_in_preview = ("tagsAll", "region")

    def __init__(self) -> None:
        super().__init__("aws", TYPES)

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        """EKS refuses changes of a node group that is degraded, as a stack has it whose state a test has made so."""
        if asked.token == NODE_GROUP and outputs.get("status") == "DEGRADED" and not preview:
            raise MockError(
                f"updating EKS Node Group ({asked.name}) config: operation error EKS: UpdateNodegroupConfig, "
                "ResourceInUseException: Nodegroup cannot be updated as it is currently not in Active State"
            )
        return super().update(asked, outputs, old, new, preview=preview)

    @property
    def _region(self) -> str:
        return str(self.settings.get("region") or "us-east-1")

    def further_changes(self, outputs: Object, new: Object, changes: Mapping[str, str]) -> Mapping[str, Any]:
        """The provider's default tags have changed."""
        moved = "tagsAll" in outputs and outputs["tagsAll"] != self._all_tags(new)
        return {"tagsAll": "update"} if moved and not any(path.startswith("tags") for path in changes) else {}

    def own_outputs(self, row: Reviewed, given: Object) -> Object:
        own = {"tagsAll": self._all_tags(given), "region": given.get("region", self._region)}
        return {name: value for name, value in own.items() if name in wheel.outputs_of(row.token)}

    def own_facts(self) -> dict[str, str]:
        return {"region": self._region, "account": ACCOUNT}

    def made_up(self, name: str, output: Property, facts: Mapping[str, str]) -> Any:
        if output.kind == "string" and (name == "arn" or name.endswith("Arn")):
            return f"arn:aws:mock:{facts['region']}:{ACCOUNT}:{name}/{facts['id']}"
        return super().made_up(name, output, facts)

    def invoke(self, token: str, arguments: Object) -> Object:
        return answer(token, arguments, self._region)

    def _all_tags(self, given: Object) -> Any:
        tags = given.get("tags") or {}
        default = (self.settings.get("defaultTags") or {}).get("tags")
        return {**(default if isinstance(default, dict) else {}), **tags} if isinstance(tags, dict) else tags


def package() -> Aws:
    return Aws()
