"""Machines of a devcluster, each a network namespace with a kubelet of its own: life, files, network, processes, cgroups."""
