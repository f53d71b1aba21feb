"""What `up` puts into the cluster, and the control plane's command lines."""

from pathlib import Path

from devcluster.control_plane import certificates, cluster, daemons
from devcluster.images.prepared import ImageSet
from devcluster.machines import network
from devcluster.settings import Box

BOX = Box(name="test", slot=3, home=Path("/home/ebb"))
NAMES = ("pause", "coredns", "etcd", "controller", "trainer")
IMAGES = ImageSet(folder=Path("/i"), references={name: f"localhost/ebb/{name}:1" for name in NAMES})
TOOLS = {name: Path("/tools") / name for name in daemons.DAEMONS}


def test_facts_for_the_pulumi_program() -> None:
    facts = cluster.facts(BOX, IMAGES)
    assert (facts["metadata"]["namespace"], facts["metadata"]["name"]) == ("kube-system", "ebb-box")
    assert facts["data"] == {
        "schema": "1",
        "name": "test",
        "region": "local",
        "zones": "local-a,local-b,local-c",
        "storageClass": "ebb-shared",
        "environmentVolume": "ebb-environment",
        "image.controller": "localhost/ebb/controller:1",
        "image.trainer": "localhost/ebb/trainer:1",
        "image.etcd": "localhost/ebb/etcd:1",
    }


def test_the_older_etcd_is_told_of_where_it_was_built() -> None:
    images = ImageSet(folder=Path("/i"), references={**IMAGES.references, "etcd-legacy": "localhost/ebb/etcd-legacy:1"})
    assert cluster.facts(BOX, images)["data"]["image.etcd-legacy"] == "localhost/ebb/etcd-legacy:1"


def test_cluster_dns_is_where_the_kubelets_look_for_it() -> None:
    by_kind = {document["kind"]: document for document in cluster.coredns(BOX, IMAGES.references["coredns"])}
    assert by_kind["Service"]["spec"]["clusterIP"] == str(BOX.dns_address)
    assert by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] == "localhost/ebb/coredns:1"


def test_the_api_server_is_where_machines_can_reach_it() -> None:
    etcd, apiserver, _, scheduler = daemons.daemons(BOX, TOOLS)
    assert f"--advertise-address={BOX.address}" in apiserver.args
    assert f"--service-cluster-ip-range={BOX.service_network}" in apiserver.args
    assert "--authorization-mode=Node,RBAC" in apiserver.args
    assert {daemon.netns for daemon in (etcd, apiserver, scheduler)} == {"ebb.test"}


def test_kubeconfig_stands_alone(tmp_path: Path) -> None:
    box = Box(name="test", slot=3, home=tmp_path)
    box.pki.mkdir(parents=True)
    certificates.authority(box).write_text(
        "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\nca\n"
    )
    (box.pki / "admin.pem").write_text("pair")
    text = certificates.kubeconfig(box, box.pki / "admin.pem")
    assert "server: https://10.213.0.1:6443" in text
    assert "certificate-authority: " not in text
    assert "secret" not in certificates.authority_certificate(box)


def test_hardware_addresses_are_local_and_different() -> None:
    addresses = {network.mac(slot, index) for slot in range(3) for index in range(1, 4)}
    assert len(addresses) == 9
    # The second lowest bit of the first byte says "not given by a vendor", the lowest would say "many".
    assert {int(address[:2], 16) & 0b11 for address in addresses} == {0b10}
