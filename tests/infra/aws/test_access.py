"""Who may do what in the cluster, and the kubeconfigs."""

import json
from typing import Any

from infra.clouds.aws.control import access
from infra.config import ROOT
from tests.infra.aws.control import PLATFORM, usual
from tests.infra.declared import ACCOUNT

ROLE = f"arn:aws:iam::{ACCOUNT}:role/ebb-dev-researcher"


def test_administrators_may_do_all() -> None:
    found = usual()
    entry = found.one("AccessEntry", f"ebb-dev-{ACCOUNT}-role-platform")
    assert entry.inputs == {"clusterName": "ebb-dev", "principalArn": PLATFORM, "type": "STANDARD"}
    policy = found.one("AccessPolicyAssociation")
    assert policy.inputs == {
        "clusterName": "ebb-dev",
        "principalArn": PLATFORM,
        "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
        "accessScope": {"type": "cluster"},
    }
    assert entry.key in policy.dependencies


def test_researchers_are_a_group_and_have_no_policy_of_eks() -> None:
    found = usual()
    assert found.one("AccessEntry", "ebb-dev-researcher").inputs == {
        "clusterName": "ebb-dev",
        "principalArn": ROLE,
        "type": "STANDARD",
        "kubernetesGroups": ["ebb:researchers"],
    }
    assert [one.inputs["principalArn"] for one in found.all("AccessPolicyAssociation")] == [PLATFORM]


def test_the_group_is_the_one_that_has_rules() -> None:
    assert access.RESEARCHERS in (ROOT / "workloads/manifests/researcher.yaml").read_text()


def kubeconfig(who: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(usual().returned[who])
    return found


def test_the_kubeconfig_asks_the_aws_cli_and_holds_no_secret() -> None:
    found = kubeconfig("kubeconfig")
    assert found["users"] == [
        {
            "name": "ebb-dev",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1beta1",
                    "command": "aws",
                    "args": ["--region", "us-west-2", "eks", "get-token", "--cluster-name", "ebb-dev", "--output", "json"],
                }
            },
        }
    ]
    (cluster,) = found["clusters"]
    assert set(cluster["cluster"]) == {"server", "certificate-authority-data"}
    assert cluster["cluster"]["server"].startswith("https://")


def test_contexts_name_what_is_there() -> None:
    found = kubeconfig("kubeconfig")
    (context,) = found["contexts"]
    assert found["current-context"] == context["name"]
    assert context["context"] == {"cluster": found["clusters"][0]["name"], "user": found["users"][0]["name"]}


def test_a_researchers_kubeconfig_takes_the_role() -> None:
    mine, theirs = kubeconfig("kubeconfig"), kubeconfig("researcherKubeconfig")
    plugin = theirs["users"][0]["user"]["exec"]
    assert plugin["args"][-2:] == ["--role-arn", ROLE]
    plugin["args"] = plugin["args"][:-2]
    assert theirs == mine


def test_a_researcher_types_one_command() -> None:
    expected = (
        f"aws eks update-kubeconfig --name ebb-dev --region us-west-2 --alias ebb-dev --assume-role-arn {ROLE} --role-arn {ROLE}"
    )
    assert usual().returned["researcherCommand"] == expected
