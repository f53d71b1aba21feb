"""Names that more than one service, or the program, must agree on. Nothing is declared here."""

import pulumi

SYSTEM, JOBS = "ebb-system", "elastic-job"
PLATFORM_PRIORITY, JOB_PRIORITY = "ebb-system", "ebb-job"
ETCD, ETCD_PORT = "etcd", 2379
ETCD_ENDPOINT = f"etcd-service:{ETCD_PORT}"  # the name that job files of pytorch/elastic have always used
LEGACY_ETCD = "etcd-legacy"
# Through the search list of a pod's resolver, so in every namespace and under every cluster domain.
LEGACY_ETCD_ENDPOINT = f"{LEGACY_ETCD}.{SYSTEM}.svc:{ETCD_PORT}"
COMPONENT_LABEL, RENDEZVOUS = "app.kubernetes.io/component", "rendezvous"  # of both etcds
NAME_LABEL = "app.kubernetes.io/name"
GATEWAY = "ebb-gateway"  # of its pod's NAME_LABEL
NOBODY = 1000  # the images' user; shared volumes are its own

Resources = list[pulumi.Resource]
