"""What runs in the cluster, the same on every cloud, one concern a module.

Each function declares one concern and returns what others depend on. Texts of workloads/ are read as files, never imported. Which
cloud it is nobody knows here.
"""

from workloads.access import access
from workloads.controller import controller
from workloads.datasets import datasets
from workloads.etcd import etcd, etcd_maintenance, legacy_etcd
from workloads.gateway import gateway
from workloads.helpers import helpers
from workloads.limits import limits
from workloads.names import ETCD_ENDPOINT, JOBS, SYSTEM
from workloads.namespaces import namespaces, priorities
from workloads.platform import PLATFORM, platform
from workloads.stack_jobs import jobs
from workloads.storage import claims, prepare

__all__ = [
    "ETCD_ENDPOINT",
    "JOBS",
    "PLATFORM",
    "SYSTEM",
    "access",
    "claims",
    "controller",
    "datasets",
    "etcd",
    "etcd_maintenance",
    "gateway",
    "helpers",
    "jobs",
    "legacy_etcd",
    "limits",
    "namespaces",
    "platform",
    "prepare",
    "priorities",
]
