"""pydantic's errors in our words: what was found, what is allowed, what was probably meant."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from infra.config.section import NEAR, choice

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
