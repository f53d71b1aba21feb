"""The whole stack on one screen: settings -> cluster -> machines -> namespaces -> storage -> services -> jobs -> exports.

`pulumi up` runs it through __main__.py. On the way down the engine walks the same dependencies backwards: jobs go while the
controller still runs, claims when no pod holds them, machines last.
"""

import pulumi

from infra import catalog, clouds, config, services
from infra.cloud import ON_DEMAND, SPOT, Cloud, NodeGroup
from infra.config import Stack


def run() -> None:
    """Declare everything. Raises config.ConfigError before the first resource if the settings are wrong."""
    stack = config.load()
    cloud: Cloud = clouds.module(stack.cloud).make(stack, stack.settings)
    declare(stack, cloud)


def declare(stack: Stack, cloud: Cloud) -> None:
    """The stack on a cloud."""
    manager, groups = manager_group(stack), job_groups(stack, cloud)
    cluster = cloud.cluster()
    machines = {group.name: cloud.node_group(cluster, group) for group in (manager, *groups)}
    spaces = services.namespaces(cluster, list(machines.values()))
    priorities = services.priorities(cluster)
    images, storage = cloud.images(cluster), cloud.storage(cluster)

    base = [spaces[services.SYSTEM], spaces[services.JOBS], machines[manager.name], *priorities.values()]
    claims = services.claims(cluster, storage, spaces)
    etcd = services.etcd(cluster, storage, images.etcd, manager, base)
    facts = services.platform(cluster, storage, images, [manager, *groups], spaces)
    controller = services.controller(cluster, images.controller, manager, [*base, *claims, facts])
    data = [services.digits(cluster, storage, images.trainer, manager, [*base, *claims])] if stack.digits else []
    services.jobs(cluster, stack.jobs, [*controller, *etcd, *data, *machines.values()])

    pulumi.export("cloud", stack.cloud)
    pulumi.export("jobsNamespace", services.JOBS)
    pulumi.export("etcdEndpoint", services.ETCD_ENDPOINT)
    pulumi.export("trainerImage", images.trainer)
    pulumi.export("nodeGroups", {group.name: f"{group.min} to {group.max} {group.instance.name}" for group in (manager, *groups)})
    pulumi.export("next", "ebb submit --help")


def manager_group(stack: Stack) -> NodeGroup:
    """The one machine that is always there."""
    instance = catalog.by_name(stack.cloud, stack.manager.instance_type)
    assert instance is not None, stack.manager  # config has checked it
    return NodeGroup(
        name="manager", zone=stack.manager.zone, instance=instance, capacity_type=ON_DEMAND, min=1, max=1, notice_seconds=0
    )


def job_groups(stack: Stack, cloud: Cloud) -> list[NodeGroup]:
    """The machines for jobs, with what the catalog knows of them."""
    return [_job_group(stack, cloud, group) for group in stack.node_groups]


def _job_group(stack: Stack, cloud: Cloud, group: config.NodeGroup) -> NodeGroup:
    if group.instance_type:
        instance = catalog.by_name(stack.cloud, group.instance_type)
    else:
        instance = catalog.by_gpu(stack.cloud, group.gpu or "")
    assert instance is not None, group  # config has checked it
    return NodeGroup(
        name=group.name,
        zone=group.zone,
        instance=instance,
        capacity_type=group.capacity_type,
        min=group.min,
        max=group.max,
        notice_seconds=cloud.notice_seconds if group.capacity_type == SPOT else 0,
    )
