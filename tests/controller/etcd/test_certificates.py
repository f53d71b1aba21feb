"""The certificates of etcd: who gets what, when it is made anew, and that an etcd answers nobody else."""

import asyncio
import base64
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from ebb.api.contract import ETCD_SECRET, JOBS_NAMESPACE
from ebb.controller.etcd.certificates import LIFE, Keeper, Place, etcd_of, jobs_of
from ebb.controller.etcd.maintenance import EtcdError, gateway, maintain
from ebb.elastic.rendezvous.etcd import Etcd, Refused, Tls, Unreachable
from ebb.kube import Conflict, NotFound, Object, Resource
from tests.elastic.rendezvous.servers import Server, built
from workloads import manifest

NOW = datetime(2026, 11, 28, tzinfo=UTC)
SYSTEM = "ebb-system"
WORKERS = (JOBS_NAMESPACE, ETCD_SECRET)


class Secrets:
    """Secrets of an API server, with its answer to who has read before the last write."""

    def __init__(self, *places: Place) -> None:
        self.data: dict[Place, dict[str, bytes]] = {place: {} for place in places}
        self.versions = dict.fromkeys(places, 1)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object:
        place = (str(namespace), name)
        if place not in self.data:
            raise NotFound(f"{resource.plural} {name} not found", 404)
        held = {key: base64.b64encode(value).decode() for key, value in self.data[place].items()}
        return {"metadata": {"name": name, "resourceVersion": str(self.versions[place])}, **({"data": held} if held else {})}

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Object) -> Object:
        place = (str(namespace), name)
        if body["metadata"]["resourceVersion"] != str(self.versions[place]):
            raise Conflict(f"{resource.plural} {name} was changed", 409)
        for key, value in body["data"].items():
            if value is None:
                self.data[place].pop(key)
            else:
                self.data[place][key] = base64.b64decode(value)
        self.versions[place] += 1
        return {}


def declared(*teams: str) -> Secrets:
    """As workloads/manifests/certificates.yaml has them, and a stack for its teams."""
    written = [one for one in manifest.read("certificates.yaml") if one["kind"] == "Secret"]
    places = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in written]
    for team in teams:
        places += [(SYSTEM, f"{etcd_of(team)}-ca"), (SYSTEM, f"{etcd_of(team)}-server"), (jobs_of(team), ETCD_SECRET)]
    return Secrets(*places)


async def kept(secrets: Secrets, *teams: str, now: datetime = NOW) -> Secrets:
    keeper = Keeper(secrets, now)
    await keeper.servers(["", *teams])
    await keeper.workers(["", *teams])
    return secrets


async def test_all_secrets_are_filled_and_nothing_else_is_written() -> None:
    secrets = await kept(declared("red"), "red")
    keys = {place: set(data) for place, data in secrets.data.items()}
    pair = {"ca.crt", "tls.crt", "tls.key"}
    assert keys == {
        (SYSTEM, "etcd-ca"): {"ca.crt", "ca.key"},
        (SYSTEM, "etcd-server"): pair,
        (SYSTEM, "etcd-team-red-ca"): {"ca.crt", "ca.key"},
        (SYSTEM, "etcd-team-red-server"): pair,
        (SYSTEM, "etcd-maintenance"): {f"{etcd}.{end}" for etcd in ("etcd", "etcd-team-red") for end in ("ca.crt", "crt", "key")},
        WORKERS: pair,
        ("ebb-team-red", ETCD_SECRET): pair,
    }


async def test_no_authority_is_in_what_is_mounted_and_each_is_another() -> None:
    secrets = await kept(declared("red"), "red")
    keys = [data["ca.key"] for place, data in secrets.data.items() if place[1].endswith("-ca")]
    mounted = [value for place, data in secrets.data.items() if not place[1].endswith("-ca") for value in data.values()]
    assert len(set(keys)) == 2
    assert not set(keys) & set(mounted)


async def test_a_second_run_changes_nothing() -> None:
    secrets = await kept(declared("red"), "red")
    before = dict(secrets.versions)
    await kept(secrets, "red", now=NOW + LIFE / 2)
    assert secrets.versions == before


async def test_a_third_of_its_life_before_its_end_a_certificate_is_made_anew_by_the_same_authority() -> None:
    secrets = await kept(declared())
    before = {place: dict(data) for place, data in secrets.data.items()}
    later = NOW + LIFE * 0.7
    await kept(secrets, now=later)
    assert secrets.data[SYSTEM, "etcd-ca"] == before[SYSTEM, "etcd-ca"]
    for place in ((SYSTEM, "etcd-server"), WORKERS):
        assert secrets.data[place]["tls.crt"] != before[place]["tls.crt"]
        assert secrets.data[place]["ca.crt"] == before[place]["ca.crt"]
        assert ends(secrets.data[place]["tls.crt"]) == later + LIFE
    assert secrets.data[SYSTEM, "etcd-maintenance"]["etcd.crt"] != before[SYSTEM, "etcd-maintenance"]["etcd.crt"]


