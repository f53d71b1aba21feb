"""The names that join the controller, the trainer, the devcluster and the CLI: constants only, each with what it means.

Used as `from ebb.api.contract import EXIT_RECLAIMED`. ebb/elastic/contract.py holds the trainer's half, and a test pins the two
equal; nothing here computes, reads or imports anything.
"""

from typing import Final

# --- The API object -------------------------------------------------------------------------------------------------------------
GROUP: Final = "elastic.pytorch.org"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "ElasticJob"
PLURAL: Final = "elasticjobs"
MANAGER: Final = "ebb.dev/elasticjob-controller"  # spec.managedBy: any other value makes this controller leave the job alone

# --- Worker pods ----------------------------------------------------------------------------------------------------------------
WORKER_CONTAINER: Final = "elasticjob-worker"  # the container that trains; where no container has this name, the first one
LABEL_GROUP: Final = "group-name"  # the four unprefixed labels are upstream's; its value for this one is GROUP
LABEL_JOB: Final = "job-name"
LABEL_REPLICA_TYPE: Final = "replica-type"
LABEL_INDEX: Final = "replica-index"
LABEL_EBB_JOB: Final = "ebb.dev/job"
REPLICA_TYPE: Final = "worker"
ANNOTATION_ATTEMPT: Final = "ebb.dev/attempt"  # how many restarts of all workers came before this pod: one rendezvous each
ANNOTATION_SPEC: Final = "ebb.dev/spec"  # a hash of the parts of the job's spec that this worker was started with
ANNOTATION_BILLED: Final = "ebb.dev/submitted-by"  # of a job: who is named in the record of what it cost
ANNOTATION_OWNER: Final = "ebb.dev/owner"  # of a job, its pods and ConfigMaps: the user as the API server knows them
TEAM_PREFIX: Final = "ebb-team-"  # of the namespaces in which that is demanded
JOBS_NAMESPACE: Final = "elastic-job"  # of jobs without a team
ETCD: Final = "etcd"  # the stack's etcd, in the platform's namespace
TEAM_ETCD: Final = "etcd-team-"  # of the name of a team's etcd, beside the stack's; the team's follows
ETCD_ALIAS: Final = "etcd-service"  # the etcd of a namespace of jobs, seen from there: the name in job files
ETCD_SECRET: Final = "ebb-etcd"  # noqa: S105 - in each namespace of jobs: what opens its etcd (controller/etcd/certificates.py)
ETCD_FOLDER: Final = "/etc/ebb/etcd"  # where workers find it
LABEL_RECORD: Final = "ebb.dev/record"  # of the ConfigMap that says what an ended job was and cost
RECORD_KEY: Final = "record.json"  # in it: all of that as one JSON document
ANNOTATION_CODE: Final = "ebb.dev/code"  # of a job: the sha256 of the code that came with it, its version
LABEL_USER: Final = "ebb.dev/user"  # of a job: who says to have submitted it; no proof
LABEL_COPY: Final = "ebb.dev/copy"  # of the pod that copies a bucket before a job's workers exist: which bucket, and where to
COPY_SUFFIX: Final = "-copy"  # after the job's name: that pod's
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"  # of a job: the LocalQueue of Kueue that says when it may have machines
LABEL_QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"  # of a job: Kueue's WorkloadPriorityClass
LABEL_SECRET: Final = "ebb.dev/secret"  # noqa: S105 - no secret; of a Secret and the ConfigMap beside it: what `ebb` calls it
ANNOTATION_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SELECTOR_ALL: Final = f"{LABEL_GROUP}={GROUP}"  # every pod and service of every ElasticJob
GPU_RESOURCE: Final = "nvidia.com/gpu"

