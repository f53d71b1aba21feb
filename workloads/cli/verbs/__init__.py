"""The verbs: typer's annotations, a call of workloads.client, and what is shown of its answer."""