def ends(pem: bytes) -> datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


async def test_no_certificate_outlives_its_authority() -> None:
    secrets = await kept(declared())
    last = ends(secrets.data[SYSTEM, "etcd-ca"]["ca.crt"])
    await kept(secrets, now=last - timedelta(days=10))
    assert ends(secrets.data[WORKERS]["tls.crt"]) == last


async def test_an_authority_that_was_emptied_is_made_anew_with_all_that_it_signs() -> None:
    secrets = await kept(declared())
    before = {place: dict(data) for place, data in secrets.data.items()}
    secrets.data[SYSTEM, "etcd-ca"] = {}
    await kept(secrets)
    assert {place for place in before if secrets.data[place] != before[place]} == set(before)
    authorities = {secrets.data[place]["ca.crt"] for place in ((SYSTEM, "etcd-ca"), (SYSTEM, "etcd-server"), WORKERS)}
    assert len(authorities) == 1


async def test_a_team_that_has_left_is_no_longer_in_what_maintenance_holds() -> None:
    secrets = await kept(declared("red"), "red")
    await Keeper(secrets, NOW).servers([""])
    assert {key.partition(".")[0] for key in secrets.data[SYSTEM, "etcd-maintenance"]} == {"etcd"}


async def test_damaged_data_is_replaced() -> None:
    secrets = await kept(declared())
    secrets.data[WORKERS]["tls.key"] = b"no key"
    await kept(secrets)
    assert secrets.data[WORKERS]["tls.key"].startswith(b"-----BEGIN PRIVATE KEY-----")


async def test_a_missing_secret_is_said_with_what_makes_it() -> None:
    secrets = declared()
    del secrets.data[WORKERS]
    with pytest.raises(NotFound, match=r"Secret ebb-etcd in elastic-job is not there: `pulumi up`"):
        await kept(secrets)


# ------------------------------------------------------------------------------------------------------------- a real etcd


def write(folder: Path, data: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for key, value in data.items():
        (folder / key).write_bytes(value)
    return folder


def tls(folder: Path) -> Tls:
    return Tls(cacert=f"{folder}/ca.crt", cert=f"{folder}/tls.crt", key=f"{folder}/tls.key")


class Certified:
    """Two etcds, as etcd.yaml starts them: of jobs without a team, and of team red."""

    def __init__(self, folder: Path, secrets: Secrets) -> None:
        self.folder, self.secrets = folder, secrets
        self.workers = {"": write(folder / "workers", secrets.data[WORKERS])}
        self.workers["red"] = write(folder / "red", secrets.data["ebb-team-red", ETCD_SECRET])
        self.servers = {team: self._server(team) for team in ("", "red")}

    def _server(self, team: str) -> Server:
        own = write(self.folder / f"server-{team}", self.secrets.data[SYSTEM, f"{etcd_of(team)}-server"])
        data = self.folder / f"data-{team}"
        data.mkdir()
        return Server(built("3.6"), data, flags(own), "https", tls(self.workers[team])).start()

    def client(self, team: str, of: str) -> Etcd:
        """To the etcd of a team, with the certificate of a worker of another."""
        return Etcd([self.servers[team].endpoint], tls=tls(self.workers[of]), timeout_seconds=5)


def flags(folder: Path) -> list[str]:
    """The flags of etcd.yaml for TLS, with another folder."""
    (member,) = (one for one in manifest.read("etcd.yaml") if one["kind"] == "StatefulSet")
    words: list[str] = member["spec"]["template"]["spec"]["containers"][0]["command"]
    about = ("--cert-file=", "--key-file=", "--client-cert-auth=", "--trusted-ca-file=")
    found = [word.replace("/etc/etcd/tls", str(folder)) for word in words if word.startswith(about)]
    assert len(found) == 4
    return found


@pytest.fixture(scope="module")
def made() -> Secrets:
    return asyncio.run(kept(declared("red"), "red", now=datetime.now(UTC)))


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory, made: Secrets) -> Iterator[Certified]:
    found = Certified(tmp_path_factory.mktemp("certified"), made)
    yield found
    for server in found.servers.values():
        server.kill()


@pytest.mark.e2e
@pytest.mark.parametrize("team", ["", "red"])
def test_workers_meet_in_the_etcd_of_their_own(certified: Certified, team: str) -> None:
    client = certified.client(team, team)
    revision = client.put("/ebb/job/members/a", b"1", client.grant(10))
    assert client.list("/ebb/job/")[1] == revision


@pytest.mark.e2e
def test_plain_text_is_refused(certified: Certified) -> None:
    address = certified.servers[""].endpoint.removeprefix("https://")
    with pytest.raises(Unreachable, match="speaks TLS"):
        Etcd([f"http://{address}"], timeout_seconds=5).get("/ebb/a")


