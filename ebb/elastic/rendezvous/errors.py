"""Errors between us and etcd, in words for a person: the endpoint, what was found, the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class EtcdError(Exception):
    """Root of what the client raises.

    EtcdError
    ├── Unreachable   nobody answers, or etcd has no leader: try again later
    ├── Refused       etcd answered no; trying again gives the same
    │   ├── LeaseGone    the lease of this write has expired: its owner was taken for dead
    │   └── StaleToken   never leaves the client: it fetches a new one
    └── Compacted     a watch asked for history that is no more: list, and watch from there
    """


class Unreachable(EtcdError):
    """Nobody answers, or etcd has no leader. Training needs no etcd meanwhile; try again later."""


class Refused(EtcdError):
    """etcd answered no: name and password, certificates, a full disk. A person has to act."""


class LeaseGone(Refused):
    """The lease has expired or was revoked."""


class StaleToken(Refused):
    """etcd has forgotten the token, or the users have changed."""


class Compacted(EtcdError):
    """The history from that revision on is no more."""


# Codes of gRPC, as the gateway passes them on: https://grpc.io/docs/guides/status-codes/
_NOT_FOUND, _OUT_OF_RANGE, _UNAUTHENTICATED = 5, 11, 16
_TRY_AGAIN = {1, 4, 10, 13, 14}

# What etcd (or TLS) says -> what to do about it.
_FIXES = {
    "user name is empty": "it asks for a user and a password: give --rdzv_conf user=NAME and the environment EBB_ETCD_PASSWORD",
    "invalid user ID or password": "user {user!r} and the password in the environment EBB_ETCD_PASSWORD do not belong together",
    "permission denied": "user {user!r} needs a role with readwrite on the prefix /ebb/: "
    "etcdctl role grant-permission ROLE --prefix=true readwrite /ebb/",
    "database space exceeded": "its database is full: compact and defragment it, then `etcdctl alarm disarm`; "
    "run it with --auto-compaction-retention",
    "HTTP request to an HTTPS server": "it speaks TLS: write the endpoint with https:// and give --rdzv_conf cacert=PATH",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: write the endpoint with http://, or without cacert",
    "RECORD_LAYER_FAILURE": "it does not speak TLS: write the endpoint with http://, or without cacert",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted: give the authority that signed it, --rdzv_conf cacert=PATH, "
    "and use a host name that the certificate names",
    "ALERT": "it did not take our certificate: give --rdzv_conf cert=PATH,key=PATH, signed by the authority that etcd trusts",
    "authentication is not enabled": "",
}


def explain(endpoint: str, status: int, found: Mapping[str, Any], *, user: str) -> EtcdError:
    """The error for an answer that is none. `found` is its JSON: {"error" or "message": text, "code" or "grpc_code": number}."""
    message = str(found.get("message") or found.get("error") or f"status {status}")
    code = int(found.get("code") or found.get("grpc_code") or 0)
    said = f"etcd at {endpoint} said {message!r}"
    if kind := _kind(code, message):
        return kind(said)
    for words, fix in _FIXES.items():
        if words in message:
            return Refused(f"{said}: {fix.format(user=user)}".removesuffix(": "))
    if status == 404 and code in (0, _NOT_FOUND):
        return Refused(f"{endpoint} answered 404: it is no etcd of 3.4 or newer, or runs with --enable-grpc-gateway=false")
    hung_up = (
        "UNEXPECTED_EOF" in message or "EOF occurred in violation" in message
    )  # it is being restarted, or has just refused us
    if code in _TRY_AGAIN or hung_up or status >= 500 or status == 429 or "too many requests" in message:
        return Unreachable(said)
    return Refused(said)


def _kind(code: int, message: str) -> type[EtcdError] | None:
    """The errors that the client itself must tell apart."""
    if "lease not found" in message:
        return LeaseGone
    if code == _UNAUTHENTICATED or "invalid auth token" in message or "auth store is old" in message:
        return StaleToken
    return Compacted if code == _OUT_OF_RANGE or "has been compacted" in message else None


def reason(error: BaseException, *, secure: bool) -> str:
    """Why there was no answer, shortly. `secure`: it was asked by TLS."""
    said = str(error)
    hung_up = any(words in said for words in ("UNEXPECTED_EOF", "RemoteDisconnected", "ConnectionResetError"))
    if hung_up and secure:
        return "it hung up on TLS: it is being restarted, or speaks none (then write the endpoint with http://)"
    if hung_up:
        return "it hung up: it is being restarted, or speaks TLS (then write the endpoint with https://)"
    return said.rpartition(": ")[2] or type(error).__name__
