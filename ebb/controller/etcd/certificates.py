"""Make and renew the certificates by which etcd knows who may ask it: `python -m ebb.controller.etcd.certificates --team=vision`.

Each etcd, that of jobs without a team and that of each team, has an authority of its own. What it signs opens this one etcd and
no other:

    Secret (namespace)               what is in it                                             who mounts it
    etcd-ca (ebb-system)             the authority and its key                                 nobody: this program alone reads it
    etcd-server (ebb-system)         etcd's certificate, and the authority                     etcd
    etcd-maintenance (ebb-system)    for each etcd: a client's certificate, and the authority  CronJob etcd-maintenance
    ebb-etcd (of the jobs)           a client's certificate, and the authority                 workers

A team's are etcd-team-<name>-ca, etcd-team-<name>-server, and ebb-etcd in its namespace. The Secrets are declared empty, in
workloads/manifests/certificates.yaml: this program may fill those that it knows by name, and make none.

Safe to run at any time: what is right stays as it is. A certificate lives for a year, and is made anew when a third of that is
left; etcd and Ebb's workers read the files again, so nothing restarts. An authority lives for ten years and is never made anew by
itself, as all that it has signed would end with it: docs/operations.md says how. Exit codes: 0 all is well, 1 it is not, and the
log says why.
"""

import argparse
import asyncio
import base64
import ipaddress
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ebb.api import contract as names
from ebb.api.platform import NAMESPACE as SYSTEM
from ebb.kube import SECRETS, Kube, KubeError, NotFound, Object, Resource

AUTHORITY_LIFE, LIFE = timedelta(days=3650), timedelta(days=365)
SKEW = timedelta(hours=1)  # of the clocks of who makes a certificate and who reads it
MAINTENANCE: Final = "etcd-maintenance"
CA, CA_KEY, CERT, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"  # the keys of the Secrets
log = logging.getLogger("etcd-certificates")

Data = Mapping[str, bytes]
Place = tuple[str, str]
"""Namespace and name of a Secret."""


class Secrets(Protocol):
    """The part of Kube that is needed."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object: ...

    async def patch(self, resource: Resource, namespace: str | None, name: str, body: Object) -> Object: ...


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A certificate and its key, in PEM."""

    cert: bytes
    key: bytes


# ------------------------------------------------------------------------------------------------------------- certificates


def authority(etcd: str, now: datetime) -> Pair:
    """One that signs for this etcd alone. It may sign no other authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"Ebb, authority of {etcd}")
    usage = _usage(digital_signature=False, key_cert_sign=True, crl_sign=True)
    made = (
        _builder(name, name, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def issue(by: Pair, who: str, now: datetime, *, hosts: Sequence[str] = ()) -> Pair:
    """A certificate for `who`. With `hosts` a server's, and a client's too: etcd's gateway for JSON asks its own etcd with it.
    It does not outlive who signs it."""
    signer = x509.load_pem_x509_certificate(by.cert)
    signing_key = serialization.load_pem_private_key(by.key, None)
    assert isinstance(signing_key, ec.EllipticCurvePrivateKey), type(signing_key)
    key = ec.generate_private_key(ec.SECP256R1())
    life = min(LIFE, signer.not_valid_after_utc - now)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    builder = (
        _builder(_name(who), signer.subject, key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True, key_cert_sign=False, crl_sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
    return _pair(builder.sign(signing_key, hashes.SHA256()), key)


def is_good(held: Data, by: Pair, now: datetime, *, cert: str, key: str, ca: str, hosts: Sequence[str] = ()) -> bool:
    """True if what a Secret has under these keys is signed by this authority for these hosts, and over a third of its life is
    left."""
    try:
        found = x509.load_pem_x509_certificate(held[cert])
        private = serialization.load_pem_private_key(held[key], None)
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(by.cert))
        named = _hosts(found)
    except (KeyError, ValueError, TypeError, InvalidSignature):
        return False
    left = found.not_valid_after_utc - now
    fits = private.public_key() == found.public_key() and named == {str(_host(one).value) for one in hosts}
    return fits and held.get(ca) == by.cert and left > (found.not_valid_after_utc - found.not_valid_before_utc) / 3


def _hosts(found: x509.Certificate) -> set[str]:
    try:
        return {str(one.value) for one in found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value}
    except x509.ExtensionNotFound:
        return set()


def _host(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])  # X.509's limit


def _usage(*, digital_signature: bool, key_cert_sign: bool, crl_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _pair(made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(cert=made.public_bytes(serialization.Encoding.PEM), key=secret)


# ------------------------------------------------------------------------------------------------------------- Secrets


def server_hosts(team: str) -> list[str]:
    """The names under which an etcd is asked: its Service's, its alias's beside the jobs, and this machine's for port-forward."""
    here, there = (etcd_of(team), SYSTEM), (names.ETCD_ALIAS, jobs_of(team))
    services = [f"{name}.{namespace}{rest}" for name, namespace in (here, there) for rest in ("", ".svc", ".svc.cluster.local")]
    return [here[0], there[0], *services, "localhost", "127.0.0.1"]


