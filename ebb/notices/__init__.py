"""The agent of a spot machine in a cluster: it hears that the cloud takes the machine back, and writes that on its Node.

    python -m ebb.notices              # in a pod of workloads/manifests/notices.yaml; NODE_NAME says which Node

    agent.py      one thread asks the cloud's metadata service, another writes; neither waits for the other
    node.py       the Node of this machine on the API server, by the standard library: 23 MB beside every job, where the client
                  of ebb/kube takes 35

The marks are those of ebb/api/reclaim.py. Workers are the controller's business: it reads the marks, and stops them in time.
"""
