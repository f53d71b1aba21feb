"""Who may do what, as requests to the API server: tables for test_on_api_server.py. A right more or less is a line here.

What it is called -> (method, path). Objects named `none` and namespaces named `any` need not be there: who may not is told so
before that.
"""

from collections.abc import Mapping

Requests = Mapping[str, tuple[str, str]]

CORE, JOBS = "/api/v1/namespaces", "/apis/elastic.pytorch.org/v1alpha1/namespaces"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"

RESEARCHER_MAY: Requests = {
    "list jobs": ("GET", f"{JOBS}/elastic-job/elasticjobs"),
    "watch jobs": ("GET", f"{JOBS}/elastic-job/elasticjobs?watch=true&timeoutSeconds=1"),
    "delete all jobs": ("DELETE", f"{JOBS}/elastic-job/elasticjobs?labelSelector=none%3Dhere"),
    "list config maps": ("GET", f"{CORE}/elastic-job/configmaps"),
    "delete a config map": ("DELETE", f"{CORE}/elastic-job/configmaps/none"),
    "list pods": ("GET", f"{CORE}/elastic-job/pods"),
    "watch pods": ("GET", f"{CORE}/elastic-job/pods?watch=true&timeoutSeconds=1"),
    "see a pod": ("GET", f"{CORE}/elastic-job/pods/worker-0"),
    "read a log": ("GET", f"{CORE}/elastic-job/pods/worker-0/log"),
    "list events": ("GET", f"{CORE}/elastic-job/events"),
    "list events, as newer clients do": ("GET", "/apis/events.k8s.io/v1/namespaces/elastic-job/events"),
    "run a command": ("POST", f"{CORE}/elastic-job/pods/worker-0/exec?command=ls"),
    "run a command, by WebSocket": ("GET", f"{CORE}/elastic-job/pods/worker-0/exec?command=ls"),
    "forward a port": ("POST", f"{CORE}/elastic-job/pods/worker-0/portforward"),
    "forward a port, by WebSocket": ("GET", f"{CORE}/elastic-job/pods/worker-0/portforward"),
    "list machines": ("GET", "/api/v1/nodes"),
    "see a machine": ("GET", "/api/v1/nodes/none"),
    "read the platform's facts": ("GET", f"{CORE}/ebb-system/configmaps/ebb-platform"),
    "read the machine books": ("GET", f"{CORE}/ebb-system/configmaps/ebb-machines"),
}
RESEARCHER_MAY_NOT: Requests = {
    "read secrets": ("GET", f"{CORE}/elastic-job/secrets"),
    "read a secret": ("GET", f"{CORE}/elastic-job/secrets/any"),
    "make a secret": ("POST", f"{CORE}/elastic-job/secrets"),
    "make a pod": ("POST", f"{CORE}/elastic-job/pods"),
    "delete a pod": ("DELETE", f"{CORE}/elastic-job/pods/worker-0"),
    "evict a pod": ("POST", f"{CORE}/elastic-job/pods/worker-0/eviction"),
    "change a pod": ("PATCH", f"{CORE}/elastic-job/pods/worker-0"),
    "debug a pod with another container": ("PATCH", f"{CORE}/elastic-job/pods/worker-0/ephemeralcontainers"),
    "make a service": ("POST", f"{CORE}/elastic-job/services"),
    "make a claim": ("POST", f"{CORE}/elastic-job/persistentvolumeclaims"),
    "delete the data": ("DELETE", f"{CORE}/elastic-job/persistentvolumeclaims/ebb-data"),
    "make a Deployment": ("POST", "/apis/apps/v1/namespaces/elastic-job/deployments"),
    "make a Job": ("POST", "/apis/batch/v1/namespaces/elastic-job/jobs"),
    "write an event": ("POST", f"{CORE}/elastic-job/events"),
    "write a job's status": ("PUT", f"{JOBS}/elastic-job/elasticjobs/none/status"),
    "list jobs elsewhere": ("GET", f"{JOBS}/default/elasticjobs"),
    "list jobs everywhere": ("GET", "/apis/elastic.pytorch.org/v1alpha1/elasticjobs"),
    "get a token": ("POST", f"{CORE}/elastic-job/serviceaccounts/default/token"),
    "give themselves more": ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/elastic-job/rolebindings"),
    "change a quota": ("PATCH", f"{CORE}/elastic-job/resourcequotas/objects"),
    "remove a policy": ("DELETE", "/apis/networking.k8s.io/v1/namespaces/elastic-job/networkpolicies/jobs"),
    "change the platform's facts": ("PATCH", f"{CORE}/ebb-system/configmaps/ebb-platform"),
    "change the machine books": ("PUT", f"{CORE}/ebb-system/configmaps/ebb-machines"),
    "list the platform's config maps": ("GET", f"{CORE}/ebb-system/configmaps"),
    "read another config map": ("GET", f"{CORE}/ebb-system/configmaps/cluster-autoscaler-priority-expander"),
    "read the platform's secrets": ("GET", f"{CORE}/ebb-system/secrets"),
    "list the platform's pods": ("GET", f"{CORE}/ebb-system/pods"),
    "see etcd": ("GET", f"{CORE}/ebb-system/pods/etcd-0"),
    "forward a port of etcd": ("POST", f"{CORE}/ebb-system/pods/etcd-0/portforward"),
    "forward a port of etcd, by WebSocket": ("GET", f"{CORE}/ebb-system/pods/etcd-0/portforward"),
    "run a command in etcd": ("POST", f"{CORE}/ebb-system/pods/etcd-0/exec?command=ls"),
    "read etcd's log": ("GET", f"{CORE}/ebb-system/pods/etcd-0/log"),
    "change the gateway": ("PATCH", "/apis/apps/v1/namespaces/elastic-job/deployments/ebb-gateway"),
    "cordon a machine": ("PATCH", "/api/v1/nodes/none"),
    "reach into a machine": ("GET", "/api/v1/nodes/none/proxy/logs"),
    "list namespaces": ("GET", "/api/v1/namespaces"),
    "delete the kind": ("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elasticjobs.elastic.pytorch.org"),
}
AUTOSCALER_MAY: Requests = {
    **{
        name: ("GET", path)
        for name, path in {
            "nodes": "/api/v1/nodes",
            "pods": "/api/v1/pods",
            "namespaces": "/api/v1/namespaces",
            "services": "/api/v1/services",
            "replication controllers": "/api/v1/replicationcontrollers",
            "claims": "/api/v1/persistentvolumeclaims",
            "volumes": "/api/v1/persistentvolumes",
            "replica sets": "/apis/apps/v1/replicasets",
            "stateful sets": "/apis/apps/v1/statefulsets",
            "daemon sets": "/apis/apps/v1/daemonsets",
            "jobs": "/apis/batch/v1/jobs",
            "disruption budgets": "/apis/policy/v1/poddisruptionbudgets",
            "storage classes": "/apis/storage.k8s.io/v1/storageclasses",
            "storage drivers": "/apis/storage.k8s.io/v1/csidrivers",
            "storage of machines": "/apis/storage.k8s.io/v1/csinodes",
            "storage capacities": "/apis/storage.k8s.io/v1/csistoragecapacities",
            "attachments": "/apis/storage.k8s.io/v1/volumeattachments",
            "device classes": "/apis/resource.k8s.io/v1/deviceclasses",
            "resource claims": "/apis/resource.k8s.io/v1/resourceclaims",
            "resource slices": "/apis/resource.k8s.io/v1/resourceslices",
            "its priorities": f"{CORE}/ebb-system/configmaps",
            "its report": f"{CORE}/ebb-system/configmaps/cluster-autoscaler-status",
            "its lease": "/apis/coordination.k8s.io/v1/namespaces/ebb-system/leases/cluster-autoscaler",
        }.items()
    },
    "taint a machine": ("PUT", "/api/v1/nodes/none"),
    "evict": ("POST", f"{CORE}/elastic-job/pods/none/eviction"),
    "write events": ("POST", f"{CORE}/elastic-job/events"),
    "write its report": ("PUT", f"{CORE}/ebb-system/configmaps/cluster-autoscaler-status"),
    "make its lease": ("POST", "/apis/coordination.k8s.io/v1/namespaces/ebb-system/leases"),
    "renew its lease": ("PUT", "/apis/coordination.k8s.io/v1/namespaces/ebb-system/leases/cluster-autoscaler"),
}
AUTOSCALER_MAY_NOT: Requests = {
    "read secrets": ("GET", "/api/v1/secrets"),
    "delete a pod": ("DELETE", f"{CORE}/elastic-job/pods/worker-0"),
    "make a pod": ("POST", f"{CORE}/elastic-job/pods"),
    "delete a machine": ("DELETE", "/api/v1/nodes/none"),
    "change the platform's facts": ("PUT", f"{CORE}/ebb-system/configmaps/ebb-platform"),
    "read config maps of jobs": ("GET", f"{CORE}/elastic-job/configmaps"),
    "take the controller's lease": ("PUT", "/apis/coordination.k8s.io/v1/namespaces/ebb-system/leases/ebb-controller"),
    "change its own priorities": ("PUT", f"{CORE}/ebb-system/configmaps/cluster-autoscaler-priority-expander"),
    "change a job": ("PATCH", "/apis/batch/v1/namespaces/elastic-job/jobs/any"),
}