# --- Environment of workers (set only where the job's author did not) -----------------------------------------------------------
ENV_JOB: Final = "EBB_JOB"  # the job's name
ENV_JOB_UID: Final = "EBB_JOB_UID"
ENV_NAMESPACE: Final = "EBB_NAMESPACE"
ENV_WORKER_INDEX: Final = "EBB_WORKER_INDEX"
ENV_POD_UID: Final = "EBB_POD_UID"  # which of the pods that had that index: it is in the names of their logs on the volume
ENV_CPU_REQUEST: Final = "EBB_CPU_REQUEST"  # of the container, in thousandths of a core, by the downward API; 0: none
ENV_OUTPUT_DIR: Final = "EBB_OUTPUT_DIR"  # this job's own folder on the shared output volume
ENV_METRICS_PORT: Final = "EBB_METRICS_PORT"
ENV_PROGRESS_REGEX: Final = "EBB_PROGRESS_REGEX"
ENV_PLANNED_WORKERS: Final = "EBB_PLANNED_WORKERS"  # how many workers were planned when this one was made; the newest's counts
ENV_CODE_ARCHIVE: Final = "EBB_CODE_ARCHIVE"  # where the pod finds the code that came with the job: a .tar.gz
ENV_CODE_SHA256: Final = "EBB_CODE_SHA256"
ENV_LAUNCHER_PORT: Final = "EBB_LAUNCHER_PORT"  # where the launcher itself answers, whatever its program serves
ENV_HOLD_SECONDS: Final = "EBB_HOLD_ON_FAILURE_SECONDS"  # for how long the launcher holds the machine of a program that failed
ENV_RESTART_RULES: Final = "EBB_RESTART_RULES"  # JSON: after which failures the launcher starts the program again in its pod
ENV_BURN_IN_SECONDS: Final = "EBB_BURN_IN_SECONDS"  # for how long the launcher tests its machine before it joins; unset: not
ENV_NODE_NAME: Final = "EBB_NODE_NAME"  # where a burn-in is asked for: the Node of the pod, which is tested once
ENV_WHEELS: Final = "EBB_WHEELS"  # a folder with all that this requirements.txt asks for: no index is asked
ENV_PACKAGES: Final = "EBB_PACKAGES"  # the folder for what a requirements.txt in that code asks for: shared, one folder a content
ENV_RESUME_FROM: Final = "EBB_RESUME_FROM"  # another job's folder, whose newest checkpoint a new job starts from
ENV_SWEEP_SEARCH: Final = "EBB_SWEEP_SEARCH"  # JSON: how the run's launcher chooses its point (ebb/elastic/launch/sweep_point.py)
ENV_RDZV_BACKEND: Final = "PET_RDZV_BACKEND"
ENV_RDZV_ENDPOINT: Final = "PET_RDZV_ENDPOINT"
ENV_RDZV_ID: Final = "PET_RDZV_ID"
ENV_NNODES: Final = "PET_NNODES"
ENV_ETCD_TLS: Final = "EBB_ETCD_TLS"  # a folder with ca.crt, tls.crt and tls.key: etcd is asked by TLS
ENV_LOCAL_ADDR: Final = "PET_LOCAL_ADDR"  # the pod's IP: peers need no DNS name to reach rank 0
BACKEND_ETCD3: Final = "etcd3"  # spec.rdzvBackend: Ebb's own rendezvous, on etcd's v3 API; Ebb's trainer package has it
BACKEND_ETCD: Final = "etcd"  # spec.rdzvBackend: torch's older one, on the v2 API that etcd 3.6 no longer has
LEGACY_ETCD: Final = "etcd-legacy.ebb-system.svc:2379"  # where BACKEND_ETCD finds that API: manifests/legacy
OUTPUT_ROOT: Final = "/mnt/output"
METRICS_PORT: Final = 9400  # Prometheus text on /metrics of every worker
LAUNCHER_PORT: Final = 9401  # the same, of its launcher, which is there before its program begins and after it has ended
# The launcher leaves a script here, in the folder for temporary files, that runs a command as the program that failed ran.
LAST_FIGURES: Final = "ebb"  # the key under which a finished run's last figures are in its pod's termination message
HOLD_SCRIPT: Final = "ebb-hold/enter"
NETWORK_LINE: Final = "ebb-network"  # before each line of JSON that rank 0 of a network check prints
STORAGE_LINE: Final = "ebb-storage"  # the same of a storage check

