"""Stacks as the policy pack sees them: every resource of a whole program, with the inputs of its provider."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from infra.config import Stack
from infra.policies.rules import UNKNOWN, Declaration, Rule
from tests.infra.declared import Registered
from tests.workloads.world import example


@cache
def declarations(name: str) -> tuple[Declaration, ...]:
    """Those of a stack of the repository."""
    world = example(name)
    providers = {one.key: one.inputs for one in world.resources}
    return tuple(_declaration(one, providers.get(one.provider, {})) for one in world.resources)


def _declaration(one: Registered, provider: dict[str, object]) -> Declaration:
    return Declaration(
        type=one.type,
        name=one.name,
        inputs=one.inputs,
        provider=provider,
        protect=one.protect,
        retained=one.retain_on_delete,
        deleted_first=one.delete_before_replace,
    )


def broken(rules: Iterable[Rule], name: str, declaration: Declaration, stack: Stack) -> str:
    """The one sentence about the one rule that it breaks."""
    (rule,) = [one for one in rules if one.name == name]
    found = rule.broken_by(declaration, stack)
    assert len(found) == 1, found
    return found[0]


OPTIONS = frozenset({"provider", "protect", "retained", "deleted_first"})


def derived(among: Iterable[Declaration], type_: str, changes: Mapping[str, Any]) -> Declaration:
    """The first of a type, whole or by its last part, with other inputs; None removes one. Options go by their own names."""
    one = next(one for one in among if type_ in (one.type, one.type.rpartition(":")[2]))
    inputs = {**one.inputs, **{key: value for key, value in changes.items() if key not in OPTIONS}}
    options = {key: value for key, value in changes.items() if key in OPTIONS}
    return replace(one, inputs={key: value for key, value in inputs.items() if value is not None}, **options)


def check_sentences(rules: Iterable[Rule], name: str, one: Declaration, stack: Stack, words: Iterable[str]) -> None:
    """Raises AssertionError unless the rule is broken, in sentences that name the resource and have all of these words."""
    sentences = [text for rule in rules if rule.name == name for text in rule.broken_by(one, stack)]
    assert sentences
    assert all(text.startswith(f"{one.type} {one.name}: ") for text in sentences)
    assert [word for word in words if word not in " | ".join(sentences)] == []


def with_unknowns(one: Declaration) -> Iterator[tuple[str, Declaration]]:
    """The resource with one of its values unknown, for every value at any depth; the path of each."""
    for path in _paths(one.inputs):
        yield ".".join(map(str, path)), replace(one, inputs=_replaced(one.inputs, path))


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (key,)
        for rest in _paths(item):
            yield (key, *rest)


def _replaced(value: Any, path: tuple[Any, ...]) -> Any:
    if not path:
        return UNKNOWN
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = _replaced(value[path[0]], path[1:])
    return made
