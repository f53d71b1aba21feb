"""The properties that an AWS type has: read from the text of the installed pulumi_aws, whose classes are made from its schema.

    args_of("aws:ec2/subnet:Subnet")["cidrBlock"]        # Property(kind="string", required=False)
    outputs_of("aws:ec2/subnet:Subnet")["arn"]           # Property(kind="string", required=True): the provider always sets it

Read as text because importing a whole module of pulumi_aws takes seconds, and one class is wanted. Lazy and cached.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

KINDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_PARAMETER = re.compile(r"^ +(\w+): (.+?)( = None)?,?$", re.MULTILINE)
_GETTER = re.compile(
    r'@pulumi\.getter(?:\(name="(\w+)"\))?\n(?:    @_utilities\.deprecated\(.*\)\n)?    def (\w+)\(self\) -> (.+):\n'
)


@dataclass(frozen=True)
class Property:
    """`kind`: string, integer, number, boolean, list, map, object or any."""

    kind: str
    required: bool = False
    item: "Property | None" = None  # of a list or map
    fields: tuple[str, str] | None = None  # of an object: (module of pulumi_aws, class)


def args_of(token: str) -> Mapping[str, Property]:
    """Input properties by camelCase name. Raises KeyError if the installed SDK has no such type."""
    module, kind = _place(token)
    file = _file_of(token)
    clash = f"class {kind}InitArgs:" in _text(module, file)  # where a nested class has the shorter name
    return _inputs_of_class(module, file, f"{kind}InitArgs" if clash else f"{kind}Args")


def fields_of(fields: tuple[str, str]) -> Mapping[str, Property]:
    """The same of a nested class."""
    return _inputs_of_class(fields[0], "_inputs", fields[1])


@cache
def settings_of(package: str) -> frozenset[str]:
    """Names of the settings of an SDK's provider class."""
    text = _text("index", "provider", package).partition("class ProviderArgs:")[2].partition("\nclass ")[0]
    return frozenset(name or snake for name, snake, _ in _GETTER.findall(text))


@cache
def outputs_of(token: str) -> Mapping[str, Property]:
    """Output properties; `required` ones are always set by the provider, if not by an input."""
    module, kind = _place(token)
    text = _class(module, _file_of(token), kind)
    return {name or snake: _property(kinds, module) for name, snake, kinds in _GETTER.findall(text)}


@cache
def _inputs_of_class(module: str, file: str, name: str) -> Mapping[str, Property]:
    text = _class(module, file, name)
    camel = {snake: given or snake for given, snake, _ in _GETTER.findall(text)}
    header = text.partition("def __init__(__self__")[2].partition("):\n")[0]
    return {
        camel.get(snake, snake): _property(kinds, module, required=not default)
        for snake, kinds, default in _PARAMETER.findall(header + ",")
    }


def _place(token: str) -> tuple[str, str]:
    _, where, kind = token.split(":")
    return where.partition("/")[0], kind


def _file_of(token: str) -> str:
    return re.sub(r"([A-Z])", r"_\1", token.split(":")[1].partition("/")[2]).lower()


def _class(module: str, file: str, name: str) -> str:
    """The text of one class."""
    text = _text(module, file)
    start = re.search(rf"^class {name}(\(.*\))?:$", text, re.MULTILINE)
    if start is None:
        raise KeyError(f"pulumi_aws has no {module}.{name}")
    end = re.compile(r"^(class |@pulumi\.|if not MYPY)", re.MULTILINE).search(text, start.end())
    return text[start.start() : end.start() if end else len(text)]


@cache
def _text(module: str, file: str, package: str = "pulumi_aws") -> str:
    spec = find_spec(package)  # does not import it
    assert spec is not None, f"{package} is in requirements.txt"
    assert spec.origin is not None, spec
    path = Path(spec.origin).parent / ("" if module == "index" else module) / f"{file}.py"
    if not path.exists():
        raise KeyError(f"{package} has no {module}/{file}.py")
    return path.read_text()


def _property(annotation: str, module: str, *, required: bool | None = None) -> Property:
    """From a type such as pulumi.Input[Optional[Sequence[pulumi.Input['NodeGroupTaintArgs']]]]."""
    inner, optional = annotation.strip(), False
    while match := re.fullmatch(r"(pulumi\.Input|pulumi\.Output|Optional|pulumi\.InputType)\[(.*)\]", inner):
        optional |= match[1] == "Optional"
        inner = match[2]
    needed = not optional if required is None else required
    if match := re.fullmatch(r"Sequence\[(.*)\]", inner):
        return Property("list", needed, _property(match[1], module))
    if match := re.fullmatch(r"Mapping\[str, (.*)\]", inner):
        return Property("map", needed, _property(match[1], module))
    if match := re.fullmatch(r"'(?:outputs\.)?(\w+)'", inner):
        return Property("object", needed, fields=(module, match[1]))
    if inner.startswith("Union[") and "str" in inner:
        return Property("string", needed)
    return Property(KINDS.get(inner.removeprefix("_builtins."), "any"), needed)
