"""The mocks of Kubernetes, of commands and of the EKS component's arguments."""

import json
from typing import Any

import pytest

from testing.pulumi.mocks.command import Command
from testing.pulumi.mocks.docker_build import ImageMocks
from testing.pulumi.mocks.eks import refuse
from testing.pulumi.mocks.kubernetes import RELEASE, Objects
from testing.pulumi.mocks.package import UNKNOWN, Asked, MockError

CONFIG_MAP = "kubernetes:core/v1:ConfigMap"


def asked(token: str) -> Asked:
    return Asked(f"urn:pulumi:dev::ebb::{token}::one", token, "one")


def objects(**config: str) -> Objects:
    made = Objects()
    made.configure(dict(config))
    return made


def named(name: str = "x", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, **more}


@pytest.mark.parametrize(
    ("token", "old", "new", "config", "expected"),
    [
        pytest.param(
            CONFIG_MAP, named(data={"a": "1"}), named(data={"a": "2"}), {}, (("data.a",), True), id="a ConfigMap is replaced"
        ),
        pytest.param(
            CONFIG_MAP,
            named(data={"a": "1"}),
            named(data={"a": "2"}),
            {"enableConfigMapMutable": "true"},
            ((), False),
            id="unless it may change",
        ),
        pytest.param(CONFIG_MAP, named("x"), named("y"), {}, (("metadata.name",), False), id="another name comes first"),
        pytest.param(
            "kubernetes:apps/v1:Deployment",
            named(spec={"replicas": 1}),
            named(spec={"replicas": 2}),
            {},
            ((), False),
            id="replicas",
        ),
        pytest.param(
            "kubernetes:apps/v1:Deployment",
            named(spec={"selector": {"matchLabels": {"a": "b"}}}),
            named(spec={"selector": {"matchLabels": {"a": "c"}}}),
            {},
            (("spec.selector.matchLabels.a",), True),
            id="selector",
        ),
        pytest.param(
            "kubernetes:batch/v1:Job",
            named(spec={"template": {"a": 1}}),
            named(spec={"template": {"a": 2}}),
            {},
            (("spec.template.a",), True),
            id="a Job's pods",
        ),
        pytest.param(
            "kubernetes:core/v1:PersistentVolumeClaim",
            named(spec={"volumeName": "a"}),
            named(spec={"volumeName": "b"}),
            {},
            (("spec.volumeName",), True),
            id="a claim's volume",
        ),
        pytest.param(
            "kubernetes:core/v1:PersistentVolume",
            named(spec={"csi": {"volumeHandle": "a"}}),
            named(spec={"csi": {"volumeHandle": "b"}}),
            {},
            (("spec.csi.volumeHandle",), True),
            id="a volume's source",
        ),
        pytest.param(
            "kubernetes:core/v1:PersistentVolume",
            named(spec={"capacity": {"storage": "1Gi"}}),
            named(spec={"capacity": {"storage": "2Gi"}}),
            {},
            ((), False),
            id="a volume's size",
        ),
        pytest.param(
            "kubernetes:storage.k8s.io/v1:StorageClass",
            named(parameters={"a": "1"}),
            named(parameters={"a": "2"}),
            {},
            (("parameters.a",), True),
            id="storage class",
        ),
        pytest.param(
            "kubernetes:ebb.dev/v1alpha1:ElasticJob",
            named(spec={"a": 1}),
            named(spec={"a": 2}),
            {},
            ((), False),
            id="a custom resource",
        ),
    ],
)
def test_what_replaces_an_object(token: str, old: Any, new: Any, config: dict[str, str], expected: Any) -> None:
    found = objects(**config).diff(asked(token), old, old, new)
    assert (found.replaces, found.delete_first) == expected
    assert found.changes


def test_an_object_gets_its_identity() -> None:
    inputs, failures = objects(namespace="jobs").check(asked(CONFIG_MAP), {"data": {}}, {}, b"")
    assert failures == []
    assert (inputs["apiVersion"], inputs["kind"], inputs["metadata"]["namespace"]) == ("v1", "ConfigMap", "jobs")
    assert inputs["metadata"]["name"].startswith("one-")
    assert objects().create(asked(CONFIG_MAP), named(), preview=False)[0] == "default/x"
    assert objects().create(asked(CONFIG_MAP), named(), preview=True)[1]["metadata"]["uid"] == UNKNOWN
    cluster_wide, _ = objects().check(asked("kubernetes:core/v1:Namespace"), {}, {}, b"")
    assert "namespace" not in cluster_wide["metadata"]


def test_a_kind_that_the_token_does_not_say_is_told() -> None:
    _, failures = objects().check(asked(CONFIG_MAP), {"kind": "Secret", "apiVersion": "v1"}, {}, b"")
    assert [(one.path, one.reason) for one in failures] == [("kind", "is 'Secret', and the type says 'ConfigMap'")]