CONTROLLER_MAY: Requests = {
    "list all jobs": ("GET", "/apis/elastic.pytorch.org/v1alpha1/elasticjobs"),
    "watch all jobs": ("GET", "/apis/elastic.pytorch.org/v1alpha1/elasticjobs?watch=true&timeoutSeconds=1"),
    "write a job's status": ("PUT", f"{JOBS}/any/elasticjobs/none/status"),
    "delete a job that is long over": ("DELETE", f"{JOBS}/any/elasticjobs/none"),
    "list all workers": ("GET", "/api/v1/pods?labelSelector=group-name%3Delastic.pytorch.org"),
    "watch all workers": ("GET", "/api/v1/pods?watch=true&timeoutSeconds=1"),
    "make a worker": ("POST", f"{CORE}/any/pods"),
    "delete a worker": ("DELETE", f"{CORE}/any/pods/none"),
    "list services": ("GET", "/api/v1/services"),
    "make a service": ("POST", f"{CORE}/any/services"),
    "delete a service": ("DELETE", f"{CORE}/any/services/none"),
    "list machines": ("GET", "/api/v1/nodes"),
    "watch machines": ("GET", "/api/v1/nodes?watch=true&timeoutSeconds=1"),
    "see a machine": ("GET", "/api/v1/nodes/none"),
    "list the machines' signs of life": ("GET", f"{LEASES}/kube-node-lease/leases"),
    "watch the machines' signs of life": ("GET", f"{LEASES}/kube-node-lease/leases?watch=true&timeoutSeconds=1"),
    "list what the autoscaler says of pods": ("GET", "/api/v1/events?fieldSelector=reason%3DNotTriggerScaleUp"),
    "watch what the autoscaler says of pods": ("GET", "/api/v1/events?watch=true&timeoutSeconds=1"),
    "write an event": ("POST", f"{CORE}/any/events"),
    "list priority classes": ("GET", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    "watch priority classes": ("GET", "/apis/scheduling.k8s.io/v1/priorityclasses?watch=true&timeoutSeconds=1"),
    "write a record": ("POST", f"{CORE}/any/configmaps"),
    "watch the platform's facts": (
        "GET",
        f"{CORE}/ebb-system/configmaps?fieldSelector=metadata.name%3Debb-platform&watch=true&timeoutSeconds=1",
    ),
    **{
        f"{verb} the autoscaler's report in {namespace}": ("GET", f"{CORE}/{namespace}/configmaps{query}")
        for namespace in ("kube-system", "ebb-system")
        for verb, query in {
            "read": "/cluster-autoscaler-status",
            "list": "?fieldSelector=metadata.name%3Dcluster-autoscaler-status",
            "watch": "?fieldSelector=metadata.name%3Dcluster-autoscaler-status&watch=true&timeoutSeconds=1",
        }.items()
    },
    "make its lease": ("POST", f"{LEASES}/ebb-system/leases"),
    "read its lease": ("GET", f"{LEASES}/ebb-system/leases/ebb-controller"),
    "renew its lease": ("PUT", f"{LEASES}/ebb-system/leases/ebb-controller"),
}
CONTROLLER_MAY_NOT: Requests = {
    "read secrets": ("GET", "/api/v1/secrets"),
    "change what a job wants": ("PUT", f"{JOBS}/elastic-job/elasticjobs/none"),
    "scale a job": ("PATCH", f"{JOBS}/elastic-job/elasticjobs/none/scale"),
    "make a job": ("POST", f"{JOBS}/elastic-job/elasticjobs"),
    "change a pod": ("PATCH", f"{CORE}/elastic-job/pods/worker-0"),
    "write a pod's status": ("PUT", f"{CORE}/elastic-job/pods/worker-0/status"),
    "run a command in a pod": ("POST", f"{CORE}/elastic-job/pods/worker-0/exec?command=ls"),
    "read a pod's log": ("GET", f"{CORE}/elastic-job/pods/worker-0/log"),
    "delete a machine": ("DELETE", "/api/v1/nodes/none"),
    "taint a machine": ("PATCH", "/api/v1/nodes/none"),
    "renew a machine's sign of life": ("PUT", f"{LEASES}/kube-node-lease/leases/none"),
    "take the autoscaler's lease": ("PUT", f"{LEASES}/ebb-system/leases/cluster-autoscaler"),
    "list leases elsewhere": ("GET", f"{LEASES}/kube-system/leases"),
    "list config maps": ("GET", f"{CORE}/elastic-job/configmaps"),
    "list all config maps of its own namespace": ("GET", f"{CORE}/ebb-system/configmaps"),
    "list all config maps of Kubernetes' namespace": ("GET", f"{CORE}/kube-system/configmaps"),
    "change a record": ("PUT", f"{CORE}/elastic-job/configmaps/none"),
    "delete a record": ("DELETE", f"{CORE}/elastic-job/configmaps/none"),
    "change the platform's facts": ("PUT", f"{CORE}/ebb-system/configmaps/ebb-platform"),
    "delete an event": ("DELETE", f"{CORE}/elastic-job/events/none"),
    "make a priority class": ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    "give itself more": ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    "lift the policy": ("DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/ebb-elasticjobs"),
    "get a token": ("POST", f"{CORE}/ebb-system/serviceaccounts/ebb-controller/token"),
}
