"""The control plane: what EKS is asked for, by which provider, and in which order."""

from tests.infra.aws.control import EXISTING, PLATFORM, RESEARCH, ZONES, stack, usual, world
from tests.infra.declared import ACCOUNT, EKS, EKS_CLUSTER

AWS = "pulumi:providers:aws::aws"


def test_what_eks_is_asked_for() -> None:
    assert usual().one(EKS).inputs == {
        "name": "ebb-dev",
        "version": "1.35",
        "upgradePolicy": {"supportType": "STANDARD"},
        "vpcId": "Vpc-ebb-dev",
        "privateSubnetIds": ["Subnet-ebb-dev-private-us-west-2a", "Subnet-ebb-dev-private-us-west-2b"],
        "endpointPrivateAccess": True,
        "endpointPublicAccess": True,
        "publicAccessCidrs": ["203.0.113.0/24"],
        "authenticationMode": "API",
        "serviceRole": "aws:iam/role:Role::ebb-dev-cluster",
        "createOidcProvider": False,
        "skipDefaultNodeGroup": True,
        "skipDefaultSecurityGroups": True,
        "bootstrapSelfManagedAddons": False,
        "useDefaultVpcCni": True,
        "kubeProxyAddonOptions": {"enabled": False},
        "corednsAddonOptions": {"enabled": False},
        "enabledClusterLogTypes": ["api", "audit", "authenticator"],
    }


def test_a_private_endpoint_has_no_public_addresses() -> None:
    inputs = world(stack(endpoint="private", publicAccessCidrs=None, upReachesVpc=True)).one(EKS).inputs
    assert (inputs["endpointPrivateAccess"], inputs["endpointPublicAccess"]) == (True, False)
    assert "publicAccessCidrs" not in inputs


def test_a_key_of_the_account_encrypts_secrets() -> None:
    key = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/01234567-89ab-cdef-0123-456789abcdef"
    assert world(stack(encryptionKeyArn=key)).one(EKS).inputs["encryptionConfigKeyArn"] == key


def test_a_further_zone_is_none_of_the_control_planes() -> None:
    more = world(stack(zones=(*ZONES, "us-west-2d")))
    assert more.one(EKS).inputs == usual().one(EKS).inputs


def test_in_an_existing_vpc_it_has_that_vpcs_subnets() -> None:
    inputs = world(stack(network=EXISTING)).one(EKS).inputs
    assert inputs["vpcId"] == EXISTING["vpcId"]
    assert inputs["privateSubnetIds"] == ["subnet-0123456789abcdefa", "subnet-0123456789abcdefb"]


def test_what_the_component_makes_uses_our_provider() -> None:
    found = usual()
    assert found.one(EKS).providers == {"aws": AWS, "eks": "pulumi:providers:eks::eks"}
    assert found.one(EKS).provider == "pulumi:providers:eks::eks"
    assert found.one(EKS_CLUSTER).provider == AWS


def test_nothing_uses_a_default_provider() -> None:
    plain = [one.key for one in usual().resources if one.custom and not one.provider and "providers" not in one.type]
    assert plain == []


def test_the_log_is_ours_before_the_cluster_writes_to_it() -> None:
    found = world(stack(logRetentionDays=7))
    log = found.one("LogGroup")
    assert log.inputs == {"name": "/aws/eks/ebb-dev/cluster", "retentionInDays": 7}
    assert log.key in found.before(found.one(EKS))


def test_without_logs_there_is_no_group() -> None:
    found = world(stack(logs=[]))
    assert found.all("LogGroup") == []
    assert found.one(EKS).inputs["enabledClusterLogTypes"] == []


def test_the_cluster_has_its_rights_as_long_as_it_lives() -> None:
    found = usual()
    attached = found.one("RolePolicyAttachment", "ebb-dev-cluster-AmazonEKSClusterPolicy")
    assert attached.key in found.before(found.one(EKS))


def test_machines_find_network_plugin_and_entries_ready() -> None:
    found = usual()
    first = {f"aws:eks/addon:Addon::ebb-dev-{name}" for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")}
    entries = {one.key for one in (*found.all("AccessEntry"), *found.all("AccessPolicyAssociation"))}
    assert first | entries | {found.one(EKS).key, found.one(EKS_CLUSTER).key} <= found.before(found.one("LaunchTemplate"))


def test_what_it_tells() -> None:
    told = usual().returned
    assert (told["name"], told["arn"]) == ("ebb-dev", f"arn:aws:eks:us-west-2:{ACCOUNT}:cluster/ebb-dev")
    assert told["securityGroup"] == "sg-cluster"


def test_the_kubernetes_provider_is_told_by_a_fixed_name() -> None:
    found = usual()
    provider = found.one("pulumi:providers:kubernetes", "cluster")
    assert provider.inputs["clusterIdentifier"] == "ebb-dev"
    assert provider.inputs["kubeconfig"] == found.returned["kubeconfig"]
    assert (provider.inputs["enableConfigMapMutable"], provider.inputs["enablePatchForce"]) == ("true", "true")
    assert {one.key for one in found.all("AccessEntry")} <= found.before(provider)


def test_a_stack_of_one_person_has_no_entries() -> None:
    found = world(stack(administrators=[], researchers=[]))
    assert found.all("AccessEntry") == []
    assert (found.returned["researcherKubeconfig"], found.returned["researcherCommand"]) == (None, None)
    assert not [one for one in found.all("Role") if "researcher" in one.name]


def test_people_are_those_of_the_file() -> None:
    trusted = usual().one("Role", "ebb-dev-researcher").inputs["assumeRolePolicy"]
    assert RESEARCH in trusted
    assert PLATFORM not in trusted
