"""`ebb secret set | list | rm`: tokens and keys for jobs, whose values are never shown."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ebb.cli.options import Format, Namespace, Output, call, note, print_json, record, secret_names
from ebb.cli.render import age, make_console, now_local, table
from ebb.client.errors import BadRequest
from ebb.client.secrets import store
from ebb.client.secrets.store import MOST_BYTES, REGISTRY, SecretView
from ebb.client.secrets.uses import secret_name

secret = typer.Typer(help="Tokens and keys for jobs, by name: ebb secret set hf-token")

Name = Annotated[str, typer.Argument(metavar="NAME", help="hf-token; HF_TOKEN is the same one.", autocompletion=secret_names)]


# What follows the name is a value that somebody typed: it is refused in words that do not repeat it.
@secret.command("set", context_settings={"allow_extra_args": True, "help_option_names": ["-h", "--help"]})
def set_secret(
    ctx: typer.Context,
    name: Name,
    *,
    from_file: Annotated[Path | None, typer.Option("--from-file", metavar="FILE", help="Take the value from a file.")] = None,
    from_env: Annotated[
        str | None, typer.Option("--from-env", metavar="VARIABLE", help="Take it from a variable of this shell.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="HOST", help="The value is the password of this registry of images.")
    ] = None,
    username: Annotated[str | None, typer.Option(metavar="U", help="Who logs in to that registry.")] = None,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Set a secret, or replace its value, which is asked for or piped in.

    \b
    ebb secret set hf-token                        asks, and does not show it
    ebb secret set wandb-api-key --from-env WANDB_API_KEY
    ebb secret set gcs --from-file key.json
    pass show hf | ebb secret set hf-token
    ebb secret set lab --registry ghcr.io --username ada

    \b
    ebb submit --secret hf-token ...               the variable HF_TOKEN
    ebb submit --secret gcs=/secrets/gcs.json ...  a file
    ebb submit --registry-secret lab --image ghcr.io/lab/trainer:1 ...
    """
    name = secret_name(name)
    if ctx.args:
        raise BadRequest(
            f"the value of secret {name!r} has no place on the command line, which shells keep: leave it out, and it is asked "
            "for; or use --from-file, --from-env or a pipe. If it was the real one, get a new one."
        )
    if (registry is None) is not (username is None):
        raise BadRequest("--registry and --username belong together: give both, or leave both out.")
    if from_file is not None and from_env is not None:
        raise BadRequest("--from-file and --from-env both say where the value is: give one of the two.")
    if registry is not None and username is not None:
        store.check_registry(name, registry, username)
    value = store.one_line(read_value(name, from_file, from_env))
    if registry is not None and username is not None:
        found, replaced = call(
            ctx, namespace, lambda ebb: store.set_registry_secret(ebb, name, host=registry, username=username, password=value)
        )
    else:
        found, replaced = call(ctx, namespace, lambda ebb: store.set_secret(ebb, name, value))
    if output is Output.JSON:
        print_json({"secret": record(found)})
        return
    later = " Workers that run keep the value they started with." if replaced else ""
    typer.echo(f"{found.name} is {'replaced' if replaced else 'set'}.{later} Use it: ebb submit {_flag(found)} ...")


@secret.command("list")
def list_secrets(ctx: typer.Context, namespace: Namespace = None, output: Format = Output.TEXT) -> None:
    """List their names, and the jobs that use them; never values."""
    found = call(ctx, namespace, store.list_secrets)
    if output is Output.JSON:
        print_json({"secrets": [record(one) for one in found]})
    elif not found:
        note("No secrets yet. Set one: ebb secret set hf-token")
    else:
        console, now = make_console(), now_local()
        rows = [(one.name, _flag(one), one.set_by or "-", age(one.set_at, now), ", ".join(one.jobs) or "-") for one in found]
        console.print(table(("NAME", "IN A JOB", "SET BY", "AGE", "JOBS"), rows, console.width, gives=4))


@secret.command("rm")
def remove(
    ctx: typer.Context,
    name: Name,
    *,
    force: Annotated[bool, typer.Option("--force", help="Even if jobs use it: their next workers cannot start.")] = False,
    namespace: Namespace = None,
    output: Format = Output.TEXT,
) -> None:
    """Remove a secret; one that jobs use only with --force."""
    found = call(ctx, namespace, lambda ebb: store.remove_secret(ebb, name, force=force))
    print_json({"secret": record(found)}) if output is Output.JSON else typer.echo(f"{found.name} is removed.")


def _flag(found: SecretView) -> str:
    if found.kind == REGISTRY:
        return f"--registry-secret {found.name}"
    return f"--secret {found.name}" if found.variable else f"--secret {found.name}=/secrets/{found.name}"


def read_value(name: str, file: Path | None, variable: str | None) -> bytes:
    """The value, from where it is said to be. Raises BadRequest."""
    if file is not None:
        return _read_file(name, file)
    if variable is not None:
        if variable not in os.environ:
            # Not said again: it may be the value, in the place of the variable's name.
            raise BadRequest(f"secret {name!r}: --from-env names no variable of this shell: give its name, as in HF_TOKEN.")
        return os.environb[os.fsencode(variable)]
    if sys.stdin.isatty():
        typed: str = typer.prompt(f"Value of {name} (not shown)", hide_input=True, err=True)
        return typed.encode()
    return sys.stdin.buffer.read(MOST_BYTES + 3)  # a line end may follow


def _read_file(name: str, file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES + 3)
    except OSError as error:
        raise BadRequest(
            f"secret {name!r}: file {str(file)!r} cannot be read: {error.strerror}. Name one with --from-file."
        ) from error
