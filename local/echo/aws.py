"""The echo of pulumi-resource-aws: checks inputs as AWS's API models would, says what replaces, makes up what AWS would answer.

What it knows of a type is one row of tables/ (kind.py says how to read one). A type without a row is refused: it is to be
reviewed and added, not guessed. What replaces was compared with the schema of terraform-provider-aws v6.58.0, attribute by
attribute, and what is deleted first with pulumi-aws; both are somewhat older than or not the very version of the installed SDK:
tables/__init__.py says what was read, and what not.

Not proven by it: rules between properties; patterns that Python's re does not know (most of EC2's values have none at all); what
the provider checks or fills in by itself beyond `allowed`, the lengths of made-up names among it; that two policies are the same
in other words (the real provider sees it, here they differ); that a property which AWS fills in by itself stays as it is when a
program gives it up or names the value that it has anyway (here both are changes, and may replace); order in lists of objects that
AWS treats as sets, where the row does not say so; what is inside actions and targets of a FIS template, and inside rules that a
security group carries itself; functions other than those of lookups.py.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from local.echo import lookups, wheel
from local.echo.check import unknown_keys, wrong_inputs
from local.echo.kind import AwsType
from local.echo.lookups import ACCOUNT
from local.echo.package import UNKNOWN, Asked, Difference, EchoError, Failure, Object, is_unknown
from local.echo.tables import TYPES
from local.echo.wheel import Property
from local.pulumi.changes import compare

DEFAULTS = "__defaults"  # as the real provider: names of inputs that it filled in


class Aws:
    """One configured provider: its region and default tags go into every answer."""

    def __init__(self) -> None:
        self._region, self._default_tags = "us-east-1", dict[str, str]()
        self._names: dict[str, str] = {}

    def check_config(self, inputs: Object) -> list[Failure]:
        known = wheel.args_of("aws:index/provider:Provider")
        config = _decoded(inputs, known)
        failures = list(unknown_keys(config, known, ""))
        if "region" not in config:
            failures.append(Failure("region", "is missing: the provider is to be given the region that the stack is in"))
        return failures

    def configure(self, inputs: Object) -> None:
        config = _decoded(inputs, wheel.args_of("aws:index/provider:Provider"))
        self._region = str(config.get("region") or "us-east-1")
        tags = (config.get("defaultTags") or {}).get("tags")
        self._default_tags = dict(tags) if isinstance(tags, dict) else {}

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        kind = _row(asked.token)
        given = {key: value for key, value in inputs.items() if not key.startswith("__")}
        named, defaults = self._named(kind, asked, given, old)
        failures = list(wrong_inputs(kind, named))
        return {**named, DEFAULTS: defaults}, failures

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        kind = _row(asked.token)
        changes = compare(_in_order(kind, _visible(old)), _in_order(kind, _visible(new)))
        once = kind.sometimes(old, new) if kind.sometimes else ()
        replaces = tuple(path for path in changes if kind.replaced_by(_indexless(path)) or path.partition(".")[0] in once)
        tags = self._all_tags(_visible(new))
        if "tagsAll" in outputs and outputs["tagsAll"] != tags and not any(path.startswith("tags") for path in changes):
            changes["tagsAll"] = "update"  # the provider's default tags have changed
        # A resource whose name was given, not made up, cannot stand beside its successor (terraform-bridge, schema.go).
        fixed = kind.autoname in new and kind.autoname not in new.get(DEFAULTS, []) and kind.autoname != ""
        return Difference(changes, replaces, bool(replaces) and (kind.delete_first or fixed))

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        kind, given = _row(asked.token), _visible(inputs)
        facts = self._facts(kind, asked, given)
        made = self._computed(kind, given, facts)
        made |= {name: 1 for name in kind.counters}
        if preview:
            made = {
                name: value if name in ("tagsAll", "region") else _unknown(value, given.get(name)) for name, value in made.items()
            }
        return facts["id"], _merged(made, given)

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        kind, given = _row(asked.token), _visible(new)
        absent = {key for key in kind.properties if key not in given and not _always(kind, key)}
        kept = {key: value for key, value in outputs.items() if key not in absent}
        changed = compare(_in_order(kind, _visible(old)), _in_order(kind, given))
        loud = any(_indexless(path).partition(".")[0] not in kind.quiet for path in changed)
        grown = {name: UNKNOWN if preview else int(outputs.get(name, 0)) + 1 for name in (kind.counters if loud else ())}
        tags = {"tagsAll": self._all_tags(given)} if "tagsAll" in wheel.outputs_of(kind.token) else {}
        return {**_merged(kept, given), **grown, **tags}

    def invoke(self, token: str, arguments: Object) -> Object:
        return lookups.answer(token, arguments, self._region)

    def _named(self, kind: AwsType, asked: Asked, given: Object, old: Object) -> tuple[Object, list[str]]:
        """With a name made up if there is none. It stays as long as the resource; its successor gets another."""
        prefixed = any(key in given for key in (f"{kind.autoname}Prefix", "namePrefix"))
        if not kind.autoname or kind.autoname in given or prefixed:
            return given, []
        if kind.autoname in old.get(DEFAULTS, []):
            name = self._names[asked.urn] = str(old[kind.autoname])
        else:
            last = self._names.get(asked.urn, "")
            name = f"{asked.name[: kind.autoname_length - 8]}-{_hash(asked.urn, last)[:7]}"
            name = name.lower() if kind.token.startswith(("aws:s3/", "aws:ecr/")) else name
        return {**given, kind.autoname: name}, [kind.autoname]

    def _facts(self, kind: AwsType, asked: Asked, given: Object) -> dict[str, str]:
        """What templates may use. Made from the inputs, so that every run makes up the same."""
        digest = _hash(asked.urn, json.dumps(given, sort_keys=True))
        texts = {key: str(value) for key, value in given.items() if not isinstance(value, dict | list)}
        prefix = texts.get(f"{kind.autoname}Prefix") or texts.get("namePrefix")
        if prefix and kind.autoname:
            texts.setdefault(kind.autoname, f"{prefix}{digest[:8]}")
        facts = {
            **texts, "urnName": asked.name, "hash": digest[:17], "short": digest[:8], "region": self._region, "account": ACCOUNT,
            "uuid": f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}",
        }  # fmt: skip
        facts["id"] = (kind.id or "{urnName}-{short}").format_map(_Missing(facts))
        return facts

    def _computed(self, kind: AwsType, given: Object, facts: dict[str, str]) -> Object:
        """All that the provider always sets and the program did not: by the table, else something of the right kind."""
        made: Object = {}
        for name, output in wheel.outputs_of(kind.token).items():
            if name in kind.outputs:
                made[name] = _filled(kind.outputs[name], facts)
            elif name == kind.autoname and name not in given:
                made[name] = facts[name]
            elif output.required and name not in given and name not in kind.counters:
                made[name] = _made_up(name, output, facts)
        if "tagsAll" in made:
            made["tagsAll"] = self._all_tags(given)
        return made | ({"region": given.get("region", self._region)} if "region" in made else {})

    def _all_tags(self, given: Object) -> Any:
        tags = given.get("tags") or {}
        return {**self._default_tags, **tags} if isinstance(tags, dict) else tags


class _Missing(dict[str, str]):
    """A template may use an optional input: absent, it is an empty text."""

    def __missing__(self, key: str) -> str:
        return ""


def package() -> Aws:
    return Aws()


def _row(token: str) -> AwsType:
    if token not in TYPES:
        raise EchoError(
            f"{token} is not in the reviewed tables of local/echo/tables/: add a row that says by which API operations it is "
            "made and changed, and what replaces it."
        )
    return TYPES[token]


def _visible(value: Object) -> Object:
    return {key: item for key, item in value.items() if not key.startswith("__")}


def _in_order(kind: AwsType, value: Any, path: str = "") -> Any:
    """With sets sorted: the order in which a program names them is no difference."""
    if isinstance(value, dict):
        return {key: _in_order(kind, item, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(value, list):
        items = [_in_order(kind, item, path) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True)) if path in kind.sets else items
    return value


def _indexless(path: str) -> str:
    """The path of a property as the tables write it: without indices and without the keys of maps."""
    return re.sub(r"\[[^\]]*\]", "", path)


def _always(kind: AwsType, name: str) -> bool:
    """Whether the provider keeps the property in its outputs when the program stops setting it."""
    output = wheel.outputs_of(kind.token).get(name)
    return output is not None and output.required


def _decoded(inputs: Object, known: Mapping[str, Property]) -> Object:
    """A provider's configuration: the SDK sends all but texts as JSON."""
    result: Object = {}
    for key, value in inputs.items():
        is_json = isinstance(value, str) and not is_unknown(value) and key in known and known[key].kind != "string"
        result[key] = json.loads(value) if is_json else value
    return {key: value for key, value in result.items() if key != "version"}


