"""The policy pack: every shipped stack keeps every rule, and what breaks one is named with its fix."""

import importlib
import runpy
import subprocess
import sys
from dataclasses import replace
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
import yaml
from google.protobuf import struct_pb2  # type: ignore[import-untyped]
from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc
from pulumi_policy import PolicyCustomTimeouts, PolicyProviderResource, PolicyResourceOptions, ResourceValidationArgs
from pulumi_policy.proxy import UNKNOWN_STRING_VALUE, unknown_checking_proxy

from infra import clouds, config
from infra.config import Stack
from infra.policies import cluster
from infra.policies.rules import UNKNOWN, Declaration, Rule, Violation, required
from tests.infra.cases import CASES, Case
from tests.infra.policies import broken, declarations, with_unknowns
from tests.infra.stacks import ROOT, settings

RENTED = {case.cloud: case for case in CASES}
STACKS = sorted({case.stack for case in CASES} | ({"imagenet"} if "aws" in RENTED else set()))
LOCAL = config.parse(settings("local") | {"jobs": []}, ROOT)


@pytest.mark.parametrize("name", STACKS)
def test_a_shipped_stack_keeps_every_rule(name: str) -> None:
    stack = config.read(name)
    rules = [*cluster.RULES, *clouds.named(stack.cloud).rules()]
    found = declarations(name)
    judged = {rule.name for rule in rules for one in found if rule.judges(one.type)}
    assert [text for rule in rules for one in found for text in rule.broken_by(one, stack)] == []
    assert {rule.name for rule in rules} - judged <= {"cluster-no-ingress"}, "a rule that judges nothing shows nothing"


