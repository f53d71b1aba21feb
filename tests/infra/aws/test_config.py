"""A stack on AWS with much wrong in it."""

import ast
from pathlib import Path

import infra.clouds.aws
from infra.clouds.aws import settings as settings_of_aws
from infra.config import Section
from tests.infra.stacks import GONE, changed, problems, settings


def test_all_problems_of_a_file_come_at_once() -> None:
    """Wrong keys hide no other, neither in their own section nor in another; what only follows from them is not said."""
    values = settings("dev")
    for path, value in {
        "zones[2]": "us-east-1a",
        "nodeGroups[0].gpu": "H1000",
        "nodeGroups[1].min": 7,
        "nodeGroups[1].aws": {"efa": 1},
        "nodegroup": [],
        "datasets[0].md5": GONE,
        "jobs": ["no.yaml"],
        "aws.region": GONE,
        "aws.cluster.endpoint": "both",
        "aws.cluster.kubernetesVerson": "1.34",
        "aws.cluster.addOns.coredns": GONE,
        "aws.autoscaler.version": "v1.34.0",
        "aws.network.cidr": "8.8.0.0/16",
        "aws.storage.clients": ["0.0.0.0/0", 7],
    }.items():
        changed(values, path, value)
    assert [line.split(": ")[0] for line in problems(values)] == [
        "nodegroup", "aws.region", "aws.cluster.endpoint", "aws.cluster.kubernetesVerson", "aws.storage.clients[1]",
        "nodeGroups[1].aws.efa", "jobs[0]", "nodeGroups[0].gpu", "nodeGroups[1].max", "datasets[0]", "aws.network.cidr",
        "aws.cluster.addOns.coredns", "aws.autoscaler.version", "aws.storage.clients",
    ]  # fmt: skip


def test_every_setting_is_read_by_what_declares_or_checks_resources() -> None:
    """One that preflight and docs alone know would promise what `up` does not do."""
    folder = Path(infra.clouds.aws.__path__[0])
    files = [path for path in folder.rglob("*.py") if "account" not in path.parts[len(folder.parts) :]]
    read = {
        node.attr
        for path in files
        if path.name not in ("settings.py", "preflight.py", "leftovers.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    sections = [one for one in vars(settings_of_aws).values() if isinstance(one, type) and issubclass(one, Section)]
    assert {name for section in sections for name in section.model_fields} - read == set()
