"""Training loops of other libraries, on machines that come and go. docs/adapters.md says which promise holds through which.

    from ebb.elastic.adapters.huggingface import make_elastic      # Trainer, and TRL's trainers that are one
    from ebb.elastic.adapters.lightning import Elastic             # Lightning's Trainer
    from ebb.elastic.adapters.accelerate import Elastic            # a loop of one's own on Accelerate

These libraries own the loop and the process group, so a change of machines starts every process anew, and the job goes on from a
checkpoint. batches.py: the samples of each step, and how much each micro-batch weighs. folders.py: checkpoint folders that count
whole and once. job.py: what all of them share (the generation, the notice, the agreement of the ranks, the ledger). The libraries
are imported by the adapter of each, and by nothing else of Ebb.
"""
