"""The command `ebb`: its verbs, its global options, and how every error becomes a sentence and an exit code.

A verb's module is imported when the verb is called: `ebb --help` and a completion must not wait for a Kubernetes client.
Tests run `app` in-process with a Session of their own: `CliRunner().invoke(app, ["list"], obj=Session(connect=fake))`.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from workloads.cli.exits import MEANINGS, Exit


@dataclass(frozen=True)
class Verb:
    """Where a verb is, and its line in `ebb --help`, which is the first of its own help (a test compares them)."""

    where: str  # module under workloads.cli.verbs: name of a function with typer's annotations, or of a Typer with more verbs
    line: str


SECTIONS: dict[str, dict[str, Verb]] = {
    "Run": {
        "submit": Verb("submit:submit", "Start a job: ebb submit --gpus 2 --gpu T4 -- python train.py"),
    },
    "Look": {
        "list": Verb("look:list_jobs", "All jobs, newest first."),
        "status": Verb("look:status", "One job: size, place, progress, speed, what it lost and why."),
        "logs": Verb("logs:logs", "What the workers print, merged."),
        "wait": Verb("look:wait", "Wait until a job is over; the exit code says how it ended."),
    },
    "Change": {
        "scale": Verb("change:scale", "Let a running job train on more or fewer GPUs."),
        "stop": Verb("change:stop", "Write a checkpoint and give the machines back; the job stays."),
        "resume": Verb("change:resume", "Let a stopped job go on from its checkpoint."),
        "delete": Verb("change:delete", "Stop jobs and remove them. Their output folders stay."),
    },
    "Platform": {
        "gpus": Verb("gpus:gpus", "What GPUs the platform has, where, at what price."),
    },
}
VERBS: dict[str, Verb] = {name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}
EPILOG = "\b\nExit codes:\n" + "\n".join(f"{int(code):>5}  {meaning}" for code, meaning in MEANINGS.items())


class _Verbs(TyperGroup):
    """Loads verbs when they are called, and is where errors end. What is not expected is a bug and keeps its traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), verb.line) for name, verb in verbs.items()])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            typer.echo("\nebb: stopped looking; jobs go on.", err=True)
            raise typer.Exit(Exit.INTERRUPTED) from error
        except Exception as error:
            raise typer.Exit(_told(error)) from error


def load(name: str) -> Any:
    """A verb's command. KeyError for none of that name."""
    module, _, attribute = VERBS[name].where.partition(":")
    found = getattr(import_module(f"workloads.cli.verbs.{module}"), attribute)
    verb = typer.Typer(**SETTINGS)
    if isinstance(found, typer.Typer):
        verb.add_typer(found, name=name, no_args_is_help=True)
        group: Any = typer.main.get_command(verb)
        return group.commands[name]
    verb.command(name)(found)
    return typer.main.get_command(verb)


def _told(error: Exception) -> Exit:
    """Say an expected error in a sentence; anything else goes on as it is."""
    from workloads.cli.outcome import EXPECTED, outcome  # noqa: PLC0415 - as the verbs: see above
    from workloads.cli.render import make_console  # noqa: PLC0415

    if not isinstance(error, EXPECTED):
        raise error
    code, sentence = outcome(error)
    console = make_console(stderr=True)
    console.print(f"ebb: {sentence}", soft_wrap=not console.is_terminal)
    return code


SETTINGS: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(cls=_Verbs, no_args_is_help=True, epilog=EPILOG, **{**SETTINGS, "add_completion": True})


@app.callback()
def main(
    ctx: typer.Context,
    kubeconfig: Annotated[
        str | None, typer.Option(help="Default: $EBB_KUBECONFIG, $KUBECONFIG, this checkout's box, ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: its current one.")] = None,
) -> None:
    """Train on machines that come and go."""
    if ctx.resilient_parsing:
        return
    from workloads.cli.session import Session  # noqa: PLC0415

    session = ctx.ensure_object(Session)
    session.kubeconfig = kubeconfig or session.kubeconfig
    session.context = context or session.context
