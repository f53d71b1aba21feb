"""The whole stack on one screen: settings -> cluster -> machines -> storage -> services -> jobs -> exports.

`pulumi up` runs it through __main__.py. On the way down the engine walks the same dependencies backwards: jobs go first, with
their grace for a checkpoint; then claims, when no pod holds them; then etcd, without which a checkpoint cannot be committed;
volumes and file systems; machines; the cluster; the network. A team may leave a stack that stays: its jobs go with its namespace.
"""

import pulumi

from infra import clouds, config, groups
from infra.cloud import Infrastructure
from infra.config import Stack
from workloads import certificates, datasets, etcd, helpers, logs, monitoring, namespaces, platform, storage, teams
from workloads.cluster import ETCD_ENDPOINT, JOBS, SYSTEM


def run() -> None:
    """Declare everything. Raises config.ConfigError before the first resource if the settings are wrong."""
    stack = config.load()
    declare(stack, clouds.named(stack.cloud).make(stack))


def declare(stack: Stack, cloud: Infrastructure) -> None:
    """The stack on a cloud."""
    managers, workers = groups.manager_groups(stack), groups.job_groups(stack, cloud)
    manager = managers[0]
    cluster = cloud.cluster()
    machines = {group.name: cloud.node_group(cluster, group) for group in (*managers, *workers)}
    add_ons = cloud.add_ons(cluster, machines[manager.name])
    images, volumes = cloud.images(cluster), cloud.storage(cluster, add_ons)

    people = groups.teams(stack)
    spaces = namespaces.namespaces(cluster, [*machines.values(), *add_ons])
    limits = namespaces.limits(cluster, spaces, people)
    priorities = namespaces.priorities(cluster)
    base = [*spaces.values(), *(machines[one.name] for one in managers), *add_ons, *limits, *priorities.values()]
    issued = certificates.servers(cluster, people, images.controller, manager, base)
    store = etcd.etcd(cluster, volumes, images.etcd, manager, [*base, *issued])
    legacy = etcd.legacy_etcd(cluster, volumes, images, manager, [*base, *store])
    meeting = etcd.of_teams(cluster, people, images.etcd, manager, [*base, *issued])
    theirs = namespaces.of_teams(cluster, people, [*machines.values(), *add_ons, *meeting, *legacy])
    rooms = [*theirs.values(), *namespaces.limits(cluster, theirs), *teams.limits(cluster, people, [*theirs.values()])]
    spaces, limits, base = {**spaces, **theirs}, [*limits, *rooms], [*base, *rooms]
    told = certificates.workers(cluster, people, images.controller, manager, [*base, *issued, *platform.secrets_policy(cluster)])
    extra = cloud.helpers(cluster, workers)
    helping = [
        *helpers.helpers(cluster, extra, images.controller, manager, base),
        *helpers.device_claims(cluster, workers, base, [team.namespace for team in people]),
    ]
    claims = storage.claims(cluster, volumes, spaces, [*limits, *store, *legacy])
    prepared = storage.prepare(cluster, volumes, images.controller, manager, [*base, *claims])
    managed = cloud.monitoring(cluster, base) if stack.monitoring.managed else monitoring.Managed()
    watching = _watching(stack, managed, gpu_figures=extra.gpu_figures)
    platform.gateway(cluster, volumes, images.controller, manager, [*base, *claims, *prepared], metrics=stack.monitoring.is_on)
    monitoring.monitoring(cluster, watching, workers, manager, [name for name in spaces if name != SYSTEM], base)
    kept = cloud.logs(cluster, base) if stack.logs.ship else logs.Destination()
    keep = logs.Keep(days=stack.logs.keep_days, gib=stack.logs.keep_gib)
    logs.logs(cluster, kept, keep, extra, images.controller, manager, base)
    etcd.etcd_maintenance(cluster, images.controller, manager, [*base, *store, *meeting], people)
    # The second manager machine is for people and jobs as the first: its nodes carry the same label, and cost the same.
    copying = platform.copy_identity(cluster, volumes, spaces, limits)
    mounting = platform.sidecar_ways(cluster, volumes, spaces, limits)
    facts = platform.facts(
        cluster,
        volumes,
        images,
        [manager, *workers],
        [spaces[SYSTEM], *helping, *copying, *mounting],
        teams=people,
        dashboards={**kept.links, **watching.addresses},
    )
    if stack.webhook:
        platform.notifications(cluster, stack.webhook, [spaces[SYSTEM]])
    needs = [*base, *claims, *prepared, *told, facts]
    controller = platform.controller(cluster, images.controller, manager, needs, owners=bool(people))
    access = namespaces.access(cluster, [*spaces.values()])
    teams.access(cluster, people, [*spaces.values(), *controller])
    data = datasets.datasets(
        cluster,
        volumes,
        images,
        [manager, *workers],
        [*base, *claims, *prepared, *copying, *machines.values()],
        digits=stack.digits,
        listed=stack.datasets,
    )
    platform.jobs(cluster, stack.jobs, images, [*controller, *data, *helping, *access, *machines.values()])

    pulumi.export("cloud", stack.cloud)
    pulumi.export("jobsNamespace", JOBS)
    pulumi.export("etcdEndpoint", ETCD_ENDPOINT)
    pulumi.export("trainerImage", images.trainer)
    pulumi.export("nodeGroups", {one.name: f"{one.min} to {one.max} {one.instance.name}" for one in (*managers, *workers)})
    pulumi.export("next", "ebb submit --help")
    for name, value in cloud.outputs(cluster).items():
        pulumi.export(name, value)


def _watching(stack: Stack, managed: monitoring.Managed, *, gpu_figures: bool) -> monitoring.Watching:
    """`managed`: the cloud's own service, if the stack takes it; `gpu_figures`: machines with GPUs need an exporter of ours."""
    wanted = stack.monitoring
    others = [wanted.scrapers] if wanted.scrapers else []
    return monitoring.Watching(
        prometheus=wanted.prometheus,
        grafana=wanted.grafana,
        keep_days=wanted.keep_days,
        keep_gib=wanted.keep_gib,
        alertmanager=wanted.alertmanager or "",
        scrapers=[*others, *managed.scrapers],
        gpu_figures=gpu_figures and (wanted.prometheus or bool(others) or managed.gpu_figures),
        links={**managed.links, **wanted.links},
    )