def _filled(template: Any, facts: dict[str, str]) -> Any:
    if isinstance(template, str):
        return template.format_map(_Missing(facts))
    if isinstance(template, Mapping):
        return {key: _filled(value, facts) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [_filled(item, facts) for item in template]
    return template


def _merged(made: Object, given: Object) -> Object:
    """What the program gave, with what was made up beside it, in objects too: a cluster's own security group in its vpcConfig."""
    both = {key: {**made[key], **value} for key, value in given.items() if _objects(made.get(key), value)}
    return {**made, **given, **both}


def _unknown(value: Any, given: Any) -> Any:
    return dict.fromkeys(value, UNKNOWN) if _objects(value, given) else UNKNOWN


def _objects(one: object, other: object) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)


def _made_up(name: str, output: Property, facts: dict[str, str]) -> Any:
    """For outputs that no table speaks of: of the right kind, and never the same for two resources."""
    if output.kind == "string":
        is_arn = name == "arn" or name.endswith("Arn")
        return f"arn:aws:echo:{facts['region']}:{ACCOUNT}:{name}/{facts['id']}" if is_arn else f"{name}-{facts['short']}"
    return {"integer": 0, "number": 0.0, "boolean": False, "list": [], "map": {}, "object": {}}.get(output.kind, "")


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
