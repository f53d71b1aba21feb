"""What must agree in a stack on AWS, part by part. Each check yields Problems; none raises, none asks AWS (preflight does)."""

from collections.abc import Iterator

from infra.clouds.aws.checks import account, cluster, machines, network, storage
from infra.clouds.aws.settings import Settings
from infra.config import Problem, Stack


def problems(stack: Stack, settings: Settings) -> Iterator[Problem]:
    """Everything that disagrees, in the order of the file."""
    yield from account.problems(stack, settings)
    yield from network.problems(stack, settings)
    yield from cluster.problems(stack, settings)
    yield from machines.problems(stack, settings)
    yield from storage.problems(stack, settings)
