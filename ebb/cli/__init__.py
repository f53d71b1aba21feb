"""`ebb`, the researcher's tool: the only thing that most users ever touch.

It reads words, calls ebb.client and shows what comes of it:

app.py (the verbs and the end of errors), verbs/ (one file each family), render.py (how it looks), writer.py (log lines),
exits.py and outcome.py (exit codes). It needs a kubeconfig and ConfigMap `ebb-platform`, and holds no state of its own.
"""


def main() -> None:
    """Entry point of the script `ebb`."""
    from ebb.cli.app import app  # noqa: PLC0415 - importing the package must stay cheap

    app()
