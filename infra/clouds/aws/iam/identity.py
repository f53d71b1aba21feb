"""Makes the roles of rights.py.

    role = identity.role(part, "ebb-dev", "autoscaler")
    role = identity.role(part, "ebb-dev", "researcher", researchers=[...], cluster=control.arn)

Whoever uses the `arn` of a role waits for all that the role may do, and goes before it: a control plane without its rights leaves
network interfaces behind when it is deleted.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from string import Formatter
from typing import Any

import pulumi
from pulumi_aws import iam

from infra.clouds.aws.iam import rights
from infra.clouds.aws.iam.rights import ROLES, Conditions
from infra.part import Part

__all__ = ["ROLES", "Role", "role"]

VERSION = "2012-10-17"  # of the policy language
Given = Mapping[str, Any]


class Role(iam.Role):
    """A role whose `arn` is there once its policies are attached. `policies`: what to depend on where the role is given whole."""

    policies: Sequence[pulumi.Resource] = ()

    @property
    def arn(self) -> pulumi.Output[str]:
        # Their URNs, and not their ids: a preview knows those, or it would take a new policy for a new role.
        return pulumi.Output.all(super().arn, *[policy.urn for policy in self.policies]).apply(lambda got: str(got[0]))


def role(
    part: Part,
    name: str,
    key: str,
    *,
    suffix: str = "",
    options: Collection[str] = (),
    **given: pulumi.Input[str] | Sequence[pulumi.Input[str]],
) -> Role:
    """A role of the table, with its policies. `suffix`: of its name, where there are several; `options`: the settings that are
    on, of those that policies want; `given`: the words in braces that the table asks for beside name and stack."""
    spec = ROLES[key]
    words = {"name": name, "stack": name.removeprefix("ebb-"), **given}
    assert _asked(spec) <= set(words), f"role {key!r} wants {sorted(_asked(spec) - set(words))}: give them as keyword arguments"
    called = f"{name}-{key}{suffix}"
    made = Role(
        called,
        description=f"Ebb: {spec.who}",
        assume_role_policy=_text(lambda filled: [trust(spec, filled)], words),
        tags={"Name": called},
        opts=part.child(),
    )
    opts = pulumi.ResourceOptions(parent=made)
    attached: list[pulumi.Resource] = [
        iam.RolePolicyAttachment(
            f"{called}-{policy.name}", role=made.name, policy_arn=f"arn:aws:iam::aws:policy/{policy.name}", opts=opts
        )
        for policy in spec.managed
        if not policy.only_with or policy.only_with in options
    ]
    if spec.statements:
        own = _text(lambda filled: [statement(one, filled) for one in spec.statements], words)
        attached.append(iam.RolePolicy(called, role=made.name, policy=own, opts=opts))
    made.policies = attached
    return made


def instance_profile(part: Part, name: str, key: str, made: Role) -> iam.InstanceProfile:
    """The form in which EC2 gives a role to a machine; EKS makes that of managed node groups itself."""
    return iam.InstanceProfile(f"{name}-{key}", role=made.name, opts=part.child(depends_on=made.policies))


def _asked(spec: rights.Role) -> set[str]:
    """The words in braces."""
    conditions = (spec.conditions, *(one.conditions for one in spec.statements))
    pairs = [pair for found in conditions for test in found.values() for pair in test.items()]
    texts = [text for key, value in pairs for text in (key, *([value] if isinstance(value, str) else value))]
    texts += [spec.principals, *(resource for one in spec.statements for resource in one.resources)]
    return {word for text in texts for _, word, _, _ in Formatter().parse(text) if word}


def _text(statements: Any, words: Given) -> pulumi.Output[str]:
    return pulumi.Output.all(**words).apply(lambda filled: json.dumps({"Version": VERSION, "Statement": statements(filled)}))


def trust(spec: rights.Role, words: Given) -> dict[str, Any]:
    """The trust policy of a role."""
    who = {"Service": spec.service} if spec.service else {"AWS": _fill(spec.principals, words)}
    return {"Effect": "Allow", "Principal": who, "Action": list(spec.actions), **_if(spec.conditions, words)}


def statement(spec: rights.Statement, words: Given) -> dict[str, Any]:
    """A statement of the table, in the language of policies."""
    filled = [_fill(one, words) for one in spec.resources]
    resources = [arn for one in filled for arn in (one if isinstance(one, list) else [one])]
    return {"Effect": "Allow", "Action": list(spec.actions), "Resource": resources, **_if(spec.conditions, words)}


def _if(conditions: Conditions, words: Given) -> dict[str, Any]:
    filled = {
        test: {_fill(key, words): _fill(value, words) for key, value in pairs.items()} for test, pairs in conditions.items()
    }
    return {"Condition": filled} if filled else {}


def _fill(text: str | tuple[str, ...], words: Given) -> Any:
    """The words in braces; one that stands alone may be a list."""
    if not isinstance(text, str):
        return [_fill(one, words) for one in text]
    alone = words.get(text.strip("{}")) if text.startswith("{") else None
    return list(alone) if isinstance(alone, list | tuple) else text.format(**words)
