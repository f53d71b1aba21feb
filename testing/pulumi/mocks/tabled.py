"""A provider over reviewed rows: it checks inputs, says what replaces, and makes up what the cloud would answer.

    Tabled("gcp", {row.token: row for row in ROWS}).create(asked, inputs, preview=False)

Inputs are held to the SDK's classes (names and kinds) and the API's model (values); a value that a preview does not know yet
passes, and `up` checks it again. What it knows of a type is one row (rows.py). A type without a row is refused: it is to be
reviewed and added, not guessed. What a provider does by itself beyond that (tags, labels) is in a class of its own, derived
from this one.

Not proven by it: rules between properties but those of `exactly_one`; what the provider checks or fills in by itself beyond
`allowed`, the lengths of made-up names among it; that a property which the cloud fills in by itself stays as it is when a program
gives it up or names the value that it has anyway (here both are changes, and may replace); order in lists that the cloud treats
as sets, where the row does not say so; functions other than those of `answers`.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from testing.pulumi.kubernetes.changes import compare
from testing.pulumi.mocks import wheel
from testing.pulumi.mocks.models import Shape, problem
from testing.pulumi.mocks.package import SIGNATURE, UNKNOWN, Asked, Difference, Failure, MockError, Object, is_unknown
from testing.pulumi.mocks.rows import Reviewed
from testing.pulumi.mocks.wheel import Property

DEFAULTS = "__defaults"  # as the real providers: names of inputs that they filled in
Answers = Mapping[str, Callable[[Object], Object]]


class Tabled:
    """One configured provider. `settings` are those of the provider resource."""

    needed: tuple[str, ...] = ()  # settings without which it would take what the shell has
    lower_case: tuple[str, ...] = ("",)  # tokens that begin so get names in lower case

    def __init__(self, package: str, rows: Mapping[str, Reviewed], answers: Answers | None = None) -> None:
        self._provider, self._rows, self._answers = f"{package}:index/provider:Provider", rows, answers or {}
        self.settings: Object = {}
        self._names: dict[str, str] = {}

    def check_config(self, inputs: Object) -> list[Failure]:
        known = wheel.args_of(self._provider)
        config = _decoded(inputs, known)
        failures = list(unknown_keys(config, known, ""))
        text = "is missing: the provider is to be given the {} that the stack is in"
        return failures + [Failure(key, text.format(key)) for key in self.needed if key not in config]

    def configure(self, inputs: Object) -> None:
        self.settings = _decoded(inputs, wheel.args_of(self._provider))

    def check(self, asked: Asked, inputs: Object, old: Object, seed: bytes) -> tuple[Object, list[Failure]]:
        row = self._row(asked.token)
        given = {key: value for key, value in inputs.items() if not key.startswith("__")}
        named, defaults = self._named(row, asked, given, old)
        return {**named, DEFAULTS: defaults}, list(wrong_inputs(row, named))

    def diff(self, asked: Asked, old: Object, outputs: Object, new: Object) -> Difference:
        row = self._row(asked.token)
        before, after = _visible(old), _visible(new)
        changes = compare(_in_order(row, before), _in_order(row, after))
        once = row.sometimes(old, new) if row.sometimes else ()
        replaces = tuple(
            path
            for path, change in changes.items()
            if path.partition(".")[0] in once or row.replaced_by(indexless(path), _whole(path, change, before, after))
        )
        changes.update(self.further_changes(outputs, after, changes))
        # A resource whose name was given, not made up, cannot stand beside its successor (terraform-bridge, schema.go).
        fixed = row.autoname in new and row.autoname not in new.get(DEFAULTS, []) and row.autoname != ""
        return Difference(changes, replaces, bool(replaces) and (row.delete_first or fixed))

    def create(self, asked: Asked, inputs: Object, *, preview: bool) -> tuple[str, Object]:
        row, given = self._row(asked.token), _visible(inputs)
        facts = self._facts(row, asked, given)
        made = self._computed(row, given, facts)
        made |= {name: 1 for name in row.counters}
        if preview:
            told = self.known_in_preview
            made = {name: value if name in told else _unknown(value, given.get(name)) for name, value in made.items()}
        return facts["id"], _merged(made, given)

    def update(self, asked: Asked, outputs: Object, old: Object, new: Object, *, preview: bool) -> Object:
        row, given = self._row(asked.token), _visible(new)
        absent = {key for key in row.properties if key not in given and not _always(row, key)}
        kept = {key: value for key, value in outputs.items() if key not in absent}
        changed = compare(_in_order(row, _visible(old)), _in_order(row, given))
        loud = any(indexless(path).partition(".")[0] not in row.quiet for path in changed)
        grown = {name: UNKNOWN if preview else int(outputs.get(name, 0)) + 1 for name in (row.counters if loud else ())}
        return {**_merged(kept, given), **grown, **self.own_outputs(row, given)}

    def invoke(self, token: str, arguments: Object) -> Object:
        """Raises MockError for what depends on the account and the day."""
        if token not in self._answers:
            raise MockError(
                f"the program looks up {token} while it runs, and what that finds depends on the account and the day: put the "
                f"value into the stack's settings. (Answered are {', '.join(sorted(self._answers)) or 'none'}.)"
            )
        return self._answers[token](arguments)

    # What a provider does by itself, for classes derived from this one.

    known_in_preview: tuple[str, ...] = ()

    def further_changes(self, outputs: Object, new: Object, changes: Mapping[str, str]) -> Mapping[str, Any]:
        """Changes of what the provider puts into outputs by itself."""
        return {}

    def own_outputs(self, row: Reviewed, given: Object) -> Object:
        """Outputs that follow from the inputs and the provider's settings."""
        return {}

    def own_facts(self) -> dict[str, str]:
        """Further values for templates."""
        return {}

    def made_up(self, name: str, output: Property, facts: Mapping[str, str]) -> Any:
        """For outputs that no table speaks of: of the right kind, and never the same for two resources."""
        if output.kind == "string":
            return f"{name}-{facts['short']}"
        return {"integer": 0, "number": 0.0, "boolean": False, "list": [], "map": {}, "object": {}}.get(output.kind, "")

    def _row(self, token: str) -> Reviewed:
        if token not in self._rows:
            raise MockError(
                f"{token} is not in the reviewed tables of testing/pulumi/mocks/tables/: add a row that says by which "
                f"API operations it is "
                "made and changed, and what replaces it."
            )
        return self._rows[token]

    def _named(self, row: Reviewed, asked: Asked, given: Object, old: Object) -> tuple[Object, list[str]]:
        """With a name made up if there is none. It stays as long as the resource; its successor gets another."""
        prefixed = any(key in given for key in (f"{row.autoname}Prefix", "namePrefix"))
        if not row.autoname or row.autoname in given or prefixed:
            return given, []
        if row.autoname in old.get(DEFAULTS, []):
            name = self._names[asked.urn] = str(old[row.autoname])
        else:
            last = self._names.get(asked.urn, "")
            name = f"{asked.name[: row.autoname_length - 8]}-{_hash(asked.urn, last)[:7]}"
            name = name.lower() if row.token.startswith(self.lower_case) else name
        return {**given, row.autoname: name}, [row.autoname]

    def _facts(self, row: Reviewed, asked: Asked, given: Object) -> dict[str, str]:
        """Facts that templates may use. Made from the inputs, so that every run makes up the same."""
        digest = _hash(asked.urn, json.dumps(given, sort_keys=True))
        texts = {key: str(value) for key, value in given.items() if not isinstance(value, dict | list)}
        prefix = texts.get(f"{row.autoname}Prefix") or texts.get("namePrefix")
        if prefix and row.autoname:
            texts.setdefault(row.autoname, f"{prefix}{digest[:8]}")
        facts = {
            **self.own_facts(), **texts, "urnName": asked.name, "hash": digest[:17], "short": digest[:8],
            "uuid": f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}",
        }  # fmt: skip
        facts["id"] = (row.id or "{urnName}-{short}").format_map(_Missing(facts))
        return facts

    def _computed(self, row: Reviewed, given: Object, facts: dict[str, str]) -> Object:
        """All that the provider always sets and the program did not: by the table, else something of the right kind."""
        made: Object = {}
        for name, output in wheel.outputs_of(row.token).items():
            if name in row.outputs:
                made[name] = _filled(row.outputs[name], facts)
            elif name == row.autoname and name not in given:
                made[name] = facts[name]
            elif output.required and name not in given and name not in row.counters:
                made[name] = self.made_up(name, output, facts)
        return made | {name: value for name, value in self.own_outputs(row, given).items() if name in made}


