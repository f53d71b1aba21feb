"""The implementation behind ebb/elastic/__init__.py: one run of an elastic training, seen from one rank.

main.py           the entry point of a training process: sentences, exit codes, its end
config.py         settings: the program's own, flags, environment
run.py            Run, the public API of a run
start.py          the number of this generation, and the checkpoint it goes on from; rank 0 looks, all get its answer
checkpointing.py  the state that checkpoints hold
loop.py           the steps, one after the other: agree, save, leave, write down; loop_setup.py puts it together
evaluation.py     every sample once over all ranks, until a notice comes
step.py           one step: its micro-batches and its gradient
gradients.py      how ranks share gradients: averaged, or in an order that no world size changes; buckets.py: in memory's way;
                  weights.py: a mean over tokens and not over samples
plan.py           the samples that a rank reads; loading.py: batches of them on the device
process_group.py  the ranks of a generation; connections.py: how the loss of one is noticed; watchdog.py: how long they wait for
                  each other; peer_loss.py: how a survivor ends
sharding.py       a model of which each rank of a pod holds a part; pod.py: those ranks, which live and decide together
recovery.py       how a survivor goes on in memory instead; members.py: a process group that is made again and
                  again; nccl.py: its part between GPUs; transfer.py: a whole state from one rank to others
flight_recorder.py   the last collectives of a rank that hangs
report.py         lines, result.json, ledger and account of a run; metrics.py: metrics.jsonl and Prometheus
"""
