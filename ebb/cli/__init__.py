"""`ebb`, the researcher's tool: the only thing that most users ever touch.

It parses the command line, calls ebb.client and shows the result. It needs a kubeconfig and ConfigMap `ebb-platform`,
and holds no state of its own.

app.py      the verbs, and where errors end       verbs/                one file each family
asked.py, options.py   options they share         exits.py, errors.py   exit codes and error sentences
render.py, pages.py    views as text              terminal.py           questions, progress, log lines
"""


def main() -> None:
    """Entry point of the script `ebb`."""
    from ebb.cli.app import app  # noqa: PLC0415 - importing the package must stay cheap

    app()
