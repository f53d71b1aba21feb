"""The public surface, pinned: what grows or changes here is a decision, and is written here too."""

import dataclasses
import inspect

from ebb import elastic
from ebb.elastic import checkpoint, data, report, speed


def test_the_names() -> None:
    assert elastic.__all__ == [
        "ENV_PLANNED_WORKERS",
        *("ConfigError", "GracefulExit", "Loader", "Notice", "Parser", "Progress", "Run", "RunConfig", "Step"),
        *("add_flags", "complete", "end_process", "mds", "option", "parquet", "parse", "run_program", "run_rank", "start"),
        *("tokens", "webdataset"),
    ]
    assert all(getattr(elastic, name) is not None for name in elastic.__all__)


def test_the_names_of_the_public_subpackages() -> None:
    assert set(data.__all__) == {
        *("Batch", "DataError", "Files", "Images", "NodeCache", "Piece", "Sample", "Seeded", "Site"),
        *("advice", "batches", "loader_workers", "loading_rate", "normalise"),
        *("open_images", "open_source", "workers_beside_cpu_training"),
    }
    assert speed.__all__ == ["CompileCache", "Speed", "SpeedOptions", "choose"]
    assert report.__all__ == ["Curves", "EventFile", "Labelled", "append", "save_images", "spread"]
    assert "newest_manifest" in checkpoint.__all__


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
        "rank": "property",
        "world_size": "property",
        "generation": "property",
        "step": "property",
        "total_steps": "property",
        "evaluation_pending": "property",
        "distribute": "model, shard, speed, cache, **options",
        "register_state": "model, optimizer, identity, evaluated, **others",
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
        "log": "text",
    }


def test_a_step() -> None:
    assert signatures(elastic.Step) == {
        "backward": "loss, weight, scaler",
        "within_memory": "",
        "add": "**sums",
    }


def test_start() -> None:
    assert list(inspect.signature(elastic.start).parameters) == ["config", "notice", "settings"]


def test_the_settings() -> None:
    assert [each.name for each in dataclasses.fields(elastic.RunConfig)] == [
        *("output", "epochs", "global_batch", "max_micro_batch", "virtual_workers", "seed"),
        *("workers", "threads", "device", "log_every"),
        *("checkpoint_seconds", "checkpoint_min_seconds", "checkpoint_overhead", "keep_checkpoints"),
        *("resume_from", "checkpoint_file"),
        *("first_step_seconds", "collective_seconds", "recovery", "snapshot_overhead"),
        *("leave_seconds", "min_step_seconds"),
        *("ledger", "metrics_port", "place", "owner"),
    ]
