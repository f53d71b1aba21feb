"""`ebb platform`: the platforms that a person uses, by names."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from ebb.api.platform import Platform, PlatformError
from ebb.cli.options import Format, Output, Session, note, print_json, record, run, session_of
from ebb.cli.render import make_console, table
from ebb.client.errors import BadRequest, ClientError, NoPlatform
from ebb.client.platform import platforms
from ebb.client.platform.connection import PATIENCE_SECONDS, Answer, Ebb, connect, everywhere, find_kubeconfig
from ebb.kube import KubeError

platform = typer.Typer(help="The platforms you use: add, list, use, remove.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Your name for it, such as aws or lab.")]


@dataclass(frozen=True, kw_only=True)
class PlatformView:
    """One line of `ebb platform list`. cloud, region and stack are "" where it does not answer."""

    name: str
    current: bool
    kubeconfig: str
    context: str
    cloud: str
    region: str
    stack: str
    reachable: bool
    trouble: str


@platform.command()
def add(
    ctx: typer.Context,
    name: Name,
    *,
    kubeconfig: Annotated[str | None, typer.Option(metavar="FILE", help="Default: the one `ebb` would use now.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: its current one.")] = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not check that it answers.")] = False,
    output: Format = Output.TEXT,
) -> None:
    """Give a platform a name; the first one is the current one."""
    session = session_of(ctx)
    path = find_kubeconfig(kubeconfig or session.kubeconfig)
    if path is None:
        raise BadRequest("kubeconfig is missing: in a pod there is no usual one. Name it with --kubeconfig FILE.")
    found = None if no_check else run(_ask(session, path, context or session.context))
    known = platforms.add(name, kubeconfig=path, context=context or session.context)
    _say(_view(known, found), f"{name} is added{_where(found)}" + (", and is the current one." if known.current else "."), output)


@platform.command("list")
def list_platforms(ctx: typer.Context, output: Format = Output.TEXT) -> None:
    """List all of them, and whether they answer."""
    known = platforms.known()
    answers = {each.platform: each for each in run(_all(session_of(ctx)))} if known else {}
    views = [_answered(each, answers[each.name]) for each in known]
    if output is Output.JSON:
        print_json({"platforms": [record(view) for view in views]})
    elif not views:
        note("No platforms yet. Name one: ebb platform add NAME --kubeconfig FILE")
    else:
        console = make_console()
        rows = [("*" if view.current else "", view.name, view.cloud or "-", view.region or "-", _state(view)) for view in views]
        console.print(table(("", "NAME", "CLOUD", "REGION", "ANSWERS"), rows, console.width, gives=1))
        for view in views:
            if view.trouble:
                note(f"{view.name}: {view.trouble}")


@platform.command()
def use(name: Name, output: Format = Output.TEXT) -> None:
    """Make one the current one: the default."""
    _say(_view(platforms.use(name), None), f"{name} is the current platform.", output)


@platform.command()
def remove(name: Name, output: Format = Output.TEXT) -> None:
    """Forget a name; the platform and its kubeconfig stay."""
    gone = platforms.remove(name)
    rest = ". No platform is current now: ebb platform use NAME" if gone.current and platforms.known() else "."
    _say(_view(gone, None), f"{name} is forgotten{rest}", output)


async def _ask(session: Session, kubeconfig: str, context: str | None) -> Platform:
    """Raises NoPlatform, PlatformError, KubeError; then nothing is written."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), connect(kubeconfig, context, opener=session.connect) as ebb:
            return ebb.platform
    except TimeoutError as error:
        raise NoPlatform(f"no answer within {PATIENCE_SECONDS:g} s. --no-check adds it anyway.") from error
    except (ClientError, KubeError, PlatformError):
        note("Nothing was added; --no-check adds it anyway.")
        raise


async def _all(session: Session) -> tuple[Answer[Platform], ...]:
    async def itself(ebb: Ebb) -> Platform:
        return ebb.platform

    return await everywhere(itself, opener=session.connect)


def _answered(known: platforms.Known, answer: Answer[Platform]) -> PlatformView:
    return _view(known, answer.value, answer.trouble)


def _view(known: platforms.Known, found: Platform | None, trouble: str = "") -> PlatformView:
    return PlatformView(
        name=known.name,
        current=known.current,
        kubeconfig=known.kubeconfig,
        context=known.context or "",
        cloud=found.cloud if found else "",
        region=found.region if found else "",
        stack=found.stack if found else "",
        reachable=found is not None,
        trouble=trouble,
    )


def _state(view: PlatformView) -> str:
    return "yes" if view.reachable else "no"


def _where(found: Platform | None) -> str:
    return f": {found.cloud} {found.region}, stack {found.stack}" if found else ""


def _say(view: PlatformView, sentence: str, output: Output) -> None:
    if output is Output.JSON:
        print_json({"platform": record(view)})
    else:
        typer.echo(sentence)
