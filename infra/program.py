"""The whole stack on one screen: settings -> cluster -> machines -> storage -> services -> jobs -> exports.

`pulumi up` runs it through __main__.py. On the way down the engine walks the same dependencies backwards: jobs go first, with
their grace for a checkpoint; then claims, when no pod holds them; then etcd, without which a checkpoint cannot be committed;
volumes and file systems; machines; the cluster; the network.
"""

import pulumi

import workloads as services
from infra import clouds, config, groups
from infra.cloud import Cloud
from infra.config import Stack


def run() -> None:
    """Declare everything. Raises config.ConfigError before the first resource if the settings are wrong."""
    stack = config.load()
    cloud: Cloud = clouds.module(stack.cloud).make(stack, stack.settings)
    declare(stack, cloud)


def declare(stack: Stack, cloud: Cloud) -> None:
    """The stack on a cloud."""
    manager, workers = groups.manager_group(stack), groups.job_groups(stack, cloud)
    cluster = cloud.cluster()
    machines = {group.name: cloud.node_group(cluster, group) for group in (manager, *workers)}
    add_ons = cloud.add_ons(cluster, machines[manager.name])
    images, storage = cloud.images(cluster), cloud.storage(cluster, add_ons)

    spaces = services.namespaces(cluster, [*machines.values(), *add_ons])
    limits = services.limits(cluster, spaces)
    priorities = services.priorities(cluster)
    base = [*spaces.values(), machines[manager.name], *add_ons, *limits, *priorities.values()]
    helpers = services.helpers(cluster, cloud.helpers(cluster, workers), manager, base)
    etcd = services.etcd(cluster, storage, images.etcd, manager, base)
    legacy = services.legacy_etcd(cluster, storage, images, manager, [*base, *etcd])
    claims = services.claims(cluster, storage, spaces, [*limits, *etcd, *legacy])
    prepared = services.prepare(cluster, storage, images.controller, manager, [*base, *claims])
    services.gateway(cluster, storage, images.controller, manager, [*base, *claims, *prepared])
    services.etcd_maintenance(cluster, images.controller, manager, [*base, *etcd])
    facts = services.platform(cluster, storage, images, [manager, *workers], spaces)
    controller = services.controller(cluster, images.controller, manager, [*base, *claims, *prepared, facts])
    access = services.access(cluster, [*spaces.values()])
    data = services.datasets(cluster, storage, images.trainer, manager, stack, [*base, *claims, *prepared])
    services.jobs(cluster, stack.jobs, images, [*controller, *data, *helpers, *access, *machines.values()])

    pulumi.export("cloud", stack.cloud)
    pulumi.export("jobsNamespace", services.JOBS)
    pulumi.export("etcdEndpoint", services.ETCD_ENDPOINT)
    pulumi.export("trainerImage", images.trainer)
    pulumi.export("nodeGroups", {one.name: f"{one.min} to {one.max} {one.instance.name}" for one in (manager, *workers)})
    pulumi.export("next", "ebb submit --help")
    for name, value in cloud.outputs(cluster).items():
        pulumi.export(name, value)
