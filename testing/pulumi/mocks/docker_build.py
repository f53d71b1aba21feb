"""The mock of pulumi-resource-docker-build: `docker-build:index:Image` builds nothing; its digest is one of its inputs.

Checked are the names of the properties, against the installed SDK. Nothing replaces an image but another provider
(pulumi-docker-build, provider/internal/image.go, diff: all is built anew in place).
"""

import hashlib
import json
from functools import cache
from importlib import import_module

from testing.pulumi.kubernetes.changes import compare
from testing.pulumi.mocks.package import UNKNOWN, Asked, Difference, Failure, MockError, Object

TOKEN = "docker-build:index:Image"  # noqa: S105 - a type token


class ImageMocks:
    def check_config(self, inputs: Object) -> list[Failure]:
        known = ("host", "registries", "version")
        return [Failure(key, f"is not a setting; there are {', '.join(known)}") for key in inputs if key not in known]

    def configure(self, inputs: Object) -> None:
        pass

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        if asked.token != TOKEN:
            raise MockError(f"{asked.token} is not served by the mock: only {TOKEN} is.")
        failures = [
            Failure(key, f"is not a property here; there are {', '.join(sorted(_properties()))}")
            for key in inputs
            if key not in _properties()
        ]
        return inputs, failures + ([] if "push" in inputs else [Failure("push", "is missing")])

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        return Difference(compare(old, new))

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        digest = f"sha256:{hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()}"
        tags = inputs.get("tags")
        name = str(tags[0]) if isinstance(tags, list) and tags else asked.name
        made = {"digest": digest, "ref": f"{name}@{digest}", "contextHash": digest[7:39]}
        return made["ref"], {**inputs, **(dict.fromkeys(made, UNKNOWN) if preview else made)}

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        return self.create(asked, new, preview=preview)[1]

    def invoke(self, token: str, arguments: Object) -> Object:
        raise MockError(f"the mock has no function {token}.")


@cache
def _properties() -> frozenset[str]:
    """Of the SDK's class; `push` and the like by their camelCase names."""
    kind = import_module("pulumi_docker_build").ImageArgs
    return frozenset(getattr(kind, name).fget._pulumi_name for name in dir(kind) if isinstance(getattr(kind, name), property))


def package() -> ImageMocks:
    return ImageMocks()
