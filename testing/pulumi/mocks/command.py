"""The mock of pulumi-resource-command: `command:local:Command` runs nothing; its stdout is what a build of images says.

What replaces: a changed trigger, unless there is an `update` command (pulumi-command 1.2, provider/common/inputs.go).
"""

import hashlib
import json

from testing.pulumi.kubernetes.changes import compare
from testing.pulumi.mocks.package import UNKNOWN, Asked, Difference, Failure, MockError, Object

TOKEN = "command:local:Command"  # noqa: S105 - a type token
INPUTS = {
    "create": str, "update": str, "delete": str, "triggers": list, "environment": dict, "dir": str, "interpreter": list,
    "stdin": str, "logging": str, "assetPaths": list, "archivePaths": list, "addPreviousOutputInEnv": bool,
}  # fmt: skip
LOGGING = ("none", "stdout", "stderr", "stdoutAndStderr")


class Command:
    def check_config(self, inputs: Object) -> list[Failure]:
        return [Failure(key, "is not a setting: the provider has none") for key in inputs if key != "version"]

    def configure(self, inputs: Object) -> None:
        pass

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        _known(asked.token)
        failures = [Failure(key, f"is not a property here; there are {', '.join(INPUTS)}") for key in inputs if key not in INPUTS]
        for key, kind in INPUTS.items():
            if key in inputs and inputs[key] != UNKNOWN and not isinstance(inputs[key], kind):
                failures.append(Failure(key, f"is {inputs[key]!r}, and must be a {kind.__name__}"))
        if inputs.get("logging") not in (None, UNKNOWN, *LOGGING):
            failures.append(Failure("logging", f"is {inputs['logging']!r}, and must be one of {', '.join(LOGGING)}"))
        return inputs, failures

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        changes = compare(old, new)
        replaces = () if new.get("update") else tuple(path for path in changes if path.startswith("triggers"))
        return Difference(changes, replaces)

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
        # The stack's one kind of command builds an image and answers like this (infra/clouds/aws/builds/codebuild.py).
        said = {"stdout": json.dumps({"digest": f"sha256:{digest}", "compressed_mb": 1.0}), "stderr": ""}
        return f"{asked.name}-{digest[:8]}", {**inputs, **(dict.fromkeys(said, UNKNOWN) if preview else said)}

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        return self.create(asked, new, preview=preview)[1]

    def invoke(self, token: str, arguments: Object) -> Object:
        raise MockError(f"{token} runs a command at every preview: use the resource {TOKEN}, which runs when something changes.")


def package() -> Command:
    return Command()


def _known(token: str) -> None:
    if token != TOKEN:
        raise MockError(f"{token} is not served by the mock: only {TOKEN} is.")
