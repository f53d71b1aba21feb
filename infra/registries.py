"""The digest that a container registry has for a tag, by the OCI distribution API. Asked without a login.

    resolve("docker.io/library/python:3.11-slim-bookworm")      # sha256:...; raises NotResolvedError, one sentence

The digest is computed here from the manifest that the registry gives, so it is that of what was read and not of what was said. Of
an image for several architectures it is the index's: machines pick theirs from it, as ever.
https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pulling-manifests
https://distribution.github.io/distribution/spec/auth/token/
"""

import hashlib
import json
import re
import urllib.error
import urllib.request
from email.message import Message
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

# Docker Hub's name in images is not the one of its API (https://github.com/distribution/reference, normalize.go).
API_HOSTS: Final = {"docker.io": "registry-1.docker.io"}
INDEXES: Final = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS: Final = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
PLATFORM: Final = "linux/amd64"  # of every machine type that there is
LARGEST_BYTES = 4 * 2**20  # what the specification asks registries to take at least
SECONDS = 20
TAGGED = re.compile(r"(?P<host>[^/\s]+)/(?P<name>[^:@\s]+):(?P<tag>\w[\w.-]{0,127})", re.ASCII)
_LOOPBACK = ("localhost", "127.0.0.1")  # a registry there may speak plain HTTP, as Docker has it


class NotResolvedError(Exception):
    """The digest is not known; the text says who said what, and what to do."""


def resolve(image: str) -> str:
    """The digest of HOST/NAME:TAG. Raises NotResolvedError."""
    match = TAGGED.fullmatch(image)
    if not match:
        raise NotResolvedError(f"{image!r} is not HOST/NAME:TAG, as in docker.io/library/python:3.11")
    host, name, tag = match.groups()
    address = f"{_scheme(host)}://{API_HOSTS.get(host, host)}/v2/{name}/manifests/{tag}"
    try:
        content, headers = _manifest(address, image)
    except urllib.error.HTTPError as error:
        with error:
            raise NotResolvedError(_refusal(error, image)) from error
    except (OSError, HTTPException) as error:
        raise NotResolvedError(f"{host} does not answer: {getattr(error, 'reason', None) or error}") from error
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    named = headers.get("Docker-Content-Digest", digest)
    if named != digest:
        raise NotResolvedError(f"{host} names {named}, and what it gave is {digest}: something between changes it")
    _check(content, headers, host)
    return digest


def _manifest(address: str, image: str) -> tuple[bytes, Message]:
    """The manifest under the tag. A registry that wants a token says who gives one, to anybody for a public image."""
    accept = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
    try:
        return _get(address, accept)
    except urllib.error.HTTPError as error:
        with error:  # it is the answer too, with an open connection
            if error.code != 401:
                raise
            # The address is the one that answered: some registries send on to another, whose token it is.
            return _get(error.url, {**accept, "Authorization": f"Bearer {_token(error, image)}"})


def _token(error: urllib.error.HTTPError, image: str) -> str:
    """Raises NotResolvedError, OSError."""
    scheme, _, rest = error.headers.get("WWW-Authenticate", "").partition(" ")
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    if scheme.lower() != "bearer" or "realm" not in fields:
        raise NotResolvedError(_refusal(error, image))
    realm = urlsplit(fields["realm"])
    if realm.scheme != _scheme(realm.netloc):
        raise NotResolvedError(f"{urlsplit(error.url).netloc} sends for a token to {fields['realm']!r}, which is not https")
    asked = urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    content, _ = _get(realm._replace(query="&".join(filter(None, (realm.query, asked)))).geturl(), {})
    answer = _json(content, realm.netloc)
    token = answer.get("token") or answer.get("access_token")
    if not isinstance(token, str):
        raise NotResolvedError(f"{realm.netloc} answered without a token: is something else there, as a proxy's page?")
    return token


def _get(address: str, headers: dict[str, str]) -> tuple[bytes, Message]:
    """Raises OSError (urllib's errors are some), HTTPException."""
    asked = urllib.request.Request(address, headers={"User-Agent": "ebb"})  # noqa: S310 - https, see _scheme
    for key, value in headers.items():
        # A token is for who asked for it, and not for where it sends on to.
        add = asked.add_unredirected_header if key == "Authorization" else asked.add_header
        add(key, value)
    with urllib.request.urlopen(asked, timeout=SECONDS) as answer:  # noqa: S310 - the same
        content = answer.read(LARGEST_BYTES + 1)
        if len(content) > LARGEST_BYTES:
            raise OSError(f"more than {LARGEST_BYTES} bytes, which no manifest has")
        return content, answer.headers


def _check(content: bytes, headers: Message, host: str) -> None:
    """Raises NotResolvedError if it is no image that machines can run."""
    manifest = _json(content, host)
    kind = manifest.get("mediaType") or headers.get_content_type()
    if kind not in (*INDEXES, *MANIFESTS):
        raise NotResolvedError(f"{host} answered with {kind!r}, which is not an image: is the name right, or a proxy between?")
    if kind in INDEXES:
        there = [one.get("platform") or {} for one in manifest.get("manifests") or ()]
        names = sorted({f"{one.get('os')}/{one.get('architecture')}" for one in there})
        if PLATFORM not in names:
            raise NotResolvedError(
                f"it is there for {', '.join(names) or 'nothing'}, and machines are {PLATFORM}: take another tag"
            )


def _json(content: bytes, host: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NotResolvedError(f"{host} answered with {content[:40]!r}, which is not a JSON object: is a proxy between?")
    return found


def _refusal(error: urllib.error.HTTPError, image: str) -> str:
    host = urlsplit(error.url).netloc
    if error.code == 404:
        return f"{host} has no such tag: check the name and the version"
    if error.code in {401, 403}:
        return (
            f"{host} gives it only after a login ({error.code}): `docker buildx imagetools inspect {image}` prints its digest "
            "after `docker login`; write a line with it into the lock"
        )
    if error.code == 429:
        seconds = error.headers.get("Retry-After")
        return (
            f"{host} takes no more requests from this address (429): try again {f'in {seconds} s' if seconds else 'in an hour'}"
        )
    return f"{host} answered {error.code} {error.reason}: try again later"


def _scheme(host: str) -> str:
    return "http" if host.partition(":")[0] in _LOOPBACK else "https"
