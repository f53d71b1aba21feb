"""The verbs: typer's annotations, a call of ebb.client, and what is shown of its answer."""
