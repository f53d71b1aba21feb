"""What the client raises beside the errors of ebb.kube: each message is a sentence that says how to put it right.

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
    """What was named is not there."""


class TimedOut(ClientError):
    """The time that was given to wait is over; what was waited for goes on."""
