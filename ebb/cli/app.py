"""The command `ebb`: its verbs, its global options, and how every error becomes a sentence and an exit code.

A verb's module is imported when the verb is called: `ebb --help` and a completion must not wait for a Kubernetes client.
Tests run `app` in-process with a Session of their own: `CliRunner().invoke(app, ["list"], obj=Session(connect=fake))`.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer._click.exceptions import UsageError
from typer.core import TyperGroup

from ebb.cli.exits import MEANINGS, Exit


@dataclass(frozen=True)
class Verb:
    """Location of a verb, and its line in `ebb --help`, which is the first of its own help (a test compares them)."""

    where: str  # module under ebb.cli.verbs: name of a function with typer's annotations, or of a Typer with more verbs
    line: str


SECTIONS: dict[str, dict[str, Verb]] = {
    "Run": {
        "init": Verb("init:init", "Write a job file, ebb.yaml, from a few questions."),
        "submit": Verb("submit:submit", "Start a job: ebb submit --gpus 2 --gpu T4 -- python train.py"),
        "sweep": Verb("sweep:sweep", "Many runs: ebb sweep --name scan lr=0.1,0.01 -- python train.py"),
        "local": Verb("local:local", "Run the job on this machine only: ebb local -- python train.py"),
    },
    "Look": {
        "list": Verb("look:list_jobs", "All jobs, newest first."),
        "status": Verb("look:status", "One job: size, place, progress, speed, reclaims and their causes."),
        "logs": Verb("logs:logs", "Output of the workers, merged."),
        "report": Verb("report:report", "One HTML page: loss, rate, workers, reclaims, goodput, money."),
        "tensorboard": Verb("tensorboard:tensorboard", "Your own TensorBoard on jobs, live: ebb tensorboard digits text"),
        "profile": Verb("profile:profile", "A trace of some steps, as PyTorch's profiler makes it: ebb profile digits"),
        "events": Verb("events:events", "Events of a job and its workers, in chronological order."),
        "ui": Verb("ui:ui", "Live page in your browser: jobs, losses, reclaims, logs, GPUs, money."),
        "top": Verb("top:top", "Running jobs and machines, live: GPUs busy and free, speed, cost."),
        "wait": Verb("look:wait", "Wait until jobs end; the exit code says how."),
    },
    "Reach in": {
        "exec": Verb("exec:execute_in", "Run a command in a worker: ebb exec digits -- nvidia-smi"),
        "ssh": Verb("ssh:ssh", "SSH into a worker, for VS Code and scp: ebb ssh digits"),
        "port": Verb("port:port", "Forward a worker's port to this machine: ebb port digits 8888"),
        "outputs": Verb("data:outputs", "Files a job has written; `ebb outputs get JOB` fetches them."),
        "secret": Verb("secret:secret", "Tokens and keys for jobs, by name: ebb secret set hf-token"),
        "data": Verb("data:data", "Files on the shared volumes: ebb data put ./imagenet data/imagenet"),
    },
    "Change": {
        "scale": Verb("change:scale", "Train a running job on more or fewer GPUs."),
        "stop": Verb("change:stop", "Write a checkpoint and release the machines; the job stays."),
        "resume": Verb("change:resume", "Continue a stopped job from its checkpoint."),
        "delete": Verb("change:delete", "Stop jobs and remove them. Their output folders stay."),
    },
    "Platform": {
        "platform": Verb("platform:platform", "The platforms you use: add, list, use, remove."),
        "gpus": Verb("gpus:gpus", "GPUs on the platform: which are free, where, and at what price."),
        "check": Verb("check:check", "Check the platform; each problem comes with its fix."),
        "bench": Verb("bench:bench", "Speed and cost by number of GPUs: ebb bench scaling --gpus 4,8,16"),
        "cost": Verb("cost:cost", "Costs by job, user or day; with --gpus, an estimate for a job."),
        "completion": Verb("completion:completion", 'Complete job names: eval "$(ebb completion bash)" in ~/.bashrc'),
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

    def make_context(self, *args: Any, **more: Any) -> Any:
        try:
            return super().make_context(*args, **more)
        except UsageError as error:  # of the global options; those of verbs come up in `invoke`
            raise typer.Exit(_report(error)) from error

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            typer.echo("\nebb: stopped watching; jobs continue.", err=True)
            raise typer.Exit(Exit.INTERRUPTED) from error
        except Exception as error:
            raise typer.Exit(_report(error)) from error


def load(name: str) -> Any:
    """A verb's command. KeyError for none of that name."""
    module, _, attribute = VERBS[name].where.partition(":")
    found = getattr(import_module(f"ebb.cli.verbs.{module}"), attribute)
    verb = typer.Typer(**SETTINGS)
    if isinstance(found, typer.Typer):
        verb.add_typer(found, name=name, no_args_is_help=True)
        group: Any = typer.main.get_command(verb)
        return group.commands[name] if name == "platform" else _with_platform(group.commands[name])
    verb.command(name)(found)
    return _with_platform(typer.main.get_command(verb))


def _with_platform(command: Any) -> Any:
    """Every verb takes --platform and --team, also after its name."""
    for inner in getattr(command, "commands", {}).values():
        _with_platform(inner)
    if not hasattr(command, "commands"):
        carrier = typer.Typer(**SETTINGS)
        carrier.command()(_carrier)
        command.params += [each for each in typer.main.get_command(carrier).params if each.name in ("platform", "team")]
    return command


def _name(ctx: typer.Context, value: str | None) -> None:
    if value:
        ctx.meta["platform"] = value  # for completion.py: nobody makes a session for it
    if value and ctx.obj is not None:
        ctx.obj.name(value)


def _team(ctx: typer.Context, value: str | None) -> None:
    if value:
        ctx.meta["team"] = value
    if value and ctx.obj is not None:
        ctx.obj.team = value


def _carrier(
    platform: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Platform to use; `ebb platform list` shows them.", callback=_name, expose_value=False),
    ] = None,
    team: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Team whose jobs are meant.", callback=_team, expose_value=False, hidden=True),
    ] = None,
) -> None:
    """Carry the options into the other commands."""


def _report(error: Exception) -> Exit:
    """Say an expected error in a sentence; anything else goes on as it is."""
    from ebb.cli.errors import EXPECTED, classify, is_misuse, usage_sentence  # noqa: PLC0415 - as the verbs: see above
    from ebb.cli.render import make_console  # noqa: PLC0415

    if is_misuse(error):
        typer.echo(f"ebb: {usage_sentence(error)}", err=True)
        return Exit.USAGE
    if not isinstance(error, EXPECTED):
        raise error
    code, said = classify(error)
    console = make_console(stderr=True)
    console.print(f"ebb: {said}", soft_wrap=not console.is_terminal)
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
        str | None,
        typer.Option(
            help="Default: --platform's, $EBB_KUBECONFIG, the current platform's, $KUBECONFIG, the devcluster's or "
            "~/.kube/config."
        ),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: its current one.")] = None,
    platform: Annotated[str | None, typer.Option(metavar="NAME", help="See `ebb platform list`; default: $EBB_PLATFORM.")] = None,
    team: Annotated[
        str | None, typer.Option(metavar="NAME", help="Team whose jobs are meant; default: $EBB_TEAM, or yours.")
    ] = None,
) -> None:
    """Train on machines that come and go."""
    if ctx.resilient_parsing:
        return
    from ebb.cli.options import Session  # noqa: PLC0415

    session = ctx.ensure_object(Session)
    session.kubeconfig = kubeconfig or session.kubeconfig
    session.context = context or session.context
    session.platform = platform or session.platform
    session.team = team or session.team
