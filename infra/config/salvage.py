"""Validation that reports all problems at once, in plain English: pydantic's first error hides no other.

    section, problems, wrong = salvage(Settings, data, stack.cloud)

A wrong value is taken out and replaced by its default or its example, so that checks of the others still run. `wrong` holds the
places: a check that reads one of them has nothing to say (`told`).
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from infra.config.section import NEAR, Problem, choice

ROUNDS = 20  # each takes out at least one wrong place; a file is not deeper than this
Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[int | str]
BAD_KEY = "[key]"  # what pydantic puts at the end of a place if not the value is wrong there, but the key
_WORDS: Mapping[str, str] = {
    "int_type": "allowed is a whole number, without quotes",
    "int_from_float": "allowed is a whole number",
    "float_type": "allowed is a number, without quotes",
    "string_type": "allowed is text: put it in quotes",
    "bool_type": "allowed are true and false",
    "greater_than_equal": "allowed is {ge} or more",
    "greater_than": "allowed is more than {gt:g}",
    "float_parsing": "allowed is a number, without quotes",
    "less_than_equal": "allowed is {le} or less",
    "too_short": "allowed is a list with at least {min_length} entry",
    "tuple_type": "allowed is a list",
    "dict_type": "allowed is a section with keys",
    "model_type": "allowed is a section with keys",
}


def salvage(model: type[Model], data: Any, key: str = "") -> tuple[Model, list[Problem], set[str]]:
    """The section at `key` with what is right, the problems, and the places that are wrong."""
    here = [key] if key else []
    if not isinstance(data, dict):
        section, _, _ = salvage(model, {})
        return section, [Problem(key, f"found {data!r}; allowed is a section with keys")], {key}
    data, problems, wrong = _copied(data), list[Problem](), set[str]()
    for attempt in range(ROUNDS):
        try:
            return model.model_validate(data), problems, wrong
        except ValidationError as error:
            found = error.errors()
        if attempt == 0:
            problems = [Problem(path([*here, *one["loc"]]), sentence(one, model)) for one in found]
            wrong = {path([*here, *place]) for one in found for place in _places(one, model, data)}
        wrong_places = {tuple(part for part in one["loc"] if part != BAD_KEY) for one in found}
        for location in sorted(wrong_places, key=_order, reverse=True):  # later items of a list first
            _mend(data, location, model)
    raise AssertionError((key, found))


def drop_consequences(problems: Iterable[Problem], wrong: set[str]) -> Iterator[Problem]:
    """The problems that are no consequences of the wrong places."""
    for one in problems:
        if not any(_within(key, place) for key in (one.key, *one.uses) for place in wrong):
            yield one


def _within(key: str, place: str) -> bool:
    return key == place or key.startswith((f"{place}.", f"{place}["))


def _places(error: ErrorDetails, model: type[BaseModel], data: Any) -> Iterator[Location]:
    """The wrong places of the file. A misspelt key is also missing where it should have been."""
    if error["type"] != "extra_forbidden":
        yield error["loc"]
    elif (meant := suggestion(error, model)) and meant not in _at(data, error["loc"][:-1]):
        yield [*error["loc"][:-1], meant]


def _copied(data: Any) -> Any:
    """Every place on its own: YAML's aliases put one object in several, and what is mended in one would change in all."""
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(one) for one in data] if isinstance(data, list) else data


def _at(data: Any, location: Location) -> Any:
    for part in location:
        data = data[part]
    return data


def _order(location: Location) -> list[tuple[bool, int | str]]:
    return [(isinstance(part, int), part) for part in location]


def _mend(data: Any, location: Location, model: type[BaseModel]) -> None:
    """Take out what is wrong; where something must be, put the example of the model."""
    parent, last, field = _at(data, location[:-1]), location[-1], field_at(model, location)
    if field is not None and field.is_required():
        parent[last] = _copied(field.examples[0]) if field.examples else {}
    elif isinstance(last, int) and _holds_models(model, location):
        parent[last] = {}
    else:
        del parent[last]


def _holds_models(model: type[BaseModel], location: Location) -> bool:
    field = field_at(model, location[:-1])
    return field is not None and any(models(field.annotation))


# ---------------------------------------------------------------------------------------------------------------- error messages


def sentence(error: ErrorDetails, model: type[BaseModel]) -> str:
    """The error, without its key."""
    kind, found, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        return "unknown key; " + _instead(error, model)
    if kind == "missing":
        return "missing" + _for_example(field_at(model, error["loc"]))
    if kind == "literal_error":
        return choice(found, [text or number for text, number in re.findall(r"'([^']*)'|(\d+)", context["expected"])])
    return f"found {found!r}; {_WORDS[kind].format(**context) if kind in _WORDS else error['msg']}"


def path(location: Iterable[int | str]) -> str:
    """A place in the file: ["nodeGroups", 1, "max"] is nodeGroups[1].max."""
    text = ""
    for part in location:
        if part != BAD_KEY:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def suggestion(error: ErrorDetails, model: type[BaseModel]) -> str | None:
    """The key that an unknown one was probably meant to be."""
    close = difflib.get_close_matches(str(error["loc"][-1]), keys(model_at(model, error["loc"][:-1])), n=1, cutoff=NEAR)
    return close[0] if close else None


def keys(model: type[BaseModel]) -> list[str]:
    """The keys that a file may have there. Those in <> are not for files."""
    return [str(field.alias or name) for name, field in model.model_fields.items() if not str(field.alias).startswith("<")]


def model_at(model: type[BaseModel], location: Iterable[int | str]) -> type[BaseModel]:
    """The model of a place in the file."""
    for part in location:
        if field := field_at(model, [part]):
            model = next(models(field.annotation), model)
    return model


def field_at(model: type[BaseModel], location: Iterable[int | str]) -> FieldInfo | None:
    """The field that a place in the file is; None for an item of a list or an unknown key."""
    field: FieldInfo | None = None
    for part in location:
        field = next((one for one in model.model_fields.values() if one.alias == part), None)
        model = next(models(field.annotation), model) if field else model
    return field


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a type such as tuple[NodeGroup, ...] or Efs | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for one in get_args(annotation):
        yield from models(one)


def _instead(error: ErrorDetails, model: type[BaseModel]) -> str:
    if meant := suggestion(error, model):
        return f"did you mean {meant!r}?"
    return f"allowed are {', '.join(sorted(keys(model_at(model, error['loc'][:-1]))))}"


def _for_example(field: FieldInfo | None) -> str:
    example = field.examples[0] if field and field.examples else None
    return ": add it to the stack's file" + (f", for example {example}" if example is not None else "")
