"""Reads a section although parts of it are wrong, so that checks of what is right still run and all problems come at once.

    section, problems, wrong = salvage(Settings, data, "aws")

What is wrong is taken out and replaced by its default or its example. `wrong` holds the places: a check that reads one of them
has nothing to say (`told`).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.config.section import Problem
from infra.config.words import BAD_KEY, field_at, models, path, sentence, suggestion

ROUNDS = 20  # each takes out at least one wrong place; a file is not deeper than this
Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[int | str]


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


def told(problems: Iterable[Problem], wrong: set[str]) -> Iterator[Problem]:
    """The problems that are no consequences of the wrong places."""
    for one in problems:
        if not any(_within(key, place) for key in (one.key, *one.uses) for place in wrong):
            yield one


def _within(key: str, place: str) -> bool:
    return key == place or key.startswith((f"{place}.", f"{place}["))


def _places(error: ErrorDetails, model: type[BaseModel], data: Any) -> Iterator[Location]:
    """Where the file is wrong. A misspelt key is also missing where it should have been."""
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
