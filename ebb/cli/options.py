"""Options, output and connection that all verbs share, and the step from typer into asyncio."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from ebb.api.contract import LABEL_SECRET
from ebb.cli.render import make_console
from ebb.client.errors import NoPlatform
from ebb.client.platform.connection import Answer, Ebb, Opener, connect, everywhere, wants_all
from ebb.kube import CONFIG_MAPS, ELASTIC_JOBS, Kube

LIMIT_SECONDS = 1.0


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of the jobs that begin so, those that were named already left out."""
    return _complete(ctx, incomplete, _job_names)


def secret_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The same of secrets."""
    return _complete(ctx, incomplete, _secret_names)


def _complete(ctx: typer.Context, incomplete: str, ask: Callable[[Ebb], Awaitable[list[str]]]) -> list[str]:
    logging.disable()  # a kubeconfig's plugin that fails is logged elsewhere
    given = _given_options(ctx)
    named = {name for value in ctx.params.values() if isinstance(value, list | tuple) for name in value}
    try:
        found = asyncio.run(_names(given, ask))
    except BaseException:
        return []
    finally:
        logging.disable(logging.NOTSET)
    return [name for name in found if name.startswith(incomplete) and name not in named]


async def _names(given: dict[str, Any], ask: Callable[[Ebb], Awaitable[list[str]]]) -> list[str]:
    async with asyncio.timeout(LIMIT_SECONDS), connect(**given) as ebb:
        return sorted(await ask(ebb))


async def _job_names(ebb: Ebb) -> list[str]:
    return [job["metadata"]["name"] for job in await ebb.kube.list(ELASTIC_JOBS, ebb.namespace)]


async def _secret_names(ebb: Ebb) -> list[str]:
    maps = await ebb.kube.list(CONFIG_MAPS, ebb.namespace, labels=LABEL_SECRET)
    return [item["metadata"]["labels"][LABEL_SECRET] for item in maps]


def _given_options(ctx: typer.Context) -> dict[str, Any]:
    """Return what stands on the line so far, before the verb or after it."""
    found: dict[str, Any] = {name: ctx.meta[name] for name in ("platform", "team") if name in ctx.meta}
    level: Any = ctx
    while level is not None:
        for name in ("kubeconfig", "context", "namespace"):
            if level.params.get(name) and name not in found:
                found[name] = level.params[name]
        level = level.parent
    return found


@dataclass(kw_only=True)
class Session:
    """Connection settings of one run; tests pass a `connect` of their own."""

    kubeconfig: str | None = None
    context: str | None = None
    platform: str | None = None
    team: str | None = None
    before: str | None = None  # the platform that was named before the verb, where one is named after it
    named_after: bool = False
    connect: Opener = Kube.connect

    def open(self, namespace: str | None = None) -> AbstractAsyncContextManager[Ebb]:
        """A connection. Raises NoPlatform, PlatformError, KubeError, Missing for an unknown platform."""
        return connect(
            self.kubeconfig, self.context, namespace=namespace, platform=self.platform, team=self.team, opener=self.connect
        )

    def open_before(self, namespace: str | None = None) -> AbstractAsyncContextManager[Ebb]:
        """The platform that is meant without what is said after the verb: where `submit --from` finds its job."""
        platform = self.before if self.named_after else self.platform
        return connect(self.kubeconfig, self.context, namespace=namespace, platform=platform, team=self.team, opener=self.connect)

    @property
    def everywhere(self) -> bool:
        """Return whether all platforms are meant."""
        return wants_all(self.kubeconfig, self.platform)

    def name(self, platform: str) -> None:
        """--platform after the verb."""
        self.before, self.platform, self.named_after = self.platform, platform, True


T = TypeVar("T")


class Output(StrEnum):
    """-o: text for people, json for programs (one object; `logs`: one per line)."""

    TEXT = "text"
    JSON = "json"


class Mode(StrEnum):
    """--mode: which value of a metric is the best."""

    MIN = "min"
    MAX = "max"


JobNames = Annotated[list[str], typer.Argument(metavar="JOB", help="The jobs' names.", autocompletion=job_names)]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, as `ebb list` shows it.", autocompletion=job_names)]
Format = Annotated[Output, typer.Option("-o", "--output", help="text, or json with a stable schema.")]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="The team's namespace; default: the platform's own for jobs.")
]


def session_of(ctx: typer.Context) -> Session:
    """Return what the main command prepared."""
    assert isinstance(ctx.obj, Session), ctx.obj
    return ctx.obj


def call(ctx: typer.Context, namespace: str | None, verb: Callable[[Ebb], Awaitable[T]]) -> T:
    """Return what `verb` returns of the platform that the options name."""

    async def connected() -> T:
        async with session_of(ctx).open(namespace) as ebb:
            return await verb(ebb)

    return run(connected())


def run(verb: Coroutine[Any, Any, T]) -> T:
    """Run a verb. Ctrl-C cancels it, so that its connections close, and raises KeyboardInterrupt here."""
    return asyncio.run(verb)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2))


def record(view: Any) -> dict[str, Any]:
    """A view as `-o json` prints it: the dataclass' fields."""
    return asdict(view)


def note(text: str) -> None:
    """A line for the person, not for the pipe."""
    typer.echo(text, err=True)


def paragraph(text: str) -> None:
    """A note of sentences: on a terminal no word is cut at its edge. Not for commands, which one copies."""
    console = make_console(stderr=True)
    console.print(text, soft_wrap=not console.is_terminal)


def show(
    ctx: typer.Context,
    namespace: str | None,
    question: Callable[[Ebb], Awaitable[T]],
    output: Output,
    *,
    json: Callable[[T], dict[str, Any]],
    text: Callable[[T], None],
) -> None:
    """Ask the platform, or with `--platform all` each of them, and show the answer as people or programs read it."""
    if session_of(ctx).everywhere:
        _show_everywhere(ctx, namespace, question, output, json=json, text=text)
        return
    found = call(ctx, namespace, question)
    if output is Output.JSON:
        print_json(json(found))
    else:
        text(found)


def _show_everywhere(
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
        print_json({"platforms": [_answer_record(each, json) for each in answers]})
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


def _answer_record(answer: Answer[T], json: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    """The platform's name and what is known of it, and the verb's own keys where it answered."""
    said = {} if answer.value is None else json(answer.value)
    facts = {name: getattr(answer, name) for name in ("platform", "current", "cloud", "region", "trouble")}
    return {**facts, **{key: value for key, value in said.items() if key not in facts}}
