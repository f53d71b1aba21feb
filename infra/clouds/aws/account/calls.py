"""Requests to AWS outside Pulumi: the one place that touches boto3, for the commands that look at an account or run a build.

    calls = Account(region)
    calls("sts", "get_caller_identity")["Account"]
    calls.all("ec2", "describe_vpcs", "Vpcs")            # every page, as one list

Nothing here makes anything by itself; that a request is safe is its caller's affair.

    Refused        a request did not succeed; `code` is AWS's word for it, the text one plain sentence
    └─ NoAccess    no request can: there are no credentials, they have expired, or AWS is not reachable
"""

from functools import cache
from typing import Any, Protocol

import boto3
from botocore import exceptions
from botocore.config import Config

from infra import commands
from infra.commands import CannotLook

# Codes that say something of the credentials, not of the request.
EXPIRED = frozenset({
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException",
    "AuthFailure", "SignatureDoesNotMatch", "InvalidAccessKeyId",
})  # fmt: skip
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AccessDeniedFault"})
NO_CREDENTIALS = (
    "there are no AWS credentials in this shell: set AWS_PROFILE, or log in (aws sso login, aws configure), and repeat; "
    "`aws sts get-caller-identity` shows who you are"
)


class Refused(commands.RequestRefused):
    """One request did not succeed."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code

    @property
    def denied(self) -> bool:
        return self.code in DENIED


class NoAccess(Refused, CannotLook):
    """No request succeeds."""


class Calls(Protocol):
    """One request to a service; operation and answer as boto3 has them. Raises Refused."""

    def __call__(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]: ...

    def all(self, service: str, operation: str, key: str, /, **arguments: Any) -> list[Any]:
        """The list `key` of the answer, over all pages."""


class Account:
    """The account of the shell's credentials, in one region."""

    def __init__(self, region: str) -> None:
        # AWS's own backoff for throttling; a host that does not answer shall not hold a check for a minute.
        config = Config(
            region_name=region, retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=5, read_timeout=30
        )
        session = _session(region)
        self._client = cache(lambda service: session.client(service, config=config))

    def __call__(self, service: str, operation: str, /, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client(service), operation)(**arguments)
        except (exceptions.ClientError, exceptions.BotoCoreError) as error:
            raise _in_words(error, service, operation) from error
        return answer

    def all(self, service: str, operation: str, key: str, /, **arguments: Any) -> list[Any]:
        try:
            client = self._client(service)
            if not client.can_paginate(operation):
                return list(getattr(client, operation)(**arguments).get(key, []))
            pages = client.get_paginator(operation).paginate(**arguments)
            return [one for page in pages for one in page.get(key, [])]
        except (exceptions.ClientError, exceptions.BotoCoreError) as error:
            raise _in_words(error, service, operation) from error


def _session(region: str) -> Any:
    try:
        return boto3.Session(region_name=region)
    except exceptions.ProfileNotFound as error:
        raise NoAccess("ProfileNotFound", f"{error}: AWS_PROFILE names a profile that ~/.aws/config does not have") from error


def _in_words(error: Exception, service: str, operation: str) -> Refused:
    if isinstance(error, exceptions.ClientError):
        code, said = error.response["Error"].get("Code", "Unknown"), error.response["Error"].get("Message", "")
        if code in EXPIRED:
            return NoAccess(code, f"AWS does not accept the credentials of this shell ({code}): log in again and repeat")
        return Refused(code, f"{service} {operation}: {code}: {said}")
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return NoAccess("NoCredentials", NO_CREDENTIALS)
    if isinstance(error, exceptions.TokenRetrievalError | exceptions.SSOTokenLoadError | exceptions.UnauthorizedSSOTokenError):
        return NoAccess("NoCredentials", f"the AWS SSO login of this shell has expired ({error}): aws sso login")
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        return NoAccess("Unreachable", f"AWS ({service}) cannot be reached from here: {error}")
    return Refused(type(error).__name__, f"{service} {operation}: {error}")
