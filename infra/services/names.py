"""Names that more than one service, or the program, must agree on. Nothing is declared here."""

import pulumi

SYSTEM, JOBS = "ebb-system", "elastic-job"
PLATFORM_PRIORITY, JOB_PRIORITY = "ebb-system", "ebb-job"
ETCD, ETCD_PORT = "etcd", 2379
ETCD_ENDPOINT = f"etcd-service:{ETCD_PORT}"  # the name that job files of pytorch/elastic have always used
NAME_LABEL = "app.kubernetes.io/name"
NOBODY = 1000  # the images' user; shared volumes are its own

Resources = list[pulumi.Resource]
