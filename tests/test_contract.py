"""The words that join the packages, pinned: the trainer's and the controller's copies never drift apart."""

import pytest

from ebb.api import contract as workloads
from ebb.elastic import contract as trainer

SHARED = sorted(
    name
    for name in vars(trainer)
    if name.startswith(("EXIT_", "ENV_", "METRIC_")) and name != "EXIT_PEER_LOST" and hasattr(workloads, name)
)


@pytest.mark.parametrize("name", SHARED)
def test_both_packages_use_the_same_word(name: str) -> None:
    assert getattr(trainer, name) == getattr(workloads, name)


def test_the_rendezvous_is_called_and_told_the_same() -> None:
    handler = pytest.importorskip("ebb.elastic.rendezvous.handler", reason="torch is not installed")
    assert handler.BACKEND == workloads.BACKEND_ETCD3


def test_what_the_controller_must_know_is_shared() -> None:
    assert {name for name in vars(trainer) if name.startswith("EXIT_")} - {"EXIT_PEER_LOST"} <= set(SHARED)
    assert {name for name in vars(trainer) if name.startswith("ENV_")} <= set(SHARED)


def test_a_held_machine_is_entered_where_its_launcher_says() -> None:
    assert trainer.HOLD_SCRIPT == workloads.HOLD_SCRIPT


def test_figures_of_a_network_check_are_known_by_one_word() -> None:
    assert trainer.NETWORK_LINE == workloads.NETWORK_LINE
    assert trainer.STORAGE_LINE == workloads.STORAGE_LINE


def test_last_figures_are_where_the_controller_looks() -> None:
    assert trainer.LAST_FIGURES == workloads.LAST_FIGURES


def test_exit_codes_are_these() -> None:
    assert (trainer.EXIT_FINISHED, trainer.EXIT_PROGRAM_FAILED, trainer.EXIT_RECLAIMED) == (0, 1, 138)
    assert (trainer.EXIT_HARDWARE, trainer.EXIT_NO_PROGRAM) == (79, 78)


def test_a_lost_peer_is_no_code_that_a_pod_may_end_with() -> None:
    assert trainer.EXIT_PEER_LOST not in workloads.RETRYABLE_EXIT_CODES | {0, 1}


def test_metric_names_are_these() -> None:
    assert {value for name, value in vars(trainer).items() if name.startswith("METRIC_")} == {
        "ebb_step",
        "ebb_total_steps",
        "ebb_epoch",
        "ebb_loss",
        "ebb_samples_per_second",
        "ebb_world_size",
        "ebb_generation",
        "ebb_checkpoint_step",
        "ebb_tracker_info",
        "ebb_held_seconds",
        "ebb_gpu_utilization_ratio",
        "ebb_gpu_memory_used_bytes",
        "ebb_gpu_memory_total_bytes",
        "ebb_gpu_idle_seconds",
        "ebb_useful_seconds_total",
        "ebb_lost_seconds_total",
        "ebb_steps_redone_total",
        "ebb_checkpoint_seconds_total",
    }