class _Missing(dict[str, str]):
    """A template may use an optional input: absent, it is an empty text."""

    def __missing__(self, key: str) -> str:
        return ""


def _visible(value: Object) -> Object:
    return {key: item for key, item in value.items() if not key.startswith("__")}


def _in_order(row: Reviewed, value: Any, path: str = "") -> Any:
    """With sets sorted: the order in which a program names them is no difference."""
    if isinstance(value, dict):
        return {key: _in_order(row, item, f"{path}.{key}".lstrip(".")) for key, item in value.items()}
    if isinstance(value, list):
        items = [_in_order(row, item, path) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True)) if path in row.sets else items
    return value


def indexless(path: str) -> str:
    """The path of a property as the tables write it: without indices and without the keys of maps."""
    return re.sub(r"\[[^\]]*\]", "", path)


def _whole(path: str, change: str, old: Object, new: Object) -> Any:
    """The value that came or went at a path as a whole; None where only a value changed."""
    found: Any = {"add": new, "delete": old}.get(change)
    for name, index in re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", path):
        if isinstance(found, list):
            found = found[int(index)] if index.isdigit() and int(index) < len(found) else None
        else:
            found = found.get(name or index.strip('"')) if isinstance(found, dict) else None
    return found


def _always(row: Reviewed, name: str) -> bool:
    """True if the provider keeps the property in its outputs when the program stops setting it."""
    output = wheel.outputs_of(row.token).get(name)
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


