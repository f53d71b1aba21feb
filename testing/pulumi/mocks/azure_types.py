"""One row of Azure's table: what of a type is derived from the installed pulumi_azure_native, and what the row says beside it.

Derived: what its id is made of (a change there is another resource), and the values that the SDK has an enumeration for. By hand:
`fixed`, names of properties whose change needs a new resource, of the type or of the objects right inside it.

What the real provider makes of those names is the rule of provider/pkg/provider/diff.go in
https://github.com/pulumi/pulumi-azure-native (read at 03707ff7fc10b70f7dd23ec847a3ce1e9264c124 and in a later version, which have
the same one), and AzureRow.forces does as it does, also where that surprises: an item of a list of texts replaces nothing, nor
does a block that comes or goes for what is inside it. What Azure then refuses, the program has to say by `replace_on_changes`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.package import Change
from testing.pulumi.mocks.rows import Row
from testing.pulumi.mocks.wheel import Property

NOT_OF_THE_ID = ("id", "expand")  # inputs that are no outputs, and yet no part of the id
_NAMED = re.compile(r'@pulumi\.getter\(name="(\w+)"\)\n    def (\w+)\(')
_ENUMERATION = re.compile(r"^ +(\w+): .*'(\w+)'\]*(?: = None)?[,)]?", re.MULTILINE)
_VALUE = re.compile(r'^    [A-Z_0-9]+ = "(.*)"$', re.MULTILINE)


@dataclass(frozen=True)
class AzureRow(Row):
    """`fixed`: names of properties, not paths, which is how the provider has them. All else as in Row, but that `replaces` is
    not used."""

    fixed: tuple[str, ...] = ()
    autoname: str = ""

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """The inputs that the id is made of."""
        outputs = wheel.outputs_of(self.token)
        return tuple(sorted(name for name in self.properties if name not in outputs and name not in NOT_OF_THE_ID))

    @cached_property
    def forcing(self) -> frozenset[str]:
        """Paths whose change needs a new resource: parts of the id, properties, and properties one level further down."""
        own = {*self.identity, *(set(self.properties) & set(self.fixed))}
        return frozenset(own | {path for name, one in self.properties.items() for path in _below(name, one, self.fixed)})

    def forces(self, path: str, change: Change) -> bool:
        """Of a change as compare() has it, with indices: the property itself, or a value inside an object that is one."""
        plain = re.sub(r"\[\d+\]", "[]", path)
        steps = plain.split(".")
        above = {".".join(steps[:depth]) for depth in range(1, len(steps))}
        return plain in self.forcing or (change == "update" and bool(above & self.forcing))


class Values(Mapping[str, tuple[str, ...]]):
    """Path of an input -> the values of its enumeration. Looked up one by one: types of networks contain each other."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __getitem__(self, path: str) -> tuple[str, ...]:
        """Raises KeyError where there is none."""
        module, kind = self._token.split(":")[1:]
        known, file, name = wheel.args_of(self._token), wheel._file_of(self._token), kind
        *parents, last = path.split(".")
        for parent in parents:
            one = known[parent]
            while one.item:
                one = one.item
            if one.fields is None:
                raise KeyError(path)
            known, file, name = wheel.fields_of(one.fields), "_inputs", one.fields.name
        enumeration = _enumerations(module, file, name if file == "_inputs" else f"{name}Args").get(last)
        if enumeration is None:
            raise KeyError(path)
        return _values(module, enumeration)

    def __iter__(self) -> Iterator[str]:
        """Those of the type itself."""
        return (name for name in wheel.args_of(self._token) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _below(name: str, one: Property, wanted: Collection[str]) -> Iterator[str]:
    """Paths of the wanted properties of an object, or of the objects in a list."""
    path, inner = (f"{name}[]", one.item) if one.kind == "list" and one.item else (name, one)
    if inner.fields:
        yield from (f"{path}.{known}" for known in wheel.fields_of(inner.fields) if known in wanted)


@cache
def _enumerations(module: str, file: str, name: str) -> Mapping[str, str]:
    """Property of a class -> the enumeration of its values."""
    text = _text(module, file)
    start = re.search(rf"^class {name.removesuffix('Args')}(Init)?Args:$", text, re.MULTILINE)
    if start is None:
        return {}
    body = text[start.end() :].partition("\nclass ")[0]
    camel = {snake: given for given, snake in _NAMED.findall(body)}
    header = body.partition("def __init__(__self__")[2].partition("):\n")[0] + ","
    found = {camel.get(snake, snake): kind for snake, kind in _ENUMERATION.findall(header)}
    return {
        property: kind for property, kind in found.items() if f"class {kind}(_builtins.str, Enum):" in _text(module, "_enums")
    }


@cache
def _values(module: str, name: str) -> tuple[str, ...]:
    text = _text(module, "_enums").partition(f"class {name}(_builtins.str, Enum):")[2]
    return tuple(_VALUE.findall(text.partition("\n\n\n")[0]))


@cache
def _text(module: str, file: str) -> str:
    spec = find_spec("pulumi_azure_native")  # does not import it
    assert spec is not None, "pulumi-azure-native is in requirements-azure.txt"
    assert spec.origin is not None, spec
    return (Path(spec.origin).parent / module / f"{file}.py").read_text()
