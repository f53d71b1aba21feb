"""Figures that need a GPU: recovery of a compiled network over NCCL, the cost of snapshots, a step that runs out of memory."""
