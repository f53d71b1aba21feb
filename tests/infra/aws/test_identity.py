"""The roles that are made: as the table of rights says (test_rights.py), fitting what they are for, and no policy beside them."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi_aws.provider import Provider as AwsProvider

import infra.clouds.aws
from infra.clouds.aws import catalog, network
from infra.clouds.aws.builds import images
from infra.clouds.aws.control import addons, cluster
from infra.clouds.aws.data import storage
from infra.clouds.aws.iam import identity
from infra.clouds.aws.iam.rights import ROLES
from infra.clouds.aws.machines import drill, in_cluster, karpenter, machine, nodes
from infra.clouds.aws.settings import Drill, GroupSettings
from infra.part import Part
from tests.infra.aws.control import ADD_ONS, stack
from tests.infra.declared import Declared, declared
from workloads.cluster import SPOT, SYSTEM, NodeGroup
from workloads.helpers import AUTOSCALER

GROUP = "spot-t4-us-west-2a"
BUCKETS = [
    {"name": "imagenet", "url": "s3://our-data/imagenet/train"},
    {"name": "words", "url": "s3://our-data/words"},
    {"name": "all", "url": "s3://others-data"},
    {"name": "copied", "url": "s3://third/a", "mode": "copy"},
]


@cache
def whole() -> Declared:
    """Everything of the platform that has rights."""
    found = stack(
        storage={"efs": {}, "buckets": BUCKETS},
        addOns={**ADD_ONS, "aws-mountpoint-s3-csi-driver": "v2.7.0-eksbuild.1", addons.INSIGHTS: "v5.2.0-eksbuild.1"},
    )
    settings = found.settings.model_copy(update={"drill": Drill(group=GROUP)})
    settings = settings.model_copy(
        update={"nodes": settings.nodes.model_copy(update={"releases": {"AL2023_x86_64_NVIDIA": "1.35.0-20260318"}})}
    )
    instance = next(one for one in catalog.TYPES if one.name == "g4dn.xlarge")
    group = NodeGroup(
        name=GROUP, zone="us-west-2a", instance=instance, capacity_type=SPOT, min=0, max=2, notice_seconds=120,
        settings=GroupSettings(),
    )  # fmt: skip

    def declare() -> None:
        provider = AwsProvider("aws", region="us-west-2")
        part = Part("aws", "platform", providers=[provider])
        made = network.declare("ebb-dev", found, settings, provider)
        control = cluster.declare("ebb-dev", settings, made, provider)
        role = identity.role(part, "ebb-dev", "machine")
        manager = nodes.declare(part, "ebb-dev", group, control, made, settings, role)
        drivers = addons.after_manager(part, "ebb-dev", control.name, settings, manager, control.kubernetes)
        storage.declare(
            part, "ebb-dev", found, settings,
            network=made, control=control, kubernetes_provider=control.kubernetes, add_ons=drivers,
        )  # fmt: skip
        images.declare(part, "ebb-dev", found, settings, identity.role(part, "ebb-dev", "codebuild"))
        in_cluster.helpers(part, "ebb-dev", control, settings, [group])
        in_cluster.logs(part, "ebb-dev", control, settings, 30)
        drill.declare(part, "ebb-dev", settings)
        addons.insights(part, "ebb-dev", control.name, settings, [manager])
        karpenter.Karpenter(part, "ebb-dev", found, control, made, role, manager)

    answer = {"stdout": '{"digest": "sha256:0", "compressed_mb": 1.0}'}
    return declared(declare, answers={"command:local:Command": lambda name, inputs: answer})


def test_every_role_is_made_and_no_other() -> None:
    assert set(whole().named("aws:iam/role:Role")) == {f"ebb-dev-{key}" for key in ROLES}


def test_nothing_of_iam_but_roles_and_their_policies_is_made() -> None:
    kinds = {one.type for one in whole().resources if one.type.startswith("aws:iam/")}
    assert kinds == {
        "aws:iam/instanceProfile:InstanceProfile",
        "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy", "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
    }  # fmt: skip
    for role in whole().all("aws:iam/role:Role"):
        assert not {"inlinePolicies", "managedPolicyArns"} & set(role.inputs)


@pytest.mark.parametrize("key", ROLES)
def test_a_role_has_the_policies_of_the_table(key: str) -> None:
    own = [one for one in whole().resources if one.parent == f"aws:iam/role:Role::ebb-dev-{key}"]
    attached = {one.inputs["policyArn"] for one in own if one.kind == "RolePolicyAttachment"}
    assert attached == {f"arn:aws:iam::aws:policy/{one.name}" for one in ROLES[key].managed if not one.only_with}
    written = [
        statement for one in own if one.kind == "RolePolicy" for statement in json.loads(one.inputs["policy"])["Statement"]
    ]
    assert [one["Action"] for one in written] == [list(one.actions) for one in ROLES[key].statements]
    assert all(one["Effect"] == "Allow" for one in written)
    assert "{" not in json.dumps([one["Resource"] for one in written] + [list(one.get("Condition", {})) for one in written])


@pytest.mark.parametrize("key", ROLES)
def test_whoever_is_given_a_role_waits_for_its_rights_and_goes_first(key: str) -> None:
    found = whole()
    role = f"aws:iam/role:Role::ebb-dev-{key}"
    policies = {one.key for one in found.resources if one.parent == role}
    users = [one for one in found.resources if one.key not in policies and _given(one.inputs, f"role/ebb-dev-{key}", role)]
    assert users, "nobody has it"
    for user in users:
        assert policies <= found.before(user), user.key


def _given(value: Any, arn: str, key: str) -> bool:
    if isinstance(value, dict | list):
        return any(_given(one, arn, key) for one in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and (value.endswith(f":{arn}") or value == key)


def test_policies_are_written_in_identity_alone() -> None:
    """Whatever a later module does: IAM resources are made in one file."""
    calls = set()
    for path in Path(infra.clouds.aws.__path__[0]).rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "pulumi_aws"]
        names = {each.asname or each.name for node in imported for each in node.names if each.name == "iam"}
        assert not re.search(r"import pulumi_aws|from pulumi_aws\.iam", path.read_text()), path  # no other way to these names
        calls |= {
            (path.name, node.func.attr)
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in names
        }
    assert calls == {
        ("identity.py", "InstanceProfile"),
        ("identity.py", "RolePolicy"),
        ("identity.py", "RolePolicyAttachment"),
    }


def policy(key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(whole().one("RolePolicy", f"ebb-dev-{key}").inputs["policy"])["Statement"]
    return found


def trusted(key: str) -> dict[str, Any]:
    (found,) = json.loads(whole().one("aws:iam/role:Role", f"ebb-dev-{key}").inputs["assumeRolePolicy"])["Statement"]
    return dict(found)


def test_a_pods_role_is_for_one_service_account_of_this_cluster() -> None:
    assert trusted("autoscaler") == {
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {
            "StringEquals": {
                "aws:RequestTag/eks-cluster-name": "ebb-dev",
                "aws:RequestTag/kubernetes-namespace": SYSTEM,
                "aws:RequestTag/kubernetes-service-account": AUTOSCALER,
            }
        },
    }


def test_pod_identity_gives_each_role_to_the_account_that_it_trusts() -> None:
    found = whole()
    # amazonCloudWatchNamespace in https://github.com/aws/amazon-cloudwatch-agent-operator, read 2026-11-26
    namespaces = {addons.INSIGHTS: "amazon-cloudwatch"}
    given = {
        (one.inputs["roleArn"].rsplit("-dev-")[1], one.inputs["namespace"], one.inputs["serviceAccount"])
        for one in found.all("PodIdentityAssociation")
    } | {
        (link["roleArn"].rsplit("-dev-")[1], namespaces.get(one.inputs["addonName"], "kube-system"), link["serviceAccount"])
        for one in found.all("Addon")
        for link in one.inputs.get("podIdentityAssociations", [])
    }
    trusts = {key: trusted(key)["Condition"]["StringEquals"] for key, role in ROLES.items() if role.service.startswith("pods.")}
    assert given == {
        (key, tests["aws:RequestTag/kubernetes-namespace"], tests["aws:RequestTag/kubernetes-service-account"])
        for key, tests in trusts.items()
    }


def test_only_whom_the_file_names_can_be_a_researcher() -> None:
    assert trusted("researcher")["Principal"] == {"AWS": ["arn:aws:iam::111122223333:role/team/research"]}
    assert policy("researcher") == [
        {
            "Effect": "Allow",
            "Action": ["eks:DescribeCluster"],
            "Resource": ["arn:aws:eks:us-west-2:111122223333:cluster/ebb-dev"],
        }
    ]


def tag_tests(statement: dict[str, Any]) -> dict[str, str]:
    return {key.removeprefix("aws:ResourceTag/"): value for key, value in statement["Condition"]["StringEquals"].items()}


def test_the_autoscaler_changes_the_groups_of_this_cluster_alone() -> None:
    write = policy("autoscaler")[0]
    assert write["Action"] == ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"]
    assert tag_tests(write) == {"k8s.io/cluster-autoscaler/ebb-dev": "owned"}


def carried(inputs: dict[str, Any]) -> dict[str, str]:
    """The tags of a resource, with those that the provider adds."""
    return {**machine.stack_tags("dev", stack().settings), **inputs["tags"]}


def test_the_s3_driver_reads_what_the_file_names_and_nothing_else() -> None:
    listing, reading = policy("s3-csi")
    assert (listing["Action"], reading["Action"]) == (["s3:ListBucket"], ["s3:GetObject"])
    assert listing["Resource"] == ["arn:aws:s3:::others-data", "arn:aws:s3:::our-data"]
    assert reading["Resource"] == [
        "arn:aws:s3:::our-data/imagenet/train/*",
        "arn:aws:s3:::our-data/words/*",
        "arn:aws:s3:::others-data/*",
    ]


def test_copies_may_read_all_of_them_and_write_none() -> None:
    listing, reading = policy("s3-copy")
    assert (listing["Action"], reading["Action"]) == (["s3:ListBucket"], ["s3:GetObject"])
    assert listing["Resource"] == ["arn:aws:s3:::others-data", "arn:aws:s3:::our-data", "arn:aws:s3:::third"]
    assert "arn:aws:s3:::third/a/*" in reading["Resource"]
    assert trusted("s3-copy")["Condition"]["StringEquals"]["aws:RequestTag/kubernetes-service-account"] == "ebb-copy"


def test_the_volume_of_etcd_can_be_attached_and_backed_up() -> None:
    found = carried(whole().one("aws:ebs/volume:Volume").inputs)
    attach, create, delete = policy("ebs-csi")[0], policy("snapshots")[0], policy("snapshots")[2]
    for statement in (attach, create, delete):
        assert tag_tests(statement).items() <= found.items(), statement["Action"]
    assert found[machine.BACKED_UP] == "ebb-dev"


def test_a_volume_is_attached_to_the_manager_machine_alone() -> None:
    asked = tag_tests(policy("ebs-csi")[1])
    instance = next(one for one in catalog.TYPES if one.name == "m7i.large")
    manager = NodeGroup(
        name="manager", zone="us-west-2a", instance=instance, capacity_type="on-demand", min=1, max=1, notice_seconds=0
    )
    assert asked.items() <= machine.machine_tags("dev", manager, stack().settings).items()
    (template,) = whole().all("LaunchTemplate")
    of_jobs = [one["tags"] for one in template.inputs["tagSpecifications"] if one["resourceType"] == "instance"]
    assert of_jobs
    assert not any(asked.items() <= one.items() for one in of_jobs)


def test_a_drill_reclaims_machines_of_its_group_alone() -> None:
    asked = tag_tests(policy("drill")[0])
    (template,) = whole().all("LaunchTemplate")
    (tags,) = [one["tags"] for one in template.inputs["tagSpecifications"] if one["resourceType"] == "instance"]
    assert asked.items() <= tags.items()
    assert asked[machine.GROUP] == GROUP


def test_a_build_reaches_what_images_makes() -> None:
    found = whole()
    logs, read, look, push, _ = policy("codebuild")
    group = found.one("LogGroup", "image-builds").inputs["name"]
    assert logs["Resource"] == [f"arn:aws:logs:*:*:log-group:{group}:*"]
    bucket = found.one("aws:s3/bucket:Bucket", "image-sources").inputs["bucketPrefix"]
    assert (read["Resource"], look["Resource"]) == ([f"arn:aws:s3:::{bucket}*/*"], [f"arn:aws:s3:::{bucket}*"])
    repositories = {one.inputs["name"] for one in found.all("aws:ecr/repository:Repository")}
    assert repositories == {"ebb-dev/controller", "ebb-dev/trainer"}
    assert push["Resource"] == ["arn:aws:ecr:*:*:repository/ebb-dev/*"]


def test_karpenter_hears_from_its_queue_and_gives_machines_no_role_but_theirs() -> None:
    by_action = {one["Action"][0]: one for one in policy("karpenter")}
    queue = whole().one("aws:sqs/queue:Queue").inputs["name"]
    assert by_action["sqs:DeleteMessage"]["Resource"] == [f"arn:aws:sqs:*:*:{queue}"]
    assert by_action["iam:PassRole"]["Resource"] == ["arn:aws:iam::*:role/ebb-dev-machine-*"]
    assert by_action["iam:PassRole"]["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}


def test_karpenter_ends_and_tags_machines_of_the_cluster_alone() -> None:
    for one in policy("karpenter"):
        if one["Action"][0] in ("ec2:TerminateInstances", "ec2:CreateTags", "ec2:CreateLaunchTemplate"):
            tests = one["Condition"]["StringEquals"]
            assert "owned" in {tests.get(f"aws:{of}Tag/kubernetes.io/cluster/ebb-dev") for of in ("Resource", "Request")}


def test_a_word_that_is_not_given_is_an_error() -> None:
    def declare() -> pulumi.Output[str]:
        return identity.role(Part("aws", "x"), "ebb-dev", "drill").arn

    with pytest.raises(AssertionError, match=r"role 'drill' wants \['group'\]"):
        declared(declare)