def _merged(made: Any, given: Any) -> Any:
    """The program's values, with what was made up beside it, inside objects and lists of them too: a cluster's own security
    group in its vpcConfig, a file system's address in its networks."""
    if isinstance(made, dict) and isinstance(given, dict):
        return {**made, **{key: _merged(made.get(key), value) for key, value in given.items()}}
    if isinstance(made, list) and isinstance(given, list) and all(isinstance(one, dict) for one in [*made, *given]):
        return [_merged(made[index], one) if index < len(made) else one for index, one in enumerate(given)]
    return given


def _unknown(value: Any, given: Any) -> Any:
    """Outputs that a preview does not know; of what the program gives in part, only the rest."""
    if isinstance(value, dict) and isinstance(given, dict):
        return dict.fromkeys(value, UNKNOWN)
    if isinstance(value, list) and isinstance(given, list):
        return [_unknown(one, {}) for one in value]
    return UNKNOWN


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


CLASSES = {"list": list, "map": dict, "object": dict}
NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True)
class PropertyPath:
    """`path` has no indices, as the tables know the property; `shown` has them, as people do."""

    kind: Reviewed
    path: str
    shown: str

    def below(self, key: str) -> "PropertyPath":
        return PropertyPath(self.kind, f"{self.path}.{key}".lstrip("."), f"{self.shown}.{key}".lstrip("."))

    def at(self, index: str) -> "PropertyPath":
        return PropertyPath(self.kind, self.path, f"{self.shown}[{index}]")