# --- The gateway ----------------------------------------------------------------------------------------------------------------
GATEWAY: Final = "ebb-gateway"  # its pod's label app.kubernetes.io/name, in the jobs' namespace
GATEWAY_PORT: Final = 8080
GATEWAY_METRICS_PORT: Final = 9402  # the room on its volumes, where the stack has `monitoring`

# --- Exit codes of a worker's launcher ------------------------------------------------------------------------------------------
EXIT_FINISHED: Final = 0  # the training is done
EXIT_PROGRAM_FAILED: Final = 1  # the program failed; spends one of spec.backoffLimit
EXIT_RECLAIMED: Final = 138  # stopped by SIGTERM: the machine goes away; replaced, and nothing is spent
EXIT_HARDWARE: Final = 79  # the machine's hardware is at fault: replaced on another machine, and nothing is spent
EXIT_COPY_REFUSED: Final = 77  # of a copy of a bucket: another try would fail the same; the last line of its log says why
EXIT_NO_PROGRAM: Final = 78  # the program is not there: no machine and no other try could start it, so the job ends at once
RETRYABLE_EXIT_CODES: Final = frozenset({130, 137, 138, 143})  # restartPolicy ExitCode: upstream's list

# --- Metrics of a worker --------------------------------------------------------------------------------------------------------
METRIC_STEP: Final = "ebb_step"
METRIC_TOTAL_STEPS: Final = "ebb_total_steps"
METRIC_EPOCH: Final = "ebb_epoch"
METRIC_LOSS: Final = "ebb_loss"
METRIC_SAMPLES_PER_SECOND: Final = "ebb_samples_per_second"
METRIC_WORLD_SIZE: Final = "ebb_world_size"
METRIC_GENERATION: Final = "ebb_generation"
METRIC_CHECKPOINT_STEP: Final = "ebb_checkpoint_step"  # the step of the newest committed checkpoint
METRIC_TRACKER: Final = "ebb_tracker_info"  # label url: the run in the program's own experiment tracker
METRIC_HELD_SECONDS: Final = (
    "ebb_held_seconds"  # of a launcher: for how long it still holds its machine; labels exit_code, message
)
METRIC_GPU_UTILIZATION: Final = "ebb_gpu_utilization_ratio"  # of a launcher, as the next three; labels gpu and rank
METRIC_GPU_MEMORY_USED: Final = "ebb_gpu_memory_used_bytes"
METRIC_GPU_MEMORY_TOTAL: Final = "ebb_gpu_memory_total_bytes"
METRIC_GPU_IDLE_SECONDS: Final = "ebb_gpu_idle_seconds"  # since utilization was last 10 % or more
METRIC_USEFUL_SECONDS: Final = "ebb_useful_seconds_total"  # the job's time in steps that count; less after steps are redone

# --- Nodes ----------------------------------------------------------------------------------------------------------------------
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
LABEL_NODE_GROUP: Final = "ebb.dev/node-group"
MANAGER_GROUP: Final = "manager"  # the node group of the platform itself: no job runs there
LABEL_CAPACITY: Final = "ebb.dev/capacity-type"
LABEL_GPU_TYPE: Final = "ebb.dev/gpu-type"
# On a machine that the cloud is about to take back. Cluster-autoscaler makes its idea of a group's next machine from one that is
# there, taints included, and keeps it for ten years: a group whose last machine is taken back would never grow again. It leaves
# out taints with this prefix (pkg/utils/taints in its source), also where the cloud runs it and nobody can give it flags.
TAINT_RECLAIM: Final = "status-taint.cluster-autoscaler.kubernetes.io/ebb-reclaim"
TAINTS_RECLAIM: Final = frozenset(  # the same, by our own and by the clouds' handlers
    {
        TAINT_RECLAIM,
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "aws-node-termination-handler/scheduled-maintenance",
        "cloud.google.com/impending-node-termination",
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
    }
)
CONDITION_RECLAIM: Final = "ReclaimNotice"  # node condition; its message carries the deadline in RFC 3339
CONDITION_DISRUPTION: Final = "DisruptionTarget"  # pod condition of Kubernetes: evicted, preempted, tainted, node shut down