@pytest.mark.e2e
@pytest.mark.parametrize(("team", "of"), [("red", ""), ("", "red")])
def test_another_teams_worker_is_refused_from_both_sides(certified: Certified, team: str, of: str) -> None:
    """It does not take that etcd for its own; and that etcd does not take it, if it looks past this."""
    with pytest.raises(Refused, match="CERTIFICATE_VERIFY_FAILED"):
        certified.client(team, of).get("/ebb/a")
    other = certified.workers[of]
    trusting = Tls(cacert=f"{certified.workers[team]}/ca.crt", cert=f"{other}/tls.crt", key=f"{other}/tls.key")
    assert "it did not take our certificate" in refusal(Etcd([certified.servers[team].endpoint], tls=trusting))


@pytest.mark.e2e
def test_who_has_no_certificate_is_refused(certified: Certified) -> None:
    nobody = Tls(cacert=f"{certified.workers['']}/ca.crt")
    assert "it did not take our certificate" in refusal(Etcd([certified.servers[""].endpoint], tls=nobody))


def refusal(client: Etcd) -> str:
    """The words of it. etcd may close the connection before they are read: then it is asked again, and never answers."""
    for _ in range(20):
        try:
            pytest.fail(f"it answered: {client.get('/ebb/a')}")
        except Refused as error:
            return str(error)
        except Unreachable:
            continue
    pytest.fail("it was never said why")


@pytest.mark.e2e
def test_the_servers_certificate_has_the_names_by_which_jobs_ask(certified: Certified) -> None:
    """Of its own etcd, and of no other."""
    worker = certified.workers["red"]
    for name, fits in (("etcd-service", True), ("etcd-team-red.ebb-system.svc", True), ("etcd.ebb-system.svc", False)):
        port = certified.servers["red"].port
        client = Etcd([f"https://{name}:{port}"], tls=tls(worker), timeout_seconds=5, addresses={name: ["127.0.0.1"]})
        if fits:
            assert client.get("/ebb/nothing") is None
        else:
            with pytest.raises(Refused, match="CERTIFICATE_VERIFY_FAILED"):
                client.get("/ebb/nothing")


@pytest.mark.e2e
def test_maintenance_opens_each_etcd_with_its_own_certificate(certified: Certified, tmp_path: Path) -> None:
    folder = write(tmp_path / "maintenance", certified.secrets.data[SYSTEM, "etcd-maintenance"])
    for team in ("", "red"):
        (folder / "localhost.ca.crt").write_bytes((folder / f"{etcd_of(team)}.ca.crt").read_bytes())
        for end in ("crt", "key"):
            (folder / f"localhost.{end}").write_bytes((folder / f"{etcd_of(team)}.{end}").read_bytes())
        post = gateway(f"https://localhost:{certified.servers[team].port}", folder)
        assert maintain(post, 2**29).startswith("nothing to do")
    with pytest.raises(EtcdError, match=r"cannot be used: .*cronjob/etcd-certificates"):
        gateway("https://etcd:2379", tmp_path)


@pytest.mark.e2e
def test_a_client_reads_its_certificate_again_when_it_is_renewed(certified: Certified, tmp_path: Path) -> None:
    """Without a new client: the next request counts, though a connection was open."""
    own, of_others = (certified.secrets.data[place] for place in (("ebb-team-red", ETCD_SECRET), WORKERS))
    client = Etcd([certified.servers["red"].endpoint], tls=tls(write(tmp_path, own)), timeout_seconds=5)
    client.put("/ebb/renewed", b"1")
    write(tmp_path, of_others)
    with pytest.raises(Refused, match="CERTIFICATE_VERIFY_FAILED"):
        client.get("/ebb/renewed")
    write(tmp_path, own)
    assert client.get("/ebb/renewed") is not None


@pytest.mark.e2e
def test_etcd_shows_its_renewed_certificate_without_a_restart(certified: Certified) -> None:
    server, place = certified.servers["red"], (SYSTEM, "etcd-team-red-server")
    before = shown(server, certified.workers["red"])
    certified.secrets.data[place].pop("tls.crt")
    asyncio.run(kept(certified.secrets, "red", now=datetime.now(UTC)))
    write(certified.folder / "server-red", certified.secrets.data[place])
    after = shown(server, certified.workers["red"])
    assert after == x509.load_pem_x509_certificate(certified.secrets.data[place]["tls.crt"]).serial_number != before
    certified.client("red", "red").put("/ebb/renewed", b"2")


def shown(server: Server, folder: Path) -> int:
    """The serial number of the certificate that an etcd shows to a new connection."""
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection,
        tls(folder).context().wrap_socket(connection, server_hostname="127.0.0.1") as wrapped,
    ):
        found = wrapped.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found).serial_number