@pytest.mark.parametrize("name", STACKS)
def test_our_own_image_is_confined_in_kube_system_too(name: str) -> None:
    """But for what loads drivers into the machine's kernel."""
    (rule,) = [one for one in cluster.RULES if one.name == "cluster-pods"]
    found = [one for one in declarations(name) if rule.judges(one.type) and one.get("metadata.namespace") == "kube-system"]
    (controller,) = [one for one in declarations(name) if one.name == "deployment-ebb-controller"]
    image = controller.get("spec.template.spec.containers.0.image")
    ours = [one for one in found if one.get("spec.template.spec.containers.0.image") == image and one.name != "ebb-rdma"]
    for one in ours:
        moved = {**one.inputs, "metadata": {**one.inputs["metadata"], "namespace": "ebb-system"}}
        assert rule.broken_by(replace(one, inputs=moved), LOCAL) == []
    assert [one.name for one in ours] == ["daemon-set-ebb-notices"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_rule_of_a_cloud_has_a_resource_that_breaks_it(case: Case) -> None:
    """Each cloud's own tests list them (BROKEN)."""
    listed = importlib.import_module(f"tests.infra.{case.cloud}.test_policies").BROKEN
    assert {name for name, *_ in listed} == {rule.name for rule in clouds.named(case.cloud).rules()}


def test_names_and_titles_are_what_pulumi_takes() -> None:
    rules = [*cluster.RULES, *(rule for name in clouds.names() for rule in clouds.named(name).rules())]
    assert len({rule.name for rule in rules}) == len(rules) > 10
    for name in clouds.names():
        assert all(rule.name.startswith(f"{name}-") for rule in clouds.named(name).rules())


SERVICE, ROLE, POD = (
    "kubernetes:core/v1:Service",
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole",
    "kubernetes:apps/v1:Deployment",
)
CONFINED = {
    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


def pods(context: dict[str, Any], namespace: str = "ebb-system") -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "securityContext": context}]}
    return {"metadata": {"namespace": namespace}, "spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("name", "type_", "inputs", "words"),
    [
        (
            "cluster-no-way-in", SERVICE, {"spec": {"type": "LoadBalancer"}},
            ['spec.type is "LoadBalancer"', "ClusterIP", "ebb port"],
        ),
        ("cluster-no-way-in", SERVICE, {"spec": {"type": "NodePort"}}, ['"NodePort"']),
        ("cluster-no-way-in", SERVICE, {"spec": {"externalIPs": ["198.51.100.1"]}}, ["spec.externalIPs", "no address"]),
        ("cluster-no-ingress", "kubernetes:networking.k8s.io/v1:Ingress", {}, ["kind", "kubectl port-forward"]),
        ("cluster-no-wildcard", ROLE, {"rules": [{"verbs": ["get"]}, {"verbs": ["*"]}]}, ["rules.1.verbs", "a list without *"]),
        ("cluster-no-wildcard", ROLE, {"rules": [{"resources": ["*"]}]}, ["rules.0.resources", "rbac.yaml"]),
        (
            "cluster-no-administrator", "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding",
            {"roleRef": {"name": "cluster-admin"}}, ["roleRef.name", "a role that lists its rights"],
        ),
        (
            "cluster-data-kept", "kubernetes:core/v1:PersistentVolume",
            {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, ['allowed is "Retain"', "infra/volumes.py"],
        ),
        *(
            ("cluster-pods", POD, pods({**CONFINED, key: value}), [f"containers.0.securityContext.{said}", "workloads/pods.py"])
            for key, value, said in (
                ("allowPrivilegeEscalation", None, "allowPrivilegeEscalation is not set"),
                ("readOnlyRootFilesystem", False, "readOnlyRootFilesystem is false"),
                ("runAsNonRoot", False, "runAsNonRoot is false"),
                ("seccompProfile", {"type": "Unconfined"}, 'seccompProfile.type is "Unconfined"'),
                ("privileged", True, "privileged is true"),
            )
        ),
    ],
)  # fmt: skip
def test_a_broken_rule_of_the_cluster_is_named_with_its_fix(
    name: str, type_: str, inputs: dict[str, Any], words: list[str]
) -> None:
    text = broken(cluster.RULES, name, Declaration(type=type_, name="thing", inputs=inputs), LOCAL)
    assert text.startswith(f"{type_} thing: ")
    assert [one for one in words if one not in text] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_preview_does_not_know_breaks_no_rule(case: Case) -> None:
    """Any value of any resource."""
    stack = config.read(case.stack)
    rules = [*cluster.RULES, *clouds.named(case.cloud).rules()]
    for one in declarations(case.stack):
        judges = [rule for rule in rules if rule.judges(one.type)]
        for path, unknown in with_unknowns(one) if judges else ():
            assert [text for rule in judges for text in rule.broken_by(unknown, stack)] == [], (one.type, path)


def test_a_rule_judges_its_own_types_alone() -> None:
    rule = Rule(name="x", title="x", types=("mars:*:Disk",), check=lambda one, stack: required(one, {"encrypted": True}, "do"))
    assert rule.broken_by(Declaration(type="mars:disks:Disk", name="a", inputs={}), LOCAL) == [
        "mars:disks:Disk a: encrypted is not set; allowed is true: do"
    ]
    assert rule.broken_by(Declaration(type="venus:disks:Disk", name="a", inputs={}), LOCAL) == []


def test_a_long_value_is_cut_in_the_sentence() -> None:
    def check(one: Declaration, stack: Stack) -> list[Violation]:
        return [Violation(property="p", found="x" * 500, allowed="less", fix="cut it")]

    (text,) = Rule(name="x", title="x", types=("*",), check=check).broken_by(Declaration(type="t", name="a", inputs={}), LOCAL)
    assert len(text) < 150


# ------------------------------------------------------------------------------------------------------------- the pack


@pytest.fixture(scope="module")
def pack() -> dict[str, Any]:
    """The module, as the engine runs it, but for the server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", list(sys.path))
        return runpy.run_path(str(ROOT / "infra" / "policies"), run_name="pack")


def given(inputs: dict[str, Any], *, type_: str = SERVICE, protect: bool = False) -> ResourceValidationArgs:
    options = PolicyResourceOptions(protect, [], None, [], PolicyCustomTimeouts(0, 0, 0), [])
    provider = PolicyProviderResource("pulumi:providers:mars", {"defaultTags": "{}"}, "urn:x", "mars")
    urn = f"urn:pulumi:lab::ebb::{type_}::thing"
    return ResourceValidationArgs(type_, unknown_checking_proxy(inputs), urn, "thing", options, provider)


def test_the_pack_has_every_rule_of_every_cloud(pack: dict[str, Any]) -> None:
    names = [pack["policy"](rule).name for rule in pack["rules"]()]
    assert set(names) >= {"cluster-pods", *(rule.name for name in clouds.names() for rule in clouds.named(name).rules())}


def test_the_pack_reads_what_the_engine_gives(pack: dict[str, Any]) -> None:
    read = pack["declaration"](given({"a": {"b": UNKNOWN_STRING_VALUE, "c": [1, UNKNOWN_STRING_VALUE]}}, protect=True))
    assert read.inputs == {"a": {"b": UNKNOWN, "c": [1, UNKNOWN]}}
    assert (read.type, read.name, read.protect, read.retained, read.provider) == (
        SERVICE,
        "thing",
        True,
        None,
        {"defaultTags": "{}"},
    )


def test_the_pack_reports_what_breaks_a_rule(pack: dict[str, Any]) -> None:
    (rule,) = [one for one in pack["rules"]() if one.name == "cluster-no-way-in"]
    said: list[str] = []
    for kind in ("NodePort", "ClusterIP", UNKNOWN_STRING_VALUE):
        pack["policy"](rule).validate(given({"spec": {"type": kind}}), lambda text, urn=None: said.append(text))
    assert [text.split(";")[0] for text in said] == [f'{SERVICE} thing: spec.type is "NodePort"']


def test_the_pack_s_file_names_the_environment_of_the_checkout() -> None:
    written = yaml.safe_load((ROOT / "infra/policies/PulumiPolicy.yaml").read_text())
    place = (ROOT / "infra/policies" / written["runtime"]["options"]["virtualenv"]).resolve()
    assert place == (ROOT / ".venv").resolve()


@pytest.mark.e2e
def test_the_pack_answers_as_pulumi_s_engine_asks() -> None:
    """The process and the protocol, with the protobuf that is installed. The language host that is built here starts no pack."""
    command = [sys.executable, "-u", str(ROOT / "infra" / "policies"), "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT.parent) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                engine = analyzer_pb2_grpc.AnalyzerStub(channel)
                info = engine.GetAnalyzerInfo(Empty())
                said = {kind: engine.Analyze(_asked(kind)).diagnostics for kind in ("NodePort", "ClusterIP")}
        finally:
            process.terminate()
    assert info.name == "ebb"
    assert {"cluster-pods", "cluster-no-way-in"} <= {one.name for one in info.policies}
    assert [one.policyName for one in said["NodePort"]] == ["cluster-no-way-in"]
    assert 'spec.type is "NodePort"; allowed is ClusterIP or ExternalName' in said["NodePort"][0].message
    assert said["NodePort"][0].enforcementLevel == analyzer_pb2.MANDATORY
    assert list(said["ClusterIP"]) == []


def _asked(kind: str) -> analyzer_pb2.AnalyzeRequest:
    properties = struct_pb2.Struct()
    properties.update({"metadata": {"name": "x"}, "spec": {"type": kind}})
    urn = f"urn:pulumi:lab::ebb::{SERVICE}::thing"
    return analyzer_pb2.AnalyzeRequest(type=SERVICE, name="thing", urn=urn, properties=properties)