# --- Conditions of a job. Created stays True. Running and Restarting exclude each other. Succeeded and Failed are final. ---
CREATED: Final = "Created"
RUNNING: Final = "Running"  # at least minReplicas workers run
RESTARTING: Final = "Restarting"  # fewer than minReplicas run, after enough had
SUSPENDED: Final = "Suspended"  # by spec.suspend, or held by the controller: the reason says which
STALLED: Final = "Stalled"  # machines are paid for and nothing is trained
DATA_READY: Final = "DataReady"  # the copy of spec.data is whole
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
WAITING: Final = "Waiting"  # status.state only: enough workers never ran yet; condition Running says why not

# --- Reasons of conditions and events; ElasticJob* and Successful* are upstream's names ---
REASON_CREATED: Final = "ElasticJobCreated"
REASON_RUNNING: Final = "ElasticJobRunning"
REASON_RESTARTING: Final = "ElasticJobRestarting"
REASON_SUCCEEDED: Final = "ElasticJobSucceeded"
REASON_FAILED: Final = "ElasticJobFailed"  # the program failed more often than backoffLimit allows, or in a way not to be retried
REASON_DEADLINE: Final = "DeadlineExceeded"  # activeDeadlineSeconds is over
REASON_BUDGET: Final = "BudgetSpent"  # held: spec.budget.maxUSD is spent
REASON_BUDGET_NEARLY: Final = "BudgetNearlySpent"  # 90 % of spec.budget.maxUSD; told once of each
REASON_NO_PRICE: Final = "NoPrice"  # spec.budget cannot be kept: the machines have no price
REASON_TIME_UP: Final = "DeadlinePassed"  # held: spec.deadline is over
REASON_CANNOT_START: Final = "CannotStart"  # containers cannot start: image, configuration, volume; restarted once, then held
REASON_NO_PROGRESS: Final = "NoProgress"  # no new step for too long or over too many generations; restarted once, then held
REASON_REPEATEDLY_LOST: Final = "RepeatedlyLost"  # a worker is lost as soon as it comes: pauses, and at last the job is held
REASON_SWEEP_WORST: Final = "AmongTheWorst"  # held: other runs of its sweep do better (spec.group.halving)
REASON_SWEEP_PAUSED: Final = "PausedBySweep"  # held at a rung, until it is among the best of those that came there
REASON_SWEEP_PROMOTED: Final = "PromotedBySweep"
REASON_COPIED: Final = "DataCopied"
REASON_COPY_REFUSED: Final = "DataCopyRefused"  # held: the bucket cannot be copied; the message says why, and what to do
REASON_COPY_FAILED: Final = "DataCopyFailed"  # it is tried again, and goes on where it was
REASON_PROGRESSES: Final = "Progresses"
REASON_MOVED: Final = "Moved"  # the job goes to another zone, or from spot to on-demand or back
REASON_RELEASED: Final = "MachinesReleased"  # a job that could not be placed as a whole lets go of what it holds
REASON_PREEMPTED: Final = "Preempted"  # stopped with a checkpoint for a job of higher priority; goes on when there is room
REASON_ADMITTED: Final = "AdmittedByKueue"  # the job may have machines: as many as the message says
REASON_EVICTED: Final = "EvictedByKueue"  # stopped with a checkpoint, as Kueue took its quota back; the message says why
REASON_SUSPENDED: Final = "ElasticJobSuspended"
REASON_RESUMED: Final = "ElasticJobResumed"
REASON_PLACED: Final = "Placed"  # a zone was chosen
REASON_SPEC_CHANGED: Final = "SpecChanged"  # workers of another spec run: all start again with the present one
REASON_SCALED: Final = "Scaled"
REASON_RECLAIMED: Final = "WorkerReclaimed"
REASON_HARDWARE: Final = "HardwareFault"  # a machine's hardware failed; the message says which, how, and what to do
REASON_LEAVES: Final = "WorkerLeaves"  # by plan, before its machine is too old
REASON_PROGRAM_FAILED: Final = "ProgramFailed"
REASON_GPU_IDLE: Final = "GPUIdle"  # a GPU of the job is hardly used for 10 minutes; told once until all are used again
REASON_POD_CREATED: Final = "SuccessfulCreatePod"
REASON_CREATE_REFUSED: Final = "FailedCreate"  # the API server refused a pod or service; its words are in the message
REASON_API_ERROR: Final = "APIServerError"  # what the job needs fails and is tried again; the message has the words
REASON_SPEC_INVALID: Final = "InvalidSpec"  # written before the current CRD validated it
REASON_ETCD_ALARM: Final = "EtcdAlarm"  # etcd refuses writes; the message says what that stops, and the fix
REASON_ETCD_CURED: Final = "EtcdCured"
WAITING_FOR_MACHINES: Final = "WaitingForMachines"  # pods exist, no machine has room yet
WAITING_FOR_GATES: Final = "SchedulingGated"  # spec.schedulingGates of the pods: somebody else says when they may be scheduled
WAITING_FOR_START: Final = "WaitingForStart"  # placed on machines, containers not running yet
WAITING_FOR_WORKERS: Final = "WaitingForWorkers"  # some run, fewer than minReplicas
WAITING_FOR_NAMES: Final = "NamesTaken"  # pods of an earlier job of that name are still on their way out
REASON_SERVICE_TAKEN: Final = "ServiceNameTaken"  # the Service of the workers' names is not the job's; training does without
WAITING_FOR_ZONE: Final = "NoZoneFits"  # no zone of the stack can hold minReplicas of these pods
WAITING_FOR_DATA: Final = "CopyingData"  # the copy of spec.data is not whole yet: no machines are asked for
WAITING_BOOTING: Final = "MachinesBooting"  # the autoscaler has asked the cloud for machines
WAITING_DRY: Final = "ZoneDry"  # the cloud has no such machines now; the message has its words
WAITING_CLOUD_QUOTA: Final = "CloudQuota"  # the account may not have more of them; the message has the cloud's words
WAITING_BEHIND: Final = "BehindOthers"  # jobs before this one in the order need the machines first
WAITING_FOR_KUEUE: Final = "QueuedByKueue"  # the job's queue is Kueue's; the message has its words
WAITING_NO_KUEUE: Final = "NoKueue"  # the job's queue is Kueue's, which the cluster does not have
WAITING_FOR_GROUP: Final = "GroupFull"  # spec.group.maxParallel jobs of the group run
WAITING_FOR_QUOTA: Final = "QuotaExceeded"  # a ResourceQuota of the namespace; the message has its words
WAITING_QUOTA_TOO_SMALL: Final = "QuotaTooSmall"  # minReplicas is more than a ResourceQuota of the namespace allows at all
WAITING_TEAM_BUDGET: Final = "TeamBudgetSpent"  # the jobs of the team have cost what they may cost in this month
WAITING_FOR_PLATFORM: Final = "PlatformUnreadable"  # ConfigMap ebb-platform is there but cannot be understood
WAITING_FOR_RENDEZVOUS: Final = "NoLegacyRendezvous"  # the job asks for a rendezvous that no etcd of the stack speaks

# --- Why a worker was lost: label `cause` of ebb_reclaims_total, status.history[].cause ---
CAUSE_NODE_GONE: Final = "NodeGone"  # the Node object was deleted
CAUSE_NODE_SILENT: Final = "NodeSilent"  # its kubelet stopped reporting
CAUSE_NODE_NOT_READY: Final = "NodeNotReady"
CAUSE_NOTICE: Final = "ReclaimNotice"
CAUSE_AGE: Final = "MachineAge"  # left by plan, before the cloud takes the machine for its age: no reclaim
CAUSE_DISRUPTED: Final = "Disrupted"  # evicted, preempted or shut down; the pod's condition says by whom
CAUSE_PREEMPTED: Final = "Preempted"  # the scheduler gave its place to a pod of higher priority
CAUSE_DELETED: Final = "PodDeleted"  # somebody deleted the pod
CAUSE_VANISHED: Final = "PodVanished"
CAUSE_LEFT: Final = "LeftOnReclaim"  # the launcher exited with EXIT_RECLAIMED
CAUSE_HARDWARE: Final = "HardwareFault"  # the launcher exited with EXIT_HARDWARE
CAUSE_PROGRAM: Final = "ProgramFailed"
