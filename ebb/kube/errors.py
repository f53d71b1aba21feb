"""Errors of an API server and of the way to it; callers decide by the class whether to try again.

KubeError                   the API server refused
├── NotFound      404       the object, its namespace or its kind is not there
├── Conflict      409       somebody else wrote first, or it exists already: read again
├── Gone          410       the resource version is too old: list again
├── Invalid       400, 422  the object itself is wrong: the message names the field
├── Denied        401, 403  the credentials do not allow this, or a quota is used up
└── Unreachable             no answer, or none of an API server: wrong address, server down, network, a login page
ConfigError                 no usable kubeconfig
"""

from collections.abc import Mapping

TOO_MANY_REQUESTS, SERVER_ERRORS = 429, 500


class KubeError(Exception):
    """The API server refused. `status` is the HTTP status (0: none), `reason` the server's word for it, e.g. AlreadyExists;
    `retry_seconds`: for how long the server asks to be left alone (Retry-After), 0 if it does not say."""

    def __init__(self, message: str, status: int = 0, reason: str = "", retry_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_seconds = status, reason, retry_seconds

    @property
    def busy(self) -> bool:
        """Return whether the server cannot do it now, which says nothing about the request."""
        return self.status == TOO_MANY_REQUESTS or self.status >= SERVER_ERRORS


class NotFound(KubeError):
    """404."""


class Conflict(KubeError):
    """409. `reason` distinguishes a lost race (Conflict) from an object that exists already (AlreadyExists)."""


class Gone(KubeError):
    """410, also as an ERROR event inside a watch."""


class Invalid(KubeError):
    """400 or 422."""


class Denied(KubeError):
    """401 or 403."""


class Unreachable(KubeError):
    """No answer, or none that an API server would give; worth trying again."""


class KubeconfigError(KubeError):
    """The kubeconfig is missing or unusable; the message says how to get one."""


BY_STATUS: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}
