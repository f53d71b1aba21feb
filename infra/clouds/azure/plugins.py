"""Programs for the GPUs and the InfiniBand of machines, which AKS leaves to whoever runs the cluster. Pure.

    helpers = plugins.helpers(groups)

InfiniBand without NVIDIA's Network Operator: of what that brings for AKS (https://github.com/Azure/aks-rdma-infiniband at
700dabb4fe04, Microsoft's own repository, for which its support does not answer) the shared device plugin is declared here, with
the same settings. The drivers are those of Ubuntu's kernel, which AKS's machines have from Kubernetes 1.35 on (Ubuntu 24.04):
Azure's ND sizes with H100 were tried so for https://github.com/llm-d/llm-d/pull/2397 (2026-08-28), with DMA-BUF in place of
nvidia-peermem. AKS's own way, managed DRANET, is a preview that pulumi-azure-native 3.29 cannot declare (dranetMode).
"""

import json
from collections.abc import Sequence

from infra.clouds.azure.catalog import IB_RESOURCE
from infra.image_lock import pinned
from workloads.cluster import LABEL_NODE_GROUP, DevicePlugin, Helpers, NodeGroup, RdmaMachines

# The newest of https://github.com/NVIDIA/k8s-device-plugin (versions.mk, 2026-08-19).
NVIDIA_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
# As configs/nicclusterpolicy/rdma-shared-device-plugin of Azure/aks-rdma-infiniband has it, and where the plugin looks.
RDMA_IMAGE = "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:network-operator-v25.10.0"
RDMA_CONFIG = "/k8s-rdma-shared-dev-plugin/config.json"
MELLANOX = "15b3"
# ib_umad: the plugin passes over interfaces without it; ib_ipoib: it knows InfiniBand by the link of its network device (pkg/
# resources of https://github.com/Mellanox/k8s-rdma-shared-dev-plugin, v1.5.3). What they need is loaded with them.
MODULES = ("mlx5_ib", "ib_uverbs", "ib_umad", "rdma_ucm", "ib_ipoib")
# How the autoscaler knows what a machine will have while there is none: / is _ in a tag (cluster-autoscaler/cloudprovider/azure,
# README.md of https://github.com/kubernetes/autoscaler, read 2026-11-25). AKS puts a pool's tags on its scale set.
TEMPLATE_TAG = "k8s.io_cluster-autoscaler_node-template_resources_{}"


def helpers(groups: Sequence[NodeGroup]) -> Helpers:
    """`groups`: those for jobs."""
    # AKS installs the driver alone (https://learn.microsoft.com/azure/aks/use-nvidia-gpu, as of 2026-08).
    plugins = DevicePlugin.nvidia(pinned(NVIDIA_IMAGE), groups)
    connected = [group.name for group in groups if group.network]
    if not connected:
        return Helpers(device_plugins=tuple(plugins), gpu_figures=True)
    prefix, _, name = IB_RESOURCE.partition("/")
    shared = {
        "resourcePrefix": prefix,
        "resourceName": name,
        "rdmaHcaMax": 1,  # a worker has the whole machine
        "selectors": {"vendors": [MELLANOX], "linkTypes": ["infiniband"]},
    }
    rdma = DevicePlugin(
        name="rdma-device-plugin",
        image=pinned(RDMA_IMAGE),
        label=LABEL_NODE_GROUP,
        values=connected,
        privileged=True,  # it reads the links of the machine's network devices, and its folder of devices
        config=(RDMA_CONFIG, json.dumps({"configList": [shared]}, indent=2)),
    )
    return Helpers(device_plugins=(*plugins, rdma), rdma=RdmaMachines(groups=connected, modules=MODULES), gpu_figures=True)


def template_tags(group: NodeGroup) -> dict[str, str]:
    """Tags of its agent pool, for the autoscaler."""
    asked = group.network.resources if group.network else {}
    return {TEMPLATE_TAG.format(name.replace("/", "_")): amount for name, amount in asked.items()}
