"""What a verb shows of all platforms, one below the other: `--platform all`. One that does not answer is a note at the end."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import typer

from ebb.cli.options import Output, note, print_json, run, session_of
from ebb.cli.render import make_console
from ebb.client.errors import NoPlatform
from ebb.client.platform.ebb import Ebb
from ebb.client.platform.everywhere import Answer, everywhere

T = TypeVar("T")


def beside(
    ctx: typer.Context,
    namespace: str | None,
    question: Callable[[Ebb], Awaitable[T]],
    output: Output,
    *,
    json: Callable[[T], dict[str, Any]],
    text: Callable[[T], None],
) -> None:
    """Ask them all, and show each answer as the verb shows one. Raises NoPlatform where none answers."""
    answers = run(everywhere(question, namespace=namespace, opener=session_of(ctx).connect))
    if output is Output.JSON:
        print_json({"platforms": [_record(each, json) for each in answers]})
    console = make_console()
    for each in answers:
        if output is Output.TEXT and each.value is not None:
            place = " ".join(dict.fromkeys((each.cloud, each.region)))
            console.print(f"{each.platform} ({place})", style="bold")
            text(each.value)
    for each in answers:
        if each.trouble:
            note(f"{each.platform}: {each.trouble}")
    if all(each.trouble for each in answers):
        raise NoPlatform("none of the platforms answers. `ebb platform list` shows where each is looked for.")


def _record(answer: Answer[T], json: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    """The platform's name and what is known of it, and the verb's own keys where it answered."""
    said = {} if answer.value is None else json(answer.value)
    facts = {name: getattr(answer, name) for name in ("platform", "current", "cloud", "region", "trouble")}
    return {**facts, **{key: value for key, value in said.items() if key not in facts}}
