"""The words that the trainer shares with the controller and the CLI: environment, exit codes, metric names.

Its twin is ebb/api/contract.py: the packages never import each other, and tests/test_contract.py pins the two equal.
It holds names only: config.py reads the environment, metrics.py writes the metrics.
"""

from typing import Final

EXIT_FINISHED: Final = 0  # trained to the end, evaluated, result.json is written
EXIT_PROGRAM_FAILED: Final = 1  # the program raised, or its settings are wrong: starting it again would fail again
EXIT_RECLAIMED: Final = 138  # left at a step boundary because of a SIGTERM: start a replacement, charge no budget
EXIT_HARDWARE: Final = 79  # this machine's hardware is at fault: start a replacement on another one, charge no budget
EXIT_NO_PROGRAM: Final = 78  # the program is not there: no machine and no other try could start it, so the job ends at once

# Only between a worker process and its launcher, never the code of a pod: another machine vanished, meet the others again.
EXIT_PEER_LOST: Final = 75

ENV_JOB: Final = "EBB_JOB"
ENV_JOB_UID: Final = "EBB_JOB_UID"
ENV_NAMESPACE: Final = "EBB_NAMESPACE"
ENV_WORKER_INDEX: Final = "EBB_WORKER_INDEX"
ENV_POD_UID: Final = "EBB_POD_UID"
ENV_CPU_REQUEST: Final = "EBB_CPU_REQUEST"
ENV_OUTPUT_DIR: Final = "EBB_OUTPUT_DIR"
ENV_METRICS_PORT: Final = "EBB_METRICS_PORT"
ENV_PROGRESS_REGEX: Final = "EBB_PROGRESS_REGEX"
ENV_ETCD_TLS: Final = "EBB_ETCD_TLS"  # a folder: ca.crt, tls.crt, tls.key
ENV_PLANNED_WORKERS: Final = "EBB_PLANNED_WORKERS"
ENV_CODE_ARCHIVE: Final = "EBB_CODE_ARCHIVE"
ENV_CODE_SHA256: Final = "EBB_CODE_SHA256"
ENV_PACKAGES: Final = "EBB_PACKAGES"
ENV_WHEELS: Final = "EBB_WHEELS"
ENV_LAUNCHER_PORT: Final = "EBB_LAUNCHER_PORT"
ENV_SWEEP_SEARCH: Final = "EBB_SWEEP_SEARCH"
ENV_HOLD_SECONDS: Final = "EBB_HOLD_ON_FAILURE_SECONDS"
ENV_RESTART_RULES: Final = "EBB_RESTART_RULES"
ENV_BURN_IN_SECONDS: Final = "EBB_BURN_IN_SECONDS"
ENV_NODE_NAME: Final = "EBB_NODE_NAME"

LAST_FIGURES: Final = "ebb"
HOLD_SCRIPT: Final = "ebb-hold/enter"
NETWORK_LINE: Final = "ebb-network"  # before each line of JSON that rank 0 of a network check prints
STORAGE_LINE: Final = "ebb-storage"  # the same of a storage check

METRIC_STEP: Final = "ebb_step"
METRIC_TOTAL_STEPS: Final = "ebb_total_steps"
METRIC_EPOCH: Final = "ebb_epoch"
METRIC_LOSS: Final = "ebb_loss"
METRIC_SAMPLES_PER_SECOND: Final = "ebb_samples_per_second"
METRIC_WORLD_SIZE: Final = "ebb_world_size"
METRIC_GENERATION: Final = "ebb_generation"
METRIC_CHECKPOINT_STEP: Final = "ebb_checkpoint_step"
METRIC_TRACKER: Final = "ebb_tracker_info"
METRIC_HELD_SECONDS: Final = "ebb_held_seconds"
METRIC_GPU_UTILIZATION: Final = "ebb_gpu_utilization_ratio"
METRIC_GPU_MEMORY_USED: Final = "ebb_gpu_memory_used_bytes"
METRIC_GPU_MEMORY_TOTAL: Final = "ebb_gpu_memory_total_bytes"
METRIC_GPU_IDLE_SECONDS: Final = "ebb_gpu_idle_seconds"
METRIC_USEFUL_SECONDS: Final = "ebb_useful_seconds_total"
METRIC_LOST_SECONDS: Final = "ebb_lost_seconds_total"
METRIC_STEPS_REDONE: Final = "ebb_steps_redone_total"
METRIC_CHECKPOINT_SECONDS: Final = "ebb_checkpoint_seconds_total"