def wrong_inputs(kind: Reviewed, inputs: Mapping[str, Any]) -> Iterator[Failure]:
    """Everything that is wrong with a resource's inputs."""
    yield from _wrong_fields(PropertyPath(kind, "", ""), inputs, kind.properties)


def unknown_keys(value: Mapping[str, Any], known: Mapping[str, Property], where: str) -> Iterator[Failure]:
    for key in value:
        if key not in known and not key.startswith("__"):
            near = difflib.get_close_matches(key, known, n=3) or sorted(known)
            yield Failure(where + key, f"is not a property here; there are {', '.join(near)}")


def _wrong_fields(place: PropertyPath, value: Mapping[str, Any], known: Mapping[str, Property]) -> Iterator[Failure]:
    where = f"{place.shown}." if place.shown else ""
    yield from unknown_keys(value, known, where)
    for key, prop in known.items():
        if key in value:
            below = place.below(key)
            yield from _wrong(below, value[key], prop, place.kind.shape_of(below.path))
        elif prop.required:
            yield Failure(where + key, "is missing")
    one_of = place.kind.exactly_one.get(place.path, ())
    if one_of and sum(key in value for key in one_of) != 1:
        yield Failure(place.shown, f"needs exactly one of {', '.join(one_of)}")


def _wrong(place: PropertyPath, value: Any, prop: Property, shape: Shape | None) -> Iterator[Failure]:
    if is_unknown(value) or (isinstance(value, dict) and SIGNATURE in value):
        return
    if value in ("", [], {}) and not prop.required:
        return  # as if it were not there: the provider leaves empty values out of the call
    said = None if _is(value, prop) else f"is {value!r}, and must be {_article(prop.kind)}"
    said = said or _stricter(place, value) or (problem(shape, value) if shape is not None else None)
    if said:
        yield Failure(place.shown, said)
    elif prop.kind == "list":
        yield from _wrong_items(place, value, prop, shape)
    elif prop.kind == "map":
        yield from _wrong_entries(place, value, prop, shape)
    elif prop.kind == "object" and prop.fields:
        yield from _wrong_fields(place, value, wheel.fields_of(prop.fields))


def _stricter(place: PropertyPath, value: Any) -> str | None:
    allowed = place.kind.allowed.get(place.path)
    if isinstance(allowed, range):
        return None if value in allowed else f"is {value!r}, and must be from {allowed[0]} to {allowed[-1]}"
    if isinstance(allowed, re.Pattern):
        return None if allowed.fullmatch(str(value)) else f"is {value!r}, and must match {allowed.pattern}"
    return f"is {value!r}, and must be one of {', '.join(allowed)}" if allowed and str(value) not in allowed else None


def _wrong_items(place: PropertyPath, value: list[Any], prop: Property, shape: Shape | None) -> Iterator[Failure]:
    of_item = shape.member if shape is not None and shape.type_name == "list" else shape
    for index, item in enumerate(value):
        if prop.item:
            yield from _wrong(place.at(str(index)), item, prop.item, of_item)


def _wrong_entries(place: PropertyPath, value: Mapping[str, Any], prop: Property, shape: Shape | None) -> Iterator[Failure]:
    if shape is None or shape.type_name != "map":
        return
    for key, item in value.items():
        said = problem(shape.key, key)
        if said:
            yield Failure(place.shown, f"has a key that {said}")
        if prop.item:
            yield from _wrong(place.at(f'"{key}"'), item, prop.item, shape.value)


def _is(value: object, prop: Property) -> bool:
    """Texts that are numbers or truth values pass for those, as they do with the real provider."""
    if prop.kind == "any":
        return True
    if prop.kind in ("integer", "number"):
        return not isinstance(value, bool) and (isinstance(value, int | float) or NUMBER.fullmatch(str(value)) is not None)
    if prop.kind == "string":
        return isinstance(value, str | int | float | bool)
    if prop.kind == "boolean":
        return isinstance(value, bool) or value in ("true", "false")
    return isinstance(value, CLASSES[prop.kind])


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"
