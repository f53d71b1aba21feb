"""Parts of every section of a stack's file: the base model, texts of a given form, problems, ConfigError.

The model says what a key is (description), what it may be (type, form) and what it looks like (examples). Checks that read more
than one key are functions that yield Problems, so that one wrong key hides no other (infra/config/salvage.py).
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pydantic import AliasGenerator, BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

NAMESPACE = "ebb"
NEAR, MANY = 0.75, 30
ROOT = Path(__file__).resolve().parent.parent.parent


class ConfigError(pulumi.RunError):
    """The stack's settings are wrong. A RunError, so that the engine shows the text alone."""


class Section(BaseModel):
    """Keys are camelCase in the file; an unknown one is an error, as it is most likely misspelt."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=AliasGenerator(lambda name: to_camel(name).replace("Gib", "GiB").replace("Mib", "MiB")),
    )


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `uses`: further keys that the check has read; if one is wrong, that is reported instead."""

    key: str
    text: str
    uses: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text


class Form:
    """Metadata of a text: the pattern that it has, and the same in words, `Annotated[str, Form("[0-9]{12}", "12 digits")]`."""

    def __init__(self, pattern: str, words: str) -> None:
        self._pattern, self._words = re.compile(pattern, re.ASCII), words

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": f"^(?:{self._pattern.pattern})$"}

    def _check(self, value: str) -> str:
        if not self._pattern.fullmatch(value):
            raise ValueError(f"found {value!r}; allowed is {self._words}")
        return value


class OneOf:
    """Metadata of a text that is one of some, `Annotated[str, OneOf("a", "b")]`: for keys, where Literal is unwieldy."""

    def __init__(self, *options: str) -> None:
        self._options = options

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "enum": list(self._options)}

    def _check(self, value: str) -> str:
        if value not in self._options:
            raise ValueError(choice(value, self._options))
        return value


def choice(found: object, options: Sequence[str]) -> str:
    """A sentence with the value found, the values allowed, and the one probably meant. Of many options it lists the nearest."""
    near = difflib.get_close_matches(str(found), options, n=5, cutoff=0.0)
    close = [one for one in near[:1] if difflib.SequenceMatcher(None, str(found), one).ratio() >= NEAR]
    hint = f"; did you mean {close[0]!r}?" if close and isinstance(found, str) else ""
    told = f"{len(options)}, of which {', '.join(near)} are nearest" if len(options) > MANY else ", ".join(options)
    return f"found {found!r}; allowed {'is' if len(options) == 1 else 'are'} {told}{hint}"


def report(problems: Iterable[Problem | str]) -> str:
    """The text of a ConfigError."""
    lines = [str(one) for one in problems]
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return f"{count} in the stack's settings (Pulumi.<stack>.yaml, section {NAMESPACE}):\n" + "\n".join(
        f"  {one}" for one in lines
    )
