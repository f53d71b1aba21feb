"""`ebb gpus`."""

import typer

from workloads import client
from workloads.cli.options import Format, Output, call, print_json, record
from workloads.cli.render import group_table, make_console
from workloads.platform import Platform


def gpus(ctx: typer.Context, output: Format = Output.TEXT) -> None:
    """What GPUs the platform has, where, at what price."""
    platform = call(ctx, None, _platform)
    if output is Output.JSON:
        print_json({"groups": [record(group) for group in platform.gpu_groups()]})
    else:
        console = make_console()
        console.print(group_table(platform, console.width))


async def _platform(ebb: client.Ebb) -> Platform:
    return ebb.platform
