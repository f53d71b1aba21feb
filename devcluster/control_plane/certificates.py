"""The devcluster's certificate authority and the certificates that it signs, by openssl. A certificate and its key are one file,
so a kill never leaves half a pair. Made once and kept with the devcluster; nothing here runs longer than a moment.
"""

import base64
import secrets
from pathlib import Path

import yaml

from devcluster.commands import run
from devcluster.settings import Box

DAYS = "3650"  # as long as a devcluster can live; there is no renewal
CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


async def ensure_authority(box: Box) -> None:
    box.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not authority(box).exists():
        await _make(authority(box), [*CURVE, "-subj", "/CN=ebb-box", "-addext", "keyUsage=critical,keyCertSign,cRLSign"])
    if not service_account_key(box).exists():
        part = box.pki / f"{secrets.token_hex(4)}.part"
        await run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", part)
        part.replace(service_account_key(box))


async def ensure(box: Box, path: Path, *, user: str, group: str = "", names: tuple[str, ...] = ()) -> Path:
    """A certificate for a client `user` in `group`, and for a server when it has `names` ("DNS:..." or "IP:...")."""
    if not path.exists():
        subject = (f"/O={group}" if group else "") + f"/CN={user}"
        usage = "clientAuth" + (",serverAuth" if names else "")
        args = [
            *CURVE,
            "-subj",
            subject,
            "-CA",
            str(authority(box)),
            "-CAkey",
            str(authority(box)),
            "-addext",
            f"extendedKeyUsage={usage}",
        ]
        args += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=critical,digitalSignature"]
        await _make(path, args + (["-addext", "subjectAltName=" + ",".join(names)] if names else []))
    return path


def authority(box: Box) -> Path:
    return box.pki / "authority.pem"


def authority_certificate(box: Box) -> str:
    """Only the certificate, for those who must not sign."""
    text = authority(box).read_text()
    start = text.index("-----BEGIN CERTIFICATE-----")
    return text[start:]


def service_account_key(box: Box) -> Path:
    return box.pki / "service-accounts.pem"


def kubeconfig(box: Box, certificate: Path) -> str:
    """A kubeconfig that stands alone: everything is in it."""
    pair = base64.b64encode(certificate.read_bytes()).decode()
    cluster = {
        "server": box.api_url,
        "certificate-authority-data": base64.b64encode(authority_certificate(box).encode()).decode(),
    }
    name = f"box-{box.name}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {"client-certificate-data": pair, "client-key-data": pair}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return yaml.safe_dump(document, sort_keys=False)


def write_private(path: Path, text: str) -> None:
    """Writes a file with secrets, whole or not at all."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    part.touch(mode=0o600)
    part.write_text(text)
    part.replace(path)


async def _make(path: Path, args: list[str]) -> None:
    key, certificate = (path.with_name(f".{path.name}.{secrets.token_hex(4)}") for _ in range(2))
    await run("openssl", "req", "-x509", "-days", DAYS, *args, "-keyout", key, "-out", certificate)
    write_private(path, key.read_text() + certificate.read_text())
    key.unlink()
    certificate.unlink()
