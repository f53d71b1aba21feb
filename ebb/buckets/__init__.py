"""Copies of buckets: the objects below s3://, gs:// or az:// as files on a shared volume, fetched once.

    python -m ebb.buckets s3://imagenet/train /mnt/data/imagenet-train-1a2b3c4d

It runs in a pod of its own on the platform's machine, before a job's workers exist: machines with GPUs do not wait for a copy.
"""