def test_a_patch_is_of_the_object_that_it_names() -> None:
    patch = asked("kubernetes:apps/v1:DaemonSetPatch")
    inputs, failures = objects().check(patch, named(kind="DaemonSet", spec={"template": {}}), {}, b"")
    assert failures == []
    assert (inputs["apiVersion"], inputs["metadata"]["name"]) == ("apps/v1", "x")
    found = objects().diff(patch, inputs, inputs, {**inputs, "spec": {"selector": {}}})
    assert found.replaces == ("spec.selector",)
    with pytest.raises(MockError, match=r"`.metadata.name` field to be set"):
        objects().check(patch, {"spec": {}}, {}, b"")


def test_charts_that_the_engine_would_render_are_refused() -> None:
    with pytest.raises(MockError, match="more than a plain Kubernetes object"):
        objects().check(asked("kubernetes:helm.sh/v3:Chart"), {}, {}, b"")


def release(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "chart": "oci://example.org/x", "namespace": "kube-system", "version": "1.0.0", **changes}


@pytest.mark.parametrize(
    ("changes", "replaces"),
    [
        ({"version": "1.1.0"}, ()),
        ({"values": {"replicas": 2}}, ()),
        ({"name": "y"}, ("name",)),
        ({"namespace": "y"}, ("namespace",)),
    ],
)
def test_a_release_is_upgraded_unless_it_is_another(changes: dict[str, Any], replaces: tuple[str, ...]) -> None:
    one, cluster = asked(RELEASE.token), objects()
    old, new = release(), release(**changes)
    name, outputs = cluster.create(one, old, preview=False)
    assert (name, outputs["status"]["version"]) == ("kube-system/x", "1.0.0")
    found = cluster.diff(one, old, outputs, new)
    assert (found.replaces, found.delete_first) == (replaces, False)
    assert cluster.update(one, outputs, old, new, preview=False)["status"]["version"] == new["version"]


def test_a_release_is_held_to_the_sdks_class() -> None:
    one, cluster = asked(RELEASE.token), objects()
    inputs, failures = cluster.check(one, {"chart": "oci://example.org/x"}, {}, b"")
    assert failures == []
    assert (inputs["namespace"], inputs["timeout"]) == ("default", 300)
    assert cluster.check(one, {"chart": "oci://example.org/x"}, inputs, b"")[0]["name"] == inputs["name"]
    wrong = cluster.check(one, release(chart="x", skipCRDs=True, timeout="long"), {}, b"")[1]
    assert [one.path for one in wrong] == ["skipCRDs", "timeout", "chart"]


def test_a_command_runs_again_when_a_trigger_changes() -> None:
    one = asked("command:local:Command")
    old, new = {"create": "make", "triggers": ["a"]}, {"create": "make", "triggers": ["b"]}
    assert Command().diff(one, old, {}, new).replaces == ("triggers[0]",)
    assert Command().diff(one, {**old, "update": "make"}, {}, {**new, "update": "make"}).replaces == ()
    assert Command().create(one, old, preview=True)[1]["stdout"] == UNKNOWN
    answer = json.loads(Command().create(one, old, preview=False)[1]["stdout"])
    assert answer["digest"].startswith("sha256:")
    assert [one.path for one in Command().check(one, {"created": "x", "logging": "all"}, {}, b"")[1]] == ["created", "logging"]
    with pytest.raises(MockError, match="command:remote:Command is not served"):
        Command().check(asked("command:remote:Command"), {}, {}, b"")


def test_an_image_has_a_digest() -> None:
    one = asked("docker-build:index:Image")
    assert [failure.path for failure in ImageMocks().check(one, {"tagz": []}, {}, b"")[1]] == ["tagz", "push"]
    assert ImageMocks().create(one, {"push": True, "tags": ["r/x:1"]}, preview=False)[1]["ref"].startswith("r/x:1@sha256:")


SERVED: dict[str, Any] = {
    "authenticationMode": "API", "vpcId": "vpc-1", "skipDefaultNodeGroup": True, "useDefaultVpcCni": True,
    "kubeProxyAddonOptions": {"enabled": False}, "corednsAddonOptions": {"enabled": False},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"fargate": True}, "fargate is not served", id="unknown argument"),
        pytest.param({"skipDefaultNodeGroup": None}, "skipDefaultNodeGroup must be True", id="default node group"),
        pytest.param({"createOidcProvider": True}, "createOidcProvider must be False", id="oidc"),
        pytest.param({"authenticationMode": "CONFIG_MAP"}, "authenticationMode is 'CONFIG_MAP', and must be 'API'", id="mode"),
        pytest.param({"vpcId": None}, "vpcId is missing", id="default VPC"),
        pytest.param({"useDefaultVpcCni": None}, "vpcCniOptions.addonVersion has no version", id="floating vpc-cni"),
        pytest.param({"kubeProxyAddonOptions": None}, "kubeProxyAddonOptions has no version", id="floating kube-proxy"),
        pytest.param({"corednsAddonOptions": {"enabled": True}}, "corednsAddonOptions has no version", id="floating coredns"),
        pytest.param({"subnetIds": ["a"], "privateSubnetIds": ["b"]}, "subnetIds excludes", id="subnets twice"),
    ],
)
def test_arguments_of_the_component_that_are_refused(change: dict[str, Any], said: str) -> None:
    refuse(SERVED)
    with pytest.raises(MockError) as caught:
        refuse({key: value for key, value in {**SERVED, **change}.items() if value is not None})
    assert said in str(caught.value)
