"""`ebb`, the researcher's tool: the only thing that most users ever touch.

Read in this order: app.py (the verbs), session.py (where the platform is), manifest.py (what submit sends), view.py (a job in
plain words), render.py (how it looks), live.py and logs.py (what changes while you watch), outcome.py (exit codes).
It needs a kubeconfig and ConfigMap `ebb-platform`, nothing else, and holds no state of its own.
"""


def main() -> None:
    """Entry point of the script `ebb`."""
    from workloads.cli.app import app  # noqa: PLC0415 - importing the package must stay cheap

    app()