def etcd_of(team: str) -> str:
    """The etcd of a team; "": of jobs without one."""
    return f"{names.TEAM_ETCD}{team}" if team else names.ETCD


def jobs_of(team: str) -> str:
    """The namespace of its jobs."""
    return f"{names.TEAM_PREFIX}{team}" if team else names.JOBS_NAMESPACE


class Keeper:
    """Fills the Secrets. `now`: the time of this run."""

    def __init__(self, secrets: Secrets, now: datetime) -> None:
        self._secrets, self._now = secrets, now

    async def servers(self, teams: Sequence[str]) -> None:
        """Fill those in ebb-system: the authorities, what etcds need, and what their maintenance does. `teams`: "" among them.
        Raises KubeError."""
        maintenance, version = await self._read((SYSTEM, MAINTENANCE))
        kept: dict[str, bytes] = {}
        for team in teams:
            etcd = etcd_of(team)
            by = await self._authority(etcd)
            await self._keep((SYSTEM, f"{etcd}-server"), by, f"server of {etcd}", server_hosts(team))
            keys = {"cert": f"{etcd}.crt", "key": f"{etcd}.key", "ca": f"{etcd}.ca.crt"}
            if is_good(maintenance, by, self._now, **keys):
                kept |= {key: maintenance[key] for key in keys.values()}
            else:
                made = issue(by, f"maintenance of {etcd}", self._now)
                kept |= {keys["cert"]: made.cert, keys["key"]: made.key, keys["ca"]: by.cert}
        if kept != maintenance:
            await self._write((SYSTEM, MAINTENANCE), kept, version, gone=maintenance.keys() - kept.keys())

    async def workers(self, teams: Sequence[str]) -> None:
        """Fill those of workers. Raises KubeError."""
        for team in teams:
            by = await self._authority(etcd_of(team))
            await self._keep((jobs_of(team), names.ETCD_SECRET), by, f"workers in {jobs_of(team)}", ())

    async def _authority(self, etcd: str) -> Pair:
        place = (SYSTEM, f"{etcd}-ca")
        held, version = await self._read(place)
        if held.keys() >= {CA, CA_KEY}:
            found = Pair(cert=held[CA], key=held[CA_KEY])
            ends = x509.load_pem_x509_certificate(found.cert).not_valid_after_utc
            if ends - self._now < 2 * LIFE:
                log.warning("the authority of %s ends on %s: docs/operations.md says how to make a new one", etcd, ends.date())
            return found
        made = authority(etcd, self._now)
        await self._write(place, {CA: made.cert, CA_KEY: made.key}, version)
        return made

    async def _keep(self, place: Place, by: Pair, who: str, hosts: Sequence[str]) -> None:
        held, version = await self._read(place)
        if not is_good(held, by, self._now, cert=CERT, key=KEY, ca=CA, hosts=hosts):
            made = issue(by, who, self._now, hosts=hosts)
            await self._write(place, {CERT: made.cert, KEY: made.key, CA: by.cert}, version)

    async def _read(self, place: Place) -> tuple[dict[str, bytes], str]:
        try:
            found = await self._secrets.get(SECRETS, *place)
        except NotFound as error:
            raise NotFound(
                f"Secret {place[1]} in {place[0]} is not there: `pulumi up`, or `kubectl apply -k workloads/manifests`, makes it"
            ) from error
        data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
        return data, str(found["metadata"]["resourceVersion"])

    async def _write(self, place: Place, data: Data, version: str, *, gone: Iterable[str] = ()) -> None:
        """Conflict if somebody else has written since: the Job tries again, and finds the other's."""
        values = {**{key: base64.b64encode(value).decode() for key, value in data.items()}, **dict.fromkeys(gone)}
        await self._secrets.patch(SECRETS, *place, {"metadata": {"resourceVersion": version}, "data": values})
        log.info("wrote Secret %s in %s", place[1], place[0])


# ------------------------------------------------------------------------------------------------------------- the program


async def keep(teams: Sequence[str], *, servers: bool, workers: bool, kubeconfig: str | None) -> None:
    """Raises KubeError."""
    async with Kube.connect(kubeconfig) as kube:
        keeper = Keeper(kube, datetime.now(UTC))
        if servers:
            await keeper.servers(teams)
        if workers:
            await keeper.workers(teams)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ebb.controller.etcd.certificates", description="Makes and renews the certificates of etcd."
    )
    parser.add_argument("--team", action="append", default=[], metavar="NAME", help="a team with an etcd of its own")
    parser.add_argument("--only", choices=("servers", "workers"), help="what is in ebb-system, or in the jobs' namespaces")
    parser.add_argument("--kubeconfig", help="default: the pod's own account")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    parts = {"servers": given.only != "workers", "workers": given.only != "servers"}
    try:
        asyncio.run(keep(["", *given.team], kubeconfig=given.kubeconfig, **parts))
    except KubeError as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
