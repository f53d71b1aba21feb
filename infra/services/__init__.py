"""What runs in the cluster, the same on every cloud, one concern a module.

Each function declares one concern and returns what others depend on. Texts of workloads/ are read as files, never imported. Which
cloud it is nobody knows here.
"""

from infra.services.access import access
from infra.services.controller import controller
from infra.services.datasets import datasets
from infra.services.etcd import etcd, etcd_maintenance, legacy_etcd
from infra.services.gateway import gateway
from infra.services.helpers import helpers
from infra.services.jobs import jobs
from infra.services.limits import limits
from infra.services.names import ETCD_ENDPOINT, JOBS, SYSTEM
from infra.services.namespaces import namespaces, priorities
from infra.services.platform import PLATFORM, platform
from infra.services.storage import claims, prepare

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
