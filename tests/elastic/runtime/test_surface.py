"""The public surface, pinned: what grows or changes here is a decision, and is written here too."""

import dataclasses
import inspect

from ebb import elastic


def test_the_names() -> None:
    assert elastic.__all__ == ["ConfigError", "Left", "Loader", "Progress", "Run", "RunConfig", "Step", "add_flags", "start"]


def signatures(kind: type) -> dict[str, str]:
    found = {}
    for name, value in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            found[name] = "property"
        elif callable(value):
            parameters = list(inspect.signature(value).parameters.values())[1:]
            found[name] = ", ".join(
                {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(each.kind.name, "") + each.name for each in parameters
            )
    return found


def test_a_run() -> None:
    assert signatures(elastic.Run) == {
        "step": "property",
        "total_steps": "property",
        "owes_evaluation": "property",
        "distribute": "model, speed, cache, **options",
        "keep": "model, optimizer, identity, evaluated, **others",
        "loader": "dataset, workers, fingerprint, seeded, **options",
        "steps": "loader",
        "evaluate": "dataset, measure, batch_size, workers, **options",
        "best": "score, **metrics",
        "finish": "**figures",
        "rank_zero_first": "",
        "from_rank_zero": "facts",
        "from_all_ranks": "facts",
        "unhurried": "",
        "on_progress": "listener",
        "say": "text",
    }


def test_a_step() -> None:
    assert signatures(elastic.Step) == {"backward": "loss, scaler", "add": "**sums"}


def test_start() -> None:
    assert list(inspect.signature(elastic.start).parameters) == ["config", "notice", "settings"]


def test_the_settings() -> None:
    assert [each.name for each in dataclasses.fields(elastic.RunConfig)] == [
        *("output", "epochs", "global_batch", "max_micro_batch", "virtual_workers", "seed"),
        *("workers", "threads", "device", "log_every"),
        *("checkpoint_seconds", "checkpoint_min_seconds", "checkpoint_overhead", "keep_checkpoints"),
        *("resume_from", "checkpoint_file"),
        *("first_step_seconds", "collective_seconds", "leave_seconds", "min_step_seconds"),
        *("ledger", "metrics_port", "place", "owner"),
    ]
