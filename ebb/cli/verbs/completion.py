"""The verb that teaches a shell to complete `ebb`: completion."""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script


class Shell(StrEnum):
    """The shells that typer knows, but for PowerShell."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Complete job names: eval "$(ebb completion bash)" in ~/.bashrc"""
    # For fish, `ebb completion fish | source`. Private in typer, whose version is pinned: what its own --show-completion prints.
    typer.echo(get_completion_script(prog_name="ebb", complete_var="_EBB_COMPLETE", shell=shell.value))
