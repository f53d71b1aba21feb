"""The command `ebb`: its verbs, its global options, and how every error becomes a sentence and an exit code.

Tests run `app` in-process with a Session of their own: `CliRunner().invoke(app, ["list"], obj=Session(connect=fake))`.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from workloads.cli import act, look
from workloads.cli.outcome import EXPECTED, MEANINGS, Exit, outcome
from workloads.cli.render import make_console
from workloads.cli.session import Session

VERBS: dict[str, Callable[..., None]] = {
    "submit": act.submit,
    "list": look.list_jobs,
    "status": look.status,
    "logs": look.logs,
    "wait": look.wait,
    "scale": act.scale,
    "delete": act.delete,
    "gpus": look.gpus,
}
EPILOG = "\b\nExit codes:\n" + "\n".join(f"{int(code):>5}  {meaning}" for code, meaning in MEANINGS.items())


class _Verbs(TyperGroup):
    """Where errors end. What is not expected is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            code, sentence = outcome(error)
            console = make_console(stderr=True)
            console.print(f"ebb: {sentence}", soft_wrap=not console.is_terminal)
            raise typer.Exit(code) from error
        except KeyboardInterrupt as error:
            make_console(stderr=True).print("\nebb: stopped looking; jobs go on.")
            raise typer.Exit(Exit.INTERRUPTED) from error


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main(
    ctx: typer.Context,
    kubeconfig: Annotated[
        str | None, typer.Option(help="Default: $EBB_KUBECONFIG, $KUBECONFIG, this checkout's box, ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig; default: its current one.")] = None,
) -> None:
    """Train on machines that come and go."""
    session = ctx.ensure_object(Session)
    session.kubeconfig = kubeconfig or session.kubeconfig
    session.context = context or session.context


for _name, _verb in VERBS.items():
    app.command(_name)(_verb)
