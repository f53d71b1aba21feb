"""The doctor: check."""

import typer

from ebb.cli.exits import Exit
from ebb.cli.options import Format, Namespace, Output, print_json, record, run, session_of
from ebb.cli.pages import check_page
from ebb.cli.render import make_console
from ebb.client.diagnostics.check import check as examine
from ebb.client.diagnostics.symptoms import PROBLEM


def check(ctx: typer.Context, namespace: Namespace = None, output: Format = Output.TEXT) -> None:
    """Check the platform; each problem comes with its fix.

    From the kubeconfig over your rights, the controller, volumes, etcd, machines and quotas to the gateway.
    """
    session = session_of(ctx)
    findings = run(
        examine(
            session.kubeconfig,
            session.context,
            namespace=namespace,
            platform=session.platform,
            team=session.team,
            opener=session.connect,
        )
    )
    if output is Output.JSON:
        print_json({"findings": [record(finding) for finding in findings]})
    else:
        console = make_console()
        console.print(check_page(findings, console.width))
    if any(finding.level == PROBLEM for finding in findings):
        raise typer.Exit(Exit.FAILED)
