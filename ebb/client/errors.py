"""Errors of the client, beside those of ebb.kube: each message is a sentence that says how to fix it.

ClientError
├── BadRequest     what was asked for cannot be; nothing was sent. Names the field, the value, what is allowed and the fix
├── NoPlatform     no kubeconfig, no answer, or no Ebb stack there
├── Missing        no job, worker or file of that name
└── TimedOut       the time that was given to wait is over
"""


class ClientError(Exception):
    """A sentence for the user."""


class BadRequest(ClientError, ValueError):
    """The user asked for something that cannot be; the message names field, value, what is allowed and the fix."""


class NoPlatform(ClientError):
    """There is no platform to talk to."""


class Missing(ClientError):
    """A job, worker or file of that name does not exist."""


class TimedOut(ClientError):
    """The time that was given to wait is over; what was waited for goes on."""
