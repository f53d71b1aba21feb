"""The properties that a type has: read from the text of its installed SDK, whose classes are made from the provider's schema.

    args_of("aws:ec2/subnet:Subnet")["cidrBlock"]        # Property(kind="string", required=False)
    outputs_of("aws:ec2/subnet:Subnet")["arn"]           # Property(kind="string", required=True): the provider always sets it

The SDK is that of the token's package: aws is pulumi_aws. Read as text because importing a whole module of it takes seconds, and
one class is wanted. Lazy and cached.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path

KINDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_PARAMETER = re.compile(r"^ +(\w+): (.+?)( = None)?,?$", re.MULTILINE)
_GETTER = re.compile(
    r'@pulumi\.getter(?:\(name="(\w+)"\))?\n(?:    @_utilities\.deprecated\(.*\)\n)?    def (\w+)\(self\) -> (.+):\n'
)


@dataclass(frozen=True)
class ClassPath:
    """The place of a class: pulumi_aws, ec2, SubnetArgs."""

    sdk: str
    module: str
    name: str


@dataclass(frozen=True)
class Property:
    """`kind`: string, integer, number, boolean, list, map, object or any."""

    kind: str
    required: bool = False
    item: "Property | None" = None  # of a list or map
    fields: "ClassPath | None" = None  # of an object: its class


def args_of(token: str) -> Mapping[str, Property]:
    """Input properties by camelCase name. Raises KeyError if the installed SDK has no such type."""
    place, file = _place(token), _file_of(token)
    longer = f"{place.name}InitArgs"
    clash = f"class {longer}:" in _text(place.sdk, place.module, file)  # where a nested class has the shorter name
    return _inputs_of_class(replace(place, name=longer if clash else f"{place.name}Args"), file)


def fields_of(place: ClassPath) -> Mapping[str, Property]:
    """The same of a nested class."""
    return _inputs_of_class(place, "_inputs")


@cache
def settings_of(package: str) -> frozenset[str]:
    """Names of the settings of an SDK's provider class."""
    text = _text(package, "index", "provider").partition("class ProviderArgs:")[2].partition("\nclass ")[0]
    return frozenset(name or snake for name, snake, _ in _GETTER.findall(text))


@cache
def outputs_of(token: str) -> Mapping[str, Property]:
    """Output properties; `required` ones are always set by the provider, if not by an input."""
    place = _place(token)
    text = _class(place, _file_of(token))
    return {name or snake: _property(kinds, place) for name, snake, kinds in _GETTER.findall(text)}


@cache
def _inputs_of_class(place: ClassPath, file: str) -> Mapping[str, Property]:
    text = _class(place, file)
    camel = {snake: given or snake for given, snake, _ in _GETTER.findall(text)}
    header = text.partition("def __init__(__self__")[2].partition("):\n")[0]
    return {
        camel.get(snake, snake): _property(kinds, place, required=not default)
        for snake, kinds, default in _PARAMETER.findall(header + ",")
    }


def _place(token: str) -> ClassPath:
    package, where, kind = token.split(":")
    module = where.replace(".sh/", "/") if package == "kubernetes" else where.partition("/")[0]  # helm.sh/v3 is helm/v3
    return ClassPath(f"pulumi_{package.replace('-', '_')}", module, kind)


def _file_of(token: str) -> str:
    """aws:ec2/vpcEndpoint:VpcEndpoint is in vpc_endpoint.py, gcp:projects/iAMMember:IAMMember in iam_member.py; the modules of
    Kubernetes are called as their classes."""
    if token.startswith("kubernetes:"):
        return token.rpartition(":")[2]
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", token.rpartition(":")[2])
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def _class(place: ClassPath, file: str) -> str:
    """The text of one class."""
    text = _text(place.sdk, place.module, file)
    start = re.search(rf"^class {place.name}(\(.*\))?:$", text, re.MULTILINE)
    if start is None:
        raise KeyError(f"{place.sdk} has no {place.module}.{place.name}")
    end = re.compile(r"^(class |@pulumi\.|if not MYPY)", re.MULTILINE).search(text, start.end())
    return text[start.start() : end.start() if end else len(text)]


@cache
def _text(package: str, module: str, file: str) -> str:
    spec = find_spec(package)  # does not import it
    assert spec is not None, f"{package} is in requirements.txt"
    assert spec.origin is not None, spec
    path = Path(spec.origin).parent / ("" if module == "index" else module) / f"{file}.py"
    if not path.exists():
        raise KeyError(f"{package} has no {module}/{file}.py")
    return path.read_text()


def _property(annotation: str, place: ClassPath, *, required: bool | None = None) -> Property:
    """From a type such as pulumi.Input[Optional[Sequence[pulumi.Input['NodeGroupTaintArgs']]]]."""
    inner, optional = annotation.strip(), False
    while match := re.fullmatch(r"(pulumi\.Input|pulumi\.Output|Optional|pulumi\.InputType)\[(.*)\]", inner):
        optional |= match[1] == "Optional"
        inner = match[2]
    needed = not optional if required is None else required
    if match := re.fullmatch(r"Sequence\[(.*)\]", inner):
        return Property("list", needed, _property(match[1], place))
    if match := re.fullmatch(r"Mapping\[str, (.*)\]", inner):
        return Property("map", needed, _property(match[1], place))
    if match := re.fullmatch(r"'(?:outputs\.(\w+)|(\w+Args))'", inner):
        return Property("object", needed, fields=replace(place, name=match[1] or match[2]))
    if re.fullmatch(r"'\w+'", inner) or (inner.startswith("Union[") and "str" in inner):  # an enum, alone or beside its texts
        return Property("string", needed)
    return Property(KINDS.get(inner.removeprefix("_builtins."), "any"), needed)
